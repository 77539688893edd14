"""
The protocol of the log, and the notification of observers after a commit.

Every storage engine implements the protocol and passes one contract suite (tests/spool/contract). Each
method makes all its changes in one transaction. When it returns, the changes survive a power cut, except in
SQLite without files.
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
    """Receiver of a notification after each durable commit. It must not raise or wait."""

    def committed(self, commit: Commit) -> None: ...


class ReadableLog(Protocol):
    """The part of the log that a reader needs."""

    async def read(
        self, topic: str, first: int, last: int, *, whole: bool = False, packed: Native | None = None
    ) -> Sequence[Entry]:
        """
        Return closed records with first <= number <= last, with their added reports, in order.

        `whole`: raise NotClosed unless the whole range is closed. Pass it if you continue after `last`. A
        number without a record then will never have one.

        `packed`: the compiled module, if the caller can read packed records. Records may then be
        spool.packed.records.PackedRecords.
        """
        ...

    def closed_below(self, topic: str) -> int:
        """
        Return the watermark. Every record with a lower number is closed, and as durable as its receipt.
        Numbers begin at 1.

        The watermark of a shared log may fall when a process reads its state again. It never falls below a
        value that a transaction in the log relied on.
        """
        ...

    def changes(self, topic: str) -> AsyncIterator[int]:
        """Yield `closed_below` now and each time it changes."""
        ...

    def next_number(self, topic: str) -> int:
        """
        Return the number that the next record of a topic gets. All stored records, open or closed,
        have lower numbers.
        """
        ...

    async def newest_number(self, topic: str) -> int:
        """
        Read the next number of a topic from the storage. It includes every commit before this call, by any process.
        """
        ...


class Log(ReadableLog, Protocol):
    """Append-only log with many readers."""

    async def repeated_ids(self) -> int:
        """
        Count ids that occur several times, too far apart in time for a lookup to find. Each process counts
        once a day.
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
        """Read entries as readers see them. `with_open` also returns open records, in their present state."""
        ...

    async def append(self, submission: Submission) -> Receipt:
        """
        Store a submission. Return its receipt after the flush. Raises SpoolFull if there was no space and nothing
        was stored. Raises SpoolUnavailable if the submission was not stored, or if its commit is not confirmed.
        """
        ...

    def whereabouts(self, id: bytes) -> Whereabouts | None:
        """Return the position of a record if the duplicate window knows its id, else None."""
        ...

    def knows_request(self, request: RequestNames) -> bool:
        """
        Return True if this process knows that the request was stored. Then its sender can get the same
        successful response again.
        """
        ...

    async def receipt(self, receipt_id: str) -> Mapping[str, object]:
        """
        Return the outcome of a submission's records. Raises NotThere if this log did not issue the receipt id.
        """
        ...

    async def unrecognised(self) -> Sequence[Mapping[str, object]]:
        """
        List attribute names of items that look like AI calls and that no dialect reads: {names, count, last_seen}.
        """
        ...

    async def event_types(self) -> Sequence[EventType]:
        """List the types of usage events by name. `spool.log.counted_names` bounds the list to MAX_TYPES."""
        ...

    async def conflicts(self) -> Sequence[Mapping[str, object]]:
        """List conflicts: {first_source, second_source, count, first, second, ...}."""
        ...

    async def books(self) -> Books:
        """Return the running counters, and a sentence for every equation that does not hold."""
        ...

    async def verify(self) -> Books:
        """
        Recount from commit rows and entries. The result names each running counter that differs from the recount.
        """
        ...

    async def stats(self) -> LogStats:
        """Return current figures. Raises SpoolUnavailable if they cannot be read."""
        ...

    async def retain(self) -> int:
        """
        Delete entries that are too old or whose space is needed, and count their records. Return the number
        of deleted entries.
        """
        ...

    async def close(self) -> None:
        """Finish the running commits, flush, and release the directory."""
        ...


# -- notifying an observer after a durable commit ------------------------------------------------------------


_log = logging.getLogger(__name__)


def notify(observer: Observer, commit: Commit) -> None:
    """
    Notify an observer. Its errors are only logged, because a sender that got an error would send the records again.
    """
    try:
        observer.committed(commit)
    except Exception:  # noqa: BLE001 - the observer's code, after the commit
        _log.exception("an observer of the log failed", extra={"action": "observer_failed"})
