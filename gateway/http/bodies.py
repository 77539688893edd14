"""
Reading of request bodies, with limits on size and speed. Compressed bodies are inflated.

aiohttp's own decompression is off because it accepts a truncated gzip body. A body is inflated after it has
arrived, so an endless upload holds only the bytes that were sent.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Protocol

from aiohttp import HttpVersion11, StreamReader, web
from isal import isal_zlib
from isal.igzip_lib import IsalError

from gateway.core.errors import BadPayload, Refusal
from gateway.http.inflight_bytes import RequestByteReservation
from spool.turns.fair_turns import pause_for_others

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_BODY = "server.max_body_bytes"
PIECE = 256 * 1024  # maximum bytes per inflated piece
TURN = 512 * 1024  # bytes after which other tasks get a turn
BLOCK = 64 * 1024  # bytes per block of a compressed body that waits
IDLE_S = 30.0  # pause after which a body is rejected
SLACK_S = 10.0  # seconds that a large body may lag behind `server.min_upload_rate`
TOTAL_S = 600.0  # seconds after which an incomplete body is rejected
# the status is 503, because OTLP senders drop a batch answered with 408
SLOW_RETRY_S = 5
# log2 of the zstd window: 8 MiB, RFC 9659's maximum for a content coding
ZSTD_WINDOW_LOG = 23

SUPPORTED = "gzip, deflate, zstd"


class Inflater(Protocol):
    """A decompressor for one content coding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """
        Yield the decompressed data in pieces of at most PIECE. Raises BadPayload if `data` has another
        coding.
        """
        ...

    def finish(self) -> None: ...


class _ZlibInflater:
    """gzip with one or more complete members, or one zlib or raw deflate stream."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._several = name == "gzip"
        self._head = b""
        self._member = isal_zlib.decompressobj(31) if self._several else None
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._member is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            self._member = isal_zlib.decompressobj(_window_bits(data))
        while data:
            if self._member.eof:
                if not self._several:
                    raise BadPayload(
                        f"Content-Encoding {self._name}: there are extra bytes after the end of the stream."
                    )
                self._member = isal_zlib.decompressobj(31)
            self._begun = True
            try:
                yield from _inflate_pieces(self._member, data)
            except IsalError as error:  # type: ignore[misc]  # its stub says it is an instance
                raise BadPayload(
                    f"Content-Encoding {self._name}: the body is not valid {self._name}. If it is not compressed, "
                    "send it without Content-Encoding."
                ) from error
            data = self._member.unused_data

    def finish(self) -> None:
        if self._member is None or not self._begun or not self._member.eof:
            raise BadPayload(f"Content-Encoding {self._name}: the body is truncated.")


def _window_bits(start: bytes) -> int:
    """
    Return zlib's parameter for zlib data or for raw deflate, which has no header.

    The specification of `deflate` requires zlib, but many senders send raw deflate.
    """
    is_zlib = start[0] & 0x0F == 8 and int.from_bytes(start[:2]) % 31 == 0
    return 15 if is_zlib else -15


def _inflate_pieces(member: isal_zlib.Decompress, data: bytes) -> Iterator[bytes]:
    while True:
        piece = member.decompress(data, PIECE)
        data = member.unconsumed_tail
        if piece:
            yield piece
        # the decoder may hold more, even if all input is consumed
        if member.eof or (not data and len(piece) < PIECE):
            return


class _ZstdInflater:
    """A decoder of one or more complete Zstandard frames."""

    def __init__(self) -> None:
        self._frame = self._new_decompressor()
        self._begun = False

    @staticmethod
    def _new_decompressor() -> zstd.ZstdDecompressor:
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame.eof:
                self._frame = self._new_decompressor()
            self._begun = True
            try:
                yield from self._inflate_pieces(data)
            except zstd.ZstdError as error:
                raise BadPayload(
                    "Content-Encoding zstd: the body is not valid zstd, or its window is larger than 8 MiB. If it is "
                    "not compressed, send it without Content-Encoding."
                ) from error
            data = self._frame.unused_data if self._frame.eof else b""

    def _inflate_pieces(self, data: bytes) -> Iterator[bytes]:
        while True:
            piece = self._frame.decompress(data, PIECE)
            data = b""
            if piece:
                yield piece
            if self._frame.eof or self._frame.needs_input:
                return

    def finish(self) -> None:
        if not self._begun or not self._frame.eof:
            raise BadPayload("Content-Encoding zstd: the body is truncated.")


_INFLATERS: dict[str, Callable[[], Inflater] | None] = {
    "": None,
    "identity": None,
    "gzip": lambda: _ZlibInflater("gzip"),
    "x-gzip": lambda: _ZlibInflater("gzip"),
    "deflate": lambda: _ZlibInflater("deflate"),
    "zstd": _ZstdInflater,
}


def inflater_for(coding: str) -> Callable[[], Inflater] | None:
    """Return a maker of inflaters for a content coding, or None if it means no compression."""
    return _INFLATERS[coding]


def _content_coding(request: web.Request) -> str:
    value = request.headers.get("Content-Encoding")
    return value.strip().lower() if value else ""


def check_content_encoding(request: web.Request, passed: Collection[str] = ()) -> None:
    """Raise Refusal 415 unless the request's content coding is supported or in `passed`."""
    if "Content-Encoding" not in request.headers:
        return
    coding = _content_coding(request)
    if coding not in _INFLATERS and coding not in passed:
        message = f"This Content-Encoding is not supported. Send {SUPPORTED}, or no compression."
        raise Refusal(415, "unsupported_encoding", message)


