"""The cost reports from which FOCUS rows are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.core.first_use import import_in_thread
from gateway.http.turns import RunQuery
from gateway.intake.prices import PriceBook
from gateway.money.costs.answer import answer_costs
from gateway.money.costs.measures import MEASURED_IN, REAL_COST
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.reader import CostReader
from gateway.money.costs.rows import AnswerRows
from spool.ledger.dimensions import BILLED_TYPES, TOTAL
from spool.ledger.sums import COUNTS

if TYPE_CHECKING:
    from gateway.money.costs.price_lines import FieldsOfReportRow

Rows = Sequence[Mapping[str, Any]]
DAY = timedelta(days=1)
_COST, _ESTIMATED = "cost", "estimated"


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusSpan:
    """The days (UTC), account and FOCUS version of a file. `tags` are dimensions in addition to those of FOCUS."""

    first: date
    last: date
    tags: Sequence[str]
    account: str
    version: str

    @property
    def since(self) -> datetime:
        return day_start(self.first)

    @property
    def until(self) -> datetime:
        return day_start(self.last) + DAY

    @property
    def days(self) -> Iterator[datetime]:
        return (self.since + place * DAY for place in range((self.until - self.since).days))


def day_start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusReports:
    """
    Runs cost reports that are limited to what a person may see. Each report is one query, so other queries
    may run in between.
    """

    reader: CostReader
    prices: Callable[[], PriceBook]
    now: float
    run: RunQuery

    async def read_report_rows(
        self,
        since: datetime,
        until: datetime,
        dimensions: Sequence[str],
        *,
        per: str = TOTAL,
        cost_type: str = REAL_COST,
        has_lines: bool = False,
    ) -> Rows:
        """
        Return a report's rows, with `price_lines` if `has_lines`. Billing rows from a billing connection are
        left out of billed costs, because the imported bill of that connection already contains them.
        """
        is_billed = cost_type in BILLED_TYPES
        question = CostQuestion(
            since=since,
            until=until,
            per=per,
            by=dimensions,
            include={"origin": ("calls",)} if is_billed else {},
            cost_type=cost_type,
            measures=(_COST,) if is_billed else (),
            tells=() if is_billed else (MEASURED_IN[_ESTIMATED],),
        )
        question.check_span()
        show = (_COST,) if is_billed else (_COST, _ESTIMATED, *COUNTS)
        return await self.run(partial(self._report_rows, question, show, has_lines=has_lines))

    async def _report_rows(self, question: CostQuestion, show: Sequence[str], *, has_lines: bool) -> Rows:
        result = await answer_costs(question, self.reader, self.now, prices=self.prices)
        rows = await asyncio.to_thread(AnswerRows, result, show, (None, None), None)
        shown: FieldsOfReportRow = rows.row_fields
        if has_lines:
            await import_in_thread("gateway.money.costs.price_lines")
            from gateway.money.costs import price_lines

            charged = await price_lines.read_charged_lines(result.ledger, result.query, self.prices)
            shown = price_lines.with_price_lines(shown, charged)
        return await asyncio.to_thread(lambda: list(map(shown, rows.places)))
