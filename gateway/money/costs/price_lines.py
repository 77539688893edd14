"""
Price lines of the estimates in a report: one line for each quantity with one price.

The lines are computed with the current price book. A sum is included only if its lines add up exactly to
the recorded estimate.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from gateway.intake.price_lines import price_lines_of_sum
from gateway.intake.prices import PriceBook
from gateway.money.costs.asked_measures import ReportRowKey
from spool import money
from spool.ledger.costs import periods_of_query
from spool.ledger.dimensions import PRICED_BY, Group
from spool.ledger.queries import EVERY_METER, CostQuery, CostRow, CostsLedger, narrow_query
from spool.ledger.repricing import LinesOf, SumLine, join_price_lines, row_price_lines
from spool.ledger.sums import COUNTS, Dimensions, Measures
from spool.meters import quantity_from_millionths

_ESTIMATED = "estimated"
_DECIDES = ("provider", "model", "request_model", *PRICED_BY)
_WIDTH = len(COUNTS)

FieldsOfReportRow = Callable[[ReportRowKey], dict[str, object]]


@dataclass(slots=True)
class _Charged:
    counts: list[int]
    estimated: int = 0
    lines: tuple[SumLine, ...] = ()

    def to_fields(self) -> dict[str, object]:
        counts = dict(zip(COUNTS, self.counts, strict=True))
        return {
            **counts,
            "cost": money.units_to_text(self.estimated),
            "lines": list(map(_line_fields, self.lines)),
        }


Charged = Mapping[ReportRowKey, _Charged]


async def read_charged_lines(
    ledger: CostsLedger, query: CostQuery, prices: Callable[[], PriceBook]
) -> Charged:
    book = await asyncio.to_thread(prices)
    by = (*query.group_by, *_DECIDES)
    line_query = replace(query, kept=None, group_by=by, measures=COUNTS, meter=EVERY_METER)
    estimated = narrow_query(
        line_query, include={"cost_source": (_ESTIMATED,)}, exclude={"status": ("cached",)}
    )
    rows = await ledger.costs(estimated)
    starts = {start: index for index, (start, _) in enumerate(periods_of_query(query))}
    return await asyncio.to_thread(_charges_by_place, rows, starts, partial(price_lines_of_sum, book))


def with_price_lines(show: FieldsOfReportRow, charged: Charged) -> FieldsOfReportRow:
    """
    Wrap `show`, which returns a row's fields, so that it adds `price_lines`. They are null for a row without
    lines.
    """

    def fields_with_price_lines(place: ReportRowKey) -> dict[str, object]:
        lines = charged.get(place)
        return {**show(place), "price_lines": None if lines is None else lines.to_fields()}

    return fields_with_price_lines


def _charges_by_place(
    rows: Sequence[CostRow], starts: Mapping[datetime, int], price_lines: LinesOf
) -> Charged:
    lines_by_place: dict[ReportRowKey, _Charged] = defaultdict(lambda: _Charged([0] * _WIDTH))
    for row in rows:
        group = row.group[: -len(_DECIDES)]
        key = _dimensions_of_price(row.group[-len(_DECIDES) :])
        measures = _row_measures(row)
        hour = int(row.start.timestamp())
        lines = row_price_lines(price_lines, hour, key, measures, row.meters)
        if lines:
            at = lines_by_place[starts[row.start], group]
            counts = zip(at.counts, measures, strict=False)
            at.counts = [before + added for before, added in counts]
            at.estimated += measures[-1]
            at.lines = join_price_lines(at.lines, lines)
    return lines_by_place


def _dimensions_of_price(price_deciding_values: Group) -> Dimensions:
    provider, model, request_model, mode, size = price_deciding_values
    return Dimensions(
        kind="call",
        source="",
        provider=provider or "",
        model=model or "",
        request_model=request_model or "",
        team="",
        user="",
        device="",
        api_key="",
        tags="",
        status="ok",
        cost_source=_ESTIMATED,
        mode=mode or "",
        size=int(size or 0),
    )


def _row_measures(row: CostRow) -> Measures:
    counts = [getattr(row, name) for name in COUNTS]
    return [*counts, money.text_to_units(row.reported), money.text_to_units(row.estimated)]


def _line_fields(line: SumLine) -> Mapping[str, str]:
    quantity = str(quantity_from_millionths(line.quantity))
    return {"meter": line.meter, "quantity": quantity, "amount": money.units_to_text(line.amount)}
