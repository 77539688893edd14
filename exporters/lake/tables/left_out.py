"""What rows do not show, as `leave_out` of a destination names it: columns, and single tags. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from exporters.lake.columns import AI_TABLE, KEPT, LakeTable
from exporters.problems import one_of

TAG: Final = "tags."  # before the name of a tag
_TAGS: Final = "tags"

Values = tuple[Any, ...]


class LeftOut:
    """Names that a table has no column for are of another table."""

    def __init__(self, names: Sequence[str], table: LakeTable = AI_TABLE) -> None:
        places = [table.place(name) for name in names]
        self._places = [place for place in places if place is not None]
        self._tags_at = table.place(_TAGS)
        self._tags = {name.removeprefix(TAG) for name in names if name.startswith(TAG)}

    def cut(self, rows: Sequence[Values]) -> Sequence[Values]:
        """The rows without what is left out."""
        if self._places or self._tags:
            return [self._without(row) for row in rows]
        return rows

    def _without(self, row: Values) -> Values:
        values = list(row)
        tags = None if self._tags_at is None else values[self._tags_at]
        if self._tags_at is not None and tags:
            kept = [pair for pair in tags if pair[0] not in self._tags]
            values[self._tags_at] = kept or None
        for place in self._places:
            values[place] = None
        return tuple(values)


def problems(shown: str, names: Sequence[str], columns: tuple[str, ...]) -> Iterator[str]:
    """Yield what cannot be left out: what sums and proofs rest on, and what is no column and no tag."""
    for name in names:
        if name in KEPT:
            yield f"{shown}.leave_out: {name!r} cannot be left out: sums and proofs rest on it"
        elif name == TAG:
            yield f"{shown}.leave_out: {name!r} names no tag: tags.NAME"
        elif not name.startswith(TAG):
            yield from one_of(f"{shown}.leave_out", name, columns)
