"""OTLP/protobuf from correct and incorrect senders, and the splitting of large requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
)

from gateway.core.errors import BadPayload
from gateway.normalise import otlp
from gateway.normalise.otlp import Signal
from gateway.normalise.otlp.decoding import json_decoder, pieces, protobuf_decoder, wire
from gateway.normalise.outcome import MALFORMED, ReadOptions, ReadOutcome, RejectedPayloadItem
from tests.gateway.normalise.otlp.decoding.whole import in_one
from tests.gateway.normalise.otlp.items import NOW, assert_balanced, finished
from tests.gateway.normalise.otlp.payloads import in_json, in_protobuf, span, traces

PATH = (1, 2, 2)
SIGNALS: list[Signal] = ["traces", "metrics", "logs"]
CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 7}
every_signal = pytest.mark.parametrize("signal", SIGNALS)


def read(signal: Signal, body: bytes) -> ReadOutcome:
    outcome = finished(otlp.normalise_otlp(signal, body, json=False, options=ReadOptions()))
    assert_balanced(outcome)
    return outcome


def attributes_of(*pairs: KeyValue) -> dict[str, Any]:
    return protobuf_decoder.attributes_from_encoded([pair.SerializeToString() for pair in pairs])


@every_signal
def test_an_empty_body_is_an_empty_request(signal: Signal) -> None:
    """A body of zero bytes is valid and is an empty request."""
    assert 0 == read(signal, b"").received


@every_signal
@pytest.mark.parametrize(
    "body", [b"{}", b'{"resourceSpans": []}', b"\x0a", b"\x0a\xff", b"\xff" * 40, b"\x0a\x05abc", b"\x07"]
)
def test_garbage_is_refused(signal: Signal, body: bytes) -> None:
    """Refused bodies are JSON with the wrong content type, truncated fields, and unknown field types."""
    with pytest.raises(BadPayload):
        read(signal, body)


@every_signal
def test_json_under_the_wrong_type_is_named(signal: Signal) -> None:
    with pytest.raises(BadPayload, match="Content-Type: application/json"):
        read(signal, b'{"resourceSpans": []}')


def test_a_cut_body_is_refused_wherever_it_is_cut() -> None:
    """Every truncated body is refused, without a crash."""
    body = in_protobuf(
        traces(span(1, CALL | {"l": ["x"]}, parent=2), scope="s", resource={"service.name": "x"})
    )
    for end in range(1, len(body)):
        with pytest.raises(BadPayload):
            read("traces", body[:end])


@given(st.binary(max_size=300), st.sampled_from(SIGNALS))
def test_random_bytes_never_crash(body: bytes, signal: Signal) -> None:
    """Any bytes are decoded or refused."""
    try:
        read(signal, body)
    except BadPayload as refusal:
        assert 400 == refusal.status


@given(st.data())
def test_damaged_requests_never_crash(data: st.DataObject) -> None:
    body = bytearray(
        in_protobuf(traces(span(1, CALL, parent=2), span(2, CALL), resource={"service.name": "x"}))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        read("traces", bytes(body))
    except BadPayload as refusal:
        assert 400 == refusal.status


@pytest.mark.parametrize("place", ["name", "key", "value", "content", "resource", "event", "status", "scope"])
def test_text_that_is_not_utf_8_is_refused(place: str) -> None:
    """Every string of a request must be UTF-8, also strings that are skipped."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "resource@@"
    scope = group.scope_spans.add()
    scope.scope.name = "scope@@"
    found = scope.spans.add(name="name@@")
    found.attributes.add(key="key@@").value.string_value = "x"
    found.attributes.add(key="k").value.string_value = "value@@"
    found.attributes.add(key="gen_ai.prompt").value.string_value = "content@@"
    found.events.add(name="e").attributes.add(key="k").value.string_value = "event@@"
    found.status.message = "status@@"
    body = request.SerializeToString()
    read("traces", body)
    with pytest.raises(BadPayload):
        read("traces", body.replace(place.encode() + b"@@", place.encode() + b"\xff\xfe"))


def test_deep_nesting_is_refused() -> None:
    """More than a hundred nested messages are refused, even in attributes that are dropped."""
    for name in ("k", "gen_ai.prompt"):
        value = AnyValue(string_value="x")
        for _ in range(200):
            outer = AnyValue()
            outer.array_value.values.add().CopyFrom(value)
            value = outer
        request = ExportTraceServiceRequest()
        found = request.resource_spans.add().scope_spans.add().spans.add()
        raw = value.SerializeToString()
        pair = KeyValue(key=name).SerializeToString() + b"\x12" + wire.encode_varint(len(raw)) + raw
        body = found.SerializeToString() + b"\x4a" + wire.encode_varint(len(pair)) + pair
        for number in (2, 2, 1):
            body = bytes([number << 3 | 2]) + wire.encode_varint(len(body)) + body
        with pytest.raises(BadPayload):
            read("traces", body)


