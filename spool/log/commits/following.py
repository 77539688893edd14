"""
Commit rows, and the state that a process derives from them. Pure.

Several processes append to one log. From the rows of the others, each process learns the record numbers, the
ids, and which records are closed.
"""

from __future__ import annotations

import logging
import sys
import zlib
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from threading import Lock
from typing import NamedTuple

import msgspec

from spool.log.commits.id_compaction import UncompactedCommits
from spool.log.duplicates import DuplicateIndex
from spool.log.entries.codec import NO_RECORD
from spool.log.partial_reports import PartialReport
from spool.log.pending_spans import GivenValues, change_given_values
from spool.log.planning.plan import CommitPlan
from spool.log.planning.planner import CommitPlanner
from spool.record import TOPICS

UNKNOWN_TOKEN = 0  # CommitRow.token of a commit that another kind of storage made without a token
SOONER_S = 300.0  # seconds; a row whose time is further ahead of the clock is not believed

_log = logging.getLogger(__name__)

NumbersByTopic = tuple[int, ...]  # values in the order of TOPICS


class CommitRow(NamedTuple):
    """
    A commit, for processes that follow the log. `token`: distinguishes it from a commit with the same id
    after a failover. `next` and `closed`: by topic, the next record number, and the first that reports may
    still change. `ids`: encoded by `pack_ids_of_commit_plan`.
    """

    id: int
    period: int
    token: int
    at: float
    next: NumbersByTopic
    closed: NumbersByTopic
    durable: int  # newest commit that surely survives the loss of the database machine
    entries: int  # in the log after this commit
    size: int  # bytes of the log after this commit
    ids: bytes = b""


BEGINNING = CommitRow(0, 1, 0, 0.0, (1,) * len(TOPICS), (1,) * len(TOPICS), 0, 0, 0)


class NewIds(NamedTuple):
    """
    New dedup ids in order of arrival, each with its record's position (topic and number) and the hour under
    which it is stored.
    """

    ids: Sequence[int]
    places: Sequence[int]
    hours: Sequence[int]


NO_IDS = NewIds((), (), ())
COMMIT = "commit"  # key in UncompactedCommits, next to topics


class _StoredIds(msgspec.Struct, array_like=True):
    """
    The encoded form of NewIds. Places and hours are stored as differences from the previous one, which are
    nearly constant and compress well.
    """

    ids: bytes
    places: bytes
    hours: bytes
    checksum: int  # checksum of the fields above
    spans: list[PartialReport] = []  # spans that link calls to agents' runs


_packed = msgspec.msgpack.Decoder(_StoredIds)


def pack_ids_of_commit_plan(plan: CommitPlan) -> bytes:
    return pack_new_ids(NewIds(tuple(plan.ids), tuple(plan.ids.values()), plan.hours), plan.span_rows)


def pack_new_ids(new: NewIds, spans: Sequence[PartialReport] = ()) -> bytes:
    if not new.ids and not spans:
        return b""
    ids = array("Q", new.ids)
    log_positions = array("q", new.places)
    parts = (
        _to_bytes(ids),
        zlib.compress(_to_bytes(_to_differences(log_positions)), 1),
        zlib.compress(_to_bytes(_to_differences(new.hours)), 1),
    )
    return msgspec.msgpack.encode(_StoredIds(*parts, _checksum(*parts), list(spans)))


def unpack_new_ids(data: bytes) -> NewIds:
    """Decode new ids. Raises ValueError if the bytes are damaged."""
    if not data:
        return NO_IDS
    try:
        packed = _packed.decode(data)
        if packed.checksum != _checksum(packed.ids, packed.places, packed.hours):
            raise ValueError("the ids of a commit are damaged")
        log_positions, hours = (
            _from_differences(_from_bytes("q", zlib.decompress(steps)))
            for steps in (packed.places, packed.hours)
        )
    except (*NO_RECORD, zlib.error) as error:
        raise ValueError(f"the ids of a commit are damaged: {error}") from error
    new_ids = NewIds(_from_bytes("Q", packed.ids), log_positions, hours)
    if not len(new_ids.ids) == len(log_positions) == len(hours):
        raise ValueError("the ids of a commit are damaged")
    return new_ids


def unpack_spans(data: bytes) -> Sequence[PartialReport]:
    try:
        return _packed.decode(data).spans if data else ()
    except NO_RECORD:
        return ()


def change_packed_spans(data: bytes, change: Callable[[GivenValues], GivenValues]) -> bytes:
    """
    Change the values of spans in a commit's encoded ids and spans. Damaged bytes are returned unchanged.
    """
    try:
        packed = _packed.decode(data)
    except NO_RECORD:
        return data
    if not packed.spans:
        return data
    packed.spans = [row._replace(body=change_given_values(row.body, change)) for row in packed.spans]
    return msgspec.msgpack.encode(packed)


