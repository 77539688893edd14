"""
How keys share what is one for all of them: no key gets more than it leaves free, so one that floods a table
leaves room for another. Pure; whoever keeps the rows asks here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
Owner = TypeVar("Owner", bound=Hashable)
V = TypeVar("V")
NEARLY_FULL = 0.8  # of its share: then the operator hears which key it is


def may_add(own: int, total: int, n: int, most: int) -> bool:
    """True if a key that has `own` of `total` may add `n`: it gets no more than was free before."""
    return own + n <= most - total


class KeyShare(NamedTuple):
    """
    How much of a limit one key holds, and the most that it may have while the others keep what they have.
    """

    limit: str  # the name of the setting
    key: str
    held: int
    most: int
    gives_way: bool = False  # beyond it its oldest go, and nothing is refused


class HeldByKey(NamedTuple):
    """What waits of each key, by number and by bytes."""

    items: Mapping[str, int] = {}
    bytes: Mapping[str, int] = {}


def nearly_full(limit: str, held: Mapping[str, int], most: int) -> Iterator[KeyShare]:
    """The keys that hold nearly what they may, by what each holds; "" is what no key brought."""
    total = sum(held.values())
    for key, own in held.items():
        share = (most - (total - own) + 1) // 2  # with so many it has as many as it leaves free
        if key and own >= NEARLY_FULL * share:
            yield KeyShare(limit, key, own, max(share, own))


def nearly_gives_way(limit: str, held: Mapping[str, int], most: int) -> Iterator[KeyShare]:
    """The key that has the most, so that its oldest go first, where nearly all is in use."""
    total = sum(held.values())
    key = max(held, key=lambda each: held[each], default="")
    if key and total >= NEARLY_FULL * most:
        yield KeyShare(limit, key, held[key], max(most - (total - held[key]), held[key]), gives_way=True)


def fullest_first(
    queues: Mapping[Owner, Iterable[K]], held: Mapping[Owner, int], size: Callable[[K], int]
) -> Iterator[K]:
    """Yield what is removed to make room, in order: the oldest of the key that holds the most by then."""
    left = dict(held)
    turns = {owner: iter(queue) for owner, queue in queues.items()}
    while turns:
        owner = max(turns, key=lambda each: left[each])
        name = next(turns[owner], None)
        if name is None:
            del turns[owner]
            continue
        left[owner] -= size(name)
        yield name


class Shared(Generic[K, V]):
    """
    Values by name, each with the key that it belongs to, in the order in which they were put.

    Over `most` the oldest of the key goes that has the most.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._owners: dict[K, str] = {}
        self._of: dict[str, OrderedDict[K, V]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def get(self, name: K) -> V | None:
        owner = self._owners.get(name)
        return None if owner is None else self._of[owner][name]

    def put(self, name: K, value: V, owner: str) -> K | None:
        """Put a value in as the newest; returns the name that had to go, None if there was room."""
        self.pop(name)
        self._owners[name] = owner
        self._of.setdefault(owner, OrderedDict())[name] = value
        if len(self._owners) <= self.most:
            return None
        fullest = max(self._of, key=lambda key: (len(self._of[key]), key == owner))
        gone = next(iter(self._of[fullest]))
        self.pop(gone)
        return gone

    def pop(self, name: K) -> V | None:
        owner = self._owners.pop(name, None)
        if owner is None:
            return None
        values = self._of[owner]
        value = values.pop(name)
        if not values:
            del self._of[owner]
        return value
