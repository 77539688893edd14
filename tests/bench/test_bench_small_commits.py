"""
Steps of a one-span request on its way to the upstream, counted instead of timed. Steps are commits,
transactions of all files, flushes, hops to the file threads, and turns of the event loop.

They are measured for a lone request and for concurrent requests. Work that runs once a second is divided by
the requests of that second.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.service.app import TollhouseApp
from spool.log.values import Commit
from spool.record import AI_TELEMETRY
from spool.registry.operators import Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.sqlite.database import _Connection
from tests.bench.load.payloads import numbered, protobuf_spans

T = TypeVar("T")
REQUESTS = 128
SENDERS = 16

pytestmark = pytest.mark.bench


class Sink(BaseHTTPRequestHandler):
    """An upstream that accepts everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Suppress the log."""


@contextmanager
def sink() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def count_steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """
    Count the steps of every file and of this loop from now on. A transaction without changes is not flushed.
    """
    steps: Counter[str] = Counter()
    transact, timed = _Connection._run_transaction, _Connection._run_timed

    def counted_transact(self: _Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        before = self._conn.total_changes
        result = transact(self, work)
        steps["transactions"] += 1
        steps["flushes"] += self._conn.total_changes > before
        return result

    def counted_timed(self: _Connection, work: Callable[[], T]) -> T:
        steps["hops"] += 1
        return timed(self, work)

    selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    select = selector.select

    def counted_select(timeout: float | None = None) -> Any:
        steps["turns"] += 1
        return select(timeout)

    monkeypatch.setattr(_Connection, "_run_transaction", counted_transact)
    monkeypatch.setattr(_Connection, "_run_timed", counted_timed)
    monkeypatch.setattr(selector, "select", counted_select)
    return steps


class Commits:
    """Counts the commits of the log that it observes."""

    def __init__(self) -> None:
        self.count = 0

    def note_commit(self, commit: Commit) -> None:
        self.count += 1


def send(url: str, key: str, numbers: range) -> None:
    """Send requests one after the other on one connection."""
    connection = HTTPConnection(urlsplit(url).netloc)
    headers = {"Authorization": key, "Content-Type": "application/x-protobuf"}
    body = protobuf_spans(1)
    for number in numbers:
        connection.request("POST", "/v1/traces", numbered(body, number), headers)
        answer = connection.getresponse()
        assert 200 == answer.status, answer.read()
        answer.read()
    connection.close()


async def delivered(app: TollhouseApp, count: int) -> None:
    while True:
        books = await app.services.storage.log.books()
        if books.routes[f"upstream/{AI_TELEMETRY}"]["delivered"] == count:
            return
        await asyncio.sleep(0.25)


async def test_the_steps_of_a_small_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The request of a lone sender is one commit. Concurrent requests share commits. Deliveries share commits in both
    cases.
    """
    monkeypatch.setenv("SINK_KEY", "sink")
    with sink() as url:
        config = Config(
            data_dir=tmp_path,
            server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
            spool=SpoolSettings(hold=0),
            upstream=UpstreamSettings(
                base_url=url,
                keys=(UpstreamKey(name="sink", secret_env="SINK_KEY", use_cases=(SEND_AI_TELEMETRY,)),),
            ),
        )
        commits = Commits()
        app = TollhouseApp(config, version="0", observer=commits)
        await app.start()
        try:
            registry = app.services.storage.registry
            assert registry is not None
            actor = Actor("tests", "local")
            _, key = await registry.keys.create(name="load", use_cases=[SEND_AI_TELEMETRY], actor=actor)
            await asyncio.to_thread(send, app.url, key, range(1))
            await delivered(app, 1)
            steps = count_steps(monkeypatch)
            commits.count = 0
            figures = {}
            await asyncio.to_thread(send, app.url, key, range(1, 1 + REQUESTS))
            await delivered(app, 1 + REQUESTS)
            figures["alone"] = {**steps, "commits": commits.count}
            steps.clear()
            commits.count = 0
            each = REQUESTS // SENDERS
            begins = range(1 + REQUESTS, 1 + 2 * REQUESTS, each)
            parts = [asyncio.to_thread(send, app.url, key, range(begin, begin + each)) for begin in begins]
            await asyncio.gather(*parts)
            await delivered(app, 1 + 2 * REQUESTS)
            figures[f"{SENDERS} together"] = {**steps, "commits": commits.count}
        finally:
            await app.stop()
    for name, counts in figures.items():
        shown = ", ".join(f"{count / REQUESTS:.2f} {step}" for step, count in counts.items())
        print(f"\n{name}: {shown} a request")
    alone, together = figures.values()
    assert REQUESTS == alone["commits"]
    assert together["commits"] < 0.75 * REQUESTS