@pytest.mark.parametrize(("field", "size"), [("trace_id", 15), ("span_id", 9), ("parent_span_id", 16)])
def test_a_span_with_an_id_of_another_length_is_rejected_alone(field: str, size: int) -> None:
    """
    A span with an id of a wrong length is rejected, and other spans are accepted. The message names the item
    and the field, as in JSON.
    """
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    spans.add(name="before")
    spans.add(**{field: b"\1" * size})
    spans.add(name="after")
    part = in_one(protobuf_decoder.traces(request.SerializeToString()))
    message = f"spans[1].{field}: has {size} bytes instead of {8 if 'span' in field else 16}"
    assert [RejectedPayloadItem(1, MALFORMED, message)] == part.rejects
    assert part.received == 3
    assert [(place, found.name) for place, found in part.items] == [(0, "before"), (2, "after")]


@pytest.mark.parametrize(
    ("field", "size"), [("trace_id", 15), ("trace_id", 24), ("span_id", 9), ("span_id", 1)]
)
def test_a_log_record_needs_no_ids(field: str, size: int) -> None:
    """If a log record's id has a wrong length, the id is dropped and the record is accepted."""
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add(**{field: b"\1" * size})
    part = in_one(protobuf_decoder.logs(logs.SerializeToString()))
    ((_, record),) = part.items
    assert record.trace_id is None
    assert record.span_id is None
    assert part.rejects == []


def test_ids_of_links_and_exemplars_are_not_read() -> None:
    """Ids of links and exemplars may have any length, because they are not read."""
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add().links.add(trace_id=b"1", span_id=b"2")
    part = in_one(protobuf_decoder.traces(request.SerializeToString()))
    assert len(part.items) == 1
    assert part.rejects == []
    counted = ExportMetricsServiceRequest()
    metric = counted.resource_metrics.add().scope_metrics.add().metrics.add(name="cline.tokens.output.total")
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    metric.sum.data_points.add(as_int=5).exemplars.add(trace_id=b"1", span_id=b"2")
    points = in_one(protobuf_decoder.metrics(counted.SerializeToString()))
    assert len(points.items) == 1
    assert points.rejects == []


def test_ids_that_are_zero_or_absent_are_none() -> None:
    """
    All-zero and absent ids count as missing. The trace specification calls all-zero ids invalid, but the span
    is still accepted.
    """
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(trace_id=bytes(16), span_id=bytes(8))
    ((_, found),) = in_one(protobuf_decoder.traces(request.SerializeToString())).items
    assert found.trace_id is None
    assert found.span_id is None
    assert found.parent_id is None
    assert found.start_time is None


@pytest.mark.parametrize(
    "value", [0, 1, 127, 128, 300, 16383, 16384, 2097151, 2097152, -1, 2**63 - 1, -(2**63)]
)
@pytest.mark.parametrize("name", ["gen_ai.usage.input_tokens", "server.port"])
def test_integers_of_every_length(name: str, value: int) -> None:
    """Integers of every length are the same number from the fast path, from protobuf and from the cache."""
    pair = KeyValue(key=name, value=AnyValue(int_value=value))
    assert [{name: value}] * 3 == [attributes_of(pair) for _ in range(3)]


@pytest.mark.parametrize("value", [0.0, -0.0, 7.35e-05, 1.5, float("inf"), 5e-324, True, False])
@pytest.mark.parametrize("name", ["llm.cost.total", "gen_ai.request.top_p"])
def test_doubles_and_flags(name: str, value: float | bool) -> None:
    """Doubles are exact to the last bit, and flags are equal, from protobuf and from the cache."""
    any_value = AnyValue(bool_value=value) if isinstance(value, bool) else AnyValue(double_value=value)
    pair = KeyValue(key=name, value=any_value)
    assert [f"{{{name!r}: {value!r}}}"] * 3 == [repr(attributes_of(pair)) for _ in range(3)]


