"""The Langfuse SDK 2 (ingestion batches): its OpenAI wrapper, and manual generations."""

from __future__ import annotations

import sys
import time

import langfuse.openai as watched_openai
import openai_calls
from langfuse import Langfuse


def by_hand() -> None:
    """
    Write one generation that is complete from the start, and one whose usage follows after an earlier
    request was sent.
    """
    client = Langfuse()
    assert client.auth_check()
    trace = client.trace(name="shop", user_id="ada", session_id="basket-7", tags=["tier:gold"])
    trace.generation(
        name="at once",
        model="gpt-4o",
        usage_details={
            "input": 2000,
            "input_cached_tokens": 1000,
            "output": 450,
            "output_reasoning_tokens": 250,
        },
        cost_details={"input": 0.0075, "output": 0.007},
    ).end()
    late = trace.generation(name="late", model="gpt-4o-mini")
    client.flush()
    time.sleep(0.2)
    late.end(usage_details={"input": 310, "output": 42})
    trace.span(name="no call").end()
    trace.generation(name="failed", model="gpt-4o").end(level="ERROR", status_message="overloaded")
    client.flush()


def main() -> None:
    for name in sys.argv[1:]:
        if name == "by_hand":
            by_hand()
        else:
            openai_calls.run(watched_openai.openai, [name])
            watched_openai.openai.flush_langfuse()


main()
