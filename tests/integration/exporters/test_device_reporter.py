"""A device's connection to its gateway: enrolment, heartbeats and refusals."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporters import device_reporter
from exporters.device_reporter import REFUSED_S, DeviceReporter
from exporters.errors import SendError
from exporters.http.client import reach_problem
from exporters.pace import Backoff
from exporters.secret_source import SecretSource
from exporters.service.paths import UpstreamPaths
from exporters.service.upstream_client import build_client
from exporters.settings import UpstreamSettings
from spool.clock import SystemClock
from spool.errors import SpoolUnavailable
from tests.exporters.upstream import FakeUpstream, Received, Reply
from tests.free_ports import free_port
from tests.integration.certificates import Certificates


@dataclass
class Gateway:
    """A fake gateway's knowledge of one device."""

    state: str = "enrolled"
    key: str | None = "thd_laptop_1_aa"
    dead: set[str] = field(default_factory=set)
    interval: float = 7
    word: str = ""
    ping: int = 200  # the status that the fake gateway returns for pings
    verdicts: object = None

    def judge(self, request: Received) -> Reply:
        what, secret = request.path.rpartition("/")[2], request.headers["authorization"]
        if secret in self.dead:
            return Reply(401, b'{"error": {"message": "unknown key"}}', "application/json")
        if self.state == "revoked":
            return Reply(410, b'{"error": {"message": "revoked"}}', "application/json")
        if what == "ping":
            return Reply(self.ping, b'{"ok": true}', "application/json")
        body: dict[str, Any] = {
            "device": {"id": "laptop", "state": self.state, "heartbeat_interval_s": self.interval}
        }
        if what == "enroll" and self.key is not None and self.state == "enrolled":
            body["key"], self.key = self.key, None
        if what == "heartbeat" and self.word:
            body["next"] = self.word
        if what == "heartbeat" and self.verdicts is not None:
            body["verdicts"] = self.verdicts
        return Reply(200, json.dumps(body).encode(), "application/json")


@dataclass
class Laptop:
    upstream: FakeUpstream
    gateway: Gateway
    link: DeviceReporter
    key_file: Path
    versions: list[int]
    words: list[str]
    verdicts: list[object]

    def asked(self) -> list[tuple[str, str]]:
        return [
            (each.path.rpartition("/")[2], each.headers["authorization"]) for each in self.upstream.requests
        ]


@pytest.fixture
async def laptop(tmp_path: Path) -> AsyncIterator[Laptop]:
    gateway, key_file, enrolment = Gateway(), tmp_path / "device.key", tmp_path / "enrolment.key"
    versions, words, verdicts = [1], list[str](), list[object]()

    def keep_key(key: str) -> None:
        key_file.write_text(key)

    enrolment.write_text("enrol-me")

    async def report() -> Mapping[str, object]:
        return {"spool": {"records": 3}}

    async with FakeUpstream() as upstream:
        upstream.judge = gateway.judge
        settings = UpstreamSettings(base_url=upstream.url, timeout=30)
        link = DeviceReporter(
            build_client(settings, clock=SystemClock()),
            UpstreamPaths(settings),
            facts=lambda: {"device_id": "laptop", "hostname": "mill"},
            report=report,
            version=lambda: versions[-1],
            keep_word=words.append,
            keep_verdicts=lambda text: verdicts.append(json.loads(text)),
            enrolment_key=SecretSource("the enrolment key", file=enrolment),
            key_file=key_file,
            keep_key=keep_key,
            backoff=Backoff(first_s=0.5, most_s=1.0),
        )
        yield Laptop(upstream, gateway, link, key_file, versions, words, verdicts)
        await link.close()


async def test_enrolment_then_heartbeats_under_its_own_key(laptop: Laptop) -> None:
    """The first heartbeat is sent at once, the next after the gateway's interval."""
    assert 0.0 == await laptop.link.send_report_and_return_wait_s()
    rest_s = await laptop.link.send_report_and_return_wait_s()
    assert 0.9 * 7 <= rest_s <= 1.1 * 7
    assert [("enroll", "enrol-me"), ("heartbeat", "thd_laptop_1_aa")] == laptop.asked()
    enrol, heartbeat = (json.loads(each.body) for each in laptop.upstream.requests)
    assert {"device_id": "laptop", "hostname": "mill", "want_key": True} == enrol
    assert {"device_id": "laptop", "hostname": "mill", "spool": {"records": 3}} == heartbeat
    assert laptop.link.state == "enrolled"
    assert laptop.link.reason is None


