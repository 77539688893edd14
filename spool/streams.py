"""
Unit-cost streams: the definition of each stream, and the total of each of its records.

Totals change in the same transaction as the operations, in the order of the log. This module defines each
operation for all storage engines. Operations whose records differ only in their value refer to the same record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Context, Decimal, localcontext
from hashlib import blake2b
from typing import Protocol

import msgspec

from spool.listing import ListPage, ListQuery
from spool.record import NS, UnitCostOperation, decimal_text
from spool.shares import may_add

ALLOCATION, METRIC = "allocation", "metric"
TYPES = (ALLOCATION, METRIC)
HOURLY, DAILY, MONTHLY = "HOURLY", "DAILY", "MONTHLY"
GRANULARITIES = (HOURLY, DAILY, MONTHLY)
SUM, REPLACE, DELETE, CREATE, DROP = "sum", "replace", "delete", "create", "drop"

_EXACT = Context(prec=100)  # precision that is exact for totals of any number of 15-digit values of any size


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """
    Fixed properties of a stream. `keys` are the names of its records' dimensions. It is None while
    they are unknown.
    """

    name: str
    type: str
    granularity: str | None = None
    keys: tuple[str, ...] | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """
    One record of a stream, with its value after all operations.

    `whole` means that the total includes every operation ever made on the record. Only then may it replace
    the value in your cost service.
    """

    stream: str
    key: str
    start_time: int
    granularity: str | None
    element_name: str | None
    dimensions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    value: str
    whole: bool
    updated_at: float


@dataclass(frozen=True, slots=True)
class StreamSize:
    """
    Size of a stream's totals in bytes. `created_by` is the name of the key that created the stream, or "".
    """

    name: str
    created_by: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsPart:
    """
    Filter for totals. They begin in [since, until), in nanoseconds, and have one of the values in each
    dimension of `dimensions`.
    """

    since: int | None = None
    until: int | None = None
    dimensions: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def has_total(self, total: Total) -> bool:
        if self.since is not None and total.start_time < self.since:
            return False
        if self.until is not None and total.start_time >= self.until:
            return False
        return all(
            set(values) & set(total.dimensions.get(name, ())) for name, values in self.dimensions.items()
        )


ALL_TOTALS = TotalsPart()


class StreamRows(Protocol):
    """The rows of streams and totals, within one transaction."""

    def find_stream(self, name: str) -> Stream | None: ...

    def put_stream(self, stream: Stream) -> None: ...

    def drop_stream(self, name: str) -> None:
        """Delete the stream and all its totals."""
        ...

    def read_ahead(self, places: Iterable[tuple[str, str]]) -> None:
        """Read totals that will be needed, by stream and key, with few statements."""
        ...

    def find_total(self, stream: str, key: str) -> Total | None: ...

    def put_total(self, total: Total) -> None: ...

    def totals_at(self, stream: str, start_time: int) -> Sequence[Total]: ...

    def remove_total(self, stream: str, key: str) -> None: ...


class StreamReader(Protocol):
    """Queries of streams and totals, for receivers and exporters."""

    async def streams(self) -> Sequence[Stream]: ...

    async def totals(self, stream: str) -> Sequence[Total]: ...

    async def find(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Total]:
        """Return the totals that exist, by (stream, key)."""
        ...

    async def page(self, stream: str, query: ListQuery, part: TotalsPart = ALL_TOTALS) -> ListPage[Total]:
        """Return a page of the totals of a stream, or of a part of them."""
        ...

    async def stream_sizes(self) -> Sequence[StreamSize]:
        """Return the size of each stream's totals, and the key that created the stream."""
        ...

    async def set_owner(self, stream: str, key: str) -> None:
        """Store the key that created a stream, unless a key is already stored."""
        ...


def apply_operations(
    rows: StreamRows, operations: Iterable[UnitCostOperation], *, now: float, since: float
) -> None:
    """
    Apply operations in order.

    `since` is the time from which this data directory stores totals. For a period that began earlier, other
    operations may have been made elsewhere.
    """
    keyed = [
        (operation, operation_key(operation) if operation.operation in (SUM, REPLACE) else "")
        for operation in operations
    ]
    rows.read_ahead((operation.stream, key) for operation, key in keyed if key)
    for operation, key in keyed:
        if operation.operation == DROP:
            rows.drop_stream(operation.stream)
            continue
        _define(rows, operation, now)
        if key:
            _put(rows, operation, key, now, since)
        elif operation.operation == DELETE:
            _delete(rows, operation)


def described_stream(operation: UnitCostOperation) -> Stream:
    """Return the stream as an operation describes it."""
    names_keys = operation.operation in (SUM, REPLACE) or bool(operation.dimensions)
    return Stream(
        name=operation.stream,
        type=operation.stream_type,
        granularity=operation.granularity,
        keys=tuple(sorted(operation.dimensions)) if names_keys else None,
    )


