"""Google's Agent Development Kit under OpenInference, beside the counters that it keeps by itself."""

from __future__ import annotations

import asyncio
import os
import sys

import google_adk_calls
from openinference.instrumentation.google_adk import GoogleADKInstrumentor
from telemetry import all_exported

os.environ["GOOGLE_API_KEY"] = "fake"
# Its events of what LiteLLM answered count the reasoning twice, where the spans do not: which came first
# would decide.
with all_exported(events=sys.argv[1:] == ["tools"]) as provider:
    GoogleADKInstrumentor().instrument(tracer_provider=provider)
    asyncio.run(google_adk_calls.run(sys.argv[1:]))