async def test_heartbeats_replace_pings_while_there_are_verdicts(laptop: Laptop) -> None:
    """
    While a device has verdicts, it sends heartbeats in place of pings, because verdicts expire sooner than a
    heartbeat would be due. An answer without verdicts ends this.
    """
    stated = {"valid_until": "2027-01-01T00:00:00Z", "rows": []}
    laptop.key_file.write_text("thd_laptop_1_aa")
    laptop.gateway.verdicts = stated
    for _ in range(2):
        await laptop.link.send_report_and_return_wait_s()
    laptop.gateway.verdicts = None
    for _ in range(2):
        await laptop.link.send_report_and_return_wait_s()
    assert ["heartbeat"] * 3 + ["ping"] == [what for what, _ in laptop.asked()]
    assert [stated, stated, None] == laptop.verdicts


async def test_pending_device_requests_again_until_approved(laptop: Laptop) -> None:
    """A pending device asks until an operator approves it, and then gets its key."""
    laptop.gateway.state = "pending"
    assert await laptop.link.send_report_and_return_wait_s() > 5
    assert laptop.link.state == "pending"
    assert not laptop.key_file.exists()
    laptop.gateway.state = "enrolled"
    assert 0.0 == await laptop.link.send_report_and_return_wait_s()
    assert "thd_laptop_1_aa" == laptop.key_file.read_text()


async def test_a_key_that_was_given_before(laptop: Laptop) -> None:
    """
    If the device's key was already given out, the message says what to do, and the device does not ask again every
    minute.
    """
    laptop.gateway.key = None
    assert await laptop.link.send_report_and_return_wait_s() > REFUSED_S * 0.9
    assert "devices reset" in str(laptop.link.reason)


async def test_a_dead_key_is_replaced(laptop: Laptop) -> None:
    """After a reset, the device enrols again and uses the new key."""
    laptop.key_file.write_text("thd_laptop_1_old")
    laptop.gateway.dead.add("thd_laptop_1_old")
    assert 0.0 == await laptop.link.send_report_and_return_wait_s()
    assert "thd_laptop_1_aa" == laptop.key_file.read_text()


async def test_a_revoked_device_is_quiet(laptop: Laptop) -> None:
    """A revoked device asks once in ten minutes and keeps its key."""
    laptop.key_file.write_text("thd_laptop_1_old")
    laptop.gateway.dead.add("thd_laptop_1_old")
    laptop.gateway.state = "revoked"
    assert REFUSED_S == await laptop.link.send_report_and_return_wait_s()
    assert laptop.link.state == "revoked"
    assert laptop.link.reason == "410 revoked"
    assert "thd_laptop_1_old" == laptop.key_file.read_text()


@pytest.mark.parametrize("reply", [Reply(503), Reply(429), Reply(drop=True)])
async def test_a_gateway_that_cannot_be_reached(laptop: Laptop, reply: Reply) -> None:
    """
    If a device cannot reach its gateway, the first retry comes soon, and later ones less often. A successful answer
    clears the error.
    """
    laptop.upstream.answers.extend([reply] * 3)
    rests = [await laptop.link.send_report_and_return_wait_s() for _ in range(3)]
    assert all(0.5 <= rest_s <= 1.0 for rest_s in rests)
    assert laptop.link.reason
    await laptop.link.send_report_and_return_wait_s()
    await laptop.link.send_report_and_return_wait_s()
    assert laptop.link.reason is None


