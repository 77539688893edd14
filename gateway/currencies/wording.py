"""What is said of amounts that no rate is known for, next to sums that lack them."""

from __future__ import annotations

from collections.abc import Mapping


def unconverted_words(amounts: Mapping[str, str], currency: str) -> str:
    """Return the sentence about these amounts, by their currencies; `currency` is that of the sums."""
    told = ", ".join(f"{amount} {code}" for code, amount in amounts.items())
    return f"{told} are not in these sums: no rate to {currency} is known (docs/currencies.md)"
