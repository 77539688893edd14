"""
The price list (rate card): the models that a provider sells, their names, and their prices with the day from
which each applies.

The file is JSON with one model per line, so the difference between two files reads as a list of price
changes. Amounts are decimal text in dollars per million tokens (`per_request`: dollars per call). A missing
amount is unknown.

Prices of other units use the names in spool.meters. They apply to the quantity that providers charge: a
million tokens or characters, a thousand searches or pages, an hour, an image.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from spool.errors import Invalid
from spool.meters import MODALITIES
from spool.processing import MODES, STANDARD
from spool.record import NS
from spool.turns.threads import prepare_types_for_msgspec

DAY_NS = 86400 * NS
GLOBAL = "global"  # region name of a call that any region may have served
ANY_REGION = "*"
FORMAT = 1


# Parts of the names of audio models. Most tokens of such a model are audio, and a source may lack their
# price.
_SOUND = ("transcribe", "-audio", "realtime")
_DIGITS, _DECIMALS = 10, 30  # maximum digits of a price before and after the decimal point
_LONGEST_VERSION = 100  # maximum characters of a price list's version, because each record names it
_HOUR = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


class CardUnreadable(Invalid):
    """
    Raised if a file is not a price list that this version can read. The message names the position in the
    file.
    """


class CardPrices(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """
    Prices in dollars per million tokens. `reasoning` and `cache_write_1h` are set only if they differ from
    the prices of output and of other writes.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None
    per_request: Decimal | None = None
    # prices by meter; None means that the meter has a price of its own, which is unknown
    meters: dict[str, Decimal | None] = {}


TOKEN_PRICES = tuple(name for name in CardPrices.__struct_fields__ if name != "meters")


