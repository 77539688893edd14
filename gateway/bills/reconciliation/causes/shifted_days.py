"""Calls that the bill has on another day than the ledger, because a clock or a time zone differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import (
    OTHERS,
    STRONG,
    WEAK,
    BillComparison,
    CauseClaim,
    ClaimedPortion,
)
from gateway.bills.reconciliation.limits import CARRIED, FAR, GAP, LACKING, LARGE_SHARE, QUARTER, ROUGHLY
from gateway.bills.reconciliation.sides import DAY_S, MeterPlace
from gateway.bills.reconciliation.wording import day_text, join_names

HOUR_S = 3600
BY_TOKENS = "; the times of the records differ as well, and only tokens are known per hour"
# time shifts to try, in hours, the smallest first, because the smallest of equally good shifts is used
SHIFTS = sorted((hours for hours in range(-14, 15) if hours), key=abs)


@dataclass(frozen=True, slots=True)
class HourShift:
    """
    An assumption that the ledger's times are `hours` ahead of the bill's days.

    Its tokens are by day: those that the shift moves, and the differences that remain.
    """

    hours: int
    moved_by_day: Mapping[int, int]
    unexplained_by_day: Mapping[int, int]

    @property
    def is_exact_on_most_days(self) -> bool:
        """Return whether the shift makes most days agree to the token."""
        tokens = self.unexplained_by_day.values()
        return sum(not left for left in tokens) * 2 > len(tokens)

    def next_day_in_shift_direction(self, day: int) -> int:
        return day + (DAY_S if self.hours > 0 else -DAY_S)

    def days_with_other_differences(self, billed: Mapping[int, int]) -> list[int]:
        """
        Return the days that still differ after the time shift. Return none if many days still have a large
        difference.
        """
        usual = median(map(abs, self.unexplained_by_day.values()))
        days = [
            day
            for day, tokens in sorted(self.unexplained_by_day.items())
            if abs(tokens) > max(FAR * usual, LARGE_SHARE * billed.get(day, 0))
        ]
        return days if len(days) * QUARTER <= len(self.unexplained_by_day) else []


def claim_shifted_times(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim a shift if days differ while the month agrees, or if shifting the ledger's hours makes days agree.

    A few days may have another difference as well. For them, claim as many tokens as the shift moves. Their value is
    then only about right, so the cause is only likely.
    """
    remainder = comparison.remainder
    by_day, counted = _tokens_by_day(comparison)
    difference = sum(map(abs, by_day.values()))
    if len(by_day) < 3 or difference <= GAP * sum(counted.values()):
        return
    shift = find_shift(comparison)
    if shift is None and not (
        abs(sum(by_day.values())) <= CARRIED * difference
        and _is_surplus_missing_on_adjacent_day(by_day, counted)
    ):
        return
    evidence = f"days differ by {difference:,} tokens, the whole month by {abs(sum(by_day.values())):,}"
    portions: dict[DifferenceEntry, ClaimedPortion] = {}
    beside: list[str] = []
    if shift is not None:
        remainder.shift = shift.hours
        later = "later" if shift.hours < 0 else "earlier"
        evidence += f"; with the times of the records {abs(shift.hours)} h {later}, the days agree"
        other_days = shift.days_with_other_differences(
            {day: counted[day] + by_day.get(day, 0) for day in comparison.days}
        )
        silent = [
            day
            for day in other_days
            if shift.next_day_in_shift_direction(day) in comparison.days
            and not counted[shift.next_day_in_shift_direction(day)]
        ]
        if silent:
            days = join_names([day_text(day) for day in silent])
            evidence += f", except {days}, which would need hours from days without telemetry"
            beside.append("no_telemetry")
        other_days = [day for day in other_days if day not in silent]
        if other_days:
            portions = portions_moved_by_shift(comparison, shift, other_days)
            days = join_names([day_text(day) for day in other_days])
            evidence += f", except {days}, on which only the moved tokens count, at the mean price"
            beside.append(OTHERS)
        usual = shift.unexplained_by_day.keys() - {*other_days, *silent}
        within = [tokens for day, tokens in sorted(shift.unexplained_by_day.items()) if day in usual][1:-1]
        if sum(within) > LACKING * sum(counted.values()):
            evidence += "; over all days together, tokens are missing"
            beside.append("unreported_calls")
    price = sum(comparison.split.values.values()) // max(sum(counted.values()), 1)
    amount = sum(remainder.amounts.get(entry, 0) for entry in remainder.token_difference_entries())
    if abs(amount - price * sum(by_day.values())) > CARRIED * price * difference:
        evidence += "; the month does not agree in money, so tokens of another tier or kind are among them"
        beside.append(OTHERS)
    is_apart = _is_month_difference_too_large_for_shift(comparison)
    if is_apart:
        evidence += (
            "; over the month, a model, tier or kind of token differs by more than the edges of the month"
        )
        beside.append(OTHERS)
    if remainder.unreported_tiers:
        beside.append("tier_unknown")
    claim = remainder.claim_entries(
        "time_edge",
        remainder.with_price_differences(remainder.token_difference_entries()),
        certainty=STRONG
        if shift is not None and shift.is_exact_on_most_days and not (is_apart or portions)
        else WEAK,
        evidence=evidence,
        advice=(
            "Check whether a source reports local time as UTC, or the bill is in a time zone other than UTC."
        ),
        exchanges_between_days=True,
        portions=portions,
        alternative_causes=beside,
    )
    if claim is not None:
        yield claim


