"""Cursors of tools: how many rows were shown, sealed with the question and with who asked it."""

from __future__ import annotations

import hmac
from hashlib import blake2b
from typing import Any

import msgspec

from gateway.mcp.tool import Asking
from spool.errors import Invalid

_DIGEST = 12


def sealed(asking: Asking[Any], tool: str, arguments: msgspec.Struct, shown: int) -> str:
    """The cursor after so many rows of the answer to these arguments."""
    return f"{shown}.{_seal(asking, tool, arguments, shown)}"


def opened(asking: Asking[Any], tool: str, arguments: msgspec.Struct, cursor: str | None) -> int:
    """Return how many rows were shown before. Invalid for a cursor of another question, or of somebody else."""
    if cursor is None:
        return 0
    number, _, seal = cursor.partition(".")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise Invalid("cursor is not one of ours")
    if not hmac.compare_digest(seal.encode(), _seal(asking, tool, arguments, int(number)).encode()):
        raise Invalid("cursor belongs to another question: repeat the same arguments with it")
    return int(number)


def _seal(asking: Asking[Any], tool: str, arguments: msgspec.Struct, shown: int) -> str:
    """`cursor` and `limit` of the arguments are left out: they may change from page to page."""
    rest = {
        name: value
        for name, value in msgspec.structs.asdict(arguments).items()
        if name not in ("cursor", "limit")
    }
    text = msgspec.json.encode([asking.principal, tool, shown, rest], order="deterministic")
    return blake2b(
        text, key=asking.shared.cursor_secret, digest_size=_DIGEST, person=b"mcp cursor"
    ).hexdigest()
