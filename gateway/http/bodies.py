"""
Read a request's body: bounded while it streams, inflated by hand, or refused.

aiohttp's own decompression is off, because it accepts a truncated gzip body as whole. A body is inflated once
it has arrived: an upload that never ends holds what was sent, not what that would become.
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

from gateway.http.inflight_bytes import Share
from gateway.service.errors import BadPayload, Refusal
from spool.turns.fair_turns import pause

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_BODY = "server.max_body_bytes"
PIECE = 256 * 1024  # what one step of an inflater may put out
TURN = 512 * 1024  # bytes between two turns of the loop
BLOCK = 64 * 1024  # of a compressed body that waits to be inflated
IDLE_S = 30.0  # a body that pauses this long is refused
SLACK_S = 10.0  # a large one that is this far behind `server.min_upload_rate`
TOTAL_S = 600.0  # and any that is not whole after this long
SLOW_RETRY_S = 5  # what such a sender is told: OTLP senders drop what is answered with 408
ZSTD_WINDOW_LOG = 23  # 8 MiB: RFC 9659 allows a content coding no more

SUPPORTED = "gzip, deflate, zstd"


class Inflater(Protocol):
    """One content coding, fed as the body arrives."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most PIECE bytes. BadPayload when the bytes are not what the header says."""
        ...

    def finish(self) -> None:
        """Raise BadPayload if the body ended in the middle."""
        ...


class _Deflated:
    """gzip of one or more members, or one zlib or raw deflate stream; every member must reach its end."""

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
                        f"Content-Encoding {self._name}: there are bytes after the end of the stream."
                    )
                self._member = isal_zlib.decompressobj(31)
            self._begun = True
            try:
                yield from _pieces(self._member, data)
            except IsalError as error:  # type: ignore[misc]  # its stub says it is an instance
                raise BadPayload(f"Content-Encoding {self._name}: the body is not {self._name}.") from error
            data = self._member.unused_data

    def finish(self) -> None:
        if self._member is None or not self._begun or not self._member.eof:
            raise BadPayload(f"Content-Encoding {self._name}: the body ends before the stream does.")


def _window_bits(start: bytes) -> int:
    """`deflate` means zlib, and many senders mean raw deflate: the zlib header tells them apart."""
    is_zlib = start[0] & 0x0F == 8 and int.from_bytes(start[:2]) % 31 == 0
    return 15 if is_zlib else -15


def _pieces(member: isal_zlib.Decompress, data: bytes) -> Iterator[bytes]:
    while True:
        piece = member.decompress(data, PIECE)
        data = member.unconsumed_tail
        if piece:
            yield piece
        # A full piece may have left more behind although every input byte is consumed.
        if member.eof or (not data and len(piece) < PIECE):
            return


class _Zstd:
    """zstd of one or more frames; every frame must reach its end."""

    def __init__(self) -> None:
        self._frame = self._open()
        self._begun = False

    @staticmethod
    def _open() -> zstd.ZstdDecompressor:
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame.eof:
                self._frame = self._open()
            self._begun = True
            try:
                yield from self._pieces(data)
            except zstd.ZstdError as error:
                raise BadPayload(
                    "Content-Encoding zstd: the body is not zstd, or its window is over 8 MiB."
                ) from error
            data = self._frame.unused_data if self._frame.eof else b""

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        while True:
            piece = self._frame.decompress(data, PIECE)
            data = b""
            if piece:
                yield piece
            if self._frame.eof or self._frame.needs_input:
                return

    def finish(self) -> None:
        if not self._begun or not self._frame.eof:
            raise BadPayload("Content-Encoding zstd: the body ends before the stream does.")


_INFLATERS: dict[str, Callable[[], Inflater] | None] = {
    "": None,
    "identity": None,
    "gzip": lambda: _Deflated("gzip"),
    "x-gzip": lambda: _Deflated("gzip"),
    "deflate": lambda: _Deflated("deflate"),
    "zstd": _Zstd,
}


