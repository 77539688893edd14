"""
Devices sent upstream: enrolment first, only the newest heartbeat, refused rows held back, telemetry never delayed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from exporters.pace import Backoff
from exporters.service import device_sync
from exporters.service.device_sync import DeviceSync
from exporters.service.paths import UpstreamPaths
from exporters.service.upstream_client import Keyring, UpstreamClient, build_client
from exporters.settings import UpstreamKey, UpstreamSettings
from spool.clock import SystemClock
from spool.devices.device import PENDING, REVOKED, Device, change_for_existing_device
from spool.devices.table import DeviceTable
from spool.registry.scopes import ENROLL, HEARTBEAT
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.exporters.upstream import FakeUpstream, Received, Reply
from tests.waiting import until

QUICK = Backoff(first_s=0.01, most_s=0.05)


def device(id: str, **fields: Any) -> Device:
    return Device(**{"id": id, "enrolled_at": 1.0, "enrolled_by": "fleet", "last_seen": 1.0, **fields})


def beaten(one: Device, records: int = 1) -> Device:
    beat = json.dumps({"spool": {"records": records}}).encode()
    return one.with_changes_and_next_version(last_heartbeat=2.0, last_seen=2.0, heartbeat=beat)


@dataclass
class DeviceSite:
    """A device table with a fake upstream."""

    table: DeviceTable
    upstream: FakeUpstream
    secret: Path
    keys: tuple[UpstreamKey, ...]
    paths: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def syncing(self, *, tells_changes: bool = False) -> AsyncIterator[DeviceSync]:
        clock = SystemClock()
        settings = UpstreamSettings(base_url=self.upstream.url, timeout=30, keys=self.keys, paths=self.paths)
        client = build_client(settings, clock=clock)
        sync = DeviceSync(
            self.table,
            UpstreamClient(client, UpstreamPaths(settings), Keyring(self.keys)),
            clock=clock,
            tells_changes=tells_changes,
            backoff=QUICK,
        )
        task = asyncio.create_task(sync.run())
        try:
            yield sync
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await sync.close()

    def told(self) -> list[tuple[str, str]]:
        """Return the received requests: the last part of the path, and the device."""
        return [
            (one.path.rpartition("/")[2], json.loads(one.body)["device_id"]) for one in self.upstream.accepted
        ]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[DeviceSite]:
    secret = tmp_path / "plane.key"
    secret.write_text("plane-secret")
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    async with FakeUpstream() as upstream:
        key = UpstreamKey(name="plane", secret_file=secret, scopes=(ENROLL, HEARTBEAT))
        yield DeviceSite(table, upstream, secret, (key,))
    await table.close()


async def test_enrolment_is_sent_before_the_heartbeat(site: DeviceSite) -> None:
    """
    The enrolment is sent first, then the newest heartbeat with the device's report. Then nothing is sent
    until a change.
    """
    await site.table.replace_row(
        beaten(device("d1", hostname="mill", labels={"team": "search"}, fingerprint="f"), 7)
    )
    async with site.syncing() as sync:
        await until(lambda: sync.state().queued == 0)
        enrol, heartbeat = site.upstream.accepted
        facts = {"device_id": "d1", "hostname": "mill", "labels": {"team": "search"}, "fingerprint": "f"}
        assert enrol.path == "/v1/ai-control-plane/enroll"
        assert json.loads(enrol.body) == facts
        assert {**facts, "spool": {"records": 7}} == json.loads(heartbeat.body)
        assert {"plane-secret"} == {one.headers["authorization"] for one in (enrol, heartbeat)}
        before = site.table.find("d1")
        assert before is not None
        await site.table.replace_row(beaten(before, 8))
        await until(lambda: len(site.upstream.accepted) == 3)
        assert 8 == json.loads(site.upstream.accepted[2].body)["spool"]["records"]
    assert [("enroll", "d1"), ("heartbeat", "d1"), ("heartbeat", "d1")] == site.told()


async def test_newest_state_only(site: DeviceSite) -> None:
    """After an outage, only the newest of a hundred heartbeats of a device is sent upstream."""
    one = device("d1")
    for n in range(100):
        one = beaten(one, n)
        await site.table.replace_row(one)
    async with site.syncing() as sync:
        await until(lambda: sync.state().queued == 0)
    assert [("enroll", "d1"), ("heartbeat", "d1")] == site.told()
    assert 99 == json.loads(site.upstream.accepted[1].body)["spool"]["records"]


def has_accepted(site: DeviceSite, count: int) -> bool:
    return len(site.upstream.accepted) == count


async def test_a_device_that_only_pings(site: DeviceSite) -> None:
    """
    If a device only pings, the upstream still learns that it is alive. No old time is sent, which would look like a
    wrong clock.
    """
    beat = json.dumps({"sent_at": 2.0, "os": "debian 12"}).encode()
    await site.table.replace_row(
        device("d1").with_changes_and_next_version(last_heartbeat=2.0, last_seen=2.0, heartbeat=beat)
    )
    async with site.syncing() as sync:
        await until(lambda: sync.state().queued == 0)
        site.table.change_and_write_soon(
            "d1", lambda known: replace(known, last_seen=2.0 + device_sync.ALIVE_S - 1)
        )
        assert 0 == sync.state().queued
        for number in (1, 2):
            alive = partial(replace, last_seen=2.0 + number * device_sync.ALIVE_S)
            site.table.change_and_write_soon("d1", alive)
            await site.upstream.until(partial(has_accepted, site, 2 + number))
        await until(lambda: sync.state().queued == 0)
    assert ["enroll", "heartbeat", "heartbeat", "heartbeat"] == [stream for stream, _ in site.told()]
    first, *later = (json.loads(one.body) for one in site.upstream.accepted[1:])
    assert {"device_id": "d1", "sent_at": 2.0, "os": "debian 12"} == first
    assert [{"device_id": "d1", "os": "debian 12"}] * 2 == later


async def test_late_heartbeat_does_not_make_the_clock_seem_slow(site: DeviceSite) -> None:
    """
    If a heartbeat waited, the next Tollhouse gets the time that the device's clock shows now. Otherwise the clock
    would seem to be behind.
    """
    beat = json.dumps({"sent_at": 2.0, "os": "debian 12"}).encode()
    late = device("d1").with_changes_and_next_version(
        last_heartbeat=2.0, last_seen=2.0, heartbeat=beat, clock_offset_s=-7200.0
    )
    await site.table.replace_row(late)
    began = time.time()
    async with site.syncing(tells_changes=True) as sync:
        await until(lambda: sync.state().queued == 0)
    sent_at = [json.loads(one.body).get("sent_at") for one in site.upstream.accepted]
    assert [True] * len(sent_at[1:]) == [began <= at + 7200 <= time.time() for at in sent_at[1:]]
    assert sent_at[1:]


async def test_a_revocation_overtakes_a_fleet(site: DeviceSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revocation is sent before the heartbeats that wait, even if it happens while they are sent."""
    monkeypatch.setattr(device_sync, "ROUND_S", 0.0)
    lost = replace(beaten(device("lost")), upstream_id="lost", sent_version=99, last_seen=9e9)
    await site.table.replace_row(lost)
    await asyncio.gather(*(site.table.replace_row(beaten(device(f"d{n:03}"))) for n in range(200)))
    async with site.syncing(tells_changes=True) as sync:
        await until(lambda: len(site.upstream.accepted) >= 20)
        await site.table.update(
            "lost", change_for_existing_device(lambda known: replace(known, state=REVOKED, version=100))
        )
        sent = len(site.upstream.accepted)
        await until(lambda: ("enroll", "lost") in site.told())
        assert site.told().index(("enroll", "lost")) <= sent + 20
        assert sync.state().queued > 0


