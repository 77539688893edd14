"""
Calls that failed after they had used tokens. Most providers do not bill them, so they are set aside before anything
is compared. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from gateway.bills.reconciliation.cells import ComparableDimensions
from gateway.bills.reconciliation.sides import OUTPUT, BilledTokens, CountedUse

_Vector = list[int]  # number of input tokens, and of output tokens
_Place = tuple[int, str, str]  # day, model and key


class _FailedCallGroup(NamedTuple):
    """
    Identifies failed calls, either those with or those without a cost. A dimension that is not distinguished
    is None.
    """

    has_cost: bool
    model: str | None = None
    key: str | None = None
    day: int | None = None

    @classmethod
    def from_use(cls, use: CountedUse, comparable_dimensions: ComparableDimensions) -> _FailedCallGroup:
        cell = comparable_dimensions.token_cell(use)
        return cls(bool(use.cost), cell.model, cell.key, cell.day)

    def self_and_larger_groups(self) -> Iterator[_FailedCallGroup]:
        """
        Yield this group of failed calls and the larger groups that contain it, from the smallest to the
        largest.
        """
        yield self
        yield self._replace(day=None)
        yield self._replace(day=None, key=None)
        yield _FailedCallGroup(self.has_cost)


@dataclass(frozen=True, kw_only=True)
class SetAsideCalls:
    """
    The counted uses, without the failed calls that the bill leaves out, of which only the cost stays.

    `left_out` states for each use whether its calls were set aside, and `are_all` whether all failed calls
    were. `is_exact` means that the tokens of each key, model and day prove it.
    """

    counted: Sequence[CountedUse]
    left_out: Sequence[bool]
    are_all: bool = False
    is_exact: bool = True


def has_failed(use: CountedUse) -> bool:
    """Return whether the calls of a use failed after they had used tokens."""
    return bool(use.errors and any(use.tokens.values()))


def set_aside_unbilled_failed_calls(
    tokens: Iterable[BilledTokens],
    counted_uses: Sequence[CountedUse],
    comparable_dimensions: ComparableDimensions,
    days_with_token_counts: Collection[int],
) -> SetAsideCalls:
    """
    Set aside the failed calls that the bill leaves out.

    For each key, model and day, the bill leaves them out if its input or output is that of the ledger without
    failed calls. If it equals the ledger's, the bill has them. Otherwise, the other days of the key decide if
    they agree with each other, or else those of the model, or else all days. Without such days, calls without
    a cost are set aside, and calls with a cost are compared.
    """
    if not any(map(has_failed, counted_uses)):
        return SetAsideCalls(counted=counted_uses, left_out=[False] * len(counted_uses))
    known = _proven_omission_by_group(tokens, counted_uses, comparable_dimensions, days_with_token_counts)
    unanimous = _unanimous_omission_by_group(known)
    rest, left_out, is_exact = [], [], True
    for use in counted_uses:
        is_out = False
        if has_failed(use):
            place = _FailedCallGroup.from_use(use, comparable_dimensions)
            is_out = next(
                (unanimous[name] for name in place.self_and_larger_groups() if name in unanimous),
                not use.cost,
            )
            # Without proof, the result is exact only if calls with a cost are compared, and calls without a cost
            # are set aside, because `failed` is then 0.
            is_exact = is_exact and (place in known or is_out is not bool(use.cost))
            use = (
                _with_calls_and_tokens_zeroed(use)
                if is_out
                else replace(use, failed=0 if use.cost else _token_and_fee_value(use))
            )
        left_out.append(is_out)
        if use.calls or use.cost:
            rest.append(use)
    return SetAsideCalls(
        counted=rest,
        left_out=left_out,
        are_all=sum(left_out) == sum(map(has_failed, counted_uses)),
        is_exact=is_exact,
    )


def _with_calls_and_tokens_zeroed(use: CountedUse) -> CountedUse:
    nothing: Mapping[str, int] = {}
    return replace(
        use,
        calls=0,
        errors=0,
        unsized=0,
        tokens=nothing,
        values=nothing,
        listed=nothing,
        fees=nothing,
        beside=nothing,
        reasoning=0,
        failed=-use.cost,
    )


def _token_and_fee_value(use: CountedUse) -> int:
    return sum(use.values.values()) + sum(use.fees.values())


def _proven_omission_by_group(
    tokens: Iterable[BilledTokens],
    counted_uses: Iterable[CountedUse],
    comparable_dimensions: ComparableDimensions,
    days_with_token_counts: Collection[int],
) -> dict[_FailedCallGroup, bool]:
    uses = [use for use in counted_uses if use.day in days_with_token_counts]
    rows = [row for row in tokens if row.meter is not None]
    known: dict[_FailedCallGroup, bool] = {}
    for has_key in (True, False):

        def place_of_row(row: BilledTokens | CountedUse, has_key: bool = has_key) -> _Place:
            cell = comparable_dimensions.token_cell(row)
            return cell.day, cell.model, cell.key * has_key

        surplus: dict[_Place, _Vector] = defaultdict(lambda: [0, 0])
        failed: dict[_Place, dict[bool, _Vector]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        for row in rows:
            surplus[place_of_row(row)][row.meter == OUTPUT] -= row.quantity
        for use in uses:
            place = place_of_row(use)
            for meter, count in use.tokens.items():
                surplus[place][meter == OUTPUT] += count
                if has_failed(use):
                    failed[place][bool(use.cost)][meter == OUTPUT] += count
        chosen = {
            place: _failed_classes_matching_surplus(surplus[place], by_cost)
            for place, by_cost in failed.items()
        }
        for use in filter(has_failed, uses):
            set_aside = chosen[place_of_row(use)]
            if set_aside is not None:
                known.setdefault(
                    _FailedCallGroup.from_use(use, comparable_dimensions), bool(use.cost) in set_aside
                )
    return known


def _failed_classes_matching_surplus(
    surplus_tokens: _Vector, failed_tokens_by_has_cost: Mapping[bool, _Vector]
) -> Sequence[bool] | None:
    """
    Return which failed calls (without or with a cost) have exactly the surplus tokens together, or None.
    """
    kinds = [kind for kind in (0, 1) if any(tokens[kind] for tokens in failed_tokens_by_has_cost.values())]
    for size in range(len(failed_tokens_by_has_cost), -1, -1):
        for classes in combinations(sorted(failed_tokens_by_has_cost), size):
            if any(
                surplus_tokens[kind] == sum(failed_tokens_by_has_cost[name][kind] for name in classes)
                for kind in kinds
            ):
                return classes
    return None


def _unanimous_omission_by_group(
    proven_omissions: Mapping[_FailedCallGroup, bool],
) -> dict[_FailedCallGroup, bool]:
    all_decisions: dict[_FailedCallGroup, set[bool]] = defaultdict(set)
    for name, decision in proven_omissions.items():
        for coarse in name.self_and_larger_groups():
            all_decisions[coarse].add(decision)
    return {name: decisions.pop() for name, decisions in all_decisions.items() if len(decisions) == 1}
