"""
The short way of a plain request to its handler and back, without what aiohttp makes for each one.

A path without parameters that takes every method is found by its text, with the match that the router made
when it was asked first: 4 % of the loop's time where requests are small. A request that is there at once, with
the head of the one before it, needs no parser, no stream for its body and no turn of aiohttp's own task: a
quarter of a single span.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

from aiohttp import web
from aiohttp.helpers import EMPTY_BODY_STATUS_CODES, rfc822_formatted_time
from aiohttp.http import HttpVersion11, RawRequestMessage, StreamWriter
from aiohttp.http_writer import _serialize_headers
from aiohttp.streams import EmptyStreamReader
from aiohttp.web_urldispatcher import PlainResource
from multidict import CIMultiDict, CIMultiDictProxy

from spool.turns.fair_turns import Party

# of a web.Request; aiohttp says BaseRequest
Handle: TypeAlias = "Callable[[Any], Awaitable[web.StreamResponse]]"

# Read by the router as it is written, and by nobody in two ways: nothing is escaped, and no part may be left
# out.
_PLAIN = re.compile(r"(/\w[\w.-]*)+", re.ASCII)

SERVER: Final = "tollhouse"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_UNKNOWN: Final = -1  # how much of a body is to come


def by_exact_path(application: web.Application, otherwise: Handle) -> Handle:
    """
    Make a handler that finds exact paths of a frozen application in a dict; `otherwise`, the application's
    own handler, takes all others.

    `otherwise` takes requests with `Expect`, too, and every request of an application with middlewares.
    """
    matches: dict[str, web.UrlMappingMatchInfo] = {}  # at most as many as there are such paths
    if application.middlewares:
        return otherwise

    def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
        match = matches.get(request.raw_path)
        if match is None or "Expect" in request.headers:
            return search(request)
        request._match_info = match
        return match.handler(request)

    async def search(request: web.Request) -> web.StreamResponse:
        try:
            return await otherwise(request)
        finally:
            match = request._match_info
            if match is not None and _is_exact(request.raw_path, match, application):
                matches[request.raw_path] = match

    return handle


def _is_exact(path: str, match: web.UrlMappingMatchInfo, application: web.Application) -> bool:
    """True if any request for this path has this match; False in a mounted application."""
    route = match.route
    return (
        route.method == "*"
        and isinstance(route.resource, PlainResource)
        and route.resource.canonical == path
        and match.apps == (application,)
        and _PLAIN.fullmatch(path) is not None
    )


class _Head(NamedTuple):
    """A head as aiohttp's parser read it, around the length of its body."""

    before: bytes
    behind: bytes
    length: bytes
    message: RawRequestMessage


class WholeBody(EmptyStreamReader):
    """A body that came with its head."""

    __slots__ = ("_body",)

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._body = body

    def at_eof(self) -> bool:
        return not self._body

    def read_nowait(self, n: int = -1) -> bytes:
        size = len(self._body) if n < 0 else n
        read, self._body = self._body[:size], self._body[size:]
        return read

    async def read(self, n: int = -1) -> bytes:
        return self.read_nowait(n)

    async def readany(self) -> bytes:
        return self.read_nowait()


