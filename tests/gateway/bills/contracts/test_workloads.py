"""The container cost of a workload and its parts, compared with arithmetic by hand."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.bills.contracts.capacity import CapacityUse
from gateway.bills.contracts.declared import Contract, ContractTerm
from gateway.bills.contracts.workloads import (
    DEFAULT_WEIGHTS,
    UNREPORTED,
    ModelTokens,
    ServedTokens,
    WorkloadMonth,
    WorkloadUse,
    add_served_tokens,
    divide_daily_costs,
    most_used_model_and_its_price_weights,
    workload_terms,
)
from gateway.bills.reconciliation.counting import TokenPrices
from spool.ledger.sums import HOUR_S
from spool.money import UNIT
from spool.statements import DAY_S, parse_day
from tests.gateway.bills.reconciliation.simulator import AZURE, book

DAY = parse_day("2026-03-10")
LATER = float(DAY + 5 * DAY_S)
PLACE = ("gpu", "ml", "qwen")
QWEN = ContractTerm(kind="capacity", cluster="gpu", namespace="ml", workload="qwen", models=("qwen*",))


def found_for(
    costs: dict[int, int], *, provider: str = "vllm", since: str = "2026-03-10", **fields: Any
) -> WorkloadMonth:
    terms = (replace(QWEN, **fields),)
    contract = Contract(
        id="a", name="A", provider=provider, since=since, terms=terms, created=1.0, last_updated=1.0
    )
    places = {(day, PLACE): cost for day, cost in costs.items()}
    [term] = workload_terms([contract], places, [DAY - DAY_S, DAY, DAY + DAY_S])
    return WorkloadMonth(term, CapacityUse(), WorkloadUse())


@pytest.mark.parametrize("seed", range(60))
def test_parts_add_up_for_any_number_of_teams(seed: int) -> None:
    """Each part is its share of the tokens. Hours without a token are unused, and all parts add up exactly."""
    random = Random(seed)
    cost = random.choice((1, 7, 10**28 + 1)) * random.randint(0, 10**6)
    found = found_for({DAY: cost})
    hours = {DAY + hour * HOUR_S for hour in random.sample(range(24), random.randint(0, 24))}
    found.calls.hours = hours
    teams = (
        {f"team {number}": random.randint(0, 10**9) for number in range(random.randint(0, 30))}
        if hours
        else {}
    )
    found.tokens.reported[DAY] = {team: ModelTokens(output=count) for team, count in teams.items()}
    reported, served = sum(teams.values()), random.choice((0, random.randint(0, 10**11))) if hours else 0
    found.tokens.served[DAY] = ModelTokens(output=served)
    [day] = divide_daily_costs(found, DEFAULT_WEIGHTS, LATER)
    assert cost == day.cost == sum(day.parts.values())
    tokens = max(reported, served)
    used = Fraction(cost * len(hours), 24) if tokens else Fraction(0)
    hand = {("commitment", team): used * count / (tokens or 1) for team, count in teams.items()}
    hand |= {("unused", ""): cost - used, (UNREPORTED, ""): used * (tokens - reported) / (tokens or 1)}
    assert day.parts.keys() <= hand.keys()
    assert all(abs(day.parts.get(place, 0) - part) <= 2 for place, part in hand.items())
    if tokens:
        # an output token weighs as much as four input tokens
        assert day.price is not None and abs(day.price - used * 10**6 / (4 * tokens)) <= 10**6
    else:
        assert day.price is None


def test_a_running_day_has_only_the_hours_that_began() -> None:
    found = found_for({DAY: 12 * UNIT})
    found.calls.hours = {DAY}
    found.tokens.reported[DAY] = {"a": ModelTokens(input=1)}
    for now, unused in ((DAY + 10, 0), (DAY + 5 * HOUR_S + 10, 10)):
        [day] = divide_daily_costs(found, DEFAULT_WEIGHTS, now)
        assert unused * UNIT == day.parts.get(("unused", ""), 0)


def test_without_hours_a_day_with_tokens_has_no_unused_part() -> None:
    found = found_for({DAY: 5, DAY + DAY_S: 7})
    found.tokens.reported[DAY] = {"a": ModelTokens(input=1)}
    days = [*divide_daily_costs(found, DEFAULT_WEIGHTS, LATER)]
    assert [{("commitment", "a"): 5}, {("unused", ""): 7}] == [day.parts for day in days]


def test_only_days_of_the_contract_have_costs() -> None:
    found = found_for({DAY - DAY_S: 3, DAY: 5})
    assert {DAY: 5} == found.term.by_day


@pytest.mark.parametrize(
    ("source", "model", "of_first", "of_second"),
    [
        ("vllm", "Qwen3-32B", 9, 0),
        ("sglang", "qwen3-32b", 0, 9),  # its own provider is first
        ("tgi", "qwen3-32b", 9, 0),  # of no provider, and counts only once
        ("vllm", "llama", 0, 0),
    ],
)
def test_a_counter_counts_for_one_term(source: str, model: str, of_first: int, of_second: int) -> None:
    both = [found_for({DAY: 5}), found_for({DAY: 5}, provider="sglang")]
    add_served_tokens(both, [ServedTokens(DAY + HOUR_S, source, model, ModelTokens(9, 0, 0))])
    # the tokens of an hour before the contracts begin
    add_served_tokens(both, [ServedTokens(DAY - HOUR_S, source, model, ModelTokens(9, 0, 0))])
    assert [of_first, of_second] == [each.tokens.served.get(DAY, ModelTokens()).input for each in both]
    assert of_first == 0 or {DAY + HOUR_S} == both[0].tokens.hours


def test_a_term_without_models_has_only_the_counters_of_its_provider() -> None:
    found = found_for({DAY: 5}, models=())
    counted = [ServedTokens(DAY, source, "qwen", ModelTokens(output=1)) for source in ("vllm", "sglang")]
    add_served_tokens([found], counted)
    assert {DAY: ModelTokens(output=1)} == found.tokens.served


def test_weights_are_list_prices_of_the_largest_model() -> None:
    prices = TokenPrices(book())
    found = found_for({DAY: 5}, provider=AZURE, models=())
    assert (None, DEFAULT_WEIGHTS) == most_used_model_and_its_price_weights(found, prices, DAY)
    found.tokens.add_model_tokens("gpt-4o-2024-11-20", ModelTokens(output=5))
    found.tokens.add_model_tokens("small", ModelTokens(output=4))
    model, weights = most_used_model_and_its_price_weights(found, prices, DAY)
    assert ("gpt-4o-2024-11-20", 4) == (model, weights.output // weights.input)
    found.tokens.add_model_tokens("small", ModelTokens(output=4))
    assert (None, DEFAULT_WEIGHTS) == most_used_model_and_its_price_weights(found, prices, DAY)