def _checksum(*parts: bytes) -> int:
    return zlib.crc32(b"".join(parts))


def numbers_in_topic_order(numbers: Mapping[str, int], default: int = 1) -> list[int]:
    return [numbers.get(topic, default) for topic in TOPICS]


def numbers_by_topic(numbers: Sequence[int]) -> dict[str, int]:
    return dict(zip(TOPICS, numbers, strict=True))


class _UnconfirmedCommit(NamedTuple):
    """A commit that would be lost if the database machine failed now."""

    id: int
    at: float
    size: int  # bytes of the log before this commit
    before: NumbersByTopic  # each topic's next number before this commit


class FollowedLogState:
    """
    The state of a log after the newest commit row that this process has read.

    Only one thread at a time may apply rows. Any thread may call `lowest_open_numbers`.
    """

    def __init__(self, index: DuplicateIndex, *, hold_s: float, max_spans: int) -> None:
        self.index = index
        self.planner = CommitPlanner(index, hold_s=hold_s, max_spans=max_spans)
        self.last = BEGINNING
        self.confirmed = 0  # newest commit that surely survives the loss of the database machine
        self._hold_s = hold_s
        # commits whose records may be open (late reports can change them), in order of their times
        self._open: list[CommitRow] = []
        # oldest first
        self._unconfirmed: deque[_UnconfirmedCommit] = deque()
        self._unfolded = UncompactedCommits()
        self._lock = Lock()

    def load_rows_with_uncompacted_ids(
        self,
        rows: Sequence[CommitRow],
        first_uncompacted_numbers: NumbersByTopic,
        *,
        is_first_row_partly_compacted: bool,
    ) -> None:
        """
        At a start, load the rows with ids that are in no stored sorted list. Some ids of the first row may be
        in one.

        `first_uncompacted_numbers`: each topic's first number whose ids are in no list.
        """
        for index, row in enumerate(rows):
            self._index_ids(
                row,
                first_uncompacted_numbers,
                is_partly_compacted=is_first_row_partly_compacted and index == 0,
            )
            first_uncompacted_numbers = row.next

    def load_commits_with_open_records(self, rows: Iterable[CommitRow]) -> None:
        for row in rows:
            self._note_commit_row(row)

    def apply_foreign_row(self, row: CommitRow) -> None:
        """Apply a row of another process, or a row of this process if the result of its commit was lost."""
        self._index_ids(row, self.last.next)
        self._note_commit_row(row)

    def apply_own_commit(self, row: CommitRow, plan: CommitPlan) -> None:
        """Apply a commit of this process, once its result is known."""
        before = self.last.next
        self.planner.apply_plan_and_return_next_numbers(plan)
        self._note_uncompacted_ids(row, before, len(plan.ids))
        self._note_commit_row(row)

    def highest_compacted_commit_and_numbers(
        self, newly_compacted_id_count: int
    ) -> tuple[int, NumbersByTopic]:
        """
        Return the highest commit, and by topic the highest record number, up to which all ids are in sorted
        lists once the `newly_compacted_id_count` oldest ids are moved there.
        """
        first_unfolded = self._unfolded.first_uncompacted_number_by_kind(newly_compacted_id_count)
        closed = zip(TOPICS, self.last.closed, strict=True)
        through = tuple(min(below, first_unfolded.get(topic, below)) - 1 for topic, below in closed)
        return first_unfolded.get(COMMIT, self.last.id + 1) - 1, through

    def note_compacted_ids(self, newly_compacted_id_count: int) -> None:
        self._unfolded.note_compacted_ids(newly_compacted_id_count)

    def lowest_open_numbers(self, now: float, *, durable_through: float = inf) -> NumbersByTopic:
        """
        Return each topic's lowest number that is still open (may change), by commits up to `durable_through`.

        If records wait for late reports, the number is never lower than in the newest commit row.
        """
        with self._lock:
            if not self._hold_s:
                end = bisect_right(self._unconfirmed, durable_through, key=lambda commit: commit.id)
                return self._unconfirmed[end].before if end < len(self._unconfirmed) else self.last.next
            end = bisect_right(self._open, now - self._hold_s, key=lambda row: row.at)
            end = min(end, bisect_right(self._open, durable_through, key=lambda row: row.id))
            closed = self.last.closed
            return tuple(map(max, self._open[end - 1].next, closed)) if end else closed

    @property
    def durable_commit_id(self) -> int:
        return max(self.confirmed, self.last.durable)

    def measure_unconfirmed_seconds_and_bytes(self) -> tuple[float, int]:
        """
        Return the seconds from the first to the last commit that would be lost if the database machine
        failed, and their bytes.
        """
        with self._lock:
            self._drop_confirmed_commits()
            if not self._unconfirmed:
                return 0.0, 0
            first = self._unconfirmed[0]
            return self.last.at - first.at, self.last.size - first.size

    def non_decreasing_commit_time(self, now: float) -> float:
        """
        Return a commit time that is not before the last row's, unless that is too far ahead of the clock.
        """
        before = self.last.at
        return before if now < before <= now + SOONER_S else now

    def next_records_close_at(self) -> float | None:
        with self._lock:
            return self._open[0].at + self._hold_s if self._open else None

    def _index_ids(
        self, row: CommitRow, first_numbers: NumbersByTopic, *, is_partly_compacted: bool = False
    ) -> None:
        try:
            new = unpack_new_ids(row.ids)
        except ValueError as error:
            _log.error("%s and are left out", error, extra={"action": "ids_damaged", "commit": row.id})
            new = NO_IDS
        ids: dict[int, int] = {}
        hours = []
        for id, log_position, hour in zip(new.ids, new.places, new.hours, strict=True):
            if self.index.is_among_newest_ids(id) or (
                is_partly_compacted and self.index.is_in_id_runs(id, hour)
            ):
                continue
            ids[id] = log_position
            hours.append(hour)
        if ids:
            self.index.add_ids(ids, hours, row.at)
            self._note_uncompacted_ids(row, first_numbers, len(ids))
        if row.ids:
            self.planner.spans.load_rows(unpack_spans(row.ids))

    def _note_uncompacted_ids(self, row: CommitRow, first_numbers: NumbersByTopic, id_count: int) -> None:
        topics = zip(TOPICS, first_numbers, row.next, strict=True)
        self._unfolded.note_commit(
            id_count, {COMMIT: row.id} | {topic: number for topic, number, after in topics if number < after}
        )

    def _note_commit_row(self, row: CommitRow) -> None:
        with self._lock:
            self._unconfirmed.append(_UnconfirmedCommit(row.id, row.at, self.last.size, self.last.next))
            self.last = row
            # earlier rows with a later time were written while the clock was ahead; their records close with this row's
            while self._open and self._open[-1].at > row.at:
                self._open.pop()
            self._open.append(row._replace(ids=b""))
            self._drop_confirmed_commits()
            gone = 0
            while gone < len(self._open) and _has_only_closed_records(self._open[gone], row):
                gone += 1
            del self._open[:gone]
        self.planner.set_next_numbers(
            {topic: number for topic, number in numbers_by_topic(row.next).items() if number > 1}
        )

    def _drop_confirmed_commits(self) -> None:
        while self._unconfirmed and self._unconfirmed[0].id <= self.durable_commit_id:
            self._unconfirmed.popleft()


