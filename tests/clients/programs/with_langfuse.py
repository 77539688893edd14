"""The current Langfuse SDK (OTLP to a Langfuse address): its OpenAI wrapper, and manual generations."""

from __future__ import annotations

import sys
import time

import langfuse.openai as watched_openai
import openai_calls
from langfuse import get_client, propagate_attributes


def by_hand() -> None:
    """
    Write one generation that is complete from the start, and one whose usage follows after an earlier
    request was sent.
    """
    client = get_client()
    assert client.auth_check()
    with propagate_attributes(user_id="ada", session_id="basket-7", metadata={"tier": "gold"}):
        at_once = client.start_observation(
            name="at once",
            as_type="generation",
            model="gpt-4o",
            usage_details={
                "input": 2000,
                "input_cached_tokens": 1000,
                "output": 450,
                "output_reasoning_tokens": 250,
            },
            cost_details={"input": 0.0075, "output": 0.007},
        )
        at_once.end()
        late = client.start_observation(name="late", as_type="generation", model="gpt-4o-mini")
        client.flush()
        time.sleep(0.2)
        late.update(usage_details={"input": 310, "output": 42})
        late.end()
        client.start_observation(name="no call", as_type="span").end()
        failed = client.start_observation(name="failed", as_type="generation", model="gpt-4o")
        failed.update(level="ERROR", status_message="overloaded")
        failed.end()
    client.flush()


for name in sys.argv[1:]:
    if name == "by_hand":
        by_hand()
    else:
        openai_calls.run(watched_openai.openai, [name])
get_client().flush()
