"""Messages of the Model Context Protocol: what is decoded, what is encoded, and errors with their codes."""

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
INSUFFICIENT_SCOPE = -32001  # of the range that is ours to define
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

_TOOL_METHODS = ("tools/call", "resources/read")
_SAFE = 2**53 - 1  # JavaScript's clients read no larger integer exactly
MessageId: TypeAlias = Annotated[int, msgspec.Meta(ge=-_SAFE, le=_SAFE)] | str


class McpMessage(msgspec.Struct, kw_only=True):
    """A request, or without an id a notification. Fields that are not known are ignored, as the protocol wants it."""

    jsonrpc: Literal["2.0"]
    method: str
    id: MessageId | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] = {}


class _Method(msgspec.Struct):
    """What a message asks, whatever else is in it."""

    method: str


class Called(msgspec.Struct, kw_only=True):
    """The parameters of tools/call."""

    name: str
    arguments: dict[str, Any] = {}


class ResourceAsked(msgspec.Struct, kw_only=True):
    """The parameters of resources/read."""

    uri: str


class Paged(msgspec.Struct, kw_only=True):
    """The parameters of lists."""

    cursor: str | None = None


class Opened(msgspec.Struct, kw_only=True):
    """The parameters of initialize, as far as they matter."""

    protocolVersion: str


class McpError(Exception):
    """
    The request is answered with an error; `status` is that of the HTTP answer. `challenge` says there which
    token would be good enough.
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
class Reply:
    """The answer to one message. `body` None: a notification gets none. `challenge` is that of McpError."""

    status: int
    body: bytes | None = None
    challenge: str | None = None


def decoded(text: bytes) -> McpMessage:
    """One message. McpError for anything else: no JSON, a batch, or a response."""
    try:
        return msgspec.json.decode(text, type=McpMessage)
    except msgspec.ValidationError as error:
        message = f"send one JSON-RPC 2.0 request or notification: {error}"
        raise McpError(INVALID_REQUEST, message, status=400) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise McpError(PARSE_ERROR, "the message is not JSON", status=400) from None


def asks_tool(text: bytes) -> bool:
    """True if a message makes a tool work; False if it cannot be read. The other methods take next to no time."""
    try:
        return msgspec.json.decode(text, type=_Method).method in _TOOL_METHODS
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def result(id: MessageId, value: Mapping[str, object]) -> Reply:
    return Reply(status=200, body=msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": value}))


def failure(id: MessageId | msgspec.UnsetType, error: McpError) -> Reply:
    data = {} if error.data is None else {"data": error.data}
    told = {"code": error.code, "message": error.message, **data}
    shown = None if id is msgspec.UNSET else id
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": shown, "error": told})
    return Reply(status=error.status, body=body, challenge=error.challenge)
