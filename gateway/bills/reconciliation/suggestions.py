"""What the operator may take over, with its evidence: prices of a bill, and who owns a provider's key. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.bills.reconciliation.cells import Split
from gateway.bills.reconciliation.claims import Claim
from gateway.bills.reconciliation.rate_series import of_model
from gateway.bills.reconciliation.series import are_alike
from gateway.bills.reconciliation.sides import CACHE_READ, INPUT, OUTPUT, STANDARD, WRITE_1H, WRITE_5M, Prices
from gateway.bills.reconciliation.wording import day_text, per_million

LEAST_DAYS = 7
_PRICES = {
    INPUT: "input",
    OUTPUT: "output",
    CACHE_READ: "cache_read",
    WRITE_5M: "cache_write",
    "cache_write": "cache_write",
    WRITE_1H: "cache_write_1h",
}
_OF_PRICES = frozenset({"price_change", "discount", "reported_cost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Prices that were billed, as a line of `[[prices.override]]`: dollars a million tokens, by its names."""

    provider: str
    model: str
    since: str
    prices: Mapping[str, str]

    @property
    def toml(self) -> str:
        lines = ["[[prices.override]]", f'provider = "{self.provider}"', f'model = "{self.model}"']
        lines += [f'since = "{self.since}"'] if self.since else []
        return "\n".join([*lines, *(f'{name} = "{price}"' for name, price in self.prices.items())])


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPair:
    """A provider's key and one of ours whose tokens agree day by day."""

    provider: str
    billed: str
    api_key: str
    days: int

    @property
    def toml(self) -> str:
        lines = ("[[reconciliation.owner]]", f'provider = "{self.provider}"', f'billed = "{self.billed}"')
        return "\n".join((*lines, f'api_key = "{self.api_key}"'))


def overrides(
    provider: str, found: Split, claimed: Sequence[Claim], prices: Prices, priced_as: Callable[[str], str]
) -> list[Override]:
    """
    The prices that claims about prices rest on: list prices, by as much dearer or cheaper as was billed.

    Large inputs and batches have prices of their own, so what was billed for a million tokens is none for one kind.
    """
    made = []
    for model in sorted({model for claim in claimed if claim.cause in _OF_PRICES for model in claim.models}):
        since = max(claim.since for claim in claimed if claim.cause in _OF_PRICES and model in claim.models)
        named: dict[str, str] = {}
        for meter, days in of_model(found, model, _PRICES).items():
            later = {day for day in days.worth if day >= since}
            listed = prices(model, STANDARD, max(days.worth)).get(meter)
            if not later:
                continue
            if listed is not None:
                worth = sum(days.worth[day] for day in later)
                named[_PRICES[meter]] = per_million(
                    listed * sum(days.paid.get(day, 0) for day in later), worth
                )
            else:
                sold = sum(days.sold[day] for day in later)
                named[_PRICES[meter]] = per_million(sum(days.paid.get(day, 0) for day in later), sold)
        if named:
            when = day_text(since) if since else ""
            made.append(Override(provider=provider, model=priced_as(model), since=when, prices=named))
    return made


def owner_pairs(
    provider: str, theirs: Mapping[str, Mapping[tuple[int, str], int]], ours: Mapping[str, Mapping[int, int]]
) -> list[OwnerPair]:
    """Pairs whose tokens of at least a week agree, where a key has one such partner alone."""
    found = []
    for key, tokens in sorted(theirs.items()):
        days: dict[int, int] = defaultdict(int)
        for (day, _), count in tokens.items():
            days[day] += count
        partners = [own for own, by_day in sorted(ours.items()) if are_alike(days, by_day)]
        if len(partners) == 1 and len(days) >= LEAST_DAYS:
            found.append(OwnerPair(provider=provider, billed=key, api_key=partners[0], days=len(days)))
    return found
