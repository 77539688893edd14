"""The proof that two files hold the same rows, whichever release and library wrote them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final

from exporters.lake.columns import AI_TABLE, LakeTable

_NAMES: Final = ("number", "id", "spend", "input_tokens", "output_tokens")


class RowDigest:
    """SHA-256 over number, id, spend and tokens of rows, in the order of their numbers, as far as a table has them."""

    def __init__(self, table: LakeTable = AI_TABLE) -> None:
        self._sum = sha256()
        places = [place for name in _NAMES if (place := table.place(name)) is not None]
        self._values_of = itemgetter(*places)
        self._line = " ".join(["%s"] * len(places)) + "\n"

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        lines = [self._line % values for values in map(self._values_of, rows)]
        self._sum.update("".join(lines).encode())

    def text(self) -> str:
        return self._sum.hexdigest()
