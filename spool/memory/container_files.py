"""Container metrics without a disk."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from spool.container_files import rows as selections
from spool.container_files.values import (
    ANNOUNCED,
    DELIVERED,
    OPEN_STATES,
    UPLOADED,
    BookChange,
    ClusterFiles,
    ClusterIdentity,
    ContainerFile,
    HeldFiles,
    WaitingFiles,
)
from spool.listing import ListPage, ListQuery, page_of
from spool.log.partial_reports import Expectation


class MemoryContainerRows:
    def __init__(self) -> None:
        self._rows: dict[str, ContainerFile] = {}
        self._books: dict[tuple[str, str], tuple[int, int]] = {}

    async def find(self, id: str) -> ContainerFile | None:
        return self._rows.get(id)

    async def named(
        self, kind: str, identity: ClusterIdentity, references: Sequence[str]
    ) -> Mapping[str, ContainerFile]:
        wanted = set(references)
        of_cluster = [row for row in self._rows.values() if (row.kind, row.identity) == (kind, identity)]
        return {row.reference: row for row in of_cluster if row.reference in wanted}

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
        tests: Mapping[str, Callable[[ContainerFile], bool]] = {
            selections.DUE: lambda row: row.kind == kind and row.is_due and row.not_before <= now,
            selections.UNTOLD: lambda row: row.untold,
            selections.MISSING: lambda row: (row.identity, row.key) == (identity, key) and row.asked and not row.kept,
            selections.OVERDUE: lambda row: row.state == ANNOUNCED and row.expires_at < now,
            selections.UNSENT: lambda row: row.state == UPLOADED and (row.uploaded_at or 0.0) < now,
            selections.SPENT: lambda row: (
                row.state == DELIVERED
                and row.kept
                and not row.asked
                and (row.done_at or 0.0) < now
                and identity in (None, row.identity)
                and key in ("", row.key)
            ),
            selections.FORGETTABLE: lambda row: (
                row.state not in OPEN_STATES and not (row.kept or row.asked or row.untold)
            ),
        }
        found = [row for row in self._rows.values() if tests[which](row)]
        by_upload = which == selections.DUE
        found.sort(key=lambda row: (row.uploaded_at or 0.0) if by_upload else row.announced_at)
        return found[:limit]

    async def confirm(self) -> None:
        """There is nothing else."""

    async def write(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        gone: Sequence[ContainerFile],
        changes: Sequence[BookChange],
        *,
        expects: Collection[Expectation] = (),
        most: int | None = None,
    ) -> None:
        for file in gone:
            self._rows.pop(file.id, None)
        self._rows.update({after.id: after for _, after in pairs})
        for change in changes:
            n, carried = self._books.get((change.kind, change.term), (0, 0))
            self._books[change.kind, change.term] = (n + change.n, carried + change.carried)

    async def books(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        return dict(self._books)

    async def count(self) -> Mapping[tuple[str, str], int]:
        return Counter((row.kind, row.state) for row in self._rows.values())

    async def clusters(self) -> Sequence[ClusterFiles]:
        of: defaultdict[ClusterIdentity, list[ContainerFile]] = defaultdict(list)
        for row in self._rows.values():
            of[row.identity].append(row)
        return [
            ClusterFiles(
                identity=identity,
                waiting=sum(row.is_due for row in rows),
                bytes=sum(row.size for row in rows if row.kept),
                newest=max((row.uploaded_at for row in rows if row.uploaded_at is not None), default=None),
            )
            for identity, rows in sorted(of.items())
        ]

    async def waiting(self) -> WaitingFiles:
        due = [row for row in self._rows.values() if row.is_due]
        oldest = min((row.uploaded_at for row in due if row.uploaded_at is not None), default=None)
        return WaitingFiles(files=len(due), bytes=sum(row.size for row in due), oldest=oldest)

    async def held(self) -> Sequence[HeldFiles]:
        of: defaultdict[tuple[ClusterIdentity, str], list[ContainerFile]] = defaultdict(list)
        for row in self._rows.values():
            of[row.identity, row.key].append(row)
        return [
            HeldFiles(
                identity=identity,
                key=key,
                open=sum(row.state in OPEN_STATES for row in rows),
                bytes=sum(row.size for row in rows if row.kept),
                waiting_bytes=sum(row.size for row in rows if row.kept and row.is_due),
            )
            for (identity, key), rows in of.items()
        ]

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]:
        return page_of(self._rows.values(), query)


class MemoryContents:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def begin(self, id: str, head: bytes) -> MemoryDraft:
        return MemoryDraft(self, id, head)

    async def read(self, id: str) -> AsyncIterator[bytes]:
        if id not in self.kept:
            raise FileNotFoundError(id)
        _, _, data = self.kept[id].partition(b"\n")
        yield data

    async def remove(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.kept.pop(id, None)

    async def heads(self) -> Mapping[str, bytes]:
        return {id: data.partition(b"\n")[0] + b"\n" for id, data in self.kept.items()}


class MemoryDraft:
    def __init__(self, contents: MemoryContents, id: str, head: bytes) -> None:
        self._contents = contents
        self._id = id
        self._data = bytearray(head)

    async def write(self, data: bytes) -> None:
        self._data += data

    async def flush(self) -> None:
        """There is no disk."""

    async def keep(self) -> None:
        self._contents.kept[self._id] = bytes(self._data)

    async def drop(self) -> None:
        self._data.clear()
