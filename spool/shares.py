"""
Fair limits for keys: a key may use at most half of what other keys leave free, so that a key that floods a
table leaves space for others. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
Owner = TypeVar("Owner", bound=Hashable)
NEARLY_FULL = 0.8  # operators see a warning if a key uses this part of its share
HEAP_ENTRIES = 64  # entries, plus two per owner, above which a heap is rebuilt


def is_within_share(own_count: int, total_count: int, added_count: int, max_count: int) -> bool:
    """
    Return whether a key that has `own_count` of `total_count` items may add `added_count`. It must then
    have no more items than there are free places now.
    """
    return own_count + added_count <= max_count - total_count


class KeyShare(NamedTuple):
    """How many items a key has under a limit (`held`). `most`: its maximum while other keys do not change."""

    limit: str  # name of the setting with the limit
    key: str
    held: int
    most: int
    # whether the oldest entries are dropped instead of refusing new ones
    gives_way: bool = False


class HeldByKey(NamedTuple):
    items: Mapping[str, int] = {}
    bytes: Mapping[str, int] = {}


def nearly_full_keys(limit: str, held: Mapping[str, int], max_entries: int) -> Iterator[KeyShare]:
    """
    Yield the keys that nearly use up their maximum. `held`: number of items by key, "" for items without one.
    """
    total = sum(held.values())
    for key, own in held.items():
        share = (max_entries - (total - own) + 1) // 2  # half of what the other keys leave free
        if key and own >= NEARLY_FULL * share:
            yield KeyShare(limit, key, own, max(share, own))


def key_next_to_lose_entries(limit: str, held: Mapping[str, int], max_entries: int) -> Iterator[KeyShare]:
    """
    Yield the key whose oldest entries will soon be dropped, if the limit `max_entries` is nearly reached. It is the
    key with the most entries.
    """
    total = sum(held.values())
    key = max(held, key=lambda name: held[name], default="")
    if total >= NEARLY_FULL * max_entries:
        yield KeyShare(
            limit, key, held[key], max(max_entries - (total - held[key]), held[key]), gives_way=True
        )


class UsedAmountByOwner(Mapping[Owner, int]):
    """
    The use of a limit by owner, with a fast search for the owner with the largest use.

    A heap is built at the first search. Each change adds an entry, and only an owner's newest entry is valid.
    A heap of mostly outdated entries is rebuilt.
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

    def add_use(self, owner: Owner, amount: int) -> None:
        """
        Add an amount, which may be negative, to what an owner uses of the limit. An owner that uses nothing
        is removed.
        """
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
        self._changes -= 1  # of owners with equal use, the last changed comes first
        heappush(self._heap, (-held, self._changes, owner))

    def largest_owner(self) -> Owner:
        heap = self._build_heap()
        while heap:
            held, _, owner = heap[0]
            if self._amounts.get(owner) == -held:
                return owner
            heappop(heap)
        raise KeyError("no owner uses any of the limit")

    def owners_by_largest_use(self) -> Iterator[Owner]:
        """
        Yield the owners of a limit's entries, those with the most entries first. Each step takes logarithmic
        time.
        """
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


def entries_to_remove(
    use_by_owner: UsedAmountByOwner[Owner],
    queue_of: Callable[[Owner], Iterable[K]],
    size: Callable[[K], int],
    *,
    gone: Mapping[Owner, Collection[K]] = MappingProxyType({}),
) -> Iterator[K]:
    """
    Yield entries to remove. Each is the oldest of the owner with the largest use at that step.

    `queue_of` is called at an owner's first removal. Entries in `gone` are removed anyway, so they are not
    yielded and not counted as use.
    """
    fullest = use_by_owner.owners_by_largest_use()
    next_owner = next(fullest, None)
    begun: list[tuple[int, int, Owner, Iterator[K]]] = []
    number = 0
    while begun or next_owner is not None:
        if next_owner is not None and (not begun or use_by_owner[next_owner] > -begun[0][0]):
            number += 1
            remaining = use_by_owner[next_owner] - sum(map(size, gone.get(next_owner, ())))
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


class FairlySharedNames(Generic[K]):
    """
    Names that share `slot_count` places. Each has an owner. They are ordered by insertion or renewal.

    If they exceed the space, the caller removes the oldest name of the owner with the largest use. The time
    of a call does not depend on the number of owners.
    """

    def __init__(self, slot_count: int) -> None:
        self.most = slot_count
        self.held = UsedAmountByOwner[str]()
        self._places = 0
        self._names_of: dict[str, OrderedDict[K, None]] = {}

    def __len__(self) -> int:
        return self._places

    def add_name(self, name: K, owner: str, size: int) -> None:
        names = self._names_of.get(owner)
        if names is None:
            names = self._names_of[owner] = OrderedDict()
        names[name] = None
        self._places += size
        self.held.add_use(owner, size)

    def add_slots(self, owner: str, size: int) -> None:
        self._places += size
        self.held.add_use(owner, size)

    def move_name_to_newest(self, name: K, owner: str) -> None:
        self._names_of[owner].move_to_end(name)

    def remove_name(self, name: K, owner: str, size: int) -> None:
        names = self._names_of[owner]
        del names[name]
        if not names:
            del self._names_of[owner]
        self.add_slots(owner, -size)

    def oldest_name(self, owner: str) -> K | None:
        names = self._names_of.get(owner)
        return next(iter(names)) if names else None

    def name_and_owner_to_remove(self) -> tuple[K, str] | None:
        if self._places <= self.most:
            return None
        owner = self.held.largest_owner()
        return next(iter(self._names_of[owner])), owner
