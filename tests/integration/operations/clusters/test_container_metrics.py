"""Container metrics as operators see them: the accounting, each file, and discarding a file."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from click.testing import CliRunner

from gateway.cli import main
from gateway.configuration.sections import Config
from spool.settings import SpoolSettings
from tests.integration import container_agent as agent
from tests.integration.conftest import Serve, Serving
from tests.spool.kept import audit_rows


async def command(server: Serving, *words: str, code: int = 0) -> str:
    """Run a command next to the running server; return its output."""
    where = ["--data", str(server.app.config.data_dir)]
    done = await asyncio.to_thread(CliRunner().invoke, main, [*words, *where])
    assert code == done.exit_code, done.output
    return done.output


async def said(server: Serving, *words: str) -> Any:
    return json.loads(await command(server, *words, "--json"))


async def test_operators_see_and_discard_files(serve: Serve) -> None:
    """The bytes of a discarded file are deleted. The accounting and the audit list record it."""
    server = await serve(config=Config(spool=SpoolSettings(hold=0)))
    key = await server.make_key("agent", scopes=agent.SCOPES)
    await agent.ship(server, {"one": b"metrics", "two": b"more metrics"}, key)
    await agent.announce(server, ["three"], key)

    told = (await said(server, "container", "status"))["container_metrics"]
    assert (3, 2, 1) == tuple(told["kinds"]["file"][term] for term in ("references", "uploaded", "announced"))
    assert told["imbalances"] == []
    assert told["bytes"] == 19
    assert told["files"] == 3
    [cluster] = told["clusters"]
    assert cluster["cluster"] == "prod"
    assert cluster["waiting"] == 2
    assert cluster["bytes"] == 19
    assert "123456789012 us-east-1 prod: 2 wait, 19 bytes" in await command(server, "container", "status")

    listed = await said(server, "container", "files", "list", "--state", "uploaded", "--sort-key", "size")
    assert ["one", "two"] == [file["reference"] for file in listed["container_files"]]
    id = listed["container_files"][0]["id"]
    await command(server, "container", "files", "discard", id, "--confirm", "two", code=2)
    assert "one is discarded" in await command(
        server, "container", "files", "discard", id, "--confirm", "one"
    )
    assert "discarded" in await command(
        server, "container", "files", "discard", id, "--confirm", "one", code=2
    )
    after = (await said(server, "container", "status"))["container_metrics"]
    assert after["kinds"]["file"]["discarded"] == 1
    assert after["bytes"] == 12
    assert after["imbalances"] == []
    registry = server.app.services.storage.registry
    assert registry is not None
    actions = [row.action for row in await audit_rows(registry)]
    assert {"container_file.discard", "container_file.discard.failed"} <= set(actions)
