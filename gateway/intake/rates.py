"""
Token rates, their sums, and the quotes in which they apply.

`gateway.intake.prices` describes the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from gateway.configuration.prices import PriceOverride
from gateway.intake.rate_cards.card import DAY_NS, CardPrices, Model, Price, day_ns
from gateway.intake.unit_prices import AMOUNTS, PartRate, part_rate_from_amounts
from spool.ledger.token_sums import SIZES, TokenSum
from spool.meters import FEES
from spool.processing import STANDARD

R = TypeVar("R")
NO_TIME = 2**62  # time of a call that states none; it is later than any record, so the newest price applies


class Rate(NamedTuple):
    """Prices per token, in units of 10 ** -digits dollars. None means unknown."""

    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    cache_write_1h: int | None
    reasoning: int | None
    per_request: int
    digits: int


class MissingPrices(NamedTuple):
    """The prices that a quote lacks. Each concerns only some of the calls with this quote."""

    mode: str  # processing mode of the quote, or ""
    is_1h: bool  # whether one-hour cache writes have the price of other cache writes
    regional: Model | None  # the model's price entry, if some regions have other prices


class Quote(NamedTuple):
    """
    The prices of a call, which stay the same from `low` until before `high` (ns). `tiers` are the rates of
    larger inputs, the largest first.
    """

    low: int
    high: int
    rate: Rate | None  # rate for calls that report only text
    tiers: tuple[tuple[int, Rate], ...] = ()
    # (minimum input, rate) pairs, the largest minimum first
    parts: tuple[tuple[int, PartRate], ...] = ()
    missing: MissingPrices | None = None
    contract: str = ""  # id of the contract that decides the prices


NEVER = Quote(1, 0, None)


def rate_for_input_size(parts: tuple[tuple[int, PartRate], ...], input_tokens: int) -> PartRate | None:
    return next((rate for above, rate in parts if input_tokens > above), None)


def decimal_text_of_total(total: int | None, digits: int) -> str | None:
    if not total:
        return None if total is None else "0"
    text = str(total)
    if len(text) <= digits:
        return "0." + text.zfill(digits).rstrip("0")
    return f"{text[:-digits]}.{text[-digits:]}".rstrip("0").rstrip(".")


def cost_of_tokens(
    rate: Rate,
    input_tokens: int,
    output_tokens: int | None,
    cache_read_tokens: int,
    cache_write_tokens: int,
    reasoning_tokens: int,
    cache_write_1h_tokens: int,
    calls: int = 1,
) -> int | None:
    """
    Return the cost in units of 10 ** -digits of the rate.

    Return None if a required price or count is unknown, or if the counts contradict each other.
    """
    input_price, output_price, read_price, write_price, write_1h_price, reasoning_price, per_request, _ = rate
    if input_price is None:
        return None
    total = per_request * calls
    if cache_read_tokens or cache_write_tokens:
        if (cache_read_tokens and read_price is None) or (cache_write_tokens and write_price is None):
            return None
        total += cache_read_tokens * (read_price or 0) + cache_write_tokens * (write_price or 0)
        if cache_write_1h_tokens:
            if write_1h_price is None or cache_write_1h_tokens > cache_write_tokens:
                return None
            total += cache_write_1h_tokens * (write_1h_price - (write_price or 0))
        input_tokens -= cache_read_tokens + cache_write_tokens
    if input_tokens < 0:
        return None
    total += input_tokens * input_price
    if output_price is not None:
        if output_tokens is None or output_tokens < 0:
            return None
        if reasoning_price is not None and reasoning_tokens:
            if reasoning_tokens > output_tokens:
                return None
            total += reasoning_tokens * (reasoning_price - output_price)
        total += output_tokens * output_price
    elif output_tokens:
        return None
    return total


def token_rate(card_prices: CardPrices, model: str) -> Rate:
    charged_writes = "claude" in model
    instead = None if charged_writes else card_prices.input
    read = card_prices.cache_read if card_prices.cache_read is not None else instead
    written = card_prices.cache_write if card_prices.cache_write is not None else instead
    written_1h = written if card_prices.cache_write_1h is None else card_prices.cache_write_1h
    per_million = (card_prices.input, card_prices.output, read, written, written_1h, card_prices.reasoning)
    per_request = card_prices.per_request or Decimal(0)
    digits = max(6 + max(_decimal_places(amount) for amount in per_million), _decimal_places(per_request))

    def amount_in_units(amount: Decimal | None) -> int | None:
        return None if amount is None else int(amount.scaleb(digits - 6))

    return Rate(
        input=amount_in_units(card_prices.input),
        output=amount_in_units(card_prices.output),
        cache_read=amount_in_units(read),
        cache_write=amount_in_units(written),
        cache_write_1h=amount_in_units(written_1h),
        reasoning=amount_in_units(card_prices.reasoning),
        per_request=int(per_request.scaleb(digits)),
        digits=digits,
    )


def _decimal_places(amount: Decimal | None) -> int:
    exponent = 0 if amount is None else amount.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def rates_by_size(row: Price, model: str) -> tuple[tuple[int, Rate], ...]:
    return tuple((tier.above, token_rate(tier, model)) for tier in reversed(row.tiers))


def part_rates(
    row: Price, model: str, directions_priced_by_kind: tuple[str, ...]
) -> tuple[tuple[int, PartRate], ...]:
    """
    Return the rates of all units with the minimum input of each tier, the largest first, and the row's own
    rate last.
    """

    def build_part_rate(card_prices: CardPrices) -> PartRate:
        return part_rate_from_amounts(
            card_prices, directions_priced_by_kind=directions_priced_by_kind, charges_writes="claude" in model
        )

    return (
        *((tier.above, build_part_rate(tier)) for tier in reversed(row.tiers)),
        (-1, build_part_rate(row)),
    )


def is_one_hour_price_missing(card_prices: CardPrices, model: str) -> bool:
    """
    Return whether the price of cache writes for an hour is missing. Only Claude models have a separate price
    for them.
    """
    return "claude" in model and card_prices.cache_write is not None and card_prices.cache_write_1h is None


def price_with_override(override: PriceOverride, row: Price | None) -> Price:
    """
    Return the price of a row with an operator's prices in place of its own. Operators' prices have no tiers
    by size.
    """
    base = row or Price()
    return Price(
        input=base.input if override.input is None else override.input,
        output=base.output if override.output is None else override.output,
        cache_read=base.cache_read if override.cache_read is None else override.cache_read,
        cache_write=base.cache_write if override.cache_write is None else override.cache_write,
        cache_write_1h=base.cache_write_1h if override.cache_write_1h is None else override.cache_write_1h,
        reasoning=base.reasoning if override.output is None else None,
        per_request=base.per_request,
        meters={**base.meters, **override.meters},
    )


def row_in_force_or_first(model: Model | None, time: int, mode: str) -> Price | None:
    """
    Return the row of prices for a mode (service tier) at a time (ns). If several rows are in force, it is the
    last one. If none is, return the first row of the standard mode, even before its start or outside its
    hours, but None for other modes.
    """
    if model is None:
        return None
    rows = [row for row in model.prices if row.mode == mode]
    for row in reversed(rows):
        if row.since_ns <= time and _is_in_daily_price_window(row, time):
            return row
    return rows[0] if rows and mode == STANDARD else None


def price_row_with_only_fees(row: Price) -> Price:
    nothing = dict.fromkeys(AMOUNTS.values(), Decimal(0))
    fees = {name: amount for name, amount in row.meters.items() if name in FEES}
    return replace(row, **nothing, tiers=(), meters=fees)


def _is_in_daily_price_window(row: Price, time: int) -> bool:
    window = row.daily_window_ns()
    if window is None:
        return True
    if time >= NO_TIME:
        return False
    start, end = window
    of_day = time % DAY_NS
    return start <= of_day < end if start <= end else of_day >= start or of_day < end


def constant_price_span(
    model: Model | None,
    overriding: list[tuple[int, PriceOverride]],
    time: int,
    term_edges_ns: Collection[int],
) -> tuple[int, int]:
    """
    Return the span around `time` (ns) in which no price changes. `term_edges_ns` are the times at which contract
    terms begin or end.
    """
    edges = {-NO_TIME, 2 * NO_TIME, *term_edges_ns, *(override_start_ns(row) for row in overriding)}
    midnight = time - time % DAY_NS
    for row in model.prices if model else ():
        edges.add(row.since_ns)
        window = row.daily_window_ns()
        if window:
            edges.update((midnight, midnight + window[0], midnight + window[1], midnight + DAY_NS))
    ordered = sorted(edges)
    return next((low, high) for low, high in pairwise(ordered) if low <= time < high)


def override_start_ns(overriding: tuple[int, PriceOverride]) -> int:
    return day_ns(overriding[1].since) if overriding[1].since else 0


def rate_of_sum(rates: Sequence[tuple[int, R]], total: TokenSum) -> R | None:
    """
    Return the rate of a sum's calls, or None if they may have two rates, because a tier begins within their size
    class (SIZES). `rates`: (minimum input, rate) pairs, the largest minimum first.
    """
    beyond, end = total.beyond, _end_of_size_class(total.beyond)
    if total.calls == 1 and beyond < total.input_tokens <= end:
        return next((rate for above, rate in rates if total.input_tokens > above), None)
    if any(beyond < above < end for above, _ in rates):
        return None
    return next((rate for above, rate in rates if beyond >= above), None)


def may_have_two_rates(rates: Sequence[tuple[int, R]], total: TokenSum) -> bool:
    end = _end_of_size_class(total.beyond)
    return total.calls > 1 and any(total.beyond < above < end for above, _ in rates)


def _end_of_size_class(beyond: int) -> float:
    return next((size for size in SIZES if size > beyond), inf)
