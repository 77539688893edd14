"""
Inserts the deliveries of a route into a ClickHouse table, each exactly once.

Before each insert, a query returns the rows that the table already has, so that a crash, a lost response or
another gateway neither loses nor repeats rows. A repeated insert has the same token, and the server accepts a
token only once. If rows are inserted twice nevertheless, they are equal, and ReplacingMergeTree merges them.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

from exporters.batch import TURN
from exporters.clickhouse.server import ClickHouseServer
from exporters.errors import Misconfigured
from exporters.exporter import StoreRouteMark, store_or_compare_delivery_mark
from exporters.lake.columns import COLUMNS, row_of_record
from exporters.lake.ndjson import encode_line
from exporters.lake.tables import LeftOutColumns, RowDigest
from spool.deliveries.protocols import LakeDeliveries
from spool.deliveries.rules import LAKE_MARK
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry

_LEVEL: Final = 3
_NAMES: Final = list(COLUMNS)


class ClickHouseExporter:
    in_flight = 1  # one, because each insert first queries which of its rows exist

    def __init__(
        self,
        server: ClickHouseServer,
        landings: LakeDeliveries,
        *,
        max_records: int,
        leave_out: Sequence[str] = (),
    ) -> None:
        self.max_records = max_records
        self._server = server
        self._landings = landings
        self._leave_out = leave_out

    async def write_delivery(
        self, delivery: Delivery, entries: AsyncIterator[LogEntry], store_delivery_mark: StoreRouteMark
    ) -> Settlement:
        """
        Store the rows' digest as the mark that recognizes a repeat. Then insert the rows unless the table has
        them.
        """
        editions = await self._landings.find_or_begin_log_editions(delivery.route, delivery.first)
        body = _InsertBody(editions[0], self._leave_out)
        async for entry in entries:
            for part in entry.split(TURN):
                body.add_entry(part)
                await asyncio.sleep(0)
        sent, digest = body.finish_with_digest()
        await store_or_compare_delivery_mark(
            delivery, f"{LAKE_MARK}clickhouse=1;digest={digest}", store_delivery_mark
        )
        stored_rows = await self._server.fetch_row_keys(set(editions), delivery.first, delivery.last)
        if not stored_rows <= body.rows:
            raise Misconfigured(
                f"the table already has other rows with the numbers {delivery.first} to "
                f"{delivery.last}, from another installation or from a copy of this one: configure "
                "another table (docs/lake/clickhouse.md)",
                answered=False,
            )
        if stored_rows != body.rows:
            token = f"{editions[0]}-{delivery.route}-{delivery.first}-{delivery.last}"
            await self._server.insert_rows(sent, token)
        return Settlement(delivered=len(body.rows), damaged=delivery.count - len(body.rows))

    async def close(self) -> None:
        await self._server.close()


class _InsertBody:
    """The body of an insert. It is compressed as lines are added."""

    def __init__(self, log_edition: str, leave_out: Sequence[str]) -> None:
        self.rows: set[tuple[int, str]] = set()  # number and id of each row
        self._edition = log_edition
        self._left_out = LeftOutColumns(leave_out)
        self._digest = RowDigest()
        self._gzip = zlib.compressobj(_LEVEL, wbits=31)
        self._pieces: list[bytes] = []

    def add_entry(self, entry: LogEntry) -> None:
        rows = [
            row_of_record(
                record, number=number, committed_at=entry.committed_at, log_edition=self._edition
            ).values
            for number, record in enumerate(entry.records, entry.first)
            if record is not None
        ]
        self._digest.add_rows(rows)
        self.rows.update((row[_NAMES.index("number")], row[_NAMES.index("id")]) for row in rows)
        lines = b"".join([encode_line(row) for row in self._left_out.blank_values(rows)])
        self._pieces.append(self._gzip.compress(lines))

    def finish_with_digest(self) -> tuple[bytes, str]:
        self._pieces.append(self._gzip.flush())
        return b"".join(self._pieces), self._digest.hexdigest()
