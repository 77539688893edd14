"""
Amounts in other currencies on every engine: stored unchanged, and converted by day when sums are queried.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Any

import pytest

from gateway.intake.prices import PriceBook
from spool.currencies import SCALE, rate_as_scaled_integer
from spool.ledger.costs import combine_rows
from spool.ledger.dimensions import PRICED_BY
from spool.ledger.ledger import Ledger
from spool.ledger.queries import EVERY_METER, CostQuery, CostRow
from spool.ledger.sums import DAY_S, HOUR_S
from spool.record import NS, Correction, Inference, UsageMetric
from tests.spool.ledger.engines import Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

DAYS = [BEGIN - 2 * DAY_S, BEGIN - DAY_S, BEGIN]
RATES = {  # dollars per unit, by currency and day; the franc has no rate on the last day
    "EUR": dict(zip(DAYS, map(Decimal, ("1.083100000000", "1.1", "1.090909090909")), strict=True)),
    "JPY": dict(zip(DAYS, map(Decimal, ("0.006451612903", "0.0065", "0.0066")), strict=True)),
    "CHF": dict(zip(DAYS[:2], map(Decimal, ("1.13", "1.14")), strict=True)),
}
AMOUNTS = ({"EUR": "0.000000000000000000000000007"}, {"EUR": "123.456789"}, {"JPY": "5"}, {"CHF": "2.5"})


def rates(given: str, asked: str, day: int) -> int | None:
    if asked == "USD":
        rate = RATES[given].get(day)
    else:
        found = RATES[asked].get(day)
        rate = None if given != "USD" or found is None else 1 / found
    return None if rate is None else rate_as_scaled_integer(rate)


def charged(charges: dict[str, str], **fields: Any) -> Inference:
    return call(charges=charges, cost_source="reported", **fields)


def traffic() -> list[Any]:
    """
    Return calls in dollars and other currencies, cached calls, and a counter in euros, over three days
    and two hours.
    """
    calls = [
        charged(amount, start_time=(day + hour * HOUR_S) * NS, team=team)
        for day in DAYS
        for hour in (1, 9)
        for team in ("a", "b")
        for amount in AMOUNTS
    ]
    return [
        *calls,
        *(call(start_time=(day + HOUR_S) * NS, team="a", cost="0.1", cost_source="reported") for day in DAYS),
        replaced(calls[1], status="cached"),
        UsageMetric(
            id=b"m" * 16, source="x", name="c", value="3.3", unit="EUR", team="b", start_time=DAYS[1] * NS
        ),
    ]


def replaced(record: Inference, **fields: Any) -> Inference:
    return call(**{name: getattr(record, name) for name in record.__struct_fields__} | fields)


def independent(records: list[Any], team: str, currency: str = "USD") -> Decimal:
    """Return the cost of a team's calls by Decimal arithmetic, rounded once."""
    with localcontext(Context(prec=200)):
        total = Decimal(0)
        for record in records:
            if record.team != team or getattr(record, "status", "ok") == "cached":
                continue
            day = record.start_time // NS // DAY_S * DAY_S
            amounts = {record.unit: record.value} if isinstance(record, UsageMetric) else record.charges
            if not amounts:
                amounts = {"USD": record.cost}
            for name, amount in amounts.items():
                rate = SCALE if name == currency else rates(name, currency, day)
                total += Decimal(amount) * Decimal(rate or 0).scaleb(-12)
        return total.quantize(Decimal(1).scaleb(-27), ROUND_HALF_EVEN)


async def by_team(ledger: Ledger, **fields: Any) -> dict[str, CostRow]:
    since, until = (datetime.fromtimestamp(at, UTC) for at in (DAYS[0], DAYS[-1] + DAY_S))
    query = CostQuery(since=since, until=until, granularity="total", group_by=("team",), **fields)
    return {str(row.group[0]): row for row in await ledger.costs(query)}


