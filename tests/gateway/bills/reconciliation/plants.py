"""
Causes planted in a simulated month, each with its expected claim. A cause changes the calls at the provider,
the reports of sources, or the rows of the bill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache, partial
from random import Random

import msgspec
import pytest

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.gathering import convert_to_dollars
from gateway.bills.reconciliation.restating import BillConversion
from gateway.intake.price_terms import PriceTerm
from gateway.intake.prices import PriceBook
from spool import money
from spool.currencies import SCALE
from spool.record import NS, Inference
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.simulator import (
    ALL_PROVIDERS,
    ANTHROPIC,
    BILLED,
    DAY_S,
    DAYS,
    ESTIMATED,
    FREE,
    GOOGLE,
    KEYS,
    MODELS,
    OPENAI,
    Call,
    Rates,
    book,
    count,
    month,
    reconcile,
    record,
    statements,
)
from tests.rounds import reduced

HAVE_KEYS = (OPENAI, ANTHROPIC)  # the bills of these providers state the key of tokens
HAVE_MODELS = tuple(provider for provider in ALL_PROVIDERS if len(MODELS[provider]) > 1)
# providers whose bills have amounts by tier
HAVE_TIERS = tuple(provider for provider in ALL_PROVIDERS if provider != OPENAI)
PLAIN: Mapping[str, Mapping[str, Rates]] = {
    seller: {name: replace(rates, large=None) for name, rates in models.items()}
    for seller, models in MODELS.items()
}
FULL_A_DAY = 30
A_DAY = reduced(FULL_A_DAY, by=3)  # number of simulated calls per day
_DAYS = frozenset(DAYS)
Calls = Sequence[Call]
Prices = Mapping[str, Mapping[str, Rates]]
Rows = Sequence[StatementRow]


def no_call(call: Call) -> bool:
    return False


def same_calls(calls: Calls) -> Calls:
    return calls


def _same_reports(reports: Sequence[Inference]) -> Sequence[Inference]:
    return reports


def _same_rows(rows: Rows) -> Rows:
    return rows


@dataclass(frozen=True, kw_only=True)
class Plant:
    """
    A planted cause.

    `causes` are the claims that may match it. `done` changes calls at the provider, `billed` changes only
    their bill, and `rows` changes the rows of the bill. `lost` selects calls that are not reported,
    `unsized` calls that are reported without tokens, and `fails` calls that fail by `done`. `told` changes the
    remaining calls before they are reported, and `reports` changes their reports.
    """

    causes: tuple[str, ...]
    lost: Callable[[Call], bool] = no_call
    unsized: Callable[[Call], bool] = no_call
    fails: Callable[[Call], bool] = no_call
    done: Callable[[Calls], Calls] = same_calls
    billed: Callable[[Calls], Calls] = same_calls
    told: Callable[[Calls], Calls] = same_calls
    reports: Callable[[Sequence[Inference]], Sequence[Inference]] = _same_reports
    rows: Callable[[Rows], Rows] = _same_rows
    rates: Prices | None = None  # the provider's prices, if the ledger does not know them
    billed_rates: Prices | None = None  # prices of the provider, if the ledger has those of MODELS
    world: Prices | None = None  # the prices on both sides, if neither has those of MODELS
    conversion: BillConversion | None = None
    terms: tuple[PriceTerm, ...] = ()  # terms of contracts that the ledger knows
    providers: tuple[str, ...] = ALL_PROVIDERS


Planting = Callable[[Random, str], Plant]  # A function of this type creates a random plant for a provider.


def lost(is_lost: Callable[[Call], bool], *causes: str) -> Plant:
    return Plant(causes=causes, lost=is_lost)


def _silent_days(random: Random, number: int) -> Plant:
    days = set(random.sample(DAYS, number))
    return lost(lambda call: call.day in days, "no_telemetry")


def _half_day(random: Random, provider: str) -> Plant:
    begin = random.choice(DAYS) + random.randint(7, 10) * 3600
    return lost(lambda call: begin <= call.time < begin + DAY_S // 2, "no_telemetry")


def _key(random: Random, provider: str) -> Plant:
    key = random.choice(KEYS)
    return lost(
        lambda call: call.key == key, "unreported_traffic" if provider in HAVE_KEYS else "unreported_calls"
    )


def _model(random: Random, provider: str) -> Plant:
    model = random.choice(sorted(MODELS[provider]))
    return replace(lost(lambda call: call.model == model, "unreported_traffic"), providers=HAVE_MODELS)


def _share(random: Random, provider: str) -> Plant:
    seed = random.random()
    return lost(lambda call: Random(f"{seed} {call.time} {call.tokens}").random() < 0.08, "unreported_calls")


def _untold_batch(is_batch: Callable[[Call], bool]) -> Plant:
    """Run some calls as batch, although every source reports them as normal calls."""
    return Plant(
        causes=("tier_unknown",),
        done=lambda calls: [replace(call, batch=call.batch or is_batch(call)) for call in calls],
        told=lambda calls: [replace(call, batch=call.batch and not is_batch(call)) for call in calls],
    )


def _batch_key(random: Random, provider: str) -> Plant:
    key = random.choice(KEYS)
    return _untold_batch(lambda call: call.key == key)


def _batch_share(random: Random, provider: str) -> Plant:
    return _untold_batch(lambda call: Random(f"b {call.time} {call.tokens}").random() < 0.2)


def _region(random: Random, provider: str) -> Plant:
    key = random.choice(KEYS)
    return Plant(
        causes=("region",),
        done=lambda calls: [replace(call, region="eu-west-1") if call.key == key else call for call in calls],
    )


def _money(factor: Callable[[StatementRow], Decimal], *causes: str) -> Plant:
    return Plant(
        causes=causes,
        rows=lambda rows: [
            msgspec.structs.replace(row, amount=row.amount * factor(row)) if row.unit == "usd" else row
            for row in rows
        ],
    )


def _price(random: Random, provider: str) -> Plant:
    factor, since = Decimal(random.choice(("1.2", "1.25", "1.3"))), random.choice(DAYS[5:25])
    return _money(lambda row: factor if row.start >= since else Decimal(1), "price_change")


def _input_price(random: Random, provider: str) -> Plant:
    since = random.choice(DAYS[5:25])
    return _money(
        lambda row: Decimal("1.1") if row.kind == "input" and row.start >= since else Decimal(1),
        "price_change",
    )


def _discount(random: Random, provider: str) -> Plant:
    factor = Decimal(random.choice(("0.9", "0.95")))
    return _money(lambda row: factor, "discount")


def _half(random: Random, provider: str) -> Plant:
    return _money(lambda row: Decimal("0.5"), "tier")


def _dear_days(random: Random, provider: str) -> Plant:
    """Bill the tokens of six days at twice the price. Other lines, such as those of capacity, stay as they are."""
    days = set(random.sample(DAYS[:-3], 6))
    return _money(
        lambda row: Decimal(2 if row.start in days and row.kind != "throughput" else 1), "price_on_days"
    )


def _uncached(call: Call) -> int:
    return call.tokens["input"] + call.tokens["cache_read"]


def _plain_cache(random: Random, provider: str) -> Plant:
    """Bill cached input as if it were not cached."""
    return Plant(
        causes=("cache_split",),
        billed=lambda calls: [
            replace(call, tokens={**call.tokens, "input": _uncached(call), "cache_read": 0}) for call in calls
        ],
    )


def _twice(random: Random, provider: str) -> Plant:
    """Repeat all rows of two days in the export."""
    days = set(random.sample(DAYS, 2))
    return Plant(
        causes=("billed_twice",), rows=lambda rows: [*rows, *(row for row in rows if row.start in days)]
    )


def _double_report(random: Random, provider: str) -> Plant:
    key = random.choice(KEYS)
    return Plant(
        causes=("double_report",),
        reports=lambda reports: [
            *reports,
            *(msgspec.structs.replace(report, source="otel") for report in reports if report.api_key == key),
        ],
    )


def _pacific(random: Random, provider: str) -> Plant:
    """Start the days of the bill at eight o'clock UTC."""
    return Plant(
        causes=("time_edge",),
        billed=lambda calls: [
            replace(call, time=call.time - 8 * 3600) for call in calls if call.time - 8 * 3600 >= DAYS[0]
        ],
    )


