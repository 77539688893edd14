"""Incoming spans of another Tollhouse. The tests of the encoder cover the round trip."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, said, span, traces

ID = "0f" * 16
FORWARDED = {
    "tollhouse.id": ID,
    "tollhouse.source": "litellm",
    "tollhouse.status": "cached",
    "tollhouse.cost": "0.10",
    "tollhouse.cost_source": "reported",
    "tollhouse.user": "none",
    "gen_ai.operation.name": "chat",
    "gen_ai.usage.input_tokens": 10,
    "gen_ai.usage.cache_read.input_tokens": 400,
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_forwarded_span_is_stored_unchanged(encoding: str) -> None:
    """
    A span of another Tollhouse is stored as it is: no dialect applies, counts stay, `none` is a user, the record
    keeps its id, and it is not priced.
    """
    outcome = normalised(
        traces(span(1, FORWARDED), scope="strands.telemetry.tracer", resource={"user.id": "not me"}),
        encoding=encoding,
    )
    (record,) = outcome.records
    assert bytes.fromhex(ID) == record.id
    assert outcome.forwarded == {0}
    assert {
        "source": "litellm",
        "status": "cached",
        "operation": "chat",
        "input_tokens": 10,
        "cache_read_tokens": 400,
        "user": "none",
        "cost": "0.1",
    } == said(record)  # type: ignore[arg-type]


def test_a_forwarded_span_is_nobodys_twin() -> None:
    """
    A forwarded span matches no call above or below it, because the sending Tollhouse has already
    merged its reports.
    """
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10}
    assert 2 == len(normalised(traces(span(1, call), span(2, FORWARDED, parent=1))).records)
    assert 2 == len(normalised(traces(span(1, FORWARDED), span(2, call, parent=1))).records)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tollhouse.id": "abc"}, "malformed"),
        ({"tollhouse.id": 7}, "malformed"),
        ({"gen_ai.usage.input_tokens": -7}, "implausible"),
        ({"tollhouse.cost": "-1"}, "implausible"),
    ],
)
def test_a_forwarded_span_that_cannot_be_is_rejected(changes: dict[str, Any], reason: str) -> None:
    """A malformed id or an impossible value rejects only its item."""
    outcome = normalised(traces(span(1, FORWARDED | changes), span(2, FORWARDED)))
    assert [reject.reason for reject in outcome.rejects] == [reason]
    assert len(outcome.records) == 1


@pytest.mark.parametrize(
    ("times", "start", "end"), [("none", False, False), ("start", True, False), ("end", False, True)]
)
def test_times_attribute_states_which_times_of_a_span_are_real(times: str, start: bool, end: bool) -> None:
    """A span needs two times. If the source knew fewer, an attribute states which of the times are real."""
    record = only(traces(span(1, FORWARDED | {"tollhouse.times": times})))
    assert (record.start_time is not None) == start
    assert (record.end_time is not None) == end


def test_a_text_that_no_server_would_send_is_left_out() -> None:
    """
    A text that is longer than any that a Tollhouse sends is left out, because names become rows,
    labels and filters.
    """
    record = only(traces(span(1, FORWARDED | {"tollhouse.source": "s" * 2049, "tollhouse.team": "t" * 2048})))
    assert record.source == "otel"
    assert record.team == "t" * 2048


@pytest.mark.parametrize(
    ("stated", "region"),
    [
        ("us-east-1", "us-east-1"),
        ("East US 2", "eastus2"),
        ("r" * 65, None),
        ("any words at all!", None),
        (7, None),
    ],
)
def test_a_region_is_summed_under_one_spelling(stated: Any, region: str | None) -> None:
    """The region of a forwarded span is normalized like that of any other source."""
    assert region == only(traces(span(1, FORWARDED | {"tollhouse.region": stated}))).region