async def test_an_independent_calculation(ledgers: Ledgers) -> None:
    """
    Sums in dollars and euros equal Decimal arithmetic to the last digit: by hour, by day, and after hours are
    deleted. Amounts without a rate are reported in their own currency.
    """
    records = traffic()
    log, clock = FakeLog(), FakeClock(BEGIN + 12 * HOUR_S)
    ledger = await ledgers.open(clock=clock)
    log.add(records)
    await ledger.catch_up(log)
    without = await by_team(ledger)
    assert "0.3" == without["a"].cost
    assert {"CHF": "15", "EUR": "740.740734000000000000000000042", "JPY": "30"} == without["a"].charges
    assert without["a"].charges == without["a"].unconverted

    ledger.rates = rates
    for now in (BEGIN + 12 * HOUR_S, BEGIN + 100 * DAY_S):
        clock.at = now
        await ledger.sum_up_and_delete_hours()
        found = await by_team(ledger)
        assert {name: independent(records, name) for name in "ab"} == {
            name: Decimal(row.cost) for name, row in found.items()
        }
        assert found["a"].cost == found["a"].reported
        assert [{"CHF": "5"}, {"CHF": "5"}] == [found[name].unconverted for name in "ab"]
        asked = costs_of(await by_team(ledger, currency="EUR"))
        assert {name: independent(records, name, "EUR") for name in "ab"} == asked
    assert (await ledger.compare_and_note_differences(log)).unexplained_differences() == []


def costs_of(found: dict[str, CostRow]) -> dict[str, Decimal]:
    return {name: Decimal(row.cost) for name, row in found.items()}


async def test_nothing_else_is_changed_by_them(ledgers: Ledgers) -> None:
    """
    An amount in another currency is not a meter, so it requires no price. New prices leave the amount and the
    day's sums unchanged.
    """
    log, ledger = FakeLog(), await ledgers.open()
    record = charged({"EUR": "2"}, meters={"web_searches": 1}, estimated_cost=None)
    log.add([record, call()])
    await ledger.catch_up(log)
    sums = await ledger.sums_of_day(BEGIN, max_sums=10)
    assert all(set(each.tokens.meters) <= {"web_searches"} for each in sums)
    await ledger.reprice(log, PriceBook.load(), since=datetime.fromtimestamp(BEGIN, UTC))
    ledger.rates = lambda *_: 2 * SCALE
    [(_, row)] = (await by_team(ledger, meter="web_searches")).items()
    assert row.charges == {"EUR": "2"}
    assert row.unconverted == {}
    assert row.metered == 1_000_000
    assert "4" == row.reported
    [(_, row)] = (await by_team(ledger, meter=EVERY_METER)).items()
    assert {"web_searches": 1_000_000} == row.meters
    assert {"web_searches": 2_000_000} == combine_rows([row, row], start=row.start, group=()).meters


async def test_sums_by_what_decides_their_price(ledgers: Ledgers) -> None:
    """
    Calls of each processing mode and size have separate sums with their meters. Only Tollhouse itself
    makes this query.
    """
    log, ledger = FakeLog(), await ledgers.open()
    log.add([
        call(input_tokens=10, meters={"web_searches": 1}),
        call(input_tokens=20, meters={"web_searches": 2}, tags={"processing": "batch"}),
        call(input_tokens=300_000),
        call(input_tokens=None),
    ])  # fmt: skip
    await ledger.catch_up(log)
    since, until = (datetime.fromtimestamp(at, UTC) for at in (BEGIN, BEGIN + DAY_S))
    asked = CostQuery(since=since, until=until, granularity="hourly", group_by=PRICED_BY, meter=EVERY_METER)
    assert {
        (None, "-1"): (0, {}), (None, "0"): (10, {"web_searches": 1_000_000}), (None, "272000"): (300_000, {}),
        ("batch", "0"): (20, {"web_searches": 2_000_000}),
    } == {row.group: (row.input_tokens, row.meters) for row in await ledger.costs(asked)}  # fmt: skip
    with pytest.raises(ValueError, match="not a dimension"):
        await ledger.values("mode")


async def test_a_correction_of_a_charge(ledgers: Ledgers) -> None:
    """A final amount in dollars replaces an amount in euros."""
    log, ledger = FakeLog(), await ledgers.open()
    before = charged({"EUR": "2"})
    after = replaced(before, charges={}, cost="1.5")
    log.add([before])
    await ledger.catch_up(log)
    log.add([
        Correction(
            id=b"c" * 16, source="x", corrects=before.id, reason="final_cost", known_at=BEGIN * NS,
            start_time=BEGIN * NS, before=before, after=after,
        )
    ])  # fmt: skip
    await ledger.catch_up(log)
    [(_, row)] = (await by_team(ledger)).items()
    assert row.cost == "1.5"
    assert row.charges == {}
    assert row.unconverted == {}
    assert row.calls == 1
