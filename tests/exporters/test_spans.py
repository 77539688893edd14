"""Records as OTLP spans: the official protobuf classes read exactly what the record states."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from exporters.otlp.spans import SpanEncoder
from exporters.otlp.telemetry import OUT_OF_RANGE
from gateway.normalise.otlp import normalise_otlp
from gateway.normalise.outcome import ReadOptions
from spool.identity import derived_trace_and_span_ids
from spool.meters import METERS
from spool.record import NS, Inference
from tests.bench.test_bench_encode import records as bench_records
from tests.exporters.plain_spans import plain_span, random_calls
from tests.exporters.spools import call, record_id
from tests.rounds import part

COMMITTED_AT = 1_790_000_000.25

FULL = Inference(
    id=record_id(1),
    source="litellm",
    request_id="chatcmpl-9aBcDeFgHiJkLmNoPqRs",
    trace_id="5b8aa5a2d2c872e8321cf37308d69df2",
    span_id="051581bf3cb55c13",
    start_time=1_790_000_000_123_456_789,
    end_time=1_790_000_001_000_000_000,
    provider="openai",
    operation="chat",
    request_model="gpt-4o",
    response_model="gpt-4o-2024-08-06",
    input_tokens=1200,
    output_tokens=70_000,
    cache_read_tokens=0,
    cache_write_tokens=127,
    reasoning_tokens=128,
    cache_write_1h_tokens=100,
    cost="0.00024839999999999997",
    estimated_cost="0.000248",
    cost_source="reported",
    price_book="2026-11-01",
    status="ok",
    user="u-1",
    team="search",
    session="s-1",
    api_key="alias-1",
    device="laptop-7",
    region="us-east-1",
    tags={"env": "prod", "naïve": "ü" * 200},
)


CALLS = [record for record, _ in bench_records()]


def parsed(*records: Inference) -> list[Span]:
    body = SpanEncoder().encode_request((record, COMMITTED_AT) for record in records)
    request = ExportTraceServiceRequest.FromString(body)
    (resource,) = request.resource_spans
    assert "tollhouse" == resource.resource.attributes[0].value.string_value
    (scope,) = resource.scope_spans
    assert "tollhouse" == scope.scope.name
    return list(scope.spans)


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "") for one in span.attributes}


def taken_in(*records: Inference) -> list[Inference]:
    """Return the records that another Tollhouse makes of the request."""
    body = SpanEncoder().encode_request((record, COMMITTED_AT) for record in records)
    slices = normalise_otlp("traces", body, json=False, options=ReadOptions())
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return [record for record in end.value.records if isinstance(record, Inference)]


def test_a_full_record_in_the_current_vocabulary() -> None:
    """Every field uses its GenAI attribute name if one exists, else a name under tollhouse.*."""
    (span,) = parsed(FULL)
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": "chatcmpl-9aBcDeFgHiJkLmNoPqRs",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.usage.input_tokens": 1200,
        "gen_ai.usage.output_tokens": 70_000,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_write.input_tokens": 127,
        "gen_ai.usage.reasoning.output_tokens": 128,
        "tollhouse.cache_write_1h_tokens": 100,
        "tollhouse.id": FULL.id.hex(),
        "tollhouse.source": "litellm",
        "tollhouse.cost": "0.00024839999999999997",
        "tollhouse.estimated_cost": "0.000248",
        "tollhouse.currency": "USD",
        "tollhouse.cost_source": "reported",
        "tollhouse.price_book": "2026-11-01",
        "tollhouse.team": "search",
        "tollhouse.user": "u-1",
        "tollhouse.api_key": "alias-1",
        "tollhouse.status": "ok",
        "tollhouse.device": "laptop-7",
        "tollhouse.region": "us-east-1",
        "tollhouse.tag.env": "prod",
        "tollhouse.tag.naïve": "ü" * 200,
    } == attributes(span)
    assert span.name == "chat gpt-4o"
    assert span.kind == Span.SPAN_KIND_CLIENT
    assert FULL.trace_id == span.trace_id.hex()
    assert FULL.span_id == span.span_id.hex()
    assert FULL.start_time == span.start_time_unix_nano
    assert FULL.end_time == span.end_time_unix_nano
    assert Status.STATUS_CODE_UNSET == span.status.code


def test_an_error_is_the_span_status_too() -> None:
    """Readers that know nothing of Tollhouse see a failed call as an error."""
    (span,) = parsed(call(1, status="error", error_type="RateLimitError"))
    assert Status.STATUS_CODE_ERROR == span.status.code
    assert attributes(span)["tollhouse.status"] == "error"
    assert attributes(span)["error.type"] == "RateLimitError"


def test_what_is_unknown_is_absent() -> None:
    """
    A null field has no attribute instead of a zero. If trace and span ids are missing, they derive from a
    hash of the record id. A missing time is that of the commit.
    """
    (span,) = parsed(Inference(id=record_id(1), source="test"))
    assert {
        "tollhouse.id": record_id(1).hex(),
        "tollhouse.source": "test",
        "tollhouse.status": "ok",
        "tollhouse.cost_source": "none",
        "tollhouse.currency": "USD",
        "tollhouse.times": "none",
    } == attributes(span)
    assert derived_trace_and_span_ids(record_id(1)) == (span.trace_id, span.span_id)
    received = int(COMMITTED_AT * NS)
    assert span.start_time_unix_nano == received
    assert span.end_time_unix_nano == received


def test_ids_of_another_form_are_sent_as_text() -> None:
    """An id that does not fit the OTLP field, or is not unique, is sent as text."""
    (span,) = parsed(call(1, trace_id="trace-7", span_id="A" * 16, request_id="chatcmpl-12"))
    said = attributes(span)
    assert said["tollhouse.trace_id"] == "trace-7"
    assert said["tollhouse.span_id"] == "A" * 16
    assert said["tollhouse.request_id"] == "chatcmpl-12"
    assert "gen_ai.response.id" not in said
    assert derived_trace_and_span_ids(record_id(1)) == (span.trace_id, span.span_id)


@pytest.mark.parametrize(
    ("trace_id", "span_id"),
    [
        ("0" * 32, "a" * 16),
        ("a" * 32, "0" * 16),
        ("A" * 32, "a" * 16),
        ("a" * 32, "aA" * 8),
        ("a" * 30 + "  ", "a" * 16),
        ("a" * 32, " a" * 8),
        ("g" * 32, "a" * 16),
        ("a" * 31, "a" * 17),
        ("٣" * 32, "a" * 16),
    ],
)
def test_otlp_id_fields_hold_only_lower_case_hex(trace_id: str, span_id: str) -> None:
    """
    The OTLP fields hold only ids in lower-case hex that are not all zero. Any other form is read back unchanged.
    """
    record = call(1, trace_id=trace_id, span_id=span_id)
    (span,) = parsed(record)
    said = attributes(span)
    plain = {
        "tollhouse.trace_id": (trace_id, r"(?!0{32})[0-9a-f]{32}"),
        "tollhouse.span_id": (span_id, r"(?!0{16})[0-9a-f]{16}"),
    }
    for name, (written, form) in plain.items():
        assert (None if re.fullmatch(form, written) else written) == said.get(name)


def test_the_same_records_are_the_same_bytes() -> None:
    """The bytes of a request do not depend on what the encoder wrote before."""
    used = SpanEncoder()
    for n in range(5000):
        used.encode_span(call(n, request_model=f"m{n}", tags={f"t{n}": "x" * (n % 700)}), 0.0)
    records = [(FULL, 1.0), (call(7), 2.0)]
    assert SpanEncoder().encode_request(records) == used.encode_request(records)


def encoded(encode: Callable[[Inference, float], bytes], record: Inference) -> bytes | None:
    try:
        return encode(record, COMMITTED_AT)
    except OUT_OF_RANGE:
        return None


@pytest.mark.parametrize("seed", part(range(4), every=4))
def test_spans_equal_those_that_are_encoded_plainly(seed: int) -> None:
    """
    An encoder that has encoded many records gives the bytes of the plain rule, and rejects the same values.
    """
    encoder = SpanEncoder()
    records = [FULL, *CALLS, *random_calls(seed, 500)]
    spans = [encoded(encoder.encode_span, record) for record in records]
    assert [encoded(plain_span, record) for record in records] == spans
    assert len(records) // 100 < spans.count(None) < len(records) // 10


def test_meters_have_the_names_of_the_conventions_where_they_have_one() -> None:
    """
    Meters without a name in the conventions have Tollhouse names. A quantity with a fraction is decimal text.
    """
    record = Inference(id=b"1" * 16, source="otel")
    record.meters = {"input_audio_tokens": 1000, "cache_image_read_tokens": 0, "audio_seconds": "12.5"}
    found = attributes(parsed(record)[0])
    assert {
        "gen_ai.usage.audio.input_tokens": 1000,
        "gen_ai.usage.image.cache_read.input_tokens": 0,
        "tollhouse.meter.audio_seconds": "12.5",
    } == {name: value for name, value in found.items() if "usage" in name or "meter" in name}


def test_a_charge_is_never_an_amount_of_dollars() -> None:
    """
    An amount in another currency is never sent as dollars. A reader that does not know it sees the estimate
    and no reported cost.
    """
    record = Inference(id=b"1" * 16, source="otel", charges={"EUR": "1.5"}, cost_source="reported")
    for estimate, cost_source in ((None, "none"), ("2", "estimated")):
        record.estimated_cost = estimate
        found = attributes(parsed(record)[0])
        assert ("1.5", None, cost_source) == tuple(
            found.get(f"tollhouse.{name}") for name in ("charge.EUR", "cost", "cost_source")
        )
        (received,) = taken_in(record)
        assert received.charges == {"EUR": "1.5"}
        assert received.cost is None
        assert received.cost_source == "reported"


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=140)
counts = st.integers(min_value=0, max_value=10**9)
times = st.integers(min_value=1, max_value=2**62)
money = st.decimals(min_value=0, max_value=10**6, places=12).map(lambda value: f"{value:f}")
hexes = st.binary(min_size=16, max_size=16).filter(any).map(bytes.hex)


@given(
    st.builds(
        Inference,
        id=st.binary(min_size=16, max_size=16),
        source=texts,
        request_id=st.none() | texts,
        trace_id=st.none() | hexes | texts,
        span_id=st.none()
        | texts
        | hexes.map(lambda text: text[:16]).filter(lambda text: any(bytes.fromhex(text))),
        start_time=st.none() | times,
        end_time=st.none() | times,
        provider=st.none() | texts,
        operation=st.none() | texts,
        request_model=st.none() | texts,
        response_model=st.none() | texts,
        input_tokens=st.none() | counts,
        output_tokens=st.none() | counts,
        cache_read_tokens=st.none() | counts,
        cache_write_tokens=st.none() | counts,
        cache_write_1h_tokens=st.none() | counts,
        reasoning_tokens=st.none() | counts,
        cost=st.none() | money,
        estimated_cost=st.none() | money,
        cost_source=st.sampled_from(["reported", "estimated", "none"]),
        price_book=st.none() | texts,
        status=st.sampled_from(["ok", "error", "cached"]),
        error_type=st.none() | texts,
        user=st.none() | texts,
        team=st.none() | texts,
        session=st.none() | texts,
        api_key=st.none() | texts,
        device=st.none() | texts,
        region=st.none() | st.sampled_from(["us-east-1", "europe-west4", "eastus2", "data_zone", "global"]),
        tags=st.dictionaries(st.sampled_from(["env", "agent", "cost_center", "x" * 64]), texts, max_size=4),
        meters=st.dictionaries(
            st.sampled_from(sorted(METERS)), counts | st.sampled_from(["12.5", "0.000001"]), max_size=4
        ),
    )
)
def test_another_tollhouse_gets_every_field_back(record: Inference) -> None:
    """Another Tollhouse reads every field of a record, so gateways can be chained without loss."""
    (received,) = taken_in(record)
    for money_field in ("cost", "estimated_cost"):  # equal amounts may have different texts
        ours, theirs = getattr(record, money_field), getattr(received, money_field)
        if ours is not None and theirs is not None and float(ours) == float(theirs):
            setattr(received, money_field, ours)
    assert record == received
