"""Models that are used and that no price is known for: what they cost is in no sum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal

from gateway.insights.facts import Facts, Spend
from gateway.insights.findings import finding, named, ordered, rows_of
from spool.registry.insights import LOW, Finding

NAME = "missing_price"
LEAST_CALLS = 5


def find(facts: Facts) -> Sequence[Finding]:
    models: dict[tuple[str | None, str | None], list[Spend]] = defaultdict(list)
    for spend in facts.unpriced:
        if spend.unpriced and spend.tokens:
            models[spend.provider, spend.model].append(spend)
    usual = _usual_price(facts.week)
    providers: dict[str | None, dict[str | None, list[Spend]]] = defaultdict(dict)
    for (provider, model), spends in models.items():
        if sum(spend.unpriced for spend in spends) >= LEAST_CALLS:
            providers[provider][model] = spends
    return ordered(_finding(provider, found, usual) for provider, found in providers.items())


def _usual_price(week: Sequence[Spend]) -> Decimal:
    """Return the mean price of a token, over all models that have a price."""
    priced = [spend for spend in week if spend.cost]
    tokens = sum(spend.tokens for spend in priced)
    return sum((spend.cost for spend in priced), Decimal(0)) / tokens if tokens else Decimal(0)


def _finding(provider: str | None, models: Mapping[str | None, Sequence[Spend]], usual: Decimal) -> Finding:
    """Make one finding for a provider; its models are rows."""
    spends = [spend for each in models.values() for spend in each]
    calls = sum(spend.unpriced for spend in spends)
    tokens = sum(spend.tokens for spend in spends)
    sources = ", ".join(sorted({named(spend.source) for spend in spends})[:5])
    largest = sorted(models, key=lambda model: (-sum(spend.tokens for spend in models[model]), model or ""))
    name = named(largest[0], "calls without a model")
    what = name if len(models) == 1 else f"{name} and {len(models) - 1} more models"
    rows = [
        f"{named(model, 'calls without a model')}: {sum(spend.unpriced for spend in models[model]):,} calls, "
        f"{sum(spend.tokens for spend in models[model]):,} tokens"
        for model in largest
    ]
    return finding(
        NAME,
        (provider,),
        title=f"No price is known for {what} of {named(provider, 'no provider')}",
        seen=f"{calls:,} calls with {tokens:,} tokens in a week, reported by {sources}, count as if they cost nothing. "
        f"The impact is what as many tokens cost with the models that have a price.{rows_of(rows)}",
        advice="Give each a price in [[prices.override]] (0 on hardware of your own), then `tollhouse ledger reprice`.",
        category="prices",
        effort=LOW,
        impact=tokens * usual,
        newest=max(spend.start for spend in spends),
    )
