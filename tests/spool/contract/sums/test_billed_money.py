"""Billed money on every engine: whole days, exact sums, and counted money without any of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from spool import money
from spool.errors import NotKept
from spool.ledger.billed import CONNECTION, CORRECTS, EVERY, RESTATED, BilledDay, BilledSum
from spool.ledger.dimensions import BILLED, BILLED_TYPES, DerivedDimension
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import Dimensions
from spool.registry.roles import EXCEPT, LedgerSlice, RoleFilter
from tests.spool.ledger.engines import POSTGRES, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAY = 24 * HOUR
DAY_ONE = BEGIN // DAY * DAY
HUGE = 10**9 * money.UNIT + 1  # the amount's last digit is its 27th decimal


def of_team(team: str, **more: Any) -> Dimensions:
    known = dict.fromkeys(Dimensions._fields, "") | {
        "kind": "call",
        "source": "litellm",
        "provider": "openai",
    }
    return Dimensions(
        **{**known, "size": 0, "model": "gpt-4o", "team": team, "tags": '{"service": "x"}', **more}
    )


NOBODY = of_team("", kind=BILLED, source="", api_key="key as billed", model="model as billed", tags="")


def made(day: int = DAY_ONE, mark: str = "1", **more: Any) -> BilledDay:
    known = {
        "provider": "openai",
        "state": "closed",
        "source": "openai_costs",
        "read_at": 1.5,
        "made_at": 2.5,
    }
    return BilledDay(**{**known, "day": day, "mark": mark, **more})


SUMS = [
    BilledSum(of_team("search"), "usage", "exact", EVERY, HUGE),
    BilledSum(of_team("ads"), "usage", "value", EVERY, 5),
    BilledSum(NOBODY, "usage", "unallocated", EVERY, 7),
    BilledSum(NOBODY, "discount", "unallocated", 1, -4),
    BilledSum(of_team("search"), "discount", "shared", 2, -4),
]


def asked(arranged: int, *dimensions: str, **more: Any) -> CostQuery:
    span = {
        "since": datetime.fromtimestamp(DAY_ONE, UTC),
        "until": datetime.fromtimestamp(DAY_ONE + 2 * DAY, UTC),
    }
    return CostQuery(**{**span, "granularity": "total", "group_by": dimensions, "arranged": arranged, **more})


async def sums(ledger: Ledger | SlicedLedger, query: CostQuery) -> dict[Any, int]:
    return {row.group: money.text_to_units(row.cost) for row in await ledger.costs(query)}


async def test_an_arrangement_is_a_choice_of_rows(ledgers: Ledgers) -> None:
    """Every cost type has the same total by every dimension. Only the place of discounts differs."""
    ledger = await ledgers.open()
    await ledger.store_billed_days([(made(), SUMS)])
    own = DerivedDimension(name="half", label="", sources=("team",), value=lambda each: each[0][:1])
    for arranged, alone in ((1, {"unallocated": 3}), (2, {"unallocated": 7, "shared": -4})):
        whole = {("exact",): HUGE, ("value",): 5} | {(name,): units for name, units in alone.items()}
        assert whole == await sums(ledger, asked(arranged, "basis"))
        for dimension in ("team", "charge", "model", "tag:service", "half", "user"):
            by = await sums(ledger, asked(arranged, dimension, derived={"half": own}))
            assert HUGE + 5 + 7 - 4 == sum(by.values()), dimension
    assert {("search",): HUGE - 4} == await sums(
        ledger, asked(2, "team", include={"half": ("s",)}, derived={"half": own})
    )
    assert {("usage",): HUGE + 12} == await sums(
        ledger, asked(1, "charge", exclude={"charge": ("discount",)})
    )


async def test_credits_of_small_groups_lower_what_is_not_converted(ledgers: Ledgers) -> None:
    """Small groups are merged, and their credits count in the merged group as they do without `top`."""
    ledger = await ledgers.open()
    # without rates, every group has size 0, so the first name in the alphabet is kept
    teams = {"ace": HUGE, "bee": -4, "web": 3}
    await ledger.store_billed_days(
        [
            (
                made(),
                [BilledSum(of_team(team), "usage", "exact", EVERY, units) for team, units in teams.items()],
            )
        ]
    )
    query = asked(1, "team", currency="EUR")
    rows = await ledger.costs(replace(query, kept=frozenset({(None,), ("ace",)})))
    assert [-1, HUGE] == sorted(money.text_to_units(row.unconverted["USD"]) for row in rows)
    assert rows == await ledger.costs(replace(query, top=1))


async def test_group_billed_at_zero_is_reported(ledgers: Ledgers) -> None:
    """
    A group whose billed amount is 0 is reported. The merged group is not, because credits and debts within it
    may cancel out.
    """
    ledger = await ledgers.open()
    teams = {"ace": HUGE, "bee": 0, "cat": -4, "web": 4}
    usage = [BilledSum(of_team(team), "usage", "exact", EVERY, units) for team, units in teams.items()]
    await ledger.store_billed_days([(made(), usage)])
    assert {(team,): units for team, units in teams.items()} == await sums(ledger, asked(1, "team"))
    kept = frozenset({("ace",), ("bee",)})
    assert {("ace",): HUGE, ("bee",): 0} == await sums(ledger, asked(1, "team", kept=kept))


async def test_a_day_is_replaced_whole_and_only_if_it_differs(ledgers: Ledgers) -> None:
    """
    A day with the same mark is not written again. Another mark deletes every row of the old day and
    counts the revision.
    """
    ledger = await ledgers.open()
    assert 2 == await ledger.store_billed_days([(made(), SUMS), (made(DAY_ONE + DAY), SUMS[:1])])
    assert 0 == await ledger.store_billed_days([(made(state="open"), [])])
    told: dict[str, Any] = {"reasons": {"no_calls": HUGE}, "foreign": {"EUR": 2}}
    assert 1 == await ledger.store_billed_days([(made(mark="2", **told), SUMS[1:2])])
    assert [made(mark="2", revision=2, **told), made(DAY_ONE + DAY)] == await ledger.billed_days(0, 2**40)
    ledger = await ledgers.open()
    daily = await ledger.costs(asked(1, "team", granularity="daily"))
    assert [("ads", 5), ("search", HUGE)] == [(row.group[0], money.text_to_units(row.cost)) for row in daily]
    await ledger.delete_billed_day(DAY_ONE, "openai")
    assert {("search",): HUGE} == await sums(ledger, asked(1, "team"))


@pytest.mark.proves("counted costs are the same with and without bills")
async def test_counted_money_does_not_change(ledgers: Ledgers) -> None:
    """Counted money is exact usage. Names that occur only in bills are no values of the ledger."""
    log, ledger = FakeLog(), await ledgers.open()
    log.add([call(team="ads")])
    await ledger.catch_up(log)
    before = await ledger.costs(asked(0, "team"))
    await ledger.store_billed_days([(made(), SUMS)])
    assert before == await ledger.costs(asked(0, "team"))
    [row] = await ledger.costs(asked(0, "charge", "basis", include={"charge": ("usage",)}))
    assert row.group == ("usage", "exact")
    assert before[0].cost == row.cost
    assert [] == await ledger.costs(asked(0, include={"charge": ("tax",)}))
    assert [] == await ledger.values("api_key")
    own = DerivedDimension(name="half", label="", sources=("model",), value=lambda each: each[0][:5])
    assert "model" not in await ledger.values(own)


async def test_values_of_rows(ledgers: Ledgers) -> None:
    """Tags of billing rows are distinguished from tags of calls."""
    ledger = await ledgers.open()
    of_row = of_team("", kind=BILLED, tags='{"service": "atlas"}')
    row = BilledSum(of_row, "usage", "exact", EVERY, 5)
    await ledger.store_billed_days([(made(), [*SUMS, row])])
    assert list(await ledger.values("tag:service")) == ["x"]
    both = await ledger.tag_values()
    assert [("tag:service", ["atlas", "x"], True, True)] == [
        (each.name, sorted(each.values), each.of_calls, each.of_rows) for each in both
    ]


async def test_tags_of_rows_alone(ledgers: Ledgers) -> None:
    """
    Every process knows tags that occur only in billing rows as soon as a connection's day is written. The
    other columns of a row are no tags.
    """
    ledger = await ledgers.open()
    await ledger.store_billed_days([(made(), SUMS)])
    assert () == await ledger.billing_row_tags()
    tags = '{"row:service": "Atlas", "centre": "k-1", "quoted \\"name\\"": "v", "service": "y"}'
    rows = [BilledSum(of_team("", kind=BILLED, tags=tags), "usage", "unallocated", EVERY, 5)]
    other = await Ledger(ledgers.store, clock=FakeClock()).load()
    await ledger.store_billed_days([(made(provider=f"MongoDB{CONNECTION}c-1:2026-10"), rows)])
    for each in (ledger, other):
        assert ["tag:centre", 'tag:quoted "name"'] == await each.billing_row_tags()
    assert {("k-1",): 5, (None,): HUGE + 8} == await sums(ledger, asked(1, "tag:centre"))
    assert {(): 5} == await sums(ledger, asked(1, include={'tag:quoted "name"': ("v",)}))
    limited = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",), mode=EXCEPT),),))
    assert () == await SlicedLedger(ledger, limited).billing_row_tags()


async def test_a_question_divides_no_day_with_billed_money(ledgers: Ledgers) -> None:
    """
    A query that starts or ends within a billed day is refused, unless it ends in the running day, which has
    no more data. Days without billed money may be divided.
    """
    clock = FakeClock()
    ledger = await ledgers.open(clock=clock)
    await ledger.store_billed_days([(made(), SUMS)])
    noon = datetime.fromtimestamp(DAY_ONE + DAY // 2, UTC)
    clock.at = noon.timestamp() - 1
    assert {(): HUGE + 8} == await sums(ledger, asked(1, until=noon))
    clock.at = noon.timestamp() + 1
    for cut in ({"until": noon}, {"since": noon}, {"granularity": "hourly"}):
        with pytest.raises(NotKept, match="per whole day in UTC"):
            await ledger.costs(asked(1, **cut))
    later = datetime.fromtimestamp(DAY_ONE + DAY + HOUR, UTC)
    assert {(): HUGE + 8} == await sums(ledger, asked(1, until=later))


async def test_rows_of_connections_have_dimensions_of_their_own(ledgers: Ledgers) -> None:
    """Dimensions of connection rows are stored among their tags. Calls have none of these dimensions."""
    ledger = await ledgers.open()
    tags = '{"row:connection": "c-1", "row:origin": "billing", "row:service": "Atlas", "service": "y"}'
    rows = [BilledSum(of_team("", kind=BILLED, tags=tags), "usage", "unallocated", EVERY, 5)]
    day = made(provider=f"MongoDB{CONNECTION}c-1:2026-10")
    await ledger.store_billed_days([(made(), SUMS[:1]), (day, rows)])
    assert {("billing", "Atlas"): 5, ("calls", None): HUGE} == await sums(
        ledger, asked(1, "origin", "service")
    )
    for name, value in (("connection", "c-1"), ("origin", "billing"), ("tag:service", "y")):
        assert {(): 5} == await sums(ledger, asked(1, include={name: (value,)})), name
    assert {(): HUGE} == await sums(ledger, asked(1, include={"origin": ("calls",)}))
    assert {(None,): HUGE} == await sums(ledger, asked(1, "workload", exclude={"service": ("Atlas",)}))
    assert day.seller == "MongoDB"
    assert day.connection == "c-1"
    assert day.corrected_day == ""
    assert day.is_outside_bill is True


async def test_correction_of_a_closed_day_adds_no_billed_day(ledgers: Ledgers) -> None:
    """
    The corrected day is a dimension of its row. The correction adds no billed day and belongs to no slice.
    """
    ledger = await ledgers.open()
    entry = made(DAY_ONE + DAY, "3", provider=f"openai{CORRECTS}2026-10-12")
    restated = [BilledSum(of_team("search"), RESTATED, "exact", EVERY, 2), SUMS[2]._replace(charge=RESTATED)]
    await ledger.store_billed_days([(made(), SUMS[:1]), (entry, restated)])
    asked_of = asked(1, "corrects", "charge")
    assert {("2026-10-12", RESTATED): 9, (None, "usage"): HUGE} == await sums(ledger, asked_of)
    only = asked(1, "team", include={"corrects": ("2026-10-12",)})
    assert {("search",): 2, (None,): 7} == await sums(ledger, only)
    assert {(): HUGE} == await sums(ledger, asked(1, exclude={"corrects": ("2026-10-12",)}))
    noon = datetime.fromtimestamp(DAY_ONE + DAY + DAY // 2, UTC)
    assert {(): HUGE + 9} == await sums(ledger, asked(1, until=noon))
    assert [entry] == await ledger.billed_corrections()
    assert entry.seller == "openai"
    assert entry.corrected_day == "2026-10-12"
    assert entry.is_outside_bill is True
    assert sorted(restated) == await ledger.billed_sums(entry.day, entry.provider)
    everything = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",), mode=EXCEPT),),))
    assert {(): HUGE} == await sums(SlicedLedger(ledger, everything), asked(1))
    assert [] == await ledger.costs(asked(0, include={"corrects": ("2026-10-12",)}))
    await ledger.delete_billed_day(entry.day, entry.provider)
    assert [] == await ledger.billed_corrections()


async def test_a_slice_has_nothing_of_nobodys_calls(ledgers: Ledgers) -> None:
    """
    A role filter may only exclude values. A person with such a filter sees usage and discounts of calls, but
    not the rest of the bill.
    """
    ledger = await ledgers.open()
    await ledger.store_billed_days([(made(), SUMS)])
    but_ads = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",), mode=EXCEPT),),))
    sliced = SlicedLedger(ledger, but_ads)
    assert {("search", "usage"): HUGE} == await sums(sliced, asked(1, "team", "charge"))
    assert {("search",): HUGE - 4} == await sums(sliced, asked(2, "team"))


OF_BILLS = ((), ("charge",), ("charge", "basis"), ("corrects",))


async def check_sums(ledger: Ledger) -> None:
    """
    Assert that for every cost type a query without dimensions of calls equals the sum of one with them, by day.
    """
    for arranged in BILLED_TYPES.values():
        for names in OF_BILLS:
            query = asked(arranged, *names, granularity="daily")
            by_team = asked(arranged, *names, "team", granularity="daily")
            parts = Counter[object]()
            for row in await ledger.costs(by_team):
                parts[row.start, row.group[:-1]] += money.text_to_units(row.cost)
            found = {
                (row.start, row.group): money.text_to_units(row.cost) for row in await ledger.costs(query)
            }
            assert parts == found, names


@pytest.mark.proves("a query without dimensions equals the sum of a query with dimensions")
async def test_a_question_without_dimensions_reads_sums_of_days(ledgers: Ledgers) -> None:
    """
    A query without dimensions reads the sums of days. These equal the rows, even after a day is replaced or
    deleted.
    """
    ledger = await ledgers.open()
    entry = made(DAY_ONE + DAY, "3", provider=f"openai{CORRECTS}2026-10-12")
    restated = [BilledSum(of_team("search"), RESTATED, "exact", EVERY, 2)]
    await ledger.store_billed_days([(made(), SUMS), (entry, restated), (made(DAY_ONE + DAY), SUMS[2:])])
    await check_sums(ledger)
    await run(ledgers, "UPDATE {billed} SET low = low + 1")
    assert {(): HUGE + 8 + 3 + 2} == await sums(ledger, asked(1))
    await run(ledgers, "UPDATE {billed} SET low = low - 1")
    await ledger.store_billed_days([(made(mark="2"), SUMS[:2])])
    await ledger.delete_billed_day(DAY_ONE + DAY, "openai")
    await check_sums(ledger)
    assert {(): HUGE + 5 + 2} == await sums(ledger, asked(1))


async def run(ledgers: Ledgers, statement: str) -> None:
    """Run an SQL statement on the table of billed money, whose name differs by engine."""
    billed = "{schema}.ledger_billed" if ledgers.engine == POSTGRES else "billed"

    def work(rows: Any) -> None:
        rows._tables.run(statement.format(billed=billed))

    await ledgers.store.change(work)
