"""
Ids that were accepted again although they were known: each of these calls counts twice.

A recount of the entries looks for them in two steps, because few ids or none come twice. The first step keeps eight
bytes of each record, up to as many as the index of known ids may have, and finds the ids that occur more than once.
The second reads the entries of their topics again and judges each pair by the rule of a lookup: a repeat that came
when its id was no longer known, or named a time too far from the first one's, was accepted rightly. A record without
an identity has an id that nobody else has.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from spool.log.duplicates import DuplicateIndex, hours_of
from spool.log.runs import repeated
from spool.log.values import AcceptedTwice, Entry
from spool.record import NS

CHUNK = 16_384  # ids that are sorted together: a few milliseconds
SHOWN = 10  # numbers of a topic
MAX_SUSPECTS = 100_000  # ids that occur more than once: further ones are not judged
NUMBERS = 4096  # read at once for the second step

ReadEntries = Callable[[str, int, int], Awaitable[Sequence[Entry]]]


class TwiceAccepted:
    """
    Of one recount, whose entries come by topic in ascending order. Holds at most `max_ids` ids: of more, each is
    compared with at least half as many before it.
    """

    def __init__(self, index: DuplicateIndex, *, window_s: float, max_ids: int) -> None:
        self._id_of = index.id_of
        self._known_since = index.covered_since
        self._window_s = window_s
        self._max_chunks = max(2, max_ids // CHUNK)
        self._chunks: list[array[int]] = []
        self._latest = array("Q")
        self._topic = ""
        self._ends: dict[str, tuple[int, int]] = {}  # the first number and the last of each topic
        self._suspects: defaultdict[str, set[int]] = defaultdict(set)

    def note(self, entry: Entry) -> None:
        """Take in the ids of an entry."""
        self._topic = entry.topic
        first, _ = self._ends.get(entry.topic, (entry.first, 0))
        self._ends[entry.topic] = first, entry.last
        self._latest.extend([self._id_of(record.id) for record in entry.records if record is not None])
        if len(self._latest) >= CHUNK:
            self._chunks.append(array("Q", sorted(self._latest)))
            self._latest = array("Q")

    @property
    def is_full(self) -> bool:
        return len(self._chunks) >= self._max_chunks

    def compare(self, *, is_last: bool) -> None:
        """Look for ids that occur twice, on any thread, and let half of the ids go; all of them if it was the last."""
        suspects = self._suspects[self._topic]
        chunks = [*self._chunks, array("Q", sorted(self._latest))] if is_last else self._chunks
        suspects.update(islice(repeated(chunks), MAX_SUSPECTS - len(suspects)))
        self._chunks = [] if is_last else self._chunks[self._max_chunks // 2 :]
        if is_last:
            self._latest = array("Q")

    async def judged(self, read: ReadEntries) -> dict[str, AcceptedTwice]:
        """Read the topics again that have ids twice; return what was accepted though it was known."""
        found = {}
        for topic, suspects in self._suspects.items():
            if suspects:
                first, last = self._ends[topic]
                numbers = await self._judge(topic, suspects, first, last, read)
                if numbers:
                    found[topic] = AcceptedTwice(records=len(numbers), numbers=list(numbers[:SHOWN]))
        return found

    async def _judge(
        self, topic: str, suspects: set[int], first: int, last: int, read: ReadEntries
    ) -> array[int]:
        earlier: dict[int, list[tuple[int, float]]] = {}  # the hours under which an id was kept, and when
        numbers = array("q")
        while first <= last:
            entries = await read(topic, first, min(last, first + NUMBERS - 1))
            first += NUMBERS
            for entry in entries:
                for number, record in enumerate(entry.records, entry.first):
                    if record is None or (id := self._id_of(record.id)) not in suspects:
                        continue
                    hour, near = hours_of(record, int(entry.committed_at * NS))
                    known_since = max(self._known_since, entry.committed_at - self._window_s)
                    before = earlier.setdefault(id, [])
                    if any(at > known_since and kept in near for kept, at in before):
                        numbers.append(number)
                    before.append((hour, entry.committed_at))
        return numbers
