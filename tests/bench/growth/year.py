"""
`python -m tests.bench.growth.year` measures the server's processor time for the queries that people send over
a year of calls.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import click

from gateway.bills.plans.declared import MAX_SEATS
from gateway.core.paths import AS, OPERATOR_API, socket_path
from spool.ledger.ledger import HOURS_KEPT_S, Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import COUNTS, DAY_S, HOUR_S, LATENCY, Dimensions
from spool.money import UNIT
from tests.bench.growth.engines import Engine, postgres
from tests.bench.growth.pages import operations
from tests.bench.growth.plots import Plot, svg
from tests.bench.server.meters import cpu_seconds, forget_peak, peak_mib, resident_mib
from tests.bench.server.table import machine

MOST_S = 0.3  # limit in seconds of processor time for one request of a page
MOST_MIB = 50  # limit of the memory that one request of a page adds
MODELS_A_USER = 8
CALL = (UNIT // 100, 1200, 300)  # values of each call: money units, input tokens and output tokens
SETTINGS = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
"""
BUDGETS = 10
SENDER = "search"
USERS_A_SEAT = 16  # one in 16 users has a seat
ASKED_TOO_MUCH = 422
# A server has work of its own after its start, such as insights. It is measured once it uses less than
# IDLE_CPU_S of processor time in IDLE_S, at least after LEAST_SETTLING_S and at most after MOST_SETTLING_S.
IDLE_S, IDLE_CPU_S, LEAST_SETTLING_S, MOST_SETTLING_S = 10, 0.3, 75, 300
SHOWN = 3  # number of queries that the plots show


@dataclass(frozen=True)
class Fleet:
    """Users and models of an organization. A few users and models make most of the calls."""

    users: int
    teams: int
    models: int

    def days(self, calls: int, days: int) -> Iterator[Counter[tuple[int, int]]]:
        """Yield per day the number of calls of each user to each model."""
        chance = random.Random(self.users)
        own = [chance.choices(range(self.models), k=MODELS_A_USER) for _ in range(self.users)]
        users = list(accumulate(1 / (1 + place / 50) for place in range(self.users)))
        slots = list(accumulate(1 / (1 + place) for place in range(MODELS_A_USER)))
        for _ in range(days):
            a_day = calls // days
            drawn = zip(
                chance.choices(range(self.users), cum_weights=users, k=a_day),
                chance.choices(range(MODELS_A_USER), cum_weights=slots, k=a_day),
                strict=True,
            )
            yield Counter((user, own[user][slot]) for user, slot in drawn)

    def dimensions(self, user: int, model: int) -> Dimensions:
        name, team = f"model-{model:03}", f"team-{user % self.teams:03}"
        return Dimensions(
            "call", "litellm", f"provider-{model % 12}", name, name, team, f"user-{user:04}", "", f"key-{team}",
            '{"service": "search"}', "ok", "reported", "", 0, "", SENDER,
        )  # fmt: skip


def spread(found: Counter[tuple[int, int]]) -> Counter[tuple[int, tuple[int, int]]]:
    """Spread the calls of a day over the working hours."""
    chance = random.Random(len(found))
    return Counter((chance.randrange(7, 20), each) for each in found.elements())


def measures(calls: int) -> list[int]:
    money, tokens_in, tokens_out = CALL
    counts = [calls, calls * tokens_in, calls * tokens_out, *(0 for _ in COUNTS[3:])]
    return [*counts, calls * money, calls * money, *(calls for _ in LATENCY)]


async def fill(
    ledger: Ledger, fleet: Fleet, *, calls: int, days: int, end: int, keeps_hours: bool = True
) -> int:
    """Write the totals of each day into a new ledger, and return their number."""
    numbers: dict[tuple[int, int], int] = {}
    written = 0
    for place, found in enumerate(fleet.days(calls, days)):
        start = end - (days - place) * DAY_S

        has_hours = keeps_hours and start >= end - HOURS_KEPT_S
        hours = spread(found) if has_hours else Counter[tuple[int, tuple[int, int]]]()

        def work(
            ledger_rows: LedgerRows,
            found: Counter[tuple[int, int]] = found,
            hours: Counter[tuple[int, tuple[int, int]]] = hours,
            start: int = start,
        ) -> None:
            for each in found.keys() - numbers.keys():
                [numbers[each]] = ledger_rows.find_or_assign_dimension_set_numbers([fleet.dimensions(*each)])
            ledger_rows.add_sums(
                DAY_S, [(start, numbers[each], measures(count)) for each, count in found.items()]
            )
            ledger_rows.add_sums(
                HOUR_S,
                [
                    (start + hour * HOUR_S, numbers[each], measures(count))
                    for (hour, each), count in hours.items()
                ],
            )
            ledger_rows.set_state(daily=start + DAY_S, hourly=start if not hours else end - HOURS_KEPT_S)

        await ledger._store.change(work)
        written += len(found) + len(hours)
    while await ledger.make_next_rollup():
        pass
    # so that a server on this ledger does not compare all rollups with their days after its start
    await ledger._store.change(lambda rows: rows.set_state(compared=int(time.time())))
    return written


