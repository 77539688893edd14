"""Calls that the bill has on another day than the ledger, because a clock or a time zone differs."""

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
LEAST_SHARE = 0.01  # minimum share of all tokens that the bill must have on another day than the ledger
EXCHANGED = 0.15  # the month's difference may be at most this share of the sum of the daily differences
SOLVED = 0.2  # maximum share of the daily differences that may remain after the shift
FEW = 4  # at most 1/FEW of the days may also have a difference that the shift does not explain
# share of a day's tokens; if a shift leaves a larger difference, the day has another cause as well
BESIDE = 0.1
# Share of all tokens. A smaller difference between tiers comes from calls that a shift moves into or out
# of the month.
TIERS_APART = 0.03
LACKING = 0.03  # share of all tokens; if a shift leaves a larger difference, calls are missing as well
HINTS = 0.83  # maximum share of the daily differences that a shift may leave; a shift that leaves more fits by chance
# the limit instead of HINTS if some calls came without tokens, because such calls also make days differ
CLEAR_HINTS = 0.8
# If a shift leaves more than FAR times the median of all days unexplained, in tokens, the day has another
# cause as well.
FAR = 3
BY_TOKENS = "; the times of the records differ as well, and only tokens are known per hour"
SHIFTS = [hours for hours in range(-14, 15) if hours]


@dataclass(frozen=True, slots=True)
class Shift:
    """
    A shift: by how many hours the ledger's times are ahead of the bill's days. `moved` are the tokens that
    the shift moves, by day, and `left` are the differences that remain.
    """

    hours: int
    moved_by_day: Mapping[int, int]
    unexplained_by_day: Mapping[int, int]

    def from_day(self, day: int) -> int:
        """Return the day in the ledger that has the moved tokens of a day in the bill."""
        return day + (DAY_S if self.hours > 0 else -DAY_S)

    def others(self, billed: Mapping[int, int]) -> list[int]:
        """Return the days on which a large difference remains, if they are few."""
        usual = median(map(abs, self.unexplained_by_day.values()))
        days = [
            day
            for day, tokens in sorted(self.unexplained_by_day.items())
            if abs(tokens) > max(FAR * usual, BESIDE * billed.get(day, 0))
        ]
        return days if len(days) * FEW <= len(self.unexplained_by_day) else []


def time_edge(case: Case) -> Iterator[Claim]:
    """
    Claim a shift if days differ while the month agrees, or if shifting the ledger's hours makes days agree.

    A few days may have another difference as well. For them, claim as many tokens as the shift moves.
    """
    remainder = case.remainder
    by_day, counted = _days(case)
    difference = sum(map(abs, by_day.values()))
    if len(by_day) < 3 or difference <= LEAST_SHARE * sum(counted.values()):
        return
    shift = shift_of(case)
    if shift is None and not (
        abs(sum(by_day.values())) <= EXCHANGED * difference and _is_carried(by_day, counted)
    ):
        return
    evidence = f"days differ by {difference:,} tokens, the whole month by {abs(sum(by_day.values())):,}"
    portions: dict[Entry, Portion] = {}
    beside: list[str] = []
    if shift is not None:
        remainder.shift = shift.hours
        later = "later" if shift.hours < 0 else "earlier"
        evidence += f"; with the times of the records {abs(shift.hours)} h {later}, the days agree"
        other_days = shift.others({day: counted[day] + by_day.get(day, 0) for day in case.days})
        silent = [
            day for day in other_days if shift.from_day(day) in case.days and not counted[shift.from_day(day)]
        ]
        if silent:
            days = named([day_text(day) for day in silent])
            evidence += f", except {days}, which would need hours from days without telemetry"
            beside.append("no_telemetry")
        other_days = [day for day in other_days if day not in silent]
        if other_days:
            portions = of_shift(case, shift, other_days)
            days = named([day_text(day) for day in other_days])
            evidence += f", except {days}, on which only the moved tokens count, at the mean price"
            beside.append(OTHERS)
        usual = shift.unexplained_by_day.keys() - {*other_days, *silent}
        within = [tokens for day, tokens in sorted(shift.unexplained_by_day.items()) if day in usual][1:-1]
        if sum(within) > LACKING * sum(counted.values()):
            evidence += "; over all days together, tokens are missing"
            beside.append("unreported_calls")
    price = sum(case.split.values.values()) // max(sum(counted.values()), 1)
    amount = sum(remainder.amounts.get(entry, 0) for entry in remainder.volume())
    if abs(amount - price * sum(by_day.values())) > EXCHANGED * price * difference:
        evidence += "; the month does not agree in money, so tokens of another tier or kind are among them"
        beside.append(OTHERS)
    if remainder.unreported_tiers or _are_tiers_apart(case, counted):
        evidence += "; tokens with an unreported tier are among them"
        beside.append("tier_unknown")
    claim = remainder.take(
        "time_edge",
        remainder.with_rates(remainder.volume()),
        sure=WEAK if shift is None else STRONG,
        evidence=evidence,
        advice=(
            "Check whether a source reports local time as UTC, or the bill is in a time zone other than UTC."
        ),
        exchange=True,
        portions=portions,
        beside=beside,
    )
    if claim is not None:
        yield claim


