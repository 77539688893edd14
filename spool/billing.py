"""
Stored billing drops: files of billing rows that senders deliver for a connection and a month.

A drop is applied in the transaction that stores its record, in log order. Its rows are stored by the hour of
`time/usage_start`, because the operation `replace_hourly` replaces single hours. A drop is listed as long as
at least one of its rows is stored.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from spool.listing import ListPage, ListQuery
from spool.record import HourlyBillingFile, Record
from spool.sql.small import SmallTable

REPLACE_DROP, REPLACE_HOURLY, SUM = "replace_drop", "replace_hourly", "sum"
OPERATIONS = (REPLACE_DROP, REPLACE_HOURLY, SUM)  # the first is the default
HOUR_S = 3600
OVERHEAD = 256  # bytes that an hour's row takes on disk, besides its body


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBillingFile:
    """
    An hourly billing file (drop). `rows`: its row count on arrival. `number`: the log number of its record.
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
    The rows of an hourly billing file in one hour. `body`: zlib-compressed JSON objects, separated by commas.
    `size`: bytes before compression. `drop`: the log number of the file's record, 0 before it is stored.
    """

    hour: int  # epoch seconds
    rows: int
    size: int
    body: bytes
    drop: int = 0

    @property
    def disk_bytes(self) -> int:
        return len(self.body) + OVERHEAD

    @property
    def json_rows(self) -> bytes:
        return zlib.decompress(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthSize:
    """
    The size of a connection's month. `held`: bytes of memory that reading it needs, namely all compressed
    rows and the largest hour decompressed.
    """

    rows: int = 0
    bytes: int = 0
    held: int = 0


class HourlyBillingFileRows(Protocol):
    def add_billing_drop(self, billing_file: StoredBillingFile, hours: Sequence[HourRows]) -> None: ...

    def delete_hours(self, connection: str, month: str, hours: Collection[int] | None) -> None:
        """
        Delete the month's rows in these hours (None: all hours), then the billing files that have no rows
        left.
        """
        ...


class HourlyBillingFiles(Protocol):
    async def page(self, connection: str, query: ListQuery) -> ListPage[StoredBillingFile]: ...

    async def month_hours(self, connection: str, month: str) -> Sequence[HourRows]:
        """Return the month's rows by hour and, within an hour, by arrival."""
        ...

    async def last_drop_at_by_month(self, connection: str) -> Mapping[str, float]: ...

    async def has_billing_drop(self, connection: str, month: str, id: str) -> bool: ...

    async def month_size(self, connection: str, month: str, without: Collection[int] = ()) -> MonthSize: ...

    async def stored_bytes(self) -> int: ...

    async def last_billing_drop_at_by_connection(self) -> Mapping[str, float]: ...

    async def delete_connection(self, connection: str) -> None: ...

    async def delete_old_months(self, before: str) -> int:
        """Delete all months before `before` (YYYY-MM). Return their number, counted per connection."""
        ...


BILLING_DROPS = SmallTable[HourlyBillingFiles]("billing drops", kept_by=("billing", "SqlBillingDrops"))


class _Data(msgspec.Struct):
    data: list[msgspec.Raw]


class _Start(msgspec.Struct):
    usage_start: str = msgspec.field(name="time/usage_start")


_data = msgspec.json.Decoder(_Data)
_start = msgspec.json.Decoder(_Start)


def apply_billing_drops(
    rows: HourlyBillingFileRows, first_number: int, records: Iterable[Record], *, arrived_at: float
) -> None:
    """
    Apply the hourly billing files (drops) among `records`, in order. `first_number`: the log number of the
    first record. `arrived_at`: arrival time.

    Other records are skipped. A file with unreadable rows is skipped as well, but is still delivered.
    """
    for number, record in enumerate(records, start=first_number):
        if not isinstance(record, HourlyBillingFile) or record.month is None:
            continue
        try:
            hours = split_by_hour(record.body)
        # the billing rows are still delivered, but cannot be shown
        except (ValueError, OverflowError, msgspec.MsgspecError):
            continue
        operation = record.operation or REPLACE_DROP
        if operation != SUM:
            replaced = None if operation == REPLACE_DROP else [hour.hour for hour in hours]
            rows.delete_hours(record.connection_id, record.month, replaced)
        drop = StoredBillingFile(
            number=number,
            id=record.id.hex(),
            connection=record.connection_id,
            month=record.month,
            operation=operation,
            rows=record.rows,
            at=arrived_at,
        )
        rows.add_billing_drop(drop, hours)


def split_by_hour(body: bytes) -> list[HourRows]:
    """
    Group the rows of a billing drop by hour. Raises ValueError or MsgspecError if `body` is no billing drop.
    """
    rows_by_hour: dict[int, list[bytes]] = {}
    for row in _data.decode(body).data:
        rows_by_hour.setdefault(hour_start(_start.decode(row).usage_start), []).append(bytes(row))
    hours = []
    for hour, rows in sorted(rows_by_hour.items()):
        text = b",".join(rows)
        hours.append(HourRows(hour=hour, rows=len(rows), size=len(text), body=zlib.compress(text, 1)))
    return hours


def hour_start(time: str) -> int:
    """
    Return the start of the hour that contains `time`, in epoch seconds. A time without a zone is read as UTC.
    """
    moment = datetime.fromisoformat(time.strip())
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return int(seconds // HOUR_S) * HOUR_S


def rows_of_month_json(hours: Iterable[HourRows]) -> Iterator[bytes]:
    """Yield one JSON array of all rows, one hour at a time."""
    before = b"["
    for hour in hours:
        yield before + hour.json_rows
        before = b","
    yield b"]" if before == b"," else b"[]"


# -- hours of AI cost as they were last sent; a changed hour is sent again
# --------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SentHour:
    """
    One hour of AI cost, as it was last sent to the receiver of billing drops. `start`: epoch seconds. `hash`:
    of its rows.
    """

    start: int
    hash: bytes
    rows: int
    bytes: int
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingPlan:
    """
    A span of hours to send as billing drops. `cost`: exact decimal text. `sent`: the hours already accepted.
    """

    hours: int
    rows: int
    bytes: int
    drops: int
    cost: str
    sent: int = 0


class SentBillingHours(Protocol):
    """The hours of AI cost that the receiver has accepted over each connection."""

    async def sent_hours(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]: ...

    async def store_hours(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        """Store the hours. A stored hour with the same start is replaced."""
        ...


BILLING_HOURS = SmallTable[SentBillingHours]("billing hours", kept_by=("billing", "SqlBillingHours"))
