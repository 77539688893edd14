"""Usage events on their way to the upstream: what becomes of each type."""

from __future__ import annotations

import pytest

from exporters.service.events import sent_as
from exporters.settings import EventStream, UpstreamSettings

MAPPED = {"api_call": EventStream(stream="calls")}
SERVICE = "http://cost.example"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (UpstreamSettings(), None),
        (UpstreamSettings(events=MAPPED), None),
        (UpstreamSettings(base_url=SERVICE), None),
        (UpstreamSettings(base_url=SERVICE, events=MAPPED), "unit-cost stream calls"),
        (UpstreamSettings(base_url=SERVICE, kind="tollhouse", events=MAPPED), "event"),
        (UpstreamSettings(base_url=SERVICE, paths={"usage-events": "/events"}, events=MAPPED), "event"),
    ],
    ids=["no upstream", "nowhere to send", "unmapped", "mapped", "another Tollhouse", "a path of its own"],
)
def test_a_type_leaves_in_one_way(settings: UpstreamSettings, expected: str | None) -> None:
    """As an event where the upstream takes events, else as its stream; without a mapping it stays."""
    assert expected == sent_as(settings, "api_call")
    assert (expected if expected == "event" else None) == sent_as(settings, "login")
