"""
Recommendation about cache writes that are read too rarely, with the cost of the same input without a cache.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gateway.money.recommendations.facts import DailyUse, Opportunity, SavingFacts
from gateway.money.recommendations.repricing import format_exact_dollars, programs_cheaper_with
from spool.ledger.token_sums import TokenSum
from spool.registry.insights import LOW
from spool.registry.recommendations import EXACT

NAME = "cache_write_unread"
TITLE = "No prompt cache if its content is rarely read"
FORMULA = "cost with cache writes and reads - cost of the same tokens as plain input"
CONFIDENCE = EXACT
EFFORT = LOW
ASSUMPTIONS = (
    "The calls that write to the cache and the calls that could read from it belong to the same program.",
)


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    for work, priced in programs_cheaper_with(saving_facts, _as_plain_input):
        written = priced.sum_count("cache_write_tokens")
        read = priced.sum_count("cache_read_tokens")
        if not written:
            continue
        yield Opportunity(
            subject=work,
            work=work,
            claims=priced.claims,
            title=f"No prompt cache with {work.model} for {work.name}",
            seen=(
                f"{priced.call_count:,} calls of {work.name} with {work.model} wrote {written:,} tokens to the "
                f"provider's cache and read {read:,}. The writes cost more than the reads saved."
            ),
            advice=(
                "Remove the cache breakpoint. Or move it to the end of the part that is the same in each "
                "call, and make sure that the next call arrives before the cache entry expires."
            ),
            formula=f"{format_exact_dollars(priced.cost)} with {written:,} tokens written and {read:,} read"
            f" - {format_exact_dollars(priced.cost - priced.total_saving)} as plain input",
            current=work.processing_with_mode(),
            recommended=work.processing_with_mode(),
            measured_by=work.measured_by,
        )


def _as_plain_input(use: DailyUse) -> TokenSum | None:
    """
    Return the tokens of the use as plain input, or None if no token was cached. Uses that only read the cache
    are included, because the cache was written for their reads.
    """
    if not use.tokens.cache_write_tokens and not use.tokens.cache_read_tokens:
        return None
    return replace(use.tokens, cache_read_tokens=0, cache_write_tokens=0, cache_write_1h_tokens=0)
