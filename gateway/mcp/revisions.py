"""
The revisions of the protocol, and the rules of a request by its revision.

A modern request stands alone and says its revision in `_meta`; HTTP headers repeat what is in the body. A
legacy client begins with `initialize`, and says the revision in a header afterwards.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from gateway.mcp.messages import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION, McpError, McpMessage

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18")
INITIALIZE = "initialize"

_META = "io.modelcontextprotocol/"
_VERSION, _CAPABILITIES = f"{_META}protocolVersion", f"{_META}clientCapabilities"
SERVER_INFO = f"{_META}serverInfo"
_VERSION_HEADER, _METHOD_HEADER, _NAME_HEADER = "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"
# By method, the parameter that the header repeats.
_NAMED = {"tools/call": "name", "resources/read": "uri"}


def is_modern(message: McpMessage, headers: Mapping[str, str] | None) -> bool:
    """
    True if a request follows MODERN; McpError if it breaks its rules, or names a revision that is not spoken here.

    `headers` is None where there are none: on stdio.
    """
    meta = message.params.get("_meta")
    header = None if headers is None else headers.get(_VERSION_HEADER)
    says_so = isinstance(meta, dict) and _VERSION in meta
    if not says_so and (message.method == INITIALIZE or header in (None, *LEGACY)):
        return False
    if not isinstance(meta, dict) or not {_VERSION, _CAPABILITIES} <= meta.keys():
        if header not in (None, MODERN):
            raise _unsupported(header)
        message_text = f"params._meta must hold {_VERSION} and {_CAPABILITIES}"
        raise McpError(INVALID_PARAMS, message_text, status=400)
    version = meta[_VERSION]
    if headers is not None:
        _check_headers(message, version, headers)
    if not isinstance(version, str):
        raise McpError(INVALID_PARAMS, f"{_VERSION} must be text", status=400)
    if not isinstance(meta[_CAPABILITIES], dict):
        raise McpError(INVALID_PARAMS, f"{_CAPABILITIES} must be an object", status=400)
    if version != MODERN:
        raise _unsupported(version)
    return True


def negotiated(asked: str) -> str:
    """The legacy revision for a client that asks for one: the same if it is known, else the newest."""
    return asked if asked in LEGACY else LEGACY[0]


def _check_headers(message: McpMessage, version: object, headers: Mapping[str, str]) -> None:
    expected = {_VERSION_HEADER: version, _METHOD_HEADER: message.method}
    if message.method in _NAMED:
        expected[_NAME_HEADER] = message.params.get(_NAMED[message.method])
    for name, value in expected.items():
        header = headers.get(name)
        if header is None or _plain(header) != value:
            raise McpError(HEADER_MISMATCH, f"the header {name} must repeat what the body says", status=400)


def _plain(value: str) -> str | None:
    """The text of a header value, which is Base64 in a fixed form where it is not plain ASCII; None if malformed."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[len("=?base64?") : -len("?=")], validate=True).decode()
    except ValueError:
        return None


def _unsupported(version: str | None) -> McpError:
    data = {"supported": [MODERN, *LEGACY], "requested": version}
    return McpError(
        UNSUPPORTED_VERSION, "this revision of the protocol is not spoken here", status=400, data=data
    )
