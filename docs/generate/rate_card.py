"""
Makes a rate card from the genai-prices data: `python -m docs.generate.rate_card [DIRECTORY]`.

Runs in a separate environment (`make prices`), so that Tollhouse does not need this package or pydantic
at run time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gateway.intake import rate_cards
from gateway.intake.rate_cards.card import (
    FORMAT,
    CardPrices,
    Model,
    ModelNameCondition,
    Price,
    RateCard,
    Seller,
    Tier,
    directions_priced_by_token_kind,
    encode_card,
    is_audio_model,
)
from spool.meters import METERS, MODALITIES
from spool.processing import MODES

_AMOUNTS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_reasoning_mtok": "reasoning",
}
_MEDIA = {
    f"{side}_{kind}_mtok": f"{side}_{kind}_tokens" for side in ("input", "output") for kind in MODALITIES
}
_SOUND_PRICES = ("input_audio_mtok", "output_audio_mtok", "audio_hours", "input_audio_hours")
_NO_SOUND_PRICES: dict[str, Decimal | None] = {"input_audio_tokens": None, "output_audio_tokens": None}
_CLAUSES = {
    "ClauseEquals": "equals",
    "ClauseStartsWith": "starts_with",
    "ClauseEndsWith": "ends_with",
    "ClauseContains": "contains",
    "ClauseRegex": "regex",
}
# Prices have at most nine decimals; further digits are rounding errors of binary floats in the source.
_DECIMALS = Decimal("1e-9")


def card(day: str) -> RateCard:
    """Convert the installed data into a rate card."""
    release = version("genai-prices")
    providers = import_module("genai_prices.data").providers
    return RateCard(
        format=FORMAT,
        version=f"genai-prices-{release}-{day}",
        source={
            "name": "genai-prices",
            "version": release,
            "date": day,
            "url": "https://github.com/pydantic/genai-prices",
            "licence": "MIT, Copyright (c) Pydantic Services Inc.",
        },
        providers={provider.id: _provider(provider) for provider in providers},
    )


def _provider(provider: Any) -> Seller:
    return Seller(
        models=tuple(_model(model) for model in provider.models),
        resells=tuple(provider.fallback_model_providers or ()),
    )


def _model(model: Any) -> Model:
    history = model.prices if isinstance(model.prices, list) else [_Always(model.prices)]
    standard = list(_standard(history))
    priced = {name for row in history for name, value in vars(row.prices).items() if value is not None}
    unknown: dict[str, Decimal | None] = (
        _NO_SOUND_PRICES if is_audio_model(model.id) and priced.isdisjoint(_SOUND_PRICES) else {}
    )
    return Model(
        id=model.id,
        match=_clause(model.match),
        apart=directions_priced_by_token_kind(model.id, {_MEDIA[name] for name in priced if name in _MEDIA}),
        prices=tuple(
            _price(amounts, unknown, since=since, hours=hours, mode=mode)
            for amounts, since, hours, mode in _applied(
                _known([*standard, *sorted(_variants(model, standard), key=_start)])
            )
        ),
    )


class _Always:
    """A price row without a condition, in the same form as the source's conditional rows."""

    constraint = None

    def __init__(self, prices: Any) -> None:
        self.prices = prices


_Row = tuple[dict[str, Any], str, tuple[str, str] | None, str]


def _standard(history: list[Any]) -> Iterator[_Row]:
    """
    Yield price rows in order. A daily window has no date in the source, so it gets the date of the row before it.
    """
    since = ""
    for row in history:
        hours = None
        if hasattr(row.constraint, "start_date"):
            since = row.constraint.start_date.isoformat()
        elif hasattr(row.constraint, "start_time"):
            hours = (_hour(row.constraint.start_time), _hour(row.constraint.end_time))
        yield dict(vars(row.prices)), since, hours, ""


def _variants(model: Any, standard: list[_Row]) -> Iterator[_Row]:
    """
    Combine each variant with every standard row that is in force at the same time.

    The order is reversed, because the first matching variant applies in the source, and the last matching row
    in a rate card.
    """
    for variant in reversed(model.price_variants or ()):
        mode = _mode(variant.when)
        changes = {name: value for name, value in vars(variant.prices).items() if value is not None}
        if not mode or not changes:
            continue
        start = variant.constraint.start_date.isoformat() if variant.constraint else ""
        ends = [later[1] for later in standard[1:]] + [None]
        for (amounts, since, hours, _), end in zip(standard, ends, strict=True):
            if hours is None and (end is None or end > start):
                yield {**amounts, **changes}, max(since, start), None, mode


