"""The address of assistants."""

from __future__ import annotations

from gateway.http.address import ERROR, Address
from gateway.http.answers import JSON
from gateway.http.key_carriage import AS_API_KEY
from gateway.http.requests import check_json
from gateway.mcp.endpoint import ask_mcp
from gateway.mcp.hosts import check_host
from gateway.mcp.messages import asks_tool
from gateway.schemas import OBJECT, TEXT, closed
from spool.registry.scopes import AI_HUB

MAX_BYTES = 256 * 1024  # of a message: questions are small

_MESSAGE = closed({"jsonrpc": {"const": "2.0"}, "id": {"type": ["string", "integer"]}, "result": OBJECT})
_FAILURE = closed({
    "jsonrpc": {"const": "2.0"}, "id": {"type": ["string", "integer", "null"]},
    "error": closed({"code": {"type": "integer"}, "message": TEXT}, {"data": OBJECT}),
})  # fmt: skip

ROWS = (
    Address(
        methods=("POST",),
        path="/mcp",
        name=ask_mcp.__name__,
        summary="Ask as an assistant: one message of the Model Context Protocol",
        handler=ask_mcp,
        endpoint="mcp",
        scope=AI_HUB,
        key=AS_API_KEY,
        guard=check_host,
        check=check_json,
        body=bytes,
        takes={JSON: OBJECT},
        max_bytes=MAX_BYTES,
        in_turn=True,
        asks_much=asks_tool,
        gives={200: {JSON: {"anyOf": [_MESSAGE, _FAILURE]}}, 202: {}},
        errors={JSON: {"anyOf": [ERROR, _FAILURE]}},
        refusals=(400, 401, 403, 404, 413, 415, 429, 500, 503),
    ),
)
