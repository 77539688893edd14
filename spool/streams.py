"""
Unit-cost streams: their definitions, and a running total for each of their records.

Totals change in the transaction that stores the operations, in the order of the log. Operations that differ
only in their value refer to one record.
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
from spool.shares import is_within_share

ALLOCATION, METRIC = "allocation", "metric"
TYPES = (ALLOCATION, METRIC)
HOURLY, DAILY, MONTHLY = "HOURLY", "DAILY", "MONTHLY"
GRANULARITIES = (HOURLY, DAILY, MONTHLY)
SUM, REPLACE, DELETE, CREATE, DROP = "sum", "replace", "delete", "create", "drop"

_EXACT = Context(prec=100)  # enough digits for any number of 15-digit values


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryStream:
    """The definition of a stream. `keys`: names of its dimensions, None while unknown."""

    name: str
    type: str
    granularity: str | None = None
    keys: tuple[str, ...] | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTotal:
    """
    The total of a record. `whole`: it includes every operation ever made. Only then may it replace the value
    in your cost service.
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
    """The size of a stream's totals on disk. `created_by`: the key that created the stream, or ""."""

    name: str
    created_by: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsPart:
    """
    A selection of totals: those in [since, until), in nanoseconds, that have one of the values in each
    dimension.
    """

    since: int | None = None
    until: int | None = None
    dimensions: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def has_total(self, total: StreamTotal) -> bool:
        if self.since is not None and total.start_time < self.since:
            return False
        if self.until is not None and total.start_time >= self.until:
            return False
        return all(
            set(values) & set(total.dimensions.get(name, ())) for name, values in self.dimensions.items()
        )


ALL_TOTALS = TotalsPart()


class StreamRows(Protocol):
    def find_stream(self, name: str) -> TelemetryStream | None: ...

    def put_stream(self, stream: TelemetryStream) -> None: ...

    def drop_stream(self, name: str) -> None: ...

    def prefetch_totals(self, total_keys: Iterable[tuple[str, str]]) -> None: ...

    def find_total(self, stream: str, key: str) -> StreamTotal | None: ...

    def put_total(self, total: StreamTotal) -> None: ...

    def totals_at(self, stream: str, start_time: int) -> Sequence[StreamTotal]: ...

    def remove_total(self, stream: str, key: str) -> None: ...


class StreamReader(Protocol):
    async def streams(self) -> Sequence[TelemetryStream]: ...

    async def stream_totals(self, stream: str) -> Sequence[StreamTotal]: ...

    async def find_totals(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], StreamTotal]: ...

    async def totals_page(
        self, stream: str, query: ListQuery, part: TotalsPart = ALL_TOTALS
    ) -> ListPage[StreamTotal]: ...

    async def stream_sizes(self) -> Sequence[StreamSize]: ...

    async def set_owner(self, stream: str, key: str) -> None:
        """Store the key that created a stream, unless one is stored."""
        ...


def apply_operations(
    stream_rows: StreamRows, operations: Iterable[UnitCostOperation], *, now: float, began_at: float
) -> None:
    """
    Apply operations to the totals. `began_at`: when this data directory began. Totals of earlier periods are
    incomplete, because other directories may have operations on them.
    """
    keyed = [
        (operation, operation_key(operation) if operation.operation in (SUM, REPLACE) else "")
        for operation in operations
    ]
    stream_rows.prefetch_totals((operation.stream, key) for operation, key in keyed if key)
    for operation, key in keyed:
        if operation.operation == DROP:
            stream_rows.drop_stream(operation.stream)
            continue
        _define_stream(stream_rows, operation, now)
        if key:
            _put_total(stream_rows, operation, key, now, began_at)
        elif operation.operation == DELETE:
            _delete_totals(stream_rows, operation)


def stream_of_operation(operation: UnitCostOperation) -> TelemetryStream:
    names_keys = operation.operation in (SUM, REPLACE) or bool(operation.dimensions)
    return TelemetryStream(
        name=operation.stream,
        type=operation.stream_type,
        granularity=operation.granularity,
        keys=tuple(sorted(operation.dimensions)) if names_keys else None,
    )


