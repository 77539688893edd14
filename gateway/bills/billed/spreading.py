"""
The one rule by which an amount is divided: whole numbers, rounded towards 0, and the rest stands apart. Pure.

No share depends on the remainders of others, so what one team pays tells nothing about other teams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread(Generic[K]):
    """
    The parts of an amount: `shares`, those of what nobody reported, and the `rest` of all roundings.

    Shares of 0 are left out. The sum of all parts is the amount.
    """

    shares: Mapping[K, int]
    unreported: int
    rest: int


def spread(amount: int, weights: Mapping[K, int], *, quantity: int | None = None) -> Spread[K]:
    """
    Divide an amount by weights; negative weights are 0. `quantity` is what the bill tells in their unit: what it
    tells beyond the sum of the weights was reported by nobody. Without any weight, all of it was.
    """
    positive = {key: weight for key, weight in weights.items() if weight > 0}
    known = sum(positive.values())
    whole = known if quantity is None else max(known, abs(quantity))
    if not whole:
        return Spread(shares={}, unreported=amount, rest=0)
    sign = -1 if amount < 0 else 1
    size = abs(amount)
    shares = {key: sign * found for key, weight in positive.items() if (found := size * weight // whole)}
    unreported = sign * (size * (whole - known) // whole)
    return Spread(shares=shares, unreported=unreported, rest=amount - unreported - sum(shares.values()))


def in_turn(amount: int, weights: Sequence[int]) -> list[int]:
    """
    Divide an amount over days one after the other, by weights that are not negative; without any, evenly.

    There is no rest, and no part has another sign.
    """
    weights = weights if any(weights) else [1] * len(weights)
    sign = -1 if amount < 0 else 1
    whole, size, known, given = sum(weights), abs(amount), 0, 0
    parts = []
    for weight in weights:
        known += weight
        parts.append(sign * (size * known // whole - given))
        given = size * known // whole
    return parts
