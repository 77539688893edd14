"""
Billing drops that were taken: the rows of each connection's months, as the operations in the log have made them.

Rows move in the same transaction as the drop that moves them, and in the order of the log. They are kept by
the hour of `time/usage_start`, because that is what `replace_hourly` replaces. A drop is listed while a row
of it stands.
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
OPERATIONS = (REPLACE_DROP, REPLACE_HOURLY, SUM)  # the first is what a drop does that names none
HOUR_S = 3600
OVERHEAD = 256  # bytes on disk that an hour of a drop takes beside its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDrop:
    """A drop of which rows stand. `rows` is how many it brought, `number` its place in the log."""

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
    The rows of an hour that one drop brought: `size` in bytes of JSON, `body` compressed, commas between
    rows. `drop` is the number of that drop, once they are kept.
    """

    hour: int  # epoch seconds of its start
    rows: int
    size: int
    body: bytes
    drop: int = 0

    @property
    def stored(self) -> int:
        return len(self.body) + OVERHEAD

    @property
    def text(self) -> bytes:
        return zlib.decompress(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthSize:
    """
    `held` are the bytes of memory that reading takes: all rows as they are stored, and the largest hour inflated.
    """

    rows: int = 0
    bytes: int = 0
    held: int = 0


class DropRows(Protocol):
    """The rows within one transaction."""

    def add(self, drop: StoredDrop, hours: Sequence[HourRows]) -> None: ...

    def remove(self, connection: str, month: str, hours: Collection[int] | None) -> None:
        """The rows of these hours, None: of the whole month; and drops that have no row left."""
        ...


class BillingDrops(Protocol):
    """What is asked of the drops that were taken, and upkeep."""

    async def page(self, connection: str, query: ListQuery) -> ListPage[StoredDrop]: ...

    async def month(self, connection: str, month: str) -> Sequence[HourRows]:
        """
        Return the rows of a month by hour, then in the order in which the drops came; none if there are no drops.
        """
        ...

    async def months(self, connection: str) -> Mapping[str, float]:
        """Return the months of a connection that have rows, each with the time of its last drop."""
        ...

    async def has(self, connection: str, month: str, id: str) -> bool:
        """True if a drop with this id is listed."""
        ...

    async def size(self, connection: str, month: str, without: Collection[int] = ()) -> MonthSize:
        """Return the size of a month, without the rows of some hours."""
        ...

    async def stored(self) -> int:
        """Bytes on disk of all months."""
        ...

    async def newest(self) -> Mapping[str, float]:
        """Return the time of each connection's last drop."""
        ...

    async def forget(self, connection: str) -> None:
        """Remove every row of a connection."""
        ...

    async def trim(self, before: str) -> int:
        """Remove the months before one, `YYYY-MM`; how many went."""
        ...


BILLING_DROPS = SmallTable[BillingDrops]("billing drops", kept_by=("billing", "SqlBillingDrops"))


class _Data(msgspec.Struct):
    data: list[msgspec.Raw]


class _Start(msgspec.Struct):
    usage_start: str = msgspec.field(name="time/usage_start")


_data = msgspec.json.Decoder(_Data)
_start = msgspec.json.Decoder(_Start)


def apply(rows: DropRows, first: int, records: Iterable[Record], *, at: float) -> None:
    """Apply the drops of a commit in their order; `first` is the number of the first record."""
    for number, record in enumerate(records, start=first):
        if not isinstance(record, BillingDrop) or record.month is None:
            continue
        try:
            hours = hours_of(record.body)
        except (ValueError, OverflowError, msgspec.MsgspecError):  # it leaves, and is not shown here
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


def hours_of(body: bytes) -> list[HourRows]:
    """The rows of a drop by hour, each as it was sent. ValueError or MsgspecError when it is not a drop."""
    found: dict[int, list[bytes]] = {}
    for row in _data.decode(body).data:
        found.setdefault(hour_of(_start.decode(row).usage_start), []).append(bytes(row))
    hours = []
    for hour, rows in sorted(found.items()):
        text = b",".join(rows)
        hours.append(HourRows(hour=hour, rows=len(rows), size=len(text), body=zlib.compress(text, 1)))
    return hours


def hour_of(time: str) -> int:
    """The start of the hour (UTC) of an ISO 8601 time; one without a zone is UTC."""
    moment = datetime.fromisoformat(time.strip())
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return int(seconds // HOUR_S) * HOUR_S


def month_text(hours: Iterable[HourRows]) -> Iterator[bytes]:
    """The rows of a month as a JSON array, an hour at a time."""
    before = b"["
    for hour in hours:
        yield before + hour.text
        before = b","
    yield b"]" if before == b"," else b"[]"


# -- hours of AI cost, and what was last sent of them: a changed hour is sent again --------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SentHour:
    """`start` in epoch seconds."""

    start: int
    hash: bytes
    rows: int
    bytes: int
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingPlan:
    """What a span of hours amounts to in drops. `cost` is exact decimal text, `sent` counts the accepted hours."""

    hours: int
    rows: int
    bytes: int
    drops: int
    cost: str
    sent: int = 0


class BillingHours(Protocol):
    """What was accepted over each connection."""

    async def sent(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        """Return the sent hours that begin in [since, until), by their start."""
        ...

    async def keep(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        """Keep what was accepted, in place of what was sent for the same hours before."""
        ...


BILLING_HOURS = SmallTable[BillingHours]("billing hours", kept_by=("billing", "SqlBillingHours"))
