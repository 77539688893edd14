"""Calls that stand on another day: a clock or a time zone that differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from gateway.bills.reconciliation.cells import Entry
from gateway.bills.reconciliation.claims import OTHERS, STRONG, WEAK, Case, Claim, Portion
from gateway.bills.reconciliation.sides import DAY_S
from gateway.bills.reconciliation.wording import day_text, named

HOUR_S = 3600
LEAST_SHARE = 0.01  # of all tokens that are on another day
EXCHANGED = 0.15  # what the whole time may be apart, of what the days are
SOLVED = 0.2  # what may stay of it after the shift
FEW = 4  # days may be one in so many of all, where something else is apart as well
BESIDE = 0.1  # of a day's tokens that a shift leaves: another cause has them
TIERS_APART = 0.03  # of all tokens: less is of the first and the last day
LACKING = 0.03  # of all tokens that a shift leaves: calls are missing as well
HINTS = 0.83  # of what days differ by: more is chance,
CLEAR_HINTS = 0.8  # also where calls came without tokens, which makes days differ
FAR = 3  # so many times as much as a shift usually leaves
BY_TOKENS = "; the times of the ledger differ as well, and hours tell tokens alone"
SHIFTS = [hours for hours in range(-14, 15) if hours]


@dataclass(frozen=True, slots=True)
class Shift:
    """
    Hours by which the ledger's times are ahead of the statement's days; by day, the tokens that it moves, and
    what it leaves.
    """

    hours: int
    moved: Mapping[int, int]
    left: Mapping[int, int]

    def from_day(self, day: int) -> int:
        """The day of the ledger from which a day of the statement gets tokens."""
        return day + (DAY_S if self.hours > 0 else -DAY_S)

    def others(self, billed: Mapping[int, int]) -> list[int]:
        """The few days on which something else is apart."""
        usual = median(map(abs, self.left.values()))
        days = [
            day
            for day, tokens in sorted(self.left.items())
            if abs(tokens) > max(FAR * usual, BESIDE * billed.get(day, 0))
        ]
        return days if len(days) * FEW <= len(self.left) else []


def time_edge(case: Case) -> Iterator[Claim]:
    """
    Days disagree while the whole time agrees, or a shift of the ledger's hours makes them agree; but for a
    few days, of which it has as many tokens as the shift moves.
    """
    left = case.left
    by_day, counted = _days(case)
    apart = sum(map(abs, by_day.values()))
    if len(by_day) < 3 or apart <= LEAST_SHARE * sum(counted.values()):
        return
    shift = shift_of(case)
    if shift is None and not (
        abs(sum(by_day.values())) <= EXCHANGED * apart and _is_carried(by_day, counted)
    ):
        return
    evidence = f"days are {apart:,} tokens apart, the whole time {abs(sum(by_day.values())):,}"
    portions: dict[Entry, Portion] = {}
    beside: list[str] = []
    if shift is not None:
        left.shift = shift.hours
        later = "later" if shift.hours < 0 else "earlier"
        evidence += f"; with the ledger's times {abs(shift.hours)} h {later} the days agree"
        others = shift.others({day: counted[day] + by_day.get(day, 0) for day in case.days})
        silent = [
            day for day in others if shift.from_day(day) in case.days and not counted[shift.from_day(day)]
        ]
        if silent:
            days = named([day_text(day) for day in silent])
            evidence += f", but for {days}: there hours of days without telemetry are missing"
            beside.append("no_telemetry")
        others = [day for day in others if day not in silent]
        if others:
            portions = of_shift(case, shift, others)
            days = named([day_text(day) for day in others])
            evidence += f", but for {days}: there it is as many tokens as were moved, at the mean price"
            beside.append(OTHERS)
        usual = shift.left.keys() - {*others, *silent}
        within = [tokens for day, tokens in sorted(shift.left.items()) if day in usual][1:-1]
        if sum(within) > LACKING * sum(counted.values()):
            evidence += "; all days together lack tokens"
            beside.append("unreported_calls")
    price = sum(case.split.values.values()) // max(sum(counted.values()), 1)
    amount = sum(left.amounts.get(entry, 0) for entry in left.volume())
    if abs(amount - price * sum(by_day.values())) > EXCHANGED * price * apart:
        evidence += "; the whole time does not agree in money: tokens of another tier or kind are among them"
        beside.append(OTHERS)
    if left.untold_tiers or _are_tiers_apart(case, counted):
        evidence += "; tokens whose tier is not told are among them"
        beside.append("tier_unknown")
    claim = left.take(
        "time_edge",
        left.with_rates(left.volume()),
        sure=WEAK if shift is None else STRONG,
        evidence=evidence,
        advice="Look whether a source reports local time as UTC, or the statement is in another zone than UTC.",
        exchange=True,
        portions=portions,
        beside=beside,
    )
    if claim is not None:
        yield claim


def _are_tiers_apart(case: Case, counted: Mapping[int, int]) -> bool:
    """True if one tier has too many tokens over the whole time, and another as many too few."""
    by_tier: dict[str, int] = defaultdict(int)
    for (cell, _), extra in case.left.extra.items():
        by_tier[cell.tier] += extra
    more = sum(extra for extra in by_tier.values() if extra > 0)
    fewer = -sum(extra for extra in by_tier.values() if extra < 0)
    return min(more, fewer) > TIERS_APART * sum(counted.values())


def _is_carried(by_day: Mapping[int, int], counted: Mapping[int, int]) -> bool:
    """
    True if each day's surplus is its neighbour's lack: since the first day the sum is always too high, or
    always too low, and never by more than a day has. Otherwise calls are missing here and too many there.
    """
    sums = list(accumulate(tokens for _, tokens in sorted(by_day.items())))
    most = max(*sums, 0)
    least = min(*sums, 0)
    is_one_way = min(most, -least) <= EXCHANGED * max(most, -least)
    return is_one_way and max(most, -least) * len(counted) <= sum(counted.values())


def of_shift(case: Case, shift: Shift, days: Collection[int]) -> dict[Entry, Portion]:
    """Return as many tokens of some days' entries as a shift moves, at the mean price of what was billed."""
    left = case.left
    entries = [entry for entry in left.volume() if entry[1].day in days]
    said: dict[int, int] = defaultdict(int)
    for entry in entries:
        said[entry[1].day] += left.said(entry).tokens
    found = {}
    for entry in entries:
        worth, tokens = left.said(entry)
        of_day = said[entry[1].day]
        moved = shift.moved[entry[1].day]
        found[entry] = Portion(worth * moved // of_day, tokens * moved // of_day) if of_day else Portion(0)
    return found


def _days(case: Case) -> tuple[dict[int, int], dict[int, int]]:
    """Return by day the tokens that differ, and the counted ones."""
    by_day: dict[int, int] = defaultdict(int)
    for (cell, _), extra in case.left.extra.items():
        by_day[cell.day] += extra
    counted: dict[int, int] = defaultdict(int)
    for cell, sums in case.split.counted.items():
        counted[cell.day] += sum(sums.tokens.values())
    return by_day, counted


def hints_at_shift(case: Case) -> bool:
    """
    True if, beside a share that all days lack, a shift of the ledger's hours would explain clearly more of
    the days' differences.
    """
    by_day, counted = _days(case)
    billed = {day: counted[day] + by_day.get(day, 0) for day in case.days}
    told = [day for day in case.days if billed[day] > 0]
    if not case.hours or len(told) < 3:
        return False
    usual = median(by_day.get(day, 0) / billed[day] for day in told)
    if usual >= 1:
        return False
    apart = {day: by_day.get(day, 0) - usual * billed[day] for day in told}
    size = sum(map(abs, apart.values()))
    if size <= LEAST_SHARE * sum(billed.values()):
        return False

    def left_by(hours: int) -> float:
        moved = _moved(case, hours, counted)
        return sum(abs(apart[day] - moved[day]) for day in told)

    are_sized = not any(sums.unsized for sums in case.split.counted.values())
    return min(map(left_by, SHIFTS)) < (HINTS if are_sized else CLEAR_HINTS) * size


def _moved(case: Case, hours: int, counted: Mapping[int, int]) -> dict[int, int]:
    """Return by day the tokens that a shift by so many hours moves into it."""
    moved = {}
    for day in case.days:
        start = day + hours * HOUR_S
        there = sum(case.hours.get(hour, 0) for hour in range(start, start + DAY_S, HOUR_S))
        moved[day] = there - counted[day]
    return moved


def shift_of(case: Case) -> Shift | None:
    """Find the hours by which the ledger's times are ahead; None if no shift explains the days, or most of them."""
    by_day, counted = _days(case)
    if not case.hours or sum(map(abs, by_day.values())) <= LEAST_SHARE * sum(counted.values()):
        return None

    def shifted(hours: int) -> Shift:
        moved = _moved(case, hours, counted)
        return Shift(hours, moved, {day: by_day.get(day, 0) - moved[day] for day in case.days})

    def solved(shift: Shift) -> int:
        return sum(abs(tokens) <= LEAST_SHARE * counted[day] for day, tokens in shift.left.items())

    def holds(shift: Shift) -> bool:
        days = sorted(case.days, key=lambda day: abs(shift.left[day]))
        most = days[: len(days) - len(days) // FEW]
        return any(
            (apart := sum(abs(by_day.get(day, 0)) for day in of)) > LEAST_SHARE * sum(counted.values())
            and sum(abs(shift.left[day]) for day in of) <= SOLVED * apart
            for of in (days, most)
        )

    found = [shifted(hours) for hours in SHIFTS]
    nearest = min(found, key=lambda each: sum(map(abs, each.left.values())))
    return next((each for each in (max(found, key=solved), nearest) if holds(each)), None)
