"""
Commit rows, and the memory of a log that follows them. Pure.

Several processes may append to one log. Each process reads the commit rows of the others. From these it knows
their record numbers and ids, and which records are closed.
"""

from __future__ import annotations

import logging
import sys
import zlib
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from threading import Lock
from typing import NamedTuple

import msgspec

from spool.log.commits.unfolded import UnfoldedCommits
from spool.log.duplicates import DuplicateIndex
from spool.log.entries.codec import NO_RECORD
from spool.log.planning.plan import Plan
from spool.log.planning.planner import Planner
from spool.record import TOPICS

UNKNOWN_TOKEN = 0  # token of a commit that was copied from a storage without tokens
SOONER_S = 300.0  # a row's time is ignored if it is further ahead of the clock than this

_log = logging.getLogger(__name__)

ByTopic = tuple[int, ...]  # one number per topic, in the order of TOPICS


class CommitRow(NamedTuple):
    """Data of a commit for the processes that follow. `pack_ids` encodes `ids`."""

    id: int
    period: int
    token: int
    at: float
    next: ByTopic
    closed: ByTopic
    durable: int  # the newest commit that is known to survive the loss of the machine
    entries: int  # number of entries in the log after this commit
    size: int  # bytes of the log after this commit
    ids: bytes = b""


BEGINNING = CommitRow(0, 1, 0, 0.0, (1,) * len(TOPICS), (1,) * len(TOPICS), 0, 0, 0)


class NewIds(NamedTuple):
    """Ids that a commit made known, in order of arrival."""

    ids: Sequence[int]
    places: Sequence[int]
    hours: Sequence[int]


NO_IDS = NewIds((), (), ())
COMMIT = "commit"  # name of the commit number among the kinds of UnfoldedCommits


class _Packed(msgspec.Struct, array_like=True):
    """
    Stored form of NewIds. Places and hours are stored as differences, which are nearly constant and compress well.
    """

    ids: bytes
    places: bytes
    hours: bytes
    checksum: int  # checksum of the three fields above


_packed = msgspec.msgpack.Decoder(_Packed)


def pack_ids(plan: Plan) -> bytes:
    return pack_new_ids(NewIds(tuple(plan.ids), tuple(plan.ids.values()), plan.hours))


def pack_new_ids(new: NewIds) -> bytes:
    """Encode the ids of a commit with their places and hours and a checksum. `unpack_ids` decodes them."""
    if not new.ids:
        return b""
    ids = array("Q", new.ids)
    places = array("q", new.places)
    parts = (
        _bytes(ids),
        zlib.compress(_bytes(_steps(places)), 1),
        zlib.compress(_bytes(_steps(new.hours)), 1),
    )
    return msgspec.msgpack.encode(_Packed(*parts, _checksum(*parts)))


def unpack_ids(data: bytes) -> NewIds:
    """Decode the ids of a commit. Raises ValueError if the bytes changed."""
    if not data:
        return NO_IDS
    try:
        packed = _packed.decode(data)
        if packed.checksum != _checksum(packed.ids, packed.places, packed.hours):
            raise ValueError("the ids of a commit are damaged")
        places, hours = (
            _sums(_numbers("q", zlib.decompress(steps))) for steps in (packed.places, packed.hours)
        )
    except (*NO_RECORD, zlib.error) as error:
        raise ValueError(f"the ids of a commit are damaged: {error}") from error
    new_ids = NewIds(_numbers("Q", packed.ids), places, hours)
    if not len(new_ids.ids) == len(places) == len(hours):
        raise ValueError("the ids of a commit are damaged")
    return new_ids


def _checksum(*parts: bytes) -> int:
    return zlib.crc32(b"".join(parts))


def of_topics(numbers: Mapping[str, int], default: int = 1) -> list[int]:
    return [numbers.get(topic, default) for topic in TOPICS]


def by_topic(numbers: Sequence[int]) -> dict[str, int]:
    return dict(zip(TOPICS, numbers, strict=True))


