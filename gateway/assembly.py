"""
Assembles Tollhouse from the storage up: for the server, for commands without one, and for `tollhouse demo`.

Each function is a context manager: what it opened is closed in reverse order at its end, also when a later
part cannot be opened. The only module beside the command line that knows exporters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from exporters.destinations.catalogue import build_routes
from exporters.destinations.upstream import UpstreamContext
from exporters.forwarder import Forwarder, Sync
from exporters.service.billing_drops import ConnectionLocks
from exporters.service.billing_sync import BillingSync
from exporters.service.device_sync import DeviceSync
from exporters.service.events import sent_as
from exporters.service.upstream_client import UpstreamClient, client_of
from gateway.authentication.access import Access, Bearer
from gateway.configuration.secret_file import signing_secret
from gateway.configuration.sections import Config, ConfigError, split_address
from gateway.devices.assignment import DeviceAssignment
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.http.budget import Budget
from gateway.http.connections import Connections, connection_limit
from gateway.http.cors import Cors
from gateway.http.listener import operator_listen
from gateway.http.receiving import ReceivingSlots
from gateway.http.services import Background, OperatorServices, ReceiverServices, Services
from gateway.intake.attribution import Attribution
from gateway.intake.deposits import Deposits
from gateway.intake.intake import Intake
from gateway.intake.merge_window import MergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.publisher import Publisher
from gateway.intake.shadows import Shadows
from gateway.intake.stream_admission import StreamAdmission
from gateway.intake.waiting_counters import WaitingCounters
from gateway.intake.window_sessions import WindowSessions
from gateway.monitoring.health import Health
from gateway.monitoring.limits import Limit
from gateway.monitoring.metrics import Exposition, Metrics, Snapshot
from gateway.monitoring.observers import Observers
from gateway.normalise.formats.langfuse.merger import Merger
from gateway.normalise.options import Options
from gateway.normalise.reading.emails import Emails
from gateway.operator.insights import inspector
from spool import engines
from spool.clock import Clock
from spool.deliveries.values import RouteState
from spool.errors import SpoolDamaged
from spool.installation import derived
from spool.ledger.ledger import CHUNK
from spool.log.protocols import Log, Observer
from spool.log.values import LogStats
from spool.record import Inference
from spool.steady_clock import SteadyClock, doubts
from spool.storage import Storage, StorageOptions
from spool.streams import StreamSize

_log = logging.getLogger(__name__)

RETAIN_EVERY_S = 60.0
AGENT_CACHE_BYTES = 512 << 10  # a laptop has few readers, and memory for other things
AGENT_LEDGER_CHUNK = 512
REGISTRY_PROBLEM = "the key table cannot be read; the log of the start says why"


@asynccontextmanager
async def open_storage(
    config: Config,
    *,
    clock: Clock,
    registry_clock: Clock | None = None,
    observer: Observer | None = None,
    is_agent: bool = False,
    new_registry: bool = False,
) -> AsyncIterator[Storage]:
    """Everything that is kept, see spool.storage; SpoolLocked while another process has it open."""
    storage = await engines.open_storage(
        StorageOptions(
            directory=config.data_dir,
            settings=config.spool,
            clock=clock,
            observer=observer,
            cache_bytes=AGENT_CACHE_BYTES if is_agent else None,
            ledger_tags=config.ledger.tags,
            ledger_chunk=AGENT_LEDGER_CHUNK if is_agent else CHUNK,
            registry_clock=registry_clock,
            new_registry=new_registry,
        )
    )
    try:
        if storage.registry is not None:
            storage.devices.auditor = storage.registry.note_all
        yield storage
    finally:
        await storage.close()


@asynccontextmanager
async def open_operator_services(
    config: Config, storage: Storage, *, clock: Clock, version: str, console_url: Callable[[], str]
) -> AsyncIterator[OperatorServices]:
    """What the operator API works on without a server: no route runs, and nothing is received."""
    async with AsyncExitStack() as stack:
        assembler = _Assembler(config, storage, clock, stack)
        access = await assembler.start_access()
        billing = assembler.billing_sync()
        no_routes = Forwarder(storage.deliveries, storage.log, clock, [])
        yield assembler.operator_services(access, billing, no_routes, version=version, console_url=console_url)


@asynccontextmanager
async def open_services(
    config: Config,
    *,
    clock: Clock,
    version: str,
    console_url: Callable[[], str],
    local: Bearer | None = None,
    observer: Observer | None = None,
) -> AsyncIterator[Services]:
    """
    Everything behind the listeners of a server; its routes run, its `background` is the caller's to run.

    `local` makes it an agent: see gateway.agent. `observer` is notified of commits beside the metrics.
    ConfigError when what the configuration points to is wrong. SpoolDamaged when damage was met that is remembered:
    opening again salvages.
    """
    metrics = Metrics()
    observers = Observers([metrics, observer]) if observer else metrics
    is_agent = local is not None
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            open_storage(config, clock=clock, observer=observers, is_agent=is_agent)
        )
        if storage.registry is None:
            problem = storage.registry_problem
            _log.critical("the key table cannot be read: %s", problem, extra={"action": "registry_damaged"})
            storage = replace(storage, registry_problem=REGISTRY_PROBLEM)
        assembler = _Assembler(config, storage, clock, stack)
        try:
            services = await _assemble(assembler, config, metrics, local, version=version, console_url=console_url)
        except ConfigError:
            raise
        except Exception as error:
            if await storage.is_damage(error):
                raise SpoolDamaged(f"damage was met at the start: {error}") from error
            raise
        yield services


async def _assemble(
    assembler: _Assembler,
    config: Config,
    metrics: Metrics,
    local: Bearer | None,
    *,
    version: str,
    console_url: Callable[[], str],
) -> Services:
    storage, is_agent = assembler.storage, local is not None
    access = await assembler.start_access(local)
    attribution = Attribution(config, secret=assembler.email_secret)
    window, intake_tasks = await assembler.start_intake(attribution, metrics)
    deposits = Deposits(storage.log, attribution)
    receivers = assembler.receiver_services(access, window, metrics)
    billing = assembler.billing_sync()
    # An agent reports its device itself (exporters.device_reporter): it has no table of devices to bring
    # upstream.
    routes = await assembler.start_routes([] if is_agent else assembler.syncs(billing))
    operators = assembler.operator_services(access, billing, routes, version=version, console_url=console_url)
    background: Background = {
        "routes": routes.wait,
        "retention": lambda: _retain(storage.log),
        **intake_tasks,
        "ledger": lambda: storage.ledger.follow(storage.log),
    }
    if not is_agent:  # waking ten times a second drains a laptop's battery
        background["loop lag"] = metrics.lag.run
    if config.publish:
        background["publisher"] = assembler.publisher(deposits).run
    if storage.registry is not None and not is_agent:  # a laptop's findings are its gateway's to make
        background["insights"] = inspector(operators).run
    return Services(
        storage=storage,
        receivers=receivers,
        devices=assembler.devices,
        deposits=deposits,
        stream_admission=assembler.stream_admission(),
        operators=operators,
        health=assembler.health(receivers, routes),
        exposition=assembler.exposition(metrics, receivers, routes),
        poke=routes.poke,
        background=background,
    )


class _Assembler:
    """Makes the parts from what all of them share. What must be closed goes on the stack."""

    def __init__(self, config: Config, storage: Storage, clock: Clock, stack: AsyncExitStack) -> None:
        self._config = config
        self.storage = storage
        self._clock = clock
        self._stack = stack
        self._locks = ConnectionLocks()
        self.email_secret = derived(storage.secret, "e-mails")
        self.devices = DeviceLifecycle(
            storage.devices,
            settings=config.devices,
            clock=clock,
            secret=storage.secret,
            emails=Emails(config.privacy.emails, secret=self.email_secret),
        )

    async def start_access(self, local: Bearer | None = None) -> Access:
        access = Access(
            self.storage.registry,
            self._config.server,
            clock=self._clock,
            devices=self.devices.keys.find,
            local=local,
        )
        await access.start()
        self._stack.push_async_callback(access.stop)
        return access

    async def start_intake(self, attribution: Attribution, metrics: Metrics) -> tuple[MergeWindow, Background]:
        """The way in, and what runs beside it."""
        log, section = self.storage.log, self._config.spool
        device_assignment = DeviceAssignment(self.devices, claimed=metrics.claimed)

        def default_user(call: Inference) -> str | None:
            return attribution.default_user(call, {}, device_assignment.labels(call.device))

        shadows = Shadows(self._clock, default_user=default_user)
        await shadows.remember(log)
        prices = PriceBook.load(self._config.prices)
        sessions = WindowSessions(shadows, self._clock)
        await sessions.start(self.storage.partial_reports)
        counters = WaitingCounters(
            log,
            shadows,
            self._clock,
            wait_s=section.counter_wait,
            max_items=section.pending_items,
            max_bytes=section.pending_bytes,
        )
        await counters.start(self.storage.partial_reports, hold_s=section.hold)
        intake = Intake(
            log,
            attribution=attribution,
            prices=prices,
            shadows=shadows,
            device_assignment=device_assignment,
            counters=counters if section.counter_wait else None,
            sessions=sessions,
            clock=self._clock if isinstance(self._clock, SteadyClock) else None,
        )
        merger = Merger(
            window_s=section.pending_window,
            hold_s=section.hold,
            max_reports=section.pending_items,
            max_bytes=section.pending_bytes,
        )
        window = MergeWindow(self.storage.partial_reports, intake, self._clock, merger)
        await window.start()
        background: Background = {
            "merge window": window.run,
            "shadows": lambda: shadows.follow(log, hold_s=section.hold),
            "counters": counters.run,  # without a wait, too: what waited before a restart is put on record
        }
        return window, background

    def receiver_services(self, access: Access, window: MergeWindow, metrics: Metrics) -> ReceiverServices:
        server, config = self._config.server, self._config
        kept = frozenset(config.privacy.keep_attributes)
        options = Options(keep_attributes=kept, host_id=config.devices.host_id, max_items=server.max_items)
        return ReceiverServices(
            access=access,
            intake=window,
            metrics=metrics,
            clock=self._clock,
            budget=Budget(server.max_inflight_bytes, reserve=server.small_body_reserve, small=server.small_body_bytes),
            max_body_bytes=server.max_body_bytes,
            connections=Connections(connection_limit(server)),
            min_upload_rate=server.min_upload_rate,
            options=options,
            receiving=ReceivingSlots(server.max_grpc_messages),
            cors=Cors(server.cors_origins),
            signing_secret=signing_secret(config.sources),
        )

    def stream_admission(self) -> StreamAdmission:
        return StreamAdmission(self.storage.streams, self.storage.book, self._clock, self._config.spool)

    def billing_sync(self) -> BillingSync:
        """AI cost as billing drops; without `run` it only answers operators."""
        storage = self.storage
        settings = self._config.upstream
        client = client_of(settings, clock=self._clock)
        hours = storage.billing_hours
        billing = BillingSync(storage.ledger, hours, client, settings, self._locks, clock=self._clock)
        self._stack.push_async_callback(billing.close)
        return billing

    def syncs(self, billing: BillingSync) -> list[Sync]:
        upstream = self._config.upstream
        if not upstream.base_url:
            return []
        client = UpstreamClient.of(upstream, clock=self._clock)
        devices = DeviceSync(self.storage.devices, client, clock=self._clock, in_flight=upstream.in_flight)
        return [devices, billing] if upstream.connection_id else [devices]

    async def start_routes(self, syncs: Sequence[Sync]) -> Forwarder:
        config, storage = self._config, self.storage
        context = UpstreamContext(
            log=storage.log,
            streams=storage.streams,
            learn=storage.book.learn,
            locks=self._locks,
            single_writer=frozenset(stream.name for stream in config.streams if stream.single_writer),
        )
        try:
            configs = build_routes(config.upstream, config.destinations, clock=self._clock, context=context)
        except ValueError as error:
            raise ConfigError([str(error)]) from error
        most = config.spool.max_dead_letters
        routes = Forwarder(storage.deliveries, storage.log, self._clock, configs, syncs, max_dead_letters=most)
        self._stack.push_async_callback(routes.stop)
        await routes.start()
        return routes

    def operator_services(
        self,
        access: Access,
        billing: BillingSync,
        routes: Forwarder,
        *,
        version: str,
        console_url: Callable[[], str],
    ) -> OperatorServices:
        config, storage = self._config, self.storage
        host, _ = split_address(operator_listen(config.server) or config.server.listen)
        return OperatorServices(
            log=storage.log,
            deliveries=storage.deliveries,
            streams=storage.streams,
            billing=billing,
            registry=storage.registry,
            registry_problem=storage.registry_problem,
            access=access,
            clock=self._clock,
            secret=storage.secret,
            version=version,
            hosts=frozenset({host}),
            console_url=console_url,
            wake=lambda _: routes.poke(),
            devices=self.devices,
            syncs=routes.syncs,
            ledger=storage.ledger,
            prices=lambda: PriceBook.load(config.prices),
            events_sent_as=lambda type: sent_as(config.upstream, type),
        )

    def publisher(self, deposits: Deposits) -> Publisher:
        return Publisher(
            self._config.publish,
            ledger=self.storage.ledger,
            deposits=deposits,
            streams=self.storage.streams,
            book=self.storage.book,
            clock=self._clock,
        )

    def health(self, receivers: ReceiverServices, routes: Forwarder) -> Health:
        registry = self.storage.registry
        return Health(
            self.storage.log,
            self.storage.deliveries,
            clock=self._clock,
            keys_read=lambda: registry is not None,
            closing=lambda: receivers.in_hand.closed,
            syncs=routes.syncs,
        )

    def exposition(self, metrics: Metrics, receivers: ReceiverServices, routes: Forwarder) -> Exposition:
        storage, devices = self.storage, self.devices

        async def snapshot() -> Snapshot:
            stats = await storage.log.stats()
            step_s, held_s = doubts(self._clock)
            states = await storage.deliveries.routes()
            return Snapshot(
                clock_step_s=step_s,
                clock_held_s=held_s,
                stats=stats,
                routes=[*states, *routes.syncs()],
                devices=devices.counts(),
                failed_attempts=receivers.access.failed_attempts,
                limits=self._limits(stats, receivers, states, await storage.streams.sizes()),
            )

        return Exposition(metrics, snapshot, self._clock.monotonic)

    def _limits(
        self, stats: LogStats, receivers: ReceiverServices, routes: Sequence[RouteState], streams: Sequence[StreamSize]
    ) -> list[Limit]:
        server, section = self._config.server, self._config.spool
        budget = receivers.budget
        return [
            Limit("server.max_inflight_bytes", server.max_inflight_bytes, budget.general.held),
            Limit("server.small_body_reserve", server.small_body_reserve, budget.reserve.held),
            Limit("server.max_grpc_messages", server.max_grpc_messages, receivers.receiving.count),
            Limit("server.max_connections", receivers.connections.limit, receivers.connections.count),
            Limit("spool.max_bytes", section.max_bytes, stats.bytes),
            Limit("spool.max_dead_letters", section.max_dead_letters, max((route.dead for route in routes), default=0)),
            Limit("spool.max_streams", section.max_streams, len(streams)),
            Limit("spool.max_stream_bytes", section.max_stream_bytes, sum(stream.bytes for stream in streams)),
            Limit("spool.duplicate_ids", section.duplicate_ids, stats.duplicate_ids),
            Limit("spool.pending_items", section.pending_items, receivers.intake.waiting),
            Limit("devices.max", self._config.devices.max, len(self.devices.table)),
        ]


async def _retain(log: Log) -> None:
    while True:
        await log.retain()
        await asyncio.sleep(RETAIN_EVERY_S)
