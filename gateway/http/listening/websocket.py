"""
WebSocket connections (RFC 6455) of the server, for binary messages without extensions. An idle connection
takes a few KiB. A connection reads no further message until the answer to the last one is sent.

A connection ends if its peer answers no ping, takes too long to send a message or to read an answer, or
breaks the protocol.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections import Counter
from typing import Final, NamedTuple, Protocol

from aiohttp import web

from gateway.core.errors import Refusal
from gateway.http.inflight_bytes import InflightBytes, RequestByteReservation
from gateway.http.listening.connections import OpenConnections
from spool.shares import is_within_share

_log = logging.getLogger(__name__)

PING_S = 30.0  # seconds of silence after which a ping is sent
PONG_S = 15.0  # seconds to wait for the response to a ping
SLOW_S = 10.0  # seconds in which a message that has begun must be complete
CLOSE_S = 5.0  # seconds until a connection is cut if the peer does not read the rest
CHECKED_AT_ONCE = 200
CHECK_S = 0.5  # seconds between checks of all connections
FRAMES_A_TURN: Final = 64  # frames handled before other work of the event loop
SMALL: Final = 126  # a shorter fragment counts as a control frame

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
GOING_AWAY, PROTOCOL_ERROR, NO_BINARY, POLICY, TOO_LARGE, TRY_LATER = 1001, 1002, 1003, 1008, 1009, 1013
_HEADER_BYTES = 14


class WebSocketConversation(Protocol):
    """
    The application on one WebSocket. `recheck_and_find_close_code` returns a close code if the peer may no
    longer send.
    """

    async def answer_message(self, message: bytes) -> bytes: ...

    def recheck_and_find_close_code(self) -> int | None: ...

    def on_closed(self) -> None: ...


class SwitchingProtocols(web.Response):
    """
    The answer that turns a connection into a WebSocket: the listener then gives the connection to `socket`.
    """

    def __init__(self, key: str, socket: WebSocket) -> None:
        accept = base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept}
        super().__init__(status=101, headers=headers)
        self.socket = socket


def handshake_key(request: web.Request) -> str:
    """Return the key of a valid WebSocket handshake. Raises Refusal 400."""
    headers = request.headers
    options = {option.strip().lower() for option in headers.get("Connection", "").split(",")}
    is_upgrade = headers.get("Upgrade", "").lower() == "websocket" and "upgrade" in options
    key = headers.get("Sec-WebSocket-Key", "")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        is_key = False
    if not is_upgrade or not is_key or headers.get("Sec-WebSocket-Version") != "13" or request.can_read_body:
        message = "Open a WebSocket of version 13 at this address, or send a POST."
        raise Refusal(400, "bad_handshake", message)
    return key


class WebSockets:
    """The open WebSockets. `close` also ends connections that open later."""

    def __init__(self) -> None:
        self._open: dict[WebSocket, None] = {}
        self._by_owner: Counter[str] = Counter()
        self._checking: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def check_has_room(self, owner: str, limit: int, setting: str) -> None:
        """
        Raise Refusal 503 if the owner may open no further WebSocket. `setting` names the limit in the
        message.
        """
        if self._is_closed or not is_within_share(self._by_owner[owner], len(self._open), 1, limit):
            message = f"Too many WebSocket connections are open ({setting}). Connect again later."
            raise Refusal(503, "too_many_connections", message, retry_after_s=30)

    def add(self, socket: WebSocket) -> None:
        self._open[socket] = None
        self._by_owner[socket.owner] += 1
        if self._is_closed:
            socket.close(GOING_AWAY)
        elif self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._enforce_timeouts_repeatedly(), name="websockets")

    def remove(self, socket: WebSocket) -> None:
        if socket in self._open:
            del self._open[socket]
            self._by_owner[socket.owner] -= 1
            if not self._by_owner[socket.owner]:
                del self._by_owner[socket.owner]

    async def close(self) -> None:
        self._is_closed = True
        for socket in list(self._open):
            socket.close(GOING_AWAY)
        await asyncio.sleep(0)  # in this turn of the event loop, connections without unsent bytes end
        for socket in list(self._open):
            socket.end()
        if self._checking is not None:
            self._checking.cancel()

    async def _enforce_timeouts_repeatedly(self) -> None:
        now = asyncio.get_running_loop().time
        while self._open:
            await asyncio.sleep(CHECK_S)
            for place, socket in enumerate(list(self._open)):
                if place % CHECKED_AT_ONCE == 0:
                    await asyncio.sleep(0)  # give other work of the event loop a turn
                try:
                    socket.enforce_timeouts(now())
                except Exception:  # noqa: BLE001 - a defect in one check must not end the checks of all connections
                    _log.exception("a WebSocket could not be checked", extra={"action": "websocket_fault"})
                    socket.end()


class _Frame(NamedTuple):
    is_final: bool
    kind: int
    payload: bytes
    end: int  # position of a frame's end in the arrived bytes


class _InvalidFrame(Exception):
    """Raised for an invalid WebSocket frame. `code` is the close code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class WebSocket(asyncio.Protocol):
    __slots__ = (
        "_bytes", "_closed_at", "_connections", "_control_frames", "_heard_at", "_inflight", "_is_full", "_message",
        "_pinged_at", "_second_ends_at", "_share", "_since", "_sockets", "_task", "_turn", "conversation", "max_bytes",
        "max_control_frames", "owner", "place", "transport",
    )  # fmt: skip

    def __init__(
        self,
        sockets: WebSockets,
        conversation: WebSocketConversation,
        *,
        owner: str,
        inflight: InflightBytes,
        max_bytes: int,
        max_control_frames: int,
    ) -> None:
        self._sockets = sockets
        self.conversation = conversation
        self.owner = owner
        self.max_bytes = max_bytes
        self.max_control_frames = max_control_frames
        self._inflight = inflight
        self._connections: OpenConnections | None = None
        self.place = f"key {owner}"
        self.transport: asyncio.Transport | None = None
        self._bytes = bytearray()  # received bytes that are not parsed yet
        self._message: bytearray | None = None  # frames of a message that has begun
        self._control_frames = 0  # number of control frames in the current second
        self._second_ends_at = 0.0
        self._share: RequestByteReservation | None = None  # reserved memory for an unfinished message
        self._since: float | None = None  # time when the unfinished message began
        self._heard_at = 0.0
        self._pinged_at: float | None = None
        self._closed_at: float | None = None
        self._is_full = False  # True while the peer does not read, so that the send buffer is full
        self._task: asyncio.Task[None] | None = None
        self._turn: asyncio.Handle | None = None  # handle of the next turn, if frames wait

    def begin_reading(
        self, transport: asyncio.Transport, received_bytes: bytes, connections: OpenConnections | None
    ) -> None:
        """Begin to read frames, starting with `received_bytes`, the bytes that arrived right after the handshake."""
        self.transport = transport
        self._connections = connections
        self._heard_at = asyncio.get_running_loop().time()
        if connections is not None and not connections.add(self):
            transport.abort()
        self._sockets.add(self)
        if received_bytes:
            self.data_received(received_bytes)

    # -- an open connection of the listener -----------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # -- events of the transport ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._closed_at is not None:
            return
        self._heard_at = asyncio.get_running_loop().time()
        self._pinged_at = None
        if self._connections is not None:
            self._connections.mark_active(self)
        self._bytes += data
        self._read_frames()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.transport = None
        self._closed_at = self._closed_at or 0.0
        self._sockets.remove(self)
        if self._connections is not None:
            self._connections.remove(self)
        self._set_held_bytes(0)
        self._bytes, self._message = bytearray(), None
        self.conversation.on_closed()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._read_frames()

    # -- reading --------------------------------------------------------------------------------------------------

    def _read_frames(self) -> None:
        begin = 0
        try:
            for _ in range(FRAMES_A_TURN):
                frame = self._next_frame(begin)
                if frame is None:
                    break
                begin = frame.end
                self._handle_frame(frame)
            else:
                self._schedule_continued_reading()
            del self._bytes[:begin]
            if self._task is None:
                self._set_held_bytes(len(self._bytes) + len(self._message or b""))
        except _InvalidFrame as broken:
            self.close(broken.code)
        except Refusal:  # refused, because there is no memory for the message
            self.close(TRY_LATER)
        transport = self.transport
        if transport is not None and self._closed_at is None:
            if self._is_reading and self._turn is None:
                transport.resume_reading()
            else:
                transport.pause_reading()

    @property
    def _is_reading(self) -> bool:
        return self._task is None and not self._is_full and self._closed_at is None

    def _schedule_continued_reading(self) -> None:
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._continue_reading)

    def _continue_reading(self) -> None:
        self._turn = None
        self._read_frames()

    def _next_frame(self, begin: int) -> _Frame | None:
        data = self._bytes
        arrived = len(data) - begin
        if arrived < 2 or not self._is_reading:
            return None
        first, second = data[begin], data[begin + 1]
        kind, size, at = first & 0x0F, second & 0x7F, begin + 2
        is_control = kind >= _CLOSE
        # rejected, because reserved bits belong to extensions, and a client must mask its frames
        if (
            first & 0x70
            or not second & 0x80
            or kind not in (_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG)
        ):
            raise _InvalidFrame(PROTOCOL_ERROR)
        if is_control and (size > 125 or not first & 0x80):
            raise _InvalidFrame(PROTOCOL_ERROR)
        if size >= 126:
            at += 2 if size == 126 else 8
            if len(data) < at:
                return None
            size = int.from_bytes(data[begin + 2 : at])
        if not is_control and size + len(self._message or b"") > self.max_bytes:
            raise _InvalidFrame(TOO_LARGE)
        end = at + 4 + size
        if len(data) < end:
            return None
        payload = _unmask(data[at + 4 : end], data[at : at + 4])
        return _Frame(bool(first & 0x80), kind, payload, end)

    def _handle_frame(self, frame: _Frame) -> None:
        if frame.kind in (_PING, _PONG) or not (frame.is_final or len(frame.payload) >= SMALL):
            self._count_control_frame()
        if frame.kind == _PING:
            self._send_frame(_PONG, frame.payload)
        elif frame.kind == _CLOSE:
            self.close(int.from_bytes(frame.payload[:2]) if len(frame.payload) >= 2 else 1000)
        elif frame.kind == _TEXT:
            raise _InvalidFrame(NO_BINARY)
        elif frame.kind != _PONG:
            if (frame.kind == _BINARY) != (self._message is None):
                raise _InvalidFrame(PROTOCOL_ERROR)
            message = self._message if self._message is not None else bytearray()
            message += frame.payload
            self._message = message
            if frame.is_final:
                self._message, self._since = None, None
                self._task = asyncio.create_task(self._answer_message(bytes(message)))

    def _count_control_frame(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._second_ends_at:
            self._second_ends_at, self._control_frames = now + 1.0, 0
        self._control_frames += 1
        if self._control_frames > self.max_control_frames:
            raise _InvalidFrame(POLICY)

    def _set_held_bytes(self, size: int) -> None:
        if not size:
            self._since = None
            if self._share is not None:
                self._share.release_bytes(self._share.held)
                self._share = None
            return
        if self._share is None:
            self._share = self._inflight.new_share(self.owner)
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
        self._share.release_bytes(self._share.held)
        self._share.reserve_bytes(size)

    async def _answer_message(self, message: bytes) -> None:
        try:
            answer = await self.conversation.answer_message(message)
            self._send_frame(_BINARY, answer)
        except Exception:  # noqa: BLE001 - the boundary of a connection; `answer_message` handles every refusal itself
            _log.exception("a WebSocket message failed", extra={"action": "websocket_fault"})
            self.close(1011)
        finally:
            self._task = None
            self._read_frames()

    # -- writing --------------------------------------------------------------------------------------------------

    def _send_frame(self, kind: int, payload: bytes) -> None:
        if self.transport is None or self._closed_at is not None:
            return
        size = len(payload)
        length = bytes((size,)) if size < 126 else b"\x7e" + size.to_bytes(2)
        self.transport.write(bytes((0x80 | kind,)) + length + payload)

    def close(self, code: int) -> None:
        if self.transport is None or self._closed_at is not None:
            return
        self._send_frame(_CLOSE, code.to_bytes(2))
        self._closed_at = asyncio.get_running_loop().time()
        self.transport.close()

    def enforce_timeouts(self, now: float) -> None:
        """Close the connection if the peer is too slow or may no longer send. Ping a silent peer."""
        if self._closed_at is not None:
            if now > self._closed_at + CLOSE_S:
                self.end()
            return
        code = self.conversation.recheck_and_find_close_code()
        if code is not None:
            self.close(code)
        # while a message is being answered, a pong waits as well, so do not close for silence
        elif self._task is not None:
            self._heard_at = now
        elif self._since is not None and now > self._since + SLOW_S:
            self.close(POLICY)
        elif self._pinged_at is not None and now > self._pinged_at + PONG_S:
            self.end()
        elif self._pinged_at is None and now > self._heard_at + PING_S:
            self._pinged_at = now
            self._send_frame(_PING, b"")


def _unmask(payload: bytes | bytearray, mask: bytes | bytearray) -> bytes:
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(repeated)).to_bytes(size)
