"""Seats of assistants that nobody used: what they cost."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.plans.advice import IDLE
from gateway.recommendations.by_seat import counted, of_one_kind, opportunity, people
from gateway.recommendations.facts import Opportunity, SavingFacts
from spool.registry.insights import LOW
from spool.registry.recommendations import STRONG

NAME = "idle_seat"
TITLE = "Seats that nobody uses"
FORMULA = "fees of the seats without a call that worked"
CONFIDENCE = STRONG
EFFORT = LOW
ASSUMPTIONS = (
    "Telemetry tells every call of the assistant.",
    "The vendor takes seats back at the end of a billing cycle.",
)


def find(facts: SavingFacts) -> Iterable[Opportunity]:
    for seats in of_one_kind(facts, IDLE):
        yield opportunity(
            seats,
            title=f"{counted(seats)} without use",
            seen=f"No call of {people(seats)} worked in the last billing cycle that is over, nor since.",
            advice="Ask whether these seats are needed, and give back those that are not.",
        )