@pytest.mark.parametrize("length", [0, 1, 3, 100, *range(120, 132), 200, 16_379, 16_380, 16_381, 16_384])
@pytest.mark.parametrize("name", ["user.id", "k", "n" * 127, "n" * 128])
def test_texts_of_every_length(name: str, length: int) -> None:
    """
    Texts are read at the limits of one-byte lengths: of the key, of the text and of the enclosing value.
    """
    pair = KeyValue(key=name, value=AnyValue(string_value="ä" * (length // 2) + "x" * (length % 2)))
    assert [{name: pair.value.string_value}] * 3 == [attributes_of(pair) for _ in range(3)]


def test_values_of_every_kind() -> None:
    """Nested values and bytes are skipped. Only scalars and lists of tags are kept."""
    nested = AnyValue()
    nested.kvlist_value.values.add(key="a").value.array_value.values.add().string_value = "x"
    tags = AnyValue()
    tags.array_value.values.add().string_value = "beta"
    pairs = {
        "flag": AnyValue(bool_value=False), "double": AnyValue(double_value=0.5), "bytes": AnyValue(bytes_value=b"x"),
        "empty": AnyValue(), "nested": nested, "tag.tags": tags, "gen_ai.prompt": AnyValue(string_value="secret"),
        "contact.email": AnyValue(string_value="a@b.c"),
    }  # fmt: skip
    encoded = [KeyValue(key=key, value=value) for key, value in pairs.items()]
    for _ in range(2):
        assert {"flag": False, "double": 0.5, "tag.tags": ["beta"]} == attributes_of(*encoded)


def test_a_pair_in_another_order_is_the_same_pair() -> None:
    """
    The fields of an attribute may have any order. Of a repeated field the last one counts, and unknown
    fields are skipped.
    """
    key, value = (
        KeyValue(key="user.id").SerializeToString(),
        KeyValue(value=AnyValue(string_value="u")).SerializeToString(),
    )
    other = KeyValue(value=AnyValue(int_value=5)).SerializeToString()
    unknown = b"\x7a\x03abc"
    for raw in (key + value, value + key, key + other + value, unknown + key + unknown + value):
        assert {"user.id": "u"} == protobuf_decoder.attributes_from_encoded([raw])
    assert {} == protobuf_decoder.attributes_from_encoded([b"", key, value])


def test_what_is_remembered_is_bounded() -> None:
    """The cache of names and values is limited, so senders that invent names do not enlarge it."""
    for number in range(20_000):
        attributes_of(KeyValue(key=f"name-{number}", value=AnyValue(string_value=str(number))))
    assert len(protobuf_decoder._known) <= protobuf_decoder._MOST_KNOWN
    assert len(protobuf_decoder._heads) <= protobuf_decoder._MOST_KNOWN
    assert {"user.id": "u"} == attributes_of(KeyValue(key="user.id", value=AnyValue(string_value="u")))


def test_invented_names_displace_no_name() -> None:
    """Names that never recur are not stored, however many a sender invents."""
    usual = KeyValue(key="app.usual", value=AnyValue(string_value="on"))
    for _ in range(2):
        attributes_of(usual)
    known = protobuf_decoder._heads.keys()
    assert b"\x0a\x09app.usual\x12" in known
    for number in range(20_000):
        attributes_of(KeyValue(key=f"app.invented-{number}", value=AnyValue(string_value="on")))
    assert b"\x0a\x09app.usual\x12" in known
    assert not [head for head in known if b"invented" in head]


def test_content_is_never_remembered() -> None:
    """Prompts and e-mail addresses are never cached."""
    for _ in range(3):
        for name in ("gen_ai.prompt", "input.value", "contact.email"):
            for value in ("secret words", "secret words " * 40):
                assert {} == attributes_of(KeyValue(key=name, value=AnyValue(string_value=value)))
    assert not [raw for raw in protobuf_decoder._known if b"secret" in raw]


def payload(spans: int, *, note: int = 300) -> dict[str, Any]:
    return traces(
        *(span(number, CALL | {"note": "x" * note}, parent=number + 1) for number in range(1, spans + 1)),
        scope="s",
        resource={"service.name": "shop", "team.id": "t"},
    )


@pytest.mark.parametrize("limit", [200, 1_000, 5_000, 1_000_000])
def test_pieces_hold_together_what_the_whole_holds(limit: int) -> None:
    """
    However a body is split, the spans are the same, with the same resource and scope. A piece exceeds its
    limit only if it is a single item.
    """
    body = in_protobuf(payload(40))
    pieces = list(wire.cut_request(body, PATH, limit))
    assert (len(pieces) > 1) == (len(body) > limit)
    assert all(len(piece) <= max(limit, 700) for piece in pieces)
    whole = ExportTraceServiceRequest.FromString(body).resource_spans[0]
    found = [
        group for piece in pieces for group in ExportTraceServiceRequest.FromString(piece).resource_spans
    ]
    assert all(group.resource == whole.resource for group in found)
    assert all(scope.scope == whole.scope_spans[0].scope for group in found for scope in group.scope_spans)
    assert list(whole.scope_spans[0].spans) == [
        one for group in found for scope in group.scope_spans for one in scope.spans
    ]


def test_resource_after_its_spans_is_repeated_in_every_piece() -> None:
    """
    A resource that follows its spans is repeated in every piece, because protobuf allows any order of fields.
    """
    request = ExportTraceServiceRequest.FromString(in_protobuf(payload(40))).resource_spans[0]
    spans = b"".join(
        b"\x12" + wire.encode_varint(len(raw)) + raw
        for raw in (group.SerializeToString() for group in request.scope_spans)
    )
    resource = request.resource.SerializeToString()
    inner = spans + b"\x0a" + wire.encode_varint(len(resource)) + resource
    body = b"\x0a" + wire.encode_varint(len(inner)) + inner
    found = [
        group
        for piece in wire.cut_request(body, PATH, 2_000)
        for group in ExportTraceServiceRequest.FromString(piece).resource_spans
    ]
    assert len(found) > 5
    assert all(group.resource == request.resource for group in found)


def test_a_resource_too_large_to_repeat_is_not_cut() -> None:
    """
    If a resource is too large to repeat in every piece, the request is not split, because the copies would
    take more memory than the request.
    """
    big = traces(span(1, CALL), span(2, CALL), resource={"service.name": "x" * 2_000})
    assert 1 == len(list(wire.cut_request(in_protobuf(big), PATH, 1_000)))


@pytest.mark.parametrize("damage", [b"\x0a\xff\xff\xff\x7f", b"\x0b", b"\xff" * 11, b"\x0d\x00"])
def test_damage_beyond_the_first_slice_is_refused(damage: bytes) -> None:
    """
    Damage after the first slice is refused: a field beyond the end, an unknown field type, or an unfinished number.
    """
    body = in_protobuf(payload(700, note=1_000))
    assert len(body) > pieces.MAX_PIECE
    with pytest.raises(BadPayload):
        read("traces", body + damage)


def test_slices_of_a_large_body_count_items_from_its_start() -> None:
    """
    A large body is decoded in slices. Both decoders count items from the start of the payload and return
    the same items.
    """
    large = payload(1_000, note=1_500)
    body = in_protobuf(large)
    by_protobuf = [item for part in protobuf_decoder.traces(body) for item in part.items]
    by_json = [item for part in json_decoder.traces(in_json(large)) for item in part.items]
    assert by_protobuf == by_json
    assert list(range(1_000)) == [place for place, _ in by_protobuf]
    assert len(list(protobuf_decoder.traces(body))) > 2


def test_log_records_and_their_times() -> None:
    """
    The time of a log record is timeUnixNano, or else observedTimeUnixNano. Its body is kept only if it may be
    an event name.
    """
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    scope.log_records.add(
        time_unix_nano=NOW, observed_time_unix_nano=5, event_name="e"
    ).body.string_value = "task.done"
    scope.log_records.add(observed_time_unix_nano=5).body.string_value = "a sentence with words"
    scope.log_records.add()
    found = [item for part in protobuf_decoder.logs(request.SerializeToString()) for _, item in part.items]
    assert [(NOW, "e", "task.done"), (5, "", ""), (None, "", "")] == [
        (record.time, record.event_name, record.body) for record in found
    ]


def test_metric_points_that_can_count() -> None:
    """Monotonic sums and histogram sums with a temporality count. Every other point is ignored."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    a = metrics.add(name="a").sum
    a.aggregation_temporality, a.is_monotonic = AGGREGATION_TEMPORALITY_DELTA, True
    a.data_points.add(as_int=5)
    a.data_points.add(as_double=float("nan"))
    a.data_points.add(as_int=6, flags=1)
    a.data_points.add()
    b = metrics.add(name="b").sum
    b.is_monotonic = True
    b.data_points.add(as_int=5)
    metrics.add(name="c").gauge.data_points.add(as_int=5)
    d = metrics.add(name="d").histogram
    d.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    d.data_points.add(sum=7.5)
    d.data_points.add(count=3)
    e = metrics.add(name="e").exponential_histogram
    e.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    e.data_points.add(sum=2.5)
    metrics.add(name="f").summary.data_points.add(sum=1.0)
    metrics.add(name="g")
    part = in_one(protobuf_decoder.metrics(request.SerializeToString()))
    assert [(0, "a", 5), (6, "d", 7.5), (8, "e", 2.5)] == [
        (place, point.name, point.value) for place, point in part.items
    ]
    assert part.received == 10
    assert sum(part.ignored.values()) == 7
