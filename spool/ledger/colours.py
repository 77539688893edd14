"""
The colour of each name in charts: a number from 1 to COLOURS that the console maps to a style.

A name's colour is stored once and never changes, so it is equal on every page, for every person and in every
time range. Only a hash of the name is stored, per dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from spool.sql.small import SmallTable

COLOURS = 8
# Names per dimension with a stored colour. A further name's colour follows from its hash: it does not change
# either, but more names share it.
MAX_NAMES = 1_000


class ChartColours(Protocol):
    async def known_colours(self, dimension: str, names: Sequence[str]) -> Mapping[str, int]: ...

    async def find_or_assign_colours(self, dimension: str, names: Sequence[str]) -> Mapping[str, int]:
        """
        Return a colour for each name. A new name gets the colour that the fewest names of its dimension have.
        """
        ...


NAME_COLOURS = SmallTable[ChartColours]("colours of names", kept_by=("colours", "SqlColours"))


def hash_name(dimension: str, name: str) -> str:
    return blake2b(f"{dimension}\0{name}".encode(), digest_size=16).hexdigest()


def colour_of_unstored_name(hashed_name: str) -> int:
    """
    Return the colour of a new name of a dimension that already has MAX_NAMES stored names. It is not stored.
    """
    return 1 + int(hashed_name, 16) % COLOURS