def operation_key(operation: UnitCostOperation) -> str:
    """
    Return the key (hex) of the record that an operation sets or adds to. Operations that differ only in value
    have equal keys.
    """
    facts = [
        period_start(operation.start_time or 0, operation.granularity),
        operation.granularity,
        operation.element_name,
        sorted((name, sorted(values)) for name, values in operation.dimensions.items()),
    ]
    return blake2b(msgspec.msgpack.encode(facts), digest_size=16, person=b"unit-cost record").hexdigest()


def period_start(time_ns: int, granularity: str | None) -> int:
    """Round a time down to the UTC hour, day or month. Without a granularity (metrics), to the day."""
    moment = datetime.fromtimestamp(time_ns // NS, UTC)
    start = moment.replace(minute=0, second=0, microsecond=0)
    if granularity != HOURLY:
        start = start.replace(hour=0)
    if granularity == MONTHLY:
        start = start.replace(day=1)
    return int(start.timestamp()) * NS


def rounded_text(value: Decimal) -> str:
    """Format a value with 15 significant digits. So sums of doubles are equal in every order."""
    return decimal_text(Context(prec=15).plus(value))


class KnownStreams:
    """
    The streams in memory. If first requests for a stream contradict each other, one is accepted.

    A claim reserves a definition until its operations are on disk or given up.
    """

    def __init__(self, streams: Iterable[TelemetryStream]) -> None:
        self._known = {stream.name: stream for stream in streams}
        self._claimed: dict[str, tuple[TelemetryStream, int]] = {}
        self._kept = frozenset(self._known)  # streams as they were last read from the storage

    def find_stream(self, name: str) -> TelemetryStream | None:
        claimed = self._claimed.get(name)
        return claimed[0] if claimed else self._known.get(name)

    def all(self) -> list[TelemetryStream]:
        return sorted(self._known.values(), key=lambda stream: stream.name)

    @contextmanager
    def claim_stream(self, stream: TelemetryStream) -> Iterator[None]:
        """Reserve the definition of a stream in the block. The caller must have checked it against `find_stream`."""
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

    def replace_known(self, streams: Sequence[TelemetryStream]) -> None:
        """
        Replace the streams by all stored ones, from any process. A stream that was never in a stored list
        stays, because this process is just committing it.
        """
        names = frozenset(stream.name for stream in streams)
        for name in self._kept - names:
            self.forget_stream(name)
        self._known.update({stream.name: stream for stream in streams})
        self._kept = names

    def learn_streams(self, operations: Iterable[UnitCostOperation]) -> None:
        for operation in operations:
            known = self._known.get(operation.stream)
            self._known[operation.stream] = merge_streams(known, stream_of_operation(operation))


def merge_streams(known_stream: TelemetryStream | None, described: TelemetryStream) -> TelemetryStream:
    if known_stream is None:
        return described
    keys = described.keys if known_stream.keys is None else known_stream.keys
    return replace(known_stream, granularity=known_stream.granularity or described.granularity, keys=keys)


def is_same_stream(known_stream: TelemetryStream | None, described: TelemetryStream) -> bool:
    """Return whether two definitions do not contradict each other."""
    if known_stream is None:
        return True
    if known_stream.type != described.type:
        return False
    facts = ((known_stream.granularity, described.granularity), (known_stream.keys, described.keys))
    return all(known is None or stated is None or known == stated for known, stated in facts)


def _define_stream(stream_rows: StreamRows, operation: UnitCostOperation, now: float) -> None:
    known = stream_rows.find_stream(operation.stream)
    stream = merge_streams(known, stream_of_operation(operation))
    if stream != known:
        stream_rows.put_stream(stream if known else replace(stream, created_at=now))


def _put_total(
    stream_rows: StreamRows, operation: UnitCostOperation, key: str, now: float, began_at: float
) -> None:
    start = period_start(operation.start_time or 0, operation.granularity)
    before = stream_rows.find_total(operation.stream, key)
    value = Decimal(operation.value or "0")
    replaces = operation.operation == REPLACE
    if before is not None and not replaces:
        with localcontext(_EXACT):
            value += Decimal(before.value)
    whole = replaces or (before.whole if before is not None else start >= began_at * NS)
    stream_rows.put_total(
        StreamTotal(
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


def _delete_totals(stream_rows: StreamRows, operation: UnitCostOperation) -> None:
    known = stream_rows.find_stream(operation.stream)
    granularity = operation.granularity or (known.granularity if known else None)
    start = period_start(operation.start_time or 0, granularity)
    for total in stream_rows.totals_at(operation.stream, start):
        if operation.element_name not in (None, total.element_name):
            continue
        if _has_dimensions(total, operation):
            stream_rows.remove_total(operation.stream, total.key)


def _has_dimensions(total: StreamTotal, operation: UnitCostOperation) -> bool:
    dimension_items = operation.dimensions.items()
    return all(set(values) == set(total.dimensions.get(name, ())) for name, values in dimension_items)


# -- limit on totals, shared by creating keys
# ---------------------------------------------------------------------


OVERHEAD = 192  # bytes of a row and its index entry, with their keys
# Parts of a key's share. Above NEARLY_FULL, old totals are deleted until ROOM is reached.
NEARLY_FULL, ROOM = (0.9, 0.8)


def estimated_bytes(total: StreamTotal) -> int:
    dimensions = json.dumps({name: list(values) for name, values in total.dimensions.items()})
    texts = len(total.element_name or "") + len(dimensions) + len(total.value)
    return OVERHEAD + 2 * len(total.stream.encode()) + texts


class TotalsInTransaction:
    """The totals that a transaction reads and changes, and by how many bytes each stream grows."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], StreamTotal | None] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._changed: set[tuple[str, str]] = set()
        self._growth: Counter[str] = Counter()

    def __contains__(self, total_key: tuple[str, str]) -> bool:
        return total_key in self._totals

    def __getitem__(self, total_key: tuple[str, str]) -> StreamTotal | None:
        return self._totals[total_key]

    def note_total(self, total_key: tuple[str, str], total: StreamTotal | None) -> None:
        """Add a total as read from the storage, None if it is not stored."""
        self._totals[total_key] = total
        self._sizes[total_key] = estimated_bytes(total) if total else 0

    def put_total(self, total: StreamTotal) -> None:
        """Change a total that `note_total` has added, also one that was not stored."""
        self._totals[total.stream, total.key] = total
        self._changed.add((total.stream, total.key))

    def note_deleted_total(self, total_key: tuple[str, str]) -> None:
        """Note that the caller deletes the row of a total."""
        self._changed.discard(total_key)
        self._totals[total_key] = None
        self._growth[total_key[0]] -= self._sizes.pop(total_key, 0)

    def take_changed_totals_and_growth(self) -> tuple[Sequence[StreamTotal], Sequence[tuple[str, int]]]:
        """Return the totals to store, and the growth in bytes by stream, both sorted."""
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
        """Forget all totals. After `take_changed_totals_and_growth`, they may no longer equal the stored ones."""
        self._totals.clear()
        self._sizes.clear()


def has_room_for_bytes(sizes: Sequence[StreamSize], key: str, max_bytes: int) -> bool:
    held, total = _bytes_by_key(sizes)
    return held[key] < max_bytes - total


def can_create_streams(sizes: Sequence[StreamSize], key: str, n: int, max_streams: int) -> bool:
    return is_within_share(sum(size.created_by == key for size in sizes), len(sizes), n, max_streams)


def plan_freed_bytes(sizes: Sequence[StreamSize], max_bytes: int) -> Mapping[str, int]:
    """
    Return the bytes to free by stream, for keys that nearly use up their part of the limit. The largest
    streams are first.
    """
    held, total = _bytes_by_key(sizes)
    bytes_by_stream: dict[str, int] = {}
    for key, own in held.items():
        allowed = max_bytes - total
        if own <= NEARLY_FULL * allowed:
            continue
        # each freed byte counts twice: the key has one byte less, and its limit is one byte higher
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