def inflater_of(coding: str) -> Callable[[], Inflater] | None:
    """Return the function that opens an inflater of a supported coding; None if the body is not compressed."""
    return _INFLATERS[coding]


def _coding(request: web.Request) -> str:
    value = request.headers.get("Content-Encoding")
    return value.strip().lower() if value else ""


def check_encoding(request: web.Request, passed: Collection[str] = ()) -> None:
    """Refusal 415 for a content coding that is neither supported nor passed on."""
    if "Content-Encoding" not in request.headers:
        return
    coding = _coding(request)
    if coding not in _INFLATERS and coding not in passed:
        message = f"This Content-Encoding is not supported; send {SUPPORTED} or none."
        raise Refusal(415, "unsupported_encoding", message)


class _OverLimit(Exception):
    """The body is larger than it may be."""


async def read(
    request: web.Request, share: Share, *, max_bytes: int, setting: str = MAX_BODY, min_rate: int = 0
) -> bytes:
    """
    The whole body, inflated. It counts against the share of the request until that is closed.

    Refusal 400 when the body is not whole, 413 when it is too large, 503 when it is too slow or too much is
    in flight. `setting` is the one that `max_bytes` comes from, empty if it is fixed. `min_rate` is in bytes a
    second, for large bodies. A client that waits for `100 Continue` gets it here, after every check that
    needs no body.
    """
    try:
        return await _read(request, share, max_bytes, min_rate)
    except _OverLimit:
        raise _too_large(max_bytes, setting) from None


async def _read(request: web.Request, share: Share, max_bytes: int, min_rate: int) -> bytes:
    open_inflater = inflater_of(_coding(request)) if "Content-Encoding" in request.headers else None
    length = request.content_length
    if length is not None and length > max_bytes:
        raise _OverLimit
    content = request.content
    if content.is_eof():  # it came along with the headers: nothing to wait for
        body = content.read_nowait(-1)
        if len(body) > max_bytes:
            raise _OverLimit
        share.take(len(body))
        return body if open_inflater is None else await _inflate([body], open_inflater(), share, max_bytes)
    await _let_it_come(request)
    whole = io.BytesIO()  # its getvalue() hands over the buffer without a second copy
    blocks = _Blocks()
    try:
        await _receive(content, blocks.add if open_inflater else whole.write, share, max_bytes, min_rate)
    except TimeoutError as error:
        share.check()
        large = f": one of this size must come at {min_rate} bytes a second (server.min_upload_rate)"
        why = large if share.is_large and min_rate else ""
        raise _slow(why) from error
    except (ConnectionError, web.RequestPayloadError) as error:
        raise BadPayload("The body ended early.") from error
    share.check()
    return await _inflate(blocks, open_inflater(), share, max_bytes) if open_inflater else whole.getvalue()


async def pass_on(
    request: web.Request, share: Share, write: Callable[[bytes], Awaitable[None]], *, min_rate: int = 0
) -> None:
    """
    Hand a body on in pieces while it arrives, as it comes; no more than a few of them are held.

    Whoever writes bounds it. Refusal 400 when the body is not whole, 503 when it is too slow.
    """
    held = bytearray()

    async def drain(least: int = PIECE) -> None:
        if len(held) >= least:
            piece = bytes(held)
            held.clear()
            await write(piece)
            share.give(len(piece))

    if not request.content.is_eof():
        await _let_it_come(request)
    try:
        await _receive(request.content, held.extend, share, sys.maxsize, min_rate, drain)
    except TimeoutError as error:
        share.check()
        raise _slow("") from error
    except (ConnectionError, web.RequestPayloadError) as error:
        raise BadPayload("The body ended early.") from error
    share.check()
    await drain(1)


class _Blocks:
    """What has arrived of a compressed body, in blocks that are released one by one while it is inflated."""

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


