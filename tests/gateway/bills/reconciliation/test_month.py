"""A month of three providers: complete reports reconcile exactly, and a planted defect is the first claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import product

import msgspec
import pytest

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.lines import AGREES, OPEN, DayTolerance
from gateway.bills.reconciliation.matching import Owner
from gateway.bills.reconciliation.sides import PARTS
from spool import money
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.simulator import (
    ANTHROPIC,
    BEDROCK,
    DAY_S,
    DAYS,
    KEYS,
    MODELS,
    OPENAI,
    PROVIDERS,
    Call,
    Counts,
    book,
    count,
    month,
    reconcile,
    record,
    statements,
)
from tests.rounds import part, some

CALLS = month()
ROWS = statements(CALLS)
COUNTED: list[Counts] = []


def dollars(units: int) -> Decimal:
    return Decimal(money.units_to_text(units))


async def all_counted() -> Counts:
    """Count the calls as all tests here report them, once for the module."""
    if not COUNTED:
        COUNTED.append(await count([record(call) for call in CALLS], book()))
    return COUNTED[0]


def cost(calls: list[Call]) -> Decimal:
    return sum((call.cost() for call in calls), Decimal(0))


def of(provider: str) -> list[Call]:
    return [call for call in CALLS if call.provider == provider]


def holds(found: Reconciliation) -> None:
    """
    Check the identities in total and for each line of each level. Also check that the lines add up to the total.
    """
    for line in (found.total, *found.days, *found.models, *found.keys):
        assert line.billed == line.counted + sum(line.parts[name] for name in PARTS)
    for lines in filter(None, (found.days, found.models, found.keys)):
        assert found.total.billed == sum(line.billed for line in lines)
        assert found.total.counted == sum(line.counted for line in lines)
    assert found.total.difference == sum(claim.amount for claim in found.claims) + found.total.unexplained


@pytest.mark.parametrize("provider", part(PROVIDERS, every=2))
async def test_all_was_reported(provider: str) -> None:
    """Every token agrees by day, model and tier. Costs agree except for the provider's rounding."""
    counts = await all_counted()
    result = reconcile(provider, ROWS, counts)
    holds(result)
    total = result.total
    tokens = sum(sum(call.tokens.values()) for call in of(provider))
    assert tokens == total.billed_tokens == total.counted_tokens == total.captured_tokens
    assert cost(of(provider)) == dollars(total.counted)
    assert 0 == total.unexplained == total.parts["volume"] == total.parts["own"] == total.parts["other"]
    assert abs(dollars(total.difference)) < Decimal("0.0001")
    assert (provider == OPENAI) == (total.difference == 0)
    assert {AGREES} == {line.state for line in result.days}
    assert {"rounding"} >= {claim.cause for claim in result.claims}


@pytest.mark.parametrize("provider", part([OPENAI, ANTHROPIC], every=2))
@pytest.mark.parametrize("named_alike", [True, False])
async def test_a_key_that_does_not_report(provider: str, named_alike: bool) -> None:
    """The claim names the provider's key and its cost, whether or not our keys have the same names."""
    silent = KEYS[1]
    reported = [
        record(call, key=None if named_alike else f"team {call.key}")
        for call in of(provider)
        if call.key != silent
    ]
    result = reconcile(provider, ROWS, await count(reported, book()))
    holds(result)
    first, expected = result.claims[0], cost([call for call in of(provider) if call.key == silent])
    assert "unreported_traffic" == first.cause
    assert silent in first.evidence
    assert abs(dollars(first.amount) - expected) <= expected / 50
    assert abs(dollars(result.total.unexplained)) <= expected / 50
    tokens = sum(sum(call.tokens.values()) for call in of(provider) if call.key == silent)
    assert tokens == sum(claim.tokens for claim in result.claims)
    if not named_alike:
        pairs = {pair.billed: pair.api_key for pair in result.owners}
        assert {key: f"team {key}" for key in KEYS if key != silent} == pairs


@pytest.mark.parametrize("provider", part([*PROVIDERS], every=3))
async def test_a_source_twice(provider: str) -> None:
    """An SDK reports every call of one key again under other ids, in addition to the gateway."""
    calls = of(provider)
    again = [record(call, source="otel") for call in calls if call.key == KEYS[0]]
    result = reconcile(provider, ROWS, await count([*map(record, calls), *again], book()))
    holds(result)
    first, expected = result.claims[0], cost([call for call in of(provider) if call.key == KEYS[0]])
    assert "double_report" == first.cause
    assert "otel" in first.evidence
    assert "[sources.otel]" in first.advice
    assert abs(dollars(first.amount) + expected) <= expected / 50


