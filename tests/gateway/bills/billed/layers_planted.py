"""Planted bill lines other than usage: discounts, commitments, prepaid amounts and foreign currencies."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import msgspec

from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.plants import Plant, Planting, Rows
from tests.gateway.bills.reconciliation.simulator import DAY_S, DAYS

CENT = Decimal("0.01")
MICRO = Decimal("0.000001")


def line(like: StatementRow, kind: str, amount: Decimal, day: int, **more: Any) -> StatementRow:
    """Copy a line without model, tier and region, unless `more` sets them."""
    plain: dict[str, Any] = {"model": None, "tier": None, "region": None, "batch": None, "key": None}
    fields = {"kind": kind, "amount": amount, "start": day, "end": day + DAY_S, **plain, **more}
    return msgspec.structs.replace(like, **fields)


def _paid(rows: Rows, day: int | None = None) -> list[StatementRow]:
    of_usage = [row for row in rows if row.unit == "usd" and row.model is not None and row.amount]
    return [row for row in of_usage if day in (None, row.start)]


def _like(rows: Rows) -> StatementRow:
    """Return a dollar row of the bill as a template."""
    like_row = next(row for row in rows if row.unit in ("usd", "accrued_usd"))
    return msgspec.structs.replace(like_row, unit="usd")


def _sum(rows: Rows) -> Decimal:
    return sum((row.amount for row in rows), Decimal(0))


def planting(change: Callable[[Random, Rows], Rows], *causes: str) -> Planting:
    def plant(random: Random, provider: str) -> Plant:
        return Plant(causes=causes, rows=lambda rows: change(random, rows))

    return plant


def _enterprise(random: Random, rows: Rows) -> Rows:
    """
    Add a discount of nine percent for each day, as AWS bills it: one usage line after another is reduced to 0.
    """
    changed_rows = [*rows]
    for day in DAYS:
        paid = _paid(rows, day)
        credit_left = (_sum(paid) * Decimal("0.09")).quantize(MICRO)
        for row in sorted(paid, key=repr):
            off = min(row.amount, credit_left)
            credit_left -= off
            if off > 0:
                changed_rows.append(line(row, "discount", -off, day))
    return changed_rows


def _grant(random: Random, rows: Rows) -> Rows:
    day = random.choice(DAYS)
    amount = (_sum(_paid(rows)) / 3).quantize(CENT)
    return [*rows, line(_like(rows), "credit", -amount, day)]


def _throughput(random: Random, rows: Rows) -> Rows:
    """
    Add a fee on the first day that covers all usage of one model. 70 % of it is used. The usage itself costs
    nothing, but each day's usage carries a part of the fee.
    """
    paid = _paid(rows)
    model = random.choice(sorted({row.model or "" for row in paid}))
    a_day = (_sum(paid) / 50).quantize(CENT)
    other_rows = [row for row in rows if row.unit != "usd" or row.model != model]
    fee = a_day * len(DAYS)
    changed_rows = [*other_rows, line(_like(rows), "throughput", fee, DAYS[0])]
    changed_rows.append(line(_like(rows), "throughput", -fee, DAYS[0], unit="accrued_usd"))
    for day in DAYS:
        covered = [row for row in _paid(rows, day) if row.model == model]
        commitment_left = used = (a_day * Decimal("0.7")).quantize(MICRO) if covered else Decimal(0)
        for row_number, row in enumerate(covered, 1):
            share = used * row.amount / _sum(covered)
            part = commitment_left if row_number == len(covered) else share.quantize(MICRO)
            commitment_left -= part
            changed_rows.append(msgspec.structs.replace(row, unit="accrued_usd", amount=part))
        changed_rows.append(line(_like(rows), "unused", a_day - used, day, unit="accrued_usd"))
    return changed_rows


def _scale_tier(random: Random, rows: Rows) -> Rows:
    """Add a daily fee for a reserved number of tokens per minute. The line names no calls."""
    paid = _paid(rows)
    a_day = (_sum(paid) / 100).quantize(CENT)
    return [*rows, *(line(_like(rows), "throughput", a_day, day) for day in DAYS)]


def _prepaid(random: Random, rows: Rows) -> Rows:
    """
    Add a prepayment on the first day that is twice the month's usage. All usage is paid from it, and the rest
    stays for later.
    """
    paid = _paid(rows)
    bought = (2 * _sum(paid)).quantize(CENT)
    drawn = [msgspec.structs.replace(row, unit="accrued_usd") for row in paid]
    other_rows = [row for row in rows if row.unit != "usd"]
    purchase = line(_like(rows), "throughput", bought, DAYS[0])
    return [
        *other_rows,
        *drawn,
        purchase,
        msgspec.structs.replace(purchase, unit="accrued_usd", amount=-bought),
    ]


def _euros(random: Random, rows: Rows) -> Rows:
    """Add lines in euros, for which there is no rate."""
    days = set(random.sample(DAYS, 3))
    like = _like(rows)
    return [*rows, *(line(like, "support", CENT * 100, day, unit="eur", currency="EUR") for day in days)]


def _refund_later(random: Random, rows: Rows) -> Rows:
    amount = (_sum(_paid(rows)) / 20).quantize(CENT)
    return [*rows, line(_like(rows), "refund", -amount, DAYS[-1] + 2 * DAY_S + DAY_S)]


LAYERS: dict[str, Planting] = {
    "enterprise discount": planting(_enterprise, "discount"),
    "grant": planting(_grant, "credit"),
    "throughput": planting(_throughput, "commitment"),
    "scale tier": planting(_scale_tier, "commitment"),
    "prepaid": planting(_prepaid, "commitment"),
    "euros": planting(_euros),
    "refund next month": planting(_refund_later),
}
