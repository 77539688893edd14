"""
Split of each group's change of costs between two times into its causes.

The parts are: more calls, at the old cost per call; larger calls, at the old cost per token; other models or
kinds of tokens, more large inputs, another service tier or region, and more reported costs, each at its old prices;
changed list prices; other reported costs of the same tokens; and the remainder, which is the unit cost. Costs are
units (spool.money). The parts always add up to the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import islice, pairwise
from typing import TypeVar

import msgspec

from spool.turns.threads import STEP, sum_columns

Group = tuple[str | None, ...]


class GroupSpending(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    The spending of a group. `cost` and `estimated` are units of money. `estimated` is the part of the cost
    that no source reported.

    `unpriced` counts calls without a known price. The true cost is higher if there are any.
    """

    cost: int = 0
    tokens: int = 0
    calls: int = 0
    unpriced: int = 0
    estimated: int = 0


class ChangeParts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    more_calls: int = 0
    larger_calls: int = 0
    other_kinds: int = 0
    large_inputs: int = 0
    other_tiers: int = 0
    other_regions: int = 0
    reported_costs: int = 0
    prices: int = 0
    reported_rates: int = 0
    unit_cost: int = 0
    new: int = 0
    gone: int = 0

    @property
    def change(self) -> int:
        amounts: Sequence[int] = msgspec.structs.astuple(self)
        return sum(amounts)


# names of the causes for a different mix of calls, from coarse to fine
MIXES = ("other_kinds", "large_inputs", "other_tiers", "other_regions", "reported_costs")


class CostsAtOldPrices(msgspec.Struct, frozen=True, kw_only=True):
    """
    The cost that a group's later tokens would have had at earlier prices.

    `costs` has an amount for each cause in MIXES. The first uses prices by provider and model, and each
    further amount by one more dimension. `prices` is the part of the remaining change that changed list prices
    explain, and `reported_rates` the part of calls whose source reports another cost for the same tokens.
    `reasons` maps causes to phrases.
    """

    costs: tuple[int, ...]
    prices: int = 0
    reported_rates: int = 0
    reasons: Mapping[str, str] = {}

    def cost_change_by_cause(self, cost_scaled_by_tokens: int, later_cost: int) -> Mapping[str, int]:
        amounts = (cost_scaled_by_tokens, *self.costs)
        mixes = {
            name: later - earlier for name, (earlier, later) in zip(MIXES, pairwise(amounts), strict=True)
        }
        explained = self.prices + self.reported_rates
        return {
            **mixes,
            "prices": self.prices,
            "reported_rates": self.reported_rates,
            "unit_cost": later_cost - amounts[-1] - explained,
        }


NOTHING = GroupSpending()
_NO_PRICES: Mapping[Group, CostsAtOldPrices] = {}
SpendingPair = tuple[Group, GroupSpending, GroupSpending]  # a group with its totals before and now
PARTS = ChangeParts.__struct_fields__
_Sum = TypeVar("_Sum", GroupSpending, ChangeParts)


