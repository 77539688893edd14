"""The cost that tokens would have had at the prices of another time, by kind of token and model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from msgspec.structs import replace

from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import CardUnreadable
from gateway.intake.rates import Rate
from spool.ledger import money
from spool.ledger.queries import CostRow
from spool.ledger.usages import MEASURES, GroupUsage, Usages
from spool.record import NS, decimal_text

KINDS = ("provider", "model")  # dimensions that are added to a query's groups, because prices depend on them
# fields of a row that the weights need
_WEIGHED = (*MEASURES, "cached_input_tokens", "cached_output_tokens", "calls")

Rates = Sequence[tuple[int, Rate]]  # result of PriceBook.rates
AnyUsage = CostRow | GroupUsage
# provider, model, sums, and their cost in units
Row = tuple[str | None, str | None, AnyUsage, int]


async def list_prices(load: Callable[[], PriceBook]) -> PriceBook | None:
    """Return the list prices that weigh kinds of tokens, or None if their file cannot be read."""
    try:
        return await asyncio.to_thread(load)
    except CardUnreadable:
        return None


def at_old_prices(before: Sequence[Row], now: Sequence[Row], prices: PriceBook | None, at: float) -> int:
    """
    Return the cost that a group's tokens of `now` would have had at the old prices, in units of money.

    List prices of one time are the weights for the kinds of tokens of a model. The old price of a model is
    its old cost per weighted token. So a changed mix of tokens does not count as a price change, even if
    the paid prices differ from list prices. A model without earlier calls has no old price, so its current
    cost is used.
    """
    old_rows = {(provider, model): (row, cost) for provider, model, row, cost in before}
    total = 0
    time = int(at) * NS
    for provider, model, row, cost in now:
        if (provider, model) in old_rows:
            old_row, old_cost = old_rows[provider, model]
            rates = prices.rates(provider, model, time) if prices is not None else ()
            old_weight = _weight(old_row, rates)
            new_weight = _weight(row, rates)
            if old_weight is None or new_weight is None or old_weight <= 0:
                old_weight = _tokens(old_row)
                new_weight = _tokens(row)
            total += old_cost * new_weight // old_weight if old_weight > 0 else cost
        else:
            total += cost
    return total


def changed_price(
    now: Sequence[Row], prices: PriceBook | None, before_at: float, at: float, part: int
) -> str:
    """
    Return the change of a list price that explains at least half of a part for prices, such as
    "gpt-4.1 input $2, before $1.8", or "".
    """
    texts: list[tuple[int, str]] = []
    whole = 0
    for provider, model, row, _ in now if prices is not None else ():
        rates = [prices.rates(provider, model, int(time) * NS) for time in (before_at, at)] if prices else []
        weights = [_weight(row, side) for side in rates]
        if weights[0] is None or weights[1] is None or weights[0] == weights[1]:
            continue
        whole += weights[1] - weights[0]
        old, new = (side[-1][1] for side in rates)
        kind = next(
            (name for name in ("input", "output") if _listed(old, name) != _listed(new, name)), "cache_read"
        )
        words = f"{model} {kind.replace('_', ' ')} ${_listed(new, kind)}, before ${_listed(old, kind)}"
        texts.append((abs(weights[1] - weights[0]), words))
    is_proven = whole * part > 0 and 2 * abs(whole) >= abs(part)
    return max(texts)[1] if texts and is_proven else ""


def _listed(rate: Rate, kind: str) -> str:
    """Return a price in dollars per million tokens."""
    price = getattr(rate, kind)
    return "0" if price is None else decimal_text(Decimal(price).scaleb(6 - rate.digits))


def cache_saving(provider: str | None, model: str | None, row: CostRow, prices: PriceBook) -> int | None:
    """
    Return the money that was saved by reads from a provider's prompt cache, minus the extra cost of cache writes.

    The list prices of the row's day are used, for calls of the row's average size. The result is negative if
    the writes cost more than the reads saved. It is None if a price is unknown or nothing was cached.
    """
    read = row.cache_read_tokens
    written = row.cache_write_tokens
    long = row.cache_write_1h_tokens
    if not read and not written:
        return None
    rate = _rate(row, prices.rates(provider, model, int(row.start.timestamp()) * NS))
    if rate is None:
        return None
    plain = rate.input
    cheap = rate.cache_read
    dear = rate.cache_write if written else plain
    dearest = rate.cache_write_1h if long else dear
    if plain is None or cheap is None or dear is None or dearest is None:
        return None
    surcharge = (dear - plain) * (written - long) + (dearest - plain) * long
    return money.scaled((plain - cheap) * read - surcharge, rate.digits)


def _tokens(row: AnyUsage) -> int:
    return row.input_tokens + row.output_tokens - row.cached_input_tokens - row.cached_output_tokens


def _rate(row: AnyUsage, rates: Rates) -> Rate | None:
    """Return the rate for a call of the row's average size."""
    size = _size(row)
    return next((rate for beyond, rate in rates if size > beyond), None)


def _size(row: AnyUsage) -> int:
    return max(1, row.input_tokens // max(1, row.calls))


def _weight(row: AnyUsage, rates: Rates) -> int | None:
    """
    Price the tokens of a row at list prices for small inputs, because sums do not state which calls were large. Return
    None if a price is unknown.
    """
    if not rates:
        return None
    _, rate = rates[-1]
    price, output, read, written = rate[:4]
    if price is None or output is None or read is None or written is None:
        return None
    cached = row.cache_read_tokens + row.cache_write_tokens
    fresh = max(0, row.input_tokens - row.cached_input_tokens - cached)
    of_input = price * fresh + read * row.cache_read_tokens + written * row.cache_write_tokens
    of_output = output * (row.output_tokens - row.cached_output_tokens)
    of_requests = money.scaled(rate.per_request * (fresh + cached), rate.digits) // _size(row)
    return money.scaled(of_input + of_output, rate.digits) + of_requests


def by_group(usages: Usages, by: Sequence[str], width: int) -> dict[tuple[str | None, ...], list[Row]]:
    """Group usage by its first `width` dimensions. Each row of the result is a Row."""
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    provider = by.index("provider")
    model = by.index("model")
    for group, usage in usages.items():
        groups.setdefault(group[:width], []).append((group[provider], group[model], usage, usage.cost))
    return groups


def added_up(parts: Iterable[Sequence[Row]]) -> list[Row]:
    """Sum the parts by provider and model."""
    return [_plus(rows[0], rows[1:]) for rows in _by_kind(parts).values()]


def without(rows: Sequence[Row], parts: Iterable[Sequence[Row]]) -> list[Row]:
    """Subtract the parts from the rows, by provider and model."""
    parts_by_kind = _by_kind(parts)
    return [_plus(row, parts_by_kind.get(row[:2], ()), sign=-1) for row in rows]


def _by_kind(parts: Iterable[Sequence[Row]]) -> dict[tuple[str | None, str | None], list[Row]]:
    rows_by_kind: dict[tuple[str | None, str | None], list[Row]] = {}
    for part in parts:
        for row in part:
            rows_by_kind.setdefault(row[:2], []).append(row)
    return rows_by_kind


def _plus(first: Row, other_rows: Sequence[Row], sign: int = 1) -> Row:
    provider, model, row, cost = first
    cost_rows = [cost_row for _, _, cost_row, _ in other_rows]
    sums = {
        name: getattr(row, name) + sign * sum([getattr(cost_row, name) for cost_row in cost_rows])
        for name in _WEIGHED
    }
    return provider, model, replace(row, **sums), cost + sign * sum([row[3] for row in other_rows])
