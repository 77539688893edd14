"""`tollhouse mcp`: answer an assistant on standard input and output."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import click
import msgspec

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.configuration.sections import ConfigError
from gateway.mcp.messages import INTERNAL_ERROR, McpError, decoded, failure
from spool.errors import SpoolError


@click.command()
@with_client
def mcp(client: OperatorClient) -> None:
    """
    Answer an assistant over stdio in the Model Context Protocol: one JSON message a line.

    No key is needed: who may open the operator socket may ask. It works with the server running and without
    it, opens no port, and writes nothing unless mcp.writes is on.
    """
    for line in sys.stdin.buffer:
        if line.strip():
            reply = asyncio.run(_reply(client, line))
            if reply is not None:
                sys.stdout.buffer.write(reply + b"\n")
                sys.stdout.buffer.flush()


async def _reply(client: OperatorClient, line: bytes) -> bytes | None:
    """
    The line to write. While Tollhouse cannot answer, an error that says so: the assistant may ask again.
    """
    body = {"line": line.decode("utf-8", "replace")}
    try:
        status, payload = await client.ask("POST", "/mcp", body=body)
    except TimeoutError:
        return _problem(line, "Tollhouse did not answer in time")
    except (ConfigError, SpoolError, OSError, aiohttp.ClientError) as error:
        return _problem(line, str(error))
    if status >= 400:
        return _problem(line, payload["error"]["message"])
    found: str | None = payload["line"]
    return None if found is None else found.encode()


def _problem(line: bytes, message: str) -> bytes | None:
    """An error in answer to a request; None for a notification."""
    try:
        id = decoded(line).id
    except McpError as error:
        return failure(msgspec.UNSET, error).body
    return None if id is msgspec.UNSET else failure(id, McpError(INTERNAL_ERROR, message)).body
