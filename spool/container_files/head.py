"""The line before the bytes of a kept file: what its row says, for the case that the row is lost."""

from __future__ import annotations

import json
from dataclasses import asdict

from spool.container_files.values import ContainerFile

_NAMES = (
    "id",
    "kind",
    "account",
    "region",
    "cluster",
    "reference",
    "key",
    "shipper",
    "agent_version",
    "request",
    "announced_at",
)
MAX_BYTES = 64 * 1024


def head_of(file: ContainerFile) -> bytes:
    """Write the head of a file as one line, with its end."""
    known = asdict(file)
    return json.dumps({name: known[name] for name in _NAMES}, separators=(",", ":")).encode() + b"\n"


def file_of(head: bytes) -> ContainerFile | None:
    """The row that a head tells of, without what is known of the bytes; None if it is none."""
    try:
        told = json.loads(head)
        at = float(told.pop("announced_at"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    texts = set(_NAMES) - {"announced_at"}
    if set(told) != texts or not all(isinstance(value, str) for value in told.values()):
        return None
    return ContainerFile(**told, announced_at=at)
