"""How each type of usage events is sent to the upstream."""

from __future__ import annotations

from decimal import Decimal

import pytest

from exporters.service.events import event_amount, forwarded_form, is_unmapped_event_type
from exporters.settings import EventStream, UpstreamSettings
from spool.record import Scalar, UsageEvent

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
    """
    A type of usage events is sent as events if the upstream accepts them, or else as its stream. Without a
    mapping it is not sent.
    """
    assert expected == forwarded_form(settings, "api_call")
    assert (expected if expected == "event" else None) == forwarded_form(settings, "login")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (UpstreamSettings(events=MAPPED), False),
        (UpstreamSettings(base_url=SERVICE), True),
        (UpstreamSettings(base_url=SERVICE, events=MAPPED), True),
        (UpstreamSettings(base_url=SERVICE, kind="tollhouse"), False),
    ],
    ids=["nowhere to send", "no mapping", "another type is mapped", "another Tollhouse"],
)
def test_a_type_without_a_mapping(settings: UpstreamSettings, expected: bool) -> None:
    """Only types for the cost service count as unmapped, and only if an upstream is configured."""
    assert expected == is_unmapped_event_type(settings, "login")
    assert not is_unmapped_event_type(UpstreamSettings(base_url=SERVICE, events=MAPPED), "api_call")


@pytest.mark.parametrize(
    ("value", "data", "expected"),
    [
        ("", {}, "1"),
        ("", {"amount": 3}, "3"),
        ("", {"value": 2.5, "pages": 7}, "2.5"),
        ("", {"amount": 3, "value": 4}, "3"),
        ("", {"amount": "many"}, None),
        ("1", {"amount": 3}, "1"),
        ("tokens", {"tokens": 5}, "5"),
        ("data.gb", {"gb": "0.1"}, "0.1"),
        ("tokens", {}, None),
        ("tokens", {"tokens": "many"}, None),
        ("tokens", {"tokens": -5}, None),
        ("tokens", {"tokens": True}, None),
        ("tokens", {"tokens": "1e100"}, "1e100"),
        ("tokens", {"tokens": "1e101"}, None),
        ("tokens", {"tokens": "1e-101"}, None),
        ("tokens", {"tokens": "1e9999999999"}, None),
    ],
)
def test_what_an_event_amounts_to(value: str, data: dict[str, Scalar], expected: str | None) -> None:
    """
    The mapping of the event's type names the field of the amount. Without a name, it is `amount` or `value`, or 1.
    """
    event = UsageEvent(id=bytes(16), source="/app", event_type="api_call", data=data)
    settings = UpstreamSettings(events={"api_call": EventStream(stream="calls", value=value)})
    assert (None if expected is None else Decimal(expected)) == event_amount(settings, event)


@pytest.mark.parametrize(
    ("data", "tags", "expected"),
    [
        ({"amount": 3}, {}, 3),
        ({}, {"amount": "3"}, 3),
        ({"value": 2}, {}, 2),
        ({"pages": 3}, {}, None),
        ({}, {}, None),
    ],
)
def test_without_a_mapping_an_event_has_the_amount_that_it_states(
    data: dict[str, Scalar], tags: dict[str, str], expected: int | None
) -> None:
    event = UsageEvent(id=bytes(16), source="/app", event_type="api_call", data=data, tags=tags)
    assert expected == event_amount(UpstreamSettings(), event)