async def test_changed_facts_enrol_again_and_the_heartbeat_follows(site: DeviceSite) -> None:
    """
    If an operator labels a device, the device is enrolled upstream again with the label. Its heartbeat follows.
    """
    await site.table.replace_row(beaten(device("d1")))
    async with site.syncing() as sync:
        await until(lambda: sync.state().queued == 0)
        before = site.table.find("d1")
        assert before is not None
        await site.table.replace_row(
            before.with_changes_and_next_version(changes_enrolment=True, operator_labels={"team": "ads"})
        )
        await until(lambda: len(site.upstream.accepted) == 4)
        await until(lambda: sync.state().queued == 0)
    assert ["enroll", "heartbeat", "enroll", "heartbeat"] == [what for what, _ in site.told()]
    assert {"team": "ads"} == json.loads(site.upstream.accepted[2].body)["labels"]


async def test_heartbeats_name_the_device_by_the_upstreams_id(site: DeviceSite) -> None:
    """Heartbeats that are sent upstream name the device by the id that the upstream gave it."""
    answer = b'{"device": {"id": "up-77", "state": "enrolled"}}'
    site.upstream.judge = lambda request: Reply(200, answer, "application/json")
    await site.table.replace_row(beaten(device("d1")))
    async with site.syncing() as sync:
        await until(lambda: sync.state().queued == 0)
    assert [("enroll", "d1"), ("heartbeat", "up-77")] == site.told()
    kept = site.table.find("d1")
    assert kept is not None and "up-77" == kept.upstream_id


@pytest.mark.parametrize(("status", "type"), [(409, "another_fingerprint"), (403, "device_key_needed")])
async def test_a_refused_row_is_held_while_others_go_on(site: DeviceSite, status: int, type: str) -> None:
    """
    A refused row is held, and shows the upstream's message. It is tried again when the device's own data change.
    """
    words = json.dumps({"error": {"type": type, "message": "another device has this name"}}).encode()

    def judge(request: Received) -> Reply | None:
        body = json.loads(request.body)
        return (
            Reply(status, words, "application/json")
            if body["device_id"] == "d3" and "user" not in body
            else None
        )

    site.upstream.judge = judge
    for n in range(10):
        await site.table.replace_row(beaten(device(f"d{n}", last_seen=float(n))))
    async with site.syncing() as sync:
        await until(lambda: sync.state().queued == 1)
        held = site.table.find("d3")
        assert held is not None
        refused_key = " (key plane)" if status == 403 else ""
        assert held.held == f"{status} another device has this name{refused_key}"
        assert sync.state().refused == 1
        assert sync.state().state == "running"
        await site.table.replace_row(beaten(held))  # a heartbeat does not cause another attempt
        await site.table.replace_row(beaten(device("d10", last_seen=10.0)))
        await until(lambda: ("heartbeat", "d10") in site.told())
        assert 1 == sum(json.loads(one.body)["device_id"] == "d3" for one in site.upstream.requests)
        await site.table.replace_row(held.with_changes_and_next_version(changes_enrolment=True, user="ada"))
        await until(lambda: sync.state().queued == 0)
    kept = site.table.find("d3")
    assert kept is not None and kept.held is None


