"""
Rows of an hourly report of the operator API as charges. Pure.

A row with lines of its estimates is a charge with these lines, and another one of what they do not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

from exporters.focus.charges import COUNTED, EXACT, TAGS, Charge, by_currency, is_nothing
from spool.ledger import money
from spool.ledger.repricing import SumLine
from spool.meters import millionths


def of_report(rows: Iterable[Mapping[str, object]], tags: Sequence[str] = ()) -> list[Charge]:
    """Rows of an hourly report of the operator API, by DIMENSIONS and by `tags`, which are tags of the charges."""
    charges = []
    for row in rows:
        estimated = str(row["estimated"])
        foreign = row.get("charges")
        charge = Charge(
            start=datetime.fromisoformat(str(row["period"])),
            cost=_less(str(row["cost"]), str(row["converted"])) if foreign else str(row["cost"]),
            list_cost=estimated if estimated != "0" else None,
            provider=_text(row, "provider"),
            model=_text(row, "model"),
            team=_text(row, "team"),
            tags={name: value for name in (*TAGS, *tags) if (value := _text(row, name))},
            cost_source=_text(row, "cost_source"),
            region=_text(row, "region"),
            **_counts(row),
        )
        charged = row.get("price_lines")
        if isinstance(charged, Mapping):
            lined = replace(charge, **_counts(charged), **_of_lines(charged))
            charges.append(lined)
            charge = _without(charge, lined)
            if is_nothing(charge):
                continue
        charges += by_currency(charge, foreign if isinstance(foreign, Mapping) else {})
    return charges


def _of_lines(charged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of the calls of a row whose lines are known, and the lines."""
    cost = str(charged["cost"])
    lines = []
    for line in charged["lines"]:
        quantity = millionths(line["quantity"])
        lines.append(SumLine(line["meter"], quantity, money.units(line["amount"])))
    return {"cost": cost, "list_cost": cost, "lines": tuple(lines)}


def _without(charge: Charge, part: Charge) -> Charge:
    """Return what a part leaves of a charge."""
    left = {name: getattr(charge, name) - getattr(part, name) for name in COUNTED}
    listed = _less(charge.list_cost or "0", part.cost)
    cost = _less(charge.cost, part.cost)
    return replace(charge, cost=cost, list_cost=listed if Decimal(listed) else None, **left)


def _less(one: str, other: str) -> str:
    with localcontext(EXACT):
        return format(Decimal(one) - Decimal(other), "f")


def _text(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) and value else None


def _counts(row: Mapping[str, object]) -> dict[str, Any]:
    return {name: int(str(row[name])) for name in COUNTED}
