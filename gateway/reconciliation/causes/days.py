"""Calls that stand on another day: a clock or a time zone that differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gateway.reconciliation.claims import STRONG, WEAK, Case, Claim
from gateway.reconciliation.sides import DAY_S

HOUR_S = 3600
LEAST_SHARE = 0.01  # of all tokens that are on another day
EXCHANGED = 0.15  # what the whole time may be apart, of what the days are
SOLVED = 0.2  # what may stay of it after the shift
SHIFTS = [hours for hours in range(-14, 15) if hours]


def time_edge(case: Case) -> Iterator[Claim]:
    """Days disagree while the whole time agrees, or a shift of the ledger's hours makes them agree."""
    left = case.left
    by_day: dict[int, int] = defaultdict(int)
    for (cell, _), extra in left.extra.items():
        by_day[cell.day] += extra
    apart = sum(map(abs, by_day.values()))
    counted: dict[int, int] = defaultdict(int)
    for cell, sums in case.split.counted.items():
        counted[cell.day] += sum(sums.tokens.values())
    if len(by_day) < 3 or apart <= LEAST_SHARE * sum(counted.values()):
        return
    shift = _shift(case, by_day, counted, apart)
    if shift is None and abs(sum(by_day.values())) > EXCHANGED * apart:
        return
    evidence = f"days are {apart:,} tokens apart, the whole time {abs(sum(by_day.values())):,}"
    if shift is not None:
        evidence += (
            f"; with the ledger's times {abs(shift)} h {'later' if shift < 0 else 'earlier'} the days agree"
        )
    if left.untold_tiers:
        evidence += "; tokens whose tier is not told are among them, and cannot be told apart on these days"
    claim = left.take(
        "time_edge",
        left.with_rates(left.volume()),
        sure=WEAK if shift is None else STRONG,
        evidence=evidence,
        advice="Look whether a source reports local time as UTC, or the statement is in another zone than UTC.",
        exchange=True,
    )
    if claim is not None:
        yield claim


def _shift(case: Case, by_day: dict[int, int], counted: dict[int, int], apart: int) -> int | None:
    """By how many hours the ledger's times are ahead; None if no shift explains the days."""
    if not case.hours:
        return None
    billed = {day: counted[day] + by_day.get(day, 0) for day in case.days}

    def rest(hours: int) -> int:
        found = 0
        for day, tokens in billed.items():
            start = day + hours * HOUR_S
            found += abs(
                tokens - sum(case.hours.get(hour, 0) for hour in range(start, start + DAY_S, HOUR_S))
            )
        return found

    best = min(SHIFTS, key=rest)
    return best if rest(best) <= SOLVED * apart else None
