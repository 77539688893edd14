"""Destinations that answer success and accept nothing, over real sockets: no record counts as delivered."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from msgspec import structs

from exporters.check import check_destinations
from exporters.destinations.otlp import OtlpEndpoint
from exporters.destinations.webhook import build_exporter
from exporters.errors import DeliveryTooLarge, Misconfigured, Rejected, Retryable, SendError
from exporters.exporter import Exporter
from exporters.http.client import ClientSettings, HttpClient
from exporters.notifications.catalogue import build_channel as build_channel
from exporters.notifications.channel import NotificationMessage
from exporters.otlp.telemetry import TelemetryExporter
from exporters.service.billing_drops import ConnectionLocks, HourlyBillingFileExporter
from exporters.service.events import EventExporter
from exporters.service.unit_cost import UnitCostExporter
from exporters.service.upstream_client import UpstreamClient
from exporters.settings import DestinationSettings, NotifySettings, UpstreamKey, UpstreamSettings
from spool.clock import SystemClock
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import HourlyBillingFile, Record, UnitCostOperation, UsageEvent
from spool.registry.scopes import BILLING_DROP, CREATE_EVENT
from spool.streams import StreamReader
from tests.exporters.notifications.examples import notice
from tests.exporters.spools import call
from tests.exporters.upstream import FakeUpstream, Reply
from tests.rounds import part

CLOCK = SystemClock()
SECRET = "upstream-secret-1"
PAGE = Reply(200, b"\n<!doctype html><title>Sign in</title>", "text/html")
SCOPES = (CREATE_EVENT, BILLING_DROP, "unit-cost_v1:manage_telemetry_records")
OPERATION = UnitCostOperation(
    id=bytes(16), stream="s", stream_type="metric", operation="sum", value="1", start_time=0
)


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as upstream:
        yield upstream


def client_of(upstream: FakeUpstream, directory: Path) -> UpstreamClient:
    file = directory / "key"
    file.write_text(SECRET)
    key = UpstreamKey(name="all", secret_file=file, scopes=SCOPES)
    return UpstreamClient.from_settings(
        UpstreamSettings(base_url=upstream.url, kind="tollhouse", keys=(key,)), clock=CLOCK
    )


def otlp(upstream: FakeUpstream, directory: Path) -> Exporter:
    settings = DestinationSettings(name="d", type="otlp", url=upstream.url)
    return TelemetryExporter(HttpClient(ClientSettings(), clock=CLOCK), OtlpEndpoint(settings, None))


def events(upstream: FakeUpstream, directory: Path) -> Exporter:
    return EventExporter(client_of(upstream, directory), max_bytes=1024**2)


def unit_cost(upstream: FakeUpstream, directory: Path) -> Exporter:
    return UnitCostExporter(
        client_of(upstream, directory),
        cast("StreamReader", None),
        clock=CLOCK,
        single_writer=(),
        to_tollhouse=True,
    )


def drops(upstream: FakeUpstream, directory: Path) -> Exporter:
    return HourlyBillingFileExporter(client_of(upstream, directory), ConnectionLocks(), lambda drop: "there")


def event(number: int) -> UsageEvent:
    return UsageEvent(id=bytes([number]) * 16, source="/app", event_type="call")


async def sent(exporter: Exporter, *records: Record) -> Settlement:
    delivery = Delivery(id=1, route="d/t", first=1, last=len(records), attempts=0, idempotency_key="k")
    try:
        return await exporter.send(
            delivery, [LogEntry(topic=records[0].topic, first=1, committed_at=0.0, records=list(records))]
        )
    finally:
        await exporter.close()


@pytest.mark.parametrize(
    ("make", "record"),
    [
        (otlp, call(1)),
        (events, event(1)),
        (unit_cost, OPERATION),
        (drops, HourlyBillingFile(id=bytes(16), connection_id="here")),
    ],
    ids=["otlp", "events", "unit cost", "billing drops"],
)
async def test_a_web_page_in_place_of_an_answer_accepts_nothing(
    upstream: FakeUpstream, tmp_path: Path, make: Callable[..., Exporter], record: Record
) -> None:
    """A proxy's sign-in page answers 200 to everything. The route parks, and the data stay in the queue."""
    upstream.answers.append(PAGE)
    with pytest.raises(Misconfigured, match="200, but the response is a web page"):
        await sent(make(upstream, tmp_path), record)


async def test_check_says_that_a_web_page_answers(upstream: FakeUpstream) -> None:
    """
    If a web page answers the empty export of `tollhouse check` with 200, this proves nothing, and the check says
    so.
    """
    upstream.answers.append(PAGE)
    settings = DestinationSettings(name="d", type="otlp", url=upstream.url)
    (found,) = await check_destinations([settings], clock=CLOCK)
    assert "refused" == found.status
    assert "the response is a web page" in (found.words or "")


