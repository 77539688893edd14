"""How keys share common limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.shares import Holdings, KeyShare, Shared, fullest_first, may_add, nearly_full, nearly_gives_way


@pytest.mark.parametrize("most", [1, 2, 3, 10, 51])
def test_no_key_gets_more_than_it_leaves_free(most: int) -> None:
    """
    One key can fill half of all places, rounded up. If a place is free after that, the first row of another
    key is accepted.
    """
    own = 0
    while may_add(own, own, 1, most):
        own += 1
    assert (most + 1) // 2 == own
    assert most == own or may_add(0, own, 1, most)


def test_the_operator_hears_who_fills_a_limit() -> None:
    """
    The operator is warned when a key uses 80 % of its share. The share shrinks when other keys add rows.
    """
    assert [] == list(nearly_full("x", {"a": 39, "b": 1}, 100))
    assert [KeyShare("x", "a", 40, 50)] == list(nearly_full("x", {"a": 40, "b": 1, "": 0}, 100))


def test_who_has_the_most_gives_way() -> None:
    """
    The oldest row of the key with the most rows is dropped. Another key's rows stay, even if that key adds more.
    """
    shared: Shared[str, int] = Shared(4)
    gone = [shared.put(name, 1, "b") for name in ("b1",)] + [shared.put(f"a{n}", n, "a") for n in range(6)]
    assert [None] * 4 + [0, 1, 2] == gone
    assert 3 == shared.put("b2", 2, "b")
    assert shared.get("b1") == 1
    assert shared.get("b2") == 2
    assert shared.get("a5") == 5
    assert shared.get("a3") is None
    assert shared.pop("b1") == 1
    assert len(shared) == 3
    assert shared.pop("b1") is None


def test_the_key_that_gives_way_first_is_named() -> None:
    """
    The warning names the key that would lose rows first. It starts when 80 % of the whole limit is used,
    however the rows are divided among keys.
    """
    assert [] == list(nearly_gives_way("x", {}, 100))
    assert [] == list(nearly_gives_way("x", {"a": 40, "b": 39}, 100))
    assert [KeyShare("x", "a", 41, 61, gives_way=True)] == list(
        nearly_gives_way("x", {"b": 39, "a": 41}, 100)
    )
    assert [KeyShare("x", "a", 120, 120, gives_way=True)] == list(nearly_gives_way("x", {"a": 120}, 100))


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
    shared: Shared[int, int] = Shared(2000)
    for number in range(2000):
        shared.put(number, number, f"key-{number % keys}")

    def put() -> None:
        for number in range(2000, 4000):
            assert shared.put(number, number, f"key-{number % keys}") is not None

    assert calls_made(put) < 30 * 2000
    assert 2000 == len(shared) == sum(shared.held.values())


@pytest.mark.parametrize("keys", [1, 1000])
def test_what_makes_room_is_found_without_a_look_at_every_key(keys: int) -> None:
    """To find rows to delete, the queues of keys with fewer rows than others are not read."""
    queues = {f"key-{key}": [f"{key} {number}" for number in range(key % 7 + 2)] for key in range(keys)}
    held = Holdings({key: len(queue) for key, queue in queues.items()})
    held.fullest()

    def make_room() -> None:
        for _ in range(100):
            list(islice(fullest_first(held, queues.__getitem__, lambda _: 1), 2))

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
    held = Holdings[str]()
    for owner, amount in changes:
        held.add(owner, max(amount, -held.get(owner, 0)))
        assert not held or max(held.values()) == held[held.fullest()]
    for owner, amount in list(held.items()):
        held.add(owner, -amount)
    queues: dict[str, list[int]] = {}
    for place, (owner, size) in enumerate(waiting):
        queues.setdefault(owner, []).append(place)
        held.add(owner, size)
    gone_of = {owner: gone.intersection(queue) for owner, queue in queues.items()}
    left = {
        owner: sum(waiting[place][1] for place in queue if place not in gone)
        for owner, queue in queues.items()
    }
    for place in fullest_first(held, queues.__getitem__, lambda place: waiting[place][1], gone=gone_of):
        owner, size = waiting[place]
        assert left[owner] == max(left.values())
        left[owner] -= size
    assert not any(left.values())
