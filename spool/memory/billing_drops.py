"""The billing drops that were taken, without a disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spool.billing.drops import HourRows, MonthSize, StoredDrop
from spool.listing import ListPage, ListQuery, page_of


class MemoryBillingDrops:
    """Both the rows that operations change and what is asked of them."""

    def __init__(self) -> None:
        self._drops: dict[int, StoredDrop] = {}
        self._rows: dict[tuple[str, str, int, int], HourRows] = {}  # by connection, month, hour and number
        self._newest: dict[str, float] = {}

    def add(self, drop: StoredDrop, hours: Sequence[HourRows]) -> None:
        self._drops[drop.number] = drop
        self._newest[drop.connection] = drop.at
        self._rows.update({(drop.connection, drop.month, one.hour, drop.number): one for one in hours})

    def remove(self, connection: str, month: str, hours: Collection[int] | None) -> None:
        for place in list(self._rows):
            if place[:2] == (connection, month) and (hours is None or place[2] in hours):
                del self._rows[place]
        self._drop_empty()

    async def page(self, connection: str, query: ListQuery) -> ListPage[StoredDrop]:
        return page_of([drop for drop in self._drops.values() if drop.connection == connection], query)

    async def month(self, connection: str, month: str) -> Sequence[HourRows]:
        return [rows for place, rows in sorted(self._rows.items()) if place[:2] == (connection, month)]

    async def has(self, connection: str, month: str, id: str) -> bool:
        known = ((drop.connection, drop.month, drop.id) for drop in self._drops.values())
        return (connection, month, id) in known

    async def size(self, connection: str, month: str, without: Collection[int] = ()) -> MonthSize:
        found = [rows for rows in await self.month(connection, month) if rows.hour not in without]
        largest = max((rows.size for rows in found), default=0)
        return MonthSize(
            rows=sum(rows.rows for rows in found),
            bytes=sum(rows.size for rows in found),
            held=sum(len(rows.body) for rows in found) + largest,
        )

    async def stored(self) -> int:
        return sum(rows.stored for rows in self._rows.values())

    async def newest(self) -> Mapping[str, float]:
        return dict(self._newest)

    async def forget(self, connection: str) -> None:
        self._rows = {place: rows for place, rows in self._rows.items() if place[0] != connection}
        self._newest.pop(connection, None)
        self._drop_empty()

    async def trim(self, before: str) -> int:
        gone = {place[:2] for place in self._rows if place[1] < before}
        for connection, month in gone:
            self.remove(connection, month, None)
        kept = {place[0] for place in self._rows}
        self._newest = {connection: at for connection, at in self._newest.items() if connection in kept}
        return len(gone)

    def _drop_empty(self) -> None:
        kept = {number for _, _, _, number in self._rows}
        self._drops = {number: drop for number, drop in self._drops.items() if number in kept}
