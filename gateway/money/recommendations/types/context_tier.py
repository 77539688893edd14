"""
Recommendation to shorten inputs that are slightly above a size at which the price of the whole call rises,
with their cost below that size.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gateway.money.recommendations.facts import DailyUse, Opportunity, SavingFacts
from gateway.money.recommendations.repricing import format_exact_dollars, programs_cheaper_with
from spool.ledger.token_sums import SIZES, TokenSum
from spool.registry.insights import MEDIUM
from spool.registry.recommendations import EXACT

NAME = "context_tier"
TITLE = "Inputs below the size at which the price rises"
FORMULA = "cost at the prices of large inputs - cost of the same tokens at the prices below that size"
CONFIDENCE = EXACT
EFFORT = MEDIUM
ASSUMPTIONS = (
    "The input can be shortened by at most a fifth. Only calls are counted whose mean input on a day "
    "is at most a quarter above the size.",
    "The removed tokens are not counted as savings.",
)
OVER = 4  # the input may exceed the long-context threshold by at most 1/OVER of it


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    def tokens_in_lowest_tier(use: DailyUse) -> TokenSum | None:
        edge = input_size_where_price_rises(saving_facts, use)
        return None if edge is None else replace(use.tokens, beyond=0)

    for work, priced in programs_cheaper_with(saving_facts, tokens_in_lowest_tier):
        edge = max(input_size_where_price_rises(saving_facts, use) or 0 for use in priced.uses)
        yield Opportunity(
            subject=work,
            work=work,
            claims=priced.claims,
            title=f"Keep prompts of {work.name} below {edge:,} tokens ({work.model} costs more above)",
            seen=(
                f"{priced.call_count:,} calls of {work.name} with {work.model} had inputs of more than "
                f"{edge:,} tokens, {priced.sum_count('input_tokens') // priced.call_count:,} on average. Above this "
                "size, the whole call costs more."
            ),
            advice=(
                "Shorten the input (older turns, whole files, tool results) so that it stays below that size."
            ),
            formula=(
                f"{format_exact_dollars(priced.cost)} beyond {edge:,} tokens - "
                f"{format_exact_dollars(priced.cost - priced.total_saving)} below"
            ),
            current=work.processing_with_mode(),
            recommended=work.processing_with_mode(),
            measured_by=work.measured_by,
        )


def input_size_where_price_rises(saving_facts: SavingFacts, use: DailyUse) -> int | None:
    """
    Return the input size at which the price of these calls rose, or None if their mean input is far above it.
    """
    tokens = use.tokens
    if not tokens.beyond or not tokens.calls:
        return None
    for size_index in range(SIZES.index(tokens.beyond), 0, -1):
        lower = saving_facts.estimate(replace(tokens, beyond=SIZES[size_index - 1]))
        if lower is not None and use.estimate is not None and lower < use.estimate:
            edge = SIZES[size_index]
            is_near = OVER * tokens.input_tokens <= (OVER + 1) * edge * tokens.calls
            return edge if is_near else None
    return None
