"""
MLflow's tracing of the OpenAI and Anthropic libraries, with its own attributes or, by a variable, OpenTelemetry's.
"""

from __future__ import annotations

import sys

import anthropic
import anthropic_calls
import mlflow
import openai
import openai_calls

CALLS = {
    "answers": ("chat", "responses", "messages"),
    "streams": ("stream", "silent_stream", "raw_stream", "managed_stream"),
    "tools": ("tools", "message_tools"),
    "failures": ("failures", "message_failures"),
    "embeddings": ("embeddings",),
}

mlflow.openai.autolog()
mlflow.anthropic.autolog()
for group in sys.argv[1:]:
    for name in CALLS[group]:
        if hasattr(openai_calls, name):
            openai_calls.run(openai, [name])
        else:
            anthropic_calls.run(anthropic, [name])
mlflow.flush_trace_async_logging()
