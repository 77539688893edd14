"""The groups that statements found in files, which are their groups for as long as the files exist."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Final

Groups = list[tuple[Any, ...]]
MOST_ROWS: Final = 30_000  # of results, of about a kilobyte each


class RememberedParts:
    """
    Groups by statement and file, up to a number of rows in all. Those that were used least recently go first, and those
    of deleted files at once, because they may have the names of erased people.
    """

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._groups: dict[tuple[Hashable, str], Groups] = {}

    def find(self, statement: Hashable, names: Iterable[str]) -> Mapping[str, Groups]:
        found = {}
        for name in names:
            groups = self._groups.pop((statement, name), None)
            if groups is not None:
                found[name] = self._groups[statement, name] = groups
        return found

    def add(self, statement: Hashable, found: Mapping[str, Groups]) -> None:
        self._groups |= {(statement, name): groups for name, groups in found.items()}
        rows = sum(map(_size, self._groups.values()))
        for key, groups in list(self._groups.items()):
            if rows <= self._most_rows:
                break
            rows -= _size(groups)
            del self._groups[key]

    def forget(self, names: Collection[str]) -> None:
        self._groups = {key: groups for key, groups in self._groups.items() if key[1] not in names}


def _size(groups: Groups) -> int:
    return len(groups) + 1  # a file without a group takes memory, too
