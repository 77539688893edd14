"""Keys and models that only one side has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import attrgetter

from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import EXACT, STRONG, WEAK, BillComparison, CauseClaim
from gateway.bills.reconciliation.limits import SAME_SIZE
from gateway.bills.reconciliation.sides import (
    OWN,
    RATE,
    BilledSums,
    ComparisonCell,
    CountedSums,
    are_series_alike,
)
from gateway.bills.reconciliation.wording import join_names
from gateway.intake.rate_cards.names import model_family

_POINT = (
    "Let the program that uses it report to Tollhouse: point its base URL at the gateway, or send "
    "its OpenTelemetry here."
)


def claim_unreported_traffic(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim keys and models that are billed but have no counted call. Then claim the missing tokens for provider
    keys that have about the same tokens by day.
    """
    for name in ("key", "model"):
        for value in _names_on_one_side(comparison, name, is_on_bill=True):
            entries = _entries_with_name(comparison, name, value)
            shares = comparison.remainder.price_portions_of_entries(entries)
            claim = comparison.remainder.claim_entries(
                "unreported_traffic",
                entries,
                portions=shares,
                certainty=WEAK
                if (hint := _possible_match_hint(comparison, name, value, is_on_bill=True))
                else STRONG
                if shares
                else EXACT,
                evidence=(
                    "the bill has "
                    f"{f'the {name} {join_names([value])}' if value else 'calls without a key'}, but Tollhouse "
                    f"has no call of it{hint}"
                ),
                advice=_POINT,
                explains_calls=True,
            )
            if claim is not None:
                yield claim
    yield from _claim_keys_matching_gap(comparison)


def _claim_keys_matching_gap(comparison: BillComparison) -> Iterator[CauseClaim]:
    tokens_by_key = {
        key: tokens
        for key, tokens in comparison.key_tokens.items()
        if not any(
            are_series_alike(_tokens_by_day(tokens), own_tokens)
            for own_tokens in comparison.own_keys.values()
        )
    }
    for keys in [[key] for key in sorted(tokens_by_key)] + (
        [sorted(tokens_by_key)] if len(tokens_by_key) > 1 else []
    ):
        expected_tokens: dict[tuple[int, str], int] = defaultdict(int)
        for key in keys:
            for day_model, tokens in tokens_by_key[key].items():
                expected_tokens[day_model] += tokens
        entries = []
        gap = defaultdict[int, int](int)
        for entry in comparison.remainder.token_difference_entries():
            cell = entry[1]
            extra = comparison.remainder.extra[cell, entry[2]]
            if extra > 0 and expected_tokens.get((cell.day, cell.model), 0) > 0:
                entries.append(entry)
                gap[cell.day] += extra
        if entries and are_series_alike(_tokens_by_day(expected_tokens), gap):
            claim = comparison.remainder.claim_entries(
                "unreported_traffic",
                comparison.remainder.with_price_differences(entries),
                certainty=STRONG,
                evidence=f"the tokens of the provider's key {join_names(keys)} match the missing tokens day by day",
                advice=_POINT,
            )
            if claim is not None:
                yield claim
            return


def claim_other_account(comparison: BillComparison) -> Iterator[CauseClaim]:
    """Claim calls that another account pays for, or that nobody pays for."""
    for name in ("key", "model"):
        for value in _names_on_one_side(comparison, name, is_on_bill=False):
            claim = comparison.remainder.claim_entries(
                "other_account",
                _entries_with_name(comparison, name, value),
                certainty=WEAK
                if (hint := _possible_match_hint(comparison, name, value, is_on_bill=False))
                else STRONG,
                evidence=f"Tollhouse has calls of the {name} {join_names([value])}, but the bill has none{hint}",
                advice=(
                    "Import the bill of the account that pays. Subscriptions and local servers have no bill."
                ),
                explains_calls=True,
            )
            if claim is not None:
                yield claim


def _names_on_one_side(comparison: BillComparison, name: str, *, is_on_bill: bool) -> list[str]:
    theirs, ours = (comparison.split.names_on_side(name, is_on_bill=side) for side in (True, False))
    # whether the provider's calls were not reported at all
    is_silent = is_on_bill and name == "model" and not ours
    if not theirs or not (ours or is_silent):
        return []
    one_sided = theirs - ours if is_on_bill else ours - theirs
    is_keyless = is_on_bill and name == "key" and _has_keyless_tokens(comparison)
    return sorted(one_sided if is_keyless else one_sided - {""})


def _has_keyless_tokens(comparison: BillComparison) -> bool:
    # tokens without a key are, for example, those of calls in the provider's console
    levels, billed = comparison.split.levels, comparison.split.billed
    return levels.key and any(not cell.key and any(sums.tokens.values()) for cell, sums in billed.items())


def _possible_match_hint(comparison: BillComparison, name: str, value: str, *, is_on_bill: bool) -> str:
    size = _tokens_or_money_by_name(comparison, name, is_on_bill=is_on_bill)[value]
    other_sizes = _tokens_or_money_by_name(comparison, name, is_on_bill=not is_on_bill)
    alike = [
        candidate
        for candidate in _names_on_one_side(comparison, name, is_on_bill=not is_on_bill)
        if (size < SAME_SIZE * other_sizes[candidate] and other_sizes[candidate] < SAME_SIZE * size)
        or (name == "model" and model_family(candidate) == model_family(value))
    ]
    return f"; {join_names(alike)} on the other side may be the same" if alike else ""


def _tokens_or_money_by_name(
    comparison: BillComparison, dimension: str, *, is_on_bill: bool
) -> Mapping[str, int]:
    split, field_of = comparison.split, attrgetter(dimension)
    sizes: dict[str, int] = defaultdict(int)
    has_tokens = any(any(sums.tokens.values()) for sums in split.billed.values())
    side: Mapping[ComparisonCell, BilledSums | CountedSums] = split.billed if is_on_bill else split.counted
    for cell, sums in side.items() if has_tokens else ():
        sizes[field_of(cell)] += sum(sums.tokens.values())
    if not has_tokens:
        amounts = (
            split.billed_money if is_on_bill else {cell: sums.cost for cell, sums in split.counted.items()}
        )
        for cell, amount in amounts.items():
            sizes[field_of(cell)] += amount
    return sizes


def _entries_with_name(comparison: BillComparison, name: str, value: str) -> list[DifferenceEntry]:
    remainder = comparison.remainder
    field_of = attrgetter(name)
    volume = [entry for entry in remainder.token_difference_entries() if field_of(entry[1]) == value]
    if not volume and any(field_of(cell) == value for cell, _ in comparison.split.extra):
        return []  # another cause already explains the tokens with this name
    # if the bill states no key with its amounts, a cell without a key has the amounts of all keys
    priced = [
        entry
        for part in (RATE, OWN)
        for entry in remainder.entries_of_difference_part(part)
        if value and field_of(entry[1]) == value
    ]
    return list(dict.fromkeys((*remainder.with_price_differences(volume), *priced)))


def _tokens_by_day(tokens: Mapping[tuple[int, str], int]) -> dict[int, int]:
    count_by_day: dict[int, int] = defaultdict(int)
    for (day, _), count in tokens.items():
        count_by_day[day] += count
    return count_by_day
