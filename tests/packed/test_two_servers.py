"""Two servers get the same requests, one with the compiled module and one without: nobody can tell them apart."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spool.packed.native import Native
from tests.acceptance.conftest import Tollhouse, wait_for
from tests.acceptance.conftest import installations as installations
from tests.acceptance.payloads import post
from tests.bench.load.payloads import LITELLM, numbered, protobuf_spans
from tests.gateway.normalise.otlp.payloads import in_protobuf
from tests.gateway.normalise.otlp.test_span_cases import cases

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
[[destinations]]
name = "sink"
type = "otlp"
url = "{url}"
"""
PROTOBUF = {"Content-Type": "application/x-protobuf"}
DIMENSIONS = "model,user,source,status,region,sender,tag:service"


class Sink(BaseHTTPRequestHandler):
    """Keeps each span as its bytes."""

    spans: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            found = [span for one in request.resource_spans for two in one.scope_spans for span in two.spans]
            self.spans += [span.SerializeToString() for span in found]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def sink() -> Iterator[tuple[str, list[bytes]]]:
    spans: list[bytes] = []
    handler = type("OneSink", (Sink,), {"spans": spans})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        server.server_close()


def requests() -> Iterator[tuple[bytes, str, dict[str, str]]]:
    """Every trace case, some of them twice, requests of the bench, and logs of a gateway without trace ids."""
    for number, path in enumerate(cases()):
        body = in_protobuf(json.loads(path.read_text()))
        yield from [(body, "/v1/traces", PROTOBUF)] * (1 + number % 2)
    for spans in (1, 10, 100, 100):
        template = protobuf_spans(spans)
        yield from [(numbered(template, number + spans), "/v1/traces", PROTOBUF) for number in range(5)]
    yield numbered(LITELLM.read_bytes(), 1), "/v1/ai-telemetry/litellm", {}


def told(tollhouse: Tollhouse, spans: list[bytes], given: list[tuple[bytes, str, dict[str, str]]]) -> Any:
    """What the upstream, the ledger and the books have of these requests."""
    key = tollhouse.key("sender")
    url = tollhouse.start(env={"TOLLHOUSE_SERVER__NATIVE": tollhouse.directory.name})
    for body, path, headers in given:
        assert post(url, body, key, path, **headers).status == 200
    status = tollhouse.asked("/status")
    assert ("true" == tollhouse.directory.name) is status["native"]["on"], status["native"]
    accepted = next(one for one in status["topics"] if one["topic"] == "ai-telemetry")
    settled = lambda: all(route["queued"] == 0 for route in tollhouse.asked("/status")["routes"])  # noqa: E731
    wait_for(settled, 60, "everything is delivered")
    tollhouse.stop()
    report = tollhouse.json("report", "--from", "2020-01-01", "--by", DIMENSIONS)
    return sorted(spans), accepted, report


def test_the_same_requests_leave_the_same_bytes_and_sums(native: Native, installations: Any) -> None:
    """Bytes at the upstream, books and sums by every dimension; the module takes what it can, and says so."""
    given = list(requests())
    found = []
    for name in ("false", "true"):
        with sink() as (url, spans):
            tollhouse = installations(name, config=CONFIG.format(url=url))
            found.append(told(tollhouse, spans, given))
    assert len(found[0][0]) > 500
    assert found[0] == found[1]
