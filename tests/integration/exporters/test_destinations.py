"""Destinations other than the upstream, and the HTTP client, over real sockets and files."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from exporters.destinations.catalogue import build_routes
from exporters.destinations.webhook import sign_body
from exporters.errors import Misconfigured, Retryable
from exporters.forwarder import RouteForwarder
from exporters.http.client import MAX_ANSWER_BYTES, ClientSettings, HttpClient
from exporters.settings import DestinationSettings, UpstreamSettings
from spool.clock import SystemClock
from spool.deliveries.values import PARKED
from spool.record import Record, record_to_json
from tests.documents import blocks
from tests.exporters.spools import Spooled, call, counter, spooled
from tests.exporters.upstream import FakeUpstream, Reply
from tests.integration.exporters.ndjson_victim import RECORDS
from tests.processes.copied import start_process
from tests.rounds import reduced
from tests.waiting import until

CLOCK = SystemClock()
ROOT = Path(__file__).parents[3]


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Spooled]:
    async with spooled("sqlite", tmp_path / "data", CLOCK) as spool:
        yield spool


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as upstream:
        yield upstream


@asynccontextmanager
async def forwarding(spool: Spooled, *destinations: DestinationSettings) -> AsyncIterator[RouteForwarder]:
    routes = RouteForwarder(
        spool.deliveries, spool.log, CLOCK, build_routes(UpstreamSettings(), destinations, clock=CLOCK)
    )
    await routes.start()
    try:
        yield routes
    finally:
        await routes.stop()


async def is_parked(spool: Spooled) -> bool:
    return (await spool.state("hook/ai-telemetry")).state == PARKED


async def settled(spool: Spooled, route: str) -> None:
    async def is_settled() -> bool:
        return not (await spool.state(route)).queued

    await until(is_settled, f"{route} is settled")


async def test_each_destination_gets_everything(
    spool: Spooled, upstream: FakeUpstream, tmp_path: Path
) -> None:
    """
    An archive with reference-only records, an OTLP endpoint with its own headers, and a signed webhook run
    side by side.
    """
    secret_file = tmp_path / "secret"
    secret_file.write_text("s3cret\n")
    archive = tmp_path / "archive" / "records.ndjson"
    await spool.add([call(1), call(2, shadow=True), counter(3), call(4)])
    destinations = [
        DestinationSettings(name="archive", type="ndjson", path=archive),
        DestinationSettings(
            name="otlp",
            type="otlp",
            url=f"{upstream.url}/otel/",
            headers={"X-Tenant": "a"},
            secret_file=secret_file,
        ),
        DestinationSettings(name="hook", type="webhook", url=f"{upstream.url}/hook", secret_file=secret_file),
    ]
    async with forwarding(spool, *destinations):
        for destination in destinations:
            await settled(spool, f"{destination.name}/ai-telemetry")
        # a delivery of which no record is sent, because its only record is a shadow
        await spool.add([call(5, shadow=True)])
        for destination in destinations:
            await settled(spool, f"{destination.name}/ai-telemetry")
    expected: list[Record] = [call(1), call(2, shadow=True), counter(3), call(4), call(5, shadow=True)]
    assert [record_to_json(record) for record in expected] == [
        orjson.loads(line) for line in archive.read_bytes().splitlines()
    ]
    otlp = [request for request in upstream.accepted if request.path.startswith("/otel/")]
    assert {("/otel/v1/traces", "a", "s3cret"), ("/otel/v1/metrics", "a", "s3cret")} == {
        (request.path, request.headers["x-tenant"], request.headers["authorization"]) for request in otlp
    }
    assert sorted(record.id.hex() for record in (call(1), counter(3), call(4))) == sorted(
        one for request in otlp for one in request.ids
    )
    (hook,) = [request for request in upstream.accepted if request.path == "/hook"]
    assert {
        "topic": "ai-telemetry",
        "records": [record_to_json(record) for record in (call(1), counter(3), call(4))],
    } == (orjson.loads(hook.body))
    timestamp = hook.headers["tollhouse-timestamp"]
    assert sign_body("s3cret", timestamp, hook.raw) == hook.headers["tollhouse-signature"]
    assert not {"authorization", "content-encoding"} & hook.headers.keys()
    terms = {name: await spool.terms(f"{name}/ai-telemetry") for name in ("archive", "otlp", "hook")}
    assert {
        "archive": {"delivered": 5},
        "otlp": {"delivered": 3, "shadow": 2},
        "hook": {"delivered": 3, "shadow": 2},
    } == terms


def test_a_signature_is_what_the_page_says() -> None:
    """
    The signature is HMAC-SHA256 over timestamp, full stop and body. Receivers in other languages can compare
    with this example.
    """
    assert "v1=3dd49b2593d0f9a349e9e71c4bde3e2b862c2be4003fe9b4ba81332029310158" == sign_body("k", "1", b"{}")


def test_documented_receiver_accepts_only_current_requests_with_its_secret() -> None:
    """
    The documented receiver accepts a request only with a current time and its own secret, and refuses
    a changed body.
    """
    document = (ROOT / "docs/operations/delivery.md").read_text()
    (snippet,) = (block.text for block in blocks(document) if block.language == "python")
    names: dict[str, Any] = {}
    exec(snippet, names)
    now, body = str(int(CLOCK.now())), b'{"topic": "ai-telemetry", "records": [{"id": "1"}]}'
    said = {"Tollhouse-Timestamp": now, "Tollhouse-Signature": sign_body("k", now, body)}
    assert [{"id": "1"}] == names["records"](said, body, b"k")
    early = str(int(now) - 3600)
    for headers, content, secret in (
        (said, body, b"other"),
        (said, body + b" ", b"k"),
        (
            {**said, "Tollhouse-Timestamp": early, "Tollhouse-Signature": sign_body("k", early, body)},
            body,
            b"k",
        ),
    ):
        with pytest.raises(ValueError, match="not from"):
            names["records"](headers, content, secret)


async def test_webhook_repeats_the_same_body_until_it_is_accepted(
    spool: Spooled, upstream: FakeUpstream
) -> None:
    """
    After no answer or a 500, the same body is sent under the same key. After a 413 it is sent in halves.
    """
    await spool.add([call(n) for n in range(4)])
    upstream.answers += [Reply(drop=True), Reply(500), Reply(413)]
    destination = DestinationSettings(name="hook", type="webhook", url=f"{upstream.url}/hook")
    async with forwarding(spool, destination):
        await settled(spool, "hook/ai-telemetry")
    first, second, third, *halves = upstream.requests
    assert first.raw == second.raw
    assert first.key == second.key
    assert first.raw == third.raw
    assert first.key == third.key
    assert [call(n).id.hex() for n in range(4)] == sorted(
        (row["id"] for half in halves for row in orjson.loads(half.raw)["records"]),
        key=[call(n).id.hex() for n in range(4)].index,
    )
    assert 2 == len(halves)
    assert "tollhouse-signature" not in first.headers
    assert {"delivered": 4} == await spool.terms("hook/ai-telemetry")


async def test_a_webhook_follows_nobody(spool: Spooled, upstream: FakeUpstream) -> None:
    """A redirect parks the route, because records may go only to the configured address."""
    await spool.add([call(1)])
    upstream.judge = lambda request: Reply(307, headers={"Location": f"{upstream.url}/elsewhere"})
    async with forwarding(
        spool, DestinationSettings(name="hook", type="webhook", url=f"{upstream.url}/hook")
    ):
        await upstream.until(lambda: len(upstream.requests) == 1)
        await until(partial(is_parked, spool))
    assert ["/hook"] == [request.path for request in upstream.requests]
    assert 1 == (await spool.state("hook/ai-telemetry")).queued


async def test_a_yes_that_breaks_off_is_a_yes(spool: Spooled) -> None:
    """
    If a receiver closes the connection right after its 200, the delivery counts as accepted. Repeating it would
    count it again and again.
    """
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok")
        await writer.drain()
        writer.close()

    await spool.add([call(n) for n in range(50)])
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with forwarding(spool, DestinationSettings(name="hook", type="webhook", url=url)):
            await settled(spool, "hook/ai-telemetry")
    assert 1 == requests


async def test_a_new_secret_signs_at_once(spool: Spooled, upstream: FakeUpstream, tmp_path: Path) -> None:
    """
    The file of the signing secret is read again when it changes. An empty file parks the route until it
    has a secret.
    """
    secret_file = tmp_path / "secret"
    secret_file.write_text("")
    await spool.add([call(1)])
    destination = DestinationSettings(
        name="hook", type="webhook", url=f"{upstream.url}/hook", secret_file=secret_file
    )
    async with forwarding(spool, destination):
        await until(partial(is_parked, spool))
        secret_file.write_text("new")
        await settled(spool, "hook/ai-telemetry")
    (request,) = upstream.requests
    signed = sign_body("new", request.headers["tollhouse-timestamp"], request.raw)
    assert signed == request.headers["tollhouse-signature"]


@pytest.mark.parametrize(("type_", "topic"), [("ndjsonn", "ai-telemetry"), ("otlp", "usage-events")])
def test_destination_that_cannot_accept_a_topic_is_named(type_: str, topic: str) -> None:
    """
    If a destination cannot accept a topic, building the routes fails with an error that names the setting.
    """
    destination = DestinationSettings(name="odd", type=type_, url="http://x", topics=(topic,))
    with pytest.raises(ValueError, match="destination odd"):
        build_routes(UpstreamSettings(), [destination], clock=CLOCK)


def test_kill_9_leaves_every_line_once(tmp_path: Path) -> None:
    """Killed repeatedly while writing, the archive ends with every record on exactly one line, in order."""
    archive = tmp_path / "archive.ndjson"
    lives = reduced(12, by=3)
    for round_ in range(lives):
        words = ("-m", "tests.integration.exporters.ndjson_victim", str(tmp_path / "data"), str(archive))
        process = start_process([sys.executable, *words], cwd=tmp_path, is_read=True)
        assert process.stdout is not None and process.stderr is not None
        with process.stdout as stdout, process.stderr:
            assert "writing\n" == stdout.readline()
            if round_ == lives - 1:
                assert "done\n" == stdout.readline()
            else:
                time.sleep(0.048 * round_ / lives)
                process.kill()
            process.wait()
    lines = [orjson.loads(line)["input_tokens"] for line in archive.read_bytes().splitlines()]
    assert list(range(1, RECORDS + 1)) == lines


async def test_a_long_answer_is_not_read_to_its_end(upstream: FakeUpstream) -> None:
    """Tollhouse reads at most 64 KiB of an answer."""
    upstream.answers.append(Reply(200, b"x" * (4 * MAX_ANSWER_BYTES)))
    async with HttpClient(ClientSettings(), clock=CLOCK) as client:
        answer = await client.send(upstream.url, b"{}", content_type="application/json")
    assert MAX_ANSWER_BYTES == len(answer.body)


async def test_a_proxy_carries_the_request(upstream: FakeUpstream) -> None:
    """With upstream.proxy, the request goes to the proxy and names the service's address."""
    async with HttpClient(ClientSettings(proxy=upstream.url), clock=CLOCK) as client:
        await client.send("http://cost.example/v1/traces", b"{}", content_type="application/json")
    (request,) = upstream.requests
    assert request.headers["host"] == "cost.example"
    assert request.path == "/v1/traces"