def asked() -> Sequence[tuple[str, str]]:
    """Return the names and requests of all pages."""
    return [(f"{each.page} {each.words}", each.question) for each in operations(today())]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """
    Figures of one query. `first_s` is the processor time of the first round, which finds nothing in caches.
    `cpu_s` and `seconds` are medians over all rounds, and `more_mib` is the most memory that a round added.
    """

    first_s: float
    cpu_s: float
    seconds: float
    size: int
    more_mib: float

    def line(self, name: str) -> str:
        over = " **over**" if self.first_s > MOST_S or self.more_mib > MOST_MIB else ""
        return (
            f"| {name}{over} | {self.first_s:.2f} | {self.cpu_s:.2f} | {self.seconds:.2f} | {self.size:,}"
            f" | {self.more_mib:.0f} |"
        )


@dataclass(frozen=True, kw_only=True)
class Year:
    """A ledger with the given number of calls, its size on disk, and the result of each query."""

    calls: int
    sums: int
    size: int
    answered: Mapping[str, Answered]

    @property
    def head(self) -> str:
        return f"{self.calls:,} calls, {self.sums:,} sums of days and hours, ledger.sqlite {self.size / 1e6:,.0f} MB"

    def table(self) -> str:
        lines = [each.line(name) for name, each in self.answered.items()]
        return "\n".join(
            (self.head, "| page | first CPU s | CPU s | s | bytes | more MiB |", "|---" * 6 + "|", *lines)
        )


def plotted(years: Sequence[Year]) -> str:
    """Plot the size on disk, memory, and processor time of the slowest queries by number of calls."""
    labels = [f"{year.calls / 1e6:g} M" for year in years]
    most = years[-1].answered
    slowest = sorted(most, key=lambda name: -most[name].first_s)[:SHOWN]
    lines = {
        "ledger.sqlite, MB": [year.size / 1e6 for year in years],
        "most MiB of a question": [max(each.more_mib for each in year.answered.values()) for year in years],
        **{f"{name}, CPU ms": [1000 * year.answered[name].first_s for year in years] for name in slowest},
    }
    plots = [Plot(title=title, labels=labels, values=values) for title, values in lines.items()]
    return svg("Calls of a year: the ledger on disk, memory, and processor time of questions", plots)


async def ask_all(
    process: subprocess.Popen[str], data: Path, rounds: int, *, users: int, engine: Engine, only: str = "*"
) -> dict[str, Answered]:
    found = {}
    connector = aiohttp.UnixConnector(str(socket_path(data)))
    async with aiohttp.ClientSession(
        f"http://tollhouse{OPERATOR_API}/", connector=connector, headers={AS: "ada@example.com"}
    ) as session:
        await prepare(session, users)
        for name, question in asked():
            if not fnmatchcase(name, only):
                continue
            took, seconds, size, more = [], [], 0, 0.0
            for _ in range(rounds):
                forget_peak(process.pid)
                resident = resident_mib(process.pid)
                before, begun = cpu_seconds(process.pid) + engine.cpu_s(), time.perf_counter()
                async with session.get(question.replace("SENDER", SENDER).removeprefix("/")) as answer:
                    size = len(await answer.read())
                    assert answer.status in (200, ASKED_TOO_MUCH), (question, await answer.text())
                seconds.append(time.perf_counter() - begun)
                took.append(cpu_seconds(process.pid) + engine.cpu_s() - before)
                more = max(more, peak_mib(process.pid) - resident)
            name = name if answer.status == 200 else f"{name} ({answer.status})"
            found[name] = Answered(
                first_s=took[0], cpu_s=median(took), seconds=median(seconds), size=size, more_mib=more
            )
            click.echo(found[name].line(name), err=True)
    return found


