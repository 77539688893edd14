"""
The protocol of the log, and how observers are notified of commits.

Every engine passes the contract tests (tests/spool/contract). A method makes its changes in one transaction.
When it returns, they survive a power cut, except in SQLite without files.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from spool.identity import RequestDedupKeys
from spool.log.counted_names import EventType
from spool.log.duplicates import IdPosition
from spool.log.values import Commit, LogAccounting, LogEntry, LogStats, Receipt, Submission
from spool.packed.native import NativeModule


class CommitObserver(Protocol):
    """An object that is notified after each durable commit. Its method must not raise or wait."""

    def note_commit(self, commit: Commit) -> None: ...


class ReadableLog(Protocol):
    async def read(
        self,
        topic: str,
        first_number: int,
        last_number: int,
        *,
        must_be_closed: bool = False,
        native: NativeModule | None = None,
    ) -> Sequence[LogEntry]:
        """
        Return closed records with first <= number <= last, with the reports added to them, in order.

        With `must_be_closed`, raises NotClosed unless the whole range is closed. A reader that continues
        after `last_number` must pass it. Otherwise, a number without a record may get one later.

        `native`: the compiled module, if the caller can read spool.packed.records.PackedRecords.
        """
        ...

    def lowest_open_number(self, topic: str) -> int:
        """
        Return the watermark: lower numbers, from 1, are closed, and as durable as their receipts.

        In a shared log, it may fall when a process reads its state again, but never below a value that a
        transaction in the log relied on.
        """
        ...

    def watermark_changes(self, topic: str) -> AsyncIterator[int]: ...

    def next_number(self, topic: str) -> int:
        """
        Return the number that the next record gets. All stored records, open or closed, have lower numbers.
        """
        ...

    async def newest_number(self, topic: str) -> int:
        """
        Return the number of the newest record. It includes every commit before this call, by any process.
        """
        ...


class RecordLog(ReadableLog, Protocol):
    async def count_repeated_ids(self) -> int:
        """
        Return how often ids are repeated too far apart to be recognized. Each process counts once a day.
        """
        ...

    async def read(
        self,
        topic: str,
        first_number: int,
        last_number: int,
        *,
        includes_open_records: bool = False,
        must_be_closed: bool = False,
        native: NativeModule | None = None,
    ) -> Sequence[LogEntry]:
        """
        Return records as `ReadableLog.read` does. With `includes_open_records`, also return open ones, as they are now.
        """
        ...

    async def append_submission(self, submission: Submission) -> Receipt:
        """
        Store a submission. Return the receipt after the flush. Raises SpoolFull if nothing was stored for
        lack of space, and SpoolUnavailable if nothing was stored or the commit is not confirmed.
        """
        ...

    def find_id_position(self, id: bytes) -> IdPosition | None:
        """Return where the record with this id is, or None if the duplicate window does not know the id."""
        ...

    def knows_request(self, request: RequestDedupKeys) -> bool:
        """
        Return whether this process knows that the request was stored, so that its sender can get the same
        success again.
        """
        ...

    async def describe_receipt(self, receipt_id: str) -> Mapping[str, object]:
        """
        Return what a receipt shows: counts, record numbers and state. Raises NotThere for a receipt of
        another log.
        """
        ...

    async def unrecognised_items(self) -> Sequence[Mapping[str, object]]:
        """
        Return attribute names of items that look like AI calls but that no dialect reads: {names, count,
        last_seen}.
        """
        ...

    async def event_types(self) -> Sequence[EventType]:
        """Return the types of usage events by name, at most MAX_TYPES of `spool.log.counted_names`."""
        ...

    async def list_conflicts(self) -> Sequence[Mapping[str, object]]:
        """
        Return the contradictions between reports of one call: {first_source, second_source, count, first,
        second, ...}.
        """
        ...

    async def books(self) -> LogAccounting:
        """Return the running counters, and a sentence for every equation between them that does not hold."""
        ...

    async def verify(self) -> LogAccounting:
        """
        Recount from commit rows and entries. Return the result with a sentence for each counter that differs.
        """
        ...

    async def stats(self) -> LogStats: ...

    async def run_retention(self) -> int:
        """Delete entries that are too old, or whose space is needed. Return their number."""
        ...

    async def close(self) -> None:
        """Finish running commits, flush, and release the directory."""
        ...


# -- notifying an observer ----------------------------------------------------------------------------------


_log = logging.getLogger(__name__)


def notify_observer(observer: CommitObserver, commit: Commit) -> None:
    """
    Notify an observer. Errors are logged, because a sender that got an error would send the records again.
    """
    try:
        observer.note_commit(commit)
    except Exception:  # noqa: BLE001 - the observer's code, after the commit
        _log.exception("an observer of the log failed", extra={"action": "observer_failed"})