class _OverLimit(Exception):
    pass


async def read_body(
    request: web.Request,
    reservation: RequestByteReservation,
    *,
    max_bytes: int,
    setting: str = MAX_BODY,
    min_rate: int = 0,
) -> bytes:
    """
    Read a request body and inflate it. Its bytes count in `reservation` until the answer. `setting` is the setting
    that defines `max_bytes`, or "". `min_rate` is in bytes per second and applies to large bodies. `100
    Continue` is sent here, after all checks that need no body.

    Raises Refusal 400 if the body is incomplete, 413 if it is too large, and 503 if it is too slow or too
    many bytes are in flight.
    """
    try:
        return await _read_within_limit(request, reservation, max_bytes, min_rate)
    except _OverLimit:
        raise _too_large_body_refusal(max_bytes, setting) from None
    except (ConnectionError, web.RequestPayloadError) as error:
        raise _incomplete_body_refusal() from error


async def _read_within_limit(
    request: web.Request, reservation: RequestByteReservation, max_bytes: int, min_rate: int
) -> bytes:
    open_inflater = inflater_for(_content_coding(request)) if "Content-Encoding" in request.headers else None
    length = request.content_length
    if length is not None and length > max_bytes:
        raise _OverLimit
    content = request.content
    if content.is_eof():  # the body arrived with the headers
        body = content.read_nowait(-1)
        if len(body) > max_bytes:
            raise _OverLimit
        reservation.reserve_bytes(len(body))
        return (
            body
            if open_inflater is None
            else await _inflate_blocks([body], open_inflater(), reservation, max_bytes)
        )
    await _send_continue(request)
    buffer = io.BytesIO()  # getvalue() returns its buffer without a copy
    blocks = _CompressedBodyBlocks()
    try:
        await _receive_pieces(
            content, blocks.add if open_inflater else buffer.write, reservation, max_bytes, min_rate
        )
    except TimeoutError as error:
        reservation.raise_if_upload_was_cut_off()
        large = (
            f". A body of this size must arrive with at least {min_rate} bytes per second "
            "(server.min_upload_rate)"
        )
        why = large if reservation.is_large and min_rate else ""
        raise _slow_body_refusal(why) from error
    reservation.raise_if_upload_was_cut_off()
    return (
        await _inflate_blocks(blocks, open_inflater(), reservation, max_bytes)
        if open_inflater
        else buffer.getvalue()
    )


async def forward_body(
    request: web.Request,
    reservation: RequestByteReservation,
    write: Callable[[bytes], Awaitable[None]],
    *,
    min_rate: int = 0,
) -> None:
    """
    Pass a body on to `write` unchanged while it arrives, with few pieces in memory.

    `write` limits the total size. Raises Refusal 400 if the body is incomplete, 503 if it is too slow.
    """
    pending = bytearray()

    async def write_pending_bytes(min_bytes: int = PIECE) -> None:
        if len(pending) >= min_bytes:
            piece = bytes(pending)
            pending.clear()
            await write(piece)
            reservation.release_bytes(len(piece))

    try:
        if not request.content.is_eof():
            await _send_continue(request)
        await _receive_pieces(
            request.content, pending.extend, reservation, sys.maxsize, min_rate, write_pending_bytes
        )
    except TimeoutError as error:
        reservation.raise_if_upload_was_cut_off()
        raise _slow_body_refusal("") from error
    except (ConnectionError, web.RequestPayloadError) as error:
        raise _incomplete_body_refusal() from error
    reservation.raise_if_upload_was_cut_off()
    await write_pending_bytes(1)


class _CompressedBodyBlocks:
    """Blocks of a compressed body, freed one by one while it is inflated."""

    def __init__(self) -> None:
        self._blocks: deque[bytearray] = deque()

    def add(self, data: bytes) -> None:
        if self._blocks and len(self._blocks[-1]) < BLOCK:
            self._blocks[-1] += data
        else:
            self._blocks.append(bytearray(data))

    def __iter__(self) -> Iterator[bytes]:
        while self._blocks:
            yield bytes(self._blocks.popleft())


