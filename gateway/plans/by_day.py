"""
The sums of a month by day. Pure: each sum of the month is divided over its days by what these came to,
so the days add up to the month in every currency, to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gateway.billed.spreading import in_turn
from gateway.plans.coverage import is_held
from gateway.plans.sums import AskedDays, SeatMonth, fees_of
from gateway.plans.uses import Uses
from gateway.resources.plans import PlanDay
from spool.ledger import money


@dataclass(slots=True)
class DaySums:
    """Adds up seats by day, in units. `used` has all calls of a seat, `shown` those that the person sees."""

    asked: AskedDays
    used: Uses
    shown: Uses
    fees: list[int] = field(init=False)
    overage: list[int] = field(init=False)
    included: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.fees = self._nothing()
        self.overage = self._nothing()
        self.included = self._nothing()

    def rows(self, months: Iterable[SeatMonth]) -> Iterator[PlanDay]:
        """Yield the days of the month."""
        for month in months:
            self._add(month)
        weights = [max(0, self.shown.metered_by_day[day]) for day in self.asked.days]
        metered = in_turn(self.shown.metered, weights)
        sums = zip(self.asked.texts, self.fees, self.overage, metered, self.included, strict=True)
        for day, fees, overage, paid_by_call, included in sums:
            yield PlanDay(
                day=day,
                paid=money.text(fees + overage + paid_by_call),
                fees=money.text(fees),
                overage=money.text(overage),
                metered=money.text(paid_by_call),
                included_value=money.text(included),
            )

    def _add(self, month: SeatMonth) -> None:
        self.fees = _added(self.fees, in_turn(month.fee, self._fee_weights(month)))
        if month.overage:
            self.overage = _added(self.overage, in_turn(month.overage, self._overage_weights(month)))
        worth = self.shown.of(month.mark, month.start, month.end).worth
        if included := month.included_of(worth):
            self.included = _added(self.included, in_turn(included, self._included_weights(month)))

    def _fee_weights(self, month: SeatMonth) -> list[int]:
        """Return the parts of the fee; of a plan without one, 1 for each day on which the seat is held."""
        asked, plan = self.asked, month.plan
        held = [int(is_held(month.seat, text)) for text in asked.texts]
        parts = fees_of(plan, asked)
        rates = (asked.converter.rate(plan.currency, day) or 0 for day in asked.days)
        weights = [
            parts.get(day, 0) * rate * is_own
            for day, rate, is_own in zip(asked.days, rates, held, strict=True)
        ]
        return weights if any(weights) else held

    def _overage_weights(self, month: SeatMonth) -> list[int]:
        """Return what was beyond on each day; if only a statement tells that something was, what was used."""
        beyond = [each.overage for each in map(month.by_day.get, self.asked.days) if each]
        if any(beyond):
            found = map(month.by_day.get, self.asked.days)
            return [each.overage if each else 0 for each in found]
        return [max(0, self.used.on(month.mark, day).value) for day in self.asked.days]

    def _included_weights(self, month: SeatMonth) -> list[int]:
        """Return the value of the calls that are seen, less the share of a day that was beyond."""
        weights = []
        for day in self.asked.days:
            worth = max(0, self.shown.on(month.mark, day).worth)
            beyond = month.by_day.get(day)
            value = self.used.on(month.mark, day).value
            if beyond is not None and value > 0:
                worth = worth * max(0, value - beyond.value) // value
            weights.append(worth)
        return weights

    def _nothing(self) -> list[int]:
        return [0] * len(self.asked.days)


def _added(sums: Sequence[int], parts: Sequence[int]) -> list[int]:
    return [one + other for one, other in zip(sums, parts, strict=True)]
