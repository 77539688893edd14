"""What each face says of one state: the operator API, which the console reads, commands, metrics and MCP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.core.paths import OPERATOR_API
from gateway.operations.money.insights import make_insight_updater
from spool.registry.insights import Insight
from spool.registry.scopes import AI_HUB
from tests.gateway.monitoring.test_metrics import samples
from tests.integration.conftest import Serve, Serving
from tests.integration.mcp.conftest import Assistant
from tests.integration.mcp.conftest import open_assistant as open_assistant
from tests.integration.operations.server import ADA

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass
class Faces:
    """A running server, asked through each face."""

    server: Serving
    assistant: Assistant
    directory: str

    async def api(self, path: str) -> Any:
        connector = aiohttp.UnixConnector(f"{self.directory}/operator.sock")
        url = f"http://tollhouse{OPERATOR_API}{path}"
        async with (
            aiohttp.ClientSession(connector=connector, headers={"X-Tollhouse-As": ADA}) as session,
            session.get(url) as response,
        ):
            payload = await response.json()
            assert 200 == response.status, payload
            return payload

    async def command(self, *words: str) -> Result:
        """Run a command of the same machine. It asks the server."""
        arguments = [*words, "--data", self.directory]
        return await asyncio.to_thread(CliRunner().invoke, main, arguments)

    async def printed(self, *words: str) -> Any:
        result = await self.command(*words, "--json")
        assert not result.exit_code, result.output
        return json.loads(result.stdout)

    async def tool(self, name: str, **arguments: Any) -> Any:
        return await self.assistant.content(name, **arguments)

    async def insights(self) -> list[Insight]:
        """Run all detectors and return the open insights."""
        operators = self.server.app.services.operators
        await make_insight_updater(operators).find_and_store_insights()
        return list(await operators.installation.require_registry().insights.detector_insights())

    async def metrics(self) -> Samples:
        return samples(await self.server.app.services.single.exposition.current_text())

    async def attention(self) -> list[Any]:
        return list((await self.api("/attention"))["attention"]["causes"])

    async def doctor(self) -> list[Any]:
        result = await self.command("doctor", "--json")
        return list(json.loads(result.stdout)["doctor"]["found"])


async def faces_of(server: Serving, directory: Path) -> Faces:
    assistant = Assistant(server, await server.make_key("assistant", scopes=[AI_HUB]))
    return Faces(server, assistant, str(directory))


@pytest_asyncio.fixture
async def faces(serve: Serve, tmp_path: Path) -> Faces:
    return await faces_of(await serve(), tmp_path / "data-0")
