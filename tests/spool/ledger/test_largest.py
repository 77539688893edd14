"""The largest groups of a question, and all others as one: the sums stay exact, whatever they are made of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spool.ledger import money
from spool.ledger.derived import Derived
from spool.ledger.queries import CostQuery, CostRow, Group
from spool.ledger.sums import DAY_S, OTHER
from spool.record import NS
from spool.sqlite.ledger.ledger_rows import SqliteLedgerRows
from spool.sqlite.ledger.store import open_ledger
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

FIRST = datetime.fromtimestamp(BEGIN, UTC)
WHOLE = CostQuery(
    since=FIRST, until=FIRST + timedelta(days=2), group_by=("team", "model"), granularity="total"
)
LETTER = Derived(name="own:letter", label="", sources=("user",), value=lambda values: values[0][:1])
QUESTIONS = (
    WHOLE,
    replace(WHOLE, granularity="daily"),
    replace(WHOLE, group_by=("user",), currency="EUR"),
    replace(WHOLE, group_by=()),
    replace(WHOLE, include={"team": ("a", OTHER, "")}, exclude={"model": ("m1",)}),
    replace(WHOLE, group_by=("own:letter", "status"), derived={LETTER.name: LETTER}, meter="web_searches"),
)


def largest(rows: list[CostRow], top: int, by: str) -> frozenset[Group]:
    """Return the groups to keep, from the rows of the whole time."""

    def size(row: CostRow) -> int:
        value = getattr(row, by)
        return money.units(value) if by == "cost" else int(value)

    found = sorted(rows, key=lambda row: (-size(row), [value or "" for value in row.group]))[:top]
    return frozenset({(None,) * len(rows[0].group), *(row.group for row in found)})


@pytest.mark.asyncio
@pytest.mark.parametrize("has_charges", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
async def test_the_largest_are_kept_and_the_others_are_one(
    request: pytest.FixtureRequest, engine: str, has_charges: bool, tmp_path: Path
) -> None:
    """As if their groups were named; of cached calls, errors, unknown costs and other currencies, too."""
    ledgers = Ledgers.of(engine, request, tmp_path)
    try:
        ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
        log.add(
            [
                call(
                    start_time=(BEGIN + number % 2 * DAY_S) * NS,
                    team=(None, "a", "b", OTHER)[number % 4],
                    request_model=f"m{number % 3}",
                    user=(None, "ada", "bob", "eve", OTHER)[number % 5],
                    status=("ok", "cached", "error")[number % 3],
                    input_tokens=number,
                    meters={"web_searches": number} if number % 4 else None,
                    cost=f"{number % 7}.000000000000000001" if number % 3 else None,
                    cost_source="reported" if number % 3 else None,
                    charges={"EUR": f"{number}.5", "GBP": "1.25"} if has_charges and not number % 3 else {},
                )
                for number in range(60)
            ]
        )
        await ledger.catch_up(log)
        for query in QUESTIONS:
            rows = list(await ledger.costs(replace(query, granularity="total")))
            for top, by in ((1, "cost"), (3, "cost"), (2, "input_tokens"), (100, "calls")):
                kept = replace(query, kept=largest(rows, top, by))
                assert await ledger.costs(kept) == await ledger.costs(replace(query, top=top, top_by=by))
            alone = replace(query, measures=("cost",), top=2, top_by="cost")
            assert await ledger.costs(
                replace(alone, top=None, kept=largest(rows, 2, "cost"))
            ) == await ledger.costs(alone)
    finally:
        await ledgers.close()


@pytest.mark.asyncio
async def test_of_all_groups_only_the_deciding_measure_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All measures are read of the chosen values, and of everything as one sum."""
    asked: list[CostQuery] = []
    totals = SqliteLedgerRows.totals

    def noted(self: SqliteLedgerRows, width: int, since: int, until: int, query: CostQuery, **of: Any) -> Any:
        asked.append(query)
        return totals(self, width, since, until, query, **of)

    monkeypatch.setattr(SqliteLedgerRows, "totals", noted)
    ledger, log = await open_ledger(tmp_path, clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
    try:
        log.add([call(start_time=BEGIN * NS, user=user) for user in ("ada", "ada", "bob", "eve")])
        await ledger.catch_up(log)
        rows = await ledger.costs(replace(WHOLE, group_by=("user",), top=1, top_by="calls"))
    finally:
        await ledger.close()
    assert {("ada",): 2, (OTHER,): 2} == {row.group: row.calls for row in rows}
    read = {(tuple(each.group_by), tuple(each.measures), each.include.get("user")) for each in asked}
    assert {(("user",), ("calls",), None), (("user",), (), ("", "ada")), ((), (), None)} == read
