"""The operator API on a data directory, for commands that find no running server."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gateway.configuration.sections import Config
from gateway.core.paths import CONSOLE
from gateway.http.listening.listener import operator_listen_address, uses_tls
from gateway.operations.holders.operators import PublicUrls
from gateway.operations.requests.socket import OperatorSocket
from gateway.service.addresses.application import operator_application
from gateway.service.assembly.operators import open_operator_services
from gateway.service.assembly.storage import open_storage
from spool.clock import SteadyClock
from spool.deliveries.values import RouteSpec
from spool.storage import Storage


@asynccontextmanager
async def open_offline_operator_socket(
    config: Config, *, version: str, orphans_unnamed_routes: bool = False
) -> AsyncIterator[Path]:
    """
    Open a socket with the operator API on a data directory. Raises SpoolLocked if another process has it open.

    The socket's path differs from a server's, so no other command connects to it and is cut off when this command
    ends. With `orphans_unnamed_routes`, `config` was read from a file, so routes that it does not name become orphaned.
    """
    clock = SteadyClock(step_s=config.spool.clock_step, hold_s=config.spool.clock_hold)
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(open_storage(config, clock=clock))
        if orphans_unnamed_routes:
            await _mark_orphaned_routes(storage, config)
        services = await stack.enter_async_context(
            open_operator_services(
                config,
                storage,
                clock=clock,
                version=version,
                urls=lambda: PublicUrls(console=_console_url(config), public=config.oidc.console),
            )
        )
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tollhouse-"))
        socket = OperatorSocket(Path(directory), operator_application(services))
        stack.push_async_callback(socket.stop)
        yield await socket.start()


async def _mark_orphaned_routes(storage: Storage, config: Config) -> None:
    """Mark routes as orphaned, as a start of the server would. Only the server creates new routes."""
    has_upstream = bool(config.upstream.base_url or config.upstream.ai_telemetry_url)
    declared_names = {
        f"{destination.name}/{topic}" for destination in config.destinations for topic in destination.topics
    }
    states = await storage.deliveries.route_states()
    if has_upstream:
        declared_names |= {state.name for state in states if state.name.startswith("upstream/")}
    declared = [state for state in states if state.name in declared_names]
    if len(declared) < len(states):
        specs = [RouteSpec(name=state.name, topic=state.topic, required=state.required) for state in declared]
        await storage.deliveries.set_routes(specs)


def _console_url(config: Config) -> str:
    server = config.server
    private = operator_listen_address(config.server)
    tls = server.tls_cert_file is not None if private is None else uses_tls(server, private)
    return f"{'https' if tls else 'http'}://{private or server.listen}{CONSOLE}/"