def fates(*rejected: bool) -> Reply:
    error = {"type": "malformed", "message": f"no type, said to {SECRET}"}
    answer: dict[str, Any] = {
        "accepted": len(rejected) - sum(rejected),
        "rejected": sum(rejected),
        "events": [{"item": n, **({"error": error} if bad else {})} for n, bad in enumerate(rejected)],
    }
    return Reply(200, orjson.dumps(answer), "application/json")


async def test_rejected_events_are_counted_in_the_words_of_the_upstream(
    upstream: FakeUpstream, tmp_path: Path
) -> None:
    """
    If some events are refused, the delivery is settled. If all are, the request counts as refused. The stored
    text never contains the key.
    """
    upstream.answers.append(fates(False, True))
    settlement = await sent(events(upstream, tmp_path), event(1), event(2))
    assert Settlement(delivered=1, refused=1, words="no type, said to [key]") == settlement
    upstream.answers.append(fates(True, True))
    with pytest.raises(Rejected, match=r"200, but 2 of 2 items are rejected: no type, said to \[key\]"):
        await sent(events(upstream, tmp_path), event(1), event(2))
    receipt = {"Tollhouse-Receipt": "id=x; records=1; ignored=0; rejected=1; durability=fsync"}
    upstream.answers.append(Reply(200, b"{", "application/json", headers=receipt))
    settlement = await sent(events(upstream, tmp_path), event(1), event(2))
    assert settlement.delivered == 1
    assert settlement.refused == 1


class NoTotals:
    async def find_totals(self, places: Sequence[object]) -> Mapping[object, object]:
        return {}


def small_exporter(type: str, upstream: FakeUpstream, directory: Path) -> Exporter:
    """Return an exporter for which every body is too large."""
    if type == "events":
        return EventExporter(client_of(upstream, directory), max_bytes=1)
    if type == "sums":
        streams = cast("StreamReader", NoTotals())
        client = client_of(upstream, directory)
        return UnitCostExporter(client, streams, clock=CLOCK, single_writer=(), to_tollhouse=False)
    settings = DestinationSettings(name="d", type=type, url=upstream.url)
    if type == "webhook":
        return build_exporter(settings, None, CLOCK)
    return TelemetryExporter(
        HttpClient(ClientSettings(), clock=CLOCK), OtlpEndpoint(settings, None), max_bytes=1
    )


@pytest.mark.parametrize(
    ("type", "records"),
    [
        ("otlp", (call(1), call(2))),
        ("webhook", (call(1), call(2))),
        ("events", (event(1), event(2))),
        ("sums", (OPERATION, structs.replace(OPERATION, id=bytes([1]) * 16))),
    ],
)
async def test_only_a_single_record_may_exceed_the_largest_body(
    upstream: FakeUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    type: str,
    records: tuple[Record, Record],
) -> None:
    """Two records that are too large together are split and not sent. A record that is too large is sent."""
    for module in ("exporters.destinations.webhook", "exporters.service.unit_cost"):
        monkeypatch.setattr(f"{module}.MAX_BYTES", 1)
    with pytest.raises(DeliveryTooLarge):
        await sent(small_exporter(type, upstream, tmp_path), *records)
    assert [] == upstream.requests
    await sent(small_exporter(type, upstream, tmp_path), records[0])
    assert 1 == len(upstream.requests)


CHANNELS: dict[str, Callable[[str, Path], NotifySettings]] = {
    "slack": lambda url, secret: NotifySettings(name="c", type="slack", url=url),
    "teams": lambda url, secret: NotifySettings(name="c", type="teams", url=url),
    "pagerduty": lambda url, secret: NotifySettings(name="c", type="pagerduty", url=url, secret_file=secret),
    "alertmanager": lambda url, secret: NotifySettings(name="c", type="alertmanager", url=url),
}


@pytest.mark.parametrize(
    ("body", "content_type", "error"),
    [
        (PAGE.body, PAGE.content_type, Misconfigured),
        (b'{"ok": false, "error": "no_channel"}', "application/json", Rejected),
        (b'{"success": false, "error": "no room"}', "application/json", Rejected),
        (b'{"status": "invalid event", "message": "no summary"}', "application/json", Rejected),
        (b"Webhook message delivery failed with error: HTTP error 429", "text/plain", Retryable),
        (b"ok", "text/plain", None),
        (b"", "text/plain", None),
        (b'{"status": "success"}', "application/json", None),
        (b"[1]", "application/json", None),
    ],
)
@pytest.mark.parametrize("type", part(sorted(CHANNELS), every=2))
async def test_a_channel_that_denies_in_a_2xx_has_no_notice(
    upstream: FakeUpstream,
    tmp_path: Path,
    type: str,
    body: bytes,
    content_type: str,
    error: builtins.type[SendError] | None,
) -> None:
    """If a 2xx denied a notification, it once counted as sent, although nobody got it."""
    (tmp_path / "key").write_text("a" * 32)
    channel = build_channel(CHANNELS[type](upstream.url, tmp_path / "key"), CLOCK)
    upstream.answers.append(Reply(200, body, content_type))
    try:
        with pytest.raises(error) if error else nullcontext():
            await channel.send(NotificationMessage(notices=[notice("a")]))
    finally:
        await channel.close()
