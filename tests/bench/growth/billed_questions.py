"""
`python -m tests.bench.growth.billed_questions` compares the processor time of queries of billed and
of counted money.

The queries group by one dimension and by pairs of dimensions, by day and over the month.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from statistics import median

import click

from gateway.bills.billed.biller import BilledCostCalculator
from gateway.bills.reconciliation.gathering import StatementSources
from spool.ledger.dimensions import BILLED_TYPES, TOTAL, DerivedDimension
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S, Dimensions
from spool.postgres.database import Database
from spool.postgres.ledger import PostgresLedger
from spool.postgres.migrations import migrate_schema
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.sqlite.ledger import open_ledger
from tests.bench.growth.billed import END, MONTH, Bills
from tests.bench.growth.engines import SCHEMA, Engine, Postgres, postgres
from tests.bench.growth.year import Fleet, fill
from tests.bench.server.table import machine
from tests.gateway.bills.reconciliation.simulator import book
from tests.spool.ledger_log import FakeClock, FakeLog

ENGINES = SQLITE, POSTGRES, MEMORY = "sqlite", "postgres", "memory"
MOST = 1.3  # highest accepted ratio of the processor time for billed money to that for counted money
ROUNDS = 7
# processor time per batch of queries; a batch is needed because the database reports hundredths of a second
BATCH_S = 0.05
PERIODS = ("daily", TOTAL)
NAMES = ("team", "user", "model", "provider", "project", "tag:service")
FILTER = {"team": ("team-001",)}
PROJECT = DerivedDimension(
    name="project", label="Project", sources=("tag:project",), value=lambda values: values[0]
)


@dataclass(frozen=True)
class TaggedFleet(Fleet):
    """A fleet that tags its calls with a service of the team and a project of the user."""

    def dimensions(self, user: int, model: int) -> Dimensions:
        tags = f'{{"project": "project-{user % 20:02}", "service": "service-{user % self.teams % 7}"}}'
        return super().dimensions(user, model)._replace(tags=tags)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A query for the costs of the month by these dimensions, for all calls or for one team."""

    by: tuple[str, ...]
    per: str
    is_filtered: bool = False

    @property
    def words(self) -> str:
        by = " and ".join(self.by) or "one sum"
        return (
            f"{by}, {'of a team, ' if self.is_filtered else ''}{'month' if self.per == TOTAL else self.per}"
        )

    def query(self, cost_type: str) -> CostQuery:
        since, until = (datetime.fromtimestamp(at, UTC) for at in (MONTH.start, MONTH.end))
        return CostQuery(
            since=since,
            until=until,
            granularity=self.per,
            group_by=self.by,
            include=FILTER if self.is_filtered else {},
            arranged=BILLED_TYPES.get(cost_type, 0),
        )