def _local_hours(random: Random, provider: str) -> Plant:
    """Let a source report its local time as UTC, seven hours behind."""
    return Plant(
        causes=("time_edge",), told=lambda calls: [replace(call, time=call.time - 7 * 3600) for call in calls]
    )


def _unsized(random: Random, provider: str) -> Plant:
    """Report some streamed calls without their tokens."""
    return Plant(
        causes=("usage_missing",), unsized=lambda call: Random(f"u {call.time} {call.key}").random() < 0.1
    )


SOURCES_OF_MONEY = ("openai_costs", "anthropic_cost", "aws_cur", "azure_costs", "google_billing")


def _report(call: Call, plants: Sequence[Plant]) -> Inference:
    report = record(call)
    if any(plant.unsized(call) for plant in plants):
        report.input_tokens = report.output_tokens = report.cache_read_tokens = report.cache_write_tokens = (
            None
        )
        report.cache_write_1h_tokens = None
    return report


def _line(kind: str, cause: str, share: str) -> Planting:
    """Add a bill line other than tokens on the last day."""

    def plant(random: Random, provider: str) -> Plant:
        def rows(given: Rows) -> Rows:
            of = next(row for row in reversed(given) if row.unit == "usd")
            amount = sum((row.amount for row in given if row.unit == "usd"), Decimal(0)) * Decimal(share)
            line = msgspec.structs.replace(of, kind=kind, model=None, amount=amount.quantize(Decimal("0.01")))
            return [*given, line]

        return Plant(causes=(cause,), rows=rows)

    return plant