class CostDriver(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    A group whose cost changed, with the amount of each cause (`parts`). `reasons` maps some causes to
    phrases.
    """

    group: Group
    before: GroupSpending
    now: GroupSpending
    parts: ChangeParts
    reasons: Mapping[str, str] = {}


def pair_groups(
    before: Mapping[Group, GroupSpending], now: Mapping[Group, GroupSpending]
) -> list[SpendingPair]:
    pairs = [(group, old, now.get(group, NOTHING)) for group, old in before.items()]
    return pairs + [(group, NOTHING, new) for group, new in now.items() if group not in before]


def build_drivers(
    pairs: Iterable[SpendingPair], at_old_prices: Mapping[Group, CostsAtOldPrices] = _NO_PRICES
) -> Iterator[CostDriver]:
    for group, old, new in pairs:
        repriced = at_old_prices.get(group)
        reasons = repriced.reasons if repriced else {}
        yield CostDriver(
            group=group,
            before=old,
            now=new,
            parts=_split_change_by_cause(old, new, repriced),
            reasons=reasons,
        )


def largest_changes(pairs: Sequence[SpendingPair], max_changes: int) -> list[CostDriver]:
    sizes = [abs(new.cost - old.cost) for _, old, new in pairs]
    least = min(nlargest(max_changes, sizes), default=0)
    large = [pair for pair, size in zip(pairs, sizes, strict=True) if size >= least]
    return largest_drivers(build_drivers(large), max_changes)


def with_old_prices(driver: CostDriver, at_old_prices: Mapping[Group, CostsAtOldPrices]) -> CostDriver:
    """
    Return the driver with the amounts that changed prices explain. The sum of its parts does not change.
    """
    [result] = build_drivers([(driver.group, driver.before, driver.now)], at_old_prices)
    return result


def largest_drivers(drivers: Iterable[CostDriver], max_drivers: int) -> list[CostDriver]:
    """Return the `max_drivers` largest drivers. This is faster than sorting all of them."""
    return nsmallest(max_drivers, drivers, key=_change_rank)


def _change_rank(driver: CostDriver) -> tuple[int, list[str]]:
    change = driver.now.cost - driver.before.cost  # equals the sum of the parts below
    return -abs(change), [name or "" for name in driver.group]


def add_costs_without_calls(
    drivers: Iterable[CostDriver], before: Mapping[Group, int], now: Mapping[Group, int]
) -> list[CostDriver]:
    """
    Add billed money that belongs to no calls. Its change counts as a change of the unit cost. The result is
    unsorted.
    """
    known = {driver.group: driver for driver in drivers}
    for group in dict.fromkeys((*before, *now)):
        old = before.get(group, 0)
        new = now.get(group, 0)
        nobodys_driver = CostDriver(
            group=group,
            before=GroupSpending(cost=old),
            now=GroupSpending(cost=new),
            parts=ChangeParts(unit_cost=new - old),
        )
        own = known.get(group, nobodys_driver)
        of_group = [own, nobodys_driver] if group in known else [own]
        known[group] = msgspec.structs.replace(merge_drivers(of_group, group=group), reasons=own.reasons)
    return [*known.values()]


def merge_drivers(drivers: Iterable[CostDriver], *, group: Group) -> CostDriver:
    before, now, parts = NOTHING, NOTHING, ChangeParts()
    remaining = iter(drivers)
    # in steps, so that other threads run in between, because there may be tens of thousands of groups
    while some := list(islice(remaining, STEP)):
        before = _sum_structs(GroupSpending, [before, *(driver.before for driver in some)])
        now = _sum_structs(GroupSpending, [now, *(driver.now for driver in some)])
        parts = _sum_structs(ChangeParts, [parts, *(driver.parts for driver in some)])
    return CostDriver(group=group, before=before, now=now, parts=parts)


def add_spending(one: GroupSpending, other: GroupSpending) -> GroupSpending:
    return _sum_structs(GroupSpending, [one, other])


def _sum_structs(kind: type[_Sum], values: Sequence[_Sum]) -> _Sum:
    names = kind.__struct_fields__
    return kind(
        **dict(zip(names, sum_columns([*map(msgspec.structs.astuple, values)], len(names)), strict=True))
    )


def _split_change_by_cause(
    old: GroupSpending, new: GroupSpending, repriced: CostsAtOldPrices | None
) -> ChangeParts:
    if old == NOTHING:
        return ChangeParts(new=new.cost)
    if new == NOTHING:
        return ChangeParts(gone=-old.cost)
    has_tokens = old.tokens > 0 and new.tokens > 0
    has_calls = old.calls > 0 and new.calls > 0
    if not has_tokens:  # calls without tokens, such as images, are compared by their number
        by_calls = old.cost * new.calls // old.calls if old.calls > 0 else old.cost
        return ChangeParts(more_calls=by_calls - old.cost, unit_cost=new.cost - by_calls)
    by_tokens = old.cost * new.tokens // old.tokens
    # by tokens if the rows come from counters, which do not state the number of calls
    by_calls = old.cost * new.calls // old.calls if has_calls else by_tokens
    repriced = repriced or CostsAtOldPrices(costs=(by_tokens,) * len(MIXES))
    return ChangeParts(
        more_calls=by_calls - old.cost,
        larger_calls=by_tokens - by_calls,
        **repriced.cost_change_by_cause(by_tokens, new.cost),
    )
