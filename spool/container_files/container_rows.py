"""What an engine keeps of container metrics: rows, the bytes of files beside them, and what containers used."""

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

LONGEST_REST_S = 3600.0  # of a file that could not be sent

# What `select` finds, oldest first.
DUE = "due"  # of `kind`: to be sent now, by the time `now`
UNTOLD = "untold"  # the upstream is to hear of them
MISSING = "missing"  # of `cluster` and `key`: wanted again, and the bytes are not here
OVERDUE = "overdue"  # announced, and the address ended before `now`
UNSENT = "unsent"  # uploaded before `now`
# delivered before `now`, and the bytes are still here; of `cluster` and `key` if they are given
SPENT = "spent"
FORGETTABLE = "forgettable"  # nothing is to be done for them, and no bytes are here
READABLE = "readable"  # metrics whose bytes are here, uploaded at `now` or later
SELECTIONS = (DUE, UNTOLD, MISSING, OVERDUE, UNSENT, SPENT, FORGETTABLE, READABLE)


class ContainerFileMoved(SpoolUnavailable):
    """Another process changed the same row at the same time: nothing was written."""

    def __init__(self) -> None:
        super().__init__("another gateway changed this file at the same time: repeat it")


class TooManyFiles(SpoolUnavailable):
    """Other processes added rows at the same time, so that there is no room for these: nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "other gateways took the room for files that is left (container.max_files): repeat it"
        )


class ContainerRows(Protocol):
    """The rows as an engine keeps them."""

    async def find(self, id: str) -> ContainerFile | None: ...

    async def named(
        self, kind: str, identity: ClusterIdentity, references: Sequence[str]
    ) -> Mapping[str, ContainerFile]:
        """Return the files of a cluster with these references, by reference."""
        ...

    async def select(
        self,
        which: str,
        *,
        limit: int,
        now: float = 0.0,
        kind: str = "",
        identity: ClusterIdentity | None = None,
        key: str = "",
    ) -> Sequence[ContainerFile]:
        """The oldest rows of one of SELECTIONS."""
        ...

    async def confirm(self) -> None:
        """
        Returns when what was read so far outlives what the storage promises; SpoolUnavailable if it may not.

        Who sends files asks for this before.
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
        Remove the rows in `gone`, replace rows, and change the books, in one transaction. A pair is the row
        before, None for a new one, and the row after. If rows are shared: ContainerFileMoved if the stored
        row differs from the row before, KeyEnded if `expects` fail, TooManyFiles if there are more than
        `most` rows after new ones.
        """
        ...

    async def books(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """(kind, term) -> the number, and the part of it that no row shows any more."""
        ...

    async def count(self) -> Mapping[tuple[str, str], int]:
        """(kind, state) -> how many rows."""
        ...

    async def clusters(self) -> Sequence[ClusterFiles]:
        """Return the sums of the files of each cluster, by its identity."""
        ...

    async def waiting(self) -> WaitingFiles:
        """Sum the files of all clusters that are to be sent to the upstream."""
        ...

    async def held(self) -> Sequence[HeldFiles]:
        """Sum the files that each key brought of each cluster."""
        ...

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]: ...


class ContentDraft(Protocol):
    """Bytes that arrive. They count only after `keep`."""

    async def write(self, data: bytes) -> None: ...

    async def flush(self) -> None:
        """Flush the draft to disk; it stays a draft."""
        ...

    async def keep(self) -> None:
        """Store the draft under its id, also for after a power cut."""
        ...

    async def drop(self) -> None: ...


class ContainerContents(Protocol):
    """
    The bytes of files by id.

    Each begins with a line of its own, `head`, from which a file whose row is lost is known again.
    """

    async def begin(self, id: str, head: bytes) -> ContentDraft: ...

    def read(self, id: str) -> AsyncIterator[bytes]:
        """The bytes without the head, in pieces; FileNotFoundError if they are gone."""
        ...

    async def remove(self, ids: Sequence[str]) -> None: ...

    async def heads(self) -> Mapping[str, bytes]:
        """Every kept id and its head."""
        ...


# -- what containers used, by cluster and day, and how far their metrics are read ----------------------------


OPEN = -1  # the day of what is still being added up


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDay:
    """A cluster and a day (epoch seconds), with the time of its last change."""

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
    """It with what was used."""

    body: bytes


class ContainerUsage(Protocol):
    """Documents of usage."""

    async def document(self, identity: ClusterIdentity, day: int) -> UsageDocument | None: ...

    async def days(self, since: int) -> Sequence[UsageDay]:
        """Return what is kept of days from `since` on, by day and cluster."""
        ...

    async def keep(self, documents: Sequence[UsageDocument]) -> None:
        """Keep documents in place of those of the same cluster and day: all of them, or none."""
        ...

    async def trim(self, before: int) -> None:
        """Forget the days before one."""
        ...


CONTAINER_USAGE = SmallTable[ContainerUsage](
    "usage of containers", kept_by=("container_files", "SqlContainerUsage")
)
