"""
Logfire's instrumentations of the OpenAI and Anthropic libraries, exported to the address in the standard variables.
"""

from __future__ import annotations

import sys

import anthropic
import anthropic_calls
import logfire
import openai
import openai_calls

logfire.configure(send_to_logfire=False, console=False, service_name="clients")
logfire.instrument_openai()
logfire.instrument_anthropic()
for name in sys.argv[1:]:
    if hasattr(openai_calls, name):
        openai_calls.run(openai, [name])
    else:
        anthropic_calls.run(anthropic, [name])
logfire.shutdown()
