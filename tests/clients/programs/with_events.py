"""CloudEvents from the official SDK in each of its modes, and from OpenMeter's client."""

from __future__ import annotations

import os
import sys

import openmeter
import requests
from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent

ATTRIBUTES = {"type": "tokens.used", "source": "https://example.com/app", "subject": "acme"}


def sdk(mode: str) -> None:
    """Send the same event twice."""
    event = CloudEvent(ATTRIBUTES, {"tokens": 12, "model": "gpt-4o"})
    headers, body = to_structured(event) if mode == "structured" else to_binary(event)
    for _ in range(2):
        url = os.environ["TOLLHOUSE_URL"] + "/v1/events"
        answer = requests.post(
            url, data=body, headers={**headers, "Authorization": os.environ["EVENTS_KEY"]}, timeout=30
        )
        answer.raise_for_status()
        print(answer.json()["accepted"])


def openmeter_client() -> None:
    """Send a call in the form of OpenMeter's LiteLLM integration."""
    headers = {"Accept": "application/json", "Authorization": "Bearer " + os.environ["TELEMETRY_KEY"]}
    client = openmeter.Client(endpoint=os.environ["TOLLHOUSE_URL"], headers=headers)
    data = {"model": "gpt-4o", "prompt_tokens": 100, "completion_tokens": 20, "cost": "0.5"}
    client.ingest_events({
        "specversion": "1.0", "id": "call-1", "source": "shop", "type": "litellm_tokens", "subject": "customer-1",
        "time": "2026-11-01T10:00:00Z", "data": data,
    })  # fmt: skip


if __name__ == "__main__":
    openmeter_client() if sys.argv[1] == "openmeter" else sdk(sys.argv[1])
