"""
Creates the services about money: recommendations, budgets and the comparison with bills. While the registry,
which stores their data, is damaged, all functions return None.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gateway.bills.contracts.declared import all_contracts
from gateway.configuration.sections import Config, KeyOwner
from gateway.core.first_use import LazyValue, import_in_thread
from gateway.core.paths import page_link
from gateway.devices.own_verdicts import AMOUNTS, OFF, OwnVerdicts
from gateway.money.budgets.declared import BudgetTable
from gateway.operations.holders.operators import PublicUrls
from gateway.service.assembly.prices import load_price_book
from spool.clock import Clock
from spool.devices.device import Device
from spool.loops import ENOUGH, repeat
from spool.people import People
from spool.registry.registry import Registry
from spool.settings import ContainerPrice
from spool.storage import Storage

if TYPE_CHECKING:
    from gateway.bills.billed.biller import BilledCostCalculator
    from gateway.bills.billed.row_book import ConnectionCostUpdater
    from gateway.bills.reconciliation.gathering import StatementSources
    from gateway.bills.reconciliation.matching import Owner
    from gateway.bills.reconciliation.reconciler import BillReconciler
    from gateway.intake.billing_connections import BillingConnections
    from gateway.money.budgets.device_verdicts import DeviceVerdicts
    from gateway.money.budgets.evaluator import BudgetEvaluator
    from gateway.money.recommendations.adviser import RecommendationUpdater
    from gateway.service.assembly.parts import ServicePartsBuilder
    from spool.registry.document_table import ImmutableDocumentTable
    from spool.statements import StatementStore

# seconds between two checks whether a reload or another process has enabled the task
CONFIGURED_LOOK_S = 15.0
OWNER_TAGS = {"team": "team"}  # tags for the rows of billing connections, if the configuration names no tags

_DIVIDED = "proportional"  # treatment of a layer of a bill: it is spread over the usage


def make_adviser(
    storage: Storage, clock: Clock, config: Callable[[], Config]
) -> LazyValue[RecommendationUpdater] | None:
    """Return the service that looks for savings."""
    registry = storage.registry
    if registry is None:
        return None

    def import_and_make_adviser() -> RecommendationUpdater:
        from gateway.money.recommendations.adviser import RecommendationUpdater
        from gateway.money.recommendations.gathering import Sources

        sources = Sources(
            ledger=storage.ledger,
            log=storage.log,
            prices=lambda: load_price_book(config(), storage.registry),
            registry=registry,
        )
        return RecommendationUpdater(sources, registry.recommendations, clock)

    return LazyValue(import_and_make_adviser)


def make_reconciler(
    storage: Storage, clock: Clock, config: Callable[[], Config]
) -> LazyValue[BillReconciler] | None:
    """Return the service that compares provider bills with counted calls."""
    registry = storage.registry
    if registry is None:
        return None

    def import_and_make_reconciler() -> BillReconciler:
        from gateway.bills.reconciliation.reconciler import BillReconciler

        return BillReconciler(_statement_sources(storage, registry.statements, config), clock)

    return LazyValue(import_and_make_reconciler)


def make_biller(
    storage: Storage, clock: Clock, config: Callable[[], Config]
) -> LazyValue[BilledCostCalculator] | None:
    """Return the service that spreads bills over counted calls."""
    registry = storage.registry
    if registry is None:
        return None

    def import_and_make_biller() -> BilledCostCalculator:
        from gateway.bills.billed.biller import BilledCostCalculator
        from gateway.bills.billed.layers import BillDivisionRules

        def current_layer_rules() -> BillDivisionRules:
            billed = config().billed
            return BillDivisionRules(credits=billed.credits == _DIVIDED, tax=billed.tax == _DIVIDED)

        sources = _statement_sources(storage, registry.statements, config)
        return BilledCostCalculator(
            replace(sources, closed_months=registry.closed_months.all),
            clock,
            current_layer_rules,
            storage.failed_items,
        )

    return LazyValue(import_and_make_biller)


def make_connection_cost_updater(
    storage: Storage, clock: Clock, config: Callable[[], Config], connections: BillingConnections
) -> LazyValue[ConnectionCostUpdater] | None:
    """Return the service that includes rows of billing connections in costs."""
    registry = storage.registry
    if registry is None:
        return None

    def billing_owner_tags() -> Mapping[str, str]:
        return config().billing.owner_tags or OWNER_TAGS

    def import_and_make_updater() -> ConnectionCostUpdater:
        from gateway.bills.billed.row_book import ConnectionCostUpdater, RowSources
        from gateway.clusters.usage.reader import ContainerUsageReader, UsageSources
        from spool.container_files.container_rows import CONTAINER_USAGE

        metrics = UsageSources(
            files=storage.container_files,
            usage=storage.small.open_table(CONTAINER_USAGE),
            prices=lambda: config().container.price,
            tags=lambda: [*billing_owner_tags().values(), *config().ledger.tags],
            retention_s=lambda: config().billing.retention,
        )
        sources = RowSources(
            ledger=storage.ledger,
            drops=connections.drops,
            connections=lambda: [
                connection
                for connection in registry.connections.all()
                if connections.is_in_costs(connection.id)
            ],
            owner_tags=billing_owner_tags,
            people=lambda: People.for_installation(storage.secret, config().privacy.emails),
            usage=ContainerUsageReader(metrics, clock),
        )
        return ConnectionCostUpdater(sources, clock, storage.failed_items)

    return LazyValue(import_and_make_updater)


async def run_biller(biller: LazyValue[BilledCostCalculator], statements: StatementStore) -> None:
    async def look_for_bills() -> object:
        return ENOUGH if await statements.months() else None

    await repeat(
        look_for_bills,
        every_s=CONFIGURED_LOOK_S,
        failed="provider bills cannot be read",
        action="billed_waits",
    )
    await import_in_thread("gateway.bills.billed.biller")
    await biller().run()


async def run_cost_updater_when_needed(
    book: LazyValue[ConnectionCostUpdater],
    connections_in_costs: ImmutableDocumentTable,
    container_prices: Sequence[ContainerPrice],
) -> None:
    """
    Wait until a connection is included in costs or nodes have a price. Then store the rows of billing
    connections as billed costs.
    """
    while not (container_prices or connections_in_costs.all()):  # noqa: ASYNC110 - another process may bring it
        await asyncio.sleep(CONFIGURED_LOOK_S)
    await import_in_thread("gateway.bills.billed.row_book")
    await book().run()


async def wait_until_configured(configured: Callable[[], bool]) -> None:
    while not configured():  # noqa: ASYNC110 - a reload may bring it
        await asyncio.sleep(CONFIGURED_LOOK_S)


def _statement_sources(
    storage: Storage, statements: StatementStore, config: Callable[[], Config]
) -> StatementSources:
    from gateway.bills.contracts.reading import read_month_charges
    from gateway.bills.reconciliation.gathering import StatementSources
    from gateway.bills.reconciliation.lines import DayTolerance

    return StatementSources(
        ledger=storage.ledger,
        log=storage.log,
        prices=lambda: load_price_book(config(), storage.registry),
        statements=statements,
        owners=lambda: [_to_matching_owner(owner) for owner in config().reconciliation.owner],
        tolerance=lambda: DayTolerance(
            money=config().reconciliation.tolerance_money, tokens=config().reconciliation.tolerance_tokens
        ),
        contracts=lambda: all_contracts(storage.registry),
        charges=partial(read_month_charges, storage.ledger, storage.registry),
    )


def _to_matching_owner(key_owner: KeyOwner) -> Owner:
    from gateway.bills.reconciliation.matching import Owner
    from spool import providers

    return Owner(
        provider=providers.canonical_provider_name(key_owner.provider),
        billed=key_owner.billed,
        api_key=key_owner.api_key,
        team=key_owner.team,
        source=key_owner.source,
    )


def make_budget_evaluator(
    storage: Storage, clock: Clock, config: Callable[[], Config], urls: Callable[[], PublicUrls]
) -> LazyValue[BudgetEvaluator] | None:
    """Return the service that evaluates budgets. Its notifications link to the console."""
    registry = storage.registry
    if registry is None:
        return None

    def import_and_make_budget_evaluator() -> BudgetEvaluator:
        from gateway.money.budgets.evaluator import BudgetEvaluator

        return BudgetEvaluator(
            registry,
            storage.ledger,
            storage.log,
            clock,
            max_owners=lambda: config().budgets.max_owners,
            verdict_amounts=lambda: config().budgets.verdict_amounts,
            verdict_events=lambda: config().budgets.verdict_events,
            hold_s=lambda: config().spool.hold,
            link=lambda budget: page_link(urls().console_url_for_links, "/budgets", {"open": [budget.id]}),
            prices=lambda: load_price_book(config(), registry),
        )

    return LazyValue(import_and_make_budget_evaluator)


def make_own_verdicts_reader(
    parts_builder: ServicePartsBuilder, budgets: LazyValue[BudgetEvaluator] | None
) -> Callable[[Device], Awaitable[OwnVerdicts | None]]:
    """
    Return a function that returns the budget verdicts that a device may read, or None for a device without
    that right.
    """

    def import_and_make_device_verdicts() -> DeviceVerdicts:
        from gateway.money.budgets.device_verdicts import DeviceVerdicts

        assert budgets is not None
        people = parts_builder.storage.ledger.people or parts_builder.build_people(parts_builder.config)
        return DeviceVerdicts(budgets().verdicts, people, lambda: parts_builder.devices.interval_s)

    verdicts = LazyValue(import_and_make_device_verdicts)

    async def own_verdicts(device: Device) -> OwnVerdicts | None:
        granted = parts_builder.config.devices.verdicts
        if granted == OFF or budgets is None:
            return None
        await import_in_thread("gateway.money.budgets.device_verdicts")
        return await verdicts().verdicts_for_device(device, has_amounts=granted == AMOUNTS)

    return own_verdicts


async def evaluate_budgets(evaluator: LazyValue[BudgetEvaluator], registry: Registry) -> None:
    while not registry.declared_table(BudgetTable).all():
        await registry.wait_for_change()
    await import_in_thread("gateway.money.budgets.evaluator")
    await evaluator().run()
