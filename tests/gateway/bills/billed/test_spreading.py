"""Properties of the division of billed amounts: exact, equal for all, and independent of other teams."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bills.billed.spreading import divide_by_weights, divide_in_sequence

LARGEST = 10**45
amounts = st.integers(-LARGEST, LARGEST)
counts = st.integers(0, 10**15)
weights = st.dictionaries(st.integers(0, 50), st.integers(-(10**6), 10**15), max_size=12)
quantities = st.none() | counts


class NoFloat(int):
    """An integer that refuses conversion to float and true division, to prove exact arithmetic."""

    def __float__(self) -> float:
        raise AssertionError("money became a float")

    def __truediv__(self, other: object) -> float:
        raise AssertionError("money was divided as a float")

    __rtruediv__ = __truediv__


@pytest.mark.proves(
    "shares and rest add up to the amount and have its sign; the rest is less than one unit per share"
)
@given(amounts, weights, quantities)
def test_all_of_an_amount_is_somewhere(amount: int, by: dict[int, int], quantity: int | None) -> None:
    """
    The shares, the unreported part and the rest add up to the amount and have its sign. The rest is less than
    one unit per share.
    """
    result = divide_by_weights(amount, by, quantity=quantity)
    assert amount == sum(result.shares.values()) + result.unreported + result.rest
    sign = -1 if amount < 0 else 1
    assert all(sign * share > 0 for share in result.shares.values())
    assert 0 <= sign * result.unreported and 0 <= sign * result.rest <= len(by) + 1


@pytest.mark.proves("a share is rounded down; a weight of 0 has no share")
@given(amounts, weights, quantities)
def test_a_share_is_the_floor_of_its_part(amount: int, by: dict[int, int], quantity: int | None) -> None:
    """
    A share of a divided amount depends only on its own weight and on the total. If the weight is 0 or less, there
    is no share.
    """
    result = divide_by_weights(amount, by, quantity=quantity)
    known = sum(weight for weight in by.values() if weight > 0)
    whole = max(known, quantity or 0)
    for key, weight in by.items():
        size = abs(amount) * max(0, weight) // whole if whole else 0
        assert (-size if amount < 0 else size) == result.shares.get(key, 0)


@pytest.mark.proves("the order of rows, or another row of weight 0, changes no share")
@given(amounts, weights, quantities, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    amount: int, by: dict[int, int], quantity: int | None, random: Random
) -> None:
    """The order of rows does not matter, and an additional row of weight 0 changes no share."""
    items = [*by.items(), (99, 0)]
    random.shuffle(items)
    assert divide_by_weights(amount, by, quantity=quantity) == divide_by_weights(
        amount, dict(items), quantity=quantity
    )


@pytest.mark.proves("an amount and its refund cancel out in every row")
@given(amounts, weights, quantities)
def test_a_refund_of_a_charge_leaves_nothing(amount: int, by: dict[int, int], quantity: int | None) -> None:
    paid, back = (
        divide_by_weights(amount, by, quantity=quantity),
        divide_by_weights(-amount, by, quantity=quantity),
    )
    assert {key: -share for key, share in paid.shares.items()} == back.shares
    assert paid.unreported + back.unreported == 0
    assert paid.rest + back.rest == 0


@pytest.mark.proves("if the bill states the quantity, no share depends on the calls of others")
@given(st.integers(0, 10**30), counts, weights, counts, counts)
def test_a_team_pays_the_billed_rate_whatever_others_use(
    price: int, mine: int, others: dict[int, int], more: int, unreported: int
) -> None:
    """
    If the bill states the quantity and has one rate, a team's share does not depend on the calls of other
    teams, to the last digit.
    """
    used = sum(max(0, weight) for weight in others.values())
    alone, together = mine + unreported, mine + used + more
    first = divide_by_weights(price * alone, {"mine": mine}, quantity=alone)
    second = divide_by_weights(price * together, {"mine": mine, **others}, quantity=together)
    assert first.shares.get("mine", 0) == second.shares.get("mine", 0) == price * mine


@pytest.mark.proves("no step uses floating point")
@given(amounts, weights, quantities)
def test_no_step_computes_with_floats(amount: int, by: dict[int, int], quantity: int | None) -> None:
    """Weights that refuse to become floats give the same shares."""
    plain = divide_by_weights(amount, by, quantity=quantity)
    strict = {key: NoFloat(weight) for key, weight in by.items()}
    strict_quantity = None if quantity is None else NoFloat(quantity)
    assert plain == divide_by_weights(NoFloat(amount), strict, quantity=strict_quantity)
    days = [max(0, weight) for weight in by.values()]
    assert divide_in_sequence(amount, days) == divide_in_sequence(NoFloat(amount), [*map(NoFloat, days)])


@given(amounts, st.integers(1, 400))
def test_equal_parts_never_turn_their_sign(amount: int, count: int) -> None:
    """The daily parts of a fee add up to it, differ by at most one unit, and have its sign."""
    parts = divide_in_sequence(amount, [0] * count)
    assert sum(parts) == amount
    assert len(parts) == count
    assert max(parts) - min(parts) <= 1
    assert all(part * amount >= 0 for part in parts)