class _Pace:
    """How long the next bytes of a body may take: large ones must come at a rate, on the average of SLACK_S."""

    def __init__(self, now: float, min_rate: int) -> None:
        self._last = now
        self._give_up = now + TOTAL_S
        self._min_rate = min_rate
        self._slack_s = SLACK_S

    def deadline(self, now: float, n: int, *, is_large: bool) -> float:
        """The moment at which the body is too slow, after `n` more bytes of it arrived."""
        wait_s = IDLE_S
        if is_large and self._min_rate:
            self._slack_s = min(SLACK_S, self._slack_s - (now - self._last) + n / self._min_rate)
            wait_s = self._slack_s
        self._last = now
        return min(now + wait_s, self._give_up)


async def _receive(
    content: StreamReader,
    keep: Callable[[bytes], object],
    share: Share,
    max_bytes: int,
    min_rate: int,
    drain: Callable[[], Awaitable[None]] | None = None,
) -> None:
    now = asyncio.get_running_loop().time
    pace = _Pace(now(), min_rate)
    received = turn = 0
    async with asyncio.timeout(IDLE_S) as limit:
        with share.upload(partial(end, limit)):
            while data := await content.readany():
                received += len(data)
                if received > max_bytes:
                    raise _OverLimit
                share.take(len(data))
                keep(data)
                if drain is not None:
                    await drain()
                limit.reschedule(pace.deadline(now(), len(data), is_large=share.is_large))
                turn += len(data)
                if turn >= TURN:  # what comes faster than it is read never waits
                    turn = 0
                    await pause()


def end(limit: asyncio.Timeout) -> None:
    """Let a timeout run out now, unless it has."""
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


async def _inflate(blocks: Iterable[bytes], inflater: Inflater, share: Share, max_bytes: int) -> bytes:
    whole = io.BytesIO()
    turn = 0
    for block in blocks:
        for piece in inflater.feed(block):
            if whole.tell() + len(piece) > max_bytes:
                raise _OverLimit
            share.take(len(piece))
            whole.write(piece)
            turn += len(piece)
            if turn >= TURN:
                turn = 0
                await pause()
        share.give(len(block))
        if len(block) >= BLOCK:  # the members of a stream may all be empty, and each is work
            await pause()
    inflater.finish()
    return whole.getvalue()


async def inflate_message(message: bytes, share: Share, *, max_bytes: int) -> bytes:
    """
    A gRPC message before its compression, which shows in its first bytes: no request of OTLP begins with them.

    It counts against the share of the request as it comes in, and as it is when it is answered.
    Refusals as those of `read`.
    """
    share.take(len(message))
    if message.startswith(b"\x1f\x8b"):
        inflater = _Deflated("gzip")
    elif message[:1] == b"x" and _window_bits(message[:2]) == 15:
        inflater = _Deflated("deflate")
    else:
        return message
    view = memoryview(message)
    blocks = (bytes(view[start : start + BLOCK]) for start in range(0, len(message), BLOCK))
    try:
        return await _inflate(blocks, inflater, share, max_bytes)
    except _OverLimit:
        raise _too_large(max_bytes, MAX_BODY) from None


async def _let_it_come(request: web.Request) -> None:
    """Answer `Expect: 100-continue`; `later` replaced aiohttp's own answer."""
    if request.version == HttpVersion11 and "Expect" in request.headers:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun


async def later(request: web.Request) -> None:
    """
    Expect handler of every route: send no `100 Continue` yet, so that a refused sender does not upload.

    417 for an expectation that is not 100-continue.
    """
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed


def _slow(why: str) -> Refusal:
    message = f"The body did not arrive in time{why}; repeat later."
    return Refusal(503, "slow_body", message, retry_after_s=SLOW_RETRY_S)


def _too_large(max_bytes: int, setting: str) -> Refusal:
    limit = f"{max_bytes} bytes after decompression" + (f" ({setting})" if setting else "")
    return Refusal(413, "body_too_large", f"The body is over {limit}; send smaller batches.")
