"""The proof that two files hold the same rows, whichever release and library wrote them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from exporters.lake.columns import COLUMNS

_PLACES = tuple(
    list(COLUMNS).index(name) for name in ("number", "id", "spend", "input_tokens", "output_tokens")
)


class RowDigest:
    """SHA-256 over number, id, spend and tokens of rows, in the order of their numbers."""

    def __init__(self) -> None:
        self._sum = sha256()

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        number, id, spend, given, made = _PLACES
        lines = [f"{row[number]} {row[id]} {row[spend]} {row[given]} {row[made]}\n" for row in rows]
        self._sum.update("".join(lines).encode())

    def text(self) -> str:
        return self._sum.hexdigest()
