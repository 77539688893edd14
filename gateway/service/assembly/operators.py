"""
Creates the services behind the operator API, one group per area, and the demo month.

Services that fetch or query other systems are imported at their first use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from exporters.forwarder import RouteForwarder
from exporters.service.billing_sync import BillingSync
from exporters.settings import UpstreamSettings
from gateway.bills.plans.declared import PlanTable
from gateway.configuration.sections import Config, OidcSettings
from gateway.configuration.settings_in_effect import settings_in_effect
from gateway.configuration.values import split_address
from gateway.core.first_use import LazyValue
from gateway.http.listening.listener import operator_listen_address
from gateway.operations.devices.listed_devices import ListedDevices
from gateway.operations.holders.operators import (
    AssistantServices,
    InstallationServices,
    MoneyServices,
    PeopleServices,
    PublicUrls,
    SenderServices,
    SpoolServices,
)
from gateway.operations.services import OperatorServices
from gateway.people.authentication.access import KeyAccess
from gateway.service.assembly.lakes import lake_states, past_records, recount_lake, repair_lake
from gateway.service.assembly.limits import role_limits
from gateway.service.assembly.money import (
    make_adviser,
    make_biller,
    make_budget_evaluator,
    make_connection_cost_updater,
    make_reconciler,
)
from gateway.service.assembly.parts import ServicePartsBuilder
from gateway.service.assembly.prices import load_price_book
from gateway.service.assembly.storage import open_storage
from spool.clock import Clock
from spool.leases import lease_name
from spool.ledger.colours import NAME_COLOURS
from spool.settings import SpoolSettings
from spool.storage import Storage

if TYPE_CHECKING:
    from gateway.bills.enforcers.auditing import EnforcerAuditor
    from gateway.bills.enforcers.reader import EnforcerReader
    from gateway.bills.statements.puller import StatementPuller
    from gateway.money.budgets.evaluator import BudgetEvaluator
    from gateway.operations.holders.demo_month import DemoMonth


@asynccontextmanager
async def open_operator_services(
    config: Config, storage: Storage, *, clock: Clock, version: str, urls: Callable[[], PublicUrls]
) -> AsyncIterator[OperatorServices]:
    """Open the services of the operator API without a server. No route runs, and nothing is received."""
    async with AsyncExitStack() as stack:
        assembler = ServicePartsBuilder(config, storage, clock, stack)
        access = await assembler.start_access()
        billing = assembler.build_billing_sync(config)
        no_routes = RouteForwarder(storage.deliveries, storage.log, clock, [])
        operators = build_operator_services(assembler, access, billing, no_routes, version=version, urls=urls)
        await load_allocation(operators)
        yield operators


def build_operator_services(
    parts_builder: ServicePartsBuilder,
    access: KeyAccess,
    billing: BillingSync,
    routes: RouteForwarder,
    *,
    version: str,
    urls: Callable[[], PublicUrls],
) -> OperatorServices:
    return OperatorServices(
        spool=build_spool_services(parts_builder, routes),
        money=build_money_services(parts_builder, billing, urls),
        people=build_people_services(parts_builder),
        senders=build_sender_services(parts_builder, access),
        assistants=build_assistant_services(parts_builder),
        installation=build_installation_services(parts_builder, version=version, urls=urls),
    )


async def load_allocation(operators: OperatorServices) -> None:
    """Activate the published allocation definitions. Does nothing while the registry is damaged."""
    if operators.money.publishing is not None:
        await operators.money.publishing.load_versions_in_force()


def build_spool_services(parts_builder: ServicePartsBuilder, routes: RouteForwarder) -> SpoolServices:
    storage = parts_builder.storage
    return SpoolServices(
        log=storage.log,
        deliveries=storage.deliveries,
        streams=storage.streams,
        clock=parts_builder.clock,
        failed_items=storage.failed_items,
        wake=lambda route: storage.leases.wake_tasks(lease_name(route)),
        syncs=routes.sync_states,
        destination_types=lambda: {each.name: each.type for each in parts_builder.config.destinations},
        events_sent_as=lambda type: _upstream_event_form(parts_builder.config.upstream, type),
        is_unmapped=parts_builder.is_unmapped,
        event_amount=parts_builder.amount_of,
        partial_reports=storage.partial_reports,
        max_listed_records=lambda: parts_builder.config.server.max_listed_records,
        hold_s=lambda: parts_builder.config.spool.hold,
        native=parts_builder.native,
        late_reports=parts_builder.late_reports,
        sender_fields=parts_builder.sender_fields,
        sender_hours=parts_builder.sender_hours,
        lakes=lambda: lake_states(parts_builder.config, storage),
        past=lambda: past_records(parts_builder.config, storage),
        repair_lake=lambda name, *, dry_run: repair_lake(
            parts_builder.config, storage, parts_builder.clock, name, dry_run=dry_run
        ),
        recount_lake=lambda name, topic, after: recount_lake(
            parts_builder.config, storage, name, topic=topic, after_number=after
        ),
    )


def _upstream_event_form(upstream: UpstreamSettings, type: str) -> str | None:
    from exporters.service.events import (
        forwarded_form,  # imported late, because the start does not need this module
    )

    return forwarded_form(upstream, type)


def build_money_services(
    parts_builder: ServicePartsBuilder, billing: BillingSync, urls: Callable[[], PublicUrls]
) -> MoneyServices:
    storage = parts_builder.storage
    clock = parts_builder.clock
    budgets = make_budget_evaluator(storage, clock, lambda: parts_builder.config, urls)

    return MoneyServices(
        registry=storage.registry,
        registry_problem=storage.registry_problem,
        clock=clock,
        ledger=storage.ledger,
        colours=storage.small.open_table(NAME_COLOURS),
        log=storage.log,
        streams=storage.streams,
        billing=billing,
        billing_connections=parts_builder.billing_connections,
        prices=lambda: load_price_book(parts_builder.config, storage.registry),
        adviser=make_adviser(storage, clock, lambda: parts_builder.config),
        reconciler=make_reconciler(storage, clock, lambda: parts_builder.config),
        biller=make_biller(storage, clock, lambda: parts_builder.config),
        row_book=make_connection_cost_updater(
            storage, clock, lambda: parts_builder.config, parts_builder.billing_connections
        ),
        statement_puller=lazy_statement_puller(parts_builder),
        reconciliation=lambda: parts_builder.config.reconciliation,
        enforcer_reader=lazy_enforcer_reader(parts_builder),
        enforcer_auditor=lazy_enforcer_auditor(parts_builder, budgets),
        budgets=budgets,
        allocation=lambda: parts_builder.config.allocation,
        sender_hours=parts_builder.sender_hours,
        currency=lambda: parts_builder.config.currency,
        sources=lambda: parts_builder.config.sources,
    )


def lazy_statement_puller(parts_builder: ServicePartsBuilder) -> LazyValue[StatementPuller] | None:
    """Return the service that fetches provider bills, or None while the registry is damaged."""
    registry = parts_builder.storage.registry
    if registry is None:
        return None

    def import_and_make_statement_puller() -> StatementPuller:
        from gateway.service.assembly.statements import build_statement_puller

        config, plans = lambda: parts_builder.config, registry.declared_table(PlanTable)
        return build_statement_puller(
            registry.statements, parts_builder.clock, config, parts_builder.stack, plans=plans
        )

    return LazyValue(import_and_make_statement_puller)


def lazy_enforcer_reader(parts_builder: ServicePartsBuilder) -> LazyValue[EnforcerReader] | None:
    """Return the service that reads limits of enforcers, or None while the registry is damaged."""
    registry = parts_builder.storage.registry
    if registry is None:
        return None

    def import_and_make_enforcer_reader() -> EnforcerReader:
        from gateway.service.assembly.enforcers import build_enforcer_reader

        return build_enforcer_reader(
            registry, parts_builder.clock, lambda: parts_builder.config, parts_builder.stack
        )

    return LazyValue(import_and_make_enforcer_reader)


def lazy_enforcer_auditor(
    parts_builder: ServicePartsBuilder, budgets: LazyValue[BudgetEvaluator] | None
) -> LazyValue[EnforcerAuditor] | None:
    """Return the service that audits enforcers, or None while the registry is damaged."""
    registry = parts_builder.storage.registry
    if registry is None:
        return None

    def import_and_make_enforcer_auditor() -> EnforcerAuditor:
        from gateway.service.assembly.enforcers import build_enforcer_auditor

        return build_enforcer_auditor(
            registry, parts_builder.storage.ledger, parts_builder.clock, lambda: parts_builder.config, budgets
        )

    return LazyValue(import_and_make_enforcer_auditor)


def build_people_services(parts_builder: ServicePartsBuilder) -> PeopleServices:
    config = parts_builder.config
    storage = parts_builder.storage
    host, _ = split_address(operator_listen_address(config.server) or config.server.listen)
    return PeopleServices(
        registry=storage.registry,
        registry_problem=storage.registry_problem,
        clock=parts_builder.clock,
        hosts=frozenset({host, *console_hosts_of_sign_in(config.oidc)}),
        oidc=parts_builder.sign_ins,
        is_behind_tls=is_behind_tls(config),
        assistants=parts_builder.assistant_sign_ins,
    )


def is_behind_tls(config: Config) -> bool:
    """Return whether the configuration says that browsers use https to a proxy in front of the console."""
    return config.server.operator_plaintext or config.oidc.console.startswith("https:")


def console_hosts_of_sign_in(settings: OidcSettings) -> Sequence[str]:
    """Return the host name in the address to which the OpenID provider sends people back."""
    host = urlsplit(settings.console).hostname if settings.issuer else None
    return (host,) if host else ()


def build_sender_services(parts_builder: ServicePartsBuilder, access: KeyAccess) -> SenderServices:
    storage = parts_builder.storage
    return SenderServices(
        registry=storage.registry,
        registry_problem=storage.registry_problem,
        clock=parts_builder.clock,
        access=access,
        devices=parts_builder.devices,
        fleet=parts_builder.fleet,
        losses=parts_builder.losses,
        listed_devices=ListedDevices(parts_builder.devices, parts_builder.clock),
        clusters=parts_builder.clusters,
        container_files=storage.container_files,
        shares=parts_builder.read_key_shares,
    )


def build_assistant_services(parts_builder: ServicePartsBuilder) -> AssistantServices:
    registry = parts_builder.storage.registry
    counted = None if registry is None else registry.tool_calls
    return AssistantServices(clock=parts_builder.clock, mcp=lambda: parts_builder.config.mcp, counted=counted)


def build_installation_services(
    parts_builder: ServicePartsBuilder, *, version: str, urls: Callable[[], PublicUrls]
) -> InstallationServices:
    storage = parts_builder.storage
    return InstallationServices(
        registry=storage.registry,
        registry_problem=storage.registry_problem,
        clock=parts_builder.clock,
        secret=storage.secret,
        version=version,
        urls=urls,
        leases=storage.leases,
        database=storage.health,
        inflight=parts_builder.inflight,
        copy=storage.copy,
        storage=storage,
        connections=parts_builder.operator_connections,
        event_streams=parts_builder.event_streams,
        settings=lambda: tuple(settings_in_effect(parts_builder.config)),
        config=lambda: parts_builder.config,
        most=lambda limit: parts_builder.config.limit_value(limit),
        answers=lambda: parts_builder.config.answers,
        role_limits=lambda: role_limits(parts_builder.config.roles),
        privacy=lambda: parts_builder.config.privacy,
        branches=lambda: parts_builder.config.work.branch,
        channels=parts_builder.channel_states,
        try_receiver=parts_builder.probe_receiver_status_and_words,
        planted=None if parts_builder.demo_note is None else parts_builder.demo_note.planted,
    )


def lazy_demo_month(
    parts_builder: ServicePartsBuilder, *, version: str, urls: Callable[[], PublicUrls]
) -> LazyValue[DemoMonth[OperatorServices]]:
    """
    Return the demo month, created at first use. It is separate from this server's data, and its modules are
    imported at first use.
    """

    @asynccontextmanager
    async def open_month(folder: Path) -> AsyncIterator[OperatorServices]:
        config = Config(data_dir=folder, spool=SpoolSettings(hold=0.0))
        async with (
            open_storage(config, clock=parts_builder.clock) as storage,
            open_operator_services(
                config, storage, clock=parts_builder.clock, version=version, urls=urls
            ) as services,
        ):
            yield services

    def import_and_make_demo_month() -> DemoMonth[OperatorServices]:
        from gateway.operations.holders.demo_month import DemoMonth

        month = DemoMonth(parts_builder.config.data_dir, open_month, "gateway.service.demo.filling")
        parts_builder.stack.push_async_callback(month.close)
        return month

    return LazyValue(import_and_make_demo_month)
