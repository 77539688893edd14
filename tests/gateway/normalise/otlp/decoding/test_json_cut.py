"""A large JSON request is split by positions and gives the same items as parsing it whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import BadPayload
from gateway.normalise.otlp.decoding import json_decoder, json_request
from gateway.normalise.outcome import NO_ITEMS
from gateway.normalise.payload import json_cut
from gateway.normalise.payload.body_limits import BodyReadLimits
from gateway.normalise.payload.json_cut import JsonScanner
from tests.gateway.normalise.otlp.decoding.whole import in_one
from tests.gateway.normalise.otlp.payloads import any_value, attribute, in_json, normalised, span, traces
from tests.gateway.normalise.otlp.test_span_cases import cases

CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 7}
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1000, 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6), inner, max_size=6),
    max_leaves=40,
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits so that every body and nearly every value is treated as large."""
    monkeypatch.setattr(json_cut, "WINDOW", 256)
    monkeypatch.setattr(json_request, "WHOLE", 0)
    monkeypatch.setattr(json_decoder, "MAX_PIECE", 512)
    monkeypatch.setattr(json_decoder, "WINDOW", 256)


@pytest.mark.parametrize("path", cases(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_case_that_is_cut_is_the_same_case(path: Any, request: pytest.FixtureRequest) -> None:
    """Each case of every product is read with windows shorter than its spans."""
    at_once = normalised(path.read_bytes())
    request.getfixturevalue("small")
    cut = normalised(path.read_bytes())
    assert at_once.records == cut.records
    assert at_once.received == cut.received
    assert at_once.ignored == cut.ignored


def cut_elements(text: bytes) -> list[Any]:
    cut = JsonScanner(text, BodyReadLimits())
    work = cut.read_document(cut.locate_array_elements)
    while True:
        try:
            next(work)
        except StopIteration as done:
            assert len(done.value) == len(list(done.value))
            return [json.loads(bytes(element)) for element in done.value]


@given(
    values=st.lists(anything, max_size=40), window=st.integers(32, 400), indent=st.sampled_from([None, 0, 2])
)
def test_elements_are_those_of_the_array(values: list[Any], window: int, indent: int | None) -> None:
    """An array gives the same elements for any values, any formatting, and any window boundary."""
    # no monkeypatch here, because a fixture is set up once for all examples
    before, json_cut.WINDOW = json_cut.WINDOW, window
    try:
        assert values == cut_elements(json.dumps(values, indent=indent, ensure_ascii=False).encode())
    finally:
        json_cut.WINDOW = before


@given(value=anything, data=st.data())
def test_damage_is_refused_and_never_crashes(value: Any, data: st.DataObject) -> None:
    """A truncated or changed body is read or refused."""
    text = bytearray(json.dumps([value] * 5).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    del text[data.draw(st.integers(1, len(text))) :]
    before, json_cut.WINDOW = json_cut.WINDOW, 32
    try:
        cut_elements(bytes(text))
    except (BadPayload, ValueError):
        pass
    finally:
        json_cut.WINDOW = before


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "body",
    [
        b'{"resourceSpans": 5}', b'{"resourceSpans": [5]}', b'{"resourceSpans": [{"scopeSpans": {}}]}', b"[]", b"{",
        b'{"resourceSpans": [{}]} x', b'{"resourceSpans": [{}', b'{"resourceSpans": [{}}', b'{"resourceSpans" [{}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "' + b"x" * 1000,
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(body: bytes) -> None:
    """A body that is no request is refused in the same way as a body that is parsed whole."""
    with pytest.raises(BadPayload):
        normalised(body)


@pytest.mark.usefixtures("small")
def test_a_repeated_member_counts_last_and_null_is_nothing() -> None:
    whole = in_json(traces(span(1, CALL), span(2, CALL)))
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}],' + whole[1:]
    assert [7, 7] == [record.input_tokens for record in normalised(body).records]  # type: ignore[union-attr]
    nothing = b'{"resourceSpans":[null,{"scopeSpans":null},{"scopeSpans":[null,{"spans":null}]}]}'
    assert {NO_ITEMS: 1} == normalised(nothing).ignored


@pytest.mark.parametrize("sign", [b":", b","])
def test_blanks_longer_than_a_window_are_passed_over(sign: bytes, small: None) -> None:
    """Blanks after a colon or a comma may be longer than a window, because JSON allows any number of them."""
    body = in_json(traces(span(1, CALL), span(2, CALL)))
    printed = body.replace(sign, sign + b"\n" * json_cut.LONGEST_NAME * 2, 3)
    assert [7, 7] == [record.input_tokens for record in normalised(printed).records]  # type: ignore[union-attr]


def test_a_large_span_is_read_without_its_content() -> None:
    """
    A span has megabytes of prompts, thousands of attributes and long stack traces. Its counts are read
    without decoding the content.
    """
    made = span(
        1, CALL | {"gen_ai.input.messages": "x" * 2_000_000} | {f"n{one}": one for one in range(5_000)}
    )
    made["events"] = [
        {"name": "exception", "attributes": [attribute("exception.type", "Timeout")]},
        {"name": "gen_ai.content.prompt", "attributes": [attribute("gen_ai.prompt", "y" * 1_000_000)]},
        {"name": "gen_ai.usage", "attributes": [attribute("gen_ai.usage.output_tokens", 11)]},
    ]
    made["unread"] = {"list": [[]] * 200_000}
    part = in_one(json_decoder.traces(in_json(traces(made))))
    ((_, found),) = part.items
    assert found.attributes["gen_ai.usage.input_tokens"] == 7
    assert found.attributes["gen_ai.usage.output_tokens"] == 11
    assert found.attributes["n4999"] == 4_999
    assert found.attributes.get("gen_ai.input.messages") is None
    assert [{"exception.type": "Timeout"}] == [event.attributes for event in found.events]


def test_points_of_a_large_metric_are_those_of_small_ones() -> None:
    """Points are split by position, and only a broken point is rejected."""
    points: list[Any] = [{"asInt": str(one), "timeUnixNano": str(10**18)} for one in range(20_000)]
    points[7] = {"asInt": "x"}
    metric = {
        "sum": {"dataPoints": points, "aggregationTemporality": 1, "isMonotonic": True},
        "name": "a",
        "unit": "1",
    }
    parts = list(
        json_decoder.metrics(in_json({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}))
    )
    assert len(parts) > 10
    assert [one for one in range(20_000) if one != 7] == [
        point.value for part in parts for _, point in part.items
    ]
    assert [7] == [reject.item for part in parts for reject in part.rejects]
    assert {("a", "1", False)} == {
        (point.name, point.unit, point.cumulative) for part in parts for _, point in part.items
    }


def test_a_large_list_that_nobody_reads_makes_no_values() -> None:
    """A large list that no rule reads is skipped, even under a name whose value is normally read as text."""
    made = span(1, CALL)
    made["attributes"] = [
        *made["attributes"],
        {"key": "gen_ai.response.finish_reasons", "value": any_value(["x"] * 100_000)},
    ]
    part = in_one(json_decoder.traces(in_json(traces(made))))
    ((_, found),) = part.items
    assert "gen_ai.response.finish_reasons" not in found.attributes
    assert 7 == found.attributes["gen_ai.usage.input_tokens"]
