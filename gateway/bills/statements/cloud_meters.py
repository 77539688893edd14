"""
Readers for the names of cloud meters: the kind of token, the tier, and the number of tokens per unit. Pure.
"""

from __future__ import annotations

import re
from decimal import Decimal

from gateway.bills.statements.values import Damaged
from spool.statements import EXACT

# Plausible price range per token, in dollars. A unit that is wrong by a factor of 1000 puts the price
# outside this range.
LEAST_PRICE, MOST_PRICE = Decimal("5E-9"), Decimal("1E-3")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=\d)")
_WORD = re.compile(r"[a-z0-9]+")

_INPUT = frozenset({"input", "inp", "inpt", "in"})
_OUTPUT = frozenset({"output", "outp", "outpt", "opt", "out"})
_CACHED = frozenset({"cached", "cchd", "cache", "caching", "cd"})
_TIERS = {"batch": "batch", "flex": "flex", "priority": "priority", "pp": "priority"}
# Line kinds other than tokens, by words in the unit's name. The meter's name can add searches and images.
_UNITS = {
    "image": "images",
    "images": "images",
    "second": "seconds",
    "seconds": "seconds",
    "page": "pages",
    "pages": "pages",
    "character": "characters",
    "characters": "characters",
}
# Line kinds other than tokens, by words in the meter's name.
_SERVICES = {
    "guardrail": "guardrails",
    "guardrails": "guardrails",
    "rerank": "rerank",
    "reranking": "rerank",
    "training": "training",
    "tuning": "training",
    "customization": "training",
    "hosting": "hosting",
}
_SEARCHES = frozenset({"search", "searches"})
_STORED = frozenset({"file", "storage"})
_MEDIA = {"audio": "audio", "aud": "audio", "image": "image", "img": "image"}


def split_words(name: str) -> list[str]:
    """Split a meter's name into lowercase words, also at capital letters."""
    return _WORD.findall(_CAMEL.sub(" ", name).lower())


def token_kind(meter_words: list[str]) -> str | None:
    """
    Return the kind of tokens that a meter counts, or None if it counts no tokens. Cache kinds take precedence.
    """
    known = set(meter_words)
    is_cached = bool(known & _CACHED)
    if is_cached and known & {"write", "creation", "wr"}:
        return (
            "cache_write_1h"
            if known & {"1h", "1hour"}
            else "cache_write_5m"
            if "5m" in known
            else "cache_write"
        )
    if is_cached and known & {"read", *_INPUT, "cchd", "cached"}:
        return "cache_read"
    medium = next((_MEDIA[word] for word in meter_words if word in _MEDIA), None)
    for names, kind in ((_INPUT, "input"), (_OUTPUT, "output")):
        if known & names:
            return f"{medium}_{kind}" if medium else kind
    return None


def service_kind(meter_words: list[str]) -> str | None:
    """
    Return the kind of line for a service that is not billed by call, such as hosting or training, or None.
    """
    return next((_SERVICES[word] for word in meter_words if word in _SERVICES), None)


def non_token_kind(unit: str, meter_words: list[str]) -> str | None:
    """
    Return the line kind if the meter counts something other than tokens (such as images or searches), else None.
    """
    service = service_kind(meter_words)
    if service is not None:
        return service
    kind = next((_UNITS[word] for word in split_words(unit) if word in _UNITS), None)
    if kind is not None:
        return kind
    if _SEARCHES.intersection(meter_words):
        return "file_search" if _STORED.intersection(meter_words) else "web_search"
    return "images" if "imagen" in meter_words else None


def find_tier(meter_words: list[str]) -> str:
    return next((_TIERS[word] for word in meter_words if word in _TIERS), "standard")


def tokens_per_unit(unit: str) -> int | None:
    """Return the number of tokens per unit from the unit's name, or None if the name does not state it."""
    folded = unit.lower().replace(",", "")
    if re.search(r"\b1m\b|\b1m tokens|million|1000000\b", folded):
        return 1_000_000
    if re.search(r"\b1k\b|thousand|\b1000\b", folded):
        return 1000
    return 1 if re.fullmatch(r"(1 )?(tokens?|count)", folded.strip()) else None


def quantity_to_tokens(quantity: Decimal, size: int, cost: Decimal, name: str) -> Decimal:
    """
    Convert a quantity to tokens. Raises Damaged if the price per token is implausible, because then the
    unit is wrong.
    """
    tokens = EXACT.multiply(quantity, Decimal(size))
    if tokens and cost and tokens * cost > 0 and not LEAST_PRICE <= abs(cost / tokens) <= MOST_PRICE:
        raise Damaged(
            f"{name}: with {size} tokens per unit, a token would cost {abs(cost / tokens):.1e}; check the unit"
        )
    return (
        tokens.quantize(Decimal(1)) if abs(tokens - tokens.to_integral_value()) < Decimal("1E-6") else tokens
    )
