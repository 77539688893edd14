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


def models(path: str = "", *, anthropic_path: str = "", **more: str) -> list[Any]:
    """Disable the cache, which would answer the second of two equal prompts."""
    provider = os.environ["PROVIDER_URL"] + path
    own: dict[str, Any] = {"cache": False, "num_retries": 0, **more}
    return [
        dspy.LM("openai/gpt-4o", api_base=f"{provider}/v1", **own),
        dspy.LM("anthropic/claude-sonnet-4-5", api_base=provider + anthropic_path, **own),
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


def own_engine(provider: TracerProvider) -> None:
    """
    Run without the provider's address in a variable. DSPy's own engine then calls the provider, and LiteLLM's
    instrumentation sees nothing. This engine expects the version in the address.
    """
    without_addresses(provider, models(anthropic_path="/v1"))


def litellm_engine(provider: TracerProvider) -> None:
    without_addresses(provider, models(engine="litellm"))


def without_addresses(provider: TracerProvider, asked: list[Any]) -> None:
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        os.environ.pop(variable)
    LiteLLMInstrumentor().instrument(tracer_provider=provider)
    for model in asked:
        model(QUESTION)


with exported() as tracer_provider:
    DSPyInstrumentor().instrument(tracer_provider=tracer_provider)
    for name in sys.argv[1:]:
        globals()[name](tracer_provider)
