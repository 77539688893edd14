"""
A person with restricted access learns nothing from the work that a query takes: a unit or a team that is hidden, one
with a similar name, and one that nobody uses take as much.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.work import TREES, UNITS
from spool.ledger.work_links import WorkUnitLink, WorkUnitLinks
from spool.record import NS
from spool.registry.roles import LedgerSlice, RoleFilter
from tests.rounds import part
from tests.spool.digests import as_shown
from tests.spool.ledger.engine_work import work_of
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.test_parent_links import link
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

HIDDEN, SIMILAR, UNKNOWN = "acme/hidden", "acme/hidden-2", "quite-unknown"
MOST = 1.2
TIMES: dict[str, Any] = {
    "since": datetime.fromtimestamp(BEGIN, UTC),
    "until": datetime.fromtimestamp(BEGIN + 24 * HOUR, UTC),
}


def spent(number: int, team: str, name: str, start: float) -> Any:
    tags = {tag: name for tag in UNITS if tag not in TREES}
    return call(
        id=number.to_bytes(16, "big"),
        team=team,
        user=f"{team}-{number % 9}",
        session=name,
        run=f"{name}-{number % 50}-7c1e0f3a2b4d4e6f8a9b0c1d2e3f4a5b" if name != HIDDEN else name,
        tags={**tags, "service": f"{team}-{number % 20}"},
        estimated_cost="1",
        meters={"web_searches": 1},
        start_time=int(start) * NS,
    )


@pytest.fixture
async def ledger(ledgers: Ledgers) -> Ledger:
    """Return a ledger in which most calls are of the hidden unit and of the team that uses it."""
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 25 * HOUR)), FakeLog()
    hours = [BEGIN + number % 24 * HOUR for number in range(900)]
    calls = [spent(number, "ads", HIDDEN, hours[number]) for number in range(600)]
    calls += [spent(number, "search", "acme/shop", hours[number]) for number in range(600, 900)]
    log.add(calls, at=BEGIN + 24 * HOUR)
    await ledger.catch_up(log)
    await ledger.apply_links(
        WorkUnitLinks([WorkUnitLink("commit", 5, "ticket", HIDDEN), link("session", HIDDEN, "parent")])
    )
    await ledgers.read_statistics()
    return ledger


def named(unit: str, name: str) -> str:
    return as_shown(unit, name) if unit in TREES else name


QUERIES: dict[str, Callable[[SlicedLedger, str, str], Awaitable[Any]]] = {
    "sum": lambda ledger, unit, name: ledger.costs(
        CostQuery(**TIMES, granularity=TOTAL, include={unit: (named(unit, name),)})
    ),
    "by team": lambda ledger, unit, name: ledger.costs(
        CostQuery(**TIMES, granularity=TOTAL, group_by=("team",), include={unit: (named(unit, name),)})
    ),
    "by unit": lambda ledger, unit, name: ledger.costs(
        CostQuery(**TIMES, granularity=TOTAL, group_by=(unit,), include={unit: (named(unit, name),)}, top=10)
    ),
    "without": lambda ledger, unit, name: ledger.costs(
        CostQuery(**TIMES, granularity=TOTAL, group_by=("team",), exclude={unit: (named(unit, name),)})
    ),
    "aggregated": lambda ledger, unit, name: ledger.costs(
        CostQuery(
            **TIMES,
            granularity=TOTAL,
            group_by=(unit,) if unit in TREES else ("run",),
            include={unit: (named(unit, name),)},
            aggregated=True,
        )
    ),
}


@pytest.mark.parametrize("query", part([*QUERIES], every=4))
async def test_hidden_unit_needs_as_much_work_as_an_unknown_one(ledger: Ledger, query: str) -> None:
    sliced = SlicedLedger(ledger, LedgerSlice(parts=((RoleFilter(dimension="team", values=("search",)),),)))
    for unit in UNITS:
        counts = [
            await work_of(ledger, lambda name=name, unit=unit: QUERIES[query](sliced, unit, name))  # type: ignore[misc]
            for name in (HIDDEN, SIMILAR, UNKNOWN)
        ]
        assert max(counts) <= MOST * min(counts), (unit, counts)


@pytest.mark.parametrize("unit", part([*TREES], every=2))
async def test_runs_of_a_hidden_unit_need_as_much_work(ledger: Ledger, unit: str) -> None:
    sliced = SlicedLedger(ledger, LedgerSlice(parts=((RoleFilter(dimension="team", values=("search",)),),)))
    query = CostQuery(**TIMES)
    for has_below in (False, True):
        counts = [
            await work_of(
                ledger,
                partial(
                    sliced.run_lineage, query, unit, [named(unit, name)], 100, includes_runs_below=has_below
                ),
            )
            for name in (HIDDEN, SIMILAR, UNKNOWN)
        ]
        assert max(counts) <= MOST * min(counts), (has_below, counts)


@pytest.mark.parametrize("name", part(["team", "user", "tag:service"], every=3))
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_hidden_team_needs_as_much_work(ledger: Ledger, name: str) -> None:
    sliced = SlicedLedger(ledger, LedgerSlice(parts=((RoleFilter(dimension="team", values=("search",)),),)))
    hidden = {"team": "ads", "user": "ads-1", "tag:service": "ads-1"}[name]
    for by, meter in (((), None), (("model",), None), (("session",), None), (("model",), "web_searches")):
        counts = [
            await work_of(
                ledger,
                lambda value=value, by=by, meter=meter: sliced.costs(  # type: ignore[misc]
                    CostQuery(**TIMES, granularity=TOTAL, group_by=by, include={name: (value,)}, meter=meter)
                ),
            )
            for value in (hidden, f"{hidden}x", UNKNOWN)
        ]
        assert max(counts) <= MOST * min(counts), (by, meter, counts)
