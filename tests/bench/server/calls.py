"""
`python -m tests.bench.server.calls` counts the calls of Tollhouse functions per warm span, by area.

The load is one OTLP/JSON span of eight attributes on an idle server with SQLite, one upstream and `hold` 0. A
coroutine that resumes after a wait counts as another call. The machine decides which part of the route's work
precedes the 2xx. So the route's calls are counted separately until the route rests, and a test limits only
the request's calls.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from unittest.mock import patch
from urllib.parse import urlsplit

from aiohttp import web

from exporters.route_loop import RouteLoop
from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from gateway.http.listening.listener import HttpServerConnection
from gateway.http.listening.plain_requests import FastPathRequestHandler
from gateway.normalise.payload import body_limits
from spool.log.commits.writer import GroupCommitWriter
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.sqlite.log.log import SqliteLog
from spool.turns import fair_turns
from tests.integration.conftest import servers
from tests.integration.payloads import json_span, json_traces

ROOT = Path(__file__).parents[3]
OWN = tuple(str(ROOT / package) for package in ("gateway", "exporters", "spool"))
ANSWER = FastPathRequestHandler.finish_response.__code__
# Entry points of a request's work and of a route's work: tasks, and functions that a task runs on
# the database thread.
OF_REQUEST = {
    code.__code__
    for code in (
        web.RequestHandler._handle_request,
        web.RequestHandler.start,
        HttpServerConnection.data_received,
        FastPathRequestHandler._answer_request,
        GroupCommitWriter._commit_until_closed,
        SqliteLog._write_group,
    )
}
OF_ROUTE = {code.__code__ for code in (RouteLoop._run_worker, RouteLoop._wake_on_changes)}
WARM, ROUNDS = 15, 15
# After this pause, all work of the last request has ended, because it waits for nothing outside this machine.
REST_S = 0.25


Names = Counter[tuple[str, str]]


@dataclass(frozen=True)
class Called:
    """Calls by file and function name, of a request and of the route that sent its record."""

    request: Names
    route: Names
    before_answer: int  # number of all counted calls until the response was written

    def areas(self, names: Names) -> Counter[str]:
        """Count by the first two parts of the path."""
        found: Counter[str] = Counter()
        for (file, _), count in names.items():
            found["/".join(Path(file).parts[:2])] += count
        return found


class CallCounter:
    """Counts calls on every thread while it is on. Threads that started earlier are not counted."""

    def __init__(self) -> None:
        self.is_on = False
        self.start()

    def start(self) -> None:
        self._request: Names = Counter()
        self._route: Names = Counter()
        self._others: Names = Counter()  # counted calls by the ledger, metrics and leases
        self._before_answer = 0

    def called(self) -> Called:
        return Called(self._request, self._route, self._before_answer)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.is_on or event != "call":
            return
        code = frame.f_code
        if code is ANSWER:
            self._before_answer = sum(map(Counter.total, (self._request, self._route, self._others)))
        elif code.co_filename.startswith(OWN):
            names = self._names_of(frame)
            names[str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname] += 1

    def _names_of(self, frame: FrameType) -> Names:
        """Return the counter of the work that called this function."""
        at: FrameType | None = frame
        while at is not None:
            if at.f_code in OF_REQUEST:
                return self._request
            if at.f_code in OF_ROUTE:
                return self._route
            at = at.f_back
        return self._others

    @contextmanager
    def counting(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _request(url: str, key: str, body: bytes) -> bytes:
    head = (
        f"POST /v1/traces HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _body(number: int) -> bytes:
    given = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-08-06", "gen_ai.response.id": f"chatcmpl-{number}", "user.id": "u-1",
    }  # fmt: skip
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in given.items()]
    counts = {"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 30}
    attributes += [{"key": key, "value": {"intValue": str(value)}} for key, value in counts.items()]
    return json_traces(json_span(attributes=attributes, spanId=f"{number:016x}", traceId=f"{number:032x}"))


def _send(connection: socket.socket, request: bytes) -> None:
    connection.sendall(request)
    answer = connection.recv(4096)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ValueError(answer.decode())


async def _accept(request: web.Request) -> web.Response:
    await request.read()
    return web.json_response({})


async def measured(place: Path, warm: int = WARM, counted: int = ROUNDS) -> Sequence[Called]:
    """Count each round on a new server."""
    upstream = web.AppRunner(web.Application())
    upstream.app.router.add_post("/{path:.*}", _accept)
    await upstream.setup()
    site = web.TCPSite(upstream, "127.0.0.1", 0)
    await site.start()
    (place / "key").write_text("secret")
    keys = (UpstreamKey(name="all", secret_file=place / "key", use_cases=(SEND_AI_TELEMETRY,)),)
    config = Config(
        spool=SpoolSettings(hold=0, counter_wait=0),
        upstream=UpstreamSettings(base_url=f"http://127.0.0.1:{upstream.addresses[0][1]}", keys=keys),
    )
    counter = CallCounter()
    rounds = []
    # a step may take long, so that on a slow machine no other work runs in between
    whole = patch.object(fair_turns, "ALONE_S", 60.0), patch.object(body_limits, "SLICE_S", 60.0)
    with counter.counting(), whole[0], whole[1]:
        async with servers(place) as serve:
            serving = await serve(config=config)
            with socket.create_connection(("127.0.0.1", serving.port)) as connection:
                for number in range(1, warm + counted + 1):
                    request = _request(serving.url, serving.key, _body(number))
                    counter.start()
                    counter.is_on = True
                    await asyncio.to_thread(_send, connection, request)
                    await asyncio.sleep(REST_S)
                    counter.is_on = False
                    rounds.append(counter.called())
    await upstream.cleanup()
    return rounds[warm:]


def least(rounds: Sequence[Called]) -> Called:
    """
    Return the round with the fewest calls of the request, because upkeep and other responses may fall
    into a round.
    """
    return min(rounds, key=lambda called: called.request.total())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rounds = asyncio.run(measured(Path(folder)))
    called = least(rounds)
    for what, names in (("the request", called.request), ("its route", called.route)):
        print(f"{names.total()} calls of {what}")
        for area, count in called.areas(names).most_common():
            print(f"{count:5d}  {area}")
        if "-v" in sys.argv:
            for (file, name), count in sorted(names.items()):
                print(f"      {count:5d}  {file} {name}")
    print("until the 2xx:", *(each.before_answer for each in rounds))
    print("of the request:", *(each.request.total() for each in rounds))
    print("of the route:", *(each.route.total() for each in rounds))
