"""Google's Agent Development Kit under OpenInference, next to its own counters."""

from __future__ import annotations

import asyncio
import os
import sys

import google_adk_calls
from openinference.instrumentation.google_adk import GoogleADKInstrumentor
from telemetry import all_exported

os.environ["GOOGLE_API_KEY"] = "fake"
# ADK's events of LiteLLM responses count reasoning tokens twice, but its spans do not. With both, the order
# of arrival would decide the result.
with all_exported(events=sys.argv[1:] == ["tools"]) as provider:
    GoogleADKInstrumentor().instrument(tracer_provider=provider)
    asyncio.run(google_adk_calls.run(sys.argv[1:]))
