"""The largest groups of a query, with all others merged. The sums stay exact for any data."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spool import money
from spool.ledger.costs import ALIKE
from spool.ledger.dimensions import DerivedDimension, Group
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import Span
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import DAY_S, OTHER
from spool.record import NS, Correction, Inference
from spool.sqlite.ledger import SqliteLedgerRows, open_ledger
from tests.rounds import examples, part
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

FIRST = datetime.fromtimestamp(BEGIN, UTC)
WHOLE = CostQuery(
    since=FIRST, until=FIRST + timedelta(days=2), group_by=("team", "model"), granularity="total"
)
LETTER = DerivedDimension(name="own:letter", label="", sources=("user",), value=lambda values: values[0][:1])
LAST = DerivedDimension(name="own:last", label="", sources=("user",), value=lambda values: values[0][-1:])
QUESTIONS = (
    WHOLE,
    replace(WHOLE, granularity="daily"),
    replace(WHOLE, group_by=("user",), currency="EUR"),
    replace(WHOLE, group_by=()),
    replace(WHOLE, include={"team": ("a", OTHER, "")}, exclude={"model": ("m1",)}),
    replace(WHOLE, group_by=("own:letter", "status"), derived={LETTER.name: LETTER}, meter="web_searches"),
    replace(
        WHOLE,
        group_by=("own:letter",),
        derived={LETTER.name: LETTER},
        granularity="daily",
        meter="web_searches",
    ),
    replace(
        WHOLE, group_by=("own:letter",), derived={LETTER.name: LETTER}, include={LETTER.name: ("a", "b", "")}
    ),
)


def largest(rows: list[CostRow], top: int, by: str) -> frozenset[Group]:
    """Return the groups to keep, from the rows of the whole time."""

    def size(row: CostRow) -> int:
        value = getattr(row, by)
        return money.text_to_units(value) if by == "cost" else int(value)

    found = sorted(rows, key=lambda row: (-size(row), [value or "" for value in row.group]))[:top]
    return frozenset({(None,) * len(rows[0].group), *(row.group for row in found)})


async def folded_in_python(ledger: Ledger, query: CostQuery) -> Sequence[CostRow]:
    """Compute the result from the sums of all groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spool.ledger.costs.MOST", 0)
        patch.setattr("spool.ledger.costs._replace_unkept_values_by_other", lambda query: query)
        return await ledger.costs(query)


@pytest.mark.parametrize("has_charges", part([True, False], every=2))
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_largest_groups_stay_and_the_others_are_one(ledgers: Ledgers, has_charges: bool) -> None:
    """
    The largest groups stay and all others are one group. The result equals a query that names the largest groups,
    with cached calls, errors, unknown costs and other currencies.
    """
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
                cost_source="reported" if number % 3 else "none",
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
            expected = await folded_in_python(ledger, kept)
            assert expected == await ledger.costs(kept)
            assert expected == await ledger.costs(replace(query, top=top, top_by=by))
            alone = replace(kept, measures=(by,))
            expected = await folded_in_python(ledger, alone)
            assert expected == await ledger.costs(replace(alone, kept=None, top=top, top_by=by))


