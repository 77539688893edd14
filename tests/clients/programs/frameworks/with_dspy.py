"""DSPy under OpenInference, without and with the instrumentation of LiteLLM, through which it calls."""

from __future__ import annotations

import os
import sys
from typing import Any

import dspy
from openinference.instrumentation.dspy import DSPyInstrumentor
from openinference.instrumentation.litellm import LiteLLMInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from telemetry import exported

QUESTION = "What is the toll?"


def models(path: str = "") -> list[Any]:
    """Disable the cache, which would answer the second of two equal prompts."""
    provider = os.environ["PROVIDER_URL"] + path
    own: dict[str, Any] = {"cache": False, "num_retries": 0}
    return [
        dspy.LM("openai/gpt-4o", api_base=f"{provider}/v1", **own),
        dspy.LM("anthropic/claude-sonnet-4-5", api_base=provider, **own),
    ]


def answers(_: TracerProvider) -> None:
    for model in models():
        model(QUESTION)


def predictions(_: TracerProvider) -> None:
    """
    Make predictions. The provider's response has no fields, so DSPy tries both adapters: two calls per prediction.
    """
    with dspy.context(lm=models()[0]):
        try:
            dspy.Predict("question -> answer")(question=QUESTION)
        except Exception as error:
            assert "parse" in str(error), error


def failures(_: TracerProvider) -> None:
    for model in models("/fail-500"):
        try:
            model(QUESTION)
        except Exception as error:
            assert "the provider failed" in str(error), error
        else:
            raise AssertionError("it did not fail")


def nested(provider: TracerProvider) -> None:
    """Run with LiteLLM's instrumentation below its own."""
    LiteLLMInstrumentor().instrument(tracer_provider=provider)
    answers(provider)
    predictions(provider)
    failures(provider)


with exported() as tracer_provider:
    DSPyInstrumentor().instrument(tracer_provider=tracer_provider)
    for name in sys.argv[1:]:
        globals()[name](tracer_provider)
