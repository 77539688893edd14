"""The definition that is in force. The ledger asks it for dimensions beside its own."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.intake.rate_cards.names import BUILT_IN
from gateway.money.allocation.definition import Definition, Dimension
from gateway.money.allocation.evaluation import decisions
from spool.ledger.ledger import Ledger
from spool.ledger.queries import Derived
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