async def prepare(session: aiohttp.ClientSession, users: int) -> None:
    """
    Create the objects of people that pages show: views, budgets, a plan with seats, an annotation. Existing
    objects are reused.
    """
    async with session.get("views") as listed:
        if json.loads(await listed.read())["views"]:
            return

    async def make(path: str, document: object) -> dict[str, dict[str, Any]]:
        async with session.post(path, json=document) as made:
            assert made.status < 300, await made.text()
            return dict(json.loads(await made.read()))

    right = {"name": "privacy", "data_access": "none", "permission_sets": ["answer_privacy_requests"]}
    await make("roles", {**right, "members": ["ada@example.com"]})
    view = {"name": "one team", "filter": {"team": ["team-007"]}, "principal_dimension": "user"}
    ids = (await make("views", view))["view"]["id"]
    for number in range(BUDGETS):
        await make("budgets", {"name": f"budget {number}", "default_amount": "100", "view": {"id": ids}})
    everything = {"name": "an assistant", "filter": {"source": ["litellm"]}, "principal_dimension": "user"}
    seats = [{"user": f"user-{user:04}", "since": "2020-01-01"} for user in range(0, users, USERS_A_SEAT)]
    assistant = (await make("views", everything))["view"]["id"]
    await make("plans", {"name": "seats", "view": assistant, "fee": "20", "seats": seats[:MAX_SEATS]})
    await make("annotations", {"day": f"{today():%Y-%m-%d}", "text": "a new model"})


def today() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


async def settle(pid: int) -> None:
    """Wait until the server has little work of its own."""
    await asyncio.sleep(LEAST_SETTLING_S)
    end = time.monotonic() + MOST_SETTLING_S - LEAST_SETTLING_S
    is_idle = False
    while not is_idle and time.monotonic() < end:
        before = cpu_seconds(pid)
        await asyncio.sleep(IDLE_S)
        is_idle = cpu_seconds(pid) - before < IDLE_CPU_S


async def measure(
    place: Path,
    fleet: Fleet,
    *,
    calls: int,
    days: int,
    rounds: int,
    engine: Engine | None = None,
    only: str = "*",
    settles: bool = True,
) -> Year:
    """
    Fill a ledger in `place` unless it exists, and query a server on it. If `settles`, the server first
    finishes its own work after the start.
    """
    engine = engine or Engine()
    data, sums_file = place / "data", place / "sums"
    settings = place / "tollhouse.toml"
    settings.write_text(f'data_dir = "{data}"\n{SETTINGS}{engine.settings(place)}')
    command = [sys.executable, "-m", "gateway"]
    if not sums_file.exists():
        data.mkdir(mode=0o700)
        begun = time.perf_counter()
        await asyncio.to_thread(engine.prepare, [*command, "storage", "init", "--config", str(settings)])
        async with engine.ledger(data) as ledger:
            sums = await fill(ledger, fleet, calls=calls, days=days, end=int(today().timestamp()))
        sums_file.write_text(str(sums))
        click.echo(f"{sums:,} sums written in {time.perf_counter() - begun:.0f} s", err=True)
    with (
        (place / "log").open("w") as log,
        subprocess.Popen(
            [*command, "serve", "--config", str(settings)], stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            if settles:
                await settle(process.pid)
            answered = await ask_all(process, data, rounds, users=fleet.users, engine=engine, only=only)
        finally:
            process.terminate()
    return Year(calls=calls, sums=int(sums_file.read_text()), size=engine.size(data), answered=answered)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1_000_000,),
    show_default=True,
    help="Calls of the year; again for a year more.",
)
@click.option("--days", default=365, show_default=True, help="Days that they are spread over.")
@click.option("--users", default=5000, show_default=True)
@click.option("--teams", default=500, show_default=True)
@click.option("--models", default=200, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Rounds of each question; medians are shown.")
@click.option("--engine", type=click.Choice(["sqlite", "postgres"]), default="sqlite", show_default=True)
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Where years are kept for the next time (SQLite)."
)
@click.option("--only", default="*", help="A pattern of names, such as '/costs *'.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write the years as plots to this SVG file.")
def year(
    calls: Sequence[int],
    days: int,
    users: int,
    teams: int,
    models: int,
    rounds: int,
    engine: str,
    keep: Path | None,
    only: str,
    plot: Path | None,
) -> None:
    """
    Fill a ledger with a year of calls, start a server on it, and send the requests of the console's pages.
    """
    fleet, years = Fleet(users=users, teams=teams, models=models), []
    for each in sorted(calls):
        with ExitStack() as stack:
            running = stack.enter_context(postgres()) if engine == "postgres" else Engine()
            place = keep / str(each) if keep else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            place.mkdir(parents=True, exist_ok=True)
            asking = measure(place, fleet, calls=each, days=days, rounds=rounds, engine=running, only=only)
            found = asyncio.run(asking)
        years.append(found)
    if plot is not None:
        plot.write_text(plotted(years))
    click.echo(" ".join(f"{key} {value}," for key, value in machine().items()).rstrip(","))
    click.echo("\n\n".join(each.table() for each in years))


if __name__ == "__main__":
    year(prog_name="python -m tests.bench.growth.year")
