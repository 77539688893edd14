"""
A cost service for tests: a real HTTP server on loopback that records every request and sends scripted answers.

    async with FakeUpstream() as upstream:
        upstream.answers.append(Reply(503, headers={"Retry-After": "2"}))   # for the next request, then 200 again
        upstream.judge = lambda request: Reply(400) if POISON in request.ids else None
        ...
        await upstream.until(lambda: len(upstream.ids) == 1000)

When no scripted answer is left, `judge` decides. If it returns None, the answer is 200.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.waiting import limited


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/x-protobuf"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drop: bool = False  # whether the server closes the connection without an answer


@dataclass(frozen=True)
class Received:
    """A received request with its inflated body."""

    method: str
    path: str
    headers: dict[str, str]  # headers of the request, with lower-case names
    raw: bytes
    body: bytes
    target: str = ""  # the path and query of the request as they were sent

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")

    @property
    def spans(self) -> list[dict[str, Any]]:
        request = ExportTraceServiceRequest.FromString(self.body)
        return [
            _attributes(span.attributes)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def points(self) -> list[dict[str, Any]]:
        request = ExportMetricsServiceRequest.FromString(self.body)
        return [
            _attributes(point.attributes)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.sum.data_points
        ]

    @property
    def ids(self) -> list[str]:
        """Return the `tollhouse.id` of every span or data point."""
        items = self.points if self.path.endswith("/v1/metrics") else self.spans
        return [item["tollhouse.id"] for item in items]


class FakeUpstream:
    def __init__(self) -> None:
        self.requests: list[Received] = []  # all requests that arrived, in order of arrival
        self.accepted: list[Received] = []  # requests that this server answered with 2xx
        self.answers: deque[Reply] = deque()
        self.judge: Callable[[Received], Reply | None] = lambda request: None
        self.url = ""
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    @property
    def ids(self) -> list[str]:
        """Return the ids of all accepted items, in order, with repeats."""
        return [record_id for request in self.accepted for record_id in request.ids]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is checked after each request."""
        async with limited(), self._changed:
            await self._changed.wait_for(condition)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, auto_decompress=False, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = gzip.decompress(raw) if headers.get("content-encoding") == "gzip" else raw
        received = Received(request.method, request.path, headers, raw, body, request.raw_path)
        async with self._changed:
            self.requests.append(received)
            reply = self.answers.popleft() if self.answers else self.judge(received) or Reply()
            self._changed.notify_all()
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        if reply.drop:
            assert request.transport is not None
            request.transport.abort()
        elif 200 <= reply.status < 300:
            async with self._changed:
                self.accepted.append(received)
                self._changed.notify_all()
        return web.Response(
            status=reply.status, body=reply.body, content_type=reply.content_type, headers=reply.headers
        )


def _attributes(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