def _is_month_difference_too_large_for_shift(comparison: BillComparison) -> bool:
    """
    Return whether some tokens differ over the whole month by more than their number on its first and last
    day. Tokens are grouped by key, model, tier and kind. A shift only moves tokens over the edges of the
    month.
    """
    net: dict[MeterPlace, int] = defaultdict(int)
    edges: dict[MeterPlace, int] = defaultdict(int)
    for (cell, meter), extra in comparison.remainder.extra.items():
        net[cell._replace(day=0), meter] += extra
    days = {comparison.days[0], comparison.days[-1]}
    for cell, meter in comparison.split.values:
        if cell.day in days:
            counted = (
                comparison.split.counted[cell].tokens.get(meter, 0) if cell in comparison.split.counted else 0
            )
            edges[cell._replace(day=0), meter] += max(
                counted, comparison.remainder.billed_tokens(cell, meter)
            )
    return any(abs(extra) > edges[place] for place, extra in net.items())


def _is_surplus_missing_on_adjacent_day(
    difference_by_day: Mapping[int, int], counted_by_day: Mapping[int, int]
) -> bool:
    """
    Return whether tokens that one day has too many are missing on the day before or after. Otherwise, some
    days lack calls and others have too many.
    """
    sums = list(accumulate(tokens for _, tokens in sorted(difference_by_day.items())))
    highest = max(*sums, 0)
    least = min(*sums, 0)
    is_one_way = min(highest, -least) <= CARRIED * max(highest, -least)
    return is_one_way and max(highest, -least) * len(counted_by_day) <= sum(counted_by_day.values())


def portions_moved_by_shift(
    comparison: BillComparison, shift: HourShift, days: Collection[int]
) -> dict[DifferenceEntry, ClaimedPortion]:
    """Return the tokens that the time shift moves to other days, valued at the mean billed price."""
    remainder = comparison.remainder
    entries = [entry for entry in remainder.token_difference_entries() if entry[1].day in days]
    billed_tokens: dict[int, int] = defaultdict(int)
    for entry in entries:
        billed_tokens[entry[1].day] += remainder.billed_value_and_tokens(entry).tokens
    portions = {}
    for entry in entries:
        worth, tokens = remainder.billed_value_and_tokens(entry)
        of_day = billed_tokens[entry[1].day]
        moved_tokens = shift.moved_by_day[entry[1].day]
        portions[entry] = (
            ClaimedPortion(worth * moved_tokens // of_day, tokens * moved_tokens // of_day)
            if of_day
            else ClaimedPortion(0)
        )
    return portions


def _tokens_by_day(comparison: BillComparison) -> tuple[dict[int, int], dict[int, int]]:
    by_day: dict[int, int] = defaultdict(int)
    for (cell, _), extra in comparison.remainder.extra.items():
        by_day[cell.day] += extra
    counted: dict[int, int] = defaultdict(int)
    for cell, sums in comparison.split.counted.items():
        counted[cell.day] += sum(sums.tokens.values())
    return by_day, counted


def _net_tokens_moved_by_shift(
    comparison: BillComparison, shift_hours: int, counted_by_day: Mapping[int, int]
) -> dict[int, int]:
    moved_by_day = {}
    for day in comparison.days:
        start = day + shift_hours * HOUR_S
        shifted_tokens = sum(comparison.hours.get(hour, 0) for hour in range(start, start + DAY_S, HOUR_S))
        moved_by_day[day] = shifted_tokens - counted_by_day[day]
    return moved_by_day


def find_shift(comparison: BillComparison) -> HourShift | None:
    by_day, counted = _tokens_by_day(comparison)
    if not comparison.hours or sum(map(abs, by_day.values())) <= GAP * sum(counted.values()):
        return None

    def build_shift(hours: int) -> HourShift:
        moved_by_day = _net_tokens_moved_by_shift(comparison, hours, counted)
        return HourShift(
            hours, moved_by_day, {day: by_day.get(day, 0) - moved_by_day[day] for day in comparison.days}
        )

    def count_days_explained_by_shift(shift: HourShift) -> int:
        return sum(abs(tokens) <= GAP * counted[day] for day, tokens in shift.unexplained_by_day.items())

    def is_shift_proven(shift: HourShift) -> bool:
        days = sorted(comparison.days, key=lambda day: abs(shift.unexplained_by_day[day]))
        most_days = days[: len(days) - len(days) // QUARTER]
        return any(
            (difference := sum(abs(by_day.get(day, 0)) for day in chosen_days)) > GAP * sum(counted.values())
            and sum(abs(shift.unexplained_by_day[day]) for day in chosen_days) <= ROUGHLY * difference
            for chosen_days in (days, most_days)
        )

    candidates = [build_shift(hours) for hours in SHIFTS]
    most_exact = max(candidates, key=lambda shift: [*shift.unexplained_by_day.values()].count(0))
    nearest = min(candidates, key=lambda item: sum(map(abs, item.unexplained_by_day.values())))
    fitting = (
        *[most_exact] * most_exact.is_exact_on_most_days,
        max(candidates, key=count_days_explained_by_shift),
        nearest,
    )
    return next(filter(is_shift_proven, fitting), None)