class Tier(CardPrices, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """A price tier by size: these prices apply to a whole request with more than `above` input tokens."""

    above: int


class Price(CardPrices, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """
    A row of a model's prices. `hours` is a daily window in UTC, `mode` a service tier such as batch. A row of
    a mode without prices ends the mode.

    `since` is the day on which the price changed, or on which the mode began.
    """

    mode: str = ""
    since: str = ""
    hours: tuple[str, str] | None = None
    tiers: tuple[Tier, ...] = ()

    @property
    def has_prices(self) -> bool:
        return self.input is not None or self.per_request is not None or bool(self.meters)

    @property
    def since_ns(self) -> int:
        return day_ns(self.since) if self.since else 0

    def daily_window_ns(self) -> tuple[int, int] | None:
        return (_parse_day_ns(self.hours[0]), _parse_day_ns(self.hours[1])) if self.hours else None


class ModelNameCondition(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """
    A condition on model names. A name matches if one of the lists has a matching text, or if all clauses in
    `all` match.
    """

    equals: tuple[str, ...] = ()
    starts_with: tuple[str, ...] = ()
    ends_with: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    regex: tuple[str, ...] = ()
    all: tuple[ModelNameCondition, ...] = ()

    def matches(self, name: str) -> bool:
        return (
            name in self.equals
            or (bool(self.starts_with) and name.startswith(self.starts_with))
            or (bool(self.ends_with) and name.endswith(self.ends_with))
            or any(part in name for part in self.contains)
            or any(re.search(pattern, name) for pattern in self.regex)
            or (bool(self.all) and all(clause.matches(name) for clause in self.all))
        )

    @property
    def has_patterns(self) -> bool:
        return bool(self.starts_with or self.ends_with or self.contains or self.regex or self.all)


def least_common_condition(conditions: Iterable[ModelNameCondition]) -> ModelNameCondition:
    """
    Return one condition without `all` that matches each name that one of the conditions matches. It may match
    other names, because of the clauses in `all` it has the first.
    """

    def alternatives(condition: ModelNameCondition) -> Iterator[ModelNameCondition]:
        yield condition
        if condition.all:
            yield from alternatives(condition.all[0])

    each = [part for condition in conditions for part in alternatives(condition)]
    return ModelNameCondition(
        **{
            field: tuple(text for one in each for text in getattr(one, field))
            for field in ("equals", "starts_with", "ends_with", "contains", "regex")
        }
    )


class Model(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """
    A model with its prices. If several rows of prices apply, the last of them is used.

    `apart` lists the directions (`input`, `output`) in which most tokens are not text and have other prices.
    A call of such a model has a price only if it reports its tokens by kind. `regional` has the factors of
    regions in which the seller charges more; ANY_REGION stands for each region. Estimates have the price
    without a region, and say so.
    """

    id: str
    match: ModelNameCondition
    prices: tuple[Price, ...]
    apart: tuple[str, ...] = ()
    regional: dict[str, Decimal] = {}

    def has_regional_factor(self, region: str) -> bool:
        return region in self.regional or (region != GLOBAL and ANY_REGION in self.regional)


class Seller(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """
    A provider that sells models, in the order in which model names are matched. `resells` lists providers
    whose prices also apply to this provider.
    """

    models: tuple[Model, ...]
    resells: tuple[str, ...] = ()


class RateCard(msgspec.Struct, kw_only=True, frozen=True):
    format: int
    version: str
    source: dict[str, str]
    providers: dict[str, Seller]


prepare_types_for_msgspec(RateCard)


class ModelCatalogue:
    """
    An index of a provider's models. Exact names are looked up, and patterns are tried in the order of the
    list.

    The index is built on first use, because most providers of a list are never needed.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = models

    @cached_property
    def _model_positions_by_name(self) -> Mapping[str, int]:
        index: dict[str, int] = {}
        for position, model in enumerate(self._models):
            for name in model.match.equals:
                index.setdefault(name, position)
        return index

    @cached_property
    def _pattern_positions(self) -> Sequence[int]:
        return [position for position, model in enumerate(self._models) if model.match.has_patterns]

    @cached_property
    def _all_patterns(self) -> ModelNameCondition:
        return least_common_condition(self._models[position].match for position in self._pattern_positions)

    def find_model(self, name: str) -> Model | None:
        exact = self._model_positions_by_name.get(name, len(self._models))
        # one condition is asked faster than a hundred, and most names of senders are of no model in the list
        for position in self._pattern_positions if self._all_patterns.matches(name) else ():
            if position >= exact:
                break
            if self._models[position].match.matches(name):
                return self._models[position]
        return self._models[exact] if exact < len(self._models) else None


def read_card(path: Path) -> RateCard:
    """Read a list. Raises CardUnreadable if the file is missing, invalid or of a newer format."""
    try:
        return decode_card(path.read_bytes())
    except OSError as error:
        raise CardUnreadable(f"{path}: {error.strerror}") from error
    except CardUnreadable as error:
        raise CardUnreadable(f"{path}: {error}") from error


class _EncodedCard(msgspec.Struct):
    """A list whose providers are still encoded."""

    format: int
    version: str
    source: dict[str, str]
    providers: dict[str, msgspec.Raw]


def decode_card(content: bytes) -> RateCard:
    """Decode a list. Raises CardUnreadable if it is invalid or of a newer format."""
    try:
        card = msgspec.json.decode(content, type=RateCard)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CardUnreadable(str(error)) from error
    if card.format != FORMAT:
        raise CardUnreadable(f"format {card.format} is not {FORMAT}")
    if (problem := next(_card_problems(card), None)) is not None:
        raise CardUnreadable(problem)
    known = dict[bytes, Any]()
    for seller in card.providers.values():
        _share_equal_parts(seller, known)
    return card


def _share_equal_parts(seller: Seller, known: dict[bytes, Any]) -> Seller:
    """
    Replace each part of a provider that is equal to one of `known`. Of the 13,000 prices of a list, 700 differ.
    """

    def share_fields(of: msgspec.Struct, names: Collection[str]) -> None:
        for name in names:
            if (part := getattr(of, name)) is not None:
                force_setattr(of, name, known.setdefault(msgspec.json.encode(part), part))

    for model in seller.models:
        for row in model.prices:
            for amounts in (row, *row.tiers):
                share_fields(amounts, CardPrices.__struct_fields__)
        share_fields(model, ("prices", "regional"))
    return seller


def _card_problems(card: RateCard) -> Iterator[str]:
    if not (card.version.isprintable() and 0 < len(card.version) <= _LONGEST_VERSION):
        yield f"version must be a text of at most {_LONGEST_VERSION} printable characters"
    if not _is_day(card.source.get("date", "")):
        yield "source.date must be the day of the list, such as 2026-11-20"
    if card.source.get("currency", "USD") != "USD":
        yield f"source.currency is {card.source['currency']}, but prices must be in USD"
    for seller, of_seller in card.providers.items():
        for model in of_seller.models:
            for problem in (*_clause_problems(model.match), *_price_problems(model.prices)):
                yield f"{seller}, {model.id}: {problem}"
            if not all(factor > 0 and _is_usable_price(factor) for factor in model.regional.values()):
                yield f"{seller}, {model.id}: the factors of regional must be above 0"


def _clause_problems(condition: ModelNameCondition) -> Iterator[str]:
    for pattern in condition.regex:
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"match.regex {pattern!r} is not valid: {error}"
    for part in condition.all:
        yield from _clause_problems(part)


def _price_problems(prices: Sequence[Price]) -> Iterator[str]:
    for row in prices:
        if row.mode not in (STANDARD, *MODES):
            yield f"mode {row.mode!r} is unknown; known are {', '.join(sorted(MODES))}"
        if row.since and not _is_day(row.since):
            yield f"since {row.since!r} must be a day such as 2026-11-20"
        if row.hours is not None and not all(_HOUR.fullmatch(hour) for hour in row.hours):
            yield f"hours {list(row.hours)!r} must be two times of day such as 00:30"
        sizes = [tier.above for tier in row.tiers]
        if sizes != sorted(set(sizes)) or any(size <= 0 for size in sizes):
            yield "the sizes of tiers must increase"
        for amounts in (row, *row.tiers):
            for unit, price in stated_prices(amounts):
                if not _is_usable_price(price):
                    yield f"{unit} is {price}, which is not a price"


def _is_usable_price(price: Decimal) -> bool:
    """
    Return whether a price can be used. An amount such as 1E+999999999 is short, but too long to compute.
    """
    is_amount = price.is_finite() and not price.is_signed()
    return is_amount and price.adjusted() < _DIGITS and int(price.as_tuple().exponent) >= -_DECIMALS


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def stated_prices(card_prices: CardPrices) -> Iterator[tuple[str, Decimal]]:
    for name in TOKEN_PRICES:
        price = getattr(card_prices, name)
        if price is not None:
            yield name, price
    yield from ((name, price) for name, price in card_prices.meters.items() if price is not None)


def encode_card(card: RateCard) -> bytes:
    """Encode a list, with one model per line and the providers sorted by name."""

    def card_lines() -> Iterator[str]:
        yield "{"
        for field in ("format", "version", "source"):
            yield f'"{field}": {_encode_json(getattr(card, field))},'
        yield '"providers": {'
        names = sorted(card.providers)
        for name in names:
            provider = card.providers[name]
            resells = f'"resells": {_encode_json(provider.resells)}, ' if provider.resells else ""
            yield f'"{name}": {{{resells}"models": ['
            rows = [_encode_json(model) for model in provider.models]
            yield ",\n".join(rows)
            yield "]}" if name == names[-1] else "]},"
        yield "}}"

    return ("\n".join(card_lines()) + "\n").encode()


def is_audio_model(model: str) -> bool:
    return any(word in model for word in _SOUND)


def directions_priced_by_token_kind(model: str, meters: Collection[str]) -> tuple[str, ...]:
    """
    Return the directions (input, output) in which a model's prices depend on the kind of token, such as
    audio. `meters` are those that have a price.
    """
    puts_out = any(f"output_{kind}_tokens" in meters for kind in MODALITIES)
    takes_in = any(f"input_{kind}_tokens" in meters for kind in MODALITIES)
    # True if an audio model's price source does not state which tokens are audio
    is_dark = is_audio_model(model) and not (puts_out or takes_in)
    directions = {
        "input": is_dark or (takes_in and (puts_out or is_audio_model(model))),
        "output": is_dark or puts_out,
    }
    return tuple(name for name, holds in directions.items() if holds)


def newest_packaged_file() -> Path:
    return max(Path(__file__).parent.glob("20*.json"))


@cache
def packaged_card() -> RateCard:
    """
    Return the packaged price list. It is read once, and not checked, because checks take longer than reading. Each
    provider is decoded alone, so that the next one takes the memory of the prices that are not kept.
    """
    card = msgspec.json.decode(newest_packaged_file().read_bytes(), type=_EncodedCard)
    decode, known = msgspec.json.Decoder(Seller).decode, dict[bytes, Any]()
    providers = {name: _share_equal_parts(decode(seller), known) for name, seller in card.providers.items()}
    return RateCard(format=card.format, version=card.version, source=card.source, providers=providers)


def day_ns(day: str) -> int:
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * NS


def _parse_day_ns(time: str) -> int:
    hours, minutes = time.split(":")
    return (int(hours) * 60 + int(minutes)) * 60 * NS


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
