"""
The recount of a topic: numbers that exist, numbers that are absent, and numbers that retention may have deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from exporters.kafka.recount import TopicContents

PARTITIONS = 3


def kept(numbers: Iterable[int], *, cut: Iterable[int] = ()) -> TopicContents:
    found = TopicContents(cut_partitions=set(cut))
    for number in numbers:
        found.add_message(number % PARTITIONS, number)
    return found


def test_absent_numbers_are_ranges_up_to_the_settled_ones() -> None:
    """
    Absent numbers are listed as ranges. Numbers after the settled ones are not listed, because they are in
    flight or belong to the next delivery.
    """
    found = kept([*range(1, 10), *range(12, 100_000), 100_002])
    assert [(10, 12), (100_000, 100_001)] == list(found.missing_ranges(100_001))
    assert found.count_below(100_001) == 99_997
    assert found.repeated_numbers == 0
    found.add_message(0, 12)
    assert 1 == found.repeated_numbers


def test_what_retention_took_of_a_partition_is_not_absent() -> None:
    """
    Retention deletes the start of a partition. So a missing number counts as absent only if it is higher than
    the first remaining number of every partition that retention has cut.
    """
    numbers = [number for number in range(1, 100) if number % PARTITIONS or number >= 60]
    assert [] == list(kept(numbers, cut=[0]).missing_ranges(100))
    assert [(70, 71)] == list(kept([each for each in numbers if each != 70], cut=[0]).missing_ranges(100))


def test_of_a_partition_that_is_empty_nothing_is_known() -> None:
    """Retention may have deleted all messages of an empty partition."""
    numbers = [number for number in range(1, 100) if number % PARTITIONS]
    assert [] == list(kept(numbers, cut=[0]).missing_ranges(100))
    assert 33 == len(list(kept(numbers).missing_ranges(100)))
