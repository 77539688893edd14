from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from spool.ledger.colours import COLOURS, MAX_NAMES, colour_of_unstored_name
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
_FORGET = "DELETE FROM {schema}.colours WHERE name IN :names"
_FORGET_ALL = "DELETE FROM {schema}.colours WHERE name <> :locked"


class SqlColours:
    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def known_colours(self, dimension: str, digests: Sequence[str]) -> Mapping[str, int]:
        return await self._transactions.read(lambda on: _stored_colours(on, dimension, digests))

    async def find_or_assign_colours(self, dimension: str, digests: Sequence[str]) -> Mapping[str, int]:
        """Return the colours. Only names without a colour cause a write, which most requests do not have."""
        known = await self.known_colours(dimension, digests)
        if len(known) == len(set(digests)):
            return known
        return await self._transactions.transaction(
            lambda on: _assign_missing_chart_colours(on, dimension, digests)
        )

    async def forget_colours(self, digests: Collection[str] | None) -> None:
        def forget(on: SqlConnection) -> None:
            if digests is None:
                on.run(_FORGET_ALL, locked=_LOCKED)
            else:
                on.run(_FORGET, names=list(digests))

        await self._transactions.transaction(forget)


def _stored_colours(on: SqlConnection, dimension: str, digests: Sequence[str]) -> dict[str, int]:
    return dict(on.all(_KNOWN, dimension=dimension, names=list(digests)))


def _assign_missing_chart_colours(
    on: SqlConnection, dimension: str, digests: Sequence[str]
) -> dict[str, int]:
    """
    Assign colours to digests that have none. Return all colours. The lock makes processes assign a
    dimension's colours one after the other.
    """
    on.run(_ADD, dimension=dimension, name=_LOCKED, colour=0)
    on.all(_LOCK, dimension=dimension, name=_LOCKED)
    stored = _stored_colours(on, dimension, digests)
    used = Counter(dict(on.all(_USED, dimension=dimension, locked=_LOCKED)))
    for digest in digests:
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
