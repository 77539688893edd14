"""Prices of the same tokens in another way, sums of the savings by work, and the format of amounts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from gateway.money.recommendations.facts import DailyUse, ProgramAndModel, SavingFacts
from spool import money
from spool.ledger.token_sums import TokenSum
from spool.registry.insights import dollar_text


@dataclass(slots=True, kw_only=True)
class RepricedUses:
    """
    The uses of one program with one model (`ProgramAndModel`) that would have another price, with their cost and
    their savings.
    """

    uses: list[DailyUse] = field(default_factory=list)
    claims: dict[int, int] = field(default_factory=dict)
    cost: int = 0

    @property
    def total_saving(self) -> int:
        return sum(self.claims.values())

    @property
    def call_count(self) -> int:
        return sum(use.tokens.calls for use in self.uses)

    def sum_count(self, count: str) -> int:
        return sum(getattr(use.tokens, count) for use in self.uses)


def programs_cheaper_with(
    saving_facts: SavingFacts, replacement_tokens: Callable[[DailyUse], TokenSum | None]
) -> Iterator[tuple[ProgramAndModel, RepricedUses]]:
    """
    Yield each program and model that would have cost less if its uses were priced as
    `replacement_tokens` returns. If `replacement_tokens` returns None, the use is skipped.
    """
    works: dict[ProgramAndModel, RepricedUses] = defaultdict(RepricedUses)
    for index, use in enumerate(saving_facts.uses):
        tokens = replacement_tokens(use)
        saving = None if tokens is None else saving_facts.saving_if_priced_as(use, tokens)
        if saving is None:
            continue
        priced = works[use.program_and_model]
        priced.uses.append(use)
        priced.claims[index] = saving
        priced.cost += use.cost
    for work, priced in works.items():
        if priced.total_saving > 0:
            yield work, priced


def format_dollars(units: int) -> str:
    """Format dollars to the cent, for sentences. The response has the exact amount in another field."""
    return f"${Decimal(dollar_text(Decimal(money.units_to_text(units)))):,}"


def format_exact_dollars(money_units: int) -> str:
    return f"${money.units_to_text(money_units)}"
