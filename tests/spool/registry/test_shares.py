"""How keys share common limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.shares import (
    FairlySharedNames,
    KeyShare,
    UsedAmountByOwner,
    entries_to_remove,
    is_within_share,
    key_next_to_lose_entries,
    nearly_full_keys,
)


@pytest.mark.parametrize("most", [1, 2, 3, 10, 51])
def test_no_key_gets_more_than_it_leaves_free(most: int) -> None:
    """
    One key can fill half of all places, rounded up. If a place is free after that, the first row of another
    key is accepted.
    """
    own = 0
    while is_within_share(own, own, 1, most):
        own += 1
    assert (most + 1) // 2 == own
    assert most == own or is_within_share(0, own, 1, most)


def test_the_operator_hears_who_fills_a_limit() -> None:
    """
    The operator is warned when a key uses 80 % of its share. The share shrinks when other keys add rows.
    """
    assert [] == list(nearly_full_keys("x", {"a": 39, "b": 1}, 100))
    assert [KeyShare("x", "a", 40, 50)] == list(nearly_full_keys("x", {"a": 40, "b": 1, "": 0}, 100))


def test_who_has_the_most_gives_way() -> None:
    """
    The oldest row of the key with the most rows is dropped. Another key's rows stay, even if that key adds more.
    """
    shared: FairlySharedNames[str] = FairlySharedNames(4)

    def add(name: str, owner: str, places: int = 1) -> list[str]:
        """Add a name, and remove names until there is space. Return the removed names."""
        shared.add_name(name, owner, places)
        removed = []
        while (surplus := shared.name_and_owner_to_remove()) is not None:
            shared.remove_name(*surplus, 1)
            removed.append(surplus[0])
        return removed

    assert [] == add("b1", "b")
    assert [[]] * 3 + [["a0"], ["a1"], ["a2"]] == [add(f"a{n}", "a") for n in range(6)]
    shared.move_name_to_newest("a3", "a")
    assert ["a4"] == add("b2", "b")
    assert {"a": 2, "b": 2} == dict(shared.held)
    assert ("a5", "b1") == (shared.oldest_name("a"), shared.oldest_name("b"))
    shared.add_slots("b", 1)
    assert ("b1", "b") == shared.name_and_owner_to_remove()
    shared.remove_name("b1", "b", 2)
    assert len(shared) == 3
    assert shared.name_and_owner_to_remove() is None
    assert shared.oldest_name("c") is None


def test_the_key_that_gives_way_first_is_named() -> None:
    """
    The warning names the key that would lose rows first. It starts when 80 % of the whole limit is used,
    however the rows are divided among keys.
    """
    assert [] == list(key_next_to_lose_entries("x", {}, 100))
    assert [] == list(key_next_to_lose_entries("x", {"a": 40, "b": 39}, 100))
    assert [KeyShare("x", "a", 41, 61, gives_way=True)] == list(
        key_next_to_lose_entries("x", {"b": 39, "a": 41}, 100)
    )
    assert [KeyShare("x", "a", 120, 120, gives_way=True)] == list(
        key_next_to_lose_entries("x", {"a": 120}, 100)
    )


def calls_made(work: Callable[[], object]) -> int:
    """Count function calls, because unlike time they do not depend on the machine's load."""
    calls = 0

    def count(frame: object, event: str, function: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("keys", [1, 1000])
def test_room_is_made_without_a_look_at_every_key(keys: int) -> None:
    """Freeing a place in a full table costs the same with a thousand keys as with one."""
    shared: FairlySharedNames[int] = FairlySharedNames(2000)
    for number in range(2000):
        shared.add_name(number, f"key-{number % keys}", 1)

    def put() -> None:
        for number in range(2000, 4000):
            shared.add_name(number, f"key-{number % keys}", 1)
            surplus = shared.name_and_owner_to_remove()
            assert surplus is not None
            shared.remove_name(*surplus, 1)

    assert calls_made(put) < 30 * 2000
    assert 2000 == len(shared) == sum(shared.held.values())


@pytest.mark.parametrize("keys", [1, 1000])
def test_what_makes_room_is_found_without_a_look_at_every_key(keys: int) -> None:
    """To find rows to delete, the queues of keys with fewer rows than others are not read."""
    queues = {f"key-{key}": [f"{key} {number}" for number in range(key % 7 + 2)] for key in range(keys)}
    held = UsedAmountByOwner({key: len(queue) for key, queue in queues.items()})
    held.largest_owner()

    def make_room() -> None:
        for _ in range(100):
            list(islice(entries_to_remove(held, queues.__getitem__, lambda _: 1), 2))

    assert calls_made(make_room) < 60 * 100


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), max_size=30),
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), max_size=30),
    st.frozensets(st.integers(0, 29)),
)
def test_room_is_made_by_who_has_the_most(
    waiting: Sequence[tuple[str, int]], changes: Sequence[tuple[str, int]], gone: frozenset[int]
) -> None:
    """Each dropped row is the oldest of the owner with the most rows at that time."""
    held = UsedAmountByOwner[str]()
    for owner, amount in changes:
        held.add_use(owner, max(amount, -held.get(owner, 0)))
        assert not held or max(held.values()) == held[held.largest_owner()]
    for owner, amount in list(held.items()):
        held.add_use(owner, -amount)
    queues: dict[str, list[int]] = {}
    for place, (owner, size) in enumerate(waiting):
        queues.setdefault(owner, []).append(place)
        held.add_use(owner, size)
    gone_of = {owner: gone.intersection(queue) for owner, queue in queues.items()}
    left = {
        owner: sum(waiting[place][1] for place in queue if place not in gone)
        for owner, queue in queues.items()
    }
    for place in entries_to_remove(held, queues.__getitem__, lambda place: waiting[place][1], gone=gone_of):
        owner, size = waiting[place]
        assert left[owner] == max(left.values())
        left[owner] -= size
    assert not any(left.values())
