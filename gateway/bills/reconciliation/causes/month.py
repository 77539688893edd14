"""The test of each claim against the whole compared period. A claim that the period contradicts becomes a hint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median

from gateway.bills.reconciliation.claims import WEAK, Case, Claim
from gateway.bills.reconciliation.limits import COARSEST, GAP
from gateway.bills.reconciliation.sides import OUTPUT, VOLUME, Place

MISSING = frozenset({"unreported_calls", "usage_missing", "output_missing"})
ONE_SIDED = {
    "no_bill": "posted_late",
    "no_telemetry": "time_edge",
}  # cause of days -> the cause if days exchange
_Kind = tuple[str, str, bool]  # key, model, and whether the tokens are output


def tested(claims: Sequence[Claim], case: Case) -> list[Claim]:
    """
    Return the claims. Those that the compared period contradicts become hints.

    - Missing tokens must be missing over the period, from the same key, model and kind. They must not be only on days
      to which the bill may have added an earlier day: the first day, or a day after one without calls.
    - A day that only one side has must not be next to a day with the opposite difference.
    - A claim of nothing must not leave an amount at the same places.
    """
    by_kind = Counter[_Kind]()
    by_day = Counter[int]()
    for (cell, meter), tokens in _tokens_of_days(claims, case):
        by_kind[cell.key, cell.model, meter == OUTPUT] += tokens
        by_day[cell.day] += tokens
    exchanged = {
        day: ONE_SIDED[claim.cause]
        for claim in claims
        if claim.cause in ONE_SIDED and not claim.is_hint
        for day in _opposite_days(claim, case, by_day)
    }
    return [_tested(claim, case, by_kind, exchanged) for claim in claims]


def _tested(claim: Claim, case: Case, by_kind: Counter[_Kind], exchanged: dict[int, str]) -> Claim:
    if claim.is_hint:
        return claim
    beside = []
    if claim.cause in MISSING:
        kinds = Counter[_Kind]()
        days = set()
        for (cell, meter), tokens in _tokens(claim):
            kinds[cell.key, cell.model, meter == OUTPUT] += tokens
            days.add(cell.day)
        if any(by_kind[kind] <= GAP * tokens for kind, tokens in kinds.items() if tokens > 0):
            beside.append("time_edge")
        if days <= _days_after_nothing(case):
            beside.append("posted_late")
    if claim.cause in MISSING or claim.cause in ONE_SIDED:
        beside += [cause for day, cause in exchanged.items() if day in claim.days]
    if beside:
        return replace(claim, beside=(*claim.beside, *beside))
    return replace(claim, sure=WEAK) if _leaves_money(claim, case) else claim


def _days_after_nothing(case: Case) -> set[int]:
    """Return the days before which neither side has a call, so that the bill may have added an earlier day."""
    known = {cell.day for cell, _ in case.split.values}
    return (
        {day for before, day in pairwise((0, *case.days)) if before not in known} if len(known) > 1 else set()
    )


def _tokens(claim: Claim) -> Iterator[tuple[Place, int]]:
    for (part, cell, meter), portion in claim.parts.items():
        if part == VOLUME:
            yield (cell, meter), portion.tokens


def _tokens_of_days(claims: Sequence[Claim], case: Case) -> Iterator[tuple[Place, int]]:
    """Yield billed minus counted tokens, less the tokens that causes outside MISSING and ONE_SIDED explain."""
    yield from case.split.extra.items()
    for claim in claims:
        if not claim.is_hint and claim.cause not in MISSING and claim.cause not in ONE_SIDED:
            for place, tokens in _tokens(claim):
                yield place, -tokens


def _opposite_days(claim: Claim, case: Case, by_day: Counter[int]) -> set[int]:
    """
    Return consecutive days of a claim and a day next to them, if it has about the opposite of their difference. The
    usual difference of a day does not count.
    """
    usual = median(by_day[day] for day in case.days)
    found = set[int]()
    for run in _runs(claim.days, case.days):
        first, last = case.days.index(run[0]), case.days.index(run[-1])
        whole = sum(by_day[day] - usual for day in run)
        for neighbor in (*case.days[max(first - 1, 0) : first], *case.days[last + 1 : last + 2]):
            other = by_day[neighbor] - usual
            if whole * other < 0 and 2 * abs(other) >= abs(whole):
                found |= {*run, neighbor}
    return found


def _runs(days: Collection[int], all_days: Sequence[int]) -> Iterator[list[int]]:
    """Yield the chosen days in runs without a gap."""
    for is_chosen, run in groupby(all_days, key=lambda day: day in days):
        if is_chosen:
            yield list(run)


def _leaves_money(claim: Claim, case: Case) -> bool:
    """Return whether a claim has no amount anywhere, although an amount at the same places is unexplained."""
    if any(claim.by_cell.values()) or not claim.is_of_tokens:
        return False
    coarse = case.split.levels.coarse
    cells = {coarse(cell) for cell in claim.by_cell}
    left = sum(amount for (_, cell, _), amount in case.remainder.amounts.items() if coarse(cell) in cells)
    return bool(abs(left) >= COARSEST)
