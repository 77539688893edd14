"""
The division of a cost change into parts: the parts add up for any two periods, and each part has one meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.money.comparison.split import (
    MIXES,
    ChangeParts,
    CostDriver,
    CostsAtOldPrices,
    Group,
    GroupSpending,
    build_drivers,
    merge_drivers,
    pair_groups,
)
from spool import money

COUNT = st.integers(0, 10**12)
AMOUNTS = st.builds(
    GroupSpending, cost=st.integers(-(10**30), 10**36), tokens=COUNT, calls=COUNT, unpriced=COUNT
)
TIME = st.dictionaries(st.tuples(st.sampled_from(["a", "b", "c", "d", None])), AMOUNTS)
FIXED = st.dictionaries(
    st.tuples(st.sampled_from("abcd")),
    st.builds(GroupSpending, cost=st.integers(0, 10**30), tokens=st.integers(1, 10**9), calls=st.just(3)),
)


def split_changes(
    before: Mapping[Group, GroupSpending],
    now: Mapping[Group, GroupSpending],
    at_old_prices: Mapping[Group, CostsAtOldPrices] | None = None,
) -> list[CostDriver]:
    """Return the changes of all groups, the largest first."""
    drivers = build_drivers(pair_groups(before, now), at_old_prices or {})
    return sorted(
        drivers,
        key=lambda each: (-abs(each.now.cost - each.before.cost), [name or "" for name in each.group]),
    )


def changed(
    before: Mapping[str, tuple[str, int]], now: Mapping[str, tuple[str, int]]
) -> dict[str, ChangeParts]:
    """Return the parts by group. Costs are in dollars."""
    drivers = split_changes(times(before), times(now))
    return {driver.group[0] or "": driver.parts for driver in drivers}


def times(groups: Mapping[str, tuple[str, int]]) -> dict[Group, GroupSpending]:
    return {
        (name,): GroupSpending(cost=money.text_to_units(cost), tokens=tokens, calls=1)
        for name, (cost, tokens) in groups.items()
    }


def whole(drivers: list[CostDriver]) -> CostDriver:
    return merge_drivers(drivers, group=())


@given(TIME, TIME)
def test_parts_add_up_to_the_change(
    before: dict[Group, GroupSpending], now: dict[Group, GroupSpending]
) -> None:
    """The parts of a cost change add up exactly for each group and for all groups together."""
    drivers = split_changes(before, now)
    assert {**before, **now}.keys() == {driver.group for driver in drivers}
    for driver in drivers:
        assert (
            now.get(driver.group, GroupSpending()).cost - before.get(driver.group, GroupSpending()).cost
            == driver.parts.change
        )
    total = whole(drivers)
    assert sum(spending.cost for spending in now.values()) == total.now.cost
    assert (
        sum(spending.cost for spending in now.values()) - sum(spending.cost for spending in before.values())
        == total.parts.change
    )


@given(TIME)
def test_nothing_changed(same: dict[Group, GroupSpending]) -> None:
    assert ChangeParts() == whole(split_changes(same, same)).parts


@given(FIXED, st.integers(1, 1000))
def test_growth_is_more_calls_or_larger_ones(before: dict[Group, GroupSpending], times: int) -> None:
    """If tokens multiply at the same price, the part is more calls or larger calls."""
    total = sum(spending.cost for spending in before.values())
    grown = {group: scaled(spending, times) for group, spending in before.items()}
    more_calls = {group: replace(spending, calls=spending.calls * times) for group, spending in grown.items()}
    assert ChangeParts(more_calls=total * (times - 1)) == whole(split_changes(before, more_calls)).parts
    assert ChangeParts(larger_calls=total * (times - 1)) == whole(split_changes(before, grown)).parts


def scaled(spending: GroupSpending, times: int) -> GroupSpending:
    return replace(spending, cost=spending.cost * times, tokens=spending.tokens * times)


@given(FIXED, st.integers(0, 1000))
def test_dearer_tokens_are_prices(before: dict[Group, GroupSpending], times: int) -> None:
    """If the same tokens cost a multiple, the whole change is the part for prices."""
    now = {group: replace(spending, cost=spending.cost * times) for group, spending in before.items()}
    total = sum(spending.cost for spending in before.values())
    assert ChangeParts(unit_cost=total * (times - 1)) == whole(split_changes(before, now)).parts


def test_each_row_says_what_happened_to_it() -> None:
    """Changes of other groups do not change the parts of a group."""
    alone = changed({"a": ("1", 100)}, {"a": ("1.5", 150)})
    beside = changed({"a": ("1", 100), "dear": ("10", 100)}, {"a": ("1.5", 150), "dear": ("90", 900)})
    assert ChangeParts(larger_calls=money.text_to_units("0.5")) == alone["a"] == beside["a"]


def test_other_kinds_of_tokens_are_no_prices() -> None:
    """
    If other kinds of tokens are used, their cost at the old prices separates the change of kinds from the
    change of prices.
    """
    group = ("a",)
    old, new = GroupSpending(cost=100, tokens=100, calls=10), GroupSpending(cost=270, tokens=200, calls=20)
    (driver,) = split_changes(
        {group: old}, {group: new}, {group: CostsAtOldPrices(costs=(260,) * len(MIXES))}
    )
    assert ChangeParts(more_calls=100, other_kinds=60, unit_cost=10) == driver.parts


def test_groups_of_one_time_alone() -> None:
    """Groups that exist in only one period do not change the parts of other groups."""
    parts = changed({"stays": ("2", 10), "left": ("3", 1000)}, {"stays": ("4", 20), "came": ("7", 5)})
    assert {
        "came": ChangeParts(new=money.text_to_units("7")),
        "left": ChangeParts(gone=money.text_to_units("-3")),
        "stays": ChangeParts(larger_calls=money.text_to_units("2")),
    } == parts


def test_groups_without_tokens_are_measured_by_calls() -> None:
    """
    Groups without tokens, such as images, are measured by calls. Three times the calls is the part for
    growth, and the rest is the part for prices.
    """
    image = ("image",)
    (driver,) = split_changes(
        {image: GroupSpending(cost=100, calls=10)}, {image: GroupSpending(cost=450, calls=30)}
    )
    assert ChangeParts(more_calls=200, unit_cost=150) == driver.parts


def test_calls_that_get_a_price_are_price() -> None:
    """A model without a price gets one. This is a change of price, and the model does not count as new."""
    model = ("m",)
    (driver,) = split_changes(
        {model: GroupSpending(tokens=10, calls=1, unpriced=1)},
        {model: GroupSpending(cost=5, tokens=10, calls=1)},
    )
    assert ChangeParts(unit_cost=5) == driver.parts


def test_changes_are_sorted_largest_first() -> None:
    """Rises and falls are sorted together. Equal changes are sorted by name, with unknown first."""
    before: dict[Group, GroupSpending] = {("fell",): GroupSpending(cost=90, calls=1)}
    now: dict[Group, GroupSpending] = {(name,): GroupSpending(cost=50, calls=1) for name in ("b", "a", None)}
    assert [("fell",), (None,), ("a",), ("b",)] == [driver.group for driver in split_changes(before, now)]
