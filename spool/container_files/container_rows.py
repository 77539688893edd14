"""Storage protocols of container metrics: rows, the bytes of files, and usage of containers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spool.container_files.values import (
    BookChange,
    ClusterFiles,
    ClusterIdentity,
    ContainerFile,
    HeldFiles,
    WaitingFiles,
)
from spool.errors import SpoolUnavailable
from spool.listing import ListPage, ListQuery
from spool.log.partial_reports import Expectation
from spool.sql.small import SmallTable

LONGEST_REST_S = 3600.0  # longest pause before a file that could not be sent is tried again

# Names of selections for `select`, which returns the oldest rows first.
DUE = "due"  # files of `kind` that should be sent now, at the time `now`
UNTOLD = "untold"  # files that the cost service must still be informed of
MISSING = "missing"  # files of `cluster` and `key` whose bytes are requested again and not stored
OVERDUE = "overdue"  # files that were announced, with an upload address that expired before `now`
UNSENT = "unsent"  # files that were uploaded before `now`
# files that were delivered before `now` and whose bytes are still stored; `cluster` and `key` are optional
SPENT = "spent"
FORGETTABLE = "forgettable"  # finished files without stored bytes
READABLE = "readable"  # metrics with stored bytes that were uploaded at `now` or later
SELECTIONS = (DUE, UNTOLD, MISSING, OVERDUE, UNSENT, SPENT, FORGETTABLE, READABLE)


class ContainerFileMoved(SpoolUnavailable):
    """Another process changed the same row at the same time, so nothing was written."""

    def __init__(self) -> None:
        super().__init__("another gateway changed this file at the same time. Repeat the request")


class TooManyFiles(SpoolUnavailable):
    """Other processes added rows at the same time and reached the limit, so nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "other gateways used up the remaining number of files (container.max_files). Repeat the request"
        )


class ContainerRows(Protocol):
    """The rows in the storage of an engine."""

    async def find(self, id: str) -> ContainerFile | None: ...

    async def files_by_reference(
        self, kind: str, identity: ClusterIdentity, references: Sequence[str]
    ) -> Mapping[str, ContainerFile]:
        """Return the files of a cluster with these references, by reference."""
        ...

    async def select_files(
        self,
        which: str,
        *,
        limit: int,
        now: float = 0.0,
        kind: str = "",
        identity: ClusterIdentity | None = None,
        key: str = "",
    ) -> Sequence[ContainerFile]:
        """Return the oldest rows of one of SELECTIONS."""
        ...

    async def wait_until_durable(self) -> None:
        """
        Return once everything read so far is durable. Call it before sending files.

        Raises SpoolUnavailable if it may not become durable.
        """
        ...

    async def write(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        gone: Sequence[ContainerFile],
        changes: Sequence[BookChange],
        *,
        expects: Collection[Expectation] = (),
        most: int | None = None,
    ) -> None:
        """
        Delete the rows in `gone`, replace rows, and change the accounting, in one transaction.

        A pair has the row before the change (None for a new row) and the row after it. If other processes
        share the rows, raises ContainerFileMoved if a stored row differs from the row before, KeyEnded if
        `expects` fail, and TooManyFiles if more than `most` rows would exist.
        """
        ...

    async def counts_by_term(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """
        Return two counts for each (kind, term): the total, and the part of the total whose rows are deleted.
        """
        ...

    async def count(self) -> Mapping[tuple[str, str], int]:
        """Return the number of rows by (kind, state)."""
        ...

    async def cluster_files(self) -> Sequence[ClusterFiles]:
        """Return the sums of the files of each cluster, by its identity."""
        ...

    async def waiting_files(self) -> WaitingFiles:
        """Add up the files of all clusters that wait to be sent."""
        ...

    async def held_files(self) -> Sequence[HeldFiles]:
        """Add up the files by key and cluster."""
        ...

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]: ...


class ContentDraft(Protocol):
    """Bytes of an upload in progress. They count as stored only after `keep`."""

    async def write(self, data: bytes) -> None: ...

    async def flush(self) -> None:
        """Flush the draft to disk. It remains a draft."""
        ...

    async def store_draft(self) -> None:
        """Store the draft under its id, so that it survives a power cut."""
        ...

    async def delete_draft(self) -> None: ...


class ContainerContents(Protocol):
    """
    The bytes of files, by file id.

    Each stored file begins with one line, its `head`. A lost row can be restored from the head.
    """

    async def begin(self, id: str, head: bytes) -> ContentDraft: ...

    def read(self, id: str) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces, without the head. Raises FileNotFoundError if the file is deleted."""
        ...

    async def remove(self, ids: Sequence[str]) -> None: ...

    async def stored_heads(self) -> Mapping[str, bytes]:
        """Return every stored id and its head."""
        ...


# -- usage of containers by cluster and day, and a marker for how far metrics have been read -----------------


OPEN = -1  # used as the day of a sum that is not finished


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDay:
    """A cluster and a day (start in epoch seconds), with the time of the last change."""

    account: str
    region: str
    cluster: str
    day: int
    changed_at: float

    @property
    def identity(self) -> ClusterIdentity:
        return ClusterIdentity(self.account, self.region, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDocument(UsageDay):
    """A cluster's day with its usage."""

    body: bytes


class ContainerUsage(Protocol):
    """Storage of usage documents."""

    async def document(self, identity: ClusterIdentity, day: int) -> UsageDocument | None: ...

    async def days_since(self, since: int) -> Sequence[UsageDay]:
        """Return the stored days from `since` on, by day and cluster."""
        ...

    async def store_documents(self, documents: Sequence[UsageDocument]) -> None:
        """
        Store documents, or none of them if one fails. They replace documents of the same cluster and day.
        """
        ...

    async def delete_old_days(self, before: int) -> None:
        """Delete the days before `before` (epoch seconds)."""
        ...


CONTAINER_USAGE = SmallTable[ContainerUsage](
    "usage of containers", kept_by=("container_files", "SqlContainerUsage")
)
