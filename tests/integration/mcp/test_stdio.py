"""`tollhouse mcp`: one message per line, with and without a running server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from gateway.mcp.protocol import LEGACY, MODERN
from tests.integration.mcp.conftest import META, Assistant
from tests.processes.copied import copying_command

DISCOVER = {"jsonrpc": "2.0", "id": "d", "method": "server/discover", "params": {"_meta": META}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": LEGACY[0]}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "get_cost_data"}}


async def said(directory: Path, *lines: bytes) -> list[Any]:
    """Return what the command writes for these lines. It ends when its input ends."""
    program, number = copying_command()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        program, "mcp", "--data", str(directory), stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[number]
    )
    out, err = await process.communicate(b"".join(line + b"\n" for line in lines))
    assert 0 == process.returncode, err
    return [json.loads(line) for line in out.splitlines()]


def line(message: object) -> bytes:
    return json.dumps(message).encode()


async def test_both_kinds_of_clients_are_answered_without_a_server(tmp_path: Path) -> None:
    """
    Notifications and empty lines get no answer, and invalid JSON gets an error. Nothing else is written.
    """
    (tmp_path / "data").mkdir()
    answers = await said(
        tmp_path / "data", line(DISCOVER), line(INITIALIZE), line(INITIALIZED), b"", b"{", b"\xff", line(CALL)
    )
    assert ["d", 1, None, None, 2] == [answer["id"] for answer in answers]
    assert [MODERN] == answers[0]["result"]["supportedVersions"]
    assert LEGACY[0] == answers[1]["result"]["protocolVersion"]
    assert [-32700, -32700] == [answer["error"]["code"] for answer in answers[2:4]]
    assert 0 == answers[4]["result"]["structuredContent"]["total"]["calls"]


async def test_command_queries_a_running_server_through_its_socket(assistant: Assistant) -> None:
    """
    The command gets its answers from a running server, without a key, and they equal those over HTTP. If a
    line is too long, only that request fails.
    """
    await assistant.calls("gpt-4o", "gpt-4o")
    directory = assistant.serving.app.config.data_dir
    large = {**CALL, "id": 3, "params": {"name": "x" * 300_000}}
    answered, refused = await said(directory, line(CALL), line(large))
    over_http = await assistant.content("get_cost_data")
    assert 2 == over_http["total"]["calls"] == answered["result"]["structuredContent"]["total"]["calls"]
    assert refused["id"] == 3
    assert refused["error"]["code"] == -32603
