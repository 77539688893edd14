"""Short helpers to create a provider's bill and calls of one or more days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from gateway.bills.billed.bill import Bill, BillInputs, build_bill
from gateway.bills.billed.layers import BilledUsageByModel, DividedDay, divide_day
from gateway.bills.reconciliation.sides import DAY_S, CountedUse
from spool.ledger.billed import BilledSum
from spool.ledger.dimensions import BILLED
from spool.ledger.sums import Dimensions
from spool.money import UNIT
from spool.statements import StatementRow, day_of_row, to_billed_row

DAY = 20_000 * DAY_S
PRICES = {"input": UNIT // 10**6, "output": 4 * UNIT // 10**6}
Use = tuple[Dimensions, CountedUse]


def row(
    kind: str, amount: str | int | Decimal, *, unit: str = "usd", day: int = 0, days: int = 1, **more: Any
) -> StatementRow:
    start = DAY + day * DAY_S
    known: dict[str, Any] = {
        "source": "bill", "provider": "openai", "account": None, "key": None, "model": "gpt-4o", "currency": None,
        "tier": None, "region": None, "batch": None, "settled": True,
    }  # fmt: skip
    edges = {"start": start, "end": start + days * DAY_S}
    return StatementRow(**{**known, **edges, "unit": unit, "kind": kind, "amount": Decimal(amount), **more})


def calls(team: str, tokens: int, *, day: int = 0, output: int = 0, user: str = "", **more: Any) -> Use:
    counts = {name: count for name, count in (("input", tokens), ("output", output)) if count}
    known: dict[str, Any] = {
        "source": "litellm",
        "key": "",
        "model": "gpt-4o",
        "tier": "",
        "region": "",
        **more,
    }
    use = CountedUse(
        day=DAY + day * DAY_S,
        team=team,
        calls=1,
        errors=0,
        unsized=0,
        tokens=counts,
        values={name: count * PRICES[name] for name, count in counts.items()},
        cost=sum(count * PRICES[name] for name, count in counts.items()),
        **known,
    )
    named = {"team": team, "user": user, "model": use.model, "api_key": use.key, "mode": use.tier}
    blank = dict.fromkeys(Dimensions._fields, "") | {
        "kind": "call",
        "provider": "openai",
        "region": use.region,
    }
    return Dimensions(**{**blank, "size": 0, **named}), use  # type: ignore[arg-type]


def bill(rows: Sequence[StatementRow], uses: Iterable[Use], *, days: int = 1, **more: Any) -> Bill:
    span = range(DAY, DAY + days * DAY_S, DAY_S)
    sides: dict[str, Any] = {"provider": "openai", "days": span, "open_from": span[-1] + DAY_S}
    sides["rows"] = [to_billed_row(row, day_of_row(row)) for row in rows]
    return build_bill(
        BillInputs(**{**sides, "covered": {}, "unsettled": {}, "counted": [use for _, use in uses], **more})
    )


def divided(
    rows: Sequence[StatementRow], uses: Sequence[Use], *, month: BilledUsageByModel | None = None, **more: Any
) -> DividedDay:
    return divide_day(bill(rows, uses, **more), DAY, uses, month_usage=month)


def divided_month(rows: Sequence[StatementRow], uses: Sequence[Use], days: int) -> list[BilledSum]:
    """Return all sums of the bill for some days. Taxes are divided by the usage of all these days."""
    whole = bill(rows, uses, days=days)
    by_day = {day: [use for use in uses if use[1].day == day] for day in sorted(whole.states)}
    base: Counter[tuple[Dimensions, str]] = Counter()
    for day, theirs in by_day.items():
        base.update(divide_day(whole, day, theirs).base)
    return [
        billed_sum
        for day, theirs in by_day.items()
        for billed_sum in divide_day(whole, day, theirs, month_usage=base).sums
    ]


def paid(found: DividedDay, arranged: int = 1) -> dict[tuple[str, str, str], int]:
    """Return each team's amounts by charge and basis. "-" is unallocated."""
    sums: dict[tuple[str, str, str], int] = {}
    for billed_sum in found.sums:
        if billed_sum.arranged & arranged:
            team = "-" if billed_sum.dimensions.kind == BILLED else billed_sum.dimensions.team or ""
            key = (team, billed_sum.charge, billed_sum.basis)
            sums[key] = sums.get(key, 0) + billed_sum.amount
    return sums