async def test_what_never_arrived_is_no_answer() -> None:
    """If nobody listens, the request certainly was not received. It is repeated under its key."""
    async with HttpClient(ClientSettings(timeout_s=2), clock=CLOCK) as client:
        with pytest.raises(Retryable) as failure:
            await client.send("http://127.0.0.1:1/v1/traces", b"", content_type="x/y", authorization="s3cret")
    assert failure.value.status_text is None
    assert failure.value.ambiguous is False
    assert "s3cret" not in str(failure.value)


async def test_reason_omits_an_address_that_may_contain_a_secret() -> None:
    """If the remote side is no HTTP server, the reason says so without the address, which may contain a secret."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"hello\r\n\r\n")
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        HttpClient(ClientSettings(), clock=CLOCK) as client,
    ):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?token=s3cret"
        with pytest.raises(Retryable, match="Bad status line") as failure:
            await client.send(url, b"{}", content_type="application/json")
    assert "s3cret" not in str(failure.value)


async def test_invalid_address_or_ca_file_pauses_the_route(tmp_path: Path) -> None:
    """An invalid address or an invalid CA file parks the route, because only the operator can correct it."""
    async with HttpClient(ClientSettings(), clock=CLOCK) as client:
        with pytest.raises(Misconfigured, match="not a valid address"):
            await client.send("no address", b"", content_type="x/y")
    broken = tmp_path / "ca.pem"
    broken.write_text("nothing")
    for ca_file in (broken, tmp_path / "absent.pem"):
        async with HttpClient(ClientSettings(ca_file=ca_file), clock=CLOCK) as client:
            with pytest.raises(Misconfigured, match="ca_file"):
                await client.send("https://127.0.0.1:1", b"", content_type="x/y")


@pytest.mark.proves("accepted, but answered with 500")
@pytest.mark.parametrize(("status", "keys"), [(500, 1), (502, 1), (503, 2)])
async def test_repeat_after_500_or_502_has_the_same_key(
    spool: Spooled, upstream: FakeUpstream, status: int, keys: int
) -> None:
    """
    If a receiver accepts a request and then answers 500 or 502, the repeat has the same key, so the request
    counts once. A 503 means that nothing was done, so the next request has a new key.
    """
    upstream.answers.append(Reply(status))
    await spool.add([call(1)])
    async with forwarding(
        spool, DestinationSettings(name="hook", type="webhook", url=f"{upstream.url}/hook")
    ):
        await settled(spool, "hook/ai-telemetry")
    sent = [request.key for request in upstream.requests]
    assert len(sent) == 2
    assert len(set(sent)) == keys
