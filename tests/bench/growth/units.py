"""
`python -m tests.bench.growth.units` measures the queries about sessions, runs and pull requests over a month of calls.

The sums are written by the methods that count calls. A session has two runs, the second started by the first, and
each run five calls. Twenty sessions work on one pull request.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import click

from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows, WorkSum
from spool.ledger.queries import CostQuery
from spool.ledger.sums import COUNTS, DAY_S, HOUR_S, LATENCY, Dimensions, Measures
from spool.ledger.work import RUN, SESSION, WorkUnitHasher, names_to_store
from spool.money import UNIT
from spool.sqlite.directory import LEDGER
from spool.sqlite.ledger import open_ledger
from tests.bench.server.meters import forget_peak, peak_mib
from tests.bench.server.table import machine
from tests.spool.ledger_log import FakeClock

END = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
DAYS = 30
RUNS_A_SESSION, CALLS_A_RUN, SESSIONS_A_PULL_REQUEST = 2, 5, 20
USERS, TEAMS, REPOSITORIES = 2_000, 20, 200
AGENTS = ("planner", "coder", "reviewer", "tester", *(f"agent-{number}" for number in range(16)))
MODELS = ("claude-opus-5", "claude-sonnet-5", "gpt-5", "gemini-3-pro")


def sessions(count: int) -> Iterator[tuple[int, list[WorkSum], dict[int, str], list[Dimensions]]]:
    """Yield for each day the sums of its sessions, by positions in a list of sets of dimensions."""
    chance, digests = random.Random(1), WorkUnitHasher(b"")
    number = 0
    for day in range(DAYS):
        sums: list[WorkSum] = []
        names: dict[int, str] = {}
        places: dict[Dimensions, int] = {}
        for _ in range(count // DAYS + (day < count % DAYS)):
            number += 1
            user = min(int(chance.expovariate(4) * USERS), USERS - 1)
            tags = {
                "repository": f"acme/shop-{number % REPOSITORIES}",
                "branch": f"feature-{number // SESSIONS_A_PULL_REQUEST}",
                "pull_request": f"acme/shop#{number // SESSIONS_A_PULL_REQUEST}",
            }
            hour = END - (DAYS - day) * DAY_S + chance.randrange(7, 19) * HOUR_S
            for run in range(RUNS_A_SESSION):
                parent = f"run-{number}-0" if run else None
                units = digests.hash_units(f"session-{number}", f"run-{number}-{run}", parent, tags)
                names |= names_to_store(units, tags)
                agent = AGENTS[min(int(chance.expovariate(0.3)), len(AGENTS) - 1)]
                values = dimensions(user, agent, chance.choice(MODELS))
                place = places.setdefault(values, len(places))
                first = min(CALLS_A_RUN, 1 + int(chance.expovariate(0.4)))
                cost = int(chance.paretovariate(1.5) * UNIT) // 50
                for at, calls in ((hour, first), (hour + HOUR_S, CALLS_A_RUN - first)):
                    if calls:
                        sums.append((at, units, place, measures(calls, cost)))
        yield day, sums, names, [*places]


def dimensions(user: int, agent: str, model: str) -> Dimensions:
    team = f"team-{user % TEAMS}"
    return Dimensions(
        "call", "claude_code", "anthropic", model, model, team, f"user-{user}", "", team,
        f'{{"agent": "{agent}"}}', "ok", "reported", "", 0, "", "laptops",
    )  # fmt: skip


def measures(calls: int, cost: int) -> Measures:
    counts = [calls, calls * 1200, calls * 300, *(0 for _ in COUNTS[3:])]
    return [*counts, calls * cost, calls * cost, *(calls for _ in LATENCY)]


async def fill(ledger: Ledger, count: int) -> None:
    """Write the sums of `count` sessions into a new ledger."""
    for _, sums, names, known in sessions(count):

        def work(
            ledger_rows: LedgerRows,
            sums: list[WorkSum] = sums,
            names: Mapping[int, str] = names,
            known: Sequence[Dimensions] = known,
        ) -> None:
            numbers = ledger_rows.find_or_assign_dimension_set_numbers(known)
            hours = defaultdict[tuple[int, int], list[Measures]](list)
            for start, _, place, each in sums:
                hours[start, numbers[place]].append(each)
            ledger_rows.add_sums(
                HOUR_S, [(*at, list(map(sum, zip(*all, strict=True)))) for at, all in hours.items()]
            )
            ledger_rows.add_unit_sums(
                [(start, units, numbers[place], each) for start, units, place, each in sums], names
            )

        await ledger._store.change(work)


@dataclass(kw_only=True)
class Question:
    """A query described in words, with as many variants as there are rounds."""

    words: str
    queries: Sequence[CostQuery]
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    peak_mib: float = 0.0

    @property
    def p95_s(self) -> float:
        return sorted(self.cpu_s)[max(0, -(-len(self.cpu_s) * 95 // 100) - 1)]


def questions(count: int, rounds: int) -> list[Question]:
    """Return the questions of people about units of work, each with other days or other units in each round."""
    chance = random.Random(2)
    month = (END - DAYS * DAY_S, END)
    days = [(END - (1 + day) * DAY_S, END - day * DAY_S) for day in chance.choices(range(20), k=rounds)]
    weeks = [(since - 6 * DAY_S, until) for since, until in days]
    pulls = [f"acme/shop#{chance.randrange(count // SESSIONS_A_PULL_REQUEST + 1)}" for _ in days]

    def each(words: str, times: Sequence[tuple[int, int]], by: str, **more: object) -> Question:
        return Question(words=words, queries=[query(span, by, **more) for span in times])

    def query(span: tuple[int, int], by: str, **more: object) -> CostQuery:
        since, until = (datetime.fromtimestamp(at, UTC) for at in span)
        return CostQuery(
            since=since,
            until=until,
            granularity=TOTAL,
            group_by=(by,),
            measures=("cost", "calls"),
            **more,  # type: ignore[arg-type]
        )

    agent = {"include": {"tag:agent": ("reviewer",)}}
    asked = [
        each("top sessions of a day", days, SESSION, top=20),
        each("top runs of a day", days, RUN, top=20),
        each("top runs of a day, aggregated", days, RUN, top=20, aggregated=True),
        each("top pull requests of a day", days, "pull_request", top=20),
        each("runs of an agent in a day", days, RUN, top=20, aggregated=True, **agent),
        each("top sessions of a week", weeks, SESSION, top=20),
        each("top pull requests of a week", weeks, "pull_request", top=20),
        each("top sessions of the month", [month] * rounds, SESSION, top=20),
        each("top runs of the month, aggregated", [month] * rounds, RUN, top=20, aggregated=True),
        each("top pull requests of the month", [month] * rounds, "pull_request", top=20),
    ]
    of_pull = [query(month, SESSION, include={"pull_request": (name,)}) for name in pulls]
    asked.insert(4, Question(words="sessions of a pull request", queries=of_pull))
    of_runs = [query(month, RUN, include={"pull_request": (name,)}, aggregated=True) for name in pulls]
    asked.insert(5, Question(words="runs of a pull request, aggregated", queries=of_runs))
    return asked


async def measure(directory: Path, count: int, rounds: int, words: str = "") -> list[Question]:
    ledger = await open_ledger(directory, clock=FakeClock(END - HOUR_S), tags=("agent",))
    try:
        began = process_time()
        if not await ledger.costs(questions(count, 1)[0].queries[0]):
            await fill(ledger, count)
            click.echo(f"filled in {process_time() - began:.0f} s of processor time", err=True)
        asked = [each for each in questions(count, rounds) if words in each.words]
        for each in asked:
            forget_peak(os.getpid())
            for query in each.queries:
                began_cpu, began_wall = process_time(), perf_counter()
                await ledger.costs(query)
                each.cpu_s.append(process_time() - began_cpu)
                each.wall_s.append(perf_counter() - began_wall)
            each.peak_mib = peak_mib(os.getpid())
            click.echo(f"{each.words}: {median(each.cpu_s):.3f} s", err=True)
    finally:
        await ledger.close()
    return asked


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sessions", "count", default=1_000_000, show_default=True, help="Sessions in the month.")
@click.option("--rounds", default=5, show_default=True, help="How often each query is asked.")
@click.option("--only", default="", help="Ask only the queries with these words.")
@click.option("--kept", type=click.Path(path_type=Path), help="Keep the totals here, and use them again.")
def main(count: int, rounds: int, only: str, kept: Path | None) -> None:
    """Ask about units of work of a month, and print the processor time of each query."""
    with tempfile.TemporaryDirectory() as directory:
        asked = asyncio.run(measure(kept or Path(directory), count, rounds, only))
        size = ((kept or Path(directory)) / LEDGER).stat().st_size
    click.echo(
        f"{count:,} sessions, {size / 1e6:,.0f} MB, {size / count / RUNS_A_SESSION / CALLS_A_RUN:.0f} bytes a call,"
        f" {machine()}"
    )
    for each in asked:
        figures = (
            f"{median(each.cpu_s):.3f} | {each.p95_s:.3f} | {max(each.wall_s):.3f} | {each.peak_mib:.0f}"
        )
        click.echo(f"| {each.words} | {figures} |")


if __name__ == "__main__":
    main()
