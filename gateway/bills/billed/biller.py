"""
The background task that calculates billed costs of months from bills and the ledger, with one
transaction per day.

Unchanged days are not written again. Days that no bill covers any more are deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

from gateway.bills.billed.bill import Bill, BillInputs, build_bill
from gateway.bills.billed.closing import Invoice, MonthFigures, closed_month_id, day_digest
from gateway.bills.billed.layers import (
    BillDivisionRules,
    BilledUsageByModel,
    DividedDay,
    RefundShare,
    divide_day,
    divide_refunds,
    split_by_day_of_use,
)
from gateway.bills.billed.restating import DaysWithSums, FrozenMonths, read_month_figures
from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.counting import TokenPrices, find_seller, to_counted_use
from gateway.bills.reconciliation.gathering import (
    StatementSources,
    average_rate,
    convert_rows_at_ledger_rates,
    counted_uses_by_seller,
    days_by_source,
    foreign_currencies,
)
from gateway.bills.reconciliation.sides import DAY_S, BilledMoney, CountedUse
from spool.clock import Clock
from spool.currencies import SCALE, find_no_rate
from spool.errors import Invalid
from spool.ledger.billed import BilledDay
from spool.ledger.days.usage import UsageSum
from spool.ledger.sums import Dimensions
from spool.loops import FailedItems, for_each_item, log_failure, repeat
from spool.record import CURRENCY
from spool.statements import StatementInfo

LOOK_S = 60.0
EVERY_S = 3600  # seconds between recalculations of recent months, for which more calls may still arrive
RULES = 5  # version of the division rules; it is part of every mark, so a new version recalculates all days

_Uses = Sequence[tuple[Dimensions, CountedUse]]
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _MonthInputs:
    """The inputs for dividing the bills of a month among its calls."""

    month: CalendarMonth
    infos: Sequence[StatementInfo]
    prices: TokenPrices
    counted: dict[str, list[CountedUse]] = field(default_factory=dict)
    # earlier months with calls that the bills of this month correct, by month name
    earlier: dict[str, _MonthInputs] = field(default_factory=dict)

    def newest_import_at(self, provider: str, source: str, day: int) -> float:
        times = [
            info.imported_at
            for info in self.infos
            if (info.provider, info.source) == (provider, source)
            and info.start < day + DAY_S
            and info.end > day
        ]
        return max(times, default=0.0)


@dataclass(frozen=True, slots=True)
class _RebuiltMonth:
    """A recalculated month. `failures` has the error of each provider whose bill failed."""

    changed_days: int
    failures: Mapping[str, Exception]

    def require_bill(self, provider: str) -> None:
        if provider in self.failures:
            raise self.failures[provider]


class BilledCostCalculator:
    """Calculates billed costs. `run` loops in the background; `recalculate_month` calculates one month now."""

    def __init__(
        self,
        sources: StatementSources,
        clock: Clock,
        division_rules: Callable[[], BillDivisionRules] = BillDivisionRules,
        failed_items: FailedItems | None = None,
    ) -> None:
        self.layers = division_rules  # returns the current rules for dividing bills
        self._sources = sources
        self._clock = clock
        self._failed_items = failed_items or FailedItems(clock)
        self._turn = asyncio.Lock()
        self._marks: dict[str, object] = {}  # inputs of each month's bills at the last calculation
        # currencies of each month's bills, except dollars
        self._currencies: dict[str, set[str]] = defaultdict(set)
        # by name of a month: the earlier months with calls that the bills of this month correct
        self._earlier: dict[str, Sequence[CalendarMonth]] = {}

    async def run(self) -> None:
        """
        Check for changes until cancelled. After an error, such as a full disk, the next check tries again.
        """
        await repeat(
            self.recalculate_changed_months,
            every_s=LOOK_S,
            failed="calculating billed costs failed and will be retried",
            action="billed_waits",
        )

    async def recalculate_changed_months(self) -> int:
        """
        Recalculate months with changed bills, owners or rates. This month and the previous month are also
        recalculated once an hour.
        """
        infos = await self._sources.statements.statements()
        this = CalendarMonth.at(self._clock.now())
        if infos or self._marks:
            await self._sources.ledger.require_complete_totals(self._sources.log)
        months = (
            {calendar_month.name: calendar_month for calendar_month in (this.previous, this)}
            if infos or self._marks
            else {}
        )
        for info in infos:
            for day in range(info.start, info.end, 28 * DAY_S):
                month = CalendarMonth.at(day)
                months.setdefault(month.name, month)
            last = CalendarMonth.at(info.end - 1)
            months.setdefault(last.name, last)
        for name in self._marks:  # `_marks` includes months that no longer have a bill
            months.setdefault(name, CalendarMonth.of(name))
        changed = 0

        async def recalculate(month: CalendarMonth) -> None:
            nonlocal changed
            changed += await self._recalculate_if_changed(month, infos)

        await self._failed_items.work_on("billed costs", dict(sorted(months.items())), recalculate)
        return changed

    async def _recalculate_if_changed(self, month: CalendarMonth, infos: Sequence[StatementInfo]) -> int:
        mark = self._month_inputs_fingerprint(month, infos)
        rates = await asyncio.to_thread(self._exchange_rates_in_month, month)
        if self._marks.get(month.name) == (mark, rates):
            return 0
        changed = await self.recalculate_month(month)
        mark = self._month_inputs_fingerprint(month, infos)
        self._marks[month.name] = mark, await asyncio.to_thread(self._exchange_rates_in_month, month)
        return changed

    def _month_inputs_fingerprint(self, month: CalendarMonth, infos: Sequence[StatementInfo]) -> object:
        this = CalendarMonth.at(self._clock.now())
        months = (month, *self._earlier.get(month.name, ()))
        within = [
            repr(info)
            for info in infos
            if any(_overlaps_month(info, calendar_month) for calendar_month in months)
        ]
        hour = int(self._clock.now()) // EVERY_S if month.end > this.previous.start else 0
        closed = [
            closed_name
            for closed_name in self._sources.closed_months()
            if closed_name.endswith(f":{month.name}")
        ]
        owners = tuple(self._sources.owners())
        return hour, tuple(within), owners, tuple(sorted(closed)), self.layers()

    def _bill_division_rules(self, provider: str, month: CalendarMonth) -> BillDivisionRules:
        """
        Return the rules that divide discounts and taxes of a bill. A closed month keeps the rules with which
        it was closed.
        """
        closed = self._sources.closed_months().get(closed_month_id(provider, month.name))
        return self.layers() if closed is None else BillDivisionRules(**closed.get("layers", {}))

    def _exchange_rates_in_month(self, month: CalendarMonth) -> Sequence[int | None]:
        rates, currencies = self._sources.ledger.rates, sorted(self._currencies[month.name])
        if rates is None:
            return ()
        return [rates(currency, CURRENCY, day) for currency in currencies for day in month.days]

    async def recalculate_month(self, month: CalendarMonth) -> int:
        """
        Calculate all bills of a month. Return the number of changed days. If a bill fails, the days of the others
        are stored before its error is raised.
        """
        async with self._turn:
            rebuilt = await self._rebuild(month)
        for error in rebuilt.failures.values():
            raise error
        return rebuilt.changed_days

    async def recalculate_figures(
        self, month: CalendarMonth, provider: str, invoices: Sequence[Invoice]
    ) -> MonthFigures:
        async with self._turn:
            (await self._rebuild(month)).require_bill(provider)
            return await self._month_figures(month, provider, invoices)

    async def close_month(
        self,
        month: CalendarMonth,
        provider: str,
        invoices: Sequence[Invoice],
        store_figures: Callable[[MonthFigures], Awaitable[None]],
    ) -> MonthFigures:
        """Recalculate and close a month. `store_figures` stores the closing; if it raises, the month stays open."""
        async with self._turn:
            (await self._rebuild(month)).require_bill(provider)
            figures = await self._month_figures(month, provider, invoices)
            await store_figures(figures)
            await (await self._read_frozen_months(month)).apply_closings_and_reopenings()
        return figures

    async def _month_figures(
        self, month: CalendarMonth, provider: str, invoices: Sequence[Invoice]
    ) -> MonthFigures:
        in_dollars = [
            invoice
            if invoice.currency == CURRENCY
            else invoice.convert_to_dollars(await self._invoice_exchange_rate(month, invoice))
            for invoice in invoices
        ]
        return await read_month_figures(self._sources.ledger, month, provider, in_dollars)

    async def _invoice_exchange_rate(self, month: CalendarMonth, invoice: Invoice) -> Fraction:
        """
        Return the dollars per unit of an invoice's currency. It is the average of the provider's bill, so an
        invoice that equals the bill has no difference. Without a bill in this currency, it is the rate of the
        last day of the month. Raises Invalid if no rate is known.
        """
        rates = self._sources.ledger.rates or find_no_rate
        billed_rows = await self._sources.statements.billed_rows(
            provider=invoice.provider, start=month.start, end=month.end
        )
        if average := average_rate([billed.row for billed in billed_rows], invoice.currency, rates):
            return average
        last = rates(invoice.currency, CURRENCY, month.days[-1])
        if last is None:
            raise Invalid(
                f"the invoice {invoice.number} is in {invoice.currency}, and no exchange rate to {CURRENCY} is known "
                "for the month; add one to the section [currency] of the configuration"
            )
        return Fraction(last, SCALE)

    async def reopen_month(
        self, month: CalendarMonth, delete_stored_closing: Callable[[], Awaitable[None]]
    ) -> None:
        """
        Reopen a closed month. If `delete_stored_closing` raises, the month stays closed.
        """
        async with self._turn:
            await delete_stored_closing()
            await self._rebuild(month)

    async def _read_frozen_months(self, month: CalendarMonth) -> FrozenMonths:
        sources = self._sources
        return await FrozenMonths(
            sources.ledger, month, sources.closed_months(), self._clock.now()
        ).load_stored_days()

    async def _rebuild(self, month: CalendarMonth) -> _RebuiltMonth:
        """
        Calculate all bills of a month. A bill that fails costs only itself: its stored days stay as they are, and
        its closed month gets no corrections.
        """
        sources, now = self._sources, self._clock.now()
        await sources.ledger.require_complete_totals(sources.log)
        known = await sources.statements.statements()
        infos = [info for info in known if _overlaps_month(info, month)]
        frozen = await self._read_frozen_months(month)
        if not infos and not frozen.days:
            return _RebuiltMonth(await frozen.apply_closings_and_reopenings(), {})
        read = _MonthInputs(month, infos, TokenPrices(await asyncio.to_thread(sources.prices)))
        if infos:
            read.counted.update(await counted_uses_by_seller(sources.ledger, month, read.prices, now))
        failures: dict[str, Exception] = {}

        async def note_failure(provider: str, error: Exception) -> None:
            error.add_note(f"the bill of {provider}")
            failures[provider] = error
            text = "the billed costs of a provider could not be calculated"
            log_failure(text, error, action="bill_failed", month=month.name, provider=provider)

        by_provider: dict[str, Bill] = {}

        async def read_bill(provider: str) -> None:
            by_provider[provider] = await self._read_bill(read, provider, now)

        providers = sorted({info.provider for info in infos})
        await for_each_item(providers, read_bill, note_failure)
        rules = {name: self._bill_division_rules(name, month) for name in by_provider}
        wanting = [bill for name, bill in by_provider.items() if rules[name].needs_month_usage(bill)]
        bases = await self._usage_money_by_provider(read, wanting, note_failure)

        async def divide_bills(day: int, providers: Sequence[str]) -> DaysWithSums:
            uses = await self._calls_by_seller(read, day) if providers else {}
            billed_days: DaysWithSums = []

            async def divide_bill(provider: str) -> None:
                bill = by_provider[provider]
                refunds = await self._divide_refunds(read, bill, day, known)
                arguments: dict[str, Any] = {"refunds": refunds, "rules": rules[provider]}
                divide = partial(divide_day, bill, day, uses.get(provider, ()), **arguments)
                divided = await asyncio.to_thread(divide, month_usage=bases.get(provider))
                if divided.wants_month and provider not in bases:
                    bases.update(await self._usage_money_by_provider(read, [bill], note_failure))
                    divided = await asyncio.to_thread(divide, month_usage=bases[provider])
                if provider not in failures:
                    billed_days.extend(
                        await frozen.note_change_or_return_day_to_store(
                            self._build_billed_day(read, bill, day, divided), divided.sums
                        )
                    )

            await for_each_item(providers, divide_bill, note_failure)
            return billed_days

        changed = 0
        for day in month.days:
            of_day = [name for name, bill in by_provider.items() if day in bill.states]
            billed_days = await divide_bills(day, [name for name in of_day if name not in failures])
            present = {*of_day, *failures}
            await frozen.note_day_without_bill(day, present)
            changed += await sources.ledger.store_billed_days(billed_days) if billed_days else 0
            for provider in frozen.providers_that_lost_bill(day, present):
                await sources.ledger.delete_billed_day(day, provider)
                changed += 1
        self._earlier[month.name] = tuple(earlier_day.month for earlier_day in read.earlier.values())
        entries = await frozen.build_correction_entries(without=failures)
        changed += await sources.ledger.store_billed_days(entries) if entries else 0
        if (
            not failures
        ):  # a failed bill may have stored a part of its days, which must not become its closed month
            changed += await (await self._read_frozen_months(month)).apply_closings_and_reopenings()
        return _RebuiltMonth(changed, failures)

    async def _divide_refunds(
        self, month_inputs: _MonthInputs, bill: Bill, day: int, infos: Sequence[StatementInfo]
    ) -> list[RefundShare]:
        """
        Divide the refunds and corrections in a day's bill among the calls that they are about. These calls
        may be in an earlier month.
        """
        rows = [row for row in bill.amounts.get(day, ()) if row.used]
        if not rows:
            return []
        now, worth = self._clock.now(), Counter[int]()
        bills: dict[str, tuple[_MonthInputs, Bill]] = {month_inputs.month.name: (month_inputs, bill)}
        for name in sorted({CalendarMonth.at(at).name for row in rows for at in row.used}):
            if name not in bills:
                earlier = await self._load_earlier_month(month_inputs, name, infos)
                bills[name] = earlier, await self._read_bill(earlier, bill.provider, now, refunds=rows)
            for use in bills[name][0].counted.get(bill.provider, ()):
                worth[use.day] += sum(use.values.values())
        parts: dict[int, list[BilledMoney]] = defaultdict(list)
        for at, part in split_by_day_of_use(rows, worth):
            parts[at].append(part)
        refund_shares: list[RefundShare] = []
        for at, of_day in sorted(parts.items()):
            earlier, theirs = bills[CalendarMonth.at(at).name]
            uses = (await self._calls_by_seller(earlier, at)).get(bill.provider, ())
            refund_shares += await asyncio.to_thread(divide_refunds, of_day, theirs, at, uses)
        return refund_shares

    async def _load_earlier_month(
        self, month_inputs: _MonthInputs, name: str, infos: Sequence[StatementInfo]
    ) -> _MonthInputs:
        if name not in month_inputs.earlier:
            month = CalendarMonth.of(name)
            within = [info for info in infos if _overlaps_month(info, month)]
            ledger, prices, now = self._sources.ledger, month_inputs.prices, self._clock.now()
            uses = await counted_uses_by_seller(ledger, month, prices, now)
            month_inputs.earlier[name] = _MonthInputs(month, within, prices, uses)
        return month_inputs.earlier[name]

    async def _read_bill(
        self, month_inputs: _MonthInputs, provider: str, now: float, *, refunds: Sequence[BilledMoney] = ()
    ) -> Bill:
        month = month_inputs.month
        billed_rows = await self._sources.statements.billed_rows(
            provider=provider, start=month.start, end=month.end
        )
        rows = [billed.row for billed in billed_rows]
        self._currencies[month.name] |= foreign_currencies(rows)
        rows_in_dollars = await convert_rows_at_ledger_rates(self._sources.ledger, rows)
        infos = [info for info in month_inputs.infos if info.provider == provider]
        sides = BillInputs(
            provider=provider,
            days=month.days,
            open_from=int(now) // DAY_S * DAY_S,
            rows=[billed._replace(row=row) for billed, row in zip(billed_rows, rows_in_dollars, strict=True)],
            counted=month_inputs.counted.get(provider, ()),
            covered=days_by_source(infos, month),
            unsettled=days_by_source((info for info in infos if not info.settled), month),
            owners=self._sources.owners(),
            refunds=refunds,
        )
        return await asyncio.to_thread(build_bill, sides)

    async def _usage_money_by_provider(
        self,
        month_inputs: _MonthInputs,
        bills: Sequence[Bill],
        note_failure: Callable[[str, Exception], Awaitable[None]],
    ) -> dict[str, BilledUsageByModel]:
        """
        Return the month's usage amounts by provider, without discounts, taxes and fees. Each day's calls are
        read once.
        """
        bases = {bill.provider: Counter[tuple[Dimensions, str]]() for bill in bills}

        async def add_usage(day: int, uses: Mapping[str, _Uses], bill: Bill) -> None:
            theirs = uses.get(bill.provider, ())
            bases[bill.provider].update((await asyncio.to_thread(divide_day, bill, day, theirs)).base)

        async def note_failure_of_bill(bill: Bill, error: Exception) -> None:
            await note_failure(bill.provider, error)

        for day in sorted({day for bill in bills for day in bill.states}):
            uses = await self._calls_by_seller(month_inputs, day)
            of_day = [bill for bill in bills if day in bill.states]
            await for_each_item(of_day, partial(add_usage, day, uses), note_failure_of_bill)
        return {**bases}

    async def _calls_by_seller(self, month_inputs: _MonthInputs, day: int) -> Mapping[str, _Uses]:
        sums = await self._sources.ledger.detailed_usage_of_day(day)
        return await asyncio.to_thread(_uses_by_seller, sums, month_inputs.prices)

    def _build_billed_day(
        self, month_inputs: _MonthInputs, bill: Bill, day: int, divided: DividedDay
    ) -> BilledDay:
        source, state = bill.sources[day], bill.states[day]
        foreign = bill.foreign.get(day, {})
        return BilledDay(
            day=day,
            provider=bill.provider,
            state=state,
            mark=day_digest(
                divided.sums,
                RULES,
                state,
                source,
                *map(_amounts_sorted_by_name, (divided.reasons, divided.accrued, foreign)),
            ),
            source=source,
            read_at=month_inputs.newest_import_at(bill.provider, source, day),
            made_at=self._clock.now(),
            reasons=divided.reasons,
            accrued=divided.accrued,
            foreign=foreign,
        )


def _amounts_sorted_by_name(amounts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(amounts.items())


def _overlaps_month(info: StatementInfo, month: CalendarMonth) -> bool:
    return info.start < month.end and info.end > month.start


def _uses_by_seller(
    sums: Sequence[UsageSum], prices: TokenPrices
) -> dict[str, list[tuple[Dimensions, CountedUse]]]:
    uses_by_seller: dict[str, list[tuple[Dimensions, CountedUse]]] = defaultdict(list)
    for usage_sum in sums:
        dimensions = usage_sum.dimensions
        uses_by_seller[find_seller(dimensions.source, dimensions.provider, dimensions.model)].append(
            (dimensions, to_counted_use(usage_sum, prices))
        )
    return uses_by_seller