def _has_only_closed_records(row: CommitRow, newest_row: CommitRow) -> bool:
    return all(map(int.__le__, row.next, newest_row.closed))


def _to_differences(values: Sequence[int]) -> array[int]:
    return array("q", map(int.__sub__, values, [0, *values[:-1]]))


def _from_differences(steps: Sequence[int]) -> list[int]:
    values = []
    value = 0
    for step in steps:
        value += step
        values.append(value)
    return values


def _to_bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _from_bytes(type: str, data: bytes) -> array[int]:
    numbers: array[int] = array(type)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# -- ids that a later report adds to a stored record ---------------------------------------------------


FIRST, AFTER = "names ", "names!"  # the keys of `fact_key_of_added_ids` sort between the two


class _Names(msgspec.Struct, array_like=True):
    at: float
    ids: bytes


_names = msgspec.msgpack.Decoder(_Names)


def fact_key_of_added_ids(commit_id: int) -> str:
    return f"{FIRST}{commit_id:020}"


def commit_id_of_fact_key(fact_key: str) -> int:
    return int(fact_key.removeprefix(FIRST))


def pack_ids_added_to_earlier_records(
    committed_at: float, ids_positions_and_hours: Iterable[tuple[int, int, int]]
) -> bytes:
    """
    Encode further ids that a commit added to earlier records, at least one. Each is a tuple of id, position
    (topic and number of the record) and hour.
    """
    ids, log_positions, hours = zip(*ids_positions_and_hours, strict=True)
    return msgspec.msgpack.encode(_Names(committed_at, pack_new_ids(NewIds(ids, log_positions, hours))))


def unpack_ids_added_to_earlier_records(data: bytes) -> tuple[float, NewIds]:
    """
    Decode further ids that a commit added to earlier records. Return its time and these ids. Raises
    ValueError if the bytes are damaged.
    """
    try:
        names = _names.decode(data)
    except NO_RECORD as error:
        raise ValueError(f"the names of a commit are damaged: {error}") from error
    return names.at, unpack_new_ids(names.ids)


def added_ids_from_facts(facts: Mapping[str, bytes]) -> Iterator[tuple[int, int, int]]:
    for name in sorted(facts):
        if FIRST <= name < AFTER:
            yield from zip(*unpack_ids_added_to_earlier_records(facts[name])[1], strict=True)
