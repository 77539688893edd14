"""
Opens the services of a server on a storage. Each service is opened after the services that it needs.

At the end everything is closed in reverse order, even if a later part could not be opened.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.core.first_use import LazyValue, import_blocking
from gateway.intake.attribution import RecordAttributor
from gateway.intake.sender_fields import SenderFieldCounter, SenderFieldSaver
from gateway.monitoring.late_reports import LateReportCounter, LateReportSaver
from gateway.monitoring.metrics import ProcessMetrics
from gateway.monitoring.sender_hours import SenderHoursTracker
from gateway.operations.holders.operators import PublicUrls
from gateway.operations.services import AllServices
from gateway.operations.single_receivers import ServicesOfSingleReceivers
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.assembly import monitoring
from gateway.service.assembly.background import (
    Task,
    gateway_tasks,
    leased_task,
    server_tasks,
    task_runners_by_name,
)
from gateway.service.assembly.demo import send_laptop_heartbeats
from gateway.service.assembly.money import make_own_verdicts_reader
from gateway.service.assembly.operators import build_operator_services, lazy_demo_month, load_allocation
from gateway.service.assembly.parts import ServicePartsBuilder, reload_price_overrides_on_change
from gateway.service.assembly.people_above import UpstreamPeopleLink
from gateway.service.assembly.reload import ConfigReloader
from gateway.service.assembly.routes import build_syncs, start_routes
from gateway.service.assembly.storage import open_storage
from spool.clock import Clock
from spool.errors import SpoolDamaged
from spool.log.protocols import CommitObserver
from spool.log.values import Commit
from spool.loops import FailedItems
from spool.packed.native import CompiledModuleUse, NativeModule, load_if_enabled

if TYPE_CHECKING:
    from gateway.devices.own_verdicts import OwnVerdicts
    from gateway.normalise.otlp.decoding.compiled_decoder import CompiledTracesDecoder
    from spool.devices.device import Device

_log = logging.getLogger(__name__)

REGISTRY_PROBLEM = "the key table cannot be read; see the log of the start for the reason"


async def no_verdicts(device: Device) -> OwnVerdicts | None:
    return None


async def relay_to_nobody(keys: Sequence[bytes], addresses: Mapping[str, int]) -> Collection[str] | None:
    return ()


@asynccontextmanager
async def open_services(
    config: Config,
    *,
    clock: Clock,
    version: str,
    urls: Callable[[], PublicUrls],
    local: AuthenticatedKey | None = None,
    observer: CommitObserver | None = None,
) -> AsyncIterator[AllServices]:
    """
    Open everything behind the listeners of a server. The routes start to run. The caller must run `background`.

    `local` makes this server an agent (gateway.devices.agent). `observer` is notified of commits in addition
    to the metrics. Raises ConfigError for an error in a file that the configuration names. Raises
    SpoolDamaged if damage was found. The damage is remembered, so the next opening salvages what is readable.
    """
    metrics = ProcessMetrics(_all_source_names)
    late_reports = LateReportCounter(clock)
    observers = CommitObservers([metrics, late_reports, *([observer] if observer else [])])
    is_agent = local is not None
    native = load_compiled_module(config, metrics)
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            open_storage(config, clock=clock, observer=observers, is_agent=is_agent, native=native.native)
        )
        storage = replace(storage, failed_items=FailedItems(clock))
        if storage.registry is None:
            problem = storage.registry_problem
            _log.critical("the key table cannot be read: %s", problem, extra={"action": "registry_damaged"})
            storage = replace(storage, registry_problem=REGISTRY_PROBLEM)
        assembler = ServicePartsBuilder(config, storage, clock, stack, native=native)
        if storage.registry is not None:
            if not is_agent:
                assembler.sender_hours = SenderHoursTracker(storage.registry.sender_hours, clock)
                assembler.sender_fields = SenderFieldSaver(
                    SenderFieldCounter(clock), storage.registry.sender_fields
                )
            assembler.late_reports = LateReportSaver(late_reports, storage.registry.late_reports)
        try:
            services = await _assemble_services(assembler, config, metrics, local, version=version, urls=urls)
        except ConfigError:
            raise
        except Exception as error:
            if await storage.is_damage(error):
                raise SpoolDamaged(f"damage was found at the start: {error}") from error
            raise
        yield services


def load_compiled_module(config: Config, metrics: ProcessMetrics) -> CompiledModuleUse:
    """
    Return the compiled module if it is enabled and installed. If it is installed but cannot be used, a log line says
    why.
    """
    native = load_if_enabled(config.server.native)
    metrics.watch_native(native)
    if not native.is_on and native.is_installed:
        _log.warning(
            "the compiled module cannot be used: %s",
            native.reason,
            extra={"action": "native_missing", "reason": native.reason},
        )
    return native


async def _assemble_services(
    parts_builder: ServicePartsBuilder,
    config: Config,
    metrics: ProcessMetrics,
    local: AuthenticatedKey | None,
    *,
    version: str,
    urls: Callable[[], PublicUrls],
) -> AllServices:
    storage = parts_builder.storage
    is_agent = local is not None
    access = await parts_builder.start_access(local)
    if parts_builder.sender_hours is not None:
        access.newest_records = parts_builder.sender_hours.newest_by_key
    if not is_agent:
        await _start_gateway_parts(parts_builder, metrics)
    people = storage.ledger.people
    attribution = RecordAttributor(
        config, secret=storage.secret, persons=None if people is None else people.persons
    )
    intake, window, intake_tasks = await parts_builder.start_intake(attribution, metrics, access)
    parts_builder.publish_setting_digests(intake.prices)
    deposits = parts_builder.build_record_deposits(attribution)
    receivers = parts_builder.receiver_services(access, window, metrics)
    billing = parts_builder.build_billing_sync(config)
    # An agent sends no table of devices, because it reports its own device (exporters.device_reporter).
    routes = await start_routes(
        parts_builder, [] if is_agent else build_syncs(parts_builder, config, billing)
    )
    operators = build_operator_services(parts_builder, access, billing, routes, version=version, urls=urls)
    await load_allocation(operators)
    if not (is_agent or storage.is_shared):
        operators.installation.demo = lazy_demo_month(parts_builder, version=version, urls=urls)
    publisher = parts_builder.build_publisher(deposits)
    spend = None if is_agent else monitoring.build_spend_series(parts_builder)
    exposition = monitoring.build_exposition(parts_builder, metrics, receivers, routes, operators, spend)
    tasks = [*server_tasks(parts_builder, operators), leased_task("publisher", publisher.run)]
    relay = relay_to_nobody
    if storage.registry is not None:
        people_link = UpstreamPeopleLink(parts_builder, storage.registry, is_agent=is_agent)
        relay = people_link.try_send_addresses_upstream
        tasks.append(Task("people above", people_link.run))
        tasks.append(
            Task(
                "own prices",
                partial(reload_price_overrides_on_change, intake, parts_builder, storage.registry),
            )
        )
    if not is_agent:
        tasks += gateway_tasks(parts_builder, operators, metrics, receivers.turns)
    if parts_builder.demo_note is not None:
        laptops = partial(
            send_laptop_heartbeats, parts_builder.demo_note, parts_builder.devices, parts_builder.clock
        )
        tasks.append(Task("laptops of the demo", laptops))
    if spend is not None:
        tasks.append(Task("spend on /metrics", spend.run))
    return AllServices(
        storage=storage,
        receivers=receivers,
        single=ServicesOfSingleReceivers(
            ledger=storage.ledger,
            log=storage.log,
            streams=storage.streams,
            book=storage.book,
            is_shared=storage.is_shared,
            reports=storage.clusters,
            container_files=storage.container_files,
            secret=storage.secret,
            upload_expectations_of_key=access.upload_expectations_of_key,
            devices=parts_builder.devices,
            clusters=parts_builder.clusters,
            deposits=deposits,
            stream_admission=parts_builder.build_stream_admission(),
            billing_connections=parts_builder.billing_connections,
            is_unmapped=parts_builder.is_unmapped,
            own_verdicts=no_verdicts
            if is_agent
            else make_own_verdicts_reader(parts_builder, operators.money.budgets),
            relay_addresses=relay,
            health=monitoring.build_health(parts_builder, receivers, routes),
            exposition=exposition,
        ),
        operators=operators,
        background={**intake_tasks, **task_runners_by_name(tasks, storage.leases)},
        reload=ConfigReloader(
            assembler=parts_builder,
            receivers=receivers,
            attribution=attribution,
            intake=intake,
            publisher=publisher,
            routes=routes,
            operators=operators,
            is_agent=is_agent,
        ),
    )


async def _start_gateway_parts(parts_builder: ServicePartsBuilder, metrics: ProcessMetrics) -> None:
    """Start the parts that an agent does not have. An agent reads too few spans for a compiled decoder."""
    await parts_builder.billing_connections.create_configured_and_clean_up()
    await parts_builder.start_sign_ins(metrics)
    native = parts_builder.native.native
    if native is not None:
        parts_builder.compiled_decoder = _lazy_compiled_decoder(native, metrics)


def _lazy_compiled_decoder(native: NativeModule, metrics: ProcessMetrics) -> LazyValue[CompiledTracesDecoder]:
    """Return a decoder that is created at its first use, because a start imports no readers of spans."""

    def make_compiled_decoder() -> CompiledTracesDecoder:
        from gateway.normalise.otlp.decoding.compiled_decoder import CompiledTracesDecoder

        decoder = CompiledTracesDecoder(native)
        metrics.watch_decoded_spans(decoder.spans)
        return decoder

    return LazyValue(make_compiled_decoder)


def _all_source_names() -> set[str]:
    """
    Return every source that a format or a product names, without importing the readers. A thread may still
    import them when the first commit arrives.
    """
    import_blocking("gateway.normalise.formats.list")
    import_blocking("gateway.normalise.otlp.products")
    from gateway.normalise.formats.list import BY_NAME
    from gateway.normalise.otlp.products import PRODUCTS

    return {*BY_NAME, *(product.source for product in PRODUCTS)}


class CommitObservers:
    """Passes each notification on to several observers, in order."""

    def __init__(self, observers: Sequence[CommitObserver]) -> None:
        self._observers = observers

    def note_commit(self, commit: Commit) -> None:
        for observer in self._observers:
            observer.note_commit(commit)
