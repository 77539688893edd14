"""Which list prices changed in a span, in words: what each model cost before a day, and since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.intake.leaves import UNITS
from gateway.intake.prices import PriceBook
from gateway.intake.rates import Quote
from spool.record import NS

_SHORT = -1  # the size of input from which the prices of short prompts hold


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    at: float
    text: str


def price_changes(
    book: PriceBook, models: Sequence[tuple[str | None, str]], since: float, until: float
) -> list[PriceChange]:
    """`models` are each a provider and a name. A model that several providers changed alike is told once."""
    found: dict[PriceChange, None] = {}
    for provider, model in models:
        for at, before, after in book.changes(provider, model, int(since * NS), int(until * NS)):
            what = _words(_shown(before), _shown(after))
            if what:
                found[PriceChange(at=at / NS, text=f"List prices of {model} changed: {what}")] = None
    return list(found)


def _shown(quote: Quote) -> Mapping[int, Mapping[str, str]]:
    """Prices by unit, by the size of input from which they hold."""
    return {above: part.shown for above, part in quote.parts}


def _words(before: Mapping[int, Mapping[str, str]], after: Mapping[int, Mapping[str, str]]) -> str:
    """Describe what changed; empty if nothing did, or if there was no price."""
    old = before.get(_SHORT, {})
    new = after.get(_SHORT, {})
    changed = [name for name in UNITS if name in old and name in new and old[name] != new[name]]
    if changed:
        return ", ".join(f"{UNITS[name].words} ${old[name]} → ${new[name]}{_per(name)}" for name in changed)
    if not old or not new or before == after:
        return ""
    return "those of long prompts" if old == new else "some have a price of their own now, or none any more"


def _per(name: str) -> str:
    words = UNITS[name].per_words
    return " each" if words == "one" else f" a {words}"
