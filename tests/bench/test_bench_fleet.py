"""
The fleet with 10,000 devices and 60,000 states of assistants: time of coverage, of list pages and of an import.

Devices report between the requests, so not all states can be reused. `TOLLHOUSE_PROOFS=1` runs the whole fleet. The
limits are of processor time, which other programs on the machine change little; the times on the clock are printed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from gateway.devices.fleet.heartbeat_facts import CAUSES
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.normalise.assistants import ASSISTANTS
from spool.devices.device import Device
from tests.integration.operations.server import operator_server
from tests.rounds import IS_LONG

DEVICES, ROUNDS, MACHINES = (10_000, 40, 20_000) if IS_LONG else (500, 3, 1_000)
REPORTS = DEVICES // 100  # devices that report between two requests
# generous limits for a short round, which only shows that the test runs
MAX_P95_S, MAX_IMPORT_S = (0.3, 5.0) if IS_LONG else (10.0, 30.0)
QUERIES = (
    {"limit": "100"},
    {"limit": "100", "state": "losing", "sort_key": "last_seen", "sort_order": "desc"},
    {"limit": "100", "cause": "codex.overridden.project"},
    {"limit": "100", "team": "team-3", "system": "macos"},
)


def device(number: int, now: float) -> Device:
    claims = {}
    for place, name in enumerate(ASSISTANTS):
        state = list(CAUSES)[(number + place) % len(CAUSES)]
        causes = CAUSES[state] or ("",)
        claims[name] = {
            "state": state,
            "version": "1.2.3",
            **({"cause": causes[number % len(causes)]} if causes[0] else {}),
        }
    facts = {"assistants": claims, "serial": f"S{number}", "os": "macos 26.1" if number % 2 else "windows 11"}
    return Device(
        id=f"laptop-{number}", hostname=f"laptop-{number}", labels={"team": f"team-{number % 40}"},
        user=f"user-{number}",
        enrolled_at=now - 86_400, enrolled_by="fleet", last_seen=now, last_heartbeat=now,
        newest_calls={"codex": now} if number % 3 else {}, heartbeat=json.dumps(facts).encode(),
    )  # fmt: skip


def inventory() -> bytes:
    """Return an export of Intune with its many columns."""
    more = [f"Column {number}" for number in range(40)]
    head = ["Device name", "Serial number", "Primary user UPN", "Category", "OS", "Last check-in", *more]
    rows = (
        [
            f"laptop-{n}",
            f"S{n}",
            f"user-{n}@example.com",
            f"team-{n % 40}",
            "Windows",
            "2026-11-26 08:30:00.1234567",
        ]
        + ["some text"] * len(more)
        for n in range(MACHINES)
    )
    return "\n".join(",".join(row) for row in (head, *rows)).encode()


def report(lifecycle: DeviceLifecycle, round: int, now: float) -> None:
    """Let some devices send a heartbeat and a call."""
    for number in range(round * REPORTS, (round + 1) * REPORTS):
        fresh = device(number % DEVICES, now)

        def reported(known: Device, fresh: Device = fresh) -> Device:
            return replace(known, last_seen=now, heartbeat=fresh.heartbeat, newest_calls={"codex": now})

        lifecycle.table.change_and_write_soon(fresh.id, reported)


class Times:
    """Seconds on the clock and of the processor, of the server and its client together."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.processor: list[float] = []

    @contextmanager
    def one(self) -> Iterator[None]:
        began, used = time.perf_counter(), time.process_time()
        yield
        self.clock.append(time.perf_counter() - began)
        self.processor.append(time.process_time() - used)

    @property
    def p95(self) -> float:
        return _p95(self.processor)

    def __str__(self) -> str:
        return f"{self.p95 * 1000:.0f} ms of the processor ({_p95(self.clock) * 1000:.0f} ms on the clock)"


def _p95(times: list[float]) -> float:
    return sorted(times)[ceil(0.95 * len(times)) - 1]


@pytest.mark.bench
async def test_a_large_fleet(tmp_path: Path) -> None:
    async with operator_server(tmp_path) as server:
        lifecycle = server.services.senders.require_devices()
        now = server.clock.now()
        for number in range(DEVICES):
            lifecycle.table._put_in_memory(f"laptop-{number}", device(number, now))
        content = inventory()
        imported, first, coverage, pages = Times(), Times(), Times(), Times()
        with imported.one():
            answer = await server.ask("PUT", "/fleet/inventory", content, source="intune")
        assert (200, MACHINES) == (answer.status, answer.payload["added"])
        for round in range(ROUNDS + 1):
            with coverage.one() if round else first.one():
                answer = await server.ask("GET", "/fleet/coverage")
            assert (MACHINES, DEVICES) == (answer.payload["machines"], answer.payload["enrolled_devices"])
            for query in QUERIES:
                with pages.one():
                    answer = await server.ask("GET", "/fleet/devices", **query)
                assert answer.payload["devices"]
            server.clock.move(1)
            report(lifecycle, round, server.clock.now())
    states = DEVICES * len(ASSISTANTS)
    print(f"\n{DEVICES:,} devices, {states:,} states, {MACHINES:,} machines in {len(content) / 1e6:.1f} MB")
    print(f"import: {imported}\nfirst coverage: {first}\np95 of coverage: {coverage}\np95 of a page: {pages}")
    assert imported.p95 <= MAX_IMPORT_S
    assert max(coverage.p95, pages.p95) <= MAX_P95_S
