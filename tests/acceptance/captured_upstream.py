"""
A cost service for tests with processes. It accepts every request, counts each record id once, and adds up values.
"""

from __future__ import annotations

import gzip
import threading
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.clients.loopback import Loopback

Row = dict[str, Any]
# attributes with the token counts of a span, in the order of the kinds: input, output, reads, writes, reasoning
SPAN_TOKENS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.reasoning.output_tokens",
)


class CountingUpstream(Loopback):
    """An upstream that keeps the attributes of each span and point. A point's value is under `value`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[str, Row] = {}
        self._points: dict[str, Row] = {}
        super().__init__(_handler(self))

    def take(self, path: str, body: bytes) -> None:
        is_metrics = path.endswith("/v1/metrics")
        rows = rows_of(path, body)
        with self._lock:
            for row in rows:
                (self._points if is_metrics else self._spans)[row["tollhouse.id"]] = row

    def spans(self) -> list[Row]:
        with self._lock:
            return list(self._spans.values())

    def counters(self) -> dict[tuple[str, str, str], Decimal]:
        """
        Return sums by team, name and token type, without kinds whose sum is zero because everything was reversed.
        """
        sums: defaultdict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
        with self._lock:
            for row in self._points.values():
                kind = row.get("tollhouse.team", ""), row["name"], row.get("gen_ai.token.type", "")
                sums[kind] += Decimal(str(row["value"]))
        return {kind: value for kind, value in sums.items() if value}


def _handler(upstream: CountingUpstream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            upstream.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


def rows_of(path: str, body: bytes) -> list[Row]:
    return list(_points(body) if path.endswith("/v1/metrics") else _spans(body))


def _spans(body: bytes) -> Iterator[Row]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            yield from (_attributes(span.attributes) for span in scope.spans)


def _points(body: bytes) -> Iterator[Row]:
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.sum.data_points:
                    value = getattr(point, point.WhichOneof("value") or "")
                    row = _attributes(point.attributes)
                    yield {**row, "name": metric.name, "value": row.get("tollhouse.value", value)}


def _attributes(attributes: Any) -> Row:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
