"""Request bodies: accepted whole or refused, in bounded memory."""

from __future__ import annotations

import asyncio
import gzip
import io
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request
from backports import zstd

from gateway.configuration.server import ServerSettings
from gateway.core.errors import BadPayload, Refusal
from gateway.http import answers, bodies
from gateway.http.inflight_bytes import InflightBytes
from gateway.http.listening.listener import Listener
from tests.gateway.http import raw
from tests.waiting import until

MIB = 1024**2
TEXT = b"the quick brown fox jumps over the lazy dog " * 2000


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate, raw": raw_deflate,
    "zstd": zstd.compress,
}


def coding(name: str) -> str:
    return name.partition(",")[0]


def inflated(name: str, data: bytes, *, step: int = 7) -> bytes:
    """Inflate a body that arrives `step` bytes at a time."""
    open_inflater = bodies.inflater_for(coding(name))
    assert open_inflater is not None
    inflater = open_inflater()
    out = b"".join(
        piece for start in range(0, len(data), step) for piece in inflater.feed(data[start : start + step])
    )
    inflater.finish()
    return out


@pytest.mark.parametrize("name", PACKERS)
def test_each_coding_gives_the_bytes_back(name: str) -> None:
    """Each coding gives the original bytes, however the network splits the compressed body."""
    for step in (1, 7, 100_000):
        assert TEXT == inflated(name, PACKERS[name](TEXT), step=step)


async def test_a_connection_that_ends_before_its_body_is_read_is_no_fault_of_the_server() -> None:
    """A client may reset the connection when its whole body has arrived, and the request waits for its turn."""
    for ends_with in (ConnectionResetError("reset"), web.RequestPayloadError("cut")):
        arrived = StreamReader(Mock(), 2**16)
        arrived.feed_data(b"{}")
        arrived.feed_eof()
        arrived.set_exception(ends_with)
        request = make_mocked_request("POST", "/", payload=arrived)
        with InflightBytes(MIB).new_share("key") as share, pytest.raises(BadPayload, match="ended early"):
            await bodies.read_body(request, share, max_bytes=MIB)


@pytest.mark.parametrize("name", PACKERS)
def test_a_body_that_ends_early_is_refused(name: str) -> None:
    """A truncated compressed body is never accepted as a short one."""
    packed = PACKERS[name](TEXT)
    for cut in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(BadPayload, match="truncated"):
            inflated(name, packed[:cut])


@pytest.mark.parametrize("name", PACKERS)
def test_bytes_after_the_end_are_refused(name: str) -> None:
    with pytest.raises(BadPayload):
        inflated(name, PACKERS[name](TEXT) + b"garbage and more garbage")


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_members_are_one_body(name: str) -> None:
    """A body of several gzip members (RFC 1952) or zstd frames is read as one body."""
    assert TEXT + b"more" == inflated(name, PACKERS[name](TEXT) + PACKERS[name](b"more"))


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_garbage_is_refused(name: str) -> None:
    with pytest.raises(BadPayload):
        inflated(name, b"this was never compressed, whatever the header says")


def test_a_flipped_bit_in_a_gzip_body_is_refused() -> None:
    """A gzip body with a wrong checksum is refused."""
    packed = bytearray(gzip.compress(TEXT))
    packed[-5] ^= 1
    with pytest.raises(BadPayload):
        inflated("gzip", bytes(packed))


def test_a_zstd_window_over_8_mib_is_refused() -> None:
    """RFC 9659 limits the window, so a frame cannot make the gateway reserve more memory."""
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    packer = zstd.ZstdCompressor(options=options)
    packed = packer.compress(b"x" * MIB) + packer.flush()
    with pytest.raises(BadPayload, match="8 MiB"):
        inflated("zstd", packed)


def test_pieces_are_small_however_much_one_byte_holds() -> None:
    """The inflater never returns more than 256 KiB at a time."""
    packed = gzip.compress(b"\0" * 20 * MIB)
    open_inflater = bodies.inflater_for("gzip")
    assert open_inflater is not None
    assert 256 * 1024 >= max(len(piece) for piece in open_inflater().feed(packed))


@dataclass
class Bench:
    inflight: InflightBytes
    max_bytes: int
    min_rate: int = 0
    port: int = 0
    sizes: list[int] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    seen: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    async def take(self, request: web.Request) -> web.Response:
        try:
            bodies.check_content_encoding(request)
            with self.inflight.new_share(request.headers.get("Authorization", "")) as share:
                body = await bodies.read_body(
                    request, share, max_bytes=self.max_bytes, min_rate=self.min_rate
                )
                self.sizes.append(len(body))
                self.seen.put_nowait(len(body))
                await self.hold.wait()
        except Refusal as error:
            self.seen.put_nowait(error.status)
            return answers.refusal_response(error)
        return web.Response()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(InflightBytes(4 * MIB), 2 * MIB)
    made.hold.set()
    application = web.Application()
    application.router.add_route("*", "/", made.take, expect_handler=bodies.delay_http_100_continue)
    listener = Listener(application)
    await listener.start("127.0.0.1:0")
    made.port = listener.port
    yield made
    await listener.stop()


