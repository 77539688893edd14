"""A running server whose settings come from files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, UnixConnector

from gateway.configuration.sections import Config
from gateway.core.paths import AS, OPERATOR_API, socket_path
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR, Serving, servers
from tests.integration.operations.files.objects import SECRETS

NEW_SECRET = {"keys/managed": "n" * 40, "enrolment-tokens/laptops%2F1e3": f"the_{'0' * 16}_{'1' * 64}"}


class Api:
    """The operator API of a running server."""

    def __init__(self, serving: Serving, socket: ClientSession) -> None:
        self.serving = serving
        self._socket = socket

    async def ask(
        self, method: str, path: str, body: object = None, *, by: str = "ada@example.com"
    ) -> tuple[int, Any]:
        url = f"http://tollhouse{OPERATOR_API}{path}"
        async with self._socket.request(method, url, json=body, headers={AS: by}) as answer:
            return answer.status, await answer.json()

    async def apply(self, files: dict[str, str], **how: Any) -> Any:
        """Apply files. Return the result, or the message of a refusal."""
        body = {"files": files, "secrets": {**SECRETS, **NEW_SECRET}, **how}
        status, payload = await self.ask("POST", "/apply", body)
        return payload["apply"] if status == 200 else payload["error"]["message"]

    async def files(self) -> dict[str, str]:
        status, payload = await self.ask("GET", "/files")
        assert status == 200, payload
        files: dict[str, str] = payload["files"]
        return files


@asynccontextmanager
async def api(place: Path, config: Config | None = None) -> AsyncIterator[Api]:
    """Start a server with an account for the person that a report names, and no key."""
    async with servers(place) as start:
        serving = await start(config=config or Config(spool=SpoolSettings(hold=0, counter_wait=0)))
        registry = serving.app.services.operators.installation.require_registry()
        for key in registry.keys.all():
            await registry.keys.delete(key.name, confirm=key.name, actor=ACTOR)
        await registry.operators.add(
            "ada@example.com", role="viewer", password="a long password", actor=ACTOR
        )
        connector = UnixConnector(str(socket_path(serving.app.config.data_dir)))
        async with ClientSession(connector=connector) as socket:
            yield Api(serving, socket)
