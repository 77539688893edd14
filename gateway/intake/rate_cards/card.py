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
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path

import msgspec

from spool.record import NS

DAY_NS = 86400 * NS
FORMAT = 1


class CardUnreadable(Exception):
    """The file is not a price list that this version can read. The message names the position in the file."""


class Amounts(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """
    Prices by kind of token.

    `reasoning` is set only if it differs from the output price. `cache_write_1h` is set only if it differs
    from the price of other writes.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None
    per_request: Decimal | None = None
    # Prices of other units, by meter. None means that the unit has its own price, but the price is unknown.
    meters: dict[str, Decimal | None] = {}


class Tier(Amounts, kw_only=True, omit_defaults=True, frozen=True):
    """The price of the whole request if its input exceeds `above` tokens."""

    above: int


class Price(Amounts, kw_only=True, omit_defaults=True, frozen=True):
    """
    One row of a model's price history. `hours` is a daily window in UTC, `mode` a service tier such as batch.

    `since` is the day on which the price changed. In the first row of a mode, it is the day on which
    the mode began.
    """

    mode: str = ""
    since: str = ""
    hours: tuple[str, str] | None = None
    tiers: tuple[Tier, ...] = ()

    @property
    def since_ns(self) -> int:
        return day_ns(self.since) if self.since else 0

    def window(self) -> tuple[int, int] | None:
        return (_of_day(self.hours[0]), _of_day(self.hours[1])) if self.hours else None


class Clause(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """
    A rule that matches a name if one of its lists matches. `all` is a list of clauses that must all match.
    """

    equals: tuple[str, ...] = ()
    starts_with: tuple[str, ...] = ()
    ends_with: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    regex: tuple[str, ...] = ()
    all: tuple[Clause, ...] = ()

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
    def patterns(self) -> bool:
        return bool(self.starts_with or self.ends_with or self.contains or self.regex or self.all)


class Model(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """
    A model as one provider sells it. If several rows of its prices apply, the last of them is used.

    `apart` lists directions (`input`, `output`) in which most tokens are not text and have other prices. A
    call of such a model has a price only if it reports its parts.
    """

    id: str
    match: Clause
    prices: tuple[Price, ...]
    apart: tuple[str, ...] = ()


class Seller(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """
    A provider with its models, in search order. `resells` lists providers whose prices also apply to this provider.
    """

    models: tuple[Model, ...]
    resells: tuple[str, ...] = ()


class Card(msgspec.Struct, kw_only=True, frozen=True):
    format: int
    version: str
    source: dict[str, str]
    providers: dict[str, Seller]


class Catalogue:
    """
    An index of a provider's models. Exact names are looked up. Patterns are tried in the order of the list.

    The index is built on first use, because most providers of a list are never needed.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = models

    @cached_property
    def _exact(self) -> Mapping[str, int]:
        index: dict[str, int] = {}
        for position, model in enumerate(self._models):
            for name in model.match.equals:
                index.setdefault(name, position)
        return index

    @cached_property
    def _patterns(self) -> Sequence[int]:
        return [position for position, model in enumerate(self._models) if model.match.patterns]

    def find(self, name: str) -> Model | None:
        exact = self._exact.get(name, len(self._models))
        for position in self._patterns:
            if position >= exact:
                break
            if self._models[position].match.matches(name):
                return self._models[position]
        return self._models[exact] if exact < len(self._models) else None


def read(path: Path) -> Card:
    """Read a price list. Raises CardUnreadable if the file is missing, invalid or of a newer format."""
    try:
        card = msgspec.json.decode(path.read_bytes(), type=Card)
    except OSError as error:
        raise CardUnreadable(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise CardUnreadable(f"{path}: {error}") from error
    if card.format != FORMAT:
        raise CardUnreadable(f"{path}: format {card.format} is not {FORMAT}")
    return card


def write(card: Card) -> bytes:
    """Encode a price list with one model per line and the providers sorted by name."""

    def lines() -> Iterator[str]:
        yield "{"
        for field in ("format", "version", "source"):
            yield f'"{field}": {_json(getattr(card, field))},'
        yield '"providers": {'
        names = sorted(card.providers)
        for name in names:
            provider = card.providers[name]
            resells = f'"resells": {_json(provider.resells)}, ' if provider.resells else ""
            yield f'"{name}": {{{resells}"models": ['
            rows = [_json(model) for model in provider.models]
            yield ",\n".join(rows)
            yield "]}" if name == names[-1] else "]},"
        yield "}}"

    return ("\n".join(lines()) + "\n").encode()


def newest() -> Path:
    """Return the file of the packaged price list."""
    return max(Path(__file__).parent.glob("20*.json"))


@cache
def packaged() -> Card:
    """Return the packaged price list. A process reads the file only once."""
    return read(newest())


def day_ns(day: str) -> int:
    """Return the first nanosecond of a UTC day, written as 2026-11-20."""
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * NS


def _of_day(time: str) -> int:
    hours, minutes = time.split(":")
    return (int(hours) * 60 + int(minutes)) * 60 * NS


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
