"""What a server and a command without one open alike, and the house opened for such a command."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gateway.addresses.application import operator_application
from gateway.addresses.paths import CONSOLE
from gateway.authentication.access import Access
from gateway.configuration.sections import Config
from gateway.devices.registrar import Registrar
from gateway.http.listener import operator_listen
from gateway.intake.emails import Emails
from gateway.intake.prices import PriceBook
from gateway.operator.services import Billing, OperatorServices
from gateway.operator.socket import OperatorSocket
from spool.clock import Clock, SystemClock
from spool.deliveries.values import RouteSpec
from spool.errors import RegistryDamaged
from spool.installation import derived
from spool.registry.registry import Registry
from spool.sqlite import SqliteSpool, open_spool
from spool.sqlite.ledger.ledger import Ledger
from spool.sqlite.registry.store import open_registry


@asynccontextmanager
async def opened(
    config: Config,
    *,
    version: str,
    billing: Callable[[Config, SqliteSpool, Ledger], Billing],
    names_routes: bool = False,
) -> AsyncIterator[Path]:
    """
    A socket with the operator API over a data directory that nobody else has open; SpoolLocked when somebody has.

    The socket lies elsewhere than a server's, so that no other command comes in and is cut off when this one ends.
    `names_routes`: `config` is the house's own, and routes that it does not name any more are orphaned.
    """
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        spool = await open_spool(config.data_dir, settings=config.spool, clock=clock)
        stack.push_async_callback(spool.close)
        if names_routes:
            await _declare(spool, config)
        registry, problem = None, ""
        try:
            registry = await open_registry(config.data_dir, secret=spool.secret, clock=clock)
            stack.push_async_callback(registry.close)
        except RegistryDamaged as error:
            problem = str(error)
        ledger = await Ledger.open(config.data_dir, clock=clock, tags=config.ledger.tags)
        stack.push_async_callback(ledger.close)
        spool.log.holders.append(ledger.needs)
        access = Access(registry, config.server, clock=clock)
        await access.start()
        stack.push_async_callback(access.stop)
        services = OperatorServices(
            log=spool.log,
            deliveries=spool.deliveries,
            streams=spool.streams,
            billing=billing(config, spool, ledger),
            registry=registry,
            registry_problem=problem,
            access=access,
            clock=clock,
            secret=spool.secret,
            version=version,
            console_url=lambda: _console_url(config),
            ledger=ledger,
            devices=devices_of(spool, registry, config, clock),
            prices=lambda: PriceBook.load(config.prices),
        )
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="tollhouse-"))
        socket = OperatorSocket(Path(place), operator_application(services))
        stack.push_async_callback(socket.stop)
        yield await socket.start()


async def _declare(spool: SqliteSpool, config: Config) -> None:
    """What a start of the server would orphan is orphaned; new routes are left to the start itself."""
    has_upstream = bool(config.upstream.base_url or config.upstream.ai_telemetry_url)
    named = {f"{each.name}/{topic}" for each in config.destinations for topic in each.topics}
    states = await spool.deliveries.routes()
    kept = [each for each in states if each.name in named or (has_upstream and each.name.startswith("upstream/"))]
    if len(kept) < len(states):
        specs = [RouteSpec(name=each.name, topic=each.topic, required=each.required) for each in kept]
        await spool.deliveries.declare(specs)


def devices_of(spool: SqliteSpool, registry: Registry | None, config: Config, clock: Clock) -> Registrar:
    """The rules over the spool's devices; their changes stand in the registry's audit list when there is one."""
    spool.devices.auditor = registry.note_all if registry is not None else None
    emails = Emails(config.privacy.emails, secret=derived(spool.secret, "e-mails"))
    return Registrar(spool.devices, settings=config.devices, clock=clock, secret=spool.secret, emails=emails)


def _console_url(config: Config) -> str:
    """Where the console will be once the server runs; the operator's own listener has no TLS."""
    private = operator_listen(config.server)
    scheme = "https" if config.server.tls_cert_file and private is None else "http"
    return f"{scheme}://{private or config.server.listen}{CONSOLE}/"
