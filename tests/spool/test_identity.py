"""The identity of a call is equal in every installation and for every reporter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.identity import (
    LONG_ENOUGH,
    STEP_NS,
    call_identity,
    dedup_key_of_cloud_event,
    dedup_key_of_metric_point,
    dedup_key_of_span,
    dedup_keys_by_exact_start,
    dedup_keys_of_request_id,
    identity_for_uncounted_source,
    identity_from_ids,
    is_encrypted_id,
    is_long_id,
    request_id_type_prefix,
)
from spool.record import Inference

START = 1_790_000_000 * 1_000_000_000
LONG = "chatcmpl-9J3uIL87gldCFtiIbyaOvTeYBRA3l"


def call(source: str = "otel", **fields: object) -> Inference:
    return Inference(id=b"", source=source, **{"start_time": START, "input_tokens": 5, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("response_id", "long"),
    [
        (LONG, True),
        ("chatcmpl-998", False),
        ("msg_0123456789abcdef", True),
        ("msg_0123456789abcde", False),
        ("0123456789abcdef", True),
        ("resp_", False),
        ("req_" + "x" * 16, True),
        ("gen-1732632000-abcdefghij", True),
        ("gen-1732632000-abcd", False),
        # A prefix has the letters up to the first - or _. Therefore `bdrk_` belongs to the id.
        ("msg_bdrk_0123456789", False),
        ("msg_bdrk_01234567890", True),
        ("31aec259-5224-4903-ad2a-91ade65c0987", True),
        (
            "abcdefab-5224-4903-ad2a-91ade65c0987",
            True,
        ),  # the id has no prefix, although it starts with eight letters
        ("abcdefab-0123456789abcde", False),
        ("gpt4-0123456789a", True),  # `gpt4` is no prefix, because it contains a digit
        ("-0123456789abcde", True),
        ("idé-0123456789ab", True),
        ("", False),
        ("resp_" + "bGl0ZWxsbTpj" * 30, True),
    ],
)
def test_sixteen_characters_after_the_prefix_are_enough(response_id: str, long: bool) -> None:
    """
    A response id counts as long if at least sixteen characters follow its prefix. The prefix is the leading
    letters up to the first - or _.
    """
    assert long == is_long_id(response_id)


@given(st.text(st.sampled_from("aZ0-_é"), max_size=40))
def test_length_is_that_of_what_follows_the_prefix(response_id: str) -> None:
    """Whether an id is long follows the written rule, for any id."""
    prefix = re.match(r"[A-Za-z]+[-_]", response_id)
    assert is_long_id(response_id) == (len(response_id) - (prefix.end() if prefix else 0) >= LONG_ENOUGH)


def test_an_id_longer_than_those_of_providers_is_sealed() -> None:
    """Providers' ids have at most 96 characters. A longer id is sealed and identifies no call."""
    longest = "msg_" + "x" * 92
    assert not is_encrypted_id(longest)
    assert "msg_" == request_id_type_prefix(call(request_id=longest))
    assert is_encrypted_id(longest + "x")
    assert request_id_type_prefix(call(request_id=longest + "x")) is None


def test_a_long_response_id_alone_is_the_identity() -> None:
    """Rule 2: for a long response id, source, time and tokens do not matter."""
    other = call("litellm", start_time=None, input_tokens=None)
    assert call_identity(call(), response_id=LONG) == call_identity(other, response_id=LONG)


def test_cached_answer_does_not_get_the_first_calls_id() -> None:
    """Rules 2 and 3 are skipped for status cached, because a cached answer contains the first call's id."""
    cached = call_identity(call(status="cached"), response_id=LONG, own_id="hit-1")
    assert cached != call_identity(call(), response_id=LONG)
    assert cached == call_identity(call(status="cached"), own_id="hit-1")


def test_the_providers_request_id_is_the_name_under_which_others_know_the_call() -> None:
    """A further name from a request id equals the id of a report that has only this request id."""
    request_id = "req_011CSHoEeqs5C35K2UUqR7Fy"
    only_request = call_identity(call("claude_code"), response_id=request_id)
    assert (only_request.id,) == dedup_keys_of_request_id(call(), request_id)
    for record, nothing in ((call(), None), (call(), "req_1"), (call(status="cached"), request_id)):
        assert () == dedup_keys_of_request_id(record, nothing)


def test_a_short_id_needs_outcome_tokens_and_step() -> None:
    """
    A call with a short id also needs its outcome, tokens and time to be identified (rule 3): chatcmpl-0 at another
    time, with another outcome or another size, is another call.
    """
    first = call_identity(call(), response_id="chatcmpl-0")
    assert first == call_identity(call("litellm"), shared_id="chatcmpl-0")
    for other in ({"start_time": START + 60_000_000_000}, {"status": "error"}, {"input_tokens": 6}):
        assert first.id != call_identity(call(**other), response_id="chatcmpl-0").id
    assert (
        call_identity(call(output_tokens=0), response_id="x").id
        == call_identity(call(output_tokens=None), response_id="x").id
    )


def spanned(span_id: str = "b", **fields: object) -> Inference:
    return call("otel", trace_id="a", span_id=span_id, **fields)


@pytest.mark.parametrize(("short", "shared"), [("chatcmpl-0", None), (None, LONG)])
def test_a_span_with_a_short_id_is_known_by_its_own_ids(short: str | None, shared: str | None) -> None:
    """
    A span with a short id is identified by its own ids, because rule 4 is before rule 3 for a span. The short or
    shared id only links it to logs.
    """
    span, other = (
        call_identity(spanned(id), span=True, response_id=short, shared_id=shared) for id in ("b", "c")
    )
    assert span.id == dedup_key_of_span("a", "b") != other.id
    assert () == span.lookups
    log = call_identity(call("litellm"), response_id=short, shared_id=shared)
    assert log.id in {name for _, name in span.links}
    assert {own for own, _ in span.links} & {name for _, name in log.links}
    assert not {log.id, *log.lookups, *log.keys_to_remember} & {span.id, *span.keys_to_remember}