class _BodyDeadlines:
    """The pace of a request body. A large body must keep a minimum rate, but may lag by SLACK_S."""

    def __init__(self, now: float, min_rate: int) -> None:
        self._last = now
        self._give_up = now + TOTAL_S
        self._min_rate = min_rate
        self._slack_s = SLACK_S

    def note_arrival_and_return_deadline(self, now: float, byte_count: int, *, is_large: bool) -> float:
        """
        Return until when to wait for more data, after `byte_count` bytes arrived at `now`. Times are those of the
        event loop's clock.
        """
        wait_s = IDLE_S
        if is_large and self._min_rate:
            self._slack_s = min(SLACK_S, self._slack_s - (now - self._last) + byte_count / self._min_rate)
            wait_s = self._slack_s
        self._last = now
        return min(now + wait_s, self._give_up)


async def _receive_pieces(
    content: StreamReader,
    keep: Callable[[bytes], object],
    reservation: RequestByteReservation,
    max_bytes: int,
    min_rate: int,
    drain: Callable[[], Awaitable[None]] | None = None,
) -> None:
    now = asyncio.get_running_loop().time
    pace = _BodyDeadlines(now(), min_rate)
    received = turn = 0
    async with asyncio.timeout(IDLE_S) as limit:
        with reservation.allow_cutoff_during_upload(partial(expire_timeout, limit)):
            while data := await content.readany():
                received += len(data)
                if received > max_bytes:
                    raise _OverLimit
                reservation.reserve_bytes(len(data))
                keep(data)
                if drain is not None:
                    await drain()
                limit.reschedule(
                    pace.note_arrival_and_return_deadline(now(), len(data), is_large=reservation.is_large)
                )
                turn += len(data)
                # readany() does not yield while data arrives faster than it is read
                if turn >= TURN:
                    turn = 0
                    await pause_for_others()


def expire_timeout(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


async def _inflate_blocks(
    blocks: Iterable[bytes], inflater: Inflater, reservation: RequestByteReservation, max_bytes: int
) -> bytes:
    buffer = io.BytesIO()
    turn = 0
    for block in blocks:
        for piece in inflater.feed(block):
            if buffer.tell() + len(piece) > max_bytes:
                raise _OverLimit
            reservation.reserve_bytes(len(piece))
            buffer.write(piece)
            turn += len(piece)
            if turn >= TURN:
                turn = 0
                await pause_for_others()
        reservation.release_bytes(len(block))
        # count the input: even a stream of empty members costs time
        if len(block) >= BLOCK:
            await pause_for_others()
    inflater.finish()
    return buffer.getvalue()


async def inflate_message(message: bytes, reservation: RequestByteReservation, *, max_bytes: int) -> bytes:
    """
    Return a gRPC message, inflated if its first bytes are those of gzip or zlib. No OTLP request begins with
    them.

    Both the compressed and the inflated bytes count in `reservation`. Raises like `read_body`.
    """
    reservation.reserve_bytes(len(message))
    if message.startswith(b"\x1f\x8b"):
        inflater = _ZlibInflater("gzip")
    elif message[:1] == b"x" and _window_bits(message[:2]) == 15:
        inflater = _ZlibInflater("deflate")
    else:
        return message
    view = memoryview(message)
    blocks = (bytes(view[start : start + BLOCK]) for start in range(0, len(message), BLOCK))
    try:
        return await _inflate_blocks(blocks, inflater, reservation, max_bytes)
    except _OverLimit:
        raise _too_large_body_refusal(max_bytes, MAX_BODY) from None


async def _send_continue(request: web.Request) -> None:
    if request.version == HttpVersion11 and "Expect" in request.headers:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # otherwise, aiohttp would take these bytes for the begin of the response
        request.writer.output_size = 0


async def delay_http_100_continue(request: web.Request) -> None:
    """
    Delay `100 Continue` until the body is read, so that no body is uploaded for a rejected request.

    This is the expect handler of every route. Raises HTTPExpectationFailed (417) for other expectations.
    """
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed


def _slow_body_refusal(reason: str) -> Refusal:
    message = f"The body did not arrive in time{reason}. Repeat the request later."
    return Refusal(503, "slow_body", message, retry_after_s=SLOW_RETRY_S)


def _incomplete_body_refusal() -> BadPayload:
    return BadPayload("The body is incomplete: the connection ended early.")


def _too_large_body_refusal(max_bytes: int, setting: str) -> Refusal:
    limit = f"{max_bytes} bytes after decompression" + (f" ({setting})" if setting else "")
    return Refusal(413, "body_too_large", f"The body is larger than {limit}. Send smaller batches.")
