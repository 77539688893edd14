"""Cache writes that nobody reads often enough: what the same input costs without a cache."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gateway.money.recommendations.facts import Opportunity, SavingFacts, Use
from gateway.money.recommendations.repricing import exact, repriced
from spool.ledger.repricing import TokenSum
from spool.registry.insights import LOW
from spool.registry.recommendations import EXACT

NAME = "cache_write_unread"
TITLE = "No cache where what is written is hardly read"
FORMULA = "cost with cache writes and reads - cost of the same tokens as plain input"
CONFIDENCE = EXACT
EFFORT = LOW
ASSUMPTIONS = ("The calls that write to the cache are those of the same program that could read from it.",)


def find(facts: SavingFacts) -> Iterable[Opportunity]:
    for work, priced in repriced(facts, _uncached):
        written = priced.sum("cache_write_tokens")
        read = priced.sum("cache_read_tokens")
        if not written:
            continue
        yield Opportunity(
            subject=work,
            work=work,
            claims=priced.claims,
            title=f"No prompt cache with {work.model} for {work.name}",
            seen=f"{priced.calls:,} calls of {work.name} with {work.model} wrote {written:,} tokens to the provider's "
            f"cache and read {read:,}. Writing cost more than reading saved.",
            advice="Remove the cache breakpoint, or move it behind what stays the same from call to call and make sure "
            "that calls follow each other before the cache forgets.",
            formula=f"{exact(priced.cost)} with {written:,} tokens written and {read:,} read"
            f" - {exact(priced.cost - priced.saving)} as plain input",
            current=work.processing(),
            recommended=work.processing(),
            measured_by=work.measured_by,
        )


def _uncached(use: Use) -> TokenSum | None:
    """The same tokens as plain input; also of uses that only read, because these are what writing is for."""
    if not use.tokens.cache_write_tokens and not use.tokens.cache_read_tokens:
        return None
    return replace(use.tokens, cache_read_tokens=0, cache_write_tokens=0, cache_write_1h_tokens=0)
