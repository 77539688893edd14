"""
Opens the services over a storage, from the bottom up: those of a server, and those of commands without one.

Each function is a context manager: what it opened is closed in reverse order at its end, also when a later
part cannot be opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from exporters.forwarder import Forwarder
from exporters.service.billing_sync import BillingSync
from gateway.assembly import monitoring
from gateway.assembly.holders.assistants import assistant_services
from gateway.assembly.holders.installation import installation_services
from gateway.assembly.holders.money import money_services
from gateway.assembly.holders.people import people_services
from gateway.assembly.holders.senders import sender_services
from gateway.assembly.holders.spool import spool_services
from gateway.assembly.money import bill, evaluate_budgets, keep_rows, until
from gateway.assembly.parts import Assembler
from gateway.assembly.reload import Reload
from gateway.assembly.routes import start_routes, syncs_of
from gateway.assembly.storage import open_storage
from gateway.authentication.access import Access, Bearer
from gateway.configuration.sections import Config, ConfigError
from gateway.first_use import Once, import_here, imported
from gateway.http.holders.installation import Urls
from gateway.http.holders.receivers import StatusServices, TopicServices
from gateway.http.services import Background, OperatorServices, Services
from gateway.intake.attribution import Attribution
from gateway.intake.billing_connections import BillingConnections
from gateway.monitoring.late_reports import KeptLateReports, LateReportCounter
from gateway.monitoring.memory import make_full_rounds
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.observers import Observers
from spool.clock import Clock
from spool.container_files.files import ContainerFiles
from spool.errors import SpoolDamaged, SpoolError
from spool.log.protocols import Log, Observer
from spool.packed.native import NativeUse, use
from spool.settings import SpoolSettings
from spool.storage import Storage

if TYPE_CHECKING:
    from gateway.http.holders.demo_month import DemoMonth
    from gateway.statements.puller import StatementPuller

_log = logging.getLogger(__name__)

RETAIN_EVERY_S = 60.0
FIRST_ADVICE_S = 60.0
FIRST_INSPECTION_S = 30.0  # after a start, routes need some time until their state is known
REGISTRY_PROBLEM = "the key table cannot be read; the log of the start says why"


@asynccontextmanager
async def open_operator_services(
    config: Config, storage: Storage, *, clock: Clock, version: str, urls: Callable[[], Urls]
) -> AsyncIterator[OperatorServices]:
    """Open the services of the operator API without a server: no route runs, and nothing is received."""
    async with AsyncExitStack() as stack:
        assembler = Assembler(config, storage, clock, stack)
        access = await assembler.start_access()
        billing = assembler.billing_sync(config)
        no_routes = Forwarder(storage.deliveries, storage.log, clock, [])
        operators = _operator_services(assembler, access, billing, no_routes, version=version, urls=urls)
        await _load_allocation(operators)
        yield operators


@asynccontextmanager
async def open_services(
    config: Config,
    *,
    clock: Clock,
    version: str,
    urls: Callable[[], Urls],
    local: Bearer | None = None,
    observer: Observer | None = None,
) -> AsyncIterator[Services]:
    """
    Open everything behind the listeners of a server; its routes run, its `background` is the caller's to run.

    `local` makes it an agent: see gateway.agent. `observer` is notified of commits beside the metrics.
    ConfigError when what the configuration points to is wrong. SpoolDamaged when damage was met that is
    remembered: opening again salvages.
    """
    metrics = Metrics(_named_sources)
    late_reports = LateReportCounter(clock)
    observers = Observers([metrics, late_reports, *([observer] if observer else [])])
    is_agent = local is not None
    native = compiled_module(config, metrics)
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            open_storage(config, clock=clock, observer=observers, is_agent=is_agent, native=native.native)
        )
        if storage.registry is None:
            problem = storage.registry_problem
            _log.critical("the key table cannot be read: %s", problem, extra={"action": "registry_damaged"})
            storage = replace(storage, registry_problem=REGISTRY_PROBLEM)
        assembler = Assembler(config, storage, clock, stack, native=native)
        if storage.registry is not None:
            assembler.late_reports = KeptLateReports(late_reports, storage.registry.late_reports)
        try:
            services = await _assemble(assembler, config, metrics, local, version=version, urls=urls)
        except ConfigError:
            raise
        except Exception as error:
            if await storage.is_damage(error):
                raise SpoolDamaged(f"damage was met at the start: {error}") from error
            raise
        yield services


def compiled_module(config: Config, metrics: Metrics) -> NativeUse:
    """The compiled module, if it is wanted and there; one line in the log says why it is not."""
    native = use(config.server.native)
    metrics.watch_native(native)
    if not native.is_on and config.server.native:
        _log.info(
            "the compiled module is not used: %s",
            native.reason,
            extra={"action": "native_missing", "reason": native.reason},
        )
    return native


async def _assemble(
    assembler: Assembler,
    config: Config,
    metrics: Metrics,
    local: Bearer | None,
    *,
    version: str,
    urls: Callable[[], Urls],
) -> Services:
    storage = assembler.storage
    is_agent = local is not None
    native = assembler.native.native
    access = await assembler.start_access(local)
    if not is_agent:
        await assembler.billing_connections.establish()
        await assembler.start_sign_ins(metrics)
    learning = None
    if native is not None and not is_agent:  # an agent sees too few spans
        from gateway.assembly.span_memory import learn, span_memory

        assembler.memory = span_memory(native, metrics)
        learning = partial(learn, assembler.memory)
    attribution = Attribution(config, secret=storage.secret)
    intake, window, intake_tasks = await assembler.start_intake(attribution, metrics)
    assembler.tell_settings(intake.prices)
    deposits = assembler.deposits(attribution)
    receivers = assembler.receiver_services(access, window, metrics, assembler.start_workers(metrics))
    billing = assembler.billing_sync(config)
    # An agent reports its device itself (exporters.device_reporter): it has no table of devices to bring
    # upstream.
    routes = await start_routes(assembler, [] if is_agent else syncs_of(assembler, config, billing))
    operators = _operator_services(assembler, access, billing, routes, version=version, urls=urls)
    await _load_allocation(operators)
    if not (is_agent or storage.is_shared):
        operators.installation.demo = demo_month(assembler, version=version, urls=urls)
    publisher = assembler.publisher(deposits)
    spend = None if is_agent else monitoring.spend(assembler)
    exposition = monitoring.exposition(
        assembler, metrics, receivers, routes, operators.money.budgets, operators.money.reconciler, spend
    )
    background: Background = {
        "routes": routes.wait,
        **intake_tasks,
    }
    if storage.is_shared:
        background["reach of the ledger"] = lambda: storage.ledger.watch(storage.log)
    # Of several gateways on one storage, one runs these at a time.
    alone: Background = {
        "retention": lambda: _retain(storage.log, assembler.billing_connections),
        "container files": lambda: _retain_files(storage.container_files, assembler),
        "ledger": lambda: storage.ledger.follow(storage.log),
        "rollups": storage.ledger.roll_up,
        "publisher": publisher.run,
    }
    if assembler.late_reports is not None:
        background["late reports"] = assembler.late_reports.run
    if spend is not None:
        background["spend on /metrics"] = spend.run
    if learning is not None:
        background["memory of spans"] = learning
    if not is_agent:  # waking ten times a second drains a laptop's battery
        background["loop lag"] = metrics.lag.run
        questions = operators.installation.questions
        background["full rounds of the collector"] = lambda: make_full_rounds(questions.until_idle)
    if storage.registry is not None and not is_agent:  # a laptop's findings are its gateway's to make
        alone["insights"] = lambda: _inspect(operators)
        if operators.money.statement_puller is not None:
            alone["statements"] = partial(
                _pull, operators.money.statement_puller, lambda: bool(assembler.config.reconciliation.pull)
            )
        if operators.money.biller is not None:
            alone["billed money"] = partial(bill, operators.money.biller, storage.registry.statements)
        if operators.money.row_book is not None:
            in_costs = storage.registry.connections_in_costs
            prices = assembler.config.container.price
            alone["rows of connections"] = partial(keep_rows, operators.money.row_book, in_costs, prices)
        alone["scheduled reports"] = lambda: _report(operators)
        alone["recommendations"] = lambda: _advise(operators)
        if assembler.notifier is not None:
            alone["notifications"] = assembler.notifier.run
        if assembler.sign_ins is not None:
            background["sign-in"] = assembler.sign_ins.run
        if operators.money.budgets is not None:
            background["budgets"] = partial(
                evaluate_budgets, operators.money.budgets, storage.registry.budgets
            )
        background["definitions in force"] = operators.money.require_publishing().follow
        alone["publish jobs"] = operators.money.require_publishing().run
        alone["devices"] = assembler.devices.run
    background |= {name: partial(storage.leases.run, name, run) for name, run in alone.items()}
    background["ledger beside the log"] = partial(
        storage.leases.run, "ledger", partial(_mend, assembler, operators)
    )
    return Services(
        storage=storage,
        receivers=receivers,
        topics=TopicServices(
            storage=storage,
            devices=assembler.devices,
            clusters=assembler.clusters,
            deposits=deposits,
            stream_admission=assembler.stream_admission(),
            billing_connections=assembler.billing_connections,
        ),
        status=StatusServices(health=monitoring.health(assembler, receivers, routes), exposition=exposition),
        operators=operators,
        background=background,
        reload=Reload(
            assembler=assembler,
            receivers=receivers,
            attribution=attribution,
            intake=intake,
            publisher=publisher,
            routes=routes,
            operators=operators,
            is_agent=is_agent,
        ),
    )


def _operator_services(
    parts: Assembler,
    access: Access,
    billing: BillingSync,
    routes: Forwarder,
    *,
    version: str,
    urls: Callable[[], Urls],
) -> OperatorServices:
    return OperatorServices(
        spool=spool_services(parts, routes),
        money=money_services(parts, billing, urls),
        people=people_services(parts),
        senders=sender_services(parts, access),
        assistants=assistant_services(parts),
        installation=installation_services(parts, version=version, urls=urls),
    )


def demo_month(
    parts: Assembler, *, version: str, urls: Callable[[], Urls]
) -> Once[DemoMonth[OperatorServices]]:
    """The demo month beside this server's data; what it needs is imported when it is first asked."""

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[OperatorServices]:
        config = Config(data_dir=folder, spool=SpoolSettings(hold=0.0))
        async with (
            open_storage(config, clock=parts.clock) as storage,
            open_operator_services(
                config, storage, clock=parts.clock, version=version, urls=urls
            ) as services,
        ):
            yield services

    def make() -> DemoMonth[OperatorServices]:
        from gateway.http.holders.demo_month import DemoMonth

        month = DemoMonth(parts.config.data_dir, opened)
        parts.stack.push_async_callback(month.close)
        return month

    return Once(make)


