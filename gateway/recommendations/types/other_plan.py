"""Seats that have outgrown their plan, or use little of a large one: their calls in another plan."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.plans.advice import OTHER_PLAN
from gateway.recommendations.by_seat import counted, of_one_kind, opportunity, people
from gateway.recommendations.facts import Opportunity, SavingFacts
from spool.registry.insights import LOW
from spool.registry.recommendations import EXACT

NAME = "other_plan"
TITLE = "Another plan for seats that have outgrown theirs, or use little of it"
FORMULA = "fee and price beyond of the plan - fee and price beyond of the other plan for the same calls"
CONFIDENCE = EXACT
EFFORT = LOW
ASSUMPTIONS = ("The next billing cycle is like the last one.", "The vendor sells a seat of the other plan.")


def find(facts: SavingFacts) -> Iterable[Opportunity]:
    for seats in of_one_kind(facts, OTHER_PLAN):
        instead = seats[0].instead
        yield opportunity(
            seats,
            title=f"{instead} instead of {counted(seats)}",
            seen=f"What {people(seats)} used in the last billing cycle that is over costs less with {instead}.",
            advice=f"Move these seats to {instead} at the end of the billing cycle.",
        )
