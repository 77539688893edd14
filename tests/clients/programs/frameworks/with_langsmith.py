"""LangChain under LangSmith's own OpenTelemetry exporter, without sending to LangSmith."""

from __future__ import annotations

import sys

import langchain_calls
from langsmith import Client
from langsmith.run_helpers import tracing_context
from telemetry import exported

with exported():
    client = Client(api_url="http://127.0.0.1:9", api_key="unused", otel_enabled=True)
    with tracing_context(enabled=True, client=client):
        langchain_calls.run(sys.argv[1:])
    client.flush()
