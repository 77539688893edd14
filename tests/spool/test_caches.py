"""Caches for texts that senders choose."""

from __future__ import annotations

from spool.caches import LONGEST, MOST_SIGHTINGS, Remembered, Sightings, remembered


def test_a_full_cache_loses_an_eighth() -> None:
    texts = Remembered(str.upper, 80)
    for number in range(80):
        assert f"T{number}" == texts[f"t{number}"]
    assert "ONE MORE" == texts["one more"]
    assert 71 == len(texts)


def test_the_newest_texts_are_computed_once() -> None:
    """While a sender invents texts, all but the oldest are still found."""
    computed: list[str] = []

    @remembered(80)
    def length(text: str) -> int:
        computed.append(text)
        return len(text)

    for number in range(1000):
        assert len(f"text {number}") == length(f"text {number}")
        length(f"text {max(0, number - 60)}")
    assert 1000 == len(computed)


def test_a_text_recurs_when_it_is_seen_again() -> None:
    sightings = Sightings()
    assert [False, False, True, True] == [sightings.recurs(text) for text in ("a", "b", "a", "a")]


def test_sightings_are_limited() -> None:
    sightings = Sightings()
    for number in range(2 * MOST_SIGHTINGS):
        sightings.recurs(f"text {number}")
        assert len(sightings) <= MOST_SIGHTINGS
    assert sightings.recurs(f"text {2 * MOST_SIGHTINGS - 1}")


def test_long_texts_are_not_stored() -> None:
    texts = Remembered(len)
    assert (LONGEST, LONGEST + 1) == (texts["x" * LONGEST], texts["x" * (LONGEST + 1)])
    assert 1 == len(texts)
