"""
`python -m tests.bench.growth.fleet` measures a real server with a fleet: its memory after every device reported, and
processor time and memory of the pages of the fleet and of a search.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from urllib3.exceptions import HTTPError

from gateway.normalise.assistants import ASSISTANTS
from spool.devices.device import Device
from spool.registry.scopes import ENROLL, HEARTBEAT
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post
from tests.bench.server.backlog import opened_storage
from tests.bench.server.meters import cpu_seconds, resident_mib

HEARTBEATS = "/v1/ai-control-plane/heartbeat"
CONFIG = '[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = ""\n'
TEAMS, BATCH, THREADS = 40, 500, 4
SEARCHES = ("laptop-001234", "user-77", "e", "no such name")


def device_id(number: int) -> str:
    return f"laptop-{number:06d}"


def serial(number: int) -> str:
    return f"C02{number:09d}"


def labels(number: int) -> dict[str, str]:
    return {"team": f"team-{number % TEAMS}", "cost_center": f"cc-{number % 100}"}


async def enrol(directory: Path, devices: int) -> None:
    """Enrol the devices with their labels and a call of each second assistant, while no server runs."""
    now = time.time()
    async with opened_storage(directory) as storage:
        for first in range(0, devices, BATCH):
            rows = (
                Device(
                    id=device_id(n),
                    hostname=device_id(n),
                    labels=labels(n),
                    has_key=True,
                    enrolled_at=now - 86_400,
                    enrolled_by="fleet",
                    last_seen=now - 3600,
                    newest_calls=dict.fromkeys(ASSISTANTS[::2], now - 3600),
                )
                for n in range(first, min(devices, first + BATCH))
            )
            await asyncio.gather(*map(storage.devices.replace_row, rows))


def heartbeat(number: int) -> bytes:
    claims = {name: {"state": "reporting", "version": "1.2.3", "use": "heard"} for name in ASSISTANTS}
    body = {
        "device_id": device_id(number),
        "hostname": device_id(number),
        "platform": "macos",
        "agent_version": "1.4.0",
        "user": f"user-{number}@example.com",
        "labels": labels(number),
        "sent_at": time.time(),
        "spool": {"records": 0, "oldest_age_s": 0.0},
        "serial": serial(number),
        "os": "macos 26.1",
        "assistants": claims,
    }
    return json.dumps(body).encode()


def inventory(machines: int) -> str:
    head = "serial number,computer name,email address,department,operating system,last check-in\n"
    rows = (
        f"{serial(n)},{device_id(n)}.example.com,user-{n}@example.com,team-{n % TEAMS},macOS 26.1,"
        "2026-11-26 08:30:00"
        for n in range(machines)
    )
    return head + "\n".join(rows)


class Meter:
    """Processor time and memory of the server, printed a line a step."""

    def __init__(self, house: Tollhouse) -> None:
        assert house.process is not None
        self._pid = house.process.pid

    def step(self, words: str, work: Callable[[], object]) -> None:
        cpu, begun = cpu_seconds(self._pid), time.perf_counter()
        before = resident_mib(self._pid)
        work()
        seconds = time.perf_counter() - begun
        cpu = cpu_seconds(self._pid) - cpu
        after = resident_mib(self._pid)
        click.echo(
            f"{words:32} CPU {cpu:6.2f} s, clock {seconds:6.2f} s, {after:6.1f} MiB ({after - before:+.1f})"
        )


def report_all(house: Tollhouse, key: str, devices: int) -> None:
    def beat(number: int) -> int:
        for _ in range(20):
            try:
                status = post(house.url, heartbeat(number), key, path=HEARTBEATS).status
            except HTTPError:
                continue
            if status not in (429, 503):
                return status
            time.sleep(0.5)
        return 0

    with ThreadPoolExecutor(THREADS) as threads:
        assert {200} == set(threads.map(beat, range(devices)))


def measure(directory: Path, devices: int, *, has_inventory: bool) -> None:
    house = Tollhouse(directory, CONFIG)
    asyncio.run(enrol(directory, devices))
    key = house.key("fleet", "--scope", ENROLL, "--scope", HEARTBEAT)
    house.start(is_new=True)
    try:
        meter = Meter(house)
        meter.step("start", lambda: time.sleep(3))
        if has_inventory:
            file = directory / "list.csv"
            file.write_text(inventory(devices))
            words = ("fleet", "inventory", "import", str(file), "--source", "jamf")
            meter.step("import of the inventory", lambda: house.json(*words))
        for again in ("first", "second"):
            meter.step(f"{again} report of all devices", lambda: report_all(house, key, devices))
        for text in SEARCHES:
            path = f"/search?q={text.replace(' ', '+')}"
            meter.step(f"search: {text}", lambda path=path: house.asked(path))  # type: ignore[misc]
        for path in ("/fleet/coverage", "/fleet/devices?limit=50", "/devices?limit=50"):
            for again in ("first", "second"):
                meter.step(f"{path}, {again}", lambda path=path: house.asked(path))  # type: ignore[misc]
        for text in SEARCHES:
            path = f"/search?q={text.replace(' ', '+')}"
            meter.step(f"search after the pages: {text}", lambda path=path: house.asked(path))  # type: ignore[misc]
        meter.step("further report of all devices", lambda: report_all(house, key, devices))
        meter.step("/fleet/devices?limit=50", lambda: house.asked("/fleet/devices?limit=50"))
        meter.step("rest of 60 s", lambda: time.sleep(60))
    finally:
        house.stop()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--devices", default=10_000, show_default=True)
@click.option("--inventory/--no-inventory", "has_inventory", default=True, show_default=True)
@click.option("--rounds", default=1, show_default=True)
def fleet(devices: int, has_inventory: bool, rounds: int) -> None:
    """Start a server with a fleet, let all devices report, and query it."""
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            click.echo(f"{devices:,} devices, {'an' if has_inventory else 'no'} inventory")
            measure(Path(place), devices, has_inventory=has_inventory)


if __name__ == "__main__":
    fleet(prog_name="python -m tests.bench.growth.fleet")