@pytest.mark.parametrize("since", [0, 14])
@pytest.mark.parametrize("provider", part([OPENAI, ANTHROPIC], every=2))
async def test_a_stale_price(provider: str, since: int) -> None:
    """A model's price changed before or during the month, but not in the price book."""
    model = min(MODELS[provider])
    changed = {**MODELS[provider], model: replace(MODELS[provider][model], input="3.25", output="11.25")}
    new = {**MODELS, provider: changed}
    rows = statements(of(provider), rates=lambda call: new if call.day >= DAYS[since] else MODELS)
    result = reconcile(provider, rows, await all_counted())
    holds(result)
    first = result.claims[0]
    expected = sum(
        (call.cost(new) - call.cost() for call in of(provider) if call.day >= DAYS[since]), Decimal(0)
    )
    assert "price_change" == first.cause
    assert (model.rpartition("-20")[0],) == first.models
    assert abs(dollars(first.amount) - expected) <= abs(expected) / 50
    by_tier = {override.tier: override for override in result.overrides}
    assert {"", "batch"} == by_tier.keys()
    for tier, share in (("", 1), ("batch", 2)):
        override = by_tier[tier]
        assert model == override.model
        assert ("2026-03-15" if since else "") == override.since
        prices = {name: Decimal(override.prices[name]) * share for name in ("input", "output")}
        assert abs(prices["input"] - Decimal("3.25")) < Decimal("0.002")
        assert abs(prices["output"] - Decimal("11.25")) < Decimal("0.01")


async def test_a_wrong_zone() -> None:
    """
    A source writes its local time, eight hours ahead, as UTC. The claim states the moved amount and the hours.
    """
    records = [record(replace(call, time=call.time + 8 * 3600)) for call in CALLS]
    for provider in some([*PROVIDERS], every=2):
        result = reconcile(provider, ROWS, await count(records, book()))
        holds(result)
        moved_cost: dict[int, Decimal] = defaultdict(Decimal)
        for call in of(provider):
            moved_cost[call.day] += call.cost()
            later = (call.time + 8 * 3600) // DAY_S * DAY_S
            if later <= DAYS[-1]:
                moved_cost[later] -= call.cost()
        expected = sum(map(abs, moved_cost.values()), Decimal(0)) / 2
        first = result.claims[0]
        assert "time_edge" == first.cause
        assert "8 h earlier" in first.evidence
        assert abs(dollars(first.moved) - expected) <= expected / 50


async def test_late_rows_and_a_restatement() -> None:
    """A day that may be restated is open and in no sum. A restatement replaces the earlier rows."""
    counts = await all_counted()
    late = {call.time for call in CALLS[::17]}
    horizon = DAYS[-2]
    seen = [call for call in CALLS if call.day < horizon or call.time not in late]
    first = statements(seen, settled=lambda day: day < horizon)
    result = reconcile(OPENAI, first, counts)
    assert [OPEN, OPEN] == [line.state for line in result.days[-2:]]
    assert {AGREES} == {line.state for line in result.days[:-2]}
    assert cost([call for call in of(OPENAI) if call.day < horizon]) == dollars(result.total.billed)
    restated = reconcile(OPENAI, ROWS, counts)
    assert {AGREES} == {line.state for line in restated.days}
    assert cost(of(OPENAI)) == dollars(restated.total.billed)


async def test_a_day_without_a_statement() -> None:
    """A day without a bill is unknown, unless a bill covers that day."""
    counts = await all_counted()
    rows = [row for row in ROWS if row.start != DAYS[3]]
    result = reconcile(BEDROCK, rows, counts)
    assert {DAYS[3]: "no statement"} == {
        int(line.name): line.state for line in result.days if line.state != AGREES
    }
    covered_result = reconcile(BEDROCK, rows, counts, covered={"aws_cur": frozenset(DAYS)})
    assert {DAYS[3]: "explained"} == {
        int(line.name): line.state for line in covered_result.days if line.state != AGREES
    }
    assert (
        covered_result.days[3].parts["volume"]
        == -covered_result.days[3].counted
        < 0
        == covered_result.days[3].billed_tokens
    )
    nothing = reconcile(BEDROCK, [], counts, covered={"aws_cur": frozenset(DAYS)})
    assert {"differs"} == {line.state for line in nothing.days}
    assert nothing.total.billed == 0
    assert nothing.total.billed_tokens == 0
    assert nothing.total.counted == -nothing.total.parts["volume"] > 0