def _swapped(random: Random, provider: str) -> Plant:
    """Bill two keys under each other's name."""
    first, second = random.sample(KEYS, 2)
    names = {first: second, second: first}
    return Plant(
        causes=("keys_exchanged",),
        rows=lambda rows: [
            msgspec.structs.replace(row, key=names.get(row.key or "", row.key)) for row in rows
        ],
        providers=HAVE_KEYS,
    )


def _no_thinking(random: Random, provider: str) -> Plant:
    """Report output without the quarter that is thinking."""
    return Plant(
        causes=("output_missing",),
        told=lambda calls: [
            replace(
                call, tokens={**call.tokens, "output": call.tokens["output"] - call.tokens["output"] // 4}
            )
            for call in calls
        ],
    )


def _alias(random: Random, provider: str) -> Plant:
    """Report 30 % of one model as another."""
    real, alias = (
        random.sample(sorted(MODELS[provider]), len(MODELS[provider]))[:2]
        if provider in HAVE_MODELS
        else ("", "")
    )
    seed = random.random()

    def told(call: Call) -> Call:
        is_alias = call.model == real and Random(f"{seed} {call.time} {call.tokens}").random() < 0.3
        return replace(call, model=alias) if is_alias else call

    return Plant(
        causes=("other_model",), told=lambda calls: [told(call) for call in calls], providers=HAVE_MODELS
    )


def _euros(random: Random, provider: str) -> Plant:
    """Bill in euros, at one rate for the month. The market has a rate of each day."""
    rate, rates = 1.09, {}
    for day in range(DAYS[0] - 31 * DAY_S, DAYS[-1] + DAY_S, DAY_S):
        rate *= 1 + random.uniform(-0.004, 0.004)
        rates[day] = round(rate, 4)
    constant = Decimal(str(random.choice([rates[day] for day in DAYS])))
    conversion = BillConversion(
        currency="EUR",
        sources=frozenset(SOURCES_OF_MONEY),
        rates={day: int(Decimal(str(value)) * SCALE) for day, value in rates.items()},
    )

    def rows(given: Rows) -> Rows:
        in_euros = [
            msgspec.structs.replace(
                row, unit="eur", currency="EUR", amount=(row.amount / constant).quantize(Decimal("1e-9"))
            )
            if row.unit == "usd"
            else row
            for row in given
        ]
        return convert_to_dollars(in_euros, lambda _from, _to, day: conversion.rates.get(day))

    return Plant(causes=("exchange_rate",), rows=rows, conversion=conversion)


def _long(random: Random, provider: str) -> Plant:
    """Bill large inputs at a surcharge that the ledger's price list lacks."""
    return Plant(causes=("long_context",), rates=MODELS, providers=(ANTHROPIC, GOOGLE))


def _batch_at_full_price(random: Random, provider: str) -> Plant:
    """Report the batch calls of a key as batches, and bill them as standard calls."""
    key = random.choice(KEYS)
    return Plant(
        causes=("tier_not_given",),
        done=lambda calls: [replace(call, batch=call.batch or call.key == key) for call in calls],
        billed=lambda calls: [replace(call, batch=call.batch and call.key != key) for call in calls],
    )


def _batch_without_discount(random: Random, provider: str) -> Plant:
    """Bill batches at the standard price, although the bill calls them batches."""
    plant = _money(lambda row: Decimal(2 if row.tier == "batch" else 1), "tier_not_given")
    return replace(plant, providers=HAVE_TIERS)


def _failures(random: Random, failed: str, *causes: str) -> Plant:
    """Let 5 % of the calls fail after they used tokens. Unless they are BILLED, the provider does not bill them."""
    seed = random.random()

    def is_failed(call: Call) -> bool:
        return Random(f"{seed} {call.time} {call.tokens}").random() < 0.05

    return Plant(
        causes=causes,
        fails=is_failed,
        done=lambda calls: [replace(call, failed=failed) if is_failed(call) else call for call in calls],
        billed=lambda calls: [call for call in calls if call.failed in ("", BILLED)],
    )


def _posted_late(random: Random, days: int, *, is_of_key: bool = False) -> Plant:
    """Post the rows of some days, of all calls or of a key, one day later, or of several days on the next."""
    first = random.choice(DAYS[1 : -1 - days])
    key = random.choice(KEYS)

    def rows(given: Rows) -> Rows:
        return [
            msgspec.structs.replace(row, start=first + days * DAY_S, end=first + (days + 1) * DAY_S)
            if first <= row.start < first + days * DAY_S
            else row
            for row in given
        ]

    def billed(call: Call) -> Call:
        is_late = call.key == key and first <= call.time < first + days * DAY_S
        return replace(call, time=first + days * DAY_S) if is_late else call

    if is_of_key:
        return Plant(
            causes=("posted_late",),
            billed=lambda calls: [billed(call) for call in calls],
            providers=HAVE_KEYS,
        )
    return Plant(causes=("posted_late",), rows=rows)


NEW_PLANTS: dict[str, Planting] = {
    "swapped keys": _swapped,
    "no thinking": _no_thinking,
    "alias": _alias,
    "euros": _euros,
    "long": _long,
    "batch at full price": _batch_at_full_price,
    "batch without discount": _batch_without_discount,
    "vat": _line("vat", "tax", "0.19"),
}
FAILED: dict[str, Planting] = {
    "failed": lambda random, provider: _failures(random, FREE),
    "failed estimates": lambda random, provider: _failures(random, ESTIMATED, "failed_calls"),
    "failed and billed": lambda random, provider: _failures(random, BILLED, "failed_calls"),
}
LATE: dict[str, Planting] = {
    "posted late": lambda random, provider: _posted_late(random, 1),
    "weekend posted late": lambda random, provider: _posted_late(random, 2),
    "key posted late": lambda random, provider: _posted_late(random, 1, is_of_key=True),
}
PLANTS: dict[str, Planting] = {
    **NEW_PLANTS,
    **FAILED,
    **LATE,
    "key": _key,
    "model": _model,
    "share": _share,
    "a day": lambda random, provider: _silent_days(random, 1),
    "three days": lambda random, provider: _silent_days(random, 3),
    "four days": lambda random, provider: lost(lambda call: call.day >= DAYS[-4], "no_telemetry"),
    "half a day": _half_day,
    "batch": lambda random, provider: _untold_batch(lambda call: True),
    "batch since": lambda random, provider: _untold_batch(lambda call: call.day >= DAYS[13]),
    "batch share": _batch_share,
    "batch key": _batch_key,
    "region": _region,
    "price": _price,
    "input price": _input_price,
    "discount": _discount,
    "half": _half,
    "dear days": _dear_days,
    "plain cache": _plain_cache,
    "twice": _twice,
    "double report": _double_report,
    "local hours": _local_hours,
    "pacific": _pacific,
    "unsized": _unsized,
    "tax": _line("tax", "tax", "0.19"),
    "refund": _line("refund", "credit", "-0.05"),
    "credit": _line("credit", "credit", "-0.1"),
    "searches": _line("web_search", "not_tokens", "0.02"),
}


@pytest.fixture
def full_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate as many calls as in proofs, for months that once failed."""
    monkeypatch.setattr("tests.gateway.bills.reconciliation.plants.A_DAY", FULL_A_DAY)


@lru_cache(maxsize=8)
def _calls(provider: str, seed: int, a_day: int) -> Calls:
    return tuple(month(seed=seed, a_day=a_day, providers=(provider,)))


def _month(provider: str, seed: int) -> Calls:
    """Return the calls of a month without plants."""
    return _calls(provider, seed, A_DAY)


async def planted(provider: str, seed: int, plants: Iterable[Plant]) -> Reconciliation:
    """Reconcile a month with some plants."""
    plants = list(plants)
    world = prices_of(plants)
    rows, reports = both_sides(_month(provider, seed), plants, world)
    conversion = next((plant.conversion for plant in plants if plant.conversion), None)
    covered = {row.source: frozenset(DAYS) for row in rows}
    counts = await count(reports, book_of(plants, world))
    without = counts.prices.without_contracts()
    listed = partial(without.list_prices_on_day, provider) if any(plant.terms for plant in plants) else None
    return reconcile(provider, rows, counts, conversion=conversion, covered=covered, listed=listed)


def prices_of(plants: Iterable[Plant]) -> Prices:
    """Return the prices that the ledger knows. If a plant has prices of its own, these are without large inputs."""
    plants = list(plants)
    if any(plant.rates for plant in plants):
        return PLAIN
    return next((plant.world for plant in plants if plant.world), MODELS)


def book_of(plants: Iterable[Plant], world: Prices) -> PriceBook:
    """Return the ledger's prices, with the contracts of the plants."""
    return PriceBook(book(world).card, (), [term for plant in plants for term in plant.terms])


def difference(
    provider: str,
    seed: int,
    plants: Sequence[Plant],
    *,
    without: Callable[[Call], bool] = no_call,
    base: Callable[[Calls], Calls] = same_calls,
    world: Prices = MODELS,
) -> int:
    """
    Compute the billed cost minus the estimates of the reports, in units, independently of the ledger and the
    reconciliation. `without` leaves out calls, and `base` changes calls first.
    """
    calls = [call for call in _month(provider, seed) if not without(call)]
    rows, reports = both_sides(base(calls), plants, world)
    total, prices = 0, book_of(plants, world)
    for row in rows:
        if row.unit == "usd" and row.start in _DAYS:
            total += money.text_to_units(f"{row.amount:f}")
    for report in reports:
        if (report.start_time or 0) // NS // DAY_S * DAY_S in _DAYS:
            total -= money.text_to_units(report.cost or prices.estimate_record(report) or "0")
    return total


def both_sides(
    calls: Calls, plants: Sequence[Plant], world: Prices = MODELS
) -> tuple[Rows, Sequence[Inference]]:
    """Return the bill rows and the call reports with some plants."""
    done = calls
    for plant in plants:
        done = plant.done(done)
    billed = done
    reported: Calls = [call for call in done if not any(plant.lost(call) for plant in plants)]
    for plant in plants:
        reported, billed = plant.told(reported), plant.billed(billed)
    rates = next((rates for plant in plants if (rates := plant.billed_rates or plant.rates)), world)
    rows: Rows = statements(billed, rates=lambda _: rates)
    reports: Sequence[Inference] = [_report(call, plants) for call in reported]
    for plant in sorted(
        plants, key=lambda plant: plant.conversion is not None
    ):  # the whole bill is in another currency and is converted
        rows, reports = plant.rows(rows), plant.reports(reports)
    return rows, reports