class _Unconfirmed(NamedTuple):
    """A commit that is not yet known to survive the loss of the machine."""

    id: int
    at: float
    size: int  # bytes of the log before this commit
    before: ByTopic  # next number of each topic before this commit


class Following:
    """
    Memory of a log as of the newest row that was followed: ids, numbers, and open records.

    Rows are followed on one thread at a time. Any thread may call `closed_at`.
    """

    def __init__(self, index: DuplicateIndex, *, hold_s: float) -> None:
        self.index = index
        self.planner = Planner(index, hold_s=hold_s)
        self.last = BEGINNING
        self.confirmed = 0  # the newest commit that is known to survive the loss of the machine
        self._hold_s = hold_s
        # rows that may have open records, oldest first, with ascending times
        self._open: list[CommitRow] = []
        # commits that may not survive the loss of the machine, oldest first
        self._unconfirmed: deque[_Unconfirmed] = deque()
        self._unfolded = UnfoldedCommits()
        self._lock = Lock()

    def learn(self, rows: Sequence[CommitRow], first: ByTopic, *, in_runs_in_part: bool) -> None:
        """
        Load, at a start, the rows with ids that are in no stored run. A part of the first row's ids may be
        in a run.

        `first` has the first number of each topic with such ids.
        """
        for index, row in enumerate(rows):
            self._learn(row, first, known_in_runs=in_runs_in_part and index == 0)
            first = row.next

    def begin(self, rows: Iterable[CommitRow]) -> None:
        """Load, at a start, the rows with open records and the newest row."""
        for row in rows:
            self._note(row)

    def follow(self, row: CommitRow) -> None:
        """Apply a row that another process committed, or this process without getting the result."""
        self._learn(row, self.last.next)
        self._note(row)

    def committed(self, row: CommitRow, plan: Plan) -> None:
        """Apply a commit of this process."""
        before = self.last.next
        self.planner.apply(plan)
        self._note_ids(row, before, len(plan.ids))
        self._note(row)

    def folded_through(self, taken: int) -> tuple[int, ByTopic]:
        """
        Return how far ids would be in runs after the oldest `taken` of the newest ids are moved into runs.

        The first result is a commit, the second the highest closed number of each topic. All ids up to them
        would be in runs.
        """
        first_unfolded = self._unfolded.first_left(taken)
        closed = zip(TOPICS, self.last.closed, strict=True)
        through = tuple(min(below, first_unfolded.get(topic, below)) - 1 for topic, below in closed)
        return first_unfolded.get(COMMIT, self.last.id + 1) - 1, through

    def folded(self, taken: int) -> None:
        """Note that the oldest `taken` of the newest ids are in runs now."""
        self._unfolded.folded(taken)

    def closed_at(self, now: float, *, durable: float = inf) -> ByTopic:
        """
        Return the first open number of each topic at a moment, counting commits up to `durable`.

        The result is never lower than in the newest row, unless the waiting time is 0.
        """
        with self._lock:
            if not self._hold_s:
                end = bisect_right(self._unconfirmed, durable, key=lambda commit: commit.id)
                return self._unconfirmed[end].before if end < len(self._unconfirmed) else self.last.next
            end = bisect_right(self._open, now - self._hold_s, key=lambda row: row.at)
            end = min(end, bisect_right(self._open, durable, key=lambda row: row.id))
            closed = self.last.closed
            return tuple(map(max, self._open[end - 1].next, closed)) if end else closed

    @property
    def durable(self) -> int:
        return max(self.confirmed, self.last.durable)

    def unconfirmed(self) -> tuple[float, int]:
        """
        Measure the commits that may not survive the loss of the machine: seconds from first to last,
        and their bytes.
        """
        with self._lock:
            self._forget_confirmed()
            if not self._unconfirmed:
                return 0.0, 0
            first = self._unconfirmed[0]
            return self.last.at - first.at, self.last.size - first.size

    def time_of_next(self, now: float) -> float:
        """
        Return the time for the next row. It never precedes the last row, unless that row is too far ahead
        of the clock.
        """
        before = self.last.at
        return before if now < before <= now + SOONER_S else now

    def closes_at(self) -> float | None:
        """Return the time at which the oldest open record closes."""
        with self._lock:
            return self._open[0].at + self._hold_s if self._open else None

    def _learn(self, row: CommitRow, first: ByTopic, *, known_in_runs: bool = False) -> None:
        try:
            new = unpack_ids(row.ids)
        except ValueError as error:
            _log.error("%s and are left out", error, extra={"action": "ids_damaged", "commit": row.id})
            new = NO_IDS
        ids: dict[int, int] = {}
        hours = []
        for id, place, hour in zip(new.ids, new.places, new.hours, strict=True):
            if self.index.knows(id) or (known_in_runs and self.index.is_in_runs(id, hour)):
                continue
            ids[id] = place
            hours.append(hour)
        if ids:
            self.index.add(ids, hours, row.at)
            self._note_ids(row, first, len(ids))

    def _note_ids(self, row: CommitRow, first: ByTopic, count: int) -> None:
        topics = zip(TOPICS, first, row.next, strict=True)
        self._unfolded.note(
            count, {COMMIT: row.id} | {topic: number for topic, number, after in topics if number < after}
        )

    def _note(self, row: CommitRow) -> None:
        with self._lock:
            self._unconfirmed.append(_Unconfirmed(row.id, row.at, self.last.size, self.last.next))
            self.last = row
            # the clock was ahead when these rows were written, so they close with this row
            while self._open and self._open[-1].at > row.at:
                self._open.pop()
            self._open.append(row._replace(ids=b""))
            self._forget_confirmed()
            gone = 0
            while gone < len(self._open) and _is_closed(self._open[gone], row):
                gone += 1
            del self._open[:gone]
        self.planner.begin({topic: number for topic, number in by_topic(row.next).items() if number > 1})

    def _forget_confirmed(self) -> None:
        while self._unconfirmed and self._unconfirmed[0].id <= self.durable:
            self._unconfirmed.popleft()


