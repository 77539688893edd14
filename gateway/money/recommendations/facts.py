"""
What types of recommendations read: the priced tokens of a month, and the newest calls, as values of one moment.

Amounts are integers in units of `spool.ledger.money`, so that every sum is exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from spool.ledger.queries import TAG
from spool.ledger.repricing import TokenSum
from spool.ledger.sums import Dimensions
from spool.record import Inference
from spool.registry.recommendations import Processing

DAY_S = 86400
DAYS = 30  # a month, of which savings are told


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one day and one set of dimensions: what they cost, and what the price book says they should."""

    day: int  # epoch seconds
    dimensions: Dimensions
    tokens: TokenSum
    cost: int
    estimate: int | None

    @property
    def work(self) -> Work:
        of = self.dimensions
        return Work(of.source, of.provider or "", of.model or "", of.team or "", service_of(of.tags))


class Work(NamedTuple):
    """What one program does with one model; "" is unknown."""

    source: str
    provider: str
    model: str
    team: str
    service: str

    @property
    def name(self) -> str:
        """Return the name for a title: the service, else the team, else the source."""
        return self.service or self.team or self.source

    @property
    def measured_by(self) -> dict[str, str]:
        """The dimensions that stay when the model changes."""
        return {"source": self.source, "team": self.team, "tag:service": self.service}

    def processing(self, mode: str | None = None) -> Processing:
        return Processing(model=self.model, provider=self.provider, mode=mode)

    @property
    def values(self) -> dict[str, str]:
        """All of it, by dimension."""
        return {**self.measured_by, "provider": self.provider, "model": self.model}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentCall:
    """One of the newest calls. `place` is that of its use in `SavingFacts.uses`."""

    call: Inference
    place: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedSeat:
    """
    A seat of a plan without a call in a billing cycle that is over (epoch seconds), and the fee that
    giving it back saves.
    """

    plan: str
    user: str
    person: str  # the user as records carry it
    team: str
    fee: int
    first_day: int
    last_day: int


@dataclass(frozen=True, kw_only=True)
class SavingFacts:
    """Everything, at one moment. A type takes what it needs."""

    now: float
    uses: Sequence[Use] = ()
    recent: Sequence[RecentCall] = ()  # of a week at most, in order of time
    hours: Mapping[Work, Mapping[int, int]] = field(default_factory=dict)  # calls without a user, by hour
    estimate: Callable[[TokenSum], int | None] = lambda _: None
    estimate_call: Callable[[Inference], int | None] = lambda _: None
    newer: Callable[[str], Sequence[str]] = lambda _: ()  # the models that follow on one, the newest first
    seats: Sequence[UnusedSeat] = ()
    seats_cost: int = 0  # of all seats, in the last calendar month

    def saving(self, use: Use, instead: TokenSum) -> int | None:
        """
        Return how much less a use would have cost with other tokens or prices; negative if more, None if a
        price is unknown.

        A source that reports less than the price book says saves as much less; one that reports more
        saves no more.
        """
        price = self.estimate(instead)
        if price is None or not use.estimate:
            return None
        return share_of(use.estimate - price, use.cost, use.estimate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opportunity:
    """
    What one type found. `subject` identifies it among those of its type; `claims` are the savings by place of
    a use; of a type that is about seats there are `seats` in their place.

    `formula` says how the sum of the claims was reached, with its numbers. `work` is the one that all texts
    and numbers are of, None if they are of others, too.
    """

    subject: Sequence[str]
    claims: Mapping[int, int]
    title: str
    seen: str
    advice: str
    formula: str
    current: Processing
    recommended: Processing
    measured_by: Mapping[str, str]
    work: Work | None = None
    seats: Sequence[UnusedSeat] = ()

    @property
    def fees(self) -> int:
        return sum(seat.fee for seat in self.seats)

    @property
    def gross(self) -> int:
        return sum(self.claims.values()) + self.fees

    @property
    def concerns(self) -> Mapping[str, str]:
        """
        Return the values of dimensions that all of it has of which texts and numbers are, empty if they
        are of others, too. The seats of one opportunity are of one team.
        """
        if self.seats:
            return {"team": self.seats[0].team}
        return self.work.values if self.work else {}


class RecommendationType(Protocol):
    """A module with these names."""

    NAME: str
    TITLE: str
    FORMULA: str
    CONFIDENCE: str
    EFFORT: str

    @property
    def ASSUMPTIONS(self) -> Sequence[str]: ...

    def find(self, facts: SavingFacts) -> Iterable[Opportunity]: ...


def share_of(amount: int, cost: int, estimate: int) -> int:
    """The part of an amount at list prices that was paid: never more than all of it."""
    return amount * min(cost, estimate) // estimate


def recommendation_dimensions(dimensions: Iterable[str]) -> list[str]:
    """The dimensions of the ledger that recommendations have: all that say whose calls of what they are about."""
    return [name for name in dimensions if name not in ("status", "cost_source")]


def service_of(tags: str) -> str:
    """The service that the kept tags name."""
    return _tags(tags).get("service", "")


def value_of(dimensions: Dimensions, name: str) -> str:
    """The value of a dimension as costs name it; "" if it is unknown."""
    if name.startswith(TAG):
        return _tags(dimensions.tags).get(name.removeprefix(TAG), "")
    return str(getattr(dimensions, name) or "")


def seat_value(user: str, team: str, name: str) -> str:
    """A fee is like a call of which the user and the team are known, and nothing else."""
    return {"user": user, "team": team}.get(name, "")


@lru_cache(maxsize=10_000)
def _tags(text: str) -> Mapping[str, str]:
    found: Mapping[str, str] = json.loads(text) if text else {}
    return found
