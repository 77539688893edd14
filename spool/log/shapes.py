"""Attribute names of items that look like AI and that no dialect took: bounded, whatever a sender invents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spool.log.bounded_names import beyond

MAX_SHAPES = 1000  # enough to name every product in use
MAX_LENGTH = 4096  # characters of one shape
SEPARATOR = "\n"


def shape_of(names: Iterable[str]) -> str:
    """The key of a shape: its names sorted, each once."""
    return SEPARATOR.join(sorted(set(names)))[:MAX_LENGTH]


def row(shape: str, count: int, last_seen: float) -> dict[str, Any]:
    """Make one row of the answer of `Log.unrecognised`."""
    return {"names": shape.split(SEPARATOR), "count": count, "last_seen": last_seen}


class Shapes:
    """Shapes in memory; over the bound `spool.log.bounded_names` says which go."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def count(self, items: Mapping[tuple[str, ...], int], now: float) -> None:
        for names, n in items.items():
            shape = shape_of(names)
            self._seen[shape] = self._seen.pop(shape, (0, 0.0))[0] + n, now
        for shape in beyond(self._seen, MAX_SHAPES):
            del self._seen[shape]

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the shapes, most frequent first."""
        found = sorted(self._seen.items(), key=lambda item: (-item[1][0], item[0]))
        return [row(shape, count, last_seen) for shape, (count, last_seen) in found]
