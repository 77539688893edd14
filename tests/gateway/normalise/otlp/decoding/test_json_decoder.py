"""OTLP/JSON from correct and incorrect senders, by the rows about decoding in the protocol checklist."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.errors import BadPayload
from gateway.normalise import otlp
from gateway.normalise.otlp import Signal
from gateway.normalise.otlp.decoding import json_decoder, pieces
from gateway.normalise.otlp.model import Span
from gateway.normalise.outcome import MALFORMED, NO_ITEMS, ReadOptions, ReadOutcome
from spool.record import Inference
from tests.gateway.normalise.otlp.decoding.whole import in_one
from tests.gateway.normalise.otlp.items import NOW, assert_balanced, finished
from tests.gateway.normalise.otlp.payloads import any_value, in_json, normalised, span, traces

CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 7}
ROOTS: dict[Signal, str] = {"traces": "resourceSpans", "metrics": "resourceMetrics", "logs": "resourceLogs"}
every_signal = pytest.mark.parametrize("signal", ROOTS)


def read(signal: Signal, body: bytes) -> ReadOutcome:
    outcome = finished(otlp.normalise_otlp(signal, body, json=True, options=ReadOptions()))
    assert_balanced(outcome)
    return outcome


def decoded(payload: Any) -> Span:
    """Return the only span of a payload, as the dialects see it."""
    part = in_one(json_decoder.traces(payload if isinstance(payload, bytes) else in_json(payload)))
    ((_, found),) = part.items
    return found


def changed(**fields: Any) -> dict[str, Any]:
    return traces(span(1, CALL) | fields)


@every_signal
def test_an_empty_request_is_a_request(signal: Signal) -> None:
    """Resource entries may be missing or empty. Entries without items count as one ignored item, with a warning."""
    root = ROOTS[signal]
    empty: list[dict[str, Any]] = [{}, {root: []}, {root: None}]
    for nothing in empty:
        outcome = read(signal, in_json(nothing))
        assert (0, []) == (outcome.received, outcome.warnings)
    entries: list[list[Any]] = [[{}], [None], [{"resource": None}]]
    for without_items in entries:
        outcome = read(signal, in_json({root: without_items}))
        assert {NO_ITEMS: 1} == outcome.ignored
        assert 1 == outcome.received
        assert root in outcome.warnings[0]


@every_signal
@pytest.mark.parametrize(
    "body", [b"", b" ", b"[]", b"1234", b'"text"', b"null", b"true", b"{", b"{}{}", b"{} x"]
)
def test_what_is_no_object_is_refused(signal: Signal, body: bytes) -> None:
    """An empty body, an array, a number or trailing data cannot be decoded, so the error is final."""
    with pytest.raises(BadPayload) as refusal:
        read(signal, body)
    assert refusal.value.message.startswith("body: ")


@every_signal
@pytest.mark.parametrize(
    "opening", [b'{"a":', b"[", b'{"%s":[{"resource":{"attributes":[{"value":{"arrayValue":']
)
def test_deep_nesting_is_refused(signal: Signal, opening: bytes) -> None:
    """
    A hundred thousand nested levels are refused without a crash, in members that are read and in members
    that are skipped.
    """
    start = opening.replace(b"%s", ROOTS[signal].encode())
    with pytest.raises(BadPayload):
        read(signal, b'{"x":' + start + b"[" * 100_000)
    with pytest.raises(BadPayload):
        read(signal, start + b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.parametrize("field", ["traceId", "spanId", "parentSpanId"])
@pytest.mark.parametrize(
    "value", ["AAAAAAAAAAAAAAAAAAAAAA==", "abc", "g" * 32, "0" * 31, "ａ" * 16, "0x" + "1" * 14]
)
def test_ids_are_hexadecimal(field: str, value: str) -> None:
    """
    An id in base64 or of a wrong length rejects its span. The message has the path of the field, never its
    value. Other spans are accepted.
    """
    good, bad = span(1, CALL), span(2, CALL) | {field: value}
    outcome = read("traces", in_json(traces(good, bad, span(3, CALL))))
    ((place, reason, message),) = outcome.rejects
    assert place == 1
    assert reason == MALFORMED
    assert f"resourceSpans[0].scopeSpans[0].spans[1].{field}" in message
    assert value not in message
    assert [f"{1:016x}", f"{3:016x}"] == [
        call.span_id for call in outcome.records if isinstance(call, Inference)
    ]


def test_ids_of_any_case_and_absent_ones() -> None:
    """Ids in upper-case hex equal those in lower case. Empty, null and all-zero ids are absent."""
    found = decoded(changed(traceId="ABCDEF" + "0" * 26, spanId="A" * 16, parentSpanId=""))
    assert found.trace_id == "abcdef" + "0" * 26
    assert found.span_id == "a" * 16
    assert found.parent_id is None
    found = decoded(changed(traceId="0" * 32, spanId=None, parentSpanId="0" * 16))
    assert found.trace_id is None
    assert found.span_id is None
    assert found.parent_id is None


@pytest.mark.parametrize("value", ["no", "AAAAAAAAAAAAAAAAAAAAAA==", "0" * 31, 7, [1, 2], {"a": None}])
def test_a_log_record_needs_no_ids(value: Any) -> None:
    """If a log record has an invalid id, the id is dropped, because other fields identify the record."""
    payload = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": value, "spanId": value}]}]}]}
    part = in_one(json_decoder.logs(in_json(payload)))
    ((_, record),) = part.items
    assert record.trace_id is None
    assert record.span_id is None
    assert part.rejects == []


def test_ids_of_links_and_exemplars_are_not_read() -> None:
    """
    Ids of links and exemplars are not read, so they reject nothing. Some exporters write them as lists of numbers.
    """
    links = [{"traceId": [1, 2], "spanId": "AAAA"}, {"traceId": "0" * 31}, 5, None]
    assert (outcome := read("traces", in_json(changed(links=links)))).rejects == []
    assert len(outcome.records) == 1
    exemplars = [{"traceId": "AAAA", "spanId": [1]}]
    data = {
        "aggregationTemporality": 1,
        "isMonotonic": True,
        "dataPoints": [{"asInt": "5", "exemplars": exemplars}],
    }
    metric = {"name": "cline.tokens.output.total", "sum": data}
    counted = read("metrics", in_json({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}))
    assert counted.rejects == []
    assert len(counted.records) + len(counted.points) == 1


@pytest.mark.parametrize("value", ["1772442000123456789", 1772442000123456789])
def test_64_bit_integers_as_text_or_number(value: Any) -> None:
    """64-bit integers may be text or numbers. Nanoseconds are exact in both notations."""
    assert 1772442000123456789 == decoded(changed(startTimeUnixNano=value)).start_time


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("12", 12),
        ("12.0", 12),
        ('"12"', 12),
        ("0", 0),
        ("-3", -3),
        ("null", None),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_whole_numbers(written: str, expected: int | None) -> None:
    """Every exact notation of an integer is accepted."""
    body = in_json(traces(span(1, {"n": "@@"}))).replace(
        b'{"stringValue": "@@"}', b'{"intValue": %s}' % written.encode()
    )
    assert expected == decoded(body).attributes.get("n")


@pytest.mark.parametrize(
    "written", ["1.5", "1.7e18", '"1.0e3"', '"x"', '""', "true", "9223372036854775808", "1e400", "{}"]
)
def test_what_is_no_exact_integer_rejects_its_item_alone(written: str) -> None:
    """A number that is not an exact integer rejects only its item. It is never rounded."""
    bad = in_json(span(1, {"n": "@@"})).replace(
        b'{"stringValue": "@@"}', b'{"intValue": %s}' % written.encode()
    )
    good = in_json(span(2, CALL))
    outcome = read("traces", b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b,%b]}]}]}' % (bad, good))
    assert [(0, MALFORMED)] == [(reject.item, reject.reason) for reject in outcome.rejects]
    assert outcome.rejects[0].message.startswith("resourceSpans[0].scopeSpans[0].spans[0]")
    assert 1 == len(outcome.records)


@pytest.mark.parametrize("field", ["startTimeUnixNano", "endTimeUnixNano"])
@pytest.mark.parametrize("value", [-1, 1 << 64, 0.5, "yesterday", True, []])
def test_times_that_are_none_reject_their_item(field: str, value: Any) -> None:
    """A time outside 64 bits rejects its item."""
    outcome = read("traces", in_json(changed(**{field: value})))
    assert [MALFORMED] == [reject.reason for reject in outcome.rejects]
    assert field in outcome.rejects[0].message


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", 1, 1.5])
def test_doubles(value: Any) -> None:
    """In a field of type double, NaN and similar values are text, and integers are accepted."""
    found = decoded(traces(span(1, {}) | {"attributes": [{"key": "d", "value": {"doubleValue": value}}]}))
    assert isinstance(found.attributes["d"], float)


@pytest.mark.parametrize("code", [2, "STATUS_CODE_ERROR"])
def test_enums_as_numbers_and_names(code: Any) -> None:
    """Enums may be written as numbers or as names. Unknown values are no error."""
    assert 2 == decoded(changed(status={"code": code})).status_code
    assert 0 == decoded(changed(status={"code": "STATUS_CODE_NEW"}, kind="SPAN_KIND_CLIENT")).status_code


def test_unknown_members_at_every_level() -> None:
    payload = changed(newField={"a": [1]}, status={"code": 2, "x": None})
    payload["new"] = 1
    payload["resourceSpans"][0]["new"] = {"x": []}
    payload["resourceSpans"][0]["scopeSpans"][0]["scope"]["new"] = "x"
    payload["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"][0]["new"] = 1
    assert 1 == len(read("traces", in_json(payload)).records)


def _with_null(tree: Any) -> list[Any]:
    """Return copies of the tree in which one member is null. Members that make it a call stay."""
    variants = []

    def walk(node: Any, put: Callable[[Any], None]) -> None:
        if isinstance(node, dict):
            for key in node:
                put(node | {key: None})

                def put_member(value: Any, key: str = key) -> None:
                    put(node | {key: value})

                walk(node[key], put_member)
        elif isinstance(node, list):
            for place in range(len(node)):
                put([*node[:place], None, *node[place + 1 :]])

                def put_element(value: Any, place: int = place) -> None:
                    put([*node[:place], value, *node[place + 1 :]])

                walk(node[place], put_element)

    walk(tree, lambda value: variants.append(copy.deepcopy(value)))
    return variants


def test_null_is_accepted_everywhere() -> None:
    """A null member means its default, and a null element is skipped."""
    payload = traces(
        span(1, CALL | {"b": True, "d": 0.5, "l": ["x"]}, parent=3), scope="s", resource={"service.name": "x"}
    )
    payload["resourceSpans"][0]["scopeSpans"][0]["spans"][0] |= {
        "status": {"code": 2, "message": "m"},
        "events": [
            {"name": "exception", "attributes": [{"key": "exception.type", "value": {"stringValue": "T"}}]}
        ],
    }
    variants = _with_null(payload)
    assert len(variants) > 50
    for variant in variants:
        assert [] == read("traces", in_json(variant)).rejects


def test_every_kind_of_value() -> None:
    """Values of every kind are accepted. Nested values and bytes are skipped, and only scalars are kept."""
    values = {
        "word": {"stringValue": "x"}, "flag": {"boolValue": False}, "whole": {"intValue": "5"},
        "bytes": {"bytesValue": "AAAA"}, "empty": {}, "array": any_value([["a", 1], "b"]),
        "map": {"kvlistValue": {"values": [{"key": "k", "value": {"kvlistValue": {"values": []}}}]}},
    }  # fmt: skip
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    found = decoded(
        traces(span(1, {}) | {"attributes": [*attributes, {"key": "none"}, {"value": {"intValue": 1}}, {}]})
    )
    assert {"word": "x", "flag": False, "whole": 5} == found.attributes


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        ({"values": [{"stringValue": "a"}, None, {"intValue": "1"}, {}, {"stringValue": ""}]}, ["a"]),
        ({"values": []}, None),
        ({"values": None}, None),
        ({}, None),
        (None, None),
        ({"values": 7}, MALFORMED),
        ({"values": [7]}, MALFORMED),
        ([], MALFORMED),
    ],
)
def test_lists_of_tags(array: Any, expected: Any) -> None:
    """A list of tags gives its strings. A value that is not an array rejects its item."""
    payload = traces(span(1, {}) | {"attributes": [{"key": "tag.tags", "value": {"arrayValue": array}}]})
    if expected == MALFORMED:
        assert [MALFORMED] == [reject.reason for reject in read("traces", in_json(payload)).rejects]
    else:
        assert expected == decoded(payload).attributes.get("tag.tags")


def test_the_names_of_the_proto_files_are_understood() -> None:
    """
    Members with the snake_case names of the proto files are understood, because some hand-written
    exporters use them.
    """

    def snake(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {
                "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key): snake(value)
                for key, value in tree.items()
            }
        return [snake(value) for value in tree] if isinstance(tree, list) else tree

    payload = traces(
        span(1, CALL | {"trace_id": "kept"}, parent=2), scope="s", resource={"service.name": "x"}
    )
    assert decoded(payload) == decoded(snake(payload))
    big = snake(traces(*(span(number, {"note": "x" * 4000}) for number in range(1, 1200))))
    with pytest.raises(BadPayload, match="lowerCamelCase"):
        read("traces", in_json(big))


@pytest.mark.parametrize(
    "body", [b'{"resourceSpans":[{"x":"\xff"}]}', b'{"a":"\xc3"}', b'{"a":"\xed\xa0\x80"}']
)
def test_what_is_not_utf_8_is_refused(body: bytes) -> None:
    """A body with invalid UTF-8 is refused, even if the invalid bytes are in members that are skipped."""
    with pytest.raises(BadPayload, match="UTF-8"):
        read("traces", body)


def test_utf_8_is_checked_across_slices() -> None:
    """A character split between slices is valid, and an invalid byte megabytes later is found."""
    name = "ä" * pieces.MAX_PIECE
    assert 1 == read("traces", json.dumps(changed(name=name), ensure_ascii=False).encode()).received
    with pytest.raises(BadPayload, match="UTF-8"):
        read("traces", json.dumps(changed(name=name), ensure_ascii=False).encode()[:-40] + b"\xff")


@pytest.mark.parametrize("half", [rb"\ud83d", rb"\uDe00", rb"\ud83d\ud83d", rb"\\\ud83d"])
def test_half_an_emoji_costs_no_record(half: bytes) -> None:
    """A sender cut a text inside an emoji. The half is replaced, and everything else is unchanged."""
    for payload in (
        traces(span(1, CALL, name="@@")),
        traces(span(1, CALL | {"a": "cut @@"}), span(2, CALL)),
        traces(span(1, CALL), resource={"service.name": "@@"}),
    ):
        outcome = read("traces", in_json(payload).replace(b"@@", half))
        assert len(payload["resourceSpans"][0]["scopeSpans"][0]["spans"]) == outcome.received
        assert outcome.rejects == []
    body = in_json(changed(name="@@")).replace(b"@@", rb"\\ud83d \ud83d\ude00 " + half)
    assert decoded(body).name.startswith("\\ud83d \U0001f600 ")
    assert decoded(body).name.endswith("\ufffd")


def test_bare_nan_is_refused() -> None:
    """A bare NaN is refused, because other JSON parsers could not read it."""
    with pytest.raises(BadPayload):
        read(
            "traces",
            in_json(traces(span(1, {"d": "@@"}))).replace(b'{"stringValue": "@@"}', b'{"doubleValue": NaN}'),
        )


def test_wrong_types_name_a_path_and_no_value() -> None:
    with pytest.raises(BadPayload) as refusal:
        read("traces", b'{"resourceSpans":[{"resource":{"attributes":[{"key":5432}]}}]}')
    assert "resourceSpans[0].resource.attributes[0].key: has the wrong type for OTLP" == refusal.value.message


@every_signal
def test_a_resource_that_cannot_be_read_refuses_the_request(signal: Signal) -> None:
    """
    If a resource cannot be read, the request is refused, because all items inherit from the resource. The
    message names the attribute.
    """
    attributes = [{"key": "process.pid", "value": {"intValue": "x"}}]
    with pytest.raises(BadPayload) as refusal:
        read(signal, in_json({ROOTS[signal]: [{"resource": {"attributes": attributes}}]}))
    assert (
        f"{ROOTS[signal]}[0].resource.attributes.process.pid.intValue: must be an integer"
        == refusal.value.message
    )


def test_large_body_is_decoded_in_slices() -> None:
    """
    A large body is decoded in slices of about half a megabyte per turn. Positions count from the beginning
    of the payload.
    """
    spans = [span(number, CALL | {"note": "x" * 900}) for number in range(1, 2001)]
    spans[1500]["startTimeUnixNano"] = "never"
    body = in_json(traces(*spans))
    parts = list(json_decoder.traces(body))
    assert len(parts) >= len(body) // (pieces.MAX_PIECE + 2000)
    assert list(range(2000)) == sorted(
        [place for part in parts for place, _ in part.items]
        + [reject.item for part in parts for reject in part.rejects]
    )
    assert [1500] == [reject.item for part in parts for reject in part.rejects]


def test_metric_points_are_the_items_of_metrics() -> None:
    """
    Each metric point is a separate item. A point that cannot count is ignored, and a point that cannot be
    read is rejected.
    """
    delta, cumulative = "AGGREGATION_TEMPORALITY_DELTA", "AGGREGATION_TEMPORALITY_CUMULATIVE"
    points = [{"timeUnixNano": str(NOW), "asInt": "5"}, {"timeUnixNano": "x"}, {"flags": 1}]
    sums = [{"count": "2", "sum": 7.5}, {"count": "1"}]
    metrics = [
        {"name": "a", "sum": {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": points}},
        {
            "name": "b",
            "sum": {"aggregationTemporality": delta, "isMonotonic": False, "dataPoints": [{"asInt": 1}]},
        },
        {"name": "c", "gauge": {"dataPoints": [{"asDouble": 1.5}, None]}},
        {"name": "d", "histogram": {"aggregationTemporality": cumulative, "dataPoints": sums}},
        {"name": 7},
        None,
    ]
    part = in_one(
        json_decoder.metrics(in_json({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}))
    )
    assert [("a", 5, False), ("d", 7.5, True)] == [
        (point.name, point.value, point.cumulative) for _, point in part.items
    ]
    assert part.received == 8
    assert sum(part.ignored.values()) == 4
    assert len(part.rejects) == 2
    assert "resourceMetrics[0].scopeMetrics[0].metrics[0].sum.dataPoints[1]" in part.rejects[0].message


def test_all_malformed_items_make_the_response_a_400() -> None:
    """If every item is malformed, all rejects have the reason that makes the response a 400."""
    outcome = normalised(traces(span(1, {}) | {"endTimeUnixNano": -1}, span(2, {}) | {"name": 5}))
    assert outcome.received == 2
    assert {reject.reason for reject in outcome.rejects} == {MALFORMED}