async def test_of_all_groups_only_the_deciding_measure_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Of all groups, only the measure that decides which are the largest is read. All measures are read for the
    selected groups and for the total.
    """
    asked: list[CostQuery] = []
    totals = SqliteLedgerRows.totals_by_group

    def noted(self: SqliteLedgerRows, spans: Sequence[Span], query: CostQuery, **of: Any) -> Any:
        asked.append(query)
        return totals(self, spans, query, **of)

    monkeypatch.setattr(SqliteLedgerRows, "totals_by_group", noted)
    ledger, log = await open_ledger(tmp_path, clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
    try:
        log.add([call(start_time=BEGIN * NS, user=user) for user in ("ada", "ada", "bob", "eve")])
        await ledger.catch_up(log)
        rows = await ledger.costs(replace(WHOLE, group_by=("user",), top=1, top_by="calls"))
    finally:
        await ledger.close()
    assert {("ada",): 2, (OTHER,): 2} == {row.group: row.calls for row in rows}
    read = {(tuple(each.group_by), tuple(each.measures), each.only) for each in asked}
    kept = frozenset({(None,), ("ada",)})
    assert {(("user",), ("calls",), None), (("user",), (), kept), ((), (), None)} == read


async def test_by_cost_the_small_groups_are_not_read(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    For the largest groups by cost, the engine names the groups that may be largest. Only their sums and the
    total are read.
    """
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
    log.add([spent(f"u{place}", f"{place}.5") for place in range(9)])
    await ledger.catch_up(log)
    rows: Any = type(await ledgers.store.read(lambda rows: rows))
    asked, totals = list[CostQuery](), rows.totals_by_group

    def noted(self: Any, spans: Sequence[Span], query: CostQuery, **of: Any) -> Any:
        asked.append(query)
        return totals(self, spans, query, **of)

    monkeypatch.setattr(rows, "totals_by_group", noted)
    found = await ledger.costs(replace(WHOLE, group_by=("user",), top=2))
    assert {("u8",): "8.5", ("u7",): "7.5", (OTHER,): "24.5"} == {row.group: row.cost for row in found}
    read = {(tuple(each.group_by), each.only) for each in asked}
    assert {(("user",), frozenset({(None,), ("u7",), ("u8",)})), ((), None)} == read


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_a_long_list_is_read_at_once(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If many of the groups are requested, and only the measure by which they are sorted, one query reads all groups.
    """
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
    log.add([spent(f"u{place}" if place else None, f"{place % 90}.5") for place in range(130)])
    await ledger.catch_up(log)
    query = replace(WHOLE, group_by=("user",), granularity="total", measures=("cost",))
    kept = replace(query, kept=largest(list(await ledger.costs(query)), 100, "cost"))
    expected = await folded_in_python(ledger, kept)
    rows: Any = type(await ledgers.store.read(lambda rows: rows))
    asked, totals = list[CostQuery](), rows.totals_by_group

    def noted(self: Any, spans: Sequence[Span], query: CostQuery, **of: Any) -> Any:
        asked.append(query)
        return totals(self, spans, query, **of)

    monkeypatch.setattr(rows, "totals_by_group", noted)
    assert expected == await ledger.costs(replace(query, top=100))
    assert [None] == [each.only for each in asked]


def spent(user: str | None, cost: str, **of: Any) -> Inference:
    of = {"start_time": BEGIN * NS, **of}
    return call(user=user, cost=cost, cost_source="reported", **of)


async def test_digits_that_an_engine_leaves_out_decide(ledgers: Ledgers) -> None:
    """
    Two calls of 5.999999999 billionths of a billionth, each in a separate sum, cost more than one call of 11,
    whose lowest limb is 0.
    """
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
    log.add([spent(user, "0") for user in ("u1", "u2", "u3")])
    log.add(
        [
            spent("two", "0.000000000000000005999999999", start_time=(BEGIN + hour * HOUR) * NS)
            for hour in (0, 1)
        ]
    )
    log.add([spent("one", "0.000000000000000011")])
    await ledger.catch_up(log)
    found = await ledger.costs(replace(WHOLE, group_by=("user",), top=1))
    assert {("two",): "0.000000000000000011999999998", (OTHER,): "0.000000000000000011"} == {
        row.group: row.cost for row in found
    }


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_others_that_come_to_nothing_have_no_row(ledgers: Ledgers) -> None:
    """
    The merged group of all others has no row on a day on which it has no calls, even if another user's call of that
    day moved away.
    """
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 30 * DAY_S)), FakeLog()
    log.add([spent("ada", "9", start_time=(BEGIN + day * DAY_S) * NS) for day in range(12)])
    given = spent("eve", "1", start_time=BEGIN * NS)
    log.add([given, corrected(given, to=spent("ada", "1", start_time=BEGIN * NS))])
    await ledger.catch_up(log)
    span = replace(WHOLE, group_by=("user",), granularity="daily")
    for days in (2, 12):
        query = replace(span, until=FIRST + timedelta(days=days), kept=frozenset({("ada",)}))
        found = await ledger.costs(query)
        assert await folded_in_python(ledger, query) == found
        assert {("ada",)} == {row.group for row in found}


CENTS = st.sampled_from(("0", "1", "1.000000000000000000000000001", "0.999999999", "2.000000001"))
# Next to these amounts, costs of a few units of the last decimal are below the precision of a double.
LARGE = st.sampled_from(("0", "1000000000", "7000000000.000000000000000000000000002"))


@pytest.mark.parametrize("engine", part(ENGINES, every=2))
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    costs=st.lists(st.tuples(CENTS, LARGE, st.sampled_from(("ok", "cached"))), min_size=4, max_size=12),
    top=st.integers(0, 4),
    alike=st.sampled_from((1, 2, ALIKE)),
    user=st.sampled_from((None, OTHER, "u")),
)
def test_groups_of_nearly_equal_cost_are_distinguished(
    request: pytest.FixtureRequest,
    engine: str,
    tmp_path: Path,
    costs: list[tuple[str, str, str]],
    top: int,
    alike: int,
    user: str | None,
) -> None:
    """
    Groups are compared to the last decimal, and by name if they cost the same, even after a large correction.
    """

    async def check() -> None:
        ledgers = Ledgers.of(engine, request, tmp_path)
        try:
            ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
            for place, (cost, large, status) in enumerate(costs):
                name = user if place == 1 else f"u{place}"
                before = spent(name, large, request_model="m")
                log.add([spent(name, cost, status=status), before, corrected(before)])
            await ledger.catch_up(log)
            by = (("user",), ("user", "status"), (LAST.name,))
            asked = [replace(WHOLE, group_by=each, derived={LAST.name: LAST}) for each in by]
            for query in (*asked, *(replace(each, measures=("cost",)) for each in asked)):
                kept = largest(list(await ledger.costs(query)), top, "cost")
                expected = await folded_in_python(ledger, replace(query, kept=kept))
                assert expected == await ledger.costs(replace(query, top=top))
        finally:
            await ledgers.close()

    for old in tmp_path.glob("*.sqlite*"):
        old.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spool.ledger.costs.ALIKE", alike)
        asyncio.run(check())


def corrected(before: Inference, to: Inference | None = None) -> Correction:
    """
    Return a correction that removes the whole cost of a call, so that its group has sums that cancel out.
    """
    after = to or spent(before.user, "0", request_model="m")
    return Correction(
        id=b"c" * 16, source="litellm", corrects=before.id, reason="late_usage", known_at=1,
        start_time=before.start_time or 0, before=before, after=after,
    )  # fmt: skip
