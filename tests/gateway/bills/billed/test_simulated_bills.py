"""
Simulated months of bills with planted causes. Each cause is recognized, calls pay their billed rate, and the
total is the invoice. `make proofs` tries every cause for every provider, and all pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest

from gateway.bills.billed.closing import Invoice
from spool import money
from spool.ledger.billed import INVOICE
from spool.ledger.billed import SLICED_CHARGES as SLICED
from spool.ledger.days.usage import UsageSum
from spool.ledger.dimensions import BILLED_TYPES
from spool.ledger.slices import SlicedLedger
from spool.money import UNIT
from spool.registry.roles import LedgerSlice, RoleFilter
from tests.gateway.bills.billed import simulated
from tests.gateway.bills.billed.clusters_planted import (
    CLOUD,
    PRICED,
    Plan,
    billed,
    owed,
    planned,
    with_clusters,
)
from tests.gateway.bills.billed.clusters_planted import by as by_provider
from tests.gateway.bills.billed.layers_planted import LAYERS
from tests.gateway.bills.billed.simulated import (
    MARCH,
    NEAR,
    OWNERS,
    TEAMS,
    BilledMonth,
    billed_month,
    question,
    units,
)
from tests.gateway.bills.reconciliation.plants import HAVE_KEYS, PLANTS, Plant
from tests.gateway.bills.reconciliation.simulator import (
    ALL_PROVIDERS,
    ANTHROPIC,
    AZURE,
    BEDROCK,
    GOOGLE,
    OPENAI,
)
from tests.rounds import IS_LONG, part, some

EVERY = {**PLANTS, **LAYERS}
USAGE = "usage"
CHARGES = {
    "tax": "tax", "vat": "tax", "discount": "discount", "credit": "credit", "refund": "refund", "web_search": "other",
    "throughput": "commitment",
}  # fmt: skip
# For each plant of unreported calls, the reasons that their cost may have, the most frequent first.
LOST = {
    "key": ("no_key", "no_model", "no_calls", "no_telemetry"),
    "model": ("no_model", "no_telemetry"),
    "share": ("unreported", "no_key", "no_model", "no_calls", "no_telemetry"),
    "a day": ("no_telemetry",),
    "three days": ("no_telemetry",),
    "four days": ("no_telemetry",),
    "half a day": ("unreported", "no_key", "no_model", "no_calls", "no_telemetry"),
    "unsized": ("unreported", "no_key", "no_calls"),
}


def plant(name: str, provider: str, seed: int = 1) -> Plant:
    return EVERY[name](Random(f"{seed} {name} {provider}"), provider)


def cases() -> list[tuple[str, str]]:
    """Return each cause with one provider, or in full runs with every provider that can have it."""
    all_cases = []
    for index, name in enumerate(EVERY):
        able = [provider for provider in ALL_PROVIDERS if provider in plant(name, provider).providers]
        all_cases += [(name, provider) for provider in (able if IS_LONG else [able[index % len(able)]])]
    return all_cases


async def holds(month: BilledMonth, provider: str) -> None:
    """
    Check what holds for any plant: sums equal the bill, lines keep their kind, and calls pay their billed rate.
    """
    rows = [row for row in month.of(provider) if row.start < MARCH.end]
    bill, accrued = units(rows), units(rows, "accrued_usd")
    only = {"include": {"provider": (provider,)}}
    totals = {name: sum((await month.paid(name, **only)).values()) for name in BILLED_TYPES}
    amortized = {amount for name, amount in totals.items() if "amortized" in name}
    assert totals["billed_cost"] == bill
    assert totals["discounted_cost"] == bill
    assert {bill + accrued} == amortized
    expected_amounts: Counter[str | None] = Counter()
    for row in rows:
        if row.unit == "usd":
            expected_amounts[CHARGES.get(row.kind, USAGE)] += units([row])
    billed_amounts = Counter(
        {group[0]: amount for group, amount in (await month.paid("billed_cost", "charge", **only)).items()}
    )
    billed_amounts[USAGE] += billed_amounts.pop("rounding", 0)
    assert expected_amounts == billed_amounts
    await calls_pay_the_billed_rate(month, provider)


async def calls_pay_the_billed_rate(month: BilledMonth, provider: str) -> None:
    """Check shares by team, user and service to 10^-20, if the calls are reported as they were billed."""
    reports = [report for report in month.reports if report.provider == provider]
    expected = simulated.owed(month.of(provider), reports)
    exact = {"include": {"charge": (USAGE,), "basis": ("exact",), "provider": (provider,)}}
    for index, name in enumerate(OWNERS):
        by: dict[str | None, Fraction] = defaultdict(Fraction)
        for owner, amount in expected.items():
            by[owner[index]] += amount
        paid = await month.paid("billed_cost", name, **exact)
        paid_amounts = {group[0]: amount for group, amount in paid.items()}
        assert {value for value, amount in by.items() if amount} == set(paid_amounts)
        for value, amount in by.items():
            assert abs(amount * UNIT - paid_amounts.get(value, 0)) < NEAR, (name, value)


@pytest.mark.parametrize("provider", part(ALL_PROVIDERS, every=2))
async def test_nothing_is_planted(provider: str) -> None:
    """Without a planted cause, nothing is unallocated, and rounding is below 10^-20."""
    month = await billed_month({provider: []})
    await holds(month, provider)
    assert {} == +(await month.reasons())
    by = await month.paid("billed_cost", "charge", "basis")
    assert abs(by.pop(("rounding", "unallocated"), 0)) < NEAR
    assert [("usage", "exact")] == list(by)


@pytest.mark.parametrize(("name", "provider"), part(cases(), every=6))
async def test_one_cause(name: str, provider: str) -> None:
    """
    The planted cause shows in the charge of its lines or in the reason of the unallocated amount. Calls pay
    their billed rate.
    """
    month = await billed_month({provider: [plant(name, provider)]})
    await holds(month, provider)
    if name in LOST:
        of_keys = () if provider in HAVE_KEYS else ("unreported",)
        await is_of_nobody(month, provider, (*LOST[name], *of_keys))


async def is_of_nobody(month: BilledMonth, provider: str, reasons: tuple[str, ...]) -> None:
    """Check that exactly the cost of unreported calls is unallocated."""
    reasons_found = +(await month.reasons())
    assert set(reasons_found) <= set(reasons)
    unpaid = (
        units(month.of(provider)) - sum(simulated.owed(month.of(provider), month.reports).values()) * UNIT
    )
    assert abs(reasons_found.total() - unpaid) < NEAR
    bases = {group[0] for group in await month.paid("billed_cost", "basis")}
    assert "pooled" not in bases


# These pairs failed in earlier full runs, because calls of a region paid for other regions on days without
# the region's rows or calls.
ONCE_WRONG = [(AZURE, "region", "pacific"), (AZURE, "region", "share"), (GOOGLE, "key", "region")]


def pairs() -> list[tuple[str, str, str]]:
    all_pairs = [*ONCE_WRONG]
    for provider in ALL_PROVIDERS:
        able = [name for name in EVERY if provider in plant(name, provider).providers]
        every = [*combinations(able, 2)]
        chosen = every if IS_LONG else Random(f"pairs {provider}").sample(every, 1)
        all_pairs += [(provider, *causes) for causes in chosen]
    return all_pairs


@pytest.mark.parametrize(("provider", "first", "second"), part(pairs(), every=4))
async def test_two_causes(provider: str, first: str, second: str) -> None:
    """With two planted causes, the sum is still the bill, and calls pay their billed rate."""
    plants = [plant(first, provider), plant(second, provider)]
    await holds(await billed_month({provider: plants}), provider)


TOGETHER_IN_PROOFS = {
    OPENAI: ("key", "enterprise discount", "grant", "tax", "scale tier"),
    AZURE: ("share", "region", "throughput", "tax", "enterprise discount"),
}
TOGETHER = {
    **(TOGETHER_IN_PROOFS if IS_LONG else {}),
    ANTHROPIC: ("a day", "input price", "searches", "prepaid", "refund"),
    BEDROCK: ("double report", "enterprise discount", "throughput", "tax", "refund next month"),
    GOOGLE: ("twice", "credit", "tax", "euros", "unsized"),
}
OF_CLUSTERS = ("some nodes", "nowhere", "several days", "given back", "others", "crowded")


@pytest.mark.proves("every grouping has the same total, and a closed month equals its invoice to the cent")
async def test_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Several providers have five causes each, and clusters have bills, prices, or both. Every dimension and pair
    in every cost type adds up to each bill, and restricted access cuts all types alike. Closed with rounded
    invoices, each provider adds up to its invoice.
    """
    month = await billed_month(
        {name: [plant(provider, name) for provider in causes] for name, causes in TOGETHER.items()}
    )
    clusters = await with_clusters(month.ledger, month.clock, planned(OF_CLUSTERS, days=len(MARCH.days)))
    for provider in TOGETHER:
        await holds(month, provider)
    await is_made_again_by_reading_each_day_once(month, monkeypatch)
    await every_pair_closes(month, clusters.plan)
    await slices_cut_alike(month)
    for provider in TOGETHER:
        await closes_to_its_invoice(month, provider)
    assert 0 == await clusters.book.recalculate_changed_months()
    await every_pair_closes(month, clusters.plan, closed=True)


