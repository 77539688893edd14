"""
Yardstick of the ingest figures: bare handlers (aiohttp, grpc.aio) that decode the same OTLP bodies and read
every attribute into a dict. They have no dedup keys, prices or storage. `python -m tests.bench.yardstick`
prints its HTTP address, then its gRPC address.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import orjson
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


def scalar(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def read_protobuf(body: bytes) -> int:
    """Return the number of spans with attributes, after reading the attributes of each span into a dict."""
    message = ExportTraceServiceRequest.FromString(body)
    spans = 0
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                attributes = {item.key: scalar(item.value) for item in span.attributes}
                spans += bool(attributes)
    return spans


def read_json(body: bytes) -> int:
    spans = 0
    for resource_spans in orjson.loads(body)["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                attributes = {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}
                spans += bool(attributes)
    return spans


async def decode(request: web.Request) -> web.Response:
    body = await request.read()
    spans = read_json(body) if request.content_type == "application/json" else read_protobuf(body)
    return web.Response(body=b"", content_type="application/x-protobuf", headers={"Spans": str(spans)})


async def export(body: bytes, context: Any) -> bytes:
    read_protobuf(body)
    return b""


async def main() -> None:
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_post("/{path:.*}", decode)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", 64 * 1024**2),))
    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}  # type: ignore[no-untyped-call]
    service = grpc.method_handlers_generic_handler(SERVICE, handlers)  # type: ignore[no-untyped-call]
    server.add_generic_rpc_handlers((service,))
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    port = runner.addresses[0][1]
    print(f"listening on http://127.0.0.1:{port} 127.0.0.1:{grpc_port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