@pytest.mark.parametrize("status", [401, 403, 404, 405, 307])
async def test_a_refused_key_or_address_parks_the_sync(site: DeviceSite, status: int) -> None:
    """
    If the upstream refuses the key or the address, all rows wait, and no row is held for its own content. A
    changed secret file wakes the sync.
    """
    site.upstream.judge = lambda request: (
        Reply(status, b"no", "text/plain") if request.headers["authorization"] == "plane-secret" else None
    )
    for n in range(20):
        await site.table.replace_row(beaten(device(f"d{n}")))
    async with site.syncing() as sync:
        await until(lambda: sync.state().state == "parked")
        assert str(sync.state().reason).startswith(str(status))
        before = sync.secret_file_states()
        site.secret.write_text("another-secret")
        assert before != sync.secret_file_states()
        sync.retry_now()
        await until(lambda: sync.state().queued == 0)
        assert sync.state().state == "running"
        assert sync.state().reason is None
    assert sum(one.headers["authorization"] == "plane-secret" for one in site.upstream.requests) <= 4
    assert 40 == len(site.upstream.accepted)


async def test_no_key_covers_it(site: DeviceSite) -> None:
    """Without a key for the scope, nothing is sent, and the reason names the scope."""
    site.keys = ()
    await site.table.replace_row(device("d1"))
    async with site.syncing() as sync:
        await until(lambda: sync.state().state == "parked")
        assert ENROLL in str(sync.state().reason)
    assert [] == site.upstream.requests


async def test_pending_and_revoked_devices_stay_in_the_server(site: DeviceSite) -> None:
    """Pending and revoked devices are sent only after an operator approves them."""
    await site.table.replace_row(device("pending", state=PENDING))
    await site.table.replace_row(beaten(device("revoked", state=REVOKED)))
    await site.table.replace_row(device("d1"))
    async with site.syncing() as sync:
        await until(lambda: sync.state().queued == 0)
        assert [("enroll", "d1")] == site.told()
        await site.table.replace_row(replace(device("pending"), version=2, facts_version=2))
        await until(lambda: len(site.upstream.accepted) == 2)


@pytest.mark.parametrize(
    "reply", [Reply(503), Reply(500), Reply(429, headers={"Retry-After": "0"}), Reply(drop=True)]
)
async def test_passing_failures_are_tried_again(site: DeviceSite, reply: Reply) -> None:
    """After no answer, a 429 or a 5xx, the sync tries again later and everything arrives."""
    site.upstream.answers.extend([reply] * 5)
    for n in range(5):
        await site.table.replace_row(beaten(device(f"d{n}")))
    async with site.syncing() as sync:
        await until(lambda: sync.state().queued == 0)
        assert sync.state().state == "running"
        assert sync.state().reason is None
    told = site.told()
    for n in range(5):
        assert ["enroll", "heartbeat"] == [what for what, id in told if id == f"d{n}"]


async def test_an_empty_path_sends_nothing(site: DeviceSite) -> None:
    """With an empty path the operator switched the stream off, so the sync is parked with that reason."""
    site.paths = {"enroll": ""}
    await site.table.replace_row(device("d1"))
    async with site.syncing() as sync:
        await until(lambda: sync.state().state == "parked")
    assert [] == site.upstream.requests


@pytest.mark.parametrize("is_tollhouse", [True, False])
async def test_a_cost_service_gets_no_times_of_uses(site: DeviceSite, *, is_tollhouse: bool) -> None:
    published = {"status": "reporting", "version": "2.1.332"}
    uses = {"use": "losing", "state_since": 1, "unheard_since": 2, "heard_at": 3, "slots": {}}
    policy = {"sha256": "ab" * 32, "number": 7}
    beat = json.dumps(
        {"assistants": {"claude-code": published | uses}, "policy": policy, "serial_hash": "cd" * 32}
    ).encode()
    await site.table.replace_row(
        device("d1").with_changes_and_next_version(last_heartbeat=2.0, last_seen=2.0, heartbeat=beat)
    )
    async with site.syncing(tells_changes=is_tollhouse) as sync:
        await until(lambda: sync.state().queued == 0)
        sent = json.loads(site.upstream.accepted[1].body)
    assistants = sent["assistants"]
    assert is_tollhouse == ("number" in sent["policy"]) == ("serial_hash" in sent)
    assert {"claude-code": published | (uses if is_tollhouse else {})} == assistants
