"""Whether cache and reasoning are inside the reported counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise.reading.tokens import Tokens, settle

COUNT = st.one_of(st.none(), st.integers(0, 10_000))
COUNTS = st.builds(Tokens, COUNT, COUNT, COUNT, COUNT, COUNT)


def test_without_a_hint_the_counts_are_inclusive() -> None:
    """The OpenAI way: cached and reasoning tokens are parts of what is reported."""
    said = Tokens(input=100, output=50, cache_read=80, cache_write=0, reasoning=30)
    assert said == settle(said)


def test_a_dialect_that_leaves_the_cache_out_gets_it_added() -> None:
    """The Anthropic way: cache reads and writes come on top of the input."""
    said = Tokens(input=6, output=412, cache_read=18735, cache_write=1761)
    assert 20502 == settle(said, without_cache=True).input


def test_a_total_shows_that_the_cache_is_outside() -> None:
    """total = input + output + cache settles it when the dialect does not say."""
    said = Tokens(input=1000, output=50, cache_read=200, cache_write=100)
    assert [1300, 1000] == [settle(said, total=total).input for total in (1350, 1050)]


def test_a_total_shows_that_the_reasoning_is_outside() -> None:
    """total = input + output + reasoning settles it."""
    said = Tokens(input=1000, output=50, reasoning=20)
    assert [70, 50] == [settle(said, total=total).output for total in (1070, 1050)]


def test_a_total_shows_that_both_are_outside() -> None:
    """A sender that leaves out cache and reasoning is seen by a total that holds all four."""
    said = Tokens(input=1000, output=50, cache_read=200, reasoning=20)
    assert Tokens(1200, 70, 200, None, 20) == settle(said, total=1270)


def test_a_total_beside_a_known_dialect_does_not_add_twice() -> None:
    """What the dialect added is not taken for the reasoning of the same size."""
    said = Tokens(input=10, output=50, cache_read=20, reasoning=20)
    assert Tokens(30, 50, 20, None, 20) == settle(said, total=80, without_cache=True)


def test_a_part_is_never_larger_than_the_whole() -> None:
    """A cache above the input, or a reasoning above the output, was not in it."""
    assert Tokens(4896, 120, 4096, 0, None) == settle(Tokens(800, 120, 4096, 0, None))
    assert Tokens(10, 75, None, None, 50) == settle(Tokens(10, 25, None, None, 50))


def test_an_unknown_input_stays_unknown() -> None:
    """Parts alone do not make a whole."""
    said = Tokens(cache_read=10, reasoning=5)
    assert said == settle(said, without_cache=True, without_reasoning=True)


@given(COUNTS, COUNT, st.booleans(), st.booleans())
def test_settled_counts_hold_their_parts(said: Tokens, total: int | None, cache: bool, reasoning: bool) -> None:
    """Whatever is reported, input covers the cache, output covers the reasoning, and neither shrinks."""
    settled = settle(said, total=total, without_cache=cache, without_reasoning=reasoning)
    for whole, before, parts in (
        (settled.input, said.input, (said.cache_read or 0) + (said.cache_write or 0)),
        (settled.output, said.output, said.reasoning or 0),
    ):
        assert whole is None if before is None else whole is not None and whole >= max(before, parts)
