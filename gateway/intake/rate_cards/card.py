"""
A rate card: which models a provider sells, under which names, and what they cost from which day on.

The file is JSON with one model a line, so that the difference between two cards reads as a list of price
changes. Amounts are decimal text in dollars per million tokens (`per_request`: dollars per call); an absent
amount is unknown. Prices of other units stand under the names of spool.meters, each for as many as providers
charge at once: a million tokens or characters, a thousand searches or pages, an hour, an image.
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
    """The file is not a rate card that this version can read; the message names the place."""


class Amounts(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """
    What each kind of token costs.

    Reasoning is given only where its price differs from the output's, writes kept for an hour where theirs
    does from that of other writes.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None
    per_request: Decimal | None = None
    # Of other units, by meter. None: it has a price of its own, and that is not known.
    meters: dict[str, Decimal | None] = {}


class Tier(Amounts, kw_only=True, omit_defaults=True, frozen=True):
    """The whole request costs this when its input is over `above` tokens."""

    above: int


class Price(Amounts, kw_only=True, omit_defaults=True, frozen=True):
    """
    One row of a model's price history. `hours` is a daily window in UTC, `mode` a way of processing.

    `since` is the day on which the price changed; that of a mode's first row is the day on which the mode began.
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
    """Matches when any of its lists has a hit; `all` is a list of clauses that must hold together."""

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
    A model as one provider sells it. The last active row of its prices counts.

    `apart`: directions (`input`, `output`) in which most of its tokens are no text and cost otherwise, so
    that a call has a price only if it tells its parts.
    """

    id: str
    match: Clause
    prices: tuple[Price, ...]
    apart: tuple[str, ...] = ()


class Seller(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Models in the order in which they are tried; `resells` names providers whose prices hold here, too."""

    models: tuple[Model, ...]
    resells: tuple[str, ...] = ()


class Card(msgspec.Struct, kw_only=True, frozen=True):
    """The whole file."""

    format: int
    version: str
    source: dict[str, str]
    providers: dict[str, Seller]


class Catalogue:
    """
    Finds the model behind a name: exact names by one look-up, patterns in the card's order. What it looks up is made
    when it is asked first: most sellers of a card are never asked for.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = models

    @cached_property
    def _exact(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for place, model in enumerate(self._models):
            for name in model.match.equals:
                found.setdefault(name, place)
        return found

    @cached_property
    def _patterns(self) -> Sequence[int]:
        return [place for place, model in enumerate(self._models) if model.match.patterns]

    def find(self, name: str) -> Model | None:
        exact = self._exact.get(name, len(self._models))
        for place in self._patterns:
            if place >= exact:
                break
            if self._models[place].match.matches(name):
                return self._models[place]
        return self._models[exact] if exact < len(self._models) else None


def read(path: Path) -> Card:
    """CardUnreadable when the file is missing, is not a card, or a newer one."""
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
    """The file's bytes: one model a line, providers by name."""

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
    """The file of the card that comes with this version."""
    return max(Path(__file__).parent.glob("20*.json"))


@cache
def packaged() -> Card:
    """The card that comes with this version; a process reads it once."""
    return read(newest())


def day_ns(day: str) -> int:
    """The first nanosecond of a day in UTC, written 2026-11-20."""
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * NS


def _of_day(time: str) -> int:
    hours, minutes = time.split(":")
    return (int(hours) * 60 + int(minutes)) * 60 * NS


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
