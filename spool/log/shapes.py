"""Attribute names of items that look like AI and that no dialect took: bounded, whatever a sender invents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_SHAPES = 1000  # enough to name every product in use
MAX_LENGTH = 4096  # characters of one shape
SEPARATOR = "\n"


def shape_of(names: Iterable[str]) -> str:
    """The key of a shape: its names sorted, each once."""
    return SEPARATOR.join(sorted(set(names)))[:MAX_LENGTH]


def row(shape: str, count: int, last_seen: float) -> dict[str, Any]:
    """Make one row of the answer of `Log.unrecognised`."""
    return {"names": shape.split(SEPARATOR), "count": count, "last_seen": last_seen}
