"""
A fast path for plain requests that avoids work that aiohttp and the endpoint do for each request.

- The handler of a path without parameters that accepts every method is found in a dict. That saves 4 % of the event
loop's time for small requests.
- A request that arrives in one piece, with the same head as the previous request on its connection, needs no
parser, no body stream and no extra step of aiohttp's task. That saves a quarter of the cost of a single span.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

from aiohttp import web
from aiohttp.helpers import EMPTY_BODY_STATUS_CODES, rfc822_formatted_time
from aiohttp.http import HttpVersion11, RawRequestMessage, StreamWriter
from aiohttp.http_writer import _serialize_headers
from aiohttp.streams import EmptyStreamReader
from aiohttp.web_urldispatcher import PlainResource
from multidict import CIMultiDict, CIMultiDictProxy

from spool.turns.fair_turns import FairTurnParty, FairTurnRequest

# Any, because aiohttp's type says BaseRequest
Handle: TypeAlias = "Callable[[Any], Awaitable[web.StreamResponse]]"

# paths that are read literally: nothing is escaped, and no part is optional
_PLAIN = re.compile(r"(/\w[\w.-]*)+", re.ASCII)

SERVER: Final = "tollhouse"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_UNKNOWN: Final = -1  # value of `_left` while the number of body bytes to come is unknown
# line ends parsed per turn, because each takes some microseconds, however few bytes it has
LINES_A_TURN: Final = 64


def handle_by_exact_path(application: web.Application, otherwise: Handle) -> Handle:
    """
    Return a handler that finds the routes of a frozen application by their exact path in a dict.

    `otherwise` handles other paths, requests with `Expect`, and applications with middlewares.
    """
    # matched routes, at most one per literal path
    matches: dict[str, web.UrlMappingMatchInfo] = {}
    if application.middlewares:
        return otherwise

    def handle_request(request: web.Request) -> Awaitable[web.StreamResponse]:
        match = matches.get(request.raw_path)
        if match is None or "Expect" in request.headers:
            return route_and_remember(request)
        request._match_info = match
        return match.handler(request)

    async def route_and_remember(request: web.Request) -> web.StreamResponse:
        try:
            return await otherwise(request)
        finally:
            match = request._match_info
            if match is not None and _is_exact(request.raw_path, match, application):
                matches[request.raw_path] = match

    return handle_request


def _is_exact(path: str, match: web.UrlMappingMatchInfo, application: web.Application) -> bool:
    """Return whether the route matches only this path. Always False in a mounted application."""
    route = match.route
    return (
        route.method == "*"
        and isinstance(route.resource, PlainResource)
        and route.resource.canonical == path
        and match.apps == (application,)
        and _PLAIN.fullmatch(path) is not None
    )


class _Head:
    """
    A request head as the parser read it, split around the value of Content-Length. `handle` handles further
    requests with this head as long as `is_valid` returns True.
    """

    __slots__ = ("before", "behind", "handle", "is_valid", "length", "message")

    def __init__(self, before: bytes, behind: bytes, length: bytes, message: RawRequestMessage) -> None:
        self.before = before
        self.behind = behind
        self.length = length
        self.message = message
        self.handle: Handle | None = None
        self.is_valid: Callable[[], bool]

    def set_content_length(self, length: bytes) -> None:
        headers = CIMultiDict(self.message.headers)
        headers["Content-Length"] = length.decode()
        self.message = self.message._replace(headers=CIMultiDictProxy(headers))
        self.length = length


class WholeBody(EmptyStreamReader):
    """A request body that arrived in one piece with its head."""

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


class FastPathRequestHandler(web.RequestHandler):
    """
    aiohttp's protocol with two changes. A POST that arrives in one piece, with the same head as the previous
    request except for the length, takes a fast path. All other data is parsed in turns.

    The lengths of the bodies show where each request ends. If the end of a request is unknown, the parser
    reads the rest of the connection.

    Small chunks and pipelined requests are much work in few bytes. So the parser gets at most LINES_A_TURN
    lines of the received data. The rest waits for the next turn of the event loop, or, for a key or person
    (party) that used much time, for the next turn of that party.
    """

    def __init__(self, *args: Any, in_turn: Callable[[Handle], Handle], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._in_turn = in_turn
        self._left = 0  # body bytes of the current request that are still to come
        self._head: _Head | None = None
        self._short: asyncio.Task[None] | None = None  # the request that is handled on the fast path
        # bytes that arrived after that request, or wait for a turn
        self._held = bytearray()
        self._waits = False  # whether held bytes wait for a turn of the event loop
        # party of the last request, which is usually that of the next request as well
        self.party: FairTurnParty | None = None
        self.work: FairTurnRequest | None = None  # work of the pending request

    @property
    def is_idle(self) -> bool:
        if self._current_request is not None or self._short is not None:
            return False
        return not self._messages and not self._held

    def data_received(self, data: bytes) -> None:
        if self._short is not None or self._held:
            if not data:  # an empty call makes the parser continue with the bytes that it kept
                self._parse_and_count(data)
                return
            self._held += data
            self._pause_transport_reading()
            return
        party = self.party
        if party is not None and party.turns.are_shared and self._hold_bytes_if_party_must_wait(data, party):
            return
        if self._head is not None and not self._left and self._take_whole_request(data, self._head):
            return
        end = self._end_of_bytes_to_parse_now(data)
        if end < len(data):
            self._held += memoryview(data)[end:]
            data = data[:end]
            self._pause_transport_reading()
        self._parse_and_count(data)
        self._schedule_parsing_of_held_bytes()

    def _parse_and_count(self, data: bytes) -> None:
        count_before = self._request_count
        super().data_received(data)
        if self._left != _UNKNOWN:
            self._left = self._remaining_body_bytes(data, self._request_count - count_before)

    def _end_of_bytes_to_parse_now(self, data: bytes | bytearray) -> int:
        size = len(data)
        # the body of a request has no lines to count if its length is known
        if size <= max(2 * LINES_A_TURN, self._left):
            return size
        end = lines = 0
        while lines < LINES_A_TURN:
            # ten times faster than a search for both bytes of a line end
            end = data.find(b"\r", end) + 1
            if not end:
                return size
            lines += data[end : end + 1] == b"\n"
        return end + 1

    def _schedule_parsing_of_held_bytes(self) -> None:
        """
        Schedule the parsing of bytes that arrived when the parser could accept none, unless it still cannot.
        """
        if not self._held or self._waits or self._short is not None:
            return
        if self._reading_paused or self._buffer_paused or self._upgraded:
            return
        self._waits = True
        party = self.party if self.work is None else self.work.party
        heavy = None if party is None else party.turns.find_party_that_must_wait(party.name)
        if heavy is None:
            self._loop.call_soon(self._parse_some_held_bytes, party)
        else:
            heavy.turns.call_in_turn(heavy, partial(self._parse_some_held_bytes, heavy))

    def _parse_some_held_bytes(self, party: FairTurnParty | None) -> None:
        self._waits = False
        if self.transport is None:
            return
        began = time.perf_counter()
        end = self._end_of_bytes_to_parse_now(self._held)
        data = bytes(memoryview(self._held)[:end])
        del self._held[:end]
        self._receive_or_close(self._parse_and_count, data)
        if party is not None:
            party.charge_time(time.perf_counter() - began)
        if self._held:
            self._schedule_parsing_of_held_bytes()
        elif not (self._reading_paused or self._buffer_paused):
            self._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        if self._held:  # held bytes are parsed before further bytes are read
            self._schedule_parsing_of_held_bytes()
        else:
            super()._resume_transport_reading()

    def _hold_bytes_if_party_must_wait(self, data: bytes, party: FairTurnParty) -> bool:
        heavy = party.turns.find_party_that_must_wait(party.name)
        if heavy is None or not data or self._left > 0 or not self.is_idle:
            return False
        self._held += data
        self._waits = True
        heavy.turns.call_in_turn(heavy, self._process_held_bytes)
        return True

    def _process_held_bytes(self) -> None:
        held, self._held, self._waits = bytes(self._held), bytearray(), False
        self.party = None  # the party is unknown until the next request is answered
        if self.transport is None:
            return
        self._resume_transport_reading()
        self._receive_or_close(self.data_received, held)

    def _receive_or_close(self, receive: Callable[[bytes], None], data: bytes) -> None:
        try:
            receive(data)
        except Exception as error:  # noqa: BLE001 - a transport, too, ends a connection whose protocol fails
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()

    def _take_whole_request(self, data: bytes, head: _Head) -> bool:
        """
        Handle `data` if it is one whole request with this head. Return False if the parser must handle it.
        """
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
            head.set_content_length(length)
        self._request_count += 1
        manager.requests_count += 1
        task = self._task_handler
        assert task is not None
        writer = StreamWriter(self, self._loop)
        request = make(head.message, WholeBody(data[body:]), self, writer, task)
        handle = self._request_handler if head.handle is None or not head.is_valid() else head.handle
        assert handle is not None
        self._short = self._loop.create_task(self._answer_request(request, handle))
        return True

    def remember_head(self, request: web.BaseRequest, is_valid: Callable[[], bool], handle: Handle) -> None:
        """
        Let `handle` handle further requests with the head of `request`, as long as `is_valid` returns True.
        Ignored if another head has arrived.
        """
        if self._head is not None and self._head.message is request._message:
            self._head.is_valid, self._head.handle = is_valid, self._in_turn(handle)

    async def _answer_request(self, request: web.BaseRequest, handle: Handle) -> None:
        stays = False
        try:
            response, is_gone = await self._handle_request(request, None, handle)
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
            self._prepare_for_next_request()

    def _prepare_for_next_request(self) -> None:
        close_time = self._loop.time() + self._keepalive_timeout
        self._next_keepalive_close_time = close_time
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(close_time, self._process_keepalive)
        if self._held:
            held, self._held = bytes(self._held), bytearray()
            self._resume_transport_reading()
            self.data_received(held)

    def _process_keepalive(self) -> None:
        # aiohttp does not know of a request on the fast path
        if self._short is not None or self._waits:
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        await super().shutdown(timeout)
        if self._short is not None:
            self._short.cancel()

    def _remaining_body_bytes(self, data: bytes, parsed_request_count: int) -> int:
        """
        Return the number of body bytes that are missing after the parser found `parsed_request_count`
        requests in `data`. Also remember the head if it may be repeated.
        """
        if not data:
            return _UNKNOWN if parsed_request_count else self._left
        if self._left:
            return _UNKNOWN if parsed_request_count or len(data) > self._left else self._left - len(data)
        self._head = None
        end = data.find(b"\r\n\r\n") + 4
        if parsed_request_count != 1 or not self._messages or end < 4:
            return _UNKNOWN
        message, payload = self._messages[-1]
        received = len(data) - end
        if not isinstance(message, RawRequestMessage):
            return _UNKNOWN
        if message.chunked or message.upgrade or payload.total_bytes != received:
            return _UNKNOWN
        lengths = message.headers.getall("Content-Length", [])
        length_match = _LENGTH.search(data, 0, end)
        if length_match is None:
            return _UNKNOWN if received or lengths else 0
        body_left = int(length_match[1]) - received
        if lengths != [length_match[1].decode()] or body_left < 0:
            return _UNKNOWN
        if _is_plain_post(message):
            head_start = data[: length_match.start(1)]
            behind = data[length_match.end(1) : end]
            self._head = _Head(head_start, behind, length_match[1], message)
        return body_left

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write a small response in one step, with the same bytes that aiohttp would write."""
        if type(resp) is not web.Response or not _can_write_at_once(request, resp) or self._upgraded:
            finished = await super().finish_response(request, resp, start_time)
            # aiohttp accepts no further bytes before it has declined an upgrade
            self._schedule_parsing_of_held_bytes()
            return finished
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


def _is_plain_post(message: RawRequestMessage) -> bool:
    if message.method != "POST" or not message.path.startswith("/"):
        return False
    if message.version != HttpVersion11 or message.should_close:
        return False
    return "Expect" not in message.headers and "Transfer-Encoding" not in message.headers


def _can_write_at_once(request: web.BaseRequest, response: web.Response) -> bool:
    if request.method != "POST" or request.version != HttpVersion11:
        return False
    if response.prepared or response.compression or response.chunked:
        return False
    if response._cookies is not None or response.status in EMPTY_BODY_STATUS_CODES:
        return False
    return type(response.body) is bytes and "Content-Length" not in response.headers