def _known(rows: list[_Row]) -> Iterator[_Row]:
    """
    Yield the rows. The first row of each mode loses its day, and the days of the other rows are price changes.

    The first day in the source is the day on which the source learned the price. The provider charged it
    before that day.
    """
    modes: set[str] = set()
    for amounts, since, hours, mode in rows:
        yield amounts, since if mode in modes else "", hours, mode
        modes.add(mode)


def _applied(rows: Iterable[_Row]) -> list[_Row]:
    """Leave out rows that never apply, because a later row has the same mode, day and hours."""
    last = {(since, hours, mode): (amounts, since, hours, mode) for amounts, since, hours, mode in rows}
    return list(last.values())


def _start(row: _Row) -> str:
    return row[1]


def _mode(when: dict[str, str]) -> str:
    """
    Return the processing mode of a price, or "" for the standard mode and for modes that records do not state.
    """
    if when == {"processing": "batch"}:
        return "batch"
    if when == {"speed": "fast"}:
        return "fast"
    tier = when.get("service_tier", "") if len(when) == 1 else ""
    return tier if tier in MODES else ""


def _price(
    amounts: dict[str, Any],
    unknown: dict[str, Decimal | None],
    *,
    since: str,
    hours: tuple[str, str] | None,
    mode: str,
) -> Price:
    tiered = [value for value in amounts.values() if hasattr(value, "tiers")]
    starts = sorted({tier.start for value in tiered for tier in value.tiers})
    return Price(
        mode=mode,
        since=since,
        hours=hours,
        tiers=tuple(
            Tier(above=start, meters=_meters(amounts, start) | unknown, **_amounts(amounts, start))
            for start in starts
        ),
        meters=_meters(amounts, 0) | unknown,
        **_amounts(amounts, 0),
    )


def _amounts(amounts: dict[str, Any], above: int) -> dict[str, Decimal]:
    """Return the prices for a request with slightly more than `above` input tokens."""
    known = {
        ours: _plain(_at(value, above))
        for theirs, ours in _AMOUNTS.items()
        if (value := amounts.get(theirs)) is not None
    }
    per_thousand = amounts.get("requests_kcount")
    if per_thousand is not None:
        known["per_request"] = _plain(_at(per_thousand, above) / 1000)
    assert set(known) <= set(CardPrices.__struct_fields__)
    return known


def _meters(amounts: dict[str, Any], above: int) -> dict[str, Decimal | None]:
    """Return the prices of other units. Units that Tollhouse does not meter are left out."""
    known: dict[str, Decimal | None] = {}
    for usage, unit in import_module("genai_prices.data_units").unit_data.items():
        value = amounts.get(unit["price_key"])
        if value is not None and usage in METERS:
            known[usage] = _plain(_at(value, above))
    return known


def _at(value: Any, above: int) -> Decimal:
    if isinstance(value, Decimal):
        return value
    price: Decimal = value.base
    for tier in value.tiers:
        if above >= tier.start:
            price = tier.price
    return price


def _plain(value: Decimal) -> Decimal:
    return Decimal(f"{value.quantize(_DECIMALS).normalize():f}")


def _clause(match: Any) -> ModelNameCondition:
    """
    Convert the source's condition on model names. Its texts become lower case, because names are compared
    in lower case.
    """
    kind = type(match).__name__
    if kind == "ClauseAnd":
        return ModelNameCondition(all=tuple(_clause(part) for part in match.and_))
    if kind == "ClauseOr":
        return _merged([_clause(part) for part in match.or_])
    name = _CLAUSES[kind]
    text = getattr(match, name)
    return ModelNameCondition(**{name: (text if kind == "ClauseRegex" else text.lower(),)})


def _merged(parts: list[ModelNameCondition]) -> ModelNameCondition:
    def together(name: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(item for part in parts for item in getattr(part, name)))

    if sum(bool(part.all) for part in parts) > 1:
        raise ValueError("a clause with two conjunctions needs a form of its own")
    return ModelNameCondition(**{name: together(name) for name in ModelNameCondition.__struct_fields__})


def _hour(time: Any) -> str:
    return f"{time.hour:02d}:{time.minute:02d}"


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(rate_cards.__file__).parent
    day = datetime.now(UTC).date().isoformat()
    path = directory / f"{day}.json"
    path.write_bytes(encode_card(card(day)))
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
