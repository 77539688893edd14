"""
The lines that add up to the estimate of a call, for display to people. If there is no estimate, the module
gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from gateway.intake import unit_prices
from gateway.intake.prices import PriceBook
from gateway.intake.rates import Rate, rate_for_input_size
from gateway.intake.unit_prices import PartRate, UnpricedReason
from spool import money
from spool.ledger.repricing import REQUESTS, SumLine
from spool.ledger.token_sums import TokenSum
from spool.meters import SCALE
from spool.record import Inference, decimal_text


class PriceLine(NamedTuple):
    """A line of a cost estimate: a quantity, the price of `per` units, and the resulting amount."""

    of: str
    quantity: int | str
    price: str
    amount: str
    per: str = "million"


def itemise_estimate(price_book: PriceBook, record: Inference) -> list[PriceLine] | None:
    if price_book.estimate_record(record) is None:
        return None
    quote = price_book.quote_for_record(record)
    input_tokens = record.input_tokens or 0
    if record.meters:
        return _part_lines(rate_for_input_size(quote.parts, input_tokens), record)
    rate = next((dearer for above, dearer in quote.tiers if input_tokens > above), quote.rate)
    return [] if rate is None else list(_token_lines(rate, record))


def unpriced_reason_of_record(price_book: PriceBook, record: Inference) -> str | None:
    rate = rate_for_input_size(price_book.quote_for_record(record).parts, record.input_tokens or 0)
    if rate is None:
        return None
    charged = unit_prices.charged_quantities(rate, unit_prices.quantities_of_record(record))
    return unit_prices.text_of_unpriced_reason(charged) if isinstance(charged, UnpricedReason) else None


def price_lines_of_sum(price_book: PriceBook, total: TokenSum) -> list[SumLine]:
    """Return the price lines of a sum. An empty list means that the charges are unknown."""
    rate = price_book.part_rate(total)
    if rate is None:
        return []
    charged = unit_prices.charged_quantities(rate, unit_prices.quantities_of_sum(total))
    if isinstance(charged, UnpricedReason):
        return []
    lines = []
    for leaf in charged:
        amount = money.text_to_units(unit_prices.quantity_amount_text(rate, leaf))
        lines.append(SumLine(leaf.unit, leaf.quantity, amount))
    if rate.per_request and total.calls:
        fee = money.text_to_units(unit_prices.total_amount_text(rate, [], calls=total.calls))
        lines.append(SumLine(REQUESTS, total.calls * SCALE, fee))
    return lines


def _part_lines(rate: PartRate | None, record: Inference) -> list[PriceLine]:
    charged = (
        None
        if rate is None
        else unit_prices.charged_quantities(rate, unit_prices.quantities_of_record(record))
    )
    if rate is None or charged is None or isinstance(charged, UnpricedReason):
        return []
    lines = [
        PriceLine(
            unit_prices.UNITS[leaf.unit].words,
            unit_prices.quantity_as_number_or_text(leaf),
            rate.shown[leaf.unit],
            unit_prices.quantity_amount_text(rate, leaf),
            unit_prices.UNITS[leaf.unit].per_words,
        )
        for leaf in charged
    ]
    return [*lines, *_request_line(rate.per_request, rate.digits)]


def _token_lines(rate: Rate, record: Inference) -> Iterator[PriceLine]:
    """
    Yield the charged quantities of tokens, with the same rules as `cost_of_tokens`. No token is in two of
    them.
    """
    read = record.cache_read_tokens or 0
    written = record.cache_write_tokens or 0
    written_1h = record.cache_write_1h_tokens or 0
    thought = record.reasoning_tokens or 0
    thought = 0 if rate.reasoning is None else thought
    counts = (
        ("input", (record.input_tokens or 0) - read - written, rate.input),
        ("cache read", read, rate.cache_read),
        ("cache write", written - written_1h, rate.cache_write),
        ("cache write for an hour", written_1h, rate.cache_write_1h),
        ("output", (record.output_tokens or 0) - thought, rate.output),
        ("reasoning", thought, rate.reasoning),
    )
    for unit, quantity, price in counts:
        if quantity and price is not None:
            amount = Decimal(quantity * price).scaleb(-rate.digits)
            yield PriceLine(
                unit, quantity, decimal_text(Decimal(price).scaleb(6 - rate.digits)), decimal_text(amount)
            )
    yield from _request_line(rate.per_request, rate.digits)


def _request_line(per_request: int, digits: int) -> Iterator[PriceLine]:
    if per_request:
        price = decimal_text(Decimal(per_request).scaleb(-digits))
        yield PriceLine("request", 1, price, price, "one")
