"""
The money that each destination reports for entries, by currency: FOCUS rows, files, another
Tollhouse, billing drops.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Context, Decimal, localcontext
from typing import Any

from exporters.focus import charges as focus
from exporters.service import cbf
from spool.ledger.queries import CostRow
from spool.log.values import LogEntry
from spool.record import CURRENCY, Correction, Inference, UsageMetric, record_to_json
from tests.exporters import test_metrics, test_spans

Money = dict[str, Decimal]
Amount = tuple[str, str | int | Decimal]  # a currency and an amount
_EXACT = Context(prec=100)


def added(amounts: Iterable[Amount]) -> Money:
    """Return the sum per currency, without sums of 0."""
    sums: Money = defaultdict(Decimal)
    with localcontext(_EXACT):
        for currency, amount in amounts:
            sums[currency] += Decimal(amount)
        return {currency: total for currency, total in sums.items() if total}


async def focus_rows(entries: Sequence[LogEntry]) -> list[dict[str, str]]:
    charges = await focus.sum_charges(entries)
    text = await asyncio.to_thread(lambda: focus.csv_header() + focus.charge_lines(charges))
    return list(csv.DictReader(io.StringIO(text.decode())))


def of_focus(rows: Iterable[dict[str, str]]) -> Money:
    return added((row["BillingCurrency"], row["BilledCost"]) for row in rows)


def of_files(entries: Iterable[LogEntry]) -> Money:
    """Return the money in the JSON of records, as files, webhooks and Kafka topics have it."""
    rows = [record_to_json(record) for entry in entries for record in entry.records if record is not None]
    return added(amount for row in rows for amount in _of_row(row))


def _of_row(row: dict[str, Any]) -> list[Amount]:
    before = [(name, -Decimal(amount)) for name, amount in row.get("charges_before", {}).items()]
    return [(CURRENCY, row["cost"] or 0), *row.get("charges", {}).items(), *before]


def of_chain(entries: Sequence[LogEntry]) -> Money:
    """Return the money that another Tollhouse reads from spans and metrics."""
    records = [record for entry in entries for record in entry.records]
    spans = test_spans.taken_in(*[record for record in records if isinstance(record, Inference)])
    sums = test_metrics.taken_in(*[record for record in records if isinstance(record, Correction)])
    calls = [amount for call in spans for amount in ((CURRENCY, call.cost or 0), *call.charges.items())]
    changes = [(each.unit, each.value) for each in sums if isinstance(each, UsageMetric) and _is_money(each)]
    return added([*calls, *changes])


def _is_money(counter: UsageMetric) -> bool:
    return counter.name == "tollhouse.correction.cost"


def drops(rows: Iterable[CostRow]) -> dict[datetime, bytes]:
    """Return the digest of each hour of a billing drop."""
    hours: dict[datetime, list[CostRow]] = defaultdict(list)
    for row in rows:
        hours[row.start].append(row)
    return {start: cbf.build_hour(start, cbf.cost_rows(some, cbf.FINE)).hash for start, some in hours.items()}
