"""The test of each claim against the whole compared period. A claim that the period contradicts becomes a hint."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median

from gateway.bills.reconciliation.claims import OF_PRICES, WEAK, Case, Claim
from gateway.bills.reconciliation.limits import COARSEST, GAP, LARGE_SHARE, NOTHING
from gateway.bills.reconciliation.sides import OUTPUT, RATE, VOLUME, Place
from gateway.intake.rate_cards.names import family

MISSING = frozenset({"unreported_calls", "usage_missing", "output_missing"})
ONE_SIDED = {
    "no_bill": "posted_late",
    "no_telemetry": "time_edge",
}  # cause of days -> the cause if days exchange
# causes of names that only one side has
ONE_NAME = frozenset({"unreported_traffic", "other_account"})
_OF_AMOUNTS = OF_PRICES | {"cache_ttl_1h"}
_ONE_PRICE = frozenset({"price_change", "price_on_days", "discount", "tier"})
ANY_KEY = "(any key)"
_Kind = tuple[str, str, bool]  # key, model, and whether the tokens are output
_Rest = dict[str, Counter[int]]  # amounts by model and day
_Series = tuple[str, str, int]  # model, meter and day


def tested(claims: Sequence[Claim], case: Case) -> list[Claim]:
    """
    Return the claims. Those that the compared period contradicts become hints.

    - Missing tokens must be missing over the period, from the same key, model and kind. They must not be only on days
      to which the bill may have added an earlier day: the first day, or a day after one without calls.
    - Tokens of a key or model that only one side has must not be surplus under other keys or snapshots of the model.
    - A day that only one side has must not be next to a day with the opposite difference.
    - A price of a model must explain its amounts, and the bill must not name another reason for them.
    - A claim of nothing must not leave an amount at the same places.
    """
    by_kind = Counter[_Kind]()
    by_day = Counter[int]()
    for (cell, meter), tokens in _tokens_of_days(claims, case):
        by_kind[cell.key, cell.model, meter == OUTPUT] += tokens
        by_day[cell.day] += tokens
    for (cell, meter), tokens in _tokens_of_days(claims, case, without=ONE_NAME):
        by_kind[ANY_KEY, family(cell.model), meter == OUTPUT] += tokens
    exchanged = {
        day: ONE_SIDED[claim.cause]
        for claim in claims
        if claim.cause in ONE_SIDED and not claim.is_hint
        for day in _opposite_days(claim, case, by_day)
    }
    rest = _rest_by_model(case)
    return [_tested(claim, case, by_kind, exchanged, rest) for claim in claims]


def _tested(
    claim: Claim,
    case: Case,
    by_kind: Counter[_Kind],
    exchanged: Mapping[int, str],
    rest: _Rest,
) -> Claim:
    if claim.is_hint:
        return claim
    beside = []
    if claim.cause in MISSING or claim.cause in ONE_NAME:
        is_name = claim.cause in ONE_NAME
        kinds = Counter[_Kind]()
        days = set()
        for (cell, meter), tokens in _tokens(claim):
            owner = (ANY_KEY, family(cell.model)) if is_name else (cell.key, cell.model)
            kinds[*owner, meter == OUTPUT] += tokens
            days.add(cell.day)
        lacks = {kind: by_kind[kind] if tokens > 0 else -by_kind[kind] for kind, tokens in kinds.items()}
        if any(lacks[kind] <= GAP * abs(tokens) for kind, tokens in kinds.items() if tokens):
            beside.append("keys_exchanged" if is_name else "time_edge")
        if days and not is_name and days <= _days_after_nothing(case):
            beside.append("posted_late")
    if claim.cause in _ONE_PRICE and any(
        (cell.model, cell.tier) in case.split.unlisted for cell in claim.by_cell
    ):
        beside.append("tier_price")
    if claim.cause in MISSING or claim.cause in ONE_SIDED:
        beside += [cause for day, cause in exchanged.items() if day in claim.days]
    if beside:
        return replace(claim, beside=(*claim.beside, *beside))
    is_doubtful = (
        _leaves_money(claim, case)
        or (claim.cause in _OF_AMOUNTS and _leaves_price(claim, rest))
        or (claim.cause in _ONE_PRICE and not _is_one_price(claim, case))
    )
    return replace(claim, sure=WEAK) if is_doubtful else claim


def _rest_by_model(case: Case) -> _Rest:
    """Return the size of the rates of each model and day that no claim has taken, without rounding."""
    rest: _Rest = defaultdict(Counter)
    for entry, amount in case.remainder.amounts.items():
        if entry[0] == RATE and not case.is_rounded(entry):
            rest[entry[1].model][entry[1].day] += abs(amount)
    return rest


def _leaves_price(claim: Claim, rest: _Rest) -> bool:
    """
    Return whether a model of a price claim has other rates that are large next to the claimed ones. Regions may be
    known on some days only.
    """
    taken = Counter[str]()
    for (part, cell, _), portion in claim.parts.items():
        taken[cell.model] += abs(portion.amount) if part == RATE else 0
    for model, amount in taken.items():
        days = claim.days if claim.cause == "region" else rest[model].keys()
        if amount and sum(rest[model][day] for day in days) > LARGE_SHARE * amount:
            return True
    return False


def _is_one_price(claim: Claim, case: Case) -> bool:
    """Return whether the amounts of each model and kind of token are one factor of their value, within rounding."""
    paid, worth, slack = Counter[_Series](), Counter[_Series](), Counter[_Series]()
    for (part, cell, meter), portion in claim.parts.items():
        if part == RATE and cell.day >= claim.since:
            series = cell.model, meter, cell.day
            paid[series] += portion.amount
            worth[series] += case.split.worth[cell, meter]
            slack[series] += case.slack((cell, meter))
    whole_paid, whole_worth = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for (model, meter, day), amount in paid.items():
        whole_paid[model, meter] += amount
        whole_worth[model, meter] += worth[model, meter, day]
    for (model, meter, day), amount in paid.items():
        value, whole = worth[model, meter, day], whole_worth[model, meter]
        apart = abs(amount * whole - whole_paid[model, meter] * value)
        allowed: int = max(slack[model, meter, day], int(value * NOTHING))
        if apart > allowed * whole:
            return False
    return True


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


def _tokens_of_days(
    claims: Sequence[Claim], case: Case, without: Collection[str] = ()
) -> Iterator[tuple[Place, int]]:
    """
    Yield billed minus counted tokens, less the tokens that causes outside MISSING, ONE_SIDED and `without` explain.
    """
    yield from case.split.extra.items()
    for claim in claims:
        if not claim.is_hint and claim.cause not in {*MISSING, *ONE_SIDED, *without}:
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
    left = sum(
        abs(amount)
        for entry, amount in case.remainder.amounts.items()
        if coarse(entry[1]) in cells and not (entry[0] == RATE and case.is_rounded(entry))
    )
    least: int = COARSEST
    return left >= least
