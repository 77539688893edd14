"""DSPy under OpenInference, alone and above the instrumentation of LiteLLM, by which it calls."""

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
    """Every question is asked anew: its cache would answer the second of two."""
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
    """The provider's answer has no fields, so each adapter asks in turn: two calls of one question."""
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
    """With LiteLLM's instrumentation below its own."""
    LiteLLMInstrumentor().instrument(tracer_provider=provider)
    answers(provider)
    predictions(provider)
    failures(provider)


with exported() as tracer_provider:
    DSPyInstrumentor().instrument(tracer_provider=tracer_provider)
    for name in sys.argv[1:]:
        globals()[name](tracer_provider)
