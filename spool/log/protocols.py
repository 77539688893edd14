"""
The log as a protocol, and who is notified of its commits.

Every engine implements it under one contract suite (tests/spool/contract). Whatever a verb changes, it changes
in one transaction; when it returns, a power cut takes nothing of it away (SQLite without files excepted).
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
    """Notified of every commit after it is durable; must not raise and must not wait."""

    def committed(self, commit: Commit) -> None: ...


class ReadableLog(Protocol):
    """What a reader of the log needs."""

    async def read(
        self, topic: str, first: int, last: int, *, whole: bool = False, packed: Native | None = None
    ) -> Sequence[Entry]:
        """
        Closed records with first <= number <= last, cut to that range, amended, in order.

        `whole`, for whoever goes on behind `last` afterwards: NotClosed unless all of these are closed, so
        that numbers without a record are gone for good.

        `packed`, of who reads packed records with it: records may be spool.packed.records.PackedRecords.
        """
        ...

    def closed_below(self, topic: str) -> int:
        """
        Every record with a lower number is closed, and outlives what a receipt outlives. Numbers begin at 1.

        It may fall when the memory of a shared log is read again, never below what a transaction in it
        has rested on.
        """
        ...

    def changes(self, topic: str) -> AsyncIterator[int]:
        """`closed_below` now, and again whenever it is another one: what a reader waits on."""
        ...

    def next_number(self, topic: str) -> int:
        """The number that the next record of a topic gets: every kept record has a lower one, closed or open."""
        ...

    async def newest_number(self, topic: str) -> int:
        """The same by what the storage keeps, whoever wrote it: as of this moment, or later."""
        ...


class Log(ReadableLog, Protocol):
    """Append only, many readers."""

    async def repeated_ids(self) -> int:
        """
        Ids that are known more than once, too far apart in time for a lookup. Counted once a day by each process.
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
        """Read entries as readers see them; `with_open` adds the records that are open, in their present state."""
        ...

    async def append(self, submission: Submission) -> Receipt:
        """Keep it: returns after the flush that holds it. SpoolFull or SpoolUnavailable: nothing was kept."""
        ...

    def whereabouts(self, id: bytes) -> Whereabouts | None:
        """Return the place of a record if the duplicate window knows its id; else None."""
        ...

    def knows_request(self, request: RequestNames) -> bool:
        """
        True if the request was kept, as far as this process knows: its sender may be answered as the first time.
        """
        ...

    async def receipt(self, receipt_id: str) -> Mapping[str, object]:
        """Return the fate of a submission's records; NotThere for an id that this log did not seal."""
        ...

    async def unrecognised(self) -> Sequence[Mapping[str, object]]:
        """Shapes that look like AI and that no dialect took: {names, count, last_seen}."""
        ...

    async def event_types(self) -> Sequence[EventType]:
        """The types of usage events, by name; over MAX_TYPES see `spool.log.counted_names`."""
        ...

    async def conflicts(self) -> Sequence[Mapping[str, object]]:
        """Reports of one call that disagreed: {first_source, second_source, count, first, second, ...}."""
        ...

    async def books(self) -> Books:
        """The running counters, and every equation that does not hold."""
        ...

    async def verify(self) -> Books:
        """Recount from commit rows and entries; does not trust the running counters and says where they differ."""
        ...

    async def stats(self) -> LogStats:
        """Figures of this moment; SpoolUnavailable when they cannot be read."""
        ...

    async def retain(self) -> int:
        """Delete what age and space allow, count it; returns the entries removed."""
        ...

    async def close(self) -> None:
        """Finish the running commits, flush, release the directory."""
        ...


# -- notifying an observer of a commit that is durable -------------------------------------------------------


_log = logging.getLogger(__name__)


def notify(observer: Observer, commit: Commit) -> None:
    """An error of the observer is logged and not raised: a sender that heard of it would send the records again."""
    try:
        observer.committed(commit)
    except Exception:  # noqa: BLE001 - the observer's code, after the commit
        _log.exception("an observer of the log failed", extra={"action": "observer_failed"})
