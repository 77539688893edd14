"""
Each token is saved once: recommendations on the same tokens are taken one after the other, the largest
first. A seat is in one recommendation alone.

What one leaves of a use's cost is what the next can take its share of, so that all of them together
never save more than was spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.money.recommendations.facts import Opportunity, Use


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An opportunity, what its tokens cost, and what is left of its savings."""

    type: str
    opportunity: Opportunity
    spent: int
    saving: int


def settle(
    uses: Sequence[Use],
    found: Sequence[tuple[str, Opportunity]],
    *,
    least: Callable[[str], int],
    is_last: Callable[[str, Opportunity], bool] = lambda *_: False,
) -> list[Settled]:
    """
    Reduce overlapping savings of (type, opportunity), and leave out those below the `least` of their type.

    Opportunities that are `is_last` take nothing from others: nobody is going to act on them.
    """
    left = [use.cost for use in uses]
    settled = []
    for type, opportunity in sorted(
        found, key=lambda each: (is_last(*each), -each[1].gross, each[0], *_words(each))
    ):
        taken = {
            place: claim * left[place] // uses[place].cost
            for place, claim in opportunity.claims.items()
            if uses[place].cost
        }
        # A use that costs more in the other way may be taken already: what it saved elsewhere is no gain
        # here.
        saving = min(opportunity.gross, sum(taken.values()) + opportunity.fees)
        if saving <= 0 or saving < least(type):
            continue
        for place, amount in taken.items():
            left[place] -= max(0, amount)
        spent = sum(uses[place].cost for place in opportunity.claims) + opportunity.fees
        settled.append(Settled(type=type, opportunity=opportunity, spent=spent, saving=saving))
    return settled


def _words(each: tuple[str, Opportunity]) -> Sequence[str]:
    return each[1].subject