async def is_made_again_by_reading_each_day_once(month: BilledMonth, patching: pytest.MonkeyPatch) -> None:
    """
    Check that a second computation changes nothing. It may read each day only once for bills and once for
    the month's taxes.
    """
    days_read: list[int] = []
    of_day = month.ledger.detailed_usage_of_day

    async def noted(day: int) -> Sequence[UsageSum]:
        days_read.append(day)
        return await of_day(day)

    patching.setattr(month.ledger, "detailed_usage_of_day", noted)
    assert 0 == await month.biller.recalculate_month(MARCH)
    assert 2 * [*MARCH.days] == days_read


async def every_pair_closes(month: BilledMonth, clusters: Plan, *, closed: bool = False) -> None:
    """
    Check single dimensions and each sixtieth pair in one cost type, and each eighth dimension in all (in full runs
    each in all).
    Closed months are checked by single dimensions, in one type (in full runs in all), with the amounts of their
    invoices.
    """
    bills = {name: bill_of(month, name) for name in TOGETHER}
    invoices = await beside_invoices(month) if closed else {}
    bills_of_clusters = {name: billed(clusters, name) for name in BILLED_TYPES}
    prices = {name: by_provider(owed(clusters, name), 0)[PRICED,] * UNIT for name in BILLED_TYPES}
    dimensions = (*month.ledger.dimensions(), "charge", "basis")
    pairs = [(each, each) for each in dimensions]
    if not closed:
        pairs += some([*combinations(dimensions, 2)], every=60)
    for index, pair in enumerate(pairs):
        every = IS_LONG or (pair[0] == pair[1] and not closed and index % 8 == 0)
        for name in [*BILLED_TYPES] if every else [[*BILLED_TYPES][index % len(BILLED_TYPES)]]:
            sums: Counter[str | None] = Counter()
            by = tuple(dict.fromkeys(("provider", *pair)))
            for (provider, *_), amount in (await month.paid(name, *by)).items():
                sums[provider] += amount
            expected = {
                each: (accrued_too if "amortized" in name else bill) + invoices.get(each, 0)
                for each, (bill, accrued_too) in bills.items()
            }
            expected[CLOUD] = bills_of_clusters[name]
            assert abs(prices[name] - sums.pop(PRICED)) < NEAR
            assert expected == sums, (name, pair)


