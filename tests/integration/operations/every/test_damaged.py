"""Every operation while the file of the registry is damaged."""

from __future__ import annotations

from pathlib import Path

from aiohttp import ClientSession, UnixConnector

from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.core.paths import socket_path
from gateway.service.app import TollhouseApp
from tests.integration.conftest import Serving
from tests.integration.operations.every.declared import OPERATIONS, RESOURCES, World

# One waits for news, one for records, and one starts a process that fills the demo month.
NOT_TRIED = ("/changes", "/tail", "/demo")


async def test_a_damaged_registry_is_reported_and_is_no_500(tmp_path: Path) -> None:
    """
    If the registry's file is damaged, every operation still answers without a 500. An operation that needs data
    from the registry answers 503 with the reason.
    """
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    (directory / "registry.sqlite").write_bytes(b"not a database" * 1000)
    server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    app = TollhouseApp(Config(data_dir=directory, server=server), version="0")
    await app.start()
    connector = UnixConnector(str(socket_path(directory)))
    async with ClientSession(connector=connector) as socket, ClientSession() as client:
        world = World(Serving(app=app, key="", client=client), "th_none", socket)
        for operation in OPERATIONS:
            if not operation.row.path.endswith(NOT_TRIED):
                answer = await world.send(operation, world.path(operation), world.body(operation))
                assert answer.status != 500, (operation.name, answer.said)
        for resource in RESOURCES:
            answer = await world.send(resource.list, world.path(resource.list))
            assert answer.status == 503, (resource.name, answer.said)
            assert answer.payload["error"]["type"] in ("registry_damaged", "keys_unavailable"), resource.name
    await app.stop()
