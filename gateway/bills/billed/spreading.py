"""
The only rule that divides amounts. Parts are integers, rounded toward 0, and the rounding rest is separate. Pure.

No share depends on the rounding of other shares, so the cost of one team reveals nothing about other teams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedAmount(Generic[K]):
    """
    The parts of an amount: `shares`, the `unreported` part without known usage, and the rounding `rest`.
    Shares of 0 are omitted. The sum of all parts is the amount.
    """

    shares: Mapping[K, int]
    unreported: int
    rest: int


def divide_by_weights(
    amount: int, weights: Mapping[K, int], *, quantity: int | None = None
) -> DividedAmount[K]:
    """
    Divide an amount by weights; negative weights count as 0. `quantity` is the billed quantity in the unit of
    the weights. The excess of `quantity` over the weights becomes `unreported`. If there are no weights, the
    whole amount does.
    """
    positive = {key: weight for key, weight in weights.items() if weight > 0}
    known = sum(positive.values())
    whole = known if quantity is None else max(known, abs(quantity))
    if not whole:
        return DividedAmount(shares={}, unreported=amount, rest=0)
    sign = -1 if amount < 0 else 1
    size = abs(amount)
    shares = {key: sign * share for key, weight in positive.items() if (share := size * weight // whole)}
    unreported = sign * (size * (whole - known) // whole)
    return DividedAmount(
        shares=shares, unreported=unreported, rest=amount - unreported - sum(shares.values())
    )


def divide_in_sequence(amount: int, weights: Sequence[int]) -> list[int]:
    """
    Divide an amount among days in sequence, by weights of at least 0, or evenly if all are 0. There is no
    rest, and all parts have the amount's sign.
    """
    weights = weights if any(weights) else [1] * len(weights)
    sign = -1 if amount < 0 else 1
    whole, size, known, assigned = sum(weights), abs(amount), 0, 0
    parts = []
    for weight in weights:
        known += weight
        parts.append(sign * (size * known // whole - assigned))
        assigned = size * known // whole
    return parts
