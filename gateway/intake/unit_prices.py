"""
The price of calls that use more than text. Each unit is charged once, at the most specific price that fits
it.

If a model has prices for nested units, the more specific quantity is subtracted from the more general one:
cached audio from audio and from the cache, and audio from the input. A unit without its own price has the
price of the unit that contains it. All numbers are exact integers. Prices are linear, so the price of a sum
of calls equals the sum of their prices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import combinations
from typing import Final, NamedTuple

from gateway.intake.rate_cards.card import CardPrices
from spool.ledger.token_sums import TokenSum
from spool.meters import DECIMALS, FEES, METERS, MODALITIES, quantity_from_millionths, quantity_in_millionths
from spool.record import Inference, decimal_text

# Reasons why no cost can be estimated for a call.
OVERLAP_UNKNOWN: Final = "overlap_unknown"
PARTS_UNKNOWN: Final = "parts_unknown"
NO_PRICE: Final = "no_price"
COUNT_UNKNOWN: Final = "count_unknown"
CONTRADICTION: Final = "contradiction"

# smallest step of a price per second in dollars, because it is computed from a price per hour
_SECOND_PRICE_STEP: Final = Decimal("1e-18")

Dimensions = frozenset[tuple[str, str]]


class Unit(NamedTuple):
    """A unit of usage. Its listed price is for `per` units."""

    words: str
    dimensions: Dimensions
    per: int
    per_words: str
    direction: str | None = None  # side of the call: "input" or "output", only for tokens
    is_tokens: bool = False


def _token_unit(name: str, direction: str, **more: str) -> Unit:
    dimensions = {"family": "tokens", "direction": direction, **more}
    return Unit(name, frozenset(dimensions.items()), 10**6, "million", direction, True)


def _input_units() -> Iterator[tuple[str, Unit]]:
    for kind in MODALITIES:
        yield f"input_{kind}_tokens", _token_unit(f"input {kind}", "input", modality=kind)
        cached = _token_unit(f"cache {kind} read", "input", modality=kind, type="cache_read")
        yield f"cache_{kind}_read_tokens", cached


def _output_units() -> Iterator[tuple[str, Unit]]:
    for kind in MODALITIES:
        yield f"output_{kind}_tokens", _token_unit(f"output {kind}", "output", modality=kind)


_PER: Final = {
    "seconds": (3600, "hour"),
    "images": (1, "one"),
    "pixels": (10**9, "thousand million"),
    "characters": (10**6, "million"),
    "pages": (1000, "thousand"),
    "searches": (1000, "thousand"),
    "results": (1000, "thousand"),
    "classifications": (1000, "thousand"),
    "executions": (1000, "thousand"),
}


def _non_token_units_by_name() -> Iterator[tuple[str, Unit]]:
    for name, meter in METERS.items():
        if not meter.is_part_of_token_count:
            per, description = _PER[meter.unit]
            dimensions = {(whole, "") for whole in meter.wholes} | {(name, "")}
            yield name, Unit(name.replace("_", " "), frozenset(dimensions), per, description)


# All units of quantities, in display order. Reasoning tokens count as text tokens.
UNITS: Final[Mapping[str, Unit]] = {
    "input_tokens": _token_unit("input", "input"),
    "cache_read_tokens": _token_unit("cache read", "input", type="cache_read"),
    "cache_write_tokens": _token_unit("cache write", "input", type="cache_write"),
    "cache_write_1h_tokens": _token_unit("cache write for an hour", "input", type="cache_write", life="1h"),
    "cache_write_12h_tokens": _token_unit(
        "cache write for 12 hours", "input", type="cache_write", life="12h"
    ),
    "input_tool_tokens": _token_unit("tool results", "input", type="tool"),
    **dict(_input_units()),
    "output_tokens": _token_unit("output", "output"),
    "reasoning_tokens": _token_unit("reasoning", "output", type="reasoning", modality="text"),
    "output_citation_tokens": _token_unit("citations", "output", type="citation", modality="text"),
    **dict(_output_units()),
    **dict(_non_token_units_by_name()),
}
_BY_DIMENSIONS: Final = {unit.dimensions: name for name, unit in UNITS.items()}
_FIELDS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)
AMOUNTS: Final = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "cache_write_1h_tokens": "cache_write_1h",
    "reasoning_tokens": "reasoning",
}

Quantities = Mapping[str, int | None]  # quantities by meter in millionths; None if a quantity is unknown


class PartRate(NamedTuple):
    """
    Prices per single unit, in 10 ** -digits dollars. A price of None means that the list states a price for
    the unit, but its amount is unknown.

    `apart` lists the directions ("input", "output") in which most of the model's tokens are not text. A call
    must report its tokens by kind for these directions.
    """

    prices: Mapping[str, int | None]
    shown: Mapping[str, str]  # prices as the price list writes them
    per_request: int
    digits: int
    apart: tuple[str, ...] = ()
    # True if the model has separate prices for cache writes, even if they are unknown
    charges_writes: bool = False

    @property
    def is_by_tokens(self) -> bool:
        return self.prices.get("input_tokens") is not None or self.prices.get("output_tokens") is not None


class PricedQuantity(NamedTuple):
    """A quantity of usage, in millionths, that is charged at one price."""

    unit: str
    quantity: int
    amount: int  # amount in units of 10 ** -(digits + DECIMALS) dollars


class UnpricedReason(NamedTuple):
    """The reason why a call has no price. `unit` is the unit that causes it, or ""."""

    cause: str
    unit: str = ""


def part_rate_from_amounts(
    card_prices: CardPrices, *, directions_priced_by_kind: tuple[str, ...], charges_writes: bool
) -> PartRate:
    stated: dict[str, Decimal | None] = {
        unit: amount for unit, field in AMOUNTS.items() if (amount := getattr(card_prices, field)) is not None
    }
    stated |= {name: amount for name, amount in card_prices.meters.items() if name in UNITS}
    unit_prices = {
        name: None if amount is None else _price_per_unit(amount, UNITS[name].per)
        for name, amount in stated.items()
    }
    per_request = card_prices.per_request or Decimal(0)
    digits = max(
        [
            0,
            *(
                _decimal_places(amount)
                for amount in (per_request, *unit_prices.values())
                if amount is not None
            ),
        ]
    )
    return PartRate(
        prices={
            name: None if amount is None else int(amount.scaleb(digits))
            for name, amount in unit_prices.items()
        },
        shown={name: decimal_text(amount) for name, amount in stated.items() if amount is not None},
        per_request=int(per_request.scaleb(digits)),
        digits=digits,
        apart=directions_priced_by_kind,
        charges_writes=charges_writes,
    )


def quantities_of_record(record: Inference) -> dict[str, int | None]:
    quantities: dict[str, int | None] = {}
    for name in _FIELDS:
        count = getattr(record, name)
        quantities[name] = None if count is None else count * 10**DECIMALS
    for name, quantity in record.meters.items():
        if name in UNITS:
            quantities[name] = quantity_in_millionths(quantity)
    return quantities


def quantities_of_sum(total: TokenSum) -> dict[str, int | None]:
    quantities: dict[str, int | None] = {}
    for name in _FIELDS:
        count = getattr(total, name)
        quantities[name] = None if count is None else count * 10**DECIMALS
    if total.beyond < 0:
        quantities["input_tokens"] = None
    return quantities | {name: quantity for name, quantity in total.meters.items() if name in UNITS}


def charged_quantities(
    rate: PartRate, reported_quantities: Quantities
) -> list[PricedQuantity] | UnpricedReason:
    """List the charged quantities in the order of UNITS, or the reason why the price is unknown."""
    quantities = _quantities_with_missing_totals(reported_quantities)
    problem = _missing_count_or_price(rate, quantities, reported_quantities)
    if problem is not None:
        return problem
    units = (
        {*rate.prices}
        if _is_charged_by_non_token_units(rate, reported_quantities)
        else {"input_tokens", "output_tokens", *rate.prices}
    )
    for first_unit, second_unit in combinations([name for name in units if quantities.get(name)], 2):
        if _may_overlap(rate, quantities, first_unit, second_unit):
            return UnpricedReason(OVERLAP_UNKNOWN, _common_unit(first_unit, second_unit) or first_unit)
    rest: dict[str, int] = {}
    for name in sorted(units, key=lambda name: -len(UNITS[name].dimensions)):
        inner = [
            rest[second_unit]
            for second_unit in rest
            if UNITS[second_unit].dimensions > UNITS[name].dimensions
        ]
        rest[name] = (quantities.get(name) or 0) - sum(inner)
        if rest[name] < 0:
            return UnpricedReason(CONTRADICTION, name)
    charged: list[PricedQuantity] = []
    for name in UNITS:
        quantity = rest.get(name)
        if not quantity:
            continue
        price = rate.prices.get(name)
        if price is None:
            return UnpricedReason(NO_PRICE, name)
        charged.append(PricedQuantity(name, quantity, quantity * price))
    return charged


def total_amount_text(rate: PartRate, priced_quantities: list[PricedQuantity], *, calls: int = 1) -> str:
    total = sum(leaf.amount for leaf in priced_quantities) + rate.per_request * calls * 10**DECIMALS
    return _decimal_text(total, rate.digits + DECIMALS)


def quantity_amount_text(rate: PartRate, priced_quantity: PricedQuantity) -> str:
    return _decimal_text(priced_quantity.amount, rate.digits + DECIMALS)


def quantity_as_number_or_text(priced_quantity: PricedQuantity) -> int | str:
    return quantity_from_millionths(priced_quantity.quantity)


def text_of_unpriced_reason(problem: UnpricedReason) -> str:
    unit = UNITS[problem.unit].words if problem.unit in UNITS else problem.unit
    reasons = {
        OVERLAP_UNKNOWN: (
            f"the call does not report how many of its tokens are {unit}, and the parts have different prices"
        ),
        PARTS_UNKNOWN: f"its {unit} is not only text, and the call does not report the number of tokens of each kind",
        NO_PRICE: f"the price list has no price for its {unit}",
        COUNT_UNKNOWN: f"the call does not report its {unit}",
        CONTRADICTION: f"the parts of its {unit} add up to more than the whole",
    }
    return f"unknown ({problem.cause}): {reasons[problem.cause]}"


def _missing_count_or_price(
    rate: PartRate, quantities: Quantities, reported_quantities: Quantities
) -> UnpricedReason | None:
    for side in ("input_tokens", "output_tokens"):
        if quantities.get(side) is None and rate.prices.get(side) is not None:
            return UnpricedReason(COUNT_UNKNOWN, side)
    for direction in rate.apart:
        side = f"{direction}_tokens"
        if quantities.get(side) and not _has_reported_parts(direction, reported_quantities):
            return UnpricedReason(PARTS_UNKNOWN, side)
    if rate.charges_writes:
        for name in ("cache_read_tokens", "cache_write_tokens"):
            if quantities.get(name) and rate.prices.get(name) is None:
                return UnpricedReason(NO_PRICE, name)
    has_tokens = bool(quantities.get("input_tokens") or quantities.get("output_tokens"))
    for name, quantity in reported_quantities.items():
        unit = UNITS[name]
        if (
            unit.is_tokens
            or not quantity
            or _has_price_for_unit(rate, name)
            or _is_sum_of_parts(reported_quantities, name, quantity)
        ):
            continue
        if name in FEES or not (has_tokens and rate.is_by_tokens):
            return UnpricedReason(NO_PRICE, name)
    return None


def _is_charged_by_non_token_units(rate: PartRate, reported_quantities: Quantities) -> bool:
    """
    Return whether units other than tokens are charged. Then tokens are free: they measure the same input or
    output again.
    """
    if rate.is_by_tokens:
        return False
    return any(
        reported_quantities.get(name) and not UNITS[name].is_tokens and name not in FEES
        for name, price in rate.prices.items()
        if price is not None
    )


def _has_reported_parts(direction: str, reported_quantities: Quantities) -> bool:
    return any(
        name in METERS and (UNITS[name].direction == direction or METERS[name].unit == "seconds")
        for name in reported_quantities
    )


def _has_price_for_unit(rate: PartRate, name: str) -> bool:
    dimensions = UNITS[name].dimensions
    return any(UNITS[leaf].dimensions <= dimensions for leaf in rate.prices)


def _is_sum_of_parts(reported_quantities: Quantities, name: str, quantity: int) -> bool:
    """
    Return whether the reported parts of a quantity, such as images of one size, add up to it. Then only the
    parts need prices.
    """
    return quantity <= sum(
        reported_quantities[part] or 0
        for part in reported_quantities
        if part in METERS and name in METERS[part].wholes
    )


def _quantities_with_missing_totals(reported_quantities: Quantities) -> Quantities:
    quantities = dict(reported_quantities)
    for name in reported_quantities:
        for whole in METERS[name].wholes if name in METERS else ():
            if (
                whole in METERS
                and not METERS[whole].is_part_of_token_count
                and whole not in reported_quantities
            ):
                quantities[whole] = (quantities.get(whole) or 0) + (reported_quantities[name] or 0)
    return quantities


def _may_overlap(rate: PartRate, quantities: Quantities, first_unit: str, second_unit: str) -> bool:
    first = UNITS[first_unit]
    second = UNITS[second_unit]
    if not (first.is_tokens and second.is_tokens) or first.dimensions <= second.dimensions:
        return False
    if second.dimensions <= first.dimensions:
        return False
    keys = dict(first.dimensions)
    if any(keys.get(key, value) != value for key, value in second.dimensions):
        return False
    joint = _common_unit(first_unit, second_unit)
    if joint is None or quantities.get(joint) is None:
        return True
    return bool(quantities[joint]) and joint not in rate.prices


def _common_unit(first_unit: str, second_unit: str) -> str | None:
    return _BY_DIMENSIONS.get(UNITS[first_unit].dimensions | UNITS[second_unit].dimensions)


def _price_per_unit(amount: Decimal, per: int) -> Decimal:
    if per == 3600:
        return (amount / per).quantize(_SECOND_PRICE_STEP, rounding=ROUND_HALF_EVEN)
    return amount.scaleb(1 - len(str(per)))


def _decimal_places(amount: Decimal) -> int:
    exponent = amount.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _decimal_text(units: int, digits: int) -> str:
    if not units:
        return "0"
    text = str(units)
    if len(text) <= digits:
        return "0." + text.zfill(digits).rstrip("0")
    return f"{text[:-digits]}.{text[-digits:]}".rstrip("0").rstrip(".")