@pytest.mark.parametrize("by", ["api_key", "team"])
async def test_owners(by: str) -> None:
    """Keys with other names are compared if the operator maps them to their owners."""
    names = {key: f"{by} {key}" for key in KEYS}
    calls = of(ANTHROPIC)
    records = [record(call, key=names[call.key] if by == "api_key" else "shared") for call in calls]
    for report, call in zip(records, calls, strict=True):
        report.team = names[call.key] if by == "team" else None
    owners = [Owner(provider=ANTHROPIC, billed=key, **{by: name}) for key, name in names.items()]
    counts = await count(records, book())
    result = reconcile(ANTHROPIC, ROWS, counts, owners=owners)
    holds(result)
    assert set(KEYS) == {line.name for line in result.keys} - {""}
    for line in result.keys:
        tokens = sum(sum(call.tokens.values()) for call in calls if call.key == line.name)
        assert tokens == line.billed_tokens == line.counted_tokens
    assert {key: {by: [name]} for key, name in names.items()} == {
        line.name: line.where for line in result.keys if line.name
    }
    assert {name for line in result.models for name in line.where["model"]} == set(MODELS[ANTHROPIC])
    without = reconcile(ANTHROPIC, ROWS, counts)
    assert () == without.keys
    assert (len(KEYS) if by == "api_key" else 0) == len(without.owners)


async def test_a_line_without_own_calls_has_no_filter() -> None:
    """A model that only the bill has gets no filter, because no call has its name."""
    result = reconcile(ANTHROPIC, ROWS, await count([], book()))
    assert [{}] * len(MODELS[ANTHROPIC]) == [line.where for line in result.models]


