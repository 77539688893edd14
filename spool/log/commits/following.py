"""
Commit rows and the memory of a log: what a row tells everybody who did not make the commit. Pure.

Several processes append to one log. Each follows the rows of the others, and so knows their numbers and ids,
and which records are closed.
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

UNKNOWN_TOKEN = 0  # of a commit that was copied from where tokens are not kept
SOONER_S = 300.0  # a row whose time is further ahead of the clock than this is not believed

_log = logging.getLogger(__name__)

ByTopic = tuple[int, ...]  # in the order of TOPICS


class CommitRow(NamedTuple):
    """What a commit leaves for those who follow; `ids` as `pack_ids` made them."""

    id: int
    period: int
    token: int
    at: float
    next: ByTopic
    closed: ByTopic
    durable: int  # up to here commits outlive the loss of the machine, as far as was known
    entries: int  # of the log so far
    size: int  # of the log so far, in bytes
    ids: bytes = b""


BEGINNING = CommitRow(0, 1, 0, 0.0, (1,) * len(TOPICS), (1,) * len(TOPICS), 0, 0, 0)


class NewIds(NamedTuple):
    """The ids that a commit made known, in the order of their arrival."""

    ids: Sequence[int]
    places: Sequence[int]
    hours: Sequence[int]


NO_IDS = NewIds((), (), ())
COMMIT = "commit"  # among the kinds of numbers in UnfoldedCommits


class _Packed(msgspec.Struct, array_like=True):
    """Places and hours are alike from one id to the next, so their differences take next to nothing."""

    ids: bytes
    places: bytes
    hours: bytes
    checksum: int  # of these


_packed = msgspec.msgpack.Decoder(_Packed)


def pack_ids(plan: Plan) -> bytes:
    return pack_new_ids(NewIds(tuple(plan.ids), tuple(plan.ids.values()), plan.hours))


def pack_new_ids(new: NewIds) -> bytes:
    """Pack the ids of a commit and their places, with a checksum; `unpack_ids` reads them."""
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
    """ValueError when the bytes changed."""
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
    found = NewIds(_numbers("Q", packed.ids), places, hours)
    if not len(found.ids) == len(places) == len(hours):
        raise ValueError("the ids of a commit are damaged")
    return found


def _checksum(*parts: bytes) -> int:
    return zlib.crc32(b"".join(parts))


def of_topics(numbers: Mapping[str, int], default: int = 1) -> list[int]:
    return [numbers.get(topic, default) for topic in TOPICS]


def by_topic(numbers: Sequence[int]) -> dict[str, int]:
    return dict(zip(TOPICS, numbers, strict=True))


class _Unconfirmed(NamedTuple):
    """A commit that is not known to outlive the loss of the machine."""

    id: int
    at: float
    size: int  # of the log before it, in bytes
    before: ByTopic  # the numbers that were next before it


class Following:
    """
    The memory of a log, as of the newest row that was followed: ids, numbers, and what is open.

    Rows are followed on one thread at a time. `closed_at` may be asked from any.
    """

    def __init__(self, index: DuplicateIndex, *, hold_s: float) -> None:
        self.index = index
        self.planner = Planner(index, hold_s=hold_s)
        self.last = BEGINNING
        self.confirmed = 0  # the newest commit that is known to outlive the loss of the machine
        self._hold_s = hold_s
        self._open: list[
            CommitRow
        ] = []  # rows that may have open records, oldest first, their times ascending
        self._unconfirmed: deque[_Unconfirmed] = deque()  # oldest first
        self._unfolded = UnfoldedCommits()
        self._lock = Lock()

    def learn(self, rows: Sequence[CommitRow], first: ByTopic, *, in_runs_in_part: bool) -> None:
        """
        Take in, at a start, the rows with ids that are in no stored run; the first row's may be in one in
        part. `first`: the first number of each topic that has such ids.
        """
        for place, row in enumerate(rows):
            self._learn(row, first, known_in_runs=in_runs_in_part and place == 0)
            first = row.next

    def begin(self, rows: Iterable[CommitRow]) -> None:
        """Take in, at a start, the rows with open records and the newest of all."""
        for row in rows:
            self._note(row)

    def follow(self, row: CommitRow) -> None:
        """A row that another process committed, or this one without knowing it."""
        self._learn(row, self.last.next)
        self._note(row)

    def committed(self, row: CommitRow, plan: Plan) -> None:
        """A commit of this process."""
        before = self.last.next
        self.planner.apply(plan)
        self._note_ids(row, before, len(plan.ids))
        self._note(row)

    def folded_through(self, taken: int) -> tuple[int, ByTopic]:
        """
        Return the newest commit, and the highest closed number of each topic, up to which all ids are in runs once
        the oldest `taken` newest ids are.
        """
        left = self._unfolded.first_left(taken)
        closed = zip(TOPICS, self.last.closed, strict=True)
        through = tuple(min(below, left.get(topic, below)) - 1 for topic, below in closed)
        return left.get(COMMIT, self.last.id + 1) - 1, through

    def folded(self, taken: int) -> None:
        """The oldest of the newest ids are in runs now."""
        self._unfolded.folded(taken)

    def closed_at(self, now: float, *, durable: float = inf) -> ByTopic:
        """
        Return the first open numbers at a moment, by the commits up to `durable`; never less than the newest
        row says, unless records close at once.
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
        Measure the commits that may not outlive the loss of the machine: seconds between the first and the
        last, and their bytes.
        """
        with self._lock:
            self._forget_confirmed()
            if not self._unconfirmed:
                return 0.0, 0
            first = self._unconfirmed[0]
            return self.last.at - first.at, self.last.size - first.size

    def time_of_next(self, now: float) -> float:
        """The time for a row that follows: never before that of the row before, unless that one is unbelievable."""
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
            _log.error("%s and left out", error, extra={"action": "ids_damaged", "commit": row.id})
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
            # of a clock that was ahead: they close with this row
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
    """The differences of each to the one before."""
    return array("q", map(int.__sub__, values, [0, *values[:-1]]))


def _sums(steps: Sequence[int]) -> list[int]:
    found = []
    value = 0
    for step in steps:
        value += step
        found.append(value)
    return found


def _bytes(numbers: array[int]) -> bytes:
    """Little endian on every machine."""
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


# -- names of records of earlier commits, which a report told after the record was kept ----------------------


FIRST, AFTER = "names ", "names!"  # every fact of these is between them


class _Names(msgspec.Struct, array_like=True):
    at: float
    ids: bytes


_names = msgspec.msgpack.Decoder(_Names)


def fact_of(number: int) -> str:
    """The fact with the names of one commit, in the order of the numbers."""
    return f"{FIRST}{number:020}"


def number_of(fact: str) -> int:
    return int(fact.removeprefix(FIRST))


def pack_names(at: float, names: Iterable[tuple[int, int, int]]) -> bytes:
    """Ids, places and hours of a commit at a time, at least one."""
    ids, places, hours = zip(*names, strict=True)
    return msgspec.msgpack.encode(_Names(at, pack_new_ids(NewIds(ids, places, hours))))


def unpack_names(data: bytes) -> tuple[float, NewIds]:
    """Return the time of their commit and the names; ValueError if the bytes changed."""
    try:
        names = _names.decode(data)
    except NO_RECORD as error:
        raise ValueError(f"the names of a commit are damaged: {error}") from error
    return names.at, unpack_ids(names.ids)


def names_in(facts: Mapping[str, bytes]) -> Iterator[tuple[int, int, int]]:
    """Ids, places and hours of all names among some facts."""
    for name in sorted(facts):
        if FIRST <= name < AFTER:
            yield from zip(*unpack_names(facts[name])[1], strict=True)
