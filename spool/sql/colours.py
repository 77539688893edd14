from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from spool.ledger.colours import COLOURS, MAX_NAMES, colour_of_unstored_name, hash_name
from spool.sql.connection import SqlConnection, SqlTransactions

_LOCKED = ""  # the row of this name is locked while names are added to its dimension
_KNOWN = "SELECT name, colour FROM {schema}.colours WHERE dimension = :dimension AND name IN :names"
_ADD = """
    INSERT INTO {schema}.colours (dimension, name, colour) VALUES (:dimension, :name, :colour)
    ON CONFLICT (dimension, name) DO NOTHING"""
_LOCK = "SELECT 1 FROM {schema}.colours WHERE dimension = :dimension AND name = :name {for_update}"
_USED = """
    SELECT colour, count(*) FROM {schema}.colours WHERE dimension = :dimension AND name <> :locked
  GROUP BY colour"""


class SqlColours:
    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def known_colours(self, dimension: str, names: Sequence[str]) -> Mapping[str, int]:
        hashes = {name: hash_name(dimension, name) for name in names}
        stored = await self._transactions.read(lambda on: _stored_colours(on, dimension, [*hashes.values()]))
        return {name: stored[digest] for name, digest in hashes.items() if digest in stored}

    async def find_or_assign_colours(self, dimension: str, names: Sequence[str]) -> Mapping[str, int]:
        """Return the colours. Only names without a colour cause a write, which most requests do not have."""
        known = await self.known_colours(dimension, names)
        if len(known) == len(set(names)):
            return known
        hashes = {name: hash_name(dimension, name) for name in names}
        stored = await self._transactions.transaction(
            lambda on: _assign_missing_chart_colours(on, dimension, [*hashes.values()])
        )
        return {name: stored[digest] for name, digest in hashes.items()}


def _stored_colours(on: SqlConnection, dimension: str, hashes: Sequence[str]) -> dict[str, int]:
    return dict(on.all(_KNOWN, dimension=dimension, names=list(hashes)))


def _assign_missing_chart_colours(on: SqlConnection, dimension: str, hashes: Sequence[str]) -> dict[str, int]:
    """
    Assign colours to names (hashes) that have none. Return all colours. The lock makes processes assign a
    dimension's colours one after the other.
    """
    on.run(_ADD, dimension=dimension, name=_LOCKED, colour=0)
    on.all(_LOCK, dimension=dimension, name=_LOCKED)
    stored = _stored_colours(on, dimension, hashes)
    used = Counter(dict(on.all(_USED, dimension=dimension, locked=_LOCKED)))
    for digest in hashes:
        if digest in stored:
            continue
        if used.total() >= MAX_NAMES:
            stored[digest] = colour_of_unstored_name(digest)
            continue
        colour = min(range(1, COLOURS + 1), key=lambda each: used[each])
        used[colour] += 1
        stored[digest] = colour
        on.run(_ADD, dimension=dimension, name=digest, colour=colour)
    return stored
