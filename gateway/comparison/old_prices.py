"""
What the tokens of a time would have cost at the prices of another one, each kind of token of each model by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from gateway.intake.prices import PriceBook
from gateway.rate_cards.card import CardUnreadable
from spool.ledger import money
from spool.ledger.queries import CostRow
from spool.record import NS, Inference

KINDS = ("provider", "model")  # by which costs are asked for beside the groups
MEASURES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cached_input_tokens")
_OUT = 1_000_000

Estimate = Callable[[Inference], str | None]  # what a call costs at list prices; None if unknown
Row = tuple[str | None, str | None, CostRow, int]  # provider, model, what came to them, and its cost in units


async def list_prices(load: Callable[[], PriceBook]) -> Estimate | None:
    """Return the list prices that weigh kinds of tokens; None while their file cannot be read."""
    try:
        return (await asyncio.to_thread(load)).estimate
    except CardUnreadable:
        return None


def at_old_prices(before: Sequence[Row], now: Sequence[Row], estimate: Estimate, at: float) -> int:
    """
    Return the cost that a group's tokens of `now` would have had before, in units of money.

    List prices of one moment weigh the kinds of tokens of a model; what a weighed token cost before is its old
    price. So a change of kinds is none of prices, whether these are those of the list or not. A model that was
    not there before has no old price: it counts as it is.
    """
    old = {(provider, model): (row, cost) for provider, model, row, cost in before}
    found = 0
    for provider, model, row, cost in now:
        if (provider, model) in old:
            was, was_cost = old[provider, model]
            one, other = (_weight(provider, model, each, estimate, at) for each in (was, row))
            if one is None or other is None or one <= 0:
                one, other = _tokens(was), _tokens(row)
            found += was_cost * other // one if one > 0 else cost
        else:
            found += cost
    return found


def cache_saving(provider: str | None, model: str | None, row: CostRow, estimate: Estimate) -> int | None:
    """
    Return the money that reading from a provider's prompt cache saved, less the extra cost of writing to it,
    at the list prices of the row's day for calls of its average size. Negative if less was read than paid
    for; None if a price is unknown, or nothing was cached.
    """
    read, written, long = row.cache_read_tokens, row.cache_write_tokens, row.cache_write_1h_tokens
    if not read and not written:
        return None
    size = max(1, row.input_tokens // max(1, row.calls))
    at = int(row.start.timestamp())

    def price(read: int = 0, written: int = 0, long: int = 0) -> int | None:
        call = Inference(
            id=b"", source="", provider=provider, response_model=model, start_time=at * NS, input_tokens=size,
            output_tokens=0, cache_read_tokens=read, cache_write_tokens=written, cache_write_1h_tokens=long or None,
        )  # fmt: skip
        text = estimate(call)
        return None if text is None else money.units(text)

    plain, cheap = price(), price(read=size)
    dear = price(written=size) if written else plain
    dearest = price(written=size, long=size) if long else dear
    if plain is None or cheap is None or dear is None or dearest is None:
        return None
    surcharge = (dear - plain) * (written - long) + (dearest - plain) * long
    return ((plain - cheap) * read - surcharge) // size


def _tokens(row: CostRow) -> int:
    return row.input_tokens + row.output_tokens - row.cached_input_tokens - row.cached_output_tokens


def _weight(
    provider: str | None, model: str | None, row: CostRow, estimate: Estimate, at: float
) -> int | None:
    """The tokens of a row at the list prices of a call of its average size; None if a price is unknown."""
    size = max(1, row.input_tokens // max(1, row.calls))

    def price(output_tokens: int = 0, read: int = 0, written: int = 0) -> int:
        call = Inference(
            id=b"",
            source="",
            provider=provider,
            response_model=model,
            start_time=int(at) * NS,
            input_tokens=size,
            output_tokens=output_tokens,
            cache_read_tokens=read,
            cache_write_tokens=written,
        )
        text = estimate(call)
        if text is None:
            raise LookupError(model)
        return money.units(text)

    try:
        plain = price()
        read, written = price(read=size), price(written=size)
        output = price(_OUT) - plain
    except LookupError:
        return None
    cached = row.cache_read_tokens + row.cache_write_tokens
    fresh = max(0, row.input_tokens - row.cached_input_tokens - cached)
    of_input = plain * fresh + read * row.cache_read_tokens + written * row.cache_write_tokens
    return of_input // size + output * (row.output_tokens - row.cached_output_tokens) // _OUT


def by_group(
    rows: Sequence[CostRow], places: Mapping[str, int], width: int
) -> dict[tuple[str | None, ...], list[Row]]:
    """Rows by the first `width` places of their group, each as a Row."""
    found: dict[tuple[str | None, ...], list[Row]] = {}
    provider, model = places["provider"], places["model"]
    for row in rows:
        kind = (row.group[provider], row.group[model], row, money.units(row.cost))
        found.setdefault(row.group[:width], []).append(kind)
    return found