class PlainRequests(web.RequestHandler):
    """
    aiohttp's protocol, with a short way for a POST that is whole when it comes, if the one before it on the
    connection had the same head but for the length of the body.

    The parser sees everything else, and between two requests it holds nothing. Where a request ends is known
    from the lengths of bodies; once that is not so, the parser sees all the rest of the connection.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._left = 0  # bytes of the body that the parser reads
        self._head: _Head | None = None
        self._short: asyncio.Task[None] | None = None  # of the request that goes the short way
        self._held = b""  # came behind it, or waits for its turn
        self._waits = False  # what is held, for its turn
        self.party: Party | None = None  # of the last request; the next one is mostly of the same

    @property
    def is_idle(self) -> bool:
        """True if no request is being handled, and none waits for its turn."""
        if self._current_request is not None or self._short is not None:
            return False
        return not self._messages and not self._waits

    def data_received(self, data: bytes) -> None:
        if self._short is not None or self._waits:
            self._held += data
            self._pause_transport_reading()
            return
        party = self.party
        if party is not None and party.turns.are_shared and self._hold(data, party):
            return
        if self._head is not None and not self._left and self._take_whole(data, self._head):
            return
        before = self._request_count
        super().data_received(data)
        if self._left != _UNKNOWN:
            self._left = self._after(data, self._request_count - before)

    def _hold(self, data: bytes, party: Party) -> bool:
        """Keep the beginning of a request until it is the party's turn; False if it needs none, or is none."""
        heavy = party.turns.heavy(party.name)
        if heavy is None or not data or self._left > 0 or not self.is_idle:
            return False
        self._held, self._waits = data, True
        heavy.turns.call_in_turn(heavy, self._go_on)
        return True

    def _go_on(self) -> None:
        """Read what waited for its turn."""
        held, self._held, self._waits = self._held, b"", False
        self.party = None  # until it is answered
        if self.transport is None:
            return
        self._resume_transport_reading()
        try:
            self.data_received(held)
        except Exception as error:  # noqa: BLE001 - a transport, too, ends a connection whose protocol fails
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()

    def _take_whole(self, data: bytes, head: _Head) -> bool:
        """Begin to handle a request; False if it is for the parser."""
        if not data.startswith(head.before):
            return False
        begin = len(head.before)
        end = data.find(b"\r", begin, begin + 10)
        length = data[begin:end]
        if not length.isdigit() or not data.startswith(head.behind, end):
            return False
        body = end + len(head.behind)
        if len(data) - body != int(length):
            return False
        waiter = self._waiter
        if waiter is None or waiter.done() or self._messages:
            return False
        make = self._request_factory
        manager = self._manager
        if make is None or manager is None or self._close or self._force_close:
            return False
        if length != head.length:
            head = self._head = _with_length(head, length)
        self._request_count += 1
        manager.requests_count += 1
        task = self._task_handler
        assert task is not None
        writer = StreamWriter(self, self._loop)
        request = make(head.message, WholeBody(data[body:]), self, writer, task)
        self._short = self._loop.create_task(self._answer(request))
        return True

    async def _answer(self, request: web.BaseRequest) -> None:
        stays = False
        handler = self._request_handler
        assert handler is not None
        try:
            response, is_gone = await self._handle_request(request, None, handler)
            stays = bool(response.keep_alive) and not is_gone
        except ConnectionError:
            self.log_debug("Ignored premature client disconnection")
        except Exception as error:  # noqa: BLE001 - as aiohttp does with what its own handling raises
            self.log_exception("Unhandled exception", exc_info=error)
        finally:
            self._short = None
            if not stays or self._close:
                self.force_close()
        if not self._force_close:
            self._wait_for_more()

    def _wait_for_more(self) -> None:
        close_time = self._loop.time() + self._keepalive_timeout
        self._next_keepalive_close_time = close_time
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(close_time, self._process_keepalive)
        if self._held:
            held = self._held
            self._held = b""
            self._resume_transport_reading()
            self.data_received(held)

    def _process_keepalive(self) -> None:
        if self._short is not None or self._waits:  # aiohttp takes the connection for one that waits
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        await super().shutdown(timeout)
        if self._short is not None:
            self._short.cancel()

    def _after(self, data: bytes, requests: int) -> int:
        """
        Return how much of a body is to come behind what the parser was given, in which it found so many
        requests. Learns the head of one that others may follow.
        """
        if not data:
            return _UNKNOWN if requests else self._left
        if self._left:
            return _UNKNOWN if requests or len(data) > self._left else self._left - len(data)
        self._head = None
        end = data.find(b"\r\n\r\n") + 4
        if requests != 1 or not self._messages or end < 4:
            return _UNKNOWN
        message, payload = self._messages[-1]
        came = len(data) - end
        if not isinstance(message, RawRequestMessage):
            return _UNKNOWN
        if message.chunked or message.upgrade or payload.total_bytes != came:
            return _UNKNOWN
        lengths = message.headers.getall("Content-Length", [])
        found = _LENGTH.search(data, 0, end)
        if found is None:
            return _UNKNOWN if came or lengths else 0
        left = int(found[1]) - came
        if lengths != [found[1].decode()] or left < 0:
            return _UNKNOWN
        if _is_plain(message):
            before = data[: found.start(1)]
            behind = data[found.end(1) : end]
            self._head = _Head(before, behind, found[1], message)
        return left

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write a plain answer to a POST in one step; the bytes are those that aiohttp would write."""
        if type(resp) is not web.Response or not _is_simple(request, resp) or self._upgraded:
            return await super().finish_response(request, resp, start_time)
        request._finish()
        body = resp.body
        headers = resp.headers
        assert isinstance(body, bytes)
        resp._keep_alive = request.keep_alive if resp.keep_alive is None else resp.keep_alive
        headers["Content-Length"] = str(len(body))
        if body:
            headers.setdefault("Content-Type", "application/octet-stream")
        headers.setdefault("Date", rfc822_formatted_time())
        headers.setdefault("Server", SERVER)
        if not resp._keep_alive:
            headers.setdefault("Connection", "close")
        await request._prepare_hook(resp)
        written = _serialize_headers(f"HTTP/1.1 {resp.status} {resp.reason}", headers)
        transport = self.transport
        if transport is None or transport.is_closing():
            return resp, True
        transport.write(written + body)
        resp._eof_sent = True
        if self._paused:
            await self._drain_helper()
        return resp, False


def _is_plain(message: RawRequestMessage) -> bool:
    """True for a POST of which aiohttp would make nothing but its handler's request."""
    if message.method != "POST" or not message.path.startswith("/"):
        return False
    if message.version != HttpVersion11 or message.should_close:
        return False
    return "Expect" not in message.headers and "Transfer-Encoding" not in message.headers


def _with_length(head: _Head, length: bytes) -> _Head:
    """Return the same head for a body of another length."""
    headers = CIMultiDict(head.message.headers)
    headers["Content-Length"] = length.decode()
    message = head.message._replace(headers=CIMultiDictProxy(headers))
    return head._replace(length=length, message=message)


def _is_simple(request: web.BaseRequest, response: web.Response) -> bool:
    """True for an answer in one piece, of which nothing is sent and nothing is to be changed on the way."""
    if request.method != "POST" or request.version != HttpVersion11:
        return False
    if response.prepared or response.compression or response.chunked:
        return False
    if response._cookies is not None or response.status in EMPTY_BODY_STATUS_CODES:
        return False
    return type(response.body) is bytes and "Content-Length" not in response.headers
