"""
The composition root: builds the house from the bottom up, opens its doors, and takes it down in reverse.

Started by `tollhouse serve`; tests start it the same way on port 0.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from exporters import routes as outbound
from exporters.routes import Routes
from exporters.service import topics as outbound_topics
from exporters.service.billing import Lanes
from exporters.service.billing_sync import BillingSync
from gateway.addresses.application import application, operator_application
from gateway.addresses.paths import CONSOLE
from gateway.authentication.access import Access, Bearer
from gateway.configuration.secret_file import signing_secret
from gateway.configuration.sections import Config, ConfigError, split_address
from gateway.devices.naming import Naming
from gateway.devices.registrar import Registrar
from gateway.http import bodies
from gateway.http.cors import Cors
from gateway.http.listener import Listener, operator_listen, tls_context
from gateway.intake.attribution import Attribution
from gateway.intake.deposits import Deposits
from gateway.intake.intake import Intake
from gateway.intake.merge_window import MergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.publisher import Publisher
from gateway.intake.shadows import Shadows
from gateway.monitoring.health import Health
from gateway.monitoring.metrics import Exposition, Metrics, Snapshot
from gateway.monitoring.observers import Observers
from gateway.monitoring.supervisor import Supervisor
from gateway.normalise.formats.langfuse.merger import Merger
from gateway.normalise.options import Options
from gateway.operator.insights import inspector
from gateway.operator.offline import devices_of
from gateway.operator.services import OperatorServices
from gateway.operator.socket import OperatorSocket
from gateway.receivers.otlp_grpc import GrpcServer
from gateway.services import ReceiverServices, Services
from spool.clock import Clock, SystemClock
from spool.errors import RegistryDamaged
from spool.installation import derived
from spool.log.protocols import Observer
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.sqlite import SqliteSpool, open_spool
from spool.sqlite.billing_hours import SqliteBillingHours
from spool.sqlite.ledger.ledger import CHUNK as LEDGER_CHUNK
from spool.sqlite.ledger.ledger import Ledger
from spool.sqlite.log.log import CACHE_BYTES
from spool.sqlite.registry.store import open_registry

_log = logging.getLogger(__name__)

DRAIN_S = 10.0  # what requests in hand get to finish when the house stops
CUT_S = 2.0  # and calls of gRPC after that: all waits of a stop together stay under 30 s
RETAIN_EVERY_S = 60.0
FIRST_KEY = "First key"
AGENT_CACHE_BYTES = 512 << 10  # a laptop has few readers, and memory for other things
AGENT_LEDGER_CHUNK = 512


class App:
    """One running Tollhouse. `start`, then `failure` or whatever else ends it, then `stop`."""

    def __init__(
        self,
        config: Config,
        *,
        version: str,
        clock: Clock | None = None,
        local: Bearer | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`local` makes it an agent: see gateway.agent. `observer` hears of commits beside the metrics."""
        self._config = config
        self._local = local
        self._observer = observer
        self._version = version
        self._clock = clock or SystemClock()
        self._supervisor = Supervisor()
        self._lanes = Lanes()
        self._stack = AsyncExitStack()
        self._services: Services | None = None
        self.url = ""
        self.operator_url = ""
        self.grpc_address = ""  # "" when gRPC is off

    async def start(self) -> None:
        """
        Ready to take requests when it returns; when a step fails, what was started is stopped again.

        SpoolError when the data directory cannot be had, OSError when an address or a file cannot, ConfigError when
        what the configuration points to is wrong.
        """
        try:
            self._services = await self._assemble()
            await self._open_doors(self._services)
        except BaseException:
            await self._stack.aclose()
            raise
        where = {"url": self.url, "grpc": self.grpc_address, "operator_url": self.operator_url}
        _log.info("ready", extra={"action": "ready", "version": self._version, **where})

    async def failure(self) -> str:
        """Wait until a background task dies; its name."""
        return await self._supervisor.failure()

    async def stop(self) -> None:
        """Refuse new requests, finish those in hand, settle, close."""
        _log.info("stopping", extra={"action": "stopping"})
        await self._stack.aclose()
        _log.info("stopped", extra={"action": "stopped"})

    async def first_key(self) -> str | None:
        """A new house's first secret; None when there are keys already."""
        registry = self.services.registry
        if registry is None or registry.keys.all() or self._config.server.api_key_file:
            return None
        _, secret = await registry.keys.create(
            name=FIRST_KEY, use_cases=[SEND_AI_TELEMETRY], actor=Actor("tollhouse serve", "local")
        )
        return secret

    async def reload(self) -> None:
        """Take over changed secret files and try parked routes again."""
        await self.services.receivers.access.flush()
        self.services.poke()
        _log.info("read secrets again", extra={"action": "reloaded"})

    @property
    def services(self) -> Services:
        """What stands behind the doors, once it has started."""
        if self._services is None:
            raise RuntimeError("the app has not started")
        return self._services

    async def _assemble(self) -> Services:
        """The rooms behind the doors, from the disk up."""
        metrics = Metrics()
        spool = await self._open_spool(metrics)
        ledger = await self._open_ledger(spool)
        registry = await self._open_registry(spool)
        devices = devices_of(spool, registry, self._config, self._clock)
        access = await self._open_access(registry, devices)
        attribution = Attribution(self._config, secret=derived(spool.secret, "e-mails"))
        naming = Naming(devices, claimed=metrics.claimed)
        shadows = Shadows(self._clock, stand_in=lambda call: attribution.stand_in(call, {}, naming.labels(call.device)))
        window = await self._open_intake(spool, attribution=attribution, naming=naming, shadows=shadows)
        deposits = Deposits(spool.log, attribution)
        receivers = self._receiver_services(access, window, metrics)
        billing = billing_of(self._config, spool, ledger, lanes=self._lanes, clock=self._clock)
        self._stack.push_async_callback(billing.close)
        routes = await self._open_routes(spool, billing)
        operators = self._operator_services(spool, registry, access, routes, ledger, devices, billing)
        self._stack.push_async_callback(self._supervisor.stop)
        self._supervisor.start("routes", routes.wait())
        self._supervisor.start("retention", self._retain(spool))
        if self._local is None:  # ten looks a second are too many for a laptop that sleeps
            self._supervisor.start("loop lag", metrics.lag.run())
        self._supervisor.start("merge window", window.run())
        self._supervisor.start("shadows", shadows.follow(spool.log, hold_s=self._config.spool.hold))
        self._supervisor.start("ledger", ledger.follow(spool.log))
        if self._config.publish:
            self._supervisor.start("publisher", self._publisher(spool, ledger, deposits).run())
        if registry is not None and self._local is None:  # a laptop's findings are its gateway's to make
            self._supervisor.start("insights", inspector(operators).run())
        return Services(
            spool=spool,
            registry=registry,
            receivers=receivers,
            ledger=ledger,
            devices=devices,
            deposits=deposits,
            operators=operators,
            health=self._health(spool, registry, receivers, routes),
            exposition=self._exposition(metrics, spool, routes, devices, access),
            poke=routes.poke,
        )

    async def _open_spool(self, metrics: Metrics) -> SqliteSpool:
        spool = await open_spool(
            self._config.data_dir,
            settings=self._config.spool,
            clock=self._clock,
            observer=Observers([metrics, self._observer]) if self._observer else metrics,
            cache_bytes=CACHE_BYTES if self._local is None else AGENT_CACHE_BYTES,
        )
        self._stack.push_async_callback(spool.close)
        return spool

    async def _open_ledger(self, spool: SqliteSpool) -> Ledger:
        chunk = LEDGER_CHUNK if self._local is None else AGENT_LEDGER_CHUNK
        ledger = await Ledger.open(self._config.data_dir, clock=self._clock, tags=self._config.ledger.tags, chunk=chunk)
        self._stack.push_async_callback(ledger.close)
        spool.log.holders.append(ledger.needs)
        return ledger

    async def _open_registry(self, spool: SqliteSpool) -> Registry | None:
        try:
            registry = await open_registry(self._config.data_dir, secret=spool.secret, clock=self._clock)
        except RegistryDamaged as error:
            _log.critical("the key table cannot be read: %s", error, extra={"action": "registry_damaged"})
            return None
        self._stack.push_async_callback(registry.close)
        return registry

    async def _open_access(self, registry: Registry | None, devices: Registrar) -> Access:
        find = devices.keys.find
        access = Access(registry, self._config.server, clock=self._clock, devices=find, local=self._local)
        await access.start()
        self._stack.push_async_callback(access.stop)
        return access

    async def _open_intake(
        self, spool: SqliteSpool, *, attribution: Attribution, naming: Naming, shadows: Shadows
    ) -> MergeWindow:
        await shadows.remember(spool.log)
        prices = PriceBook.load(self._config.prices)
        intake = Intake(spool.log, attribution=attribution, prices=prices, shadows=shadows, naming=naming)
        section = self._config.spool
        merger = Merger(
            window_s=section.pending_window,
            hold_s=section.hold,
            max_reports=section.pending_items,
            max_bytes=section.pending_bytes,
        )
        window = MergeWindow(spool.partial_reports, intake, self._clock, merger)
        await window.start()
        return window

    async def _open_routes(self, spool: SqliteSpool, billing: BillingSync) -> Routes:
        syncs = self._syncs(spool, billing)
        routes = Routes(spool.deliveries, spool.log, self._clock, self._route_configs(spool), syncs)
        self._stack.push_async_callback(routes.stop)
        await routes.start()
        return routes

    def _publisher(self, spool: SqliteSpool, ledger: Ledger, deposits: Deposits) -> Publisher:
        return Publisher(
            self._config.publish,
            ledger=ledger,
            deposits=deposits,
            streams=spool.streams,
            book=spool.book,
            clock=self._clock,
        )

    def _receiver_services(self, access: Access, window: MergeWindow, metrics: Metrics) -> ReceiverServices:
        config, server = self._config, self._config.server
        return ReceiverServices(
            access=access,
            intake=window,
            metrics=metrics,
            clock=self._clock,
            budget=bodies.Budget(server.max_inflight_bytes),
            max_body_bytes=server.max_body_bytes,
            options=Options(keep_attributes=frozenset(config.privacy.keep_attributes), host_id=config.devices.host_id),
            cors=Cors(server.cors_origins),
            signing_secret=signing_secret(config.sources),
        )

    def _route_configs(self, spool: SqliteSpool) -> list[outbound.RouteConfig]:
        single_writer = frozenset(stream.name for stream in self._config.streams if stream.single_writer)
        rooms = outbound_topics.Rooms(
            log=spool.log,
            streams=spool.streams,
            learn=spool.book.learn,
            lanes=self._lanes,
            single_writer=single_writer,
        )
        try:
            return outbound.build(self._config.upstream, self._config.destinations, clock=self._clock, rooms=rooms)
        except ValueError as error:
            raise ConfigError([str(error)]) from error

    def _syncs(self, spool: SqliteSpool, billing: BillingSync) -> list[outbound.Sync]:
        upstream = self._config.upstream
        if not upstream.base_url or self._local is not None:  # an agent has a line of its own (exporters.link)
            return []
        devices = outbound.device_sync(upstream, spool.devices, clock=self._clock)
        return [devices, billing] if upstream.connection_id else [devices]

    def _operator_services(
        self,
        spool: SqliteSpool,
        registry: Registry | None,
        access: Access,
        routes: Routes,
        ledger: Ledger,
        devices: Registrar,
        billing: BillingSync,
    ) -> OperatorServices:
        return OperatorServices(
            log=spool.log,
            deliveries=spool.deliveries,
            streams=spool.streams,
            billing=billing,
            registry=registry,
            registry_problem="" if registry else "the key table cannot be read; the log of the start says why",
            access=access,
            clock=self._clock,
            secret=spool.secret,
            version=self._version,
            hosts=frozenset({split_address(operator_listen(self._config.server) or self._config.server.listen)[0]}),
            console_url=lambda: f"{self.operator_url}{CONSOLE}/",
            wake=lambda _: routes.poke(),
            devices=devices,
            syncs=routes.syncs,
            ledger=ledger,
            prices=lambda: PriceBook.load(self._config.prices),
        )

    def _health(
        self, spool: SqliteSpool, registry: Registry | None, receivers: ReceiverServices, routes: Routes
    ) -> Health:
        return Health(
            spool.log,
            spool.deliveries,
            clock=self._clock,
            keys_read=lambda: registry is not None,
            closing=lambda: receivers.in_hand.closed,
            syncs=routes.syncs,
        )

    def _exposition(
        self, metrics: Metrics, spool: SqliteSpool, routes: Routes, devices: Registrar, access: Access
    ) -> Exposition:
        async def snapshot() -> Snapshot:
            return Snapshot(
                stats=await spool.log.stats(),
                routes=[*await spool.deliveries.routes(), *routes.syncs()],
                devices=devices.counts(),
                failed_attempts=access.failed_attempts,
            )

        return Exposition(metrics, snapshot, self._clock.monotonic)

    async def _open_doors(self, services: Services) -> None:
        server = self._config.server
        socket = OperatorSocket(self._config.data_dir, operator_application(services.operators))
        self._stack.push_async_callback(socket.stop)
        await socket.start()
        operator_address = operator_listen(server)
        outer = application(services, for_senders=True, for_operators=operator_address is None)
        public = Listener(outer, tls=tls_context(server))
        listeners = [public]
        self._stack.push_async_callback(public.stop)
        await public.start(server.listen)
        self.url = self.operator_url = public.url
        if operator_address is not None:
            private = Listener(application(services, for_senders=False, for_operators=True))
            listeners.append(private)
            self._stack.push_async_callback(private.stop)
            await private.start(operator_address)
            self.operator_url = private.url
        if server.grpc_listen:
            grpc = GrpcServer(services.receivers)
            self._stack.push_async_callback(grpc.stop, CUT_S)
            await grpc.start(server)
            self.grpc_address = grpc.address
        self._stack.push_async_callback(self._drain, services.receivers, listeners)

    async def _drain(self, receivers: ReceiverServices, listeners: list[Listener]) -> None:
        for one in listeners:
            one.close_socket()
        if not await receivers.in_hand.close(DRAIN_S):
            _log.warning("some requests did not finish in time", extra={"action": "drain_cut"})

    async def _retain(self, spool: SqliteSpool) -> None:
        while True:
            await spool.log.retain()
            await asyncio.sleep(RETAIN_EVERY_S)


def billing_of(
    config: Config, spool: SqliteSpool, ledger: Ledger, *, lanes: Lanes | None = None, clock: Clock | None = None
) -> BillingSync:
    """AI cost as billing drops; it only answers operators while nobody runs it."""
    hours = SqliteBillingHours(spool.database)
    return outbound.billing_sync(config.upstream, ledger, hours, lanes or Lanes(), clock=clock or SystemClock())
