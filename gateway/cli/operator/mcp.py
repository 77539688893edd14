"""`tollhouse mcp`: an MCP server on standard input and output."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click
import msgspec

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.configuration.values import ConfigError
from gateway.mcp.messages import INTERNAL_ERROR, McpError, decode_mcp_message, error_reply
from spool.errors import SpoolError

COLUMNS = ("name", "title", "writes", "enabled", "last_updated", "updated_by")


def _answer_mcp_on_stdio(client: OperatorClient) -> None:
    for line in sys.stdin.buffer:
        if line.strip():
            reply = asyncio.run(_reply_to_line(client, line))
            if reply is not None:
                sys.stdout.buffer.write(reply + b"\n")
                sys.stdout.buffer.flush()


_on_stdio: Any = with_client(_answer_mcp_on_stdio)  # `with_client` adds the options --data, --config and --as


@click.group(invoke_without_command=True, params=list(reversed(_on_stdio.__click_params__)))
@click.pass_context
def mcp(context: click.Context, /, **given: object) -> None:
    """
    Run an MCP server for an assistant.

    It uses standard input and output. Start it from the assistant's configuration. It needs no key: every
    user who may open the operator socket may use it. It works with or without a running server and opens no
    port. It changes nothing unless you enable a tool that writes; see `tollhouse mcp tools`.
    """
    if context.invoked_subcommand is None:
        _on_stdio(**given)


@mcp.group()
def tools() -> None:
    """Show the MCP tools, and enable or disable them."""


list_command(
    tools,
    "list",
    root="assistant_tools",
    columns=COLUMNS,
    filters={
        "enabled": "true: only enabled tools. false: only disabled tools.",
        "writes": "true: only tools that change data. false: only tools that read.",
    },
    help="List the MCP tools, and whether they are enabled.",
)


add_commands(
    tools,
    request_command(
        "enable NAME",
        "PATCH /assistant-tools/{name}",
        "Enable an MCP tool for assistants.",
        request_body={"enabled": True},
        show_response="{name} is enabled",
    ),
    request_command(
        "disable NAME",
        "PATCH /assistant-tools/{name}",
        "Disable an MCP tool for assistants.",
        request_body={"enabled": False},
        show_response="{name} is disabled",
    ),
)


async def _reply_to_line(client: OperatorClient, line: bytes) -> bytes | None:
    """
    Return the server's reply to a line. Without a response, return an MCP error, so that the assistant may
    retry.
    """
    import aiohttp  # imported here, because aiohttp takes a third of the start of a command

    body = {"line": line.decode("utf-8", "replace")}
    try:
        status, payload = await client.send_request("POST", "/mcp", body=body)
    except TimeoutError:
        return _error_reply(line, "Tollhouse did not respond in time")
    except (ConfigError, SpoolError, OSError, aiohttp.ClientError) as error:
        return _error_reply(line, str(error))
    if status >= 400:
        return _error_reply(line, payload["error"]["message"])
    reply_line: str | None = payload["line"]
    return None if reply_line is None else reply_line.encode()


def _error_reply(line: bytes, message: str) -> bytes | None:
    try:
        id = decode_mcp_message(line).id
    except McpError as error:
        return error_reply(msgspec.UNSET, error).body
    return None if id is msgspec.UNSET else error_reply(id, McpError(INTERNAL_ERROR, message)).body
