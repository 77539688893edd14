"""
The cost of workloads on own hardware, divided among the tokens that they served. Pure.

The container cost of a day is divided evenly among its begun hours. Hours without a call or a served token are
unused. The rest is divided by weighted tokens among the teams that reported calls. Tokens that the model server
counted, but nobody reported, have a part of their own. All parts add up to the container cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import NamedTuple

from gateway.bills.billed.spreading import divide_in_sequence
from gateway.bills.contracts.capacity import CalledSum, CapacityUse, PrepaidCapacity, PrepaidCoverage
from gateway.bills.contracts.declared import (
    COMMITMENT,
    UNUSED,
    Contract,
    Workload,
    first_day_and_end,
    price_term,
)
from gateway.bills.reconciliation.counting import TokenPrices
from gateway.bills.reconciliation.sides import CACHE_READ, INPUT, OUTPUT
from spool import providers
from spool.ledger.sums import HOUR_S
from spool.record import NS
from spool.statements import DAY_S

UNREPORTED = "unreported"
UNKNOWN, TOO_MANY = "unknown", "too_many"  # reasons why the tokens of model servers are missing
_MILLION = 1_000_000


class ModelTokens(NamedTuple):
    """Numbers of tokens, or their weights. `input` excludes tokens from a cache."""

    input: int = 0
    cache_read: int = 0
    output: int = 0

    def plus(self, other: ModelTokens) -> ModelTokens:
        return ModelTokens(*map(sum, zip(self, other, strict=True)))

    def weighted_sum(self, weights: ModelTokens) -> int:
        return sum(map(mul, self, weights))


# relative weights of token kinds for models without a list price
DEFAULT_WEIGHTS = ModelTokens(input=10, cache_read=1, output=40)


class ServedTokens(NamedTuple):
    """Tokens that a model server counted in an hour (epoch seconds)."""

    hour: int
    source: str
    model: str
    tokens: ModelTokens


class ServedSpan(NamedTuple):
    """The tokens that model servers counted in a time span, or the reason why they are missing."""

    tokens: Sequence[ServedTokens] = ()
    missing: str = ""


@dataclass(slots=True)
class WorkloadUse:
    """
    The tokens of a workload: those that calls reported, by day and team, and those that servers counted, by
    day. `hours` are the hours with a counted token.
    """

    reported: dict[int, dict[str, ModelTokens]] = field(default_factory=lambda: defaultdict(dict))
    served: dict[int, ModelTokens] = field(default_factory=dict)
    hours: set[int] = field(default_factory=set)
    models: dict[str, ModelTokens] = field(default_factory=dict)

    def add_model_tokens(self, model: str, tokens: ModelTokens) -> None:
        self.models[model] = self.models.get(model, ModelTokens()).plus(tokens)


class WorkloadMonth(NamedTuple):
    """A term about a workload in a month, its covered calls, and its tokens."""

    term: PrepaidCapacity
    calls: CapacityUse
    tokens: WorkloadUse


class WorkloadDay(NamedTuple):
    """
    The cost of a workload on a day, and its parts by charge and team, in money units. `price` is the cost per
    million weighted tokens in the hours with tokens, or None if there are no tokens.
    """

    day: int
    cost: int
    parts: Mapping[tuple[str, str], int]
    price: int | None


def workload_terms(
    contracts: Iterable[Contract], costs: Mapping[tuple[int, Workload], int], days: Sequence[int]
) -> list[PrepaidCapacity]:
    """
    Return the terms about workloads that apply on some of the days, each with its workload's container costs
    by day.
    """
    found = []
    for contract in contracts:
        first, end = first_day_and_end(contract)
        own_days = [day for day in days if first <= day < end]
        for term in contract.terms if own_days else ():
            if term.is_container_workload:
                places = ((day, term.workload_key) for day in own_days)
                by_day = {day: costs[day, place] for day, place in places if (day, place) in costs}
                price = price_term(contract, term)
                found.append(PrepaidCapacity(contract=contract, term=term, price=price, by_day=by_day))
    return found


def add_reported_calls(
    uses: Sequence[WorkloadUse], sums: Iterable[CalledSum], coverage: PrepaidCoverage
) -> None:
    for day, team, called, total in sums:
        index = coverage.covering_term_index(called, day)
        if index is None:
            continue
        read = min(total.cache_read_tokens, total.input_tokens)
        tokens = ModelTokens(total.input_tokens - read, read, total.output_tokens or 0)
        of_day = uses[index].reported[day]
        of_day[team] = of_day.get(team, ModelTokens()).plus(tokens)
        uses[index].add_model_tokens(called.model or called.request_model, tokens)


def add_served_tokens(workloads: Sequence[WorkloadMonth], served: Iterable[ServedTokens]) -> None:
    """
    Add the tokens that model servers counted to the workloads. If the contract terms of several workloads
    name the model, the term of the server's provider gets the tokens. A term that names no models gets only
    tokens of its own provider.
    """
    for counted in served:
        name = providers.canonical_provider_name(counted.source)
        at = counted.hour * NS
        fitting = [
            (term.price.provider != name, place)
            for place, term in enumerate(each.term for each in workloads)
            if term.price.start_ns <= at < term.price.end_ns
            and term.price.is_for_model(counted.model)
            and (term.price.models or term.price.provider == name)
        ]
        if fitting and any(counted.tokens):
            use, day = workloads[min(fitting)[1]].tokens, counted.hour // DAY_S * DAY_S
            use.served[day] = use.served.get(day, ModelTokens()).plus(counted.tokens)
            use.hours.add(counted.hour)
            use.add_model_tokens(counted.model, counted.tokens)


def most_used_model_and_its_price_weights(
    workload_month: WorkloadMonth, prices: TokenPrices, day: int
) -> tuple[str | None, ModelTokens]:
    """
    Return the model with the most tokens of the workload in this month, and its list prices as weights. If
    the prices are unknown, return None and the default weights.
    """
    models = workload_month.tokens.models
    model = min(models, key=lambda name: (-sum(models[name]), name), default=None)
    if model is not None:
        listed = prices.list_prices_on_day(workload_month.term.contract.provider, model, "", day)
        if listed.get(INPUT) and listed.get(OUTPUT):
            return model, ModelTokens(listed[INPUT], listed.get(CACHE_READ, listed[INPUT]), listed[OUTPUT])
    return None, DEFAULT_WEIGHTS


def divide_daily_costs(
    workload_month: WorkloadMonth, weights: ModelTokens, now: float
) -> Iterator[WorkloadDay]:
    """
    Divide the cost of each day among its teams. If the hours with calls are unknown, no hour of a day with
    tokens counts as unused.
    """
    term, (used_hours, use) = workload_month.term, (workload_month.calls.hours, workload_month.tokens)
    for day, cost in term.by_day.items():
        reported = {team: tokens.weighted_sum(weights) for team, tokens in sorted(use.reported[day].items())}
        known = sum(reported.values())
        tokens = max(known, use.served.get(day, ModelTokens()).weighted_sum(weights))
        begun = [hour for hour in range(day, day + DAY_S, HOUR_S) if hour <= now]
        active = 0
        if tokens:
            in_use = begun if used_hours is None else [*filter((used_hours | use.hours).__contains__, begun)]
            active = len(in_use or begun)
        of_tokens, unused = divide_in_sequence(cost, [active, len(begun) - active])
        parts: dict[tuple[str, str], int] = {(UNUSED, ""): unused} if unused else {}
        if tokens:
            places = [*((COMMITMENT, team) for team in reported), (UNREPORTED, "")]
            shares = zip(
                places, divide_in_sequence(of_tokens, [*reported.values(), tokens - known]), strict=True
            )
            parts |= {place: part for place, part in shares if part}
        price = of_tokens * _MILLION * weights.input // tokens if tokens else None
        yield WorkloadDay(day, cost, parts, price)
