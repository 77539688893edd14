"""
Cost to write one record as an OTLP span, compared with filling the generated protobuf classes in the same run.

The target is 5 µs per record. The ratio to the generated classes holds on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from exporters.otlp.spans import SpanEncoder
from spool.record import NS, Inference
from tests.exporters.spools import record_id

RECORDS = 1000
ROUNDS = 15
AT_MOST = 1.5  # limit as a multiple of the yardstick's time, generous for a busy machine; measured: 0.15


def records() -> list[tuple[Inference, float]]:
    """Make a thousand calls of a few models. Every field that changes from call to call is different."""
    began = 1_790_000_000 * NS
    return [
        (
            Inference(
                id=record_id(n),
                source="litellm",
                request_id=f"chatcmpl-{record_id(n).hex()}",
                trace_id=record_id(n).hex(),
                span_id=record_id(n).hex()[:16],
                start_time=began + n,
                end_time=began + n + NS,
                provider="openai",
                operation="chat",
                request_model=f"gpt-{n % 5}",
                response_model=f"gpt-{n % 5}-2026-08-06",
                input_tokens=1000 + n,
                output_tokens=50 + n,
                cache_read_tokens=n,
                reasoning_tokens=20,
                cost=f"0.{n + 1:06d}",
                estimated_cost=f"0.{n + 2:06d}",
                cost_source="reported",
                price_book="2026-11-01",
                user=f"user-{n % 200}",
                team="search",
                session=f"session-{n % 300}",
                api_key=f"key-{n % 20}",
                tags={"env": "prod", "service": "checkout", "agent": f"agent-{n % 7}"},
            ),
            1_790_000_000.0,
        )
        for n in range(RECORDS)
    ]


def filled(batch: Sequence[tuple[Inference, float]], template: ExportTraceServiceRequest) -> bytes:
    """Encode the same attributes with the generated classes."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for (record, _), source in zip(batch, template.resource_spans[0].scope_spans[0].spans, strict=True):
        span = scope.spans.add(
            trace_id=source.trace_id,
            span_id=source.span_id,
            name=source.name,
            kind=source.kind,
            start_time_unix_nano=record.start_time,
            end_time_unix_nano=record.end_time,
        )
        for attribute in source.attributes:
            value = span.attributes.add(key=attribute.key).value
            if attribute.value.HasField("int_value"):
                value.int_value = attribute.value.int_value
            else:
                value.string_value = attribute.value.string_value
    return request.SerializeToString()


def best_us(work: Callable[[], object]) -> float:
    """Return processor microseconds per record of the fastest round."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best / RECORDS * 1e6


@pytest.mark.bench
def test_encoding_a_record_costs_a_fraction_of_the_generated_classes() -> None:
    batch, encoder = records(), SpanEncoder()
    template = ExportTraceServiceRequest.FromString(encoder.encode_request(batch))
    ours = best_us(lambda: encoder.encode_request(batch))
    yardstick = best_us(lambda: filled(batch, template))
    print(
        f"\nencode: {ours:.2f} µs a record, generated classes {yardstick:.2f} µs, ratio "
        f"{ours / yardstick:.2f}"
    )
    assert ours / yardstick <= AT_MOST
