"""
The protocol of the log, and the notification of observers.

Every engine passes one contract suite (tests/spool/contract). A method makes its changes in one transaction.
Once it returns, they survive a power cut, except in SQLite without files.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from spool.identity import RequestNames
from spool.log.counted_names import EventType
from spool.log.duplicates import Whereabouts
from spool.log.values import Books, Commit, Entry, LogStats, Receipt, Submission
from spool.packed.native import Native


class Observer(Protocol):
    """An object that is notified after each durable commit. It must not raise or wait."""

    def note_commit(self, commit: Commit) -> None: ...


class ReadableLog(Protocol):
    async def read(
        self, topic: str, first: int, last: int, *, whole: bool = False, packed: Native | None = None
    ) -> Sequence[Entry]:
        """
        Return closed records with first <= number <= last, with added reports, in order.

        `whole` raises NotClosed unless the whole range is closed. Pass it to continue after `last`: a number
        without a record will never have one.

        `packed`: the compiled module, if the caller reads spool.packed.records.PackedRecords.
        """
        ...

    def closed_below(self, topic: str) -> int:
        """
        Return the watermark. Lower numbers, from 1, are closed, and as durable as their receipts.

        It may fall in a shared log when a process reads its state again, never below a value that a
        transaction in the log relied on.
        """
        ...

    def watermark_changes(self, topic: str) -> AsyncIterator[int]: ...

    def next_number(self, topic: str) -> int:
        """Return the next number. Stored records, open or closed, have lower numbers."""
        ...

    async def newest_number(self, topic: str) -> int:
        """Return the newest number. It includes every commit before this call, by any process."""
        ...


class Log(ReadableLog, Protocol):
    async def count_repeated_ids(self) -> int:
        """
        Return how often ids are repeated too far apart for a lookup, counted once a day in each process.
        """
        ...

    async def read(
        self,
        topic: str,
        first: int,
        last: int,
        *,
        with_open: bool = False,
        whole: bool = False,
        packed: Native | None = None,
    ) -> Sequence[Entry]:
        """Return records. `with_open` also returns open ones, in their present state."""
        ...

    async def append(self, submission: Submission) -> Receipt:
        """
        Store a submission. Return the receipt after the flush. Raises SpoolFull if nothing was stored for
        lack of space, SpoolUnavailable if nothing was stored or the commit is not confirmed.
        """
        ...

    def whereabouts(self, id: bytes) -> Whereabouts | None:
        """Return None if the duplicate window does not know the id."""
        ...

    def knows_request(self, request: RequestNames) -> bool:
        """
        Return whether this process knows that the request was stored. Its sender can get the same success
        again.
        """
        ...

    async def receipt(self, receipt_id: str) -> Mapping[str, object]:
        """Raises NotThere for a receipt of another log."""
        ...

    async def unrecognised_items(self) -> Sequence[Mapping[str, object]]:
        """
        Return the attribute names of items that look like AI calls and that no dialect reads: {names, count,
        last_seen}.
        """
        ...

    async def event_types(self) -> Sequence[EventType]:
        """Return the types by name, at most MAX_TYPES of `spool.log.counted_names`."""
        ...

    async def conflicts(self) -> Sequence[Mapping[str, object]]:
        """Return the conflicts: {first_source, second_source, count, first, second, ...}."""
        ...

    async def books(self) -> Books:
        """Return the counters, and a sentence for every equation that does not hold."""
        ...

    async def verify(self) -> Books:
        """Recount from commit rows and entries, and name each counter that differs."""
        ...

    async def stats(self) -> LogStats:
        """Raises SpoolUnavailable."""
        ...

    async def run_retention(self) -> int:
        """Delete entries that are too old or of which the space is needed. Return their number."""
        ...

    async def close(self) -> None:
        """Finish running commits, flush, and release the directory."""
        ...


# -- notifying an observer ----------------------------------------------------------------------------------


_log = logging.getLogger(__name__)


def notify_observer(observer: Observer, commit: Commit) -> None:
    """
    Notify an observer. Errors are logged, because a sender that got an error would send the records again.
    """
    try:
        observer.note_commit(commit)
    except Exception:  # noqa: BLE001 - the observer's code, after the commit
        _log.exception("an observer of the log failed", extra={"action": "observer_failed"})
