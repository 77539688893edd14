"""
The definition that is in force, which the ledger asks for dimensions beside its own; and since when a definition has
something to look at: sums are as old as the ledger, a tag as old as its setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.intake.rate_cards.names import BUILT_IN
from gateway.money.allocation.definition import Definition, Dimension
from gateway.money.allocation.evaluation import decisions
from spool.ledger.ledger import Ledger
from spool.ledger.queries import TAG, Derived
from spool.people import People


class Published:
    """`put` takes effect at once: questions that are being answered keep the definition that they began with."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        ledger.derive(BUILT_IN)
        self.definition = Definition()
        self.version = ""  # "" while there is none

    def put(self, definition: Definition, *, version: str) -> None:
        """Replace what is in force."""
        self._ledger.derive([*BUILT_IN, *derived(definition, self._ledger.people)])
        self.definition = definition
        self.version = version

    def dimensions(self) -> Sequence[Dimension]:
        return self.definition.dimensions


def derived(definition: Definition, people: People | None) -> Sequence[Derived]:
    """Return the dimensions that the ledger can derive from a definition."""
    return [
        Derived(name=each.dimension.id, label=each.dimension.name, sources=each.sources, value=each.element)
        for each in decisions(definition, people)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionBorder:
    """`kept_since` is where the first sum begins; `tags`, where each tag has its first value. None: there is none."""

    kept_since: datetime | None
    tags: Mapping[str, datetime | None]


async def border(ledger: Ledger, sources: Sequence[str]) -> DefinitionBorder:
    """Return the span that the ledger has of a definition's sources (`difference.sources_of`)."""
    span = await ledger.known_span()
    tags = {name: await ledger.known_since(name) for name in sources if name.startswith(TAG)}
    return DefinitionBorder(kept_since=span[0] if span else None, tags=tags)


def describe(found: DefinitionBorder) -> Mapping[str, object]:
    return {
        "kept_since": found.kept_since and found.kept_since.isoformat(),
        "tags": {name: since and since.isoformat() for name, since in found.tags.items()},
    }