def operation_key(operation: UnitCostOperation) -> str:
    """Return a key in hex. Records that differ only in their value have the same key."""
    facts = [
        period_start(operation.start_time or 0, operation.granularity),
        operation.granularity,
        operation.element_name,
        sorted((name, sorted(values)) for name, values in operation.dimensions.items()),
    ]
    return blake2b(msgspec.msgpack.encode(facts), digest_size=16, person=b"unit-cost record").hexdigest()


def period_start(time_ns: int, granularity: str | None) -> int:
    """Return the start of the UTC hour, day or month. The records of a metric are daily."""
    moment = datetime.fromtimestamp(time_ns // NS, UTC)
    start = moment.replace(minute=0, second=0, microsecond=0)
    if granularity != HOURLY:
        start = start.replace(hour=0)
    if granularity == MONTHLY:
        start = start.replace(day=1)
    return int(start.timestamp()) * NS


def rounded_text(value: Decimal) -> str:
    """
    Format a value with at most 15 significant digits. Up to that precision, sums of doubles are equal
    in every order.
    """
    return decimal_text(Context(prec=15).plus(value))


class StreamBook:
    """
    Definitions of all streams, in memory. If two first requests contradict each other, only one of
    them is accepted.

    A claim holds until its operations are on disk, or are given up.
    """

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._known = {stream.name: stream for stream in streams}
        self._claimed: dict[str, tuple[Stream, int]] = {}
        self._kept = frozenset(self._known)  # names that this process last read from the storage

    def find(self, name: str) -> Stream | None:
        claimed = self._claimed.get(name)
        return claimed[0] if claimed else self._known.get(name)

    def all(self) -> list[Stream]:
        return sorted(self._known.values(), key=lambda stream: stream.name)

    @contextmanager
    def claim(self, stream: Stream) -> Iterator[None]:
        """Claim a stream. The caller has checked that `stream` agrees with the result of `find`."""
        name = stream.name
        _, users = self._claimed.get(name, (stream, 0))
        self._claimed[name] = stream, users + 1
        try:
            yield
            self._known[name] = stream
        finally:
            now, users = self._claimed.pop(name)
            if users > 1:
                self._claimed[name] = now, users - 1

    def forget_stream(self, name: str) -> None:
        self._known.pop(name, None)

    def replace_known(self, streams: Sequence[Stream]) -> None:
        """
        Replace the known streams by the stored streams, which any process may have changed.

        A stream that was never read from the storage stays, because its operations are being committed.
        """
        names = frozenset(stream.name for stream in streams)
        for name in self._kept - names:
            self.forget_stream(name)
        self._known.update({stream.name: stream for stream in streams})
        self._kept = names

    def learn_streams(self, operations: Iterable[UnitCostOperation]) -> None:
        """Learn the streams of operations that were committed without a claim."""
        for operation in operations:
            known = self._known.get(operation.stream)
            self._known[operation.stream] = merge_streams(known, described_stream(operation))


def merge_streams(known: Stream | None, described: Stream) -> Stream:
    """Return the known stream. Fields that it does not have are filled in from the description."""
    if known is None:
        return described
    keys = described.keys if known.keys is None else known.keys
    return replace(known, granularity=known.granularity or described.granularity, keys=keys)


def is_same_stream(known: Stream | None, described: Stream) -> bool:
    """Return True if a description does not contradict the known stream."""
    if known is None:
        return True
    if known.type != described.type:
        return False
    facts = ((known.granularity, described.granularity), (known.keys, described.keys))
    return all(known is None or stated is None or known == stated for known, stated in facts)


def _define(rows: StreamRows, operation: UnitCostOperation, now: float) -> None:
    known = rows.find_stream(operation.stream)
    stream = merge_streams(known, described_stream(operation))
    if stream != known:
        rows.put_stream(stream if known else replace(stream, created_at=now))


def _put(rows: StreamRows, operation: UnitCostOperation, key: str, now: float, since: float) -> None:
    start = period_start(operation.start_time or 0, operation.granularity)
    before = rows.find_total(operation.stream, key)
    value = Decimal(operation.value or "0")
    replaces = operation.operation == REPLACE
    if before is not None and not replaces:
        with localcontext(_EXACT):
            value += Decimal(before.value)
    whole = replaces or (before.whole if before is not None else start >= since * NS)
    rows.put_total(
        Total(
            stream=operation.stream,
            key=key,
            start_time=start,
            granularity=operation.granularity,
            element_name=operation.element_name,
            dimensions=operation.dimensions,
            value=format(value, "f"),
            whole=whole,
            updated_at=now,
        )
    )


def _delete(rows: StreamRows, operation: UnitCostOperation) -> None:
    """Delete every total of the operation's period that has the element and dimensions of the operation."""
    known = rows.find_stream(operation.stream)
    granularity = operation.granularity or (known.granularity if known else None)
    start = period_start(operation.start_time or 0, granularity)
    for total in rows.totals_at(operation.stream, start):
        if operation.element_name not in (None, total.element_name):
            continue
        if _has_dimensions(total, operation):
            rows.remove_total(operation.stream, total.key)


def _has_dimensions(total: Total, operation: UnitCostOperation) -> bool:
    """Return True if a total has the operation's value in each dimension that the operation names."""
    dimension_items = operation.dimensions.items()
    return all(set(values) == set(total.dimensions.get(name, ())) for name, values in dimension_items)


# -- limit on the size of totals, shared by the keys that created the streams --------------------------------


OVERHEAD = 192  # estimated bytes of a row and its index entry, with keys
# Parts of a key's share. If a key uses more than NEARLY_FULL of its share, old totals are deleted until
# it uses ROOM.
NEARLY_FULL, ROOM = (
    0.9,
    0.8,
)


def estimated_bytes(total: Total) -> int:
    """Estimate the bytes of a total on disk."""
    dimensions = json.dumps({name: list(values) for name, values in total.dimensions.items()})
    texts = len(total.element_name or "") + len(dimensions) + len(total.value)
    return OVERHEAD + 2 * len(total.stream.encode()) + texts


class TotalsInHand:
    """Totals that a transaction has read and changed, and the changes in the sizes of their streams."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], Total | None] = {}  # totals by stream and key
        self._sizes: dict[tuple[str, str], int] = {}  # stored sizes by stream and key
        self._changed: set[tuple[str, str]] = set()
        self._growth: Counter[str] = Counter()

    def __contains__(self, place: tuple[str, str]) -> bool:
        return place in self._totals

    def __getitem__(self, place: tuple[str, str]) -> Total | None:
        return self._totals[place]

    def note_total(self, place: tuple[str, str], total: Total | None) -> None:
        """Note the stored state of a total. None means that it is not stored."""
        self._totals[place] = total
        self._sizes[place] = estimated_bytes(total) if total else 0

    def put(self, total: Total) -> None:
        """Replace a total that was noted before, even if it was noted as None."""
        self._totals[total.stream, total.key] = total
        self._changed.add((total.stream, total.key))

    def remove(self, place: tuple[str, str]) -> None:
        """Note that a total is deleted. The caller deletes the row."""
        self._changed.discard(place)
        self._totals[place] = None
        self._growth[place[0]] -= self._sizes.pop(place, 0)

    def settle(self) -> tuple[Sequence[Total], Sequence[tuple[str, int]]]:
        """
        Return the totals to store now, and the number of bytes by which each stream grows. Both are
        sorted by key.
        """
        changed = [
            total for stream_key in sorted(self._changed) if (total := self._totals[stream_key]) is not None
        ]
        for total in changed:
            stream_key = (total.stream, total.key)
            size = estimated_bytes(total)
            self._growth[total.stream] += size - self._sizes.get(stream_key, 0)
            self._sizes[stream_key] = size
        growth = [(name, n) for name, n in sorted(self._growth.items()) if n]
        self._changed.clear()
        self._growth.clear()
        return changed, growth

    def clear(self) -> None:
        """Drop the totals after `settle`, because they may no longer equal the stored ones."""
        self._totals.clear()
        self._sizes.clear()


def has_room(sizes: Sequence[StreamSize], key: str, max_bytes: int) -> bool:
    """Return True if totals may be added to the streams of a key."""
    held, total = _bytes_by_key(sizes)
    return held[key] < max_bytes - total


def may_create(sizes: Sequence[StreamSize], key: str, n: int, max_streams: int) -> bool:
    """Return True if a key may create `n` more streams."""
    return may_add(sum(size.created_by == key for size in sizes), len(sizes), n, max_streams)


def plan_freed_bytes(sizes: Sequence[StreamSize], max_bytes: int) -> Mapping[str, int]:
    """
    Return the bytes to free by stream, for keys that nearly use up their share. Of a key's streams, the
    largest come first.
    """
    held, total = _bytes_by_key(sizes)
    bytes_by_stream: dict[str, int] = {}
    for key, own in held.items():
        allowed = max_bytes - total
        if own <= NEARLY_FULL * allowed:
            continue
        # Each freed byte counts twice, because the key then holds less and leaves more space free.
        excess = int((own - ROOM * allowed) / (1 + ROOM)) + 1
        for size in sorted(sizes, key=lambda stream_size: -stream_size.bytes):
            if size.created_by == key and excess > 0:
                bytes_by_stream[size.name] = min(excess, size.bytes)
                excess -= size.bytes
    return bytes_by_stream


def _bytes_by_key(sizes: Sequence[StreamSize]) -> tuple[Counter[str], int]:
    held: Counter[str] = Counter()
    for size in sizes:
        held[size.created_by] += size.bytes
    return held, held.total()
