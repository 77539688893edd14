"""Storage protocols of container metrics: rows of files, file contents, and usage per day."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spool.container_files.values import (
    ClusterFiles,
    ClusterIdentity,
    ContainerFile,
    ContainerFileSums,
    FileCountChange,
    WaitingFiles,
)
from spool.errors import SpoolUnavailable
from spool.listing import ListPage, ListQuery
from spool.log.partial_reports import ExpectedVersion
from spool.sql.small import SmallTable

LONGEST_REST_S = 3600.0  # longest pause after a failed delivery

# Conditions for `select_files`, which returns the oldest files first.
DUE = "due"  # files of `kind` that are to be sent at `now`
UNTOLD = "untold"  # files whose final state the cost service does not know yet
MISSING = "missing"  # files of `cluster` and `key` that are requested again and not stored
OVERDUE = "overdue"  # announced files whose upload address expired before `now`
UNSENT = "unsent"  # files uploaded before `now` and not sent
# files delivered before `now` whose bytes are still stored; `cluster` and `key` are optional
SPENT = "spent"
FORGETTABLE = "forgettable"  # finished files whose bytes are deleted
READABLE = "readable"  # stored metrics files uploaded at `now` or later
SELECTIONS = (DUE, UNTOLD, MISSING, OVERDUE, UNSENT, SPENT, FORGETTABLE, READABLE)


class ContainerFileMoved(SpoolUnavailable):
    """Raised if another process changed the row of the file meanwhile. Nothing was written."""

    def __init__(self) -> None:
        super().__init__("another gateway changed this file at the same time. Repeat the request")


class TooManyFiles(SpoolUnavailable):
    """Raised if the files of all processes reached the limit. Nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "other gateways used up the remaining number of files (container.max_files). Repeat the request"
        )


class ContainerFileRows(Protocol):
    async def find(self, id: str) -> ContainerFile | None: ...

    async def files_by_reference(
        self, kind: str, identity: ClusterIdentity, references: Sequence[str]
    ) -> Mapping[str, ContainerFile]: ...

    async def select_files(
        self,
        condition: str,
        *,
        limit: int,
        now: float = 0.0,
        kind: str = "",
        identity: ClusterIdentity | None = None,
        key: str = "",
    ) -> Sequence[ContainerFile]:
        """
        Return at most `limit` files that meet the condition `condition` (a constant of this module), the oldest
        first.
        """
        ...

    async def wait_until_durable(self) -> None:
        """
        Wait until all rows that this process has read are durable, so that it sends no file of a commit that
        may be lost.

        Raises SpoolUnavailable if durability cannot be confirmed.
        """
        ...

    async def write(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        removed_files: Sequence[ContainerFile],
        changes: Sequence[FileCountChange],
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        max_rows: int | None = None,
    ) -> None:
        """
        Write rows and running counts in one transaction.

        `pairs`: each row before its change (None if it is new) and after it. `removed_files`: rows to delete.
        If other processes write the rows as well, raises ContainerFileMoved if a row is not as stated in its
        pair, KeyEnded if `expected_versions` fail, or TooManyFiles beyond `max_rows` rows.
        """
        ...

    async def file_counters_by_kind_and_state(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Return the running counts by (kind, state): all files, and how many of them have deleted rows."""
        ...

    async def counts_by_state(self) -> Mapping[tuple[str, str], int]: ...

    async def cluster_files(self) -> Sequence[ClusterFiles]: ...

    async def waiting_files(self) -> WaitingFiles: ...

    async def file_sums_per_cluster_and_key(self) -> Sequence[ContainerFileSums]: ...

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]: ...


class ContainerFileDraft(Protocol):
    """Bytes of an upload in progress. They count as stored only after `store_draft`."""

    async def write(self, data: bytes) -> None: ...

    async def flush(self) -> None:
        """Flush the bytes to disk. The upload stays a draft."""
        ...

    async def store_draft(self) -> None:
        """Store the upload under its id, so that it survives a power cut."""
        ...

    async def delete_draft(self) -> None: ...


class ContainerFileContents(Protocol):
    """
    The contents of container files by file id.

    Each stored content begins with one line, its head, which describes the row of the file and can restore
    it.
    """

    async def begin_draft(self, id: str, header_line: bytes) -> ContainerFileDraft: ...

    def read(self, id: str) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces, without the head. Raises FileNotFoundError if the file is deleted."""
        ...

    async def remove(self, ids: Sequence[str]) -> None: ...

    async def header_lines_by_file_id(self) -> Mapping[str, bytes]:
        """Return the first lines (heads) of the stored files by file id."""
        ...


# -- usage of containers by cluster and day, and how far metrics have been read
# --------------------------------


OPEN = -1  # stands for the day number of a sum that is not finished


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDay:
    """One cluster's usage on one day. `day`: its start in epoch seconds."""

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

    async def days_since(self, since_day: int) -> Sequence[UsageDay]:
        """Return the stored days, grouped by cluster."""
        ...

    async def store_documents(self, documents: Sequence[UsageDocument]) -> None:
        """Store all documents or none. Each replaces the stored usage of its cluster and day."""
        ...

    async def delete_old_days(self, before_day: int) -> None: ...


CONTAINER_USAGE = SmallTable[ContainerUsage](
    "usage of containers", kept_by=("container_files", "SqlContainerUsage")
)
