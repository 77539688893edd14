from __future__ import annotations

import sys

import langchain_calls
from openinference.instrumentation.langchain import LangChainInstrumentor
from telemetry import exported

with exported() as provider:
    LangChainInstrumentor().instrument(tracer_provider=provider)
    langchain_calls.run(sys.argv[1:])
