"""Two real gateways on one PostgreSQL: one is killed, and one is frozen, while it sends."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.clients.loopback import Loopback, body_of
from tests.spool.postgres_cluster import Schema, storage_table
from tests.waiting import wait_until

pytestmark = pytest.mark.proof

ROUTE = "sink/ai-telemetry"
TAKEN_OVER_S = 6.0  # the documented limit for a takeover, in seconds
SLACK_S = 14.0  # extra seconds for a busy machine; the test adds more if a start takes long
STARTS = 10

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
{storage}
[spool]
hold = "0s"
max_bytes = "1GiB"
[[destinations]]
name = "sink"
type = "webhook"
url = "{url}"
"""


class Sink(Loopback):
    """
    A destination that honours idempotency keys. It records each request, and answers when the test permits it.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []  # idempotency keys of all requests that arrived, including repeats
        self.accepted: dict[
            str, int
        ] = {}  # number of records per idempotency key; a repeated request counts once
        self.answers = threading.Event()
        super().__init__(_handler(self))


def _handler(sink: Sink) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = body_of(self)
            key = self.headers["Idempotency-Key"]
            sink.accepted.setdefault(key, len(json.loads(body)["records"]))
            sink.keys.append(key)
            sink.answers.wait(60)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


@pytest.fixture
def sink() -> Iterator[Sink]:
    opened = Sink()
    yield opened
    opened.answers.set()
    opened.close()


@pytest.fixture
def gateways(installations: Any, new_schema: Any, sink: Sink, tmp_path: Path) -> tuple[Tollhouse, Tollhouse]:
    """Start two gateways on one storage, of which the first runs the route."""
    schema: Schema = new_schema()
    first, second = (
        installations(name, config=CONFIG.format(storage=_storage(tmp_path, schema, name), url=sink.url))
        for name in ("a", "b")
    )
    first.start()
    wait_until(lambda: ROUTE in run_by(first, "a"), "the first gateway runs the route")
    second.start()
    return first, second


def _storage(folder: Path, schema: Schema, name: str) -> str:
    return storage_table(folder, dsn=schema.dsn, schema=schema.name, more=f'node_name = "{name}"')


def run_by(gateway: Tollhouse, name: str) -> list[str]:
    """Return the leases of the gateway with that name, by the status of another gateway."""
    nodes = gateway.asked("/status")["nodes"]
    return [lease for node in nodes if node["live"] and node["name"] == name for lease in node["leases"]]


def sent(sink: Sink, after: int) -> float:
    """Wait until there are more requests than `after`; return how long it took."""
    began = time.monotonic()
    wait_until(lambda: len(sink.keys) > after, f"a request after {after}")
    return time.monotonic() - began


def by_role(gateways: tuple[Tollhouse, Tollhouse]) -> tuple[Tollhouse, Tollhouse]:
    """
    Return the gateway that runs the route, then the other. On a stalled machine the route may have moved.
    """
    first, second = gateways
    wait_until(lambda: ROUTE in run_by(first, "a") + run_by(first, "b"), "a gateway runs the route")
    return (first, second) if ROUTE in run_by(first, first.directory.name) else (second, first)


def test_what_a_gateway_had_in_hand_is_sent_by_another_one(
    gateways: tuple[Tollhouse, Tollhouse], sink: Sink
) -> None:
    """
    If a gateway is killed or frozen, the other one sends its open delivery within seconds under the same key.
    Each record counts once by that key.
    """
    killed, other = by_role(gateways)
    key = killed.key("sender")
    assert 200 == post(killed.url, request([span("call-1")]), key).status
    sent(sink, after=0)
    before = len(sink.keys)
    killed.kill()
    killed_s = sent(sink, after=before)
    sink.answers.set()
    wait_until(lambda: other.queued(ROUTE) == 0, "the second gateway settles it")
    assert len(set(sink.keys)) == 1
    assert list(sink.accepted.values()) == [1]

    began = time.monotonic()
    killed.start()
    slack_s = max(SLACK_S, STARTS * (time.monotonic() - began))
    sink.answers.clear()
    sink.keys.clear()
    assert 200 == post(killed.url, request([span("call-2")]), key).status
    sent(sink, after=0)
    frozen, third = by_role(gateways)
    assert frozen.process is not None
    before = len(sink.keys)
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        frozen_s = sent(sink, after=before)
        sink.answers.set()
        wait_until(lambda: third.queued(ROUTE) == 0, "the other gateway settles it")
    finally:
        frozen.process.send_signal(signal.SIGCONT)
    wait_until(lambda: {"a", "b"} == live(frozen), "the frozen one has a new session")
    assert len(set(sink.keys)) == 1
    assert list(sink.accepted.values()) == [1, 1]
    books = third.asked("/books")
    assert books["routes"][ROUTE]["delivered"] == 2
    assert books["balanced"] is True
    print(f"taken over after {killed_s:.1f} s (killed) and {frozen_s:.1f} s (frozen)")
    assert max(killed_s, frozen_s) < TAKEN_OVER_S + slack_s


def live(gateway: Tollhouse) -> set[str]:
    return {node["name"] for node in gateway.asked("/status")["nodes"] if node["live"]}
