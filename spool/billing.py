"""
Storage of billing drops, which are hourly files of billing rows. It holds the rows of each connection and
month that remain after all operations in the log.

A drop's rows change in the same transaction as its record, in the order of the log. Rows are stored by the
hour of `time/usage_start`, because the operation `replace_hourly` replaces whole hours. A drop is listed
while at least one of its rows is stored.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from spool.listing import ListPage, ListQuery
from spool.record import BillingDrop, Record
from spool.sql.small import SmallTable

REPLACE_DROP, REPLACE_HOURLY, SUM = "replace_drop", "replace_hourly", "sum"
OPERATIONS = (REPLACE_DROP, REPLACE_HOURLY, SUM)  # operations of a drop; the first is the default
HOUR_S = 3600
OVERHEAD = 256  # bytes on disk per hour of a drop, in addition to its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDrop:
    """
    A drop with stored rows. `rows` is the number of rows that the drop contained when it arrived; `number` is
    its record number in the log.
    """

    number: int
    id: str
    connection: str
    month: str
    operation: str
    rows: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRows:
    """
    The rows of one drop in one hour. `body` has the rows as compressed JSON, separated by commas. `size` is
    the number of bytes before compression.

    `drop` is the record number of the drop, once the rows are stored.
    """

    hour: int  # start of the hour, in epoch seconds
    rows: int
    size: int
    body: bytes
    drop: int = 0

    @property
    def disk_bytes(self) -> int:
        return len(self.body) + OVERHEAD

    @property
    def text(self) -> bytes:
        return zlib.decompress(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthSize:
    """
    Size of a month's rows. `held` is the memory in bytes that a reader of the month needs: all stored rows,
    plus the largest hour decompressed.
    """

    rows: int = 0
    bytes: int = 0
    held: int = 0


class DropRows(Protocol):
    """Changes to the stored rows within one transaction."""

    def add(self, drop: StoredDrop, hours: Sequence[HourRows]) -> None: ...

    def remove(self, connection: str, month: str, hours: Collection[int] | None) -> None:
        """Delete the rows of these hours (None: of the whole month), and the drops that have no row left."""
        ...


class BillingDrops(Protocol):
    """Queries of the received drops, and deletion of old ones."""

    async def page(self, connection: str, query: ListQuery) -> ListPage[StoredDrop]: ...

    async def month_hours(self, connection: str, month: str) -> Sequence[HourRows]:
        """
        Return the rows of a month by hour, and within an hour in order of arrival. Empty if there are no drops.
        """
        ...

    async def last_drop_by_month(self, connection: str) -> Mapping[str, float]:
        """Return the months of a connection that have rows, each with the time of its last drop."""
        ...

    async def has_drop(self, connection: str, month: str, id: str) -> bool:
        """Return True if a drop with this id is listed."""
        ...

    async def month_size(self, connection: str, month: str, without: Collection[int] = ()) -> MonthSize:
        """Return the size of a month. The hours in `without` are not counted."""
        ...

    async def stored_bytes(self) -> int:
        """Return the bytes on disk of all months."""
        ...

    async def last_drop_by_connection(self) -> Mapping[str, float]:
        """Return the time of each connection's last drop."""
        ...

    async def delete_connection(self, connection: str) -> None:
        """Delete every row of a connection."""
        ...

    async def delete_old_months(self, before: str) -> int:
        """Delete all months before `before` (YYYY-MM). Return the number of deleted months."""
        ...


BILLING_DROPS = SmallTable[BillingDrops]("billing drops", kept_by=("billing", "SqlBillingDrops"))


class _Data(msgspec.Struct):
    data: list[msgspec.Raw]


class _Start(msgspec.Struct):
    usage_start: str = msgspec.field(name="time/usage_start")


_data = msgspec.json.Decoder(_Data)
_start = msgspec.json.Decoder(_Start)


def apply_drops(rows: DropRows, first: int, records: Iterable[Record], *, at: float) -> None:
    """Apply the drops of a commit in order. `first` is the number of the first record."""
    for number, record in enumerate(records, start=first):
        if not isinstance(record, BillingDrop) or record.month is None:
            continue
        try:
            hours = split_by_hour(record.body)
        # the drop is delivered, but its rows cannot be shown here
        except (ValueError, OverflowError, msgspec.MsgspecError):
            continue
        operation = record.operation or REPLACE_DROP
        if operation != SUM:
            replaced = None if operation == REPLACE_DROP else [hour.hour for hour in hours]
            rows.remove(record.connection_id, record.month, replaced)
        drop = StoredDrop(
            number=number,
            id=record.id.hex(),
            connection=record.connection_id,
            month=record.month,
            operation=operation,
            rows=record.rows,
            at=at,
        )
        rows.add(drop, hours)


def split_by_hour(body: bytes) -> list[HourRows]:
    """Return the rows of a drop by hour, unchanged. Raises ValueError or MsgspecError if it is not a drop."""
    rows_by_hour: dict[int, list[bytes]] = {}
    for row in _data.decode(body).data:
        rows_by_hour.setdefault(hour_start(_start.decode(row).usage_start), []).append(bytes(row))
    hours = []
    for hour, rows in sorted(rows_by_hour.items()):
        text = b",".join(rows)
        hours.append(HourRows(hour=hour, rows=len(rows), size=len(text), body=zlib.compress(text, 1)))
    return hours


def hour_start(time: str) -> int:
    """Return the start of the UTC hour that contains an ISO 8601 time. A time without a zone is UTC."""
    moment = datetime.fromisoformat(time.strip())
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return int(seconds // HOUR_S) * HOUR_S


def month_text(hours: Iterable[HourRows]) -> Iterator[bytes]:
    """Yield the rows of a month as a JSON array, one hour at a time."""
    before = b"["
    for hour in hours:
        yield before + hour.text
        before = b","
    yield b"]" if before == b"," else b"[]"


# -- hours of AI cost, with the version that was sent last; a changed hour is sent again ---------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SentHour:
    """The version of an hour that was sent last. `start` is in epoch seconds."""

    start: int
    hash: bytes
    rows: int
    bytes: int
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingPlan:
    """
    Size of a span of hours when it is sent as drops. `cost` is exact decimal text. `sent` counts the hours
    that the receiver has accepted.
    """

    hours: int
    rows: int
    bytes: int
    drops: int
    cost: str
    sent: int = 0


class BillingHours(Protocol):
    """Storage of the hours that were accepted over each connection."""

    async def sent_hours(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        """Return the sent hours that begin in [since, until), by start."""
        ...

    async def store_hours(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        """Store accepted hours. They replace the stored rows of the same hours."""
        ...


BILLING_HOURS = SmallTable[BillingHours]("billing hours", kept_by=("billing", "SqlBillingHours"))
