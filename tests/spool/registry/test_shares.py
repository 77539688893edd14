"""How keys share what is one for all of them."""

from __future__ import annotations

import pytest

from spool.shares import KeyShare, Shared, may_add, nearly_full, nearly_gives_way


@pytest.mark.parametrize("most", [1, 2, 3, 10, 51])
def test_no_key_gets_more_than_it_leaves_free(most: int) -> None:
    """
    One key fills what it can, half of all; then the first of another key is taken, down to the last place.
    """
    own = 0
    while may_add(own, own, 1, most):
        own += 1
    assert (most + 1) // 2 == own
    assert most == own or may_add(0, own, 1, most)


def test_the_operator_hears_who_fills_a_limit() -> None:
    """From 80 % of what a key may have; the share of others makes it smaller."""
    assert [] == list(nearly_full("x", {"a": 39, "b": 1}, 100))
    assert [KeyShare("x", "a", 40, 50)] == list(nearly_full("x", {"a": 40, "b": 1, "": 0}, 100))


def test_who_has_the_most_gives_way() -> None:
    """The oldest of the key with the most goes; what another key put stays, also when that key puts more."""
    shared: Shared[str, int] = Shared(4)
    gone = [shared.put(name, 1, "b") for name in ("b1",)] + [shared.put(f"a{n}", n, "a") for n in range(6)]
    assert [None] * 4 + ["a0", "a1", "a2"] == gone
    assert "a3" == shared.put("b2", 2, "b")
    assert (1, 2, 5, None) == (shared.get("b1"), shared.get("b2"), shared.get("a5"), shared.get("a3"))
    assert (1, 3, None) == (shared.pop("b1"), len(shared), shared.pop("b1"))


def test_the_key_that_gives_way_first_is_named() -> None:
    """From 80 % of all on, however that is divided: what others hold is missing to it."""
    assert [] == list(nearly_gives_way("x", {}, 100))
    assert [] == list(nearly_gives_way("x", {"a": 40, "b": 39}, 100))
    assert [KeyShare("x", "a", 41, 61, gives_way=True)] == list(
        nearly_gives_way("x", {"b": 39, "a": 41}, 100)
    )
    assert [KeyShare("x", "a", 120, 120, gives_way=True)] == list(nearly_gives_way("x", {"a": 120}, 100))
