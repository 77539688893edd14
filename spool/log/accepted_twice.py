"""
A search for records that were stored although their ids were known, so that their calls count twice.

A recount searches in two steps, because ids rarely repeat. The first finds repeated ids, with eight bytes per
record, for at most as many records as the duplicate index may hold. The second reads the topics with such ids
again, and checks each pair by the rule for duplicates.

A repeated id is right if the index had dropped the first one, or if the start times are too far apart. A
record without a dedup key has a random id, so it never repeats.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from spool.log.duplicates import DuplicateIndex, id_storage_and_search_hours
from spool.log.runs import repeated_ids
from spool.log.values import AcceptedTwice, LogEntry
from spool.record import NS

CHUNK = 16_384  # ids sorted at a time, in a few milliseconds
SHOWN = 10  # maximum record numbers in the report of a topic
MAX_SUSPECTS = 100_000  # limit of repeated ids per topic; further repeated ids are not judged
NUMBERS = 4096  # records per read of the second step

ReadEntries = Callable[[str, int, int], Awaitable[Sequence[LogEntry]]]


class AcceptedTwiceSearch:
    """
    The search for repeated ids in one recount.

    Entries must be added by topic, in ascending order. If a topic has more ids than `max_ids`, each id is
    compared with at least `max_ids` / 2 earlier ids.
    """

    def __init__(self, index: DuplicateIndex, *, window_s: float, max_ids: int) -> None:
        self._id_of = index.short_id
        self._known_since = index.covered_since
        self._window_s = window_s
        self._max_chunks = max(2, max_ids // CHUNK)
        self._chunks: list[array[int]] = []
        self._latest = array("Q")
        self._topic = ""
        self._ends: dict[str, tuple[int, int]] = {}  # first and last record number by topic
        self._suspects: defaultdict[str, set[int]] = defaultdict(set)

    def collect_record_ids(self, entry: LogEntry) -> None:
        self._topic = entry.topic
        first, _ = self._ends.get(entry.topic, (entry.first, 0))
        self._ends[entry.topic] = first, entry.last
        self._latest.extend([self._id_of(record.id) for record in entry.records if record is not None])
        if len(self._latest) >= CHUNK:
            self._chunks.append(array("Q", sorted(self._latest)))
            self._latest = array("Q")

    @property
    def has_max_ids(self) -> bool:
        return len(self._chunks) >= self._max_chunks

    def note_repeated_ids(self, *, is_end_of_topic: bool) -> None:
        """
        Find ids that occur twice among the collected ones, then drop the older half of them, or all if
        `is_end_of_topic`. May run in any thread.
        """
        suspects = self._suspects[self._topic]
        chunks = [*self._chunks, array("Q", sorted(self._latest))] if is_end_of_topic else self._chunks
        suspects.update(islice(repeated_ids(chunks), MAX_SUSPECTS - len(suspects)))
        self._chunks = [] if is_end_of_topic else self._chunks[self._max_chunks // 2 :]
        if is_end_of_topic:
            self._latest = array("Q")

    async def records_accepted_twice_by_topic(self, read_entries: ReadEntries) -> dict[str, AcceptedTwice]:
        """
        Read the topics with repeated ids again. Return, by topic, the records that were stored although their
        ids were known.
        """
        by_topic = {}
        for topic, suspects in self._suspects.items():
            if suspects:
                first, last = self._ends[topic]
                numbers = await self._numbers_accepted_twice(topic, suspects, first, last, read_entries)
                if numbers:
                    by_topic[topic] = AcceptedTwice(records=len(numbers), numbers=list(numbers[:SHOWN]))
        return by_topic

    async def _numbers_accepted_twice(
        self, topic: str, suspects: set[int], first_number: int, last_number: int, read_entries: ReadEntries
    ) -> array[int]:
        # hour of filing and commit time by id
        earlier: dict[int, list[tuple[int, float]]] = {}
        numbers = array("q")
        while first_number <= last_number:
            entries = await read_entries(topic, first_number, min(last_number, first_number + NUMBERS - 1))
            first_number += NUMBERS
            for entry in entries:
                for number, record in enumerate(entry.records, entry.first):
                    if record is None or (id := self._id_of(record.id)) not in suspects:
                        continue
                    hour, near = id_storage_and_search_hours(record, int(entry.committed_at * NS))
                    known_since = max(self._known_since, entry.committed_at - self._window_s)
                    before = earlier.setdefault(id, [])
                    if any(at > known_since and filed_hour in near for filed_hour, at in before):
                        numbers.append(number)
                    before.append((hour, entry.committed_at))
        return numbers
