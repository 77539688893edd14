"""Groups of counters that wait, in order of arrival, and by the key that they count for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from gateway.intake.shadows import Reporters
from spool.identity import Identity
from spool.log.values import CounterPoint
from spool.record import AiRecord
from spool.shares import HeldByKey, Holdings, fullest_first


class CounterGroup(msgspec.Struct, array_like=True):
    """
    Counters of one reporter, or sums of one run, that came together.

    As they are stored; fields are only ever added at the end.
    """

    records: list[AiRecord] = []
    identities: list[Identity] = []
    points: list[CounterPoint] = []
    key: str = ""  # the name of the key that brought them

    @property
    def count(self) -> int:
        return len(self.records) + len(self.points)

    def add(self, other: CounterGroup) -> None:
        self.records += other.records
        self.identities += other.identities
        self.points += other.points

    def members(self) -> Iterable[AiRecord]:
        yield from self.records
        for point in self.points:
            yield point.template


class WaitingGroup(msgspec.Struct, frozen=True, gc=False):
    """
    A group in memory: packed, as nothing looks into it before it is released.

    There are tens of thousands, through which the garbage collector would go: of tuples some 25 ms a round.
    """

    reporters: Reporters
    at: float
    items: int
    body: bytes
    key: str = ""  # that brought it
    has_points: bool = False  # their order counts: a point that comes after a later one is lost
    version: int = 0  # as it was read, where other processes may release it, too

    @classmethod
    def of(
        cls, group: CounterGroup, reporters: Reporters, at: float, body: bytes, version: int = 0
    ) -> WaitingGroup:
        return cls(reporters, at, group.count, body, group.key, bool(group.points), version)


class WaitingGroups(dict[bytes, WaitingGroup]):
    """Groups by their keys, which are in order of arrival. `add` and `remove` alone change it."""

    def __init__(self) -> None:
        super().__init__()
        self.items_held = 0  # counters
        self.bytes_held = 0
        self._queues: dict[str, dict[bytes, WaitingGroup]] = {}  # the same by the key that they count for
        self._queue_items = Holdings[str]()
        self._queue_bytes = Holdings[str]()
        self._queue_of: dict[Reporters, str] = {}  # whose points wait already
        self._reporters: Counter[Reporters] = Counter()

    @property
    def held(self) -> HeldByKey:
        return HeldByKey(self._queue_items, self._queue_bytes)

    def has_of(self, reporters: Reporters) -> bool:
        """True if counters of these reporters wait."""
        return reporters in self._reporters

    def fullest_first(self, *, by_bytes: bool) -> Iterator[bytes]:
        """Yield what makes room: no key pushes out counters of another."""
        if by_bytes:
            return fullest_first(self._queue_bytes, self._queues.__getitem__, lambda key: len(self[key].body))
        return fullest_first(self._queue_items, self._queues.__getitem__, lambda key: self[key].items)

    def add(self, key: bytes, one: WaitingGroup) -> None:
        self[key] = one
        queue = self._queue_of.setdefault(one.reporters, one.key) if one.has_points else one.key
        self._queues.setdefault(queue, {})[key] = one
        self._queue_items.add(queue, one.items)
        self._queue_bytes.add(queue, len(one.body))
        self._reporters[one.reporters] += 1
        self.items_held += one.items
        self.bytes_held += len(one.body)

    def remove(self, key: bytes, one: WaitingGroup) -> None:
        del self[key]
        queue = self._queue_of[one.reporters] if one.has_points else one.key
        del self._queues[queue][key]
        self._queue_items.add(queue, -one.items)
        self._queue_bytes.add(queue, -len(one.body))
        if not self._queues[queue]:
            del self._queues[queue]
        self._reporters[one.reporters] -= 1
        if not self._reporters[one.reporters]:
            del self._reporters[one.reporters]
            self._queue_of.pop(one.reporters, None)
        self.items_held -= one.items
        self.bytes_held -= len(one.body)
