"""
Shares of keys in common limits. A key gets at most half of what other keys leave free, so a key that floods a
table leaves space for other keys. Pure: each table calls these functions with its own figures.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
Owner = TypeVar("Owner", bound=Hashable)
NEARLY_FULL = 0.8  # part of its share above which a key is reported to operators
HEAP_ENTRIES = 64  # a heap is rebuilt if it has more entries than this number plus two per owner


def may_add(own: int, total: int, n: int, most: int) -> bool:
    """
    Return True if a key that holds `own` of `total` may add `n`. Afterwards it must not hold more than
    was free before.
    """
    return own + n <= most - total


class KeyShare(NamedTuple):
    """
    Use of a limit by one key. `most` is the maximum that the key may use while the use of other keys
    stays the same.
    """

    limit: str  # name of the setting that defines the limit
    key: str
    held: int
    most: int
    # if True, the key's oldest entries are dropped at the limit, and nothing is refused
    gives_way: bool = False


class HeldByKey(NamedTuple):
    """Waiting items by key: their number, and their bytes."""

    items: Mapping[str, int] = {}
    bytes: Mapping[str, int] = {}


def nearly_full(limit: str, held: Mapping[str, int], most: int) -> Iterator[KeyShare]:
    """
    Yield the keys that have nearly used up their share. `held` is the use by key. Items without a key
    are under "".
    """
    total = sum(held.values())
    for key, own in held.items():
        share = (most - (total - own) + 1) // 2  # half of what the other keys leave free
        if key and own >= NEARLY_FULL * share:
            yield KeyShare(limit, key, own, max(share, own))


def nearly_gives_way(limit: str, held: Mapping[str, int], most: int) -> Iterator[KeyShare]:
    """
    If the limit is nearly used up, yield the key with the largest use. Its oldest entries are dropped first.
    """
    total = sum(held.values())
    key = max(held, key=lambda name: held[name], default="")
    if total >= NEARLY_FULL * most:
        yield KeyShare(limit, key, held[key], max(most - (total - held[key]), held[key]), gives_way=True)


class Holdings(Mapping[Owner, int]):
    """
    Use by owner. Finds the owner with the largest use without checking all owners.

    A heap is built at the first search. Each later change adds an entry to the heap, and only the newest
    entry of an owner is valid. If most entries are outdated, the heap is rebuilt.
    """

    def __init__(self, amounts: Mapping[Owner, int] = MappingProxyType({})) -> None:
        self._amounts = {owner: amount for owner, amount in amounts.items() if amount}
        self._heap: list[tuple[int, int, Owner]] | None = None
        self._changes = 0

    def __getitem__(self, owner: Owner) -> int:
        return self._amounts[owner]

    def __iter__(self) -> Iterator[Owner]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def add(self, owner: Owner, amount: int) -> None:
        """Add an amount, which may be negative. An owner with a use of 0 is removed."""
        held = self._amounts.get(owner, 0) + amount
        if held:
            self._amounts[owner] = held
        else:
            self._amounts.pop(owner, None)
        if self._heap is None:
            return
        if len(self._heap) > HEAP_ENTRIES + 2 * len(self._amounts):
            self._heap = None
            return
        self._changes -= 1  # if two owners have equal use, the owner that changed last comes first
        heappush(self._heap, (-held, self._changes, owner))

    def largest_owner(self) -> Owner:
        """Return the owner with the largest use. Raises KeyError if there is no owner."""
        heap = self._build_heap()
        while heap:
            held, _, owner = heap[0]
            if self._amounts.get(owner) == -held:
                return owner
            heappop(heap)
        raise KeyError("there are no owners")

    def fullest_first(self) -> Iterator[Owner]:
        """Yield the owners in descending order of use. The n-th step takes time in proportion to log n."""
        heap = self._build_heap()
        seen = set[Owner]()
        places = [(heap[0], 0)] if heap else []
        while places:
            (held, _, owner), index = heappop(places)
            for below in (2 * index + 1, 2 * index + 2):
                if below < len(heap):
                    heappush(places, (heap[below], below))
            if owner not in seen and self._amounts.get(owner) == -held:
                seen.add(owner)
                yield owner

    def _build_heap(self) -> list[tuple[int, int, Owner]]:
        if self._heap is None:
            self._heap = [(-held, index, owner) for index, (owner, held) in enumerate(self._amounts.items())]
            heapify(self._heap)
            self._changes = 0
        return self._heap


def fullest_first(
    held: Holdings[Owner],
    queue_of: Callable[[Owner], Iterable[K]],
    size: Callable[[K], int],
    *,
    gone: Mapping[Owner, Collection[K]] = MappingProxyType({}),
) -> Iterator[K]:
    """
    Yield entries to remove until there is space. Each one is the oldest entry of the key that has the largest
    use at that step.

    `queue_of` is called when the first entry of a key is removed. `gone` lists entries, by owner, that are
    removed in any case. They are not yielded, and do not count as use.
    """
    fullest = held.fullest_first()
    next_owner = next(fullest, None)
    begun: list[tuple[int, int, Owner, Iterator[K]]] = []
    number = 0
    while begun or next_owner is not None:
        if next_owner is not None and (not begun or held[next_owner] > -begun[0][0]):
            number += 1
            remaining = held[next_owner] - sum(map(size, gone.get(next_owner, ())))
            heappush(begun, (-remaining, number, next_owner, iter(queue_of(next_owner))))
            next_owner = next(fullest, None)
            continue
        negative, order, owner, queue = begun[0]
        names_gone = gone.get(owner, ())
        name = next((candidate for candidate in queue if candidate not in names_gone), None)
        if name is None:
            heappop(begun)
            continue
        heapreplace(begun, (negative + size(name), order, owner, queue))
        yield name


class Shared(Generic[K]):
    """
    Names that share `most` places. Each name belongs to an owner. The names of an owner are in order of
    insertion or renewal.

    If the names take up more than `most` places, the oldest name of the owner with the most places is to be
    removed. The cost of a call does not depend on the number of owners.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = Holdings[str]()  # places by owner
        self._places = 0
        self._names_of: dict[str, OrderedDict[K, None]] = {}

    def __len__(self) -> int:
        """Return the number of places that all names take up."""
        return self._places

    def add(self, name: K, owner: str, places: int) -> None:
        """Insert a name as the newest of its owner."""
        names = self._names_of.get(owner)
        if names is None:
            names = self._names_of[owner] = OrderedDict()
        names[name] = None
        self._places += places
        self.held.add(owner, places)

    def add_places(self, owner: str, places: int) -> None:
        """Count more places for a name of an owner."""
        self._places += places
        self.held.add(owner, places)

    def renew(self, name: K, owner: str) -> None:
        """Make a name the newest of its owner."""
        self._names_of[owner].move_to_end(name)

    def remove(self, name: K, owner: str, places: int) -> None:
        """Remove a name and free its `places`."""
        names = self._names_of[owner]
        del names[name]
        if not names:
            del self._names_of[owner]
        self.add_places(owner, -places)

    def oldest_name(self, owner: str) -> K | None:
        names = self._names_of.get(owner)
        return next(iter(names)) if names else None

    def name_to_remove(self) -> tuple[K, str] | None:
        """Return the name to remove and its owner, or None while there is enough space."""
        if self._places <= self.most:
            return None
        owner = self.held.largest_owner()
        return next(iter(self._names_of[owner])), owner
