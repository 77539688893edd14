"""
The facts that types of recommendations read, as of one moment: the priced tokens of a month and the newest calls.

Amounts are integers in units of `spool.money`, so every sum is exact.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import msgspec

from spool.ledger.dimensions import TAG
from spool.ledger.sums import Dimensions
from spool.ledger.token_sums import TokenSum
from spool.record import Inference
from spool.registry.recommendations import Processing

DAY_S = 86400
DAYS = 30  # days of the month to which savings are converted


class DailyUse(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one day and one set of dimensions, with their real cost and their cost at list prices."""

    day: int  # start of the day (UTC) in epoch seconds
    dimensions: Dimensions
    tokens: TokenSum
    cost: int
    estimate: int | None

    @property
    def program_and_model(self) -> ProgramAndModel:
        dimensions = self.dimensions
        return ProgramAndModel(
            dimensions.source,
            dimensions.provider or "",
            dimensions.model or "",
            dimensions.team or "",
            service_tag(dimensions.tags),
        )


class ProgramAndModel(NamedTuple):
    """
    The identity of a piece of work: calls of one program (source, team and service) with one model. "" is
    unknown.
    """

    source: str
    provider: str
    model: str
    team: str
    service: str

    @property
    def name(self) -> str:
        return self.service or self.team or self.source

    @property
    def measured_by(self) -> dict[str, str]:
        """Return the dimensions by which the program's calls are recognized after its model changes."""
        return {"source": self.source, "team": self.team, "tag:service": self.service}

    def processing_with_mode(self, mode: str | None = None) -> Processing:
        return Processing(model=self.model, provider=self.provider, mode=mode)

    @property
    def dimension_values(self) -> dict[str, str]:
        return {**self.measured_by, "provider": self.provider, "model": self.model}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentCall:
    """One of the newest calls. `use_index` is the index of its use in `SavingFacts.uses`."""

    call: Inference
    use_index: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedSeat:
    """A seat without a call in a finished billing cycle, and its fee. Days are epoch seconds."""

    plan: str
    user: str
    person: str  # user name as in the records
    team: str
    fee: int
    first_day: int
    last_day: int


@dataclass(frozen=True, kw_only=True)
class SavingFacts:
    """
    The facts about calls and seats of the last thirty days, as of `now`. `estimate` and `estimate_call`
    return costs at list prices, or None.
    """

    now: float
    uses: Sequence[DailyUse] = ()
    recent: Sequence[RecentCall] = ()  # newest calls of at most a week, in chronological order
    # kind of work and hour -> number of calls without a user
    hours: Mapping[ProgramAndModel, Mapping[int, int]] = field(default_factory=dict)
    estimate: Callable[[TokenSum], int | None] = lambda _: None
    estimate_call: Callable[[Inference], int | None] = lambda _: None
    # function that returns the newer versions of a model, the newest first
    newer: Callable[[str], Sequence[str]] = lambda _: ()
    seats: Sequence[UnusedSeat] = ()
    seats_cost: int = 0  # cost of all seats in the last calendar month, in units of money

    @cached_property
    def use_indexes_by_work(self) -> Mapping[ProgramAndModel, Sequence[int]]:
        found: dict[ProgramAndModel, list[int]] = defaultdict(list)
        for index, use in enumerate(self.uses):
            found[use.program_and_model].append(index)
        return found

    def saving_if_priced_as(self, use: DailyUse, replacement_tokens: TokenSum) -> int | None:
        """
        Return the saving that results if these tokens are priced as `replacement_tokens`. It is negative if they would
        cost more, and None if a price is unknown.

        If the source reports less than list prices, the saving is reduced in proportion. If it reports more,
        the saving is not increased.
        """
        price = self.estimate(replacement_tokens)
        if price is None or not use.estimate:
            return None
        return scale_by_paid_share(use.estimate - price, use.cost, use.estimate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opportunity:
    """
    One opportunity to save, found by a type.

    `subject` identifies the opportunity within its type. `claims` maps the index of a use to its saving.
    Opportunities about seats have `seats` instead of claims. `formula` shows how the sum of the claims was
    calculated. `work` is the work that the texts and numbers describe, or None if they describe several works.
    If only recent calls were compared, `compared` maps the index of a use to the cost of its calls among them.
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
    work: ProgramAndModel | None = None
    seats: Sequence[UnusedSeat] = ()
    compared: Mapping[int, int] = field(default_factory=dict)

    @property
    def seat_fees(self) -> int:
        return sum(seat.fee for seat in self.seats)

    @property
    def gross_saving(self) -> int:
        return sum(self.claims.values()) + self.seat_fees

    @property
    def shared_dimension_values(self) -> Mapping[str, str]:
        """
        Return the dimension values that all uses or seats of this opportunity share. They are empty if it is
        about several sets of dimension values.

        The seats of one opportunity belong to one team.
        """
        if self.seats:
            return {"team": self.seats[0].team}
        return self.work.dimension_values if self.work else {}


class RecommendationType(Protocol):
    NAME: str
    TITLE: str
    FORMULA: str
    CONFIDENCE: str
    EFFORT: str

    @property
    def ASSUMPTIONS(self) -> Sequence[str]: ...

    def find_opportunities(self, saving_facts: SavingFacts) -> Iterable[Opportunity]: ...


def cost_by_daily_use_index(calls: Iterable[RecentCall]) -> Mapping[int, int]:
    costs: dict[int, int] = defaultdict(int)
    for recent_call in calls:
        costs[recent_call.use_index] += recent_call.cost
    return costs


def scale_by_paid_share(amount: int, cost: int, estimate: int) -> int:
    """Scale an amount at list prices by the share of list prices that was paid. The share is at most 1."""
    return amount * min(cost, estimate) // estimate


def recommendation_dimensions(dimensions: Iterable[str]) -> list[str]:
    """Return the dimensions that recommendations have: all except the status and the cost source."""
    return [name for name in dimensions if name not in ("status", "cost_source")]


def service_tag(tags: str) -> str:
    return _parse_tags(tags).get("service", "")


def dimension_value(dimensions: Dimensions, name: str) -> str:
    if name.startswith(TAG):
        return _parse_tags(dimensions.tags).get(name.removeprefix(TAG), "")
    return str(getattr(dimensions, name) or "")


def seat_dimension_value(user: str, team: str, name: str) -> str:
    """Return the value of a dimension for a seat fee, for which only the user and the team are known."""
    return {"user": user, "team": team}.get(name, "")


@lru_cache(maxsize=10_000)
def _parse_tags(text: str) -> Mapping[str, str]:
    tags: Mapping[str, str] = json.loads(text) if text else {}
    return tags