async def beside_invoices(month: BilledMonth) -> dict[str | None, int]:
    """
    Sum rounding and differences of invoices by provider, without the rounding of divisions, which is part
    of the bills.
    """
    amount_by_seller: Counter[str | None] = Counter()
    for day in await month.ledger.billed_days(MARCH.start, MARCH.end):
        if INVOICE in day.provider:
            sums = await month.ledger.billed_sums(day.day, day.provider)
            amount_by_seller[day.seller] += sum(
                billed_sum.amount for billed_sum in sums if billed_sum.arranged & 1
            )
    return amount_by_seller


def bill_of(month: BilledMonth, provider: str) -> tuple[int, int]:
    """Return the billed amount, with and without the month's accruals."""
    rows = [row for row in month.of(provider) if row.start < MARCH.end]
    return units(rows), units(rows) + units(rows, "accrued_usd")


async def slices_cut_alike(month: BilledMonth) -> None:
    """
    Check that visible costs of twelve teams plus the rest are the total, and that usage is equal in every type.
    """
    usage = []
    for name in BILLED_TYPES:
        by = await month.paid(name, "charge", "basis", "origin")
        whole = sum(by.values())
        apart = sum(
            amount
            for (charge, basis, origin), amount in by.items()
            if (charge not in SLICED and origin == "calls") or basis == "unallocated"
        )
        of_teams: Counter[tuple[str, tuple[str | None, ...]]] = Counter()
        for team in TEAMS:
            role = RoleFilter(dimension="team", values=(team,))
            sliced = SlicedLedger(month.ledger, LedgerSlice(parts=((role,),)))
            for row in await sliced.costs(question(name, "charge", "origin")):
                of_teams[team, row.group] += money.text_to_units(row.cost)
        assert whole == apart + of_teams.total()
        usage.append({place: amount for place, amount in of_teams.items() if place[1] == (USAGE, "calls")})
    assert all(each == usage[0] for each in usage)


async def closes_to_its_invoice(month: BilledMonth, provider: str) -> None:
    """
    Close a month with its invoice. The invoice has one line per model and kind, in cents, and contains
    duplicated rows of an export only once.
    """
    rows = [row for row in month.of(provider) if row.unit == "usd" and row.start < MARCH.end]
    once = rows if "twice" not in TOGETHER[provider] else [*dict.fromkeys(rows)]
    lines: dict[tuple[str | None, str], Decimal] = {}
    for row in once:
        lines[row.model, row.kind] = lines.get((row.model, row.kind), Decimal(0)) + row.amount
    total = money.text_to_units(str(sum(round(amount, 2) for amount in lines.values())))
    figures = await month.close(
        Invoice(provider=provider, month=MARCH.name, number="1", total=total, lines=len(lines))
    )
    twice = units(rows) - units(once)
    assert (-twice != 0) == (figures.unexplained_gap != 0)
    assert abs(figures.unexplained_gap + figures.rounding_gap + twice) <= len(lines) * UNIT // 200
    accrued = units([row for row in month.of(provider) if row.start < MARCH.end], "accrued_usd")
    only = {"include": {"provider": (provider,)}}
    for name in BILLED_TYPES:
        paid = sum((await month.paid(name, "team", **only)).values())
        assert total + accrued * ("amortized" in name) == paid