def test_a_shadow_finds_the_other_side_of_a_short_id() -> None:
    span, log = (call_identity(spanned(), span=span, response_id="chatcmpl-0") for span in (True, False))
    assert log.id in identity_for_uncounted_source(span).lookups
    assert span.keys_to_remember[0] in identity_for_uncounted_source(log).lookups


def test_a_spans_record_states_its_dedup_key() -> None:
    """A device's own Tollhouse forwards the record of a span. The links to logs follow from its fields."""
    for request_id in ("chatcmpl-0", None):
        identity = call_identity(spanned(), span=True, response_id=request_id)
        record = spanned(request_id=request_id)
        record.id = identity.id
        assert identity == identity_from_ids(record)


def test_a_neighbour_step_is_looked_up() -> None:
    """Two clocks that differ by four seconds find the same call."""
    early = call_identity(call(start_time=START - START % STEP_NS), response_id="chatcmpl-0")
    late = call_identity(call(start_time=START - START % STEP_NS + STEP_NS), response_id="chatcmpl-0")
    assert early.id in late.lookups
    assert late.id in early.lookups


@given(
    start=st.one_of(st.integers(-(2**62), 2**62), st.integers(-20, 20).map(lambda step: step * STEP_NS)),
    apart=st.integers(-3 * STEP_NS, 3 * STEP_NS),
)
def test_clocks_a_step_apart_name_one_call(start: int, apart: int) -> None:
    """Clocks one step apart agree for any epoch and any border of a step. Two steps apart are two calls."""
    one, other = (
        call_identity(call(start_time=at), response_id="chatcmpl-0") for at in (start, start + apart)
    )
    found = one.id in (other.id, *other.lookups)
    assert found == (other.id in (one.id, *one.lookups))
    if abs(apart) <= STEP_NS:
        assert found
    if abs(apart) >= 2 * STEP_NS:
        assert not found


def test_a_short_id_without_a_start_is_known_by_itself() -> None:
    """A short id without a start has no step and no neighbor, so it matches no call with a start."""
    lost = call_identity(call(start_time=None), response_id="chatcmpl-0")
    assert lost.lookups == ()
    assert lost.certain is True
    assert lost == call_identity(call("litellm", start_time=None), shared_id="chatcmpl-0")
    assert lost.id not in call_identity(call(start_time=0), response_id="chatcmpl-0")


def test_nobody_but_a_shadow_finds_a_shadow() -> None:
    """A shadow finds the call that it reports, also at neighbor steps."""
    counts, shadow = (
        call_identity(call(), response_id="x"),
        identity_for_uncounted_source(call_identity(call(), response_id="x")),
    )
    assert {counts.id, *counts.lookups} < {*shadow.lookups}
    assert shadow.id not in (counts.id, *counts.lookups)
    later = identity_for_uncounted_source(call_identity(call(start_time=START + STEP_NS), response_id="x"))
    assert shadow.id in later.lookups


def test_the_rules_in_their_order() -> None:
    """
    The id of a span is used first, then the record's own id, then the session. If no rule applies, the
    id is random.
    """
    spanned = call(trace_id="t", span_id="s", session="c")
    assert call_identity(spanned, span=True, own_id="o") == call_identity(spanned, span=True)
    assert call_identity(spanned, own_id="o") == call_identity(call("otel"), own_id="o")
    assert call_identity(call("kong"), own_id="o") != call_identity(call("otel"), own_id="o")
    assert call_identity(spanned, sequence=1) != call_identity(spanned, sequence=2)
    lost = call_identity(call(start_time=None))
    assert not lost.certain
    assert lost.id != call_identity(call(start_time=None)).id


def test_points_and_events_do_not_collide() -> None:
    """
    Under rule 7 the border between the parts matters. For example, the events ("a", "b") and ("ab", "")
    have different ids.
    """
    assert dedup_key_of_metric_point(b"\0" * 16, 1, 2) != dedup_key_of_metric_point(b"\0" * 16, 2, 1)
    assert dedup_key_of_cloud_event("a", "b") != dedup_key_of_cloud_event("ab", "")
    assert 16 == len(dedup_key_of_cloud_event("a", "b"))


def test_start_time_distinguishes_calls_of_a_group() -> None:
    """
    Calls of a group are distinguished by model, outcome, counts and the microsecond of the start. A prefix of
    the model's name makes no difference.
    """
    name = dedup_keys_by_exact_start(call(request_model="gpt-4o"), ["trace-1"])
    assert name == dedup_keys_by_exact_start(
        call("litellm", request_model="openai/gpt-4o", start_time=START + 400), ["trace-1"]
    )
    others = [
        dedup_keys_by_exact_start(call(request_model="gpt-4o", **other), ["trace-1"])
        for other in (
            {"start_time": START + 1000},
            {"status": "error"},
            {"input_tokens": 6},
            {"output_tokens": 1},
        )
    ]
    others += [
        dedup_keys_by_exact_start(call(request_model="gpt-4o"), ["trace-2"]),
        dedup_keys_by_exact_start(call(request_model="o3"), ["trace-1"]),
    ]
    assert 7 == len({name, *others})
    assert () == dedup_keys_by_exact_start(call(start_time=None), ["trace-1"])
