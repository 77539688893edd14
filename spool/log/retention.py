"""What may be removed, and how long a full spool takes to have room again. Pure."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from spool.errors import SpoolFull
from spool.log import books

LEAST_RETRY_S = 1
MOST_RETRY_S = 300
UNKNOWN_RETRY_S = 30
ROOM = 0.02  # of max_bytes: freed when the spool is full, so that the next commit does not find it full again
SERIES_AGE_S = 30 * 86_400  # a counter not reported for so long belongs to a process that is gone

# A further reader of the log: the lowest number of a topic that it still needs, None when it needs nothing.
Reader = Callable[[str], int | None]


def lowest_needed(topic: str, limit: int, readers: Iterable[Reader]) -> int:
    """The lowest number of a topic that must stay: `limit`, or less when a reader still needs it."""
    needed = [reader(topic) for reader in readers]
    return min([limit, *(number for number in needed if number is not None)])


class Candidate(NamedTuple):
    """An entry that is among the oldest of its topic."""

    first: int
    records: int
    committed_at: float
    bytes: int

    @property
    def last(self) -> int:
        return self.first + self.records - 1


def removable(candidates: Sequence[Candidate], *, limit: int, before: float, excess: int) -> list[Candidate]:
    """
    The oldest entries that may go, in order: every number below `limit`, and too old or in the way.

    `excess` is how many bytes must be freed; 0 when there is room.
    """
    gone = []
    for entry in candidates:
        if entry.last >= limit or not (entry.committed_at < before or excess > 0):
            break
        gone.append(entry)
        excess -= entry.bytes
    return gone


class Progress(NamedTuple):
    """Over some topics: records that no route needs any more, and records that are kept."""

    done: int
    kept: int

    def plus(self, *, last: int, oldest: int, needed: int | None) -> Progress:
        """
        Add a topic: the highest number given, the lowest stored, and the lowest that a required route needs.

        `needed` is None when no route is on the topic.
        """
        done = last if needed is None else min(last, needed - 1)
        return Progress(self.done + done, self.kept + last + 1 - oldest)


class DrainRate:
    """How fast readers get on, from which Retry-After is worked out."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, Progress]] = []

    def note(self, now: float, progress: Progress) -> None:
        """`now` is monotonic. Ten samples at least a second apart."""
        if not self._samples or now - self._samples[-1][0] >= 1:
            self._samples = [*self._samples[-9:], (now, progress)]

    def spool_full(self) -> SpoolFull:
        """Make the error that senders get while `spool.max_bytes` are in use."""
        return SpoolFull("the spool is full (spool.max_bytes)", retry_after_s=self.retry_after_s(ROOM))

    def retry_after_s(self, share: float) -> int:
        """Seconds until a share of what is kept is done, between LEAST_RETRY_S and MOST_RETRY_S."""
        if len(self._samples) < 2:
            return UNKNOWN_RETRY_S
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        if after.done <= before.done:
            return MOST_RETRY_S
        seconds = share * after.kept * (end - begin) / (after.done - before.done)
        return max(LEAST_RETRY_S, min(MOST_RETRY_S, math.ceil(seconds)))


# -- commit rows that retention takes away: their terms go on as sums ----------------------------------------


_log = logging.getLogger(__name__)


class DamagedCommits(Exception):
    """Among the commit rows that are to go is one that cannot be read."""


def log_set_aside(commits: Sequence[int]) -> None:
    _log.error(
        "%d commit rows are damaged and set aside: the counters keep what they counted, their receipts "
        "cannot be read",
        len(commits),
        extra={"action": "commits_set_aside", "first": commits[0], "last": commits[-1]},
    )


def carried_sums(rows: Iterable[tuple[int, int, bytes]], *, as_they_are: bool) -> Counter[tuple[str, str]]:
    """
    (topic, term) -> the sum over rows of id, checksum and packed terms.

    DamagedCommits if one is damaged; `as_they_are`: it is logged and adds nothing.
    """
    sums: Counter[tuple[str, str]] = Counter()
    for commit, checksum, packed in rows:
        terms = books.check_terms(packed, checksum)
        if terms is None and not as_they_are:
            raise DamagedCommits
        if terms is None:
            _log.error("a commit row is damaged", extra={"action": "commit_damaged", "commit": commit})
        else:
            sums.update(books.totals(terms))
    return sums
