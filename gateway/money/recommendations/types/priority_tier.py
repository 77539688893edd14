"""
Recommendation of standard processing for calls that paid for a faster tier, with the cost of the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from gateway.money.recommendations.facts import DailyUse, Opportunity, SavingFacts
from gateway.money.recommendations.repricing import format_exact_dollars, programs_cheaper_with
from spool.ledger.token_sums import TokenSum
from spool.processing import STANDARD
from spool.registry.insights import LOW
from spool.registry.recommendations import EXACT

NAME = "priority_tier"
TITLE = "Standard processing instead of a faster tier"
FORMULA = "cost at the tier's prices - cost of the same tokens at standard prices"
CONFIDENCE = EXACT
EFFORT = LOW
ASSUMPTIONS = ("Standard processing is fast enough for this work.",)
MODES = ("priority", "fast")


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    for mode in MODES:
        yield from _mode_opportunities(saving_facts, mode)


def _mode_opportunities(saving_facts: SavingFacts, mode: str) -> Iterator[Opportunity]:
    def tokens_as_standard_tier(use: DailyUse) -> TokenSum | None:
        return replace(use.tokens, mode=STANDARD) if use.tokens.mode == mode else None

    for work, priced in programs_cheaper_with(saving_facts, tokens_as_standard_tier):
        yield Opportunity(
            subject=(*work, mode),
            work=work,
            claims=priced.claims,
            title=f"Standard processing of {work.model} for {work.name} instead of {mode}",
            seen=f"{priced.call_count:,} calls of {work.name} with {work.model} were processed as {mode}.",
            advice=f"Request {mode} processing only if somebody waits for the response.",
            formula=(
                f"{format_exact_dollars(priced.cost)} as {mode} - "
                f"{format_exact_dollars(priced.cost - priced.total_saving)} as standard"
            ),
            current=work.processing_with_mode(mode),
            recommended=work.processing_with_mode(STANDARD),
            measured_by=work.measured_by,
        )
