"""One server for the tests of a module, with an example of each resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import ClientSession, UnixConnector

from exporters.settings import NotifySettings
from gateway.configuration.sections import Config
from gateway.core.paths import socket_path
from spool.registry import operators
from spool.registry.scopes import SCOPES
from spool.settings import SpoolSettings
from tests.integration.conftest import servers
from tests.integration.operations.every.declared import World
from tests.spool.savings import SAVING

CONFIG = Config(
    spool=SpoolSettings(hold=0, counter_wait=0),
    notify=(NotifySettings(name="finops", type="webhook", url="http://127.0.0.1:9/"),),
)


@asynccontextmanager
async def started(directory: Path, config: Config) -> AsyncIterator[World]:
    """Start a server with an example of each resource."""
    async with servers(directory) as start:
        serving = await start(config=config)
        key = await serving.make_key("automation", scopes=sorted(SCOPES))
        connector = UnixConnector(str(socket_path(serving.app.config.data_dir)))
        async with ClientSession(connector=connector) as socket:
            world = World(serving, key, socket)
            registry = serving.app.services.operators.installation.require_registry()
            await registry.recommendations.merge_savings([SAVING], looked_for=[SAVING.type])
            [saving] = await registry.recommendations.all()
            world.ids["recommendations"] = saving.id
            await world.fill()
            await world.grant_the_rest()
            yield world


@pytest.fixture(autouse=True, scope="module")
def quick_passwords() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "SCRYPT_N", 2)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory, quick_passwords: None) -> AsyncIterator[World]:
    async with started(tmp_path_factory.mktemp("world"), CONFIG) as world:
        yield world
