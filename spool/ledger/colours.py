"""
The colour of each name in charts: a number from 1 to COLOURS that the console maps to a style.

A name's colour is stored once and never changes, so it is equal on every page, for every person and in every
time range. Only the digest of the name is stored, per dimension, as `People.erasure_digest` returns it. So nobody
finds a name by a guess, and an erasure deletes the row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from spool.sql.small import SmallTable

COLOURS = 8
# Names per dimension with a stored colour. A further name's colour follows from its hash: it does not change
# either, but more names share it.
MAX_NAMES = 1_000


class ChartColours(Protocol):
    """The colours by the digests of names."""

    async def known_colours(self, dimension: str, digests: Sequence[str]) -> Mapping[str, int]: ...

    async def find_or_assign_colours(self, dimension: str, digests: Sequence[str]) -> Mapping[str, int]:
        """
        Return a colour for each digest. A new one gets the colour that the fewest names of its dimension have.
        """
        ...

    async def forget_colours(self, digests: Collection[str] | None) -> None:
        """Delete the colours of the digests in every dimension, or with None all colours."""
        ...


NAME_COLOURS = SmallTable[ChartColours]("colours of names", kept_by=("colours", "SqlColours"))


def colour_of_unstored_name(digest: str) -> int:
    """
    Return the colour of a new name of a dimension that already has MAX_NAMES stored names. It is not stored.
    """
    return 1 + int(digest, 16) % COLOURS
