"""
Properties of every format, for any payload: no error except BadPayload, balanced accounting, integer tokens,
and no content in the result.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.errors import BadPayload
from gateway.normalise import any_format
from gateway.normalise.formats.langfuse.merger import (
    complete_without_later_reports,
    count_incomplete_generations,
)
from gateway.normalise.formats.list import FORMAT_NAMES, recognise_format_or_refuse
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from spool.record import Inference, UsageMetric, pack_records, record_to_json
from tests.gateway.normalise.formats.payloads import assert_balanced, cases, run
from tests.gateway.normalise.reading import test_content as content_names
from tests.rounds import examples, some

FORMATS = [name for name in FORMAT_NAMES if "/" not in name]
CANARY = "CANARY-7f3a"
# Names under which senders put prompts, answers, credentials and stack traces.
CONTENT = (
    "messages", "content", "prompt", "prompts", "completion", "input", "output", "body", "text", "headers", "traceback",
    "error_message", "error_str", "statusMessage", "request_body", "response_body", "inputBodyJson", "outputBodyJson",
    "contents", "candidates", "choices", "RequestMessages", "ResponseMessages", "gen_ai.input.messages",
    "gen_ai.output.messages", "llm_request", "llm_response_text", "question", "answer", "authorization", "arguments",
    "x-portkey-api-key", "request_payload", "response_payload", "payload", "gen_ai.prompt_json",
    *content_names.CONTENT,
)  # fmt: skip

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=20)
    | st.sampled_from(
        [
            "",
            "-",
            "None",
            "0",
            "1e99999999",
            "NaN",
            "2025-13-99",
            "{",
            "[1",
            "\ud800",
            '{"a": 1}',
            "arn:x",
            "/",
        ]
    )
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@cache
def payloads(format: str) -> list[Any]:
    """
    Return the decoded cases of a format, with lines as a list. Callers must copy a payload before changing it.
    """
    bodies = [one.body for one in cases(format) if b"resourceSpans" not in one.body]
    return [
        json.loads(body) if not _is_lines(body) else [json.loads(line) for line in body.splitlines()]
        for body in bodies
    ]


def _is_lines(body: bytes) -> bool:
    return body.startswith(b"{") and b"\n{" in body


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a payload."""
    yield path
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, value in inner:
        yield from places(value, (*path, step))


def put(payload: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of the payload with another value at `path`."""
    if not path:
        return value
    changed = copy.deepcopy(payload)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


def taken(format: str | None, body: bytes) -> ReadOutcome | None:
    """Decode a body and release its partial reports. Return None if the body was refused."""
    try:
        named = format or recognise_format_or_refuse(body, how_to_name_format="name it")
        normalised, _ = run(any_format.normalise_body(named, body, options=ReadOptions()))
    except BadPayload:
        return None
    assert_balanced(normalised.outcome, waiting=count_incomplete_generations(normalised.reports))
    outcome = complete_without_later_reports(normalised)
    assert_balanced(outcome)
    return outcome


def assert_sound(outcome: ReadOutcome) -> None:
    """Check that every record can be stored and shown, and that its values are possible."""
    pack_records(outcome.records)
    for record in outcome.records:
        assert isinstance(record, Inference | UsageMetric)
        json.dumps(record_to_json(record))
        if isinstance(record, UsageMetric):
            continue
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read_tokens",
            "cache_write_tokens",
            "reasoning_tokens",
        ):
            number = getattr(record, name)
            assert number is None or (type(number) is int and number >= 0), name
        if record.input_tokens is not None:
            assert record.input_tokens >= (record.cache_read_tokens or 0) + (record.cache_write_tokens or 0)
        assert record.cost is None or (Decimal(record.cost) >= 0 and "E" not in record.cost.upper())
        assert (record.status == "error") == (record.error_type is not None)
        assert record.status in ("ok", "error", "cached")
        assert all(type(value) is str for value in record.tags.values())


@pytest.mark.parametrize("format", FORMATS)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_no_value_in_any_place_breaks_a_format(format: str, data: st.DataObject) -> None:
    """
    Any value in any place of a payload is read or rejected without an error: wrong types, NaN, lone
    surrogates, huge texts and nulls.
    """
    payload = data.draw(st.sampled_from(payloads(format)))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(payload))))
        payload = put(payload, path, data.draw(ANYTHING))
    named = data.draw(st.sampled_from([format, None]))
    outcome = taken(named, json.dumps(payload).encode())
    if outcome is not None:
        assert_sound(outcome)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_bytes_break_a_format(format: str, data: st.DataObject) -> None:
    """
    Truncated, overwritten or duplicated bytes, and bytes that are not JSON, are read or refused without an error.
    """
    body = bytearray(data.draw(st.sampled_from([one.body for one in cases(format)])))
    at = data.draw(st.integers(0, len(body)))
    noise = data.draw(
        st.binary(max_size=8) | st.sampled_from([b"\xff", b"]", b"}", b"\n", b'"', b"\\", b"NaN", b"\x00"])
    )
    body[at : at + data.draw(st.sampled_from([0, 1, len(noise), len(body)]))] = noise
    outcome = taken(data.draw(st.sampled_from([format, None])), bytes(body))
    # If the bytes may be OTLP, other tests cover them.
    if outcome is not None and format not in ("openrouter", "cloudflare"):
        assert_sound(outcome)


@pytest.mark.parametrize("format", FORMATS)
def test_a_number_beyond_any_number_breaks_no_format(format: str) -> None:
    """If a number's exponent is too large for a Decimal, only this value is unknown or rejected."""
    marker = json.dumps(CANARY).encode()
    for payload in payloads(format):
        for path in some([*places(payload)], every=9):
            body = json.dumps(put(payload, path, CANARY)).encode()
            outcome = taken(format, body.replace(marker, b"1e99999999999999999999"))
            if outcome is not None:
                assert_sound(outcome)


@pytest.mark.proves("A prompt reaches the disk under an unexpected name")
@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_content_never_leaves_a_decoder(format: str, data: st.DataObject) -> None:
    """
    Content is planted under every content name in every object, and appears in no record and no message.
    """
    payload = copy.deepcopy(data.draw(st.sampled_from(payloads(format))))
    objects = [inner for path in places(payload) if isinstance(inner := _at(payload, path), dict)]
    planted = st.sampled_from([CANARY, [{"role": "user", "content": CANARY}], {"text": CANARY}])
    for place in data.draw(st.lists(st.integers(0, len(objects) - 1), min_size=1, max_size=4)):
        for name in data.draw(st.lists(st.sampled_from(CONTENT), min_size=1, max_size=6)):
            # Portkey's body and Kong's headers contain other fields as well, so they are not replaced.
            if not isinstance(objects[place].get(name), dict):
                objects[place][name] = data.draw(planted)
    outcome = taken(format, json.dumps(payload).encode())
    if outcome is None:
        return
    assert CANARY.encode() not in pack_records(outcome.records)
    assert CANARY not in repr(outcome.rejects)


@pytest.mark.parametrize("format", FORMATS)
def test_every_prefix_of_a_case_is_refused_or_counted(format: str) -> None:
    """A connection may break off anywhere. Each part of a payload is read or refused without an error."""
    for one in cases(format):
        for length in range(0, len(one.body), max(1, len(one.body) // 40)):
            taken(None, one.body[:length])


def _at(payload: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        payload = payload[step]
    return payload