@pytest.mark.proves("A small request uses much memory or time")
async def test_a_gzip_bomb_of_1_gib_stops_at_the_limit(bench: Bench) -> None:
    """While it streams, 1 GiB of zeros in 1 MiB of gzip is refused with 413, in bounded memory."""
    first, more = (zlib.compressobj(9, zlib.DEFLATED, bits) for bits in (31, -15))
    start, piece = (
        packer.compress(bytes(16 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH) for packer in (first, more)
    )
    # the compressed pieces can be concatenated, because each ends with a full flush
    bomb = start + 63 * piece
    tracemalloc.start()
    try:
        async with (
            ClientSession() as client,
            client.post(bench.url, data=bomb, headers={"Content-Encoding": "gzip"}) as response,
        ):
            assert 413 == response.status
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB
    assert 0 == bench.inflight.held_bytes


@pytest.mark.proves("A small request uses much memory or time")
@pytest.mark.parametrize(("size", "status"), [(2 * MIB, 200), (2 * MIB + 1, 413)])
async def test_a_compressed_body_ends_at_the_limit(bench: Bench, size: int, status: int) -> None:
    """The limit counts bytes after decompression, to the byte."""
    async with (
        ClientSession() as client,
        client.post(
            bench.url, data=gzip.compress(bytes(size)), headers={"Content-Encoding": "gzip"}
        ) as response,
    ):
        assert status == response.status


@pytest.mark.proves("A small request uses much memory or time")
def test_a_server_accepts_64_mib_by_default() -> None:
    assert 64 * 2**20 == ServerSettings().max_body_bytes == ServerSettings().max_inflight_bytes


async def test_a_declared_size_over_the_limit_is_refused_before_the_body(bench: Bench) -> None:
    """With `Expect: 100-continue` the sender receives 413 and never 100, so it uploads nothing."""
    head = f"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {3 * MIB}\r\nExpect: 100-continue\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    writer.write(head.encode())
    first = await reader.readline()
    assert b"HTTP/1.1 413 Request Entity Too Large\r\n" == first
    writer.close()


async def test_expect_100_continue_is_answered(bench: Bench) -> None:
    """A sender that waits receives 100 first, then the final status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    writer.write(
        b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: "
        b"close\r\n\r\n"
    )
    assert b"HTTP/1.1 100 Continue\r\n\r\n" == await reader.readuntil(b"\r\n\r\n")
    writer.write(b"body")
    assert 200 == raw.parsed(await reader.read()).status
    assert [4] == bench.sizes
    writer.close()


async def test_another_expectation_is_417(bench: Bench) -> None:
    answer = raw.parsed(await raw.talk(bench.port, raw.post("/", b"", "Expect: 200-ok")))
    assert 417 == answer.status


async def test_a_chunked_body_needs_no_length(bench: Bench) -> None:
    """A chunked body is accepted, because every OpenTelemetry JS exporter sends one."""
    answer = raw.parsed(await raw.talk(bench.port, raw.chunked("/", [b"ab", b"cde", b"f" * 100])))
    assert answer.status == 200
    assert bench.sizes == [105]


async def test_a_chunked_body_over_the_limit_is_refused(bench: Bench) -> None:
    """The size limit applies to bodies without a Content-Length as well."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 65536

    async with ClientSession() as client, client.post(bench.url, data=endless()) as response:
        assert 413 == response.status


async def test_incomplete_body_is_discarded_and_its_memory_released(bench: Bench) -> None:
    """
    If a client disconnects before the end of the body, the body is discarded and its memory is released.
    """
    await raw.talk(
        bench.port,
        raw.post("/", b"x" * 10).replace(b"Content-Length: 10", b"Content-Length: 99"),
        half_close=True,
    )
    _, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await bench.seen.get()
    await bench.seen.get()
    assert bench.sizes == []
    assert bench.inflight.held_bytes == 0


async def test_an_unsupported_coding_is_415(bench: Bench) -> None:
    """A body in Brotli is refused, and the refusal lists the supported codings."""
    answer = raw.parsed(await raw.talk(bench.port, raw.post("/", b"x", "Content-Encoding: br")))
    assert 415 == answer.status
    assert b"gzip, deflate, zstd" in answer.body


async def test_a_slow_body_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A sender that stalls in the middle of a body receives 503, because OTLP senders drop the data after 408.
    """
    monkeypatch.setattr(bodies, "IDLE_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nab")
    assert b"HTTP/1.1 503 Service Unavailable\r\n" == await reader.readline()
    writer.close()


async def test_bytes_in_hand_are_bounded_over_all_requests(bench: Bench) -> None:
    """
    If all requests together hold more than `server.max_inflight_bytes`, the next request is refused with 503
    and Retry-After. It is accepted later.
    """
    bench.hold.clear()
    body = b"x" * (2 * MIB - 1)
    async with ClientSession() as client:

        async def send() -> tuple[int, str | None]:
            async with client.post(bench.url, data=io.BytesIO(body)) as response:
                return response.status, response.headers.get("Retry-After")

        first, second = asyncio.create_task(send()), asyncio.create_task(send())
        await bench.seen.get()
        await bench.seen.get()
        assert (503, "1") == await send()
        bench.hold.set()
        assert [(200, None)] * 2 == [await first, await second]
        assert (200, None) == await send()
    assert 0 == bench.inflight.held_bytes


def test_a_request_that_is_alone_may_use_all_that_a_body_may() -> None:
    """
    If `max_inflight_bytes` is below `server.max_body_bytes`, a large body is still accepted when no
    other request runs.
    """
    inflight = InflightBytes(10)
    with inflight.new_share() as share:
        share.reserve_bytes(8)
        share.reserve_bytes(100)
        with inflight.new_share() as other, pytest.raises(Refusal):
            other.reserve_bytes(1)
    assert 0 == inflight.held_bytes


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def begin(
    bench: Bench, sent: bytes, *, length: int, key: str = "", coding: str = "identity"
) -> Connection:
    """Start an upload that declares `length` and sends only `sent`."""
    head = f"POST / HTTP/1.1\r\nHost: t\r\nAuthorization: {key}\r\nContent-Encoding: {coding}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode() + sent)
    await writer.drain()
    return reader, writer


async def held(bench: Bench, n: int) -> None:
    """Wait until `n` bytes are in flight."""
    await until(lambda: bench.inflight.held_bytes == n)


async def test_an_unfinished_body_holds_what_was_sent_and_not_what_it_inflates_to(bench: Bench) -> None:
    """
    An unfinished gzip body counts only with the bytes that were sent, not with the megabytes that they inflate to.
    """
    packed = gzip.compress(b"\0" * MIB)
    _, writer = await begin(bench, packed[:-1], length=len(packed), coding="gzip")
    await held(bench, len(packed) - 1)
    writer.write(packed[-1:])
    assert MIB == await bench.seen.get()
    writer.close()


async def test_an_upload_yields_to_another_key(bench: Bench) -> None:
    """
    If the memory for bodies is full, the body of another key is accepted at once, and the upload that holds the
    memory receives 503.
    """
    bench.inflight.general.limit = 2 * MIB
    reader, writer = await begin(bench, b"x" * (2 * MIB - 10), length=2 * MIB, key="slow")
    await held(bench, 2 * MIB - 10)
    answer = raw.parsed(await raw.talk(bench.port, raw.post("/", b"x" * MIB, "Authorization: other")))
    assert 200 == answer.status
    assert b"HTTP/1.1 503 Service Unavailable\r\n" == await reader.readline()
    writer.close()


async def test_a_large_body_must_come_at_a_rate(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A large upload that trickles bytes is cut, although it never pauses for long. A small upload may be slow.
    """
    monkeypatch.setattr(bodies, "SLACK_S", 0.2)
    bench.inflight.small, bench.min_rate = 1024, 10 * MIB
    large, large_writer = await begin(bench, b"x" * 4096, length=MIB, key="large")
    small, small_writer = await begin(bench, b"x", length=1024, key="small")
    answer = asyncio.create_task(large.readline())
    while not answer.done():
        large_writer.write(b"x")
        small_writer.write(b"x")
        await asyncio.sleep(0.05)
    assert b"HTTP/1.1 503 Service Unavailable\r\n" == await answer
    assert b"server.min_upload_rate" in await large.read(1000)
    small_writer.write(b"x" * 1024)
    assert b"HTTP/1.1 200 OK\r\n" == await small.readline()
    large_writer.close()
    small_writer.close()


def test_what_came_fast_buys_no_long_pause() -> None:
    """
    The minimum rate is measured over the last seconds, so a fast start does not permit
    minutes of silence afterwards.
    """
    pace = bodies._BodyDeadlines(0.0, 1000)
    assert 1.0 + bodies.SLACK_S == pace.note_arrival_and_return_deadline(1.0, 10_000_000, is_large=True)
    behind = pace.note_arrival_and_return_deadline(9.0, 2000, is_large=True)
    assert 9.0 + bodies.SLACK_S - 8.0 + 2.0 == behind
    assert 9.0 + bodies.IDLE_S == pace.note_arrival_and_return_deadline(9.0, 1, is_large=False)
    assert bodies.TOTAL_S == pace.note_arrival_and_return_deadline(
        bodies.TOTAL_S - 1, 10_000_000, is_large=True
    )
