"""
The definition in force, whose dimensions the totals compute from their own, and the time since when its
source dimensions have values.

A built-in dimension of the totals has values since the ledger exists. A tag has values since its setting
exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.intake.rate_cards.names import BUILT_IN
from gateway.money.allocation.definition import AllocationDefinition, Dimension
from gateway.money.allocation.evaluation import build_dimension_evaluators
from spool.ledger.dimensions import TAG, DerivedDimension
from spool.ledger.ledger import Ledger
from spool.people import People


class AllocationDefinitionHolder:
    """
    Holds the definition in force. A new definition applies to the next query. Running queries finish with the
    old one.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        ledger.set_derived_dimensions(BUILT_IN)
        self.definition = AllocationDefinition()
        self.version = ""  # version of the published definition, or "" if nothing is published
        if ledger.people is not None:
            ledger.people.persons.add_watcher(
                lambda: self.put_in_force(self.definition, version=self.version)
            )

    def put_in_force(self, definition: AllocationDefinition, *, version: str) -> None:
        self._ledger.set_derived_dimensions([*BUILT_IN, *derived_dimensions(definition, self._ledger.people)])
        self.definition = definition
        self.version = version

    def dimensions(self) -> Sequence[Dimension]:
        return self.definition.dimensions


def derived_dimensions(definition: AllocationDefinition, people: People | None) -> Sequence[DerivedDimension]:
    return [
        DerivedDimension(
            name=decision.dimension.id,
            label=decision.dimension.name,
            sources=decision.sources,
            value=decision.element_of_values,
        )
        for decision in build_dimension_evaluators(definition, people)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstValueTimes:
    """
    The times since when values exist: `kept_since` for the totals, and `tags` for each tag. None means that
    there are no values yet.
    """

    kept_since: datetime | None
    tags: Mapping[str, datetime | None]


async def find_first_value_times(ledger: Ledger, sources: Sequence[str]) -> FirstValueTimes:
    """Find the times since when the sources of a definition (`sources_read_by`) have values."""
    span = await ledger.stored_span()
    tags = {name: await ledger.first_period_with_dimension(name) for name in sources if name.startswith(TAG)}
    return FirstValueTimes(kept_since=span[0] if span else None, tags=tags)


def describe_first_value_times(first_value_times: FirstValueTimes) -> Mapping[str, object]:
    return {
        "kept_since": first_value_times.kept_since and first_value_times.kept_since.isoformat(),
        "tags": {name: since and since.isoformat() for name, since in first_value_times.tags.items()},
    }
