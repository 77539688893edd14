"""MCP messages: decoding, encoding, and errors with their codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# error code for a missing scope, from the range that JSON-RPC reserves for implementations
INSUFFICIENT_SCOPE = -32001
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

_TOOL_METHODS = ("tools/call", "resources/read")
_SAFE = 2**53 - 1  # largest integer that clients in JavaScript read exactly
MessageId: TypeAlias = Annotated[int, msgspec.Meta(ge=-_SAFE, le=_SAFE)] | str


class McpMessage(msgspec.Struct, kw_only=True):
    """A request, or a notification if it has no id. Unknown fields are ignored, as the protocol requires."""

    jsonrpc: Literal["2.0"]
    method: str
    id: MessageId | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] = {}


class _Method(msgspec.Struct):
    """The method of a message. All other fields are ignored."""

    method: str


class ToolCallParameters(msgspec.Struct, kw_only=True):
    name: str
    arguments: dict[str, Any] = {}


class ResourceAsked(msgspec.Struct, kw_only=True):
    uri: str


class PageParameters(msgspec.Struct, kw_only=True):
    cursor: str | None = None


class InitializeParameters(msgspec.Struct, kw_only=True):
    """The parameters of MCP's initialize that the server uses."""

    protocolVersion: str


class McpError(Exception):
    """
    An error response. `status` is the HTTP status, and `challenge` the HTTP challenge that names
    a sufficient token.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        status: int = 200,
        data: Mapping[str, object] | None = None,
        challenge: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.data = data
        self.challenge = challenge


@dataclass(frozen=True, slots=True, kw_only=True)
class McpReply:
    """
    The response to one message. `body` is None for a notification. `challenge` is the WWW-Authenticate
    header, or None.
    """

    status: int
    body: bytes | None = None
    challenge: str | None = None


def decode_mcp_message(text: bytes) -> McpMessage:
    """Decode one request or notification. Raises McpError for anything else, such as a batch or a response."""
    try:
        return msgspec.json.decode(text, type=McpMessage)
    except msgspec.ValidationError as error:
        message = f"send one JSON-RPC 2.0 request or notification: {error}"
        raise McpError(INVALID_REQUEST, message, status=400) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise McpError(PARSE_ERROR, "the message is not JSON", status=400) from None


def is_tool_or_resource_call(text: bytes) -> bool:
    """
    Return whether a message calls a tool or reads a resource, because both take time. False if it
    cannot be decoded.
    """
    try:
        return msgspec.json.decode(text, type=_Method).method in _TOOL_METHODS
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def result_reply(id: MessageId, value: Mapping[str, object]) -> McpReply:
    return McpReply(status=200, body=msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": value}))


def error_reply(id: MessageId | msgspec.UnsetType, error: McpError) -> McpReply:
    data = {} if error.data is None else {"data": error.data}
    error_fields = {"code": error.code, "message": error.message, **data}
    shown = None if id is msgspec.UNSET else id
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": shown, "error": error_fields})
    return McpReply(status=error.status, body=body, challenge=error.challenge)