async def test_tolerance() -> None:
    """A day at the tolerance agrees, and a day beyond it differs."""
    counts = await all_counted()
    [day] = [line for line in reconcile(BEDROCK, ROWS, counts).days if line.name == str(DAYS[5])]
    row = next(row for row in ROWS if (row.provider, row.start, row.unit) == (BEDROCK, DAYS[5], "tokens"))
    # with these extra tokens, one hundredth of the billed tokens is extra
    extra_tokens = day.counted_tokens // 99
    for extra, state in ((extra_tokens, AGREES), (extra_tokens + day.counted_tokens // 1000, "differs")):
        rows = [replace_amount(other_row, extra) if other_row is row else other_row for other_row in ROWS]
        result = reconcile(BEDROCK, rows, counts, tolerance=DayTolerance(money=Decimal(100)))
        assert [state] == [line.state for line in result.days if line.name == str(DAYS[5])]


def replace_amount(row: StatementRow, extra: int) -> StatementRow:
    return msgspec.structs.replace(row, amount=row.amount + extra)


SILENT: Mapping[str, Callable[[Call], bool]] = {
    "a day": lambda call: call.day == DAYS[9],
    "three days": lambda call: call.day in (DAYS[3], DAYS[11], DAYS[12]),
    "the last four days": lambda call: call.day >= DAYS[-4],
    "half a day": lambda call: DAYS[9] + 10 * 3600 <= call.time < DAYS[9] + 22 * 3600,
}


@pytest.mark.proves("time without telemetry")
@pytest.mark.parametrize(("provider", "silent"), part([*product(PROVIDERS, SILENT)], every=3))
async def test_time_without_telemetry(provider: str, silent: str) -> None:
    """
    For some time no source reported calls. The billed cost of that time is one claim that names its days.
    This holds whether or not the bill states the number of calls.
    """
    lost = [call for call in of(provider) if SILENT[silent](call)]
    reported = [record(call) for call in of(provider) if not SILENT[silent](call)]
    result = reconcile(provider, ROWS, await count(reported, book()))
    holds(result)
    claims = [claim for claim in result.claims if claim.cause != "rounding"]
    assert ["no_telemetry"] == [claim.cause for claim in claims]
    assert set(claims[0].days) == {call.day for call in lost}
    assert claims[0].sure == ("strong" if silent == "half a day" else "exact")
    assert abs(dollars(claims[0].amount) - cost(lost)) <= cost(lost) / 50
    assert sum(sum(call.tokens.values()) for call in lost) == claims[0].tokens


@pytest.mark.proves("time without telemetry")
@pytest.mark.parametrize("provider", part(PROVIDERS, every=2))
async def test_a_share_of_the_calls_is_missing(provider: str) -> None:
    """
    A share of the calls is missing for all keys and days. It is claimed whether or not the bill states the
    number of calls.
    """
    every = month(seed=11, a_day=40)
    lost = {id(call) for number, call in enumerate(every) if number % 12 == 5}
    calls = [call for call in every if call.provider == provider]
    result = reconcile(
        provider,
        statements(calls),
        await count([record(call) for call in calls if id(call) not in lost], book()),
    )
    holds(result)
    claims = [claim for claim in result.claims if claim.cause != "rounding"]
    expected = cost([call for call in calls if id(call) in lost])
    assert {("unreported_calls", "exact")} == {(c.cause, c.sure) for c in claims}
    assert abs(dollars(sum(claim.amount for claim in claims)) - expected) <= expected / 50


async def test_days_that_were_not_billed() -> None:
    """The bill covers some days but has no rows for them."""
    free = {DAYS[4], DAYS[5]}
    rows = [row for row in ROWS if row.start not in free]
    counts = await all_counted()
    result = reconcile(BEDROCK, rows, counts, covered={"aws_cur": frozenset(DAYS)})
    holds(result)
    [claim] = [claim for claim in result.claims if claim.cause != "rounding"]
    assert claim.cause == "no_bill"
    assert claim.sure == "exact"
    assert set(claim.days) == free
    assert -cost([call for call in of(BEDROCK) if call.day in free]) == dollars(claim.amount)


@pytest.mark.proves("a grant is a credit")
@pytest.mark.parametrize(
    ("kind", "amount", "cause"),
    [
        ("credit_grant", -7, "credit"),
        ("promotion", -7, "credit"),
        ("refund_of_web_searches", -7, "credit"),
        ("throughput", -7, "credit"),
        ("discount", -7, "discount"),
        ("tax", -7, "tax"),
        ("rounding", -7, "rounding"),
        ("web_search", 7, "not_tokens"),
    ],
)
async def test_what_is_given_back_is_a_credit(kind: str, amount: int, cause: str) -> None:
    """A negative line other than tokens is a credit, unless the bill names its kind."""
    first = next(row for row in ROWS if (row.provider, row.unit) == (OPENAI, "usd"))
    line = msgspec.structs.replace(first, model=None, kind=kind, amount=Decimal(amount))
    result = reconcile(OPENAI, [*ROWS, line], await all_counted())
    holds(result)
    assert [(cause, Decimal(amount))] == [(claim.cause, dollars(claim.amount)) for claim in result.claims]


DEAR_DAYS = {
    "six at twice": dict.fromkeys((DAYS[3], DAYS[4], DAYS[9], DAYS[10], DAYS[11], DAYS[20]), "2"),
    "three at half": dict.fromkeys(DAYS[12:15], "0.5"),
    "two sets": {**dict.fromkeys(DAYS[5:8], "2"), **dict.fromkeys(DAYS[21:25], "0.7")},
    "one day": {DAYS[17]: "2"},
}


@pytest.mark.proves("days at another price")
@pytest.mark.parametrize(("provider", "days"), part([*product(PROVIDERS, DEAR_DAYS)], every=3))
async def test_days_at_another_price(provider: str, days: str) -> None:
    """
    The tokens are equal, but on some days a price factor applies. Each such set of days is named with its amount.
    """
    factors = {day: Decimal(factor) for day, factor in DEAR_DAYS[days].items()}
    rows = [
        msgspec.structs.replace(row, amount=row.amount * factors.get(row.start, Decimal(1)))
        if row.unit == "usd"
        else row
        for row in ROWS
    ]
    result = reconcile(provider, rows, await all_counted())
    holds(result)
    claims = [claim for claim in result.claims if claim.cause != "rounding"]
    assert {"price_on_days"} == {claim.cause for claim in claims}
    assert set(factors) == {day for claim in claims for day in claim.days}
    for factor in set(factors.values()):
        own = {day for day, day_factor in factors.items() if day_factor == factor}
        planted = (factor - 1) * cost([call for call in of(provider) if call.day in own])
        claimed = dollars(sum(claim.amount for claim in claims if set(claim.days) <= own))
        assert abs(claimed - planted) <= abs(planted) / 50
    assert abs(dollars(result.total.unexplained)) < Decimal("0.0001")
