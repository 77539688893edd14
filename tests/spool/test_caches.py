"""Caches for texts that senders choose."""

from __future__ import annotations

from spool.caches import LONGEST, MOST_SEEN, CachedResults, SeenKeys, cache_by_text


def test_a_full_cache_loses_an_eighth() -> None:
    texts = CachedResults(str.upper, 80)
    for number in range(80):
        assert f"T{number}" == texts[f"t{number}"]
    assert "ONE MORE" == texts["one more"]
    assert 71 == len(texts)


def test_the_newest_texts_are_computed_once() -> None:
    """While a sender invents texts, all but the oldest are still found."""
    computed: list[str] = []

    @cache_by_text(80)
    def length(text: str) -> int:
        computed.append(text)
        return len(text)

    for number in range(1000):
        assert len(f"text {number}") == length(f"text {number}")
        length(f"text {max(0, number - 60)}")
    assert 1000 == len(computed)


def test_a_text_recurs_when_it_is_seen_again() -> None:
    seen = SeenKeys()
    assert [False, False, True, True] == [
        seen.add_and_return_whether_known(text) for text in ("a", "b", "a", "a")
    ]


def test_seen_keys_are_limited() -> None:
    seen = SeenKeys()
    for number in range(2 * MOST_SEEN):
        seen.add_and_return_whether_known(f"text {number}")
        assert len(seen) <= MOST_SEEN
    assert seen.add_and_return_whether_known(f"text {2 * MOST_SEEN - 1}")


def test_long_texts_are_not_stored() -> None:
    texts = CachedResults(len)
    assert (LONGEST, LONGEST + 1) == (texts["x" * LONGEST], texts["x" * (LONGEST + 1)])
    assert 1 == len(texts)
