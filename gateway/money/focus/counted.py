"""FOCUS rows of counted costs, by hour, and of plans and contracts, by month."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from exporters.focus import charges, rows
from gateway.bills.contracts.paid import ContractCharges
from gateway.bills.months import CalendarMonth
from gateway.bills.plans.costs import PlanQuestion, read_plan_costs
from gateway.money.costs.measures import REAL_COST
from gateway.money.focus.invoices import Invoices
from gateway.money.focus.reports import DAY, FocusReports, FocusSpan, Rows, day_start
from spool import money
from spool.errors import AskedTooMuch, Invalid, NotKept
from spool.ledger.dimensions import CHARGE, COVERED_COST, METERED_COST, PLAN, TOTAL
from spool.ledger.queries import CostQuery
from spool.money import unconverted_amounts_sentence
from spool.record import CURRENCY

_BY_CONTRACT = ("provider", PLAN, CHARGE, "team")
# pairs of the rows of a day or an hour, and the length of these periods
_Periods = AsyncIterator[tuple[Rows, timedelta]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusRowsOfCountedCosts:
    """
    Counted costs as FOCUS rows.

    `plans` has the costs of assistant plans for each month in which they are requested. In these months,
    covered calls have a share of the fees, and seats have their own rows.
    """

    reports: FocusReports
    span: FocusSpan
    has_lines: bool
    plans: Mapping[CalendarMonth, Mapping[str, Any]]
    invoices: Invoices

    @classmethod
    async def prepare(
        cls, reports: FocusReports, span: FocusSpan, *, has_price_lines: bool, has_plans: bool
    ) -> FocusRowsOfCountedCosts:
        """Create the rows of counted costs. Raises Invalid if plans are requested for a part of a month."""
        months = whole_months(span) if has_plans else ()
        plans = {month: await _plan_costs(reports, month) for month in months}
        invoices = Invoices.visible_to(reports.reader)
        return cls(reports=reports, span=span, has_lines=has_price_lines, plans=plans, invoices=invoices)

    @property
    def warnings(self) -> Sequence[str]:
        lacking = [costs["total"]["unconverted"] for costs in self.plans.values()]
        return [unconverted_amounts_sentence(amounts, CURRENCY) for amounts in lacking if amounts]

    async def csv_pieces(self) -> AsyncGenerator[bytes, None]:
        """
        Yield the CSV in pieces: the header, the rows of each day or hour, and the rows of plans and
        contracts.
        """
        span = self.span
        columns = charges.EXPORTED[span.version]
        yield charges.csv_header(columns)
        cost_type = METERED_COST if self.plans else REAL_COST
        days = self._report_rows_of_days(span.since, span.until, cost_type, has_price_lines=self.has_lines)
        async for found, length in days:
            yield await asyncio.to_thread(self._format_charges, found, length)
        for month, costs in self.plans.items():
            async for of_month in self._plan_rows(month, costs["rows"]):
                yield await asyncio.to_thread(charges.encode_csv_rows, of_month, columns=columns)
            of_contracts = rows.contract_rows(await self._contract_amounts(month), account=span.account)
            yield await asyncio.to_thread(charges.encode_csv_rows, of_contracts, columns=columns)

    def _format_charges(self, found: Rows, length: timedelta) -> bytes:
        made = [
            replace(
                charge,
                invoice=self.invoices.invoice_number_in_closed_month(
                    charge.provider or "", f"{charge.start:%Y-%m}"
                ),
            )
            for charge in rows.charges_from_rows(found, self.span.tags, length=length)
        ]
        columns = charges.EXPORTED[self.span.version]
        return charges.charge_lines(made, account=self.span.account, columns=columns)

    async def _report_rows_of_days(
        self, since: datetime, until: datetime, cost_type: str, *, has_price_lines: bool = False
    ) -> _Periods:
        counted = await self.reports.read_report_rows(since, until, ("source",), per="daily")
        for day in sorted({str(row["period"])[:10] for row in counted}):
            async for found in self._report_rows_of_day(
                day_start(date.fromisoformat(day)), cost_type, has_price_lines=has_price_lines
            ):
                yield found

    async def _report_rows_of_day(self, day: datetime, cost_type: str, *, has_price_lines: bool) -> _Periods:
        """
        Yield the rows of each hour of a day, or those of the day if its hours are no longer stored.

        Daily rows have no price lines. If the day is too large for one query, each hour is queried
        separately.
        """
        by = tuple(dict.fromkeys((*charges.DIMENSIONS, *self.span.tags)))
        report = partial(self.reports.read_report_rows, cost_type=cost_type)
        hours = partial(report, per="hourly", has_lines=has_price_lines)
        try:
            yield await hours(day, day + DAY, by), charges.HOUR
        except NotKept:
            yield await report(day, day + DAY, by, per="daily"), DAY
        except AskedTooMuch:
            for start in (day + hour * charges.HOUR for hour in range(24)):
                yield await hours(start, start + charges.HOUR, by), charges.HOUR

    async def _plan_rows(
        self, month: CalendarMonth, seats: Sequence[Mapping[str, Any]]
    ) -> AsyncIterator[Iterator[dict[str, str]]]:
        since, until = (datetime.fromtimestamp(edge, UTC) for edge in (month.start, month.end))
        values = await self.reports.read_report_rows(since, until, ("user",), cost_type=COVERED_COST)
        shares = await asyncio.to_thread(rows.FeeShares.from_seats, seats, values)
        account, tags = self.span.account, tuple(self.span.tags)
        async for found, length in self._report_rows_of_days(since, until, COVERED_COST):
            yield rows.fee_covered_call_rows(found, shares, account=account, tags=tags, length=length)
        yield rows.seat_rows(since, seats, shares, account=account)

    async def _contract_amounts(self, month: CalendarMonth) -> list[rows.ContractAmount]:
        reader = self.reports.reader
        source = ContractCharges(
            ledger=reader.ledger,
            # whole: a contract's amount is divided by all use; the rows are of visible calls
            whole=reader.whole,
            registry=reader.require_registry(),
            prices=self.reports.prices,
            now=self.reports.now,
        )
        since, until = (datetime.fromtimestamp(edge, UTC) for edge in (month.start, month.end))
        query = CostQuery(since=since, until=until, granularity=TOTAL, group_by=_BY_CONTRACT)
        amounts = []
        for row in await self.reports.run(partial(source.charge_rows, query)):
            provider, contract, kind, team = (value or "" for value in row.group)
            charge = charges.Charge(
                start=since,
                cost=money.units_to_text(money.text_to_units(row.cost) - money.text_to_units(row.converted)),
                list_cost=None,
                provider=provider,
                model=None,
                team=team or None,
                tags={"contract": contract},
                invoice=self.invoices.invoice_number_in_closed_month(provider, month.name),
            )
            amounts += [
                rows.ContractAmount(contract=contract, kind=kind, charge=each)
                for each in charges.split_by_currency(charge, row.charges)
            ]
        return amounts


async def _plan_costs(reports: FocusReports, month: CalendarMonth) -> Mapping[str, Any]:
    reader = reports.reader
    question = PlanQuestion(
        ledger=reader.ledger,
        # whole: a seat's fee is divided by all use of the seat; the rows are visible seats and calls
        whole=reader.whole,
        registry=reader.require_registry(),
        month=month,
        currency=CURRENCY,
        now=reports.now,
        limit=sys.maxsize,
    )
    costs: Mapping[str, Any] = msgspec.to_builtins(await reports.run(partial(read_plan_costs, question)))
    return costs


def whole_months(span: FocusSpan) -> Sequence[CalendarMonth]:
    """Return the months of a span. Raises Invalid unless it consists of whole months."""
    if span.since.day != 1 or span.until.day != 1:
        raise Invalid(
            "plans needs whole months: the first day must be the first of a month, and the last day the last of one"
        )
    return [CalendarMonth.of(f"{day:%Y-%m}") for day in span.days if day.day == 1]