def _is_closed(row: CommitRow, newest: CommitRow) -> bool:
    return all(map(int.__le__, row.next, newest.closed))


def _steps(values: Sequence[int]) -> array[int]:
    """Return the difference of each value from the one before."""
    return array("q", map(int.__sub__, values, [0, *values[:-1]]))


def _sums(steps: Sequence[int]) -> list[int]:
    values = []
    value = 0
    for step in steps:
        value += step
        values.append(value)
    return values


def _bytes(numbers: array[int]) -> bytes:
    """Encode numbers, little endian on every machine."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(type: str, data: bytes) -> array[int]:
    numbers: array[int] = array(type)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# -- names of stored records that a later report stated ------------------------------------------------------


FIRST, AFTER = "names ", "names!"  # the names of all these facts sort between these two


class _Names(msgspec.Struct, array_like=True):
    at: float
    ids: bytes


_names = msgspec.msgpack.Decoder(_Names)


def fact_of(number: int) -> str:
    """Return the name of the fact that stores the names of one commit. Facts sort by commit number."""
    return f"{FIRST}{number:020}"


def number_of(fact: str) -> int:
    return int(fact.removeprefix(FIRST))


def pack_names(at: float, names: Iterable[tuple[int, int, int]]) -> bytes:
    """Encode the time of a commit and its names (id, place and hour). There must be at least one name."""
    ids, places, hours = zip(*names, strict=True)
    return msgspec.msgpack.encode(_Names(at, pack_new_ids(NewIds(ids, places, hours))))


def unpack_names(data: bytes) -> tuple[float, NewIds]:
    """Decode the time of a commit and its names. Raises ValueError if the bytes changed."""
    try:
        names = _names.decode(data)
    except NO_RECORD as error:
        raise ValueError(f"the names of a commit are damaged: {error}") from error
    return names.at, unpack_ids(names.ids)


def names_in(facts: Mapping[str, bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield id, place and hour of every name in some facts."""
    for name in sorted(facts):
        if FIRST <= name < AFTER:
            yield from zip(*unpack_names(facts[name])[1], strict=True)