def _are_tiers_apart(case: Case, counted: Mapping[int, int]) -> bool:
    """
    Return whether one tier has too many tokens over the whole month and another tier about as many too few.
    """
    by_tier: dict[str, int] = defaultdict(int)
    for (cell, _), extra in case.remainder.extra.items():
        by_tier[cell.tier] += extra
    surplus = sum(extra for extra in by_tier.values() if extra > 0)
    fewer = -sum(extra for extra in by_tier.values() if extra < 0)
    return min(surplus, fewer) > TIERS_APART * sum(counted.values())


def _is_carried(by_day: Mapping[int, int], counted: Mapping[int, int]) -> bool:
    """
    Return whether each day's surplus is missing on its neighbor. Then the running sum has the same sign
    throughout and never exceeds a day's tokens. Otherwise calls are missing on some days and surplus on others.
    """
    sums = list(accumulate(tokens for _, tokens in sorted(by_day.items())))
    highest = max(*sums, 0)
    least = min(*sums, 0)
    is_one_way = min(highest, -least) <= EXCHANGED * max(highest, -least)
    return is_one_way and max(highest, -least) * len(counted) <= sum(counted.values())


def of_shift(case: Case, shift: Shift, days: Collection[int]) -> dict[Entry, Portion]:
    """Return portions of some days' entries for the tokens that a shift moves, at the mean billed price."""
    remainder = case.remainder
    entries = [entry for entry in remainder.volume() if entry[1].day in days]
    billed_tokens: dict[int, int] = defaultdict(int)
    for entry in entries:
        billed_tokens[entry[1].day] += remainder.said(entry).tokens
    portions = {}
    for entry in entries:
        worth, tokens = remainder.said(entry)
        of_day = billed_tokens[entry[1].day]
        moved_tokens = shift.moved_by_day[entry[1].day]
        portions[entry] = (
            Portion(worth * moved_tokens // of_day, tokens * moved_tokens // of_day) if of_day else Portion(0)
        )
    return portions


def _days(case: Case) -> tuple[dict[int, int], dict[int, int]]:
    """Return by day the token difference and the counted tokens."""
    by_day: dict[int, int] = defaultdict(int)
    for (cell, _), extra in case.remainder.extra.items():
        by_day[cell.day] += extra
    counted: dict[int, int] = defaultdict(int)
    for cell, sums in case.split.counted.items():
        counted[cell.day] += sum(sums.tokens.values())
    return by_day, counted


def hints_at_shift(case: Case) -> bool:
    """
    Return whether a shift of hours would clearly reduce the days' differences. A share of tokens that all
    days lack is subtracted first.
    """
    by_day, counted = _days(case)
    billed = {day: counted[day] + by_day.get(day, 0) for day in case.days}
    billed_days = [day for day in case.days if billed[day] > 0]
    if not case.hours or len(billed_days) < 3:
        return False
    usual = median(by_day.get(day, 0) / billed[day] for day in billed_days)
    if usual >= 1:
        return False
    differences = {day: by_day.get(day, 0) - usual * billed[day] for day in billed_days}
    size = sum(map(abs, differences.values()))
    if size <= LEAST_SHARE * sum(billed.values()):
        return False

    def left_by(hours: int) -> float:
        moved_by_day = _moved(case, hours, counted)
        return sum(abs(differences[day] - moved_by_day[day]) for day in billed_days)

    are_sized = not any(sums.unsized for sums in case.split.counted.values())
    return min(map(left_by, SHIFTS)) < (HINTS if are_sized else CLEAR_HINTS) * size


def _moved(case: Case, hours: int, counted: Mapping[int, int]) -> dict[int, int]:
    """Return the tokens that a shift by `hours` moves into each day."""
    moved_by_day = {}
    for day in case.days:
        start = day + hours * HOUR_S
        shifted_tokens = sum(case.hours.get(hour, 0) for hour in range(start, start + DAY_S, HOUR_S))
        moved_by_day[day] = shifted_tokens - counted[day]
    return moved_by_day


def shift_of(case: Case) -> Shift | None:
    """
    Return the hours by which the ledger's times are ahead, or None if no shift explains all or most days.
    """
    by_day, counted = _days(case)
    if not case.hours or sum(map(abs, by_day.values())) <= LEAST_SHARE * sum(counted.values()):
        return None

    def shifted(hours: int) -> Shift:
        moved_by_day = _moved(case, hours, counted)
        return Shift(hours, moved_by_day, {day: by_day.get(day, 0) - moved_by_day[day] for day in case.days})

    def solved(shift: Shift) -> int:
        return sum(
            abs(tokens) <= LEAST_SHARE * counted[day] for day, tokens in shift.unexplained_by_day.items()
        )

    def holds(shift: Shift) -> bool:
        days = sorted(case.days, key=lambda day: abs(shift.unexplained_by_day[day]))
        most_days = days[: len(days) - len(days) // FEW]
        return any(
            (difference := sum(abs(by_day.get(day, 0)) for day in chosen_days))
            > LEAST_SHARE * sum(counted.values())
            and sum(abs(shift.unexplained_by_day[day]) for day in chosen_days) <= SOLVED * difference
            for chosen_days in (days, most_days)
        )

    candidates = [shifted(hours) for hours in SHIFTS]
    nearest = min(candidates, key=lambda item: sum(map(abs, item.unexplained_by_day.values())))
    return next((shift for shift in (max(candidates, key=solved), nearest) if holds(shift)), None)