QUESTIONS = tuple(
    Question(by=by, per=per, is_filtered=is_filtered)
    for per in PERIODS
    for is_filtered in (False, True)
    for number in range(3)
    for by in combinations(NAMES, number)
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Processor seconds of one query, for counted and for billed money."""

    question: Question
    counted: float
    billed: float

    @property
    def ratio(self) -> float:
        return self.billed / self.counted

    @property
    def line(self) -> str:
        over = " **over**" if self.ratio > MOST else ""
        figures = f"{1000 * self.counted:.2f} | {1000 * self.billed:.2f} | {self.ratio:.2f}{over}"
        return f"| {self.question.words} | {figures} |"


class AnyEngine:
    """Open ledgers on one of ENGINES."""

    def __init__(self, name: str, place: Path, server: Postgres | None = None) -> None:
        self._name = name
        self._place = place
        self._server = server
        self._engine: Engine = server or Engine()
        self.clock = FakeClock(END + 3 * DAY_S)

    @asynccontextmanager
    async def ledger(self) -> AsyncIterator[Ledger]:
        clock = self.clock
        if self._server is not None:
            database = Database(self._server._server.dsn, schema=SCHEMA)
            await migrate_schema(database)
            ledger = await Ledger(PostgresLedger(database), clock=clock, tags=("service", "project")).load()
        elif self._name == MEMORY:
            ledger = await Ledger(new_in_memory_ledger(), clock=clock, tags=("service", "project")).load()
        else:
            ledger = await open_ledger(self._place, clock=clock, tags=("service", "project"))
        ledger.set_derived_dimensions([PROJECT])
        try:
            yield ledger
        finally:
            await ledger.close()
            if self._server is not None:
                await database.close()

    def cpu_s(self) -> float:
        return time.process_time() + self._engine.cpu_s()

    async def took(self, ledger: Ledger, query: CostQuery) -> float:
        """Return the processor time of one query, repeated until it is long enough to measure."""
        count = 1
        while True:
            begun = self.cpu_s()
            for _ in range(count):
                await ledger.costs(query)
            if (took := self.cpu_s() - begun) >= BATCH_S:
                return took / count
            count *= 4


@contextmanager
def engine_of(name: str, place: Path) -> Iterator[AnyEngine]:
    """Yield an engine, and stop its server at the end."""
    if name != POSTGRES:
        yield AnyEngine(name, place)
        return
    with postgres() as server:
        yield AnyEngine(name, place, server)


async def prepare(engine: AnyEngine, ledger: Ledger, fleet: Fleet, calls: int) -> None:
    """Write the month's calls, divide its bills over them, and finish the background work."""
    await fill(ledger, fleet, calls=calls, days=len(MONTH.days), end=END, keeps_hours=False)
    prices = book()
    sources = StatementSources(
        ledger=ledger,
        log=FakeLog(),  # type: ignore[arg-type]
        prices=lambda: prices,
        statements=Bills(fleet, calls),  # type: ignore[arg-type]
    )
    await BilledCostCalculator(sources, engine.clock).recalculate_month(MONTH)
    while await ledger.make_next_rollup():
        pass
    engine.clock.at = END - 1  # the month has not ended yet, so no result is cached


async def asked(
    engine: AnyEngine, fleet: Fleet, calls: int, questions: Sequence[Question], rounds: int = ROUNDS
) -> list[Asked]:
    """Query both kinds of money in turns, and return the medians."""
    found = []
    async with engine.ledger() as ledger:
        await prepare(engine, ledger, fleet, calls)
        for question in questions:
            took: dict[str, list[float]] = {"real_cost": [], "billed_cost": []}
            for _ in range(rounds):
                for cost_type, times in took.items():
                    times.append(await engine.took(ledger, question.query(cost_type)))
            counted, billed = map(median, took.values())
            found.append(Asked(question=question, counted=counted, billed=billed))
            click.echo(found[-1].line, err=True)
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--engine", "names", multiple=True, type=click.Choice(ENGINES), default=ENGINES, show_default=True
)
@click.option("--calls", default=1_000_000, show_default=True)
@click.option("--users", default=600, show_default=True)
@click.option("--teams", default=50, show_default=True)
@click.option("--models", default=60, show_default=True)
@click.option("--rounds", default=ROUNDS, show_default=True)
@click.option("--only", default="*", help="A pattern of questions, such as 'team, *'.")
def billed_questions(
    names: Sequence[str], calls: int, users: int, teams: int, models: int, rounds: int, only: str
) -> None:
    """Query counted and billed money of a month, by one dimension and by each pair."""
    click.echo(" ".join(f"{key} {value}," for key, value in machine().items()).rstrip(","))
    fleet = TaggedFleet(users=users, teams=teams, models=models)
    for name in names:
        with tempfile.TemporaryDirectory() as place, engine_of(name, Path(place)) as engine:
            questions = [each for each in QUESTIONS if fnmatchcase(each.words, only)]
            found = asyncio.run(asked(engine, fleet, calls, questions, rounds))
        click.echo(f"\n{name}\n| question | counted ms | billed ms | times |\n|---|---|---|---|")
        for each in sorted(found, key=lambda each: -each.ratio):
            click.echo(each.line)
        together = sum(each.billed for each in found) / sum(each.counted for each in found)
        click.echo(f"| together | | | {together:.2f} |")


if __name__ == "__main__":
    billed_questions(prog_name="python -m tests.bench.growth.billed_questions")