def _named_sources() -> set[str]:
    """Every source that a format or a product names. The first commit may come while a thread imports their readers."""
    formats = import_here("gateway.normalise.formats.list")
    products = import_here("gateway.normalise.otlp.products")
    return {*formats.BY_NAME, *(product.source for product in products.PRODUCTS)}


async def _inspect(operators: OperatorServices) -> None:
    """Run the detectors again and again; they are imported for the first run, some time after the start."""
    await asyncio.sleep(FIRST_INSPECTION_S)
    insights = await imported("gateway.operator.insights")
    await insights.inspector(operators).run()


async def _mend(assembler: Assembler, operators: OperatorServices) -> None:
    """Count again what the ledger missed of the log."""
    mending = await imported("spool.ledger.mending")
    storage = assembler.storage
    changed = operators.money.sums_changed
    await mending.LedgerMender(
        ledger=storage.ledger, log=storage.log, clock=assembler.clock, changed=changed
    ).run()


async def _report(operators: OperatorServices) -> None:
    """Send scheduled reports, once there is one."""
    await until(lambda: bool(operators.money.require_registry().scheduled_reports.count()))
    reports = await imported("gateway.operator.costs.scheduled_reports")
    await reports.sender(operators).run()


async def _advise(operators: OperatorServices) -> None:
    """Look for savings again and again, as `_inspect` does for findings."""
    await asyncio.sleep(FIRST_ADVICE_S)
    await imported("gateway.recommendations.adviser")
    await operators.money.require_adviser().run()


async def _pull(puller: Once[StatementPuller], configured: Callable[[], bool]) -> None:
    """Pull reports that are due, once the configuration names one."""
    await until(configured)
    await imported("gateway.assembly.statements")
    await puller().run()


async def _load_allocation(operators: OperatorServices) -> None:
    """Put in force what was published before; nothing while the registry is damaged."""
    if operators.money.publishing is not None:
        await operators.money.publishing.load()


async def _retain_files(files: ContainerFiles, assembler: Assembler) -> None:
    while True:
        try:
            await files.retain(has_upstream=bool(assembler.config.upstream.base_url))
        except (SpoolError, OSError) as error:
            _log.warning(
                "files of container metrics were not removed: %s",
                error,
                extra={"action": "files_not_removed"},
            )
        await asyncio.sleep(RETAIN_EVERY_S)


async def _retain(log: Log, connections: BillingConnections) -> None:
    while True:
        await log.retain()
        await connections.trim()
        await asyncio.sleep(RETAIN_EVERY_S)
