"""Servers with and without the compiled module return identical results for the same requests."""

from __future__ import annotations

import gzip
import json
import re
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spool.packed.native import NativeModule
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post
from tests.bench.load.payloads import LITELLM, numbered, protobuf_spans
from tests.bench.load.traces import captured_spans, tree_spans
from tests.gateway.normalise.otlp.payloads import in_protobuf
from tests.gateway.normalise.otlp.test_span_cases import cases
from tests.rounds import part
from tests.spool.postgres_cluster import Schema, storage_table
from tests.waiting import wait_until

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
max_bytes = "1GiB"
[[destinations]]
name = "sink"
type = "otlp"
url = "{url}"
"""
PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
# The range ends the day after tomorrow, so that every record is in it even if an hour begins between two reports.
SPAN = ("--from", "2020-01-01", "--to", f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}")
DIMENSIONS = "model,user,source,status,region,sender,tag:service"


class Sink(BaseHTTPRequestHandler):
    """
    An upstream that stores the bytes of each span once, even if a killed server repeats a delivery under its key.
    """

    spans: list[bytes]
    keys: set[str | None]

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # the server was killed while it sent the body
            return
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces" and self.headers["Idempotency-Key"] not in self.keys:
            self.keys.add(self.headers["Idempotency-Key"])
            request = ExportTraceServiceRequest.FromString(body)
            found = [span for one in request.resource_spans for two in one.scope_spans for span in two.spans]
            self.spans += [span.SerializeToString() for span in found]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def sink() -> Iterator[tuple[str, list[bytes]]]:
    spans: list[bytes] = []
    handler = type("OneSink", (Sink,), {"spans": spans, "keys": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        server.server_close()


Request = tuple[bytes, str, dict[str, str]]


def requests() -> Iterator[Request]:
    """
    Yield every trace case in protobuf or JSON, some of them repeated or compressed with gzip.

    Between the cases are requests of the benchmark, logs of a gateway without trace ids, agent traces,
    benchmark calls, and requests of real clients.
    """
    captured, tree, calls = captured_spans()[::3], tree_spans(7), protobuf_spans(10)
    for number, path in enumerate(cases()):
        yield numbered(tree, number), "/v1/traces", PROTOBUF
        yield from [
            (numbered(calls, 1000 + 4 * number + place), "/v1/traces", PROTOBUF) for place in range(4)
        ]
        yield captured[number % len(captured)], "/v1/traces", PROTOBUF
        body, headers = in_protobuf(json.loads(path.read_text())), PROTOBUF
        if number % 3 == 1:
            body, headers = path.read_bytes(), JSON
        if number % 4 == 3:
            body, headers = gzip.compress(body), {**headers, "Content-Encoding": "gzip"}
        yield from [(body, "/v1/traces", headers)] * (1 + number % 3)
    for spans in (1, 10, 100, 100):
        template = protobuf_spans(spans)
        yield from [(numbered(template, number + spans), "/v1/traces", PROTOBUF) for number in range(5)]
    yield numbered(LITELLM.read_bytes(), 1), "/v1/ai-telemetry/litellm", {}


@dataclass(frozen=True, kw_only=True)
class Way:
    """
    How servers receive the requests: with or without the module, and in which storage.

    `starts` lists the servers that run one after another, each for a part of the requests, and whether each has
    the module. The second server is killed. `gateways` lists servers that share one storage at the same time.
    """

    starts: tuple[str, ...] = ("true",)
    gateways: tuple[str, ...] = ()
    is_shared: bool = False


WAYS = {
    "switched at restarts": Way(starts=("true", "false", "true")),
    "postgres, switched": Way(is_shared=True, starts=("false", "true")),
    "two gateways": Way(is_shared=True, gateways=("true", "false")),
}
Found = tuple[list[bytes], Any, Any]


@dataclass(frozen=True)
class Stand:
    """
    Factory of installations in a directory. The installations share one storage if the engine allows it.
    """

    directory: Path
    url: str  # address of the sink, which stands for the upstream
    dsn: str = ""
    schema: str = ""

    def installation(self, name: str) -> Tollhouse:
        storage = ""
        if self.dsn:
            more = f'node_name = "{name}"'
            storage = storage_table(
                self.directory, dsn=self.dsn, schema=self.schema, durability="local", more=more
            )
        return Tollhouse(self.directory / name, CONFIG.format(url=self.url) + storage)


def start(one: Tollhouse, wanted: str) -> str:
    url = one.start(env={"TOLLHOUSE_SERVER__NATIVE": wanted})
    status = one.asked("/status")["native"]
    assert (wanted == "true") is status["on"], status
    return url


def spans_decoded_by_module(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    [count] = re.findall(r'^tollhouse_spans_decoded_total{by="module"} (.*)$', text, re.M) or ["0"]
    return float(count)


def send(url: str, key: str, given: Sequence[Request], *, has_module: bool = False) -> None:
    for body, path, headers in given:
        assert post(url, body, key, path, **headers).status == 200
    assert has_module == (spans_decoded_by_module(url) > 0)


def topic_of(status: Any) -> Any:
    return next(one for one in status["topics"] if one["topic"] == "ai-telemetry")


def is_settled(status: Any) -> bool:
    """
    Return whether everything has been processed: no report waits for another report of its call, and no
    record waits for delivery.
    """
    return topic_of(status)["pending"] == 0 and all(route["queued"] == 0 for route in status["routes"])


def taken(way: Way, stand: Stand, spans: list[bytes], given: Sequence[Request]) -> Found:
    """Return the upstream's bytes, the accounting and the totals after all requests."""
    made = [stand.installation(f"gateway-{number}") for number in range(max(1, len(way.gateways)))]
    try:
        if way.is_shared:
            made[0].run("storage", "init")
        key, first = made[0].key("sender"), made[0]
        if way.gateways:
            urls = [start(one, wanted) for one, wanted in zip(made, way.gateways, strict=True)]
            for number, each in enumerate(given):
                assert post(urls[number % len(urls)], each[0], key, each[1], **each[2]).status == 200
        else:
            step = -(-len(given) // len(way.starts))
            for number, wanted in enumerate(way.starts):
                first.stop(*((signal.SIGKILL, None) if number == 2 else ()))
                part = given[number * step : (number + 1) * step]
                send(start(first, wanted), key, part, has_module=wanted == "true")
        wait_until(lambda: is_settled(first.asked("/status")), "everything is delivered")
        booked = topic_of(first.asked("/status"))
        for one in made:
            one.stop()
        return sorted(spans), booked, first.json("report", *SPAN, "--by", DIMENSIONS)
    finally:
        for one in made:
            one.stop(signal.SIGKILL, code=None)


@pytest.fixture(scope="module")
def given() -> Sequence[Request]:
    """The requests, made once because some start at the current time."""
    return list(requests())


@pytest.fixture(scope="module")
def by_rules(given: Sequence[Request], tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Found]:
    """
    Return a function that gives the result of a server on SQLite without the module after that number of starts.
    """

    @cache
    def found(starts: int) -> Found:
        with sink() as (url, spans):
            stand = Stand(tmp_path_factory.mktemp("rules"), url)
            return taken(Way(starts=("false",) * starts), stand, spans, given)

    return found


@pytest.mark.parametrize("name", part([*WAYS], every=3))
def test_the_same_requests_leave_the_same_bytes_and_sums(
    native: NativeModule,
    by_rules: Callable[[int], Found],
    given: Sequence[Request],
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """
    Upstream bytes, accounting and sums by every dimension are equal for any storage and any decoder.

    A server with the module reads data of a server without it, and the reverse. A server on files forgets at
    its end what it learned about senders, so the compared servers have the same number of starts.
    """
    way = WAYS[name]
    place: Schema | None = request.getfixturevalue("unmade_schema") if way.is_shared else None
    with sink() as (url, spans):
        stand = Stand(tmp_path, url, *((place.dsn, place.name) if place else ()))
        found = taken(way, stand, spans, given)
    expected = by_rules(1 if way.is_shared else len(way.starts))
    assert len(expected[0]) > 500
    assert expected[1:] == found[1:]
    assert expected[0] == found[0]
