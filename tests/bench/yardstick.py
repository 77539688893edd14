"""
The yardstick of the ingest figures: a bare aiohttp handler that decodes the same OTLP bodies and reads every attribute
into a dict, with no identity, no price and no spool at all. Also a sink that answers every POST with 200.

    python -m tests.bench.yardstick [sink]
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def scalar(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


async def decode(request: web.Request) -> web.Response:
    message = ExportTraceServiceRequest.FromString(await request.read())
    spans = 0
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                attributes = {item.key: scalar(item.value) for item in span.attributes}
                spans += bool(attributes)
    return web.Response(body=b"", content_type="application/x-protobuf", headers={"Spans": str(spans)})


async def swallow(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(body=b"", content_type="application/x-protobuf")


def main() -> None:
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_post("/{path:.*}", swallow if sys.argv[1:] == ["sink"] else decode)

    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    web.run_app(app, sock=listener, print=lambda _: print(f"listening on {address}", flush=True), access_log=None)


if __name__ == "__main__":
    main()
