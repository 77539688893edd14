from __future__ import annotations

import pytest

from spool.registry.scopes import CREATE_EVENT
from tests.clients.conftest import Stand

pytestmark = pytest.mark.clients


def accepted(stand: Stand) -> dict[str, int]:
    topics = {row["topic"]: row for row in stand.tollhouse.json("spool", "status")["topics"]}
    events = topics.get("usage-events", {})
    return {term: events.get(term, 0) for term in ("accepted", "duplicates")}


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_the_official_sdk(stand: Stand, mode: str) -> None:
    """
    Events are accepted in both modes. The same event again is a duplicate, and its sender gets no error.
    """
    key = stand.tollhouse.key(f"events {mode}", "--scope", CREATE_EVENT)
    before = accepted(stand)
    said = stand.run("events", "with_events.py", mode, TOLLHOUSE_URL=stand.url, EVENTS_KEY=key)
    assert ["1", "1"] == said.split()
    after = accepted(stand)
    assert {"accepted": 1, "duplicates": 1} == {term: after[term] - before[term] for term in after}


def test_the_openmeter_client(stand: Stand) -> None:
    """A reported call becomes an inference record of its customer."""
    stand.run("events", "with_events.py", "openmeter", TOLLHOUSE_URL=stand.url, TELEMETRY_KEY=stand.key)
    (record,) = stand.records()
    shown = {
        name: record[name]
        for name in ("source", "request_model", "input_tokens", "output_tokens", "cost", "user")
    }
    assert {
        "source": "openmeter",
        "request_model": "gpt-4o",
        "input_tokens": 100,
        "output_tokens": 20,
        "cost": "0.5",
        "user": "customer-1",
    } == shown
