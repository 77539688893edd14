"""Storage protocols of container metrics: rows, files and usage."""

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

LONGEST_REST_S = 3600.0  # longest pause after a failed sending

# For `select_files`, oldest first.
DUE = "due"  # of `kind`, to send at `now`
UNTOLD = "untold"  # unknown to the cost service
MISSING = "missing"  # of `cluster` and `key`, requested again and not stored
OVERDUE = "overdue"  # announced, upload address expired before `now`
UNSENT = "unsent"  # uploaded before `now`
# delivered before `now`, bytes still stored; `cluster` and `key` are optional
SPENT = "spent"
FORGETTABLE = "forgettable"  # finished, without bytes
READABLE = "readable"  # metrics with bytes, uploaded since `now`
SELECTIONS = (DUE, UNTOLD, MISSING, OVERDUE, UNSENT, SPENT, FORGETTABLE, READABLE)


class ContainerFileMoved(SpoolUnavailable):
    """Another process changed the row, so nothing was written."""

    def __init__(self) -> None:
        super().__init__("another gateway changed this file at the same time. Repeat the request")


class TooManyFiles(SpoolUnavailable):
    """Other processes reached the limit, so nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "other gateways used up the remaining number of files (container.max_files). Repeat the request"
        )


class ContainerRows(Protocol):
    async def find(self, id: str) -> ContainerFile | None: ...

    async def files_by_reference(
        self, kind: str, identity: ClusterIdentity, references: Sequence[str]
    ) -> Mapping[str, ContainerFile]: ...

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
        """Return the oldest first."""
        ...

    async def wait_until_durable(self) -> None:
        """
        Wait until everything read is durable, before sending.

        Raises SpoolUnavailable if it may not become so.
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
        Delete, replace and count rows in one transaction.

        Pairs are rows before (None for new) and after. On shared rows, raises ContainerFileMoved if one
        differs from before, KeyEnded if `expects` fail, TooManyFiles beyond `most`.
        """
        ...

    async def counts_by_term(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Return the total and the part of deleted rows, by (kind, term)."""
        ...

    async def count(self) -> Mapping[tuple[str, str], int]:
        """Count the files by (kind, state)."""
        ...

    async def cluster_files(self) -> Sequence[ClusterFiles]: ...

    async def waiting_files(self) -> WaitingFiles:
        """Return the waiting files of all clusters."""
        ...

    async def held_files(self) -> Sequence[HeldFiles]:
        """Return the held files by key and cluster."""
        ...

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]: ...


class ContentDraft(Protocol):
    """Bytes of an upload in progress. They count as stored only after `store_draft`."""

    async def write(self, data: bytes) -> None: ...

    async def flush(self) -> None:
        """Keep it a draft."""
        ...

    async def store_draft(self) -> None:
        """Store it under its id, to survive a power cut."""
        ...

    async def delete_draft(self) -> None: ...


class ContainerContents(Protocol):
    """
    The contents of files by id.

    A file begins with one line, its `head`, from which a lost row is restored.
    """

    async def begin(self, id: str, head: bytes) -> ContentDraft: ...

    def read(self, id: str) -> AsyncIterator[bytes]:
        """Read in pieces, without the head. Raises FileNotFoundError if the file is deleted."""
        ...

    async def remove(self, ids: Sequence[str]) -> None: ...

    async def stored_heads(self) -> Mapping[str, bytes]:
        """Return the heads by file id."""
        ...


# -- usage of containers by cluster and day, and how far metrics have been read
# --------------------------------


OPEN = -1  # day of an unfinished sum


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDay:
    """Start in epoch seconds, with the last change."""

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
    body: bytes


class ContainerUsage(Protocol):
    async def document(self, identity: ClusterIdentity, day: int) -> UsageDocument | None: ...

    async def days_since(self, since: int) -> Sequence[UsageDay]:
        """Return the days by cluster."""
        ...

    async def store_documents(self, documents: Sequence[UsageDocument]) -> None:
        """Store all or none. Replace the same clusters' days."""
        ...

    async def delete_old_days(self, before: int) -> None:
        """Delete days before `before` (epoch seconds)."""
        ...


CONTAINER_USAGE = SmallTable[ContainerUsage](
    "usage of containers", kept_by=("container_files", "SqlContainerUsage")
)
