"""Which log entries may be deleted, and when a full queue will have space again. Pure."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from spool.errors import SpoolFull
from spool.log import accounting

LEAST_RETRY_S = 1
MOST_RETRY_S = 300
UNKNOWN_RETRY_S = 30
# share of max_bytes that a full queue frees for the next commits
ROOM = 0.02
# after this time without a report, the counter's process has probably ended
SERIES_AGE_S = 30 * 86_400

# A reader returns the lowest number of a topic that it needs, or None.
Reader = Callable[[str], int | None]


def lowest_needed_number(topic: str, limit: int, readers: Iterable[Reader]) -> int:
    needed = [reader(topic) for reader in readers]
    return min([limit, *(number for number in needed if number is not None)])


class DeletableEntry(NamedTuple):
    """One of a topic's oldest log entries, which retention may delete."""

    first: int
    records: int
    committed_at: float
    bytes: int

    @property
    def last_number(self) -> int:
        return self.first + self.records - 1


def removable_entries(
    candidates: Sequence[DeletableEntry], *, lowest_kept_number: int, before_time: float, excess_bytes: int
) -> list[DeletableEntry]:
    """
    Return the oldest entries below the number `lowest_kept_number` that are too old (committed before
    `before_time`) or whose space is needed, in order. `excess_bytes`: bytes to free.
    """
    gone = []
    for entry in candidates:
        if entry.last_number >= lowest_kept_number or not (
            entry.committed_at < before_time or excess_bytes > 0
        ):
            break
        gone.append(entry)
        excess_bytes -= entry.bytes
    return gone


class RouteReadingProgress(NamedTuple):
    """
    How far the routes have read. `done`: number of records that no route needs any more. `kept`: number of
    stored records.
    """

    done: int
    kept: int

    def with_topic(
        self, *, last_number: int, lowest_stored_number: int, lowest_needed_number: int | None
    ) -> RouteReadingProgress:
        """
        Return the progress with a topic added.
        `lowest_needed_number`: the lowest number that a required route needs, or None.
        """
        done_through = (
            last_number if lowest_needed_number is None else min(last_number, lowest_needed_number - 1)
        )
        return RouteReadingProgress(
            self.done + done_through, self.kept + last_number + 1 - lowest_stored_number
        )


class DrainRate:
    """The speed at which routes read the queue, to estimate when it has space (Retry-After)."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, RouteReadingProgress]] = []

    def add_sample(self, now: float, progress: RouteReadingProgress) -> None:
        """
        Add a sample at a monotonic time. The last ten samples, at least a second apart, decide the speed.
        """
        if not self._samples or now - self._samples[-1][0] >= 1:
            self._samples = [*self._samples[-9:], (now, progress)]

    def spool_full_error(self) -> SpoolFull:
        """Return the error for a queue that has reached `spool.max_bytes`."""
        return SpoolFull(
            "the queue on disk is full (spool.max_bytes)", retry_after_s=self.retry_after_s(ROOM)
        )

    def retry_after_s(self, freed_share: float) -> int:
        """
        Estimate in how many seconds a fraction of the stored records is no longer needed, between
        LEAST_RETRY_S and MOST_RETRY_S.
        """
        if len(self._samples) < 2:
            return UNKNOWN_RETRY_S
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        if after.done <= before.done:
            return MOST_RETRY_S
        seconds = freed_share * after.kept * (end - begin) / (after.done - before.done)
        return max(LEAST_RETRY_S, min(MOST_RETRY_S, math.ceil(seconds)))


# -- deleted commit rows: their terms are added to stored totals ---------------------------------------------


_log = logging.getLogger(__name__)


class DamagedCommits(Exception):
    """Raised if a commit row that retention would delete is unreadable."""


def log_damaged_commits(commits: Sequence[int]) -> None:
    _log.error(
        "%d commit rows are damaged and set aside. The counters still include what they counted, but "
        "their receipts cannot be read",
        len(commits),
        extra={"action": "commits_set_aside", "first": commits[0], "last": commits[-1]},
    )


def sum_stored_accounting_counts(
    rows: Iterable[tuple[int, int, bytes]], *, skips_damaged: bool
) -> Counter[tuple[str, str]]:
    """
    Return the sum by (topic, term) over rows of id, checksum and terms.

    Raises DamagedCommits for a damaged row. With `skips_damaged`, a damaged row is logged instead and adds
    nothing.
    """
    sums: Counter[tuple[str, str]] = Counter()
    for commit, checksum, packed in rows:
        terms = accounting.unpack_submission_counts_if_intact(packed, checksum)
        if terms is None and not skips_damaged:
            raise DamagedCommits
        if terms is None:
            _log.error("a commit row is damaged", extra={"action": "commit_damaged", "commit": commit})
        else:
            sums.update(accounting.sum_submission_counts(terms))
    return sums
