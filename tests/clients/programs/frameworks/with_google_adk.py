"""Google's Agent Development Kit with its own tracing."""

from __future__ import annotations

import asyncio
import os
import sys

import google_adk_calls
from telemetry import all_exported

os.environ["GOOGLE_API_KEY"] = "fake"
with all_exported():
    asyncio.run(google_adk_calls.run(sys.argv[1:]))