@pytest.mark.parametrize("page", [b"<html>", b'{"deep": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"])
async def test_an_address_that_is_no_gateway(laptop: Laptop, page: bytes) -> None:
    """A web page that answers 200 to everything is not accepted as an enrolment."""
    laptop.upstream.judge = lambda request: Reply(200, page, "text/html")
    await laptop.link.send_report_and_return_wait_s()
    assert "not a gateway" in str(laptop.link.reason)
    assert not laptop.key_file.exists()


async def test_an_absurd_interval_is_bounded(laptop: Laptop) -> None:
    """
    A gateway cannot set an interval so short that devices overload it, or so long that they fall silent
    for a year.
    """
    for interval, low, high in ((0.0, 0.9, 1.1), (1e9, 3400.0, 3800.0)):
        laptop.gateway.interval, laptop.gateway.key = interval, "thd_laptop_1_aa"
        laptop.versions.append(len(laptop.versions) + 1)
        await laptop.link.send_report_and_return_wait_s()
        assert low <= await laptop.link.send_report_and_return_wait_s() <= high


async def enrolled(laptop: Laptop) -> None:
    """Send the enrolment and the first heartbeat, and forget both."""
    await laptop.link.send_report_and_return_wait_s()
    await laptop.link.send_report_and_return_wait_s()
    laptop.upstream.requests.clear()


def streams(laptop: Laptop) -> list[str]:
    return [stream for stream, _ in laptop.asked()]


async def test_pings_between_heartbeats(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A device sends a heartbeat if its report changed, or after 15 minutes. In between, it sends a ping, which says
    that nothing changed.
    """
    await enrolled(laptop)
    assert 0.9 * 7 <= await laptop.link.send_report_and_return_wait_s() <= 1.1 * 7
    assert [("ping", "thd_laptop_1_aa")] == laptop.asked()
    assert {"device_id": "laptop"} == json.loads(laptop.upstream.requests[0].body)
    laptop.versions.append(2)
    await laptop.link.send_report_and_return_wait_s()
    await laptop.link.send_report_and_return_wait_s()
    monkeypatch.setattr(device_reporter, "HEARTBEAT_S", 0.0)
    await laptop.link.send_report_and_return_wait_s()
    assert ["ping", "heartbeat", "ping", "heartbeat"] == streams(laptop)


async def test_a_change_is_reported_at_once(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A device waits between two requests, but a change of its report ends the wait. After an error, a change does
    not.
    """
    monkeypatch.setattr(device_reporter, "CHECK_S", 0.01)
    laptop.gateway.interval = 3600
    task = asyncio.create_task(laptop.link.run())
    try:
        await laptop.upstream.until(lambda: ["enroll", "heartbeat"] == streams(laptop))
        laptop.versions.append(2)
        await laptop.upstream.until(lambda: ["enroll", "heartbeat", "heartbeat"] == streams(laptop))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_full_disk_does_not_end_the_reports(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the report cannot be made or stored, the next one is made after the interval."""
    laptop.gateway.interval = 1.0
    failures = [OSError("no space"), SpoolUnavailable("no space"), None]

    async def requested() -> None:
        if failures and (error := failures.pop(0)) is not None:
            raise error

    laptop.link._requested = requested
    laptop.link._interval_s = 0.01
    task = asyncio.create_task(laptop.link.run())
    try:
        await laptop.upstream.until(lambda: len(laptop.upstream.requests) >= 4)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [] == failures


@pytest.mark.parametrize("status", [401, 403, 404, 405])
async def test_a_ping_that_a_gateway_does_not_know(laptop: Laptop, status: int) -> None:
    """
    If a gateway does not know the device of a ping, for example because it deleted the device, the device sends a
    heartbeat at once.
    """
    await enrolled(laptop)
    laptop.gateway.ping = status
    await laptop.link.send_report_and_return_wait_s()
    assert ["ping", "heartbeat"] == streams(laptop)
    assert laptop.link.reason is None


async def test_a_web_page_that_answers_a_ping(laptop: Laptop) -> None:
    await enrolled(laptop)
    laptop.upstream.judge = lambda request: Reply(200, b"<html>", "text/html")
    await laptop.link.send_report_and_return_wait_s()
    assert "not a gateway" in str(laptop.link.reason)


async def test_a_ping_of_a_revoked_device(laptop: Laptop) -> None:
    await enrolled(laptop)
    laptop.gateway.state = "revoked"
    assert REFUSED_S == await laptop.link.send_report_and_return_wait_s()
    assert ["ping"] == streams(laptop)
    assert "revoked" == laptop.link.state


async def test_a_pending_device_sends_heartbeats(laptop: Laptop) -> None:
    """
    A pending device sends heartbeats and no pings, because only the answer to a heartbeat says that an operator
    approved the device.
    """
    await enrolled(laptop)
    laptop.gateway.state = "pending"
    laptop.versions.append(2)
    await laptop.link.send_report_and_return_wait_s()
    laptop.gateway.state = "enrolled"
    await laptop.link.send_report_and_return_wait_s()
    await laptop.link.send_report_and_return_wait_s()
    assert ["heartbeat", "heartbeat", "ping"] == streams(laptop)


async def test_value_of_next_in_a_response_is_stored(laptop: Laptop) -> None:
    laptop.gateway.word = "7.abc"
    await enrolled(laptop)
    assert ["7.abc"] == laptop.words


async def test_codes_of_problems(laptop: Laptop, tmp_path: Path) -> None:
    """
    If a device does not reach its gateway, the problem has a code as its reason, and never a text from the network.
    """
    laptop.key_file.write_text("thd_laptop_1_aa")
    for reply, code in (
        (Reply(503), ""),
        (Reply(429), ""),
        (Reply(drop=True), "no_answer"),
        (Reply(400), "refused"),
    ):
        laptop.upstream.answers.append(reply)
        await laptop.link.send_report_and_return_wait_s()
        assert code == laptop.link.problem
    await laptop.link.send_report_and_return_wait_s()
    assert "" == laptop.link.problem
    port, certificates = free_port(), Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    tls = server.sockets[0].getsockname()[1]
    for base_url, proxy, code in (
        (f"http://127.0.0.1:{port}", "", "no_answer"),
        ("http://gateway.invalid", "", "dns"),
        (f"https://127.0.0.1:{tls}", "", "tls"),
        ("https://gateway.example.com", f"http://127.0.0.1:{port}", "no_answer"),
    ):
        settings = UpstreamSettings(base_url=base_url, proxy=proxy, timeout=30)
        async with build_client(settings, clock=SystemClock()) as client:
            with pytest.raises(SendError) as raised:
                await client.send(base_url, b"{}", content_type="application/json")
        assert code == reach_problem(raised.value), base_url
    server.close()
