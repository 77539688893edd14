"""
`python -m tests.bench.growth.console` measures pages of the console in Chromium over a year of stored calls, and
over the demo in the same run.

The calls are stored in batches by the functions of the storage, so every page shows records and not only totals.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
from playwright.sync_api import Browser, sync_playwright

from spool.identity import RecordIdentity
from spool.ledger.sums import DAY_S
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, Inference
from tests.acceptance.conftest import Tollhouse
from tests.bench.growth.year import settle
from tests.bench.server.backlog import opened_storage
from tests.bench.server.meters import busy_seconds, cpu_seconds
from tests.bench.server.table import machine
from tests.browser.console import MONTH, WIDE, Console, filled, launched
from tests.moved_clock import MovedClock

PAGES = ("/", "/costs", "/calls", "/reconciliation", "/insights", "/fleet")
DAYS_PER_COUNT = 30
USERS, TEAMS, MODELS, PULL_REQUESTS = 500, 20, 20, 2000
# the requests since the page was loaded, those that the network carried, and their bytes
_TRANSFERRED = """() => {
  const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const carried = all.map((each) => each.transferSize).filter(Boolean);
  return [all.length, carried.length, carried.reduce((sum, size) => sum + size, 0)];
}"""


def store_calls(directory: Path, calls: int, days: int) -> None:
    """Store calls that are spread evenly over the days before now, and count them."""
    asyncio.run(_store_calls(directory, calls, days))


async def _store_calls(directory: Path, calls: int, days: int) -> None:
    chance, begin = random.Random(calls), time.time() - days * DAY_S
    clock = MovedClock(begin)
    async with opened_storage(directory, clock) as storage:
        for day in range(days):
            numbers = range(calls * day // days, calls * (day + 1) // days)
            records = [stored_call(n, chance, begin + DAY_S * days * n / calls) for n in numbers]
            clock.move(DAY_S)  # the calls of a day arrive at its end
            await storage.log.append_submission(
                Submission(
                    topic=AI_TELEMETRY,
                    received=len(records),
                    records=records,
                    identities=[RecordIdentity(record.id) for record in records],
                )
            )
            if day % DAYS_PER_COUNT == 0:
                await storage.ledger.catch_up(storage.log)
                click.echo(f"{numbers.start:,} calls", err=True)
        await storage.ledger.catch_up(storage.log)
        await storage.ledger.sum_up_and_delete_hours()


def stored_call(number: int, chance: random.Random, at: float) -> Inference:
    start, user = int(at * NS), int(USERS * chance.random() ** 2)
    model = f"model-{int(MODELS * chance.random() ** 2):02}"
    tags = {"service": "shop"}
    if number % 20 == 0:
        tags["pull_request"] = f"acme/shop#{number % PULL_REQUESTS}"
    return Inference(
        id=number.to_bytes(16, "big"),
        request_id=f"chatcmpl-{number:024d}",
        source="otel_genai",
        start_time=start,
        end_time=start + 900_000_000,
        provider=f"provider-{len(model) + int(model[-1]) % 3}",
        operation="chat",
        request_model=model,
        response_model=model,
        input_tokens=1200 + number % 777,
        output_tokens=80,
        team=f"team-{user % TEAMS:02}",
        user=f"user-{user:03}",
        session=f"conversation-{number // 50}",
        api_key="load",
        cost=f"0.{chance.randrange(1, 9999):04}",
        cost_source="reported",
        tags=tags,
    )


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A visit of a page. `ms` are from the navigation until it has its data and nothing is loading."""

    requests: int
    carried: int
    kilobytes: float
    ms: float
    cpu_ms: float  # processor time of the server


def visit(console: Console, page: str) -> Visit:
    assert console.tollhouse.process is not None
    pid = console.tollhouse.process.pid
    console.page.goto("about:blank")
    before, begun = cpu_seconds(pid), time.perf_counter()
    console.page.goto(f"{console.url}/console/#{page}")
    console.settle()
    ms = 1000 * (time.perf_counter() - begun)
    requests, carried, size = console.page.evaluate(_TRANSFERRED)
    return Visit(
        requests=requests,
        carried=carried,
        kilobytes=size / 1000,
        ms=ms,
        cpu_ms=1000 * (cpu_seconds(pid) - before),
    )


def visits(browser: Browser, house: Tollhouse, rounds: int) -> Mapping[str, Sequence[tuple[Visit, Visit]]]:
    """Return by page the visits of each round: the first with a new browser, and the second one."""
    found: dict[str, list[tuple[Visit, Visit]]] = {page: [] for page in PAGES}
    for page in PAGES * (rounds + 1):  # the first round imports what the server has not used yet
        with browser.new_context(viewport=WIDE, reduced_motion="reduce") as context:
            console = Console(context, house)
            console.sign_in()
            found[page].append((visit(console, page), visit(console, page)))
    return found


def shown(visits: Sequence[Visit]) -> str:
    first = visits[0]
    return (
        f"{first.requests} / {first.carried} | {first.kilobytes:.0f} | {median(one.ms for one in visits):.0f} | "
        f"{median(one.cpu_ms for one in visits):.0f}"
    )


def table(
    of_year: Mapping[str, Sequence[tuple[Visit, Visit]]], of_demo: Mapping[str, Sequence[tuple[Visit, Visit]]]
) -> str:
    lines = [
        "| page | ms, server's first | requests / carried | KB | ms | server ms | second: requests / carried | KB | ms "
        "| server ms | times the demo's ms |",
        "|---" * 11 + "|",
    ]
    for page in PAGES:
        [(server_first, _), *rounds] = of_year[page]
        new, second = zip(*rounds, strict=True)
        demo = median(one.ms for one, _ in of_demo[page][1:])
        ratio = median(one.ms for one in new) / demo
        lines.append(f"| {page} | {server_first.ms:.0f} | {shown(new)} | {shown(second)} | {ratio:.2f} |")
    return "\n".join(lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--calls", default=1_000_000, show_default=True)
@click.option("--days", default=365, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option(
    "--keep", type=click.Path(path_type=Path), help="A directory with the calls, for the next time."
)
def console(calls: int, days: int, rounds: int, keep: Path | None) -> None:
    """Open pages of the console over a year of stored calls, and over the demo."""
    with tempfile.TemporaryDirectory() as place:
        year = Tollhouse((keep or Path(place)) / str(calls), MONTH)
        if not (year.directory / "whole").exists():
            store_calls(year.directory, calls, days)
            (year.directory / "whole").touch()
        houses = (year, filled(Path(place) / "demo"))
        for house in houses:
            house.start(is_new=True)
        try:
            with ThreadPoolExecutor(
                1
            ) as thread:  # a separate thread, because a command runs its own event loop
                thread.submit(asyncio.run, _settle(houses)).result()
            before, begun = busy_seconds(), time.perf_counter()
            with sync_playwright() as playwright, launched(playwright) as browser:
                found = [visits(browser, house, rounds) for house in houses]
            cores = (busy_seconds() - before) / (time.perf_counter() - begun)
        finally:
            for house in houses:
                house.stop()
    click.echo(" ".join(f"{key} {value}," for key, value in machine().items()).rstrip(","))
    click.echo(f"{calls:,} calls of {days} days; all programs used {cores:.2f} cores\n\n{table(*found)}")


async def _settle(houses: Sequence[Tollhouse]) -> None:
    await asyncio.gather(*(settle(house.process.pid) for house in houses if house.process is not None))


if __name__ == "__main__":
    console(prog_name="python -m tests.bench.growth.console")
