"""
A fleet whose gateway is away for half an hour: coverage is the same before, at the start and after the return, and no
insight appears. If nothing is reported any more, both are equal at every hour of a week.

`make proofs` has 10,000 laptops. The used processor time is printed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gateway.devices.fleet.assistant_states import WAITS_ON_LAPTOP
from gateway.devices.fleet.fleet import Fleet
from gateway.devices.lifecycle import SCOPES, DeviceLifecycle
from gateway.devices.reports import DeviceReport
from gateway.money.insights.detector_facts import InsightFacts
from gateway.money.insights.detectors import fleet as detectors
from gateway.normalise.assistants import ASSISTANTS
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import Device
from spool.record import utc_iso
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG

DEVICES = 10_000 if IS_LONG else 200
AT_ONCE, OUTAGE_S, HOUR = 500, 1800.0, 3600.0
WAITING = sorted(WAITS_ON_LAPTOP)
# the laptops with these last digits of their numbers lose calls, are at risk, or are not used
LOSES, AT_RISK, UNUSED = 1, 2, 3


def claims(number: int, *, waits: bool) -> dict[str, dict[str, str]]:
    """Return what the probe of a laptop says. With `waits`, the calls of the outage wait on it."""
    fine = {"state": "reporting", "use": "heard"}
    found = {name: dict(fine) for name in ASSISTANTS}
    kind = number % 10
    if kind == UNUSED:
        return {name: {"state": "unused", "use": "none"} for name in ASSISTANTS}
    if waits:
        found["copilot"] = {"state": "unreachable", "cause": WAITING[number % len(WAITING)], "use": "heard"}
    if kind == LOSES:
        found["codex"] = {"state": "overridden", "cause": "environment", "use": "losing"}
    if kind == AT_RISK:
        found["codex"] = {"state": "not_configured", "cause": "no_policy", "use": "none"}
    return found


class Site:
    """A gateway and its laptops."""

    def __init__(self, server: OperatorServer) -> None:
        self.server = server
        self.clock: MovedClock = server.clock
        self.lifecycle: DeviceLifecycle = server.services.senders.require_devices()

    async def enrol(self) -> None:
        now = self.clock.now()
        ids = [f"laptop-{number}" for number in range(DEVICES)]
        devices = [
            Device(
                id=id,
                hostname=id,
                labels={"team": f"team-{number % 40}"},
                has_key=True,
                key_used=True,
                enrolled_at=now,
                enrolled_by="fleet",
                last_seen=now,
            )
            for number, id in enumerate(ids)
        ]
        for first in range(0, DEVICES, AT_ONCE):
            await asyncio.gather(*map(self.lifecycle.table.replace_row, devices[first : first + AT_ONCE]))

    async def report(self, *, waits: bool) -> None:
        for first in range(0, DEVICES, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, DEVICES))
            await asyncio.gather(*(self._beat(number, waits=waits) for number in numbers))

    async def _beat(self, number: int, *, waits: bool) -> None:
        now = self.clock.now()
        facts = {
            "sent_at": utc_iso(now),
            "spool": {"records": 9 if waits else 0, "oldest_age_s": OUTAGE_S if waits else 0.0},
            "assistants": claims(number, waits=waits),
        }
        id, body = f"laptop-{number}", msgspec.json.encode(facts)
        report = DeviceReport(id=id, hostname=id, sent_at=now, heartbeat=body)
        await self.lifecycle.store_heartbeat_and_issue_token(report, bearer(id), "")

    def call(self) -> None:
        """Let a call of each assistant arrive that is used and set up."""
        now = self.clock.now()
        for device in self.lifecycle.table.all():
            kind = int(device.id.rpartition("-")[2]) % 10
            used = [] if kind == UNUSED else [name for name in ASSISTANTS if name != "codex" or kind > UNUSED]
            self.lifecycle.note_telemetry(device, dict.fromkeys(used, now), bearer(device.id))

    def restart(self) -> None:
        """Let a process begin that remembers no state."""
        senders = self.server.services.senders
        before = self.lifecycle
        self.lifecycle = DeviceLifecycle(
            before.table, settings=before.settings, clock=self.clock, secret=self.server.storage.secret
        )
        inventory = self.server.registry.inventory
        object.__setattr__(senders, "devices", self.lifecycle)
        object.__setattr__(senders, "fleet", Fleet(self.lifecycle, lambda: inventory.current))

    async def figures(self) -> tuple[int, int, int, frozenset[str]]:
        """Return the machines, how many are covered and offline, and the texts of insights."""
        answer = await self.server.ask("GET", "/fleet/coverage")
        fleet = self.server.services.senders.require_fleet()
        facts = InsightFacts(now=self.clock.now(), fleet=await fleet.machine_rows_in_use())
        each = (detectors.fleet_losing, detectors.stopped_agent)
        titles = frozenset(finding.draft.description for detector in each for finding in detector(facts))
        found = answer.payload
        return found["machines"], found["covered"], found["offline"], titles


def bearer(id: str) -> AuthenticatedKey:
    return AuthenticatedKey(f"device {id}", SCOPES, device=id)


@contextmanager
def printed(what: str) -> Iterator[None]:
    began = time.process_time()
    yield
    print(f"{what}: {time.process_time() - began:.3f} s of the processor")


@pytest.mark.proof
async def test_neither_an_outage_nor_the_hour_changes_coverage_or_insights(tmp_path: Path) -> None:
    print(f"\n{DEVICES:,} laptops with {len(ASSISTANTS)} assistants")
    async with operator_server(tmp_path) as server:
        site = Site(server)
        await site.enrol()
        await site.report(waits=False)
        site.call()
        machines, covered, offline, titles = await site.figures()
        assert (DEVICES, DEVICES * 8 // 10, 0) == (machines, covered, offline)
        assert titles
        site.clock.move(OUTAGE_S)
        site.restart()
        with printed("coverage at the start"):
            await server.ask("GET", "/fleet/coverage")
        assert (machines, covered, 0, titles) == await site.figures()
        site.clock.move(60)
        with printed("return of all laptops"):
            await site.report(waits=True)
        with printed("calls of all laptops"):
            site.call()
        with printed("coverage after the return"):
            await server.ask("GET", "/fleet/coverage")
        with printed("coverage again"):
            await server.ask("GET", "/fleet/coverage")
        with printed("100 rows"):
            await server.ask("GET", "/fleet/devices", limit="100")
        assert (machines, covered, 0, titles) == await site.figures()
        site.clock.move(300)
        await site.report(waits=False)
        assert (machines, covered, 0, titles) == await site.figures()
        for _ in range(7 * 24):  # a week in which nothing is reported
            site.clock.move(HOUR)
            assert (machines, covered, DEVICES, titles) == await site.figures()
