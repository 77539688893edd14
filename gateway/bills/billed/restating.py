"""
Changes to closed months. A closed month never changes: a later change is an entry on the day on which it was found.
So the month plus its entries equals the recalculated month.

A row of a later bill changes no earlier month: it is in the month of its own bill. `FrozenMonths` stores days and
entries in the ledger; everything else is pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.bills.billed.closing import (
    Invoice,
    MonthFigures,
    build_invoice_day,
    closed_month_id,
    day_digest,
    freeze_day,
    largest_unassigned_sums,
    sum_by_charge,
    usage_by_dimensions,
)
from gateway.bills.months import CalendarMonth
from spool.ledger.billed import (
    CLOSED,
    CORRECTS,
    FROZEN,
    INVOICE,
    INVOICED,
    OPEN,
    RESTATED,
    BilledDay,
    BilledSum,
)
from spool.ledger.ledger import Ledger
from spool.ledger.sums import DAY_S, Dimensions
from spool.statements import day_text

BilledPlace = tuple[Dimensions, str, int]  # place of an amount: dimensions, basis, and bit mask of cost types
DaysWithSums = list[tuple[BilledDay, Sequence[BilledSum]]]


def subtract_known_sums(new_sums: Sequence[BilledSum], known: Iterable[BilledSum]) -> list[BilledSum]:
    """
    Return the recalculated amounts of a closed day minus the stored ones, which are those of the closed day
    and of its correction entries. The result belongs to no invoice.
    """
    differences: Counter[BilledPlace] = Counter()
    for sign, sums in ((1, new_sums), (-1, known)):
        for billed_sum in sums:
            if mask := billed_sum.arranged & ~INVOICED:
                differences[billed_sum.dimensions, billed_sum.basis, mask] += sign * billed_sum.amount
    return sorted(
        BilledSum(dimensions, RESTATED, basis, mask, amount)
        for (dimensions, basis, mask), amount in differences.items()
        if amount
    )


@dataclass(frozen=True, slots=True)
class DayRestatement:
    """
    The amounts of a recalculated day minus those of its closed state. `reasons` and `accrued` are differences
    as well.
    """

    day: BilledDay
    sums: Sequence[BilledSum]
    reasons: Mapping[str, int]
    accrued: Mapping[str, int]

    @classmethod
    def since_closing(
        cls, day: BilledDay, sums: Sequence[BilledSum], closed: BilledDay, known: Sequence[BilledSum]
    ) -> DayRestatement:
        reasons, accrued = (
            _subtract_amounts(day.reasons, closed.reasons),
            _subtract_amounts(day.accrued, closed.accrued),
        )
        return cls(day, subtract_known_sums(sums, known), reasons, accrued)


def build_correction_entry(
    restatement: DayRestatement, correction_day: int, known: Sequence[BilledDay], *, mark: str
) -> BilledDay:
    """
    Return the correction that is booked on day `correction_day` for an earlier day whose bill was
    restated. Changes that earlier corrections already state are subtracted.
    """
    day = restatement.day
    reasons, accrued = dict(restatement.reasons), dict(restatement.accrued)
    for known_day in known:
        reasons, accrued = (
            _subtract_amounts(reasons, known_day.reasons),
            _subtract_amounts(accrued, known_day.accrued),
        )
    return replace(
        day,
        day=correction_day,
        provider=f"{day.provider}{CORRECTS}{day_text(day.day)}",
        mark=mark,
        reasons=reasons,
        accrued=accrued,
        foreign={},
    )


def _subtract_amounts(now: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    differences = Counter(now)
    differences.subtract(known)
    return {name: amount for name, amount in differences.items() if amount}


class FrozenMonths:
    """
    The stored billed days of a month, in which the bills of some providers may be closed. Call
    `load_stored_days` first.
    """

    def __init__(
        self, ledger: Ledger, month: CalendarMonth, closed: Mapping[str, Mapping[str, Any]], now: float
    ) -> None:
        self._ledger = ledger
        self._month = month
        self._closed = closed
        self._today = int(now) // DAY_S * DAY_S
        self.days: dict[tuple[int, str], BilledDay] = {}
        self._corrections: list[BilledDay] = []
        # changes to the amounts of closed days, by day and provider
        self._found: dict[tuple[int, str], DayRestatement] = {}

    async def load_stored_days(self) -> FrozenMonths:
        days = await self._ledger.billed_days(self._month.start, self._month.end)
        self.days = {
            (day.day, day.provider): day for day in days if not day.corrected_day and not day.connection
        }
        known = await self._ledger.billed_corrections()
        self._corrections = [day for day in known if day.corrected_day.startswith(self._month.name)]
        return self

    async def note_change_or_return_day_to_store(
        self, day: BilledDay, sums: Sequence[BilledSum]
    ) -> DaysWithSums:
        """
        Return the day to store. If the provider's month is closed, return nothing and record the difference
        for `build_correction_entries`.
        """
        if not self._is_frozen(day.provider):
            is_kept = self._is_month_closed(day.provider) and self._is_stored_as_frozen(
                freeze_day(day, sums)[0]
            )
            return [] if is_kept else [(day, sums)]
        closed = self.days[day.day, day.provider]
        known = await self._ledger.billed_sums(closed.day, closed.provider)
        self._found[day.day, day.provider] = DayRestatement.since_closing(day, sums, closed, known)
        return []

    async def build_correction_entries(self, *, without: Collection[str] = ()) -> DaysWithSums:
        """Return correction entries for the changes of closed days. Providers in `without` get no entry."""
        new_entries: DaysWithSums = []
        for (_, provider), restatement in sorted(self._found.items(), key=lambda item: item[0][::-1]):
            if provider not in without:
                new_entries += await self._build_correction_entry(restatement)
        return new_entries

    async def _build_correction_entry(self, restatement: DayRestatement) -> DaysWithSums:
        text = day_text(restatement.day.day)
        entries = [
            correction
            for correction in self._corrections
            if (correction.seller, correction.corrected_day) == (restatement.day.provider, text)
        ]
        known = [entry for entry in entries if entry.day < self._today]
        amounts: list[BilledSum] = []
        for entry in known:
            amounts += await self._ledger.billed_sums(entry.day, entry.provider)
        sums = subtract_known_sums(restatement.sums, amounts)
        is_there = any(entry.day == self._today for entry in entries)
        if not sums and not is_there:
            return []
        return [(build_correction_entry(restatement, self._today, known, mark=day_digest(sums)), sums)]

    async def note_day_without_bill(self, day: int, billed_providers: Collection[str]) -> None:
        """
        Treat a closed day without any bill now as if it were billed with its closed amounts, so that its
        correction entries are reversed.
        """
        for (at, name), stored in self.days.items():
            is_there = name in billed_providers or INVOICE in name
            if at == day and not is_there and self._is_frozen(name):
                sums = await self._ledger.billed_sums(at, name)
                await self.note_change_or_return_day_to_store(replace(stored, state=CLOSED), sums)

    def _is_stored_as_frozen(self, day: BilledDay) -> bool:
        """
        Return whether a day is stored in its closed form, because a process stopped while it closed the
        month.
        """
        known = self.days.get((day.day, day.provider))
        return known is not None and known.mark == day.mark

    def providers_that_lost_bill(self, day: int, billed_providers: Collection[str]) -> set[str]:
        """
        Return the providers whose month is not closed and who no longer have a bill for a day with stored
        amounts.
        """
        stored = {name for at, name in self.days if at == day and INVOICE not in name}
        return {name for name in stored - set(billed_providers) if not self._is_frozen(name)}

    async def apply_closings_and_reopenings(self) -> int:
        """
        Store closed months that are not stored as closed yet, and delete corrections and invoice amounts of
        reopened months.
        """
        changed = 0
        for provider in sorted({day.seller for day in self.days.values()}):
            if self._is_month_closed(provider) and not self._is_frozen(provider):
                await self._store_closed_month(provider)
                changed += 1
        extra_days = [day for (_, name), day in self.days.items() if INVOICE in name]
        for day in (*extra_days, *self._corrections):
            if not self._is_month_closed(day.seller):
                await self._ledger.delete_billed_day(day.day, day.provider)
                changed += 1
        return changed

    async def _store_closed_month(self, provider: str) -> None:
        """
        Store a closed month day by day. The invoice amounts are stored last and mark the closing as complete.
        """
        usage: Counter[Dimensions] = Counter()
        billed = 0
        empty = BilledDay(
            day=0,
            provider=provider,
            state=FROZEN,
            mark=FROZEN,
            source="",
            read_at=0.0,
            made_at=float(self._today),
        )
        stored_days = await self._ledger.billed_days(self._month.start, self._month.end)
        days = {day.day: day for day in stored_days if day.provider == provider}
        for at in self._month.days:
            day = days.get(at)
            sums = await self._ledger.billed_sums(at, provider) if day is not None else []
            usage.update(usage_by_dimensions(sums))
            billed += sum_by_charge(sums).total()
            if day is None:
                await self._ledger.store_billed_days([(replace(empty, day=at), [])])
            elif day.state != FROZEN:
                await self._ledger.store_billed_days([freeze_day(day, sums)])
        closed = self._closed[closed_month_id(provider, self._month.name)]
        invoice_day = build_invoice_day(
            closed, provider, usage, billed, replace(empty, day=self._month.days[-1])
        )
        await self._ledger.store_billed_days([invoice_day])

    def _is_month_closed(self, provider: str) -> bool:
        return closed_month_id(provider, self._month.name) in self._closed

    def _is_frozen(self, provider: str) -> bool:
        return self._is_month_closed(provider) and (self._month.days[-1], provider + INVOICE) in self.days


async def read_month_figures(
    ledger: Ledger, month: CalendarMonth, provider: str, invoices: Sequence[Invoice]
) -> MonthFigures:
    """
    Return the sums of a provider's bills of a month. For a closed month, return the sums at its closing.
    """
    charges: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    largest: list[BilledSum] = []
    states: dict[int, str] = dict.fromkeys(month.days, OPEN)
    for day in await ledger.billed_days(month.start, month.end):
        if day.seller != provider or day.corrected_day or day.connection:
            continue
        sums = await ledger.billed_sums(day.day, day.provider)
        charges.update(sum_by_charge(sums))
        reasons.update(day.reasons)
        largest = largest_unassigned_sums([*largest, *sums])
        if day.source:
            states[day.day] = day.state
    restated_by_day: Counter[str] = Counter()
    for entry in await ledger.billed_corrections():
        if entry.seller == provider and entry.corrected_day.startswith(month.name):
            sums = await ledger.billed_sums(entry.day, entry.provider)
            restated_by_day[entry.corrected_day] += sum(sum_by_charge(sums).values())
    return MonthFigures(
        provider=provider,
        month=month.name,
        by_charge=charges,
        by_reason=reasons,
        days=Counter(states.values()),
        invoices=invoices,
        largest=largest,
        restated=restated_by_day,
    )
