"""
Rows, bytes and accounting of container files, kept within size limits by deleting delivered files.

Hold `lock` from reading a row until its changed version is written.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from spool.clock import Clock
from spool.container_files import container_rows
from spool.container_files.container_rows import ContainerFileContents, ContainerFileRows
from spool.container_files.values import (
    DELIVERED,
    EXPIRED,
    KINDS,
    OPEN_STATES,
    REFERENCES,
    STATES,
    SUMMED,
    SUPERSEDED,
    UNUSED,
    UPLOADED,
    ClusterIdentity,
    ContainerAccounting,
    ContainerFile,
    FileCountChange,
)
from spool.errors import SpoolFull
from spool.log.partial_reports import ExpectedVersion
from spool.settings import ContainerSettings
from spool.shares import is_within_share

# -- accounting: files ever named, by state ------------------------------------------------------------------


ROW_TERMS = frozenset(STATES)

Kept = Mapping[tuple[str, str], tuple[int, int]]


def file_count_changes(
    files_before_and_after: Sequence[tuple[ContainerFile | None, ContainerFile]],
    removed_files: Sequence[ContainerFile],
) -> list[FileCountChange]:
    """
    Return how these writes (row before and after) change the running counts. A deleted row stays counted
    under its last state.
    """
    changes = []
    for before, after in files_before_and_after:
        if before is None:
            changes.append(FileCountChange(kind=after.kind, term=REFERENCES, n=1, carried=0))
        elif before.state == after.state:
            continue
        else:
            changes.append(FileCountChange(kind=before.kind, term=before.state, n=-1))
        changes.append(FileCountChange(kind=after.kind, term=after.state, n=1))
    for file in removed_files:
        if file.state == UPLOADED:  # a status that a newer status replaced before it was delivered
            changes.append(FileCountChange(kind=file.kind, term=UPLOADED, n=-1))
            changes.append(FileCountChange(kind=file.kind, term=SUPERSEDED, n=1, carried=1))
        else:
            changes.append(FileCountChange(kind=file.kind, term=file.state, n=0, carried=1))
    return changes


def counts_by_kind_and_state(file_counters: Kept) -> Mapping[str, Mapping[str, int]]:
    counts: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for (kind, term), (n, _) in file_counters.items():
        counts[kind][term] = n
    return counts


def recount_container_accounting(
    file_counters: Kept, row_counts: Mapping[tuple[str, str], int]
) -> ContainerAccounting:
    """
    Compute what the running counts should be, and describe each that differs.

    `file_counters`: by (kind, state), the running count, and how much of it is of deleted rows.
    `row_counts`: the number of stored rows.
    """
    terms: defaultdict[str, dict[str, int]] = defaultdict(dict)
    imbalances = []
    for kind in KINDS:
        of_kind = {term: number for (row_kind, term), number in file_counters.items() if row_kind == kind}
        for term in SUMMED:
            n, carried = of_kind.get(term, (0, 0))
            counted = row_counts.get((kind, term), 0) + carried
            if counted or n:
                terms[kind][term] = counted
            if counted != n:
                imbalances.append(f"{kind}: the accounting has {term} = {n}, but the recount has {counted}")
        total = sum(terms[kind].values())
        references = of_kind.get(REFERENCES, (0, 0))[0]
        terms[kind][REFERENCES] = references
        if references != total:
            imbalances.append(f"{kind}: {references} files were named, but {total} are accounted for")
        for term, (n, _) in of_kind.items():
            terms[kind].setdefault(term, n)
    return ContainerAccounting(terms=dict(terms), imbalances=tuple(imbalances))


# -- use of the limits, in memory
# -----------------------------------------------------------------------------


MAX_BYTES, MAX_CLUSTER_BYTES = "container.max_bytes", "container.max_cluster_bytes"

SenderOfCluster = tuple[ClusterIdentity, str]  # a cluster and the key that sent its files


class ContainerFileLimitUse:
    def __init__(self, settings: ContainerSettings) -> None:
        self._settings = settings
        self._books: dict[tuple[str, str], tuple[int, int]] = {}
        self._bytes: Counter[SenderOfCluster] = Counter()
        self._waiting: Counter[str] = Counter()  # bytes that wait for delivery, by key
        self.open: Counter[str] = Counter()  # rows that wait for delivery, by key
        self.arriving: Counter[SenderOfCluster] = Counter()

    @classmethod
    async def read_from_rows(
        cls, container_rows: ContainerFileRows, settings: ContainerSettings
    ) -> ContainerFileLimitUse:
        sums = cls(settings)
        await sums._read_sums(container_rows)
        return sums

    async def _read_sums(self, container_rows: ContainerFileRows) -> None:
        self._books = dict(await container_rows.file_counters_by_kind_and_state())
        self.open, self._bytes, self._waiting = Counter(), Counter(), Counter()
        for held_files in await container_rows.file_sums_per_cluster_and_key():
            self.open[held_files.key] += held_files.open
            self._bytes[held_files.identity, held_files.key] += held_files.bytes
            self._waiting[held_files.key] += held_files.waiting_bytes

    async def reread_if_changed(self, container_rows: ContainerFileRows) -> bool:
        """
        Compute the sums again from the rows. Return False if the rows have not changed since they were last
        read.
        """
        if self._books == await container_rows.file_counters_by_kind_and_state():
            return False
        await self._read_sums(container_rows)
        return True

    @property
    def total_bytes(self) -> int:
        return self._bytes.total() + self.arriving.total()

    @property
    def row_count(self) -> int:
        return sum(n - carried for (_, term), (n, carried) in self._books.items() if term in ROW_TERMS)

    def sum_file_counters(self, state: str, *kinds: str) -> int:
        return sum(self._books.get((kind, state), (0, 0))[0] for kind in kinds)

    def accounting(self) -> ContainerAccounting:
        return ContainerAccounting(terms=counts_by_kind_and_state(self._books))

    @property
    def waiting_bytes_by_key(self) -> Mapping[str, int]:
        waiting_by_key = Counter(self._waiting)
        for (_, key), n in self.arriving.items():
            waiting_by_key[key] += n
        return waiting_by_key

    def name_of_exceeded_limit(self, cluster_and_key: SenderOfCluster) -> str:
        """Return the name of the setting whose limit is exceeded, or ""."""
        if self._bytes[cluster_and_key] + self.arriving[cluster_and_key] > self._settings.max_cluster_bytes:
            return MAX_CLUSTER_BYTES
        return MAX_BYTES if self.total_bytes > self._settings.max_bytes else ""

    def has_room_for_bytes(self, key: str, byte_count: int) -> bool:
        """
        Return whether a key may store `byte_count` more bytes. A key may use at most half of the space that other keys
        leave free.
        """
        waiting = self.waiting_bytes_by_key
        return is_within_share(
            waiting[key] - byte_count,
            sum(waiting.values()) - byte_count,
            byte_count,
            self._settings.max_bytes,
        )

    def largest_key_with_delivered_files(self) -> str:
        """Return the key with the most stored bytes among the keys that have delivered files, or ""."""
        held: Counter[str] = Counter()
        for (_, key), n in self._bytes.items():
            held[key] += n
        spent = [key for key, n in held.items() if n > self._waiting[key]]
        return max(spent, key=lambda key: held[key], default="")

    def has_room_for_rows(self, key: str, row_count: int) -> bool:
        """
        Return whether a key may add `row_count` more waiting rows. A key may use at most half of the rows that other
        keys leave free.
        """
        return is_within_share(
            self.open[key], self.open.total() + row_count, row_count, self._settings.max_files
        )

    def apply_write(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        removed_files: Sequence[ContainerFile],
        changes: Sequence[FileCountChange],
    ) -> None:
        for change in changes:
            n, carried = self._books.get((change.kind, change.term), (0, 0))
            self._books[change.kind, change.term] = (n + change.n, carried + change.carried)
        for before, after in [*pairs, *((file, None) for file in removed_files)]:
            for file, sign in ((before, -1), (after, 1)):
                if file is not None:
                    size = sign * file.size * file.kept
                    self._bytes[file.identity, file.key] += size
                    self._waiting[file.key] += size * file.is_due
                    self.open[file.key] += sign * (file.state in OPEN_STATES)
        # the unary plus removes counts of 0
        self._bytes, self._waiting, self.open = +self._bytes, +self._waiting, +self.open


# -- rows and bytes ------------------------------------------------------------------------------------------


RETRY_AFTER_S = 60
MANY = 500  # rows deleted per step


class StoredContainerFiles:
    def __init__(
        self,
        container_rows: ContainerFileRows,
        contents: ContainerFileContents,
        settings: ContainerSettings,
        clock: Clock,
        sums: ContainerFileLimitUse,
    ) -> None:
        self.rows = container_rows
        self.contents = contents
        self.settings = settings
        self.sums = sums
        self.lock = asyncio.Lock()
        self._clock = clock
        self._news = asyncio.Event()

    async def reserve_bytes(self, cluster_and_key: SenderOfCluster, n: int) -> None:
        """
        Reserve space for `n` bytes, deleting delivered files if necessary. Raises SpoolFull.
        """
        self.sums.arriving[cluster_and_key] += n
        try:
            if not self.sums.has_room_for_bytes(cluster_and_key[1], n):
                why = f"waiting files of this key use its share of {MAX_BYTES}"
                raise SpoolFull(
                    f"{why}, which is half of what other keys leave free. Retry later",
                    retry_after_s=RETRY_AFTER_S,
                )
            if self.sums.name_of_exceeded_limit(cluster_and_key):
                await self._delete_delivered_files_over_limit(cluster_and_key)
            over = self.sums.name_of_exceeded_limit(cluster_and_key)
            if over:
                raise SpoolFull(
                    f"files that wait for delivery use up {over}. Retry later", retry_after_s=RETRY_AFTER_S
                )
        except BaseException:
            self.release_bytes(cluster_and_key, n)
            raise

    def release_bytes(self, cluster_and_key: SenderOfCluster, n: int) -> None:
        self.sums.arriving[cluster_and_key] -= n
        if not self.sums.arriving[cluster_and_key]:
            del self.sums.arriving[cluster_and_key]

    async def make_room_for_rows(self, key: str, n: int) -> None:
        if not n:
            return
        max_rows = self.settings.max_files
        if not self.sums.has_room_for_rows(key, n):
            raise SpoolFull(
                "this key has too many waiting files for the limit container.max_files. Retry later",
                retry_after_s=RETRY_AFTER_S,
            )
        while self.sums.row_count + n > max_rows:
            forgettable = await self.rows.select_files(container_rows.FORGETTABLE, limit=max(MANY, n))
            if not forgettable:
                raise SpoolFull(
                    "all files within the limit container.max_files are waiting. Retry later",
                    retry_after_s=RETRY_AFTER_S,
                )
            await self.write_files([], removed_files=forgettable)

    async def _delete_delivered_files_over_limit(self, cluster_and_key: SenderOfCluster) -> None:
        """
        Delete delivered files, the oldest first, until the limits hold. If the total limit is exceeded, the
        files of the key with the most bytes are deleted.
        """
        async with self.lock:
            while over := self.sums.name_of_exceeded_limit(cluster_and_key):
                identity, key = (
                    cluster_and_key
                    if over == MAX_CLUSTER_BYTES
                    else (None, self.sums.largest_key_with_delivered_files())
                )
                spent = await self.rows.select_files(
                    container_rows.SPENT, now=inf, identity=identity, key=key, limit=1
                )
                # the counts are old: another process deleted this key's files, so try any key
                if not spent and identity is None:
                    spent = await self.rows.select_files(container_rows.SPENT, now=inf, limit=1)
                if not spent:
                    return
                await self._set_state_and_delete_contents(spent, DELIVERED)

    async def _delete_contents_of_selected_files(self, condition: str, before: float, state: str) -> None:
        while files := await self.rows.select_files(condition, now=before, limit=MANY):
            async with self.lock:
                current = [await self.rows.find(file.id) for file in files]
                await self._set_state_and_delete_contents(
                    [file for file in current if file is not None], state
                )

    async def _set_state_and_delete_contents(self, files: Sequence[ContainerFile], state: str) -> None:
        """
        Set the state of files and delete their bytes. The rows are updated first, so after a crash in
        between, the next start deletes the remaining bytes.
        """
        now = self._clock.now()
        facts: dict[str, Any] = {"state": state, "kept": False, "body": b""}
        await self.write_files(
            [(file, replace(file, **facts, done_at=file.done_at or now)) for file in files]
        )
        await self.contents.remove([file.id for file in files if file.kept])

    async def change_files(
        self, files: Sequence[ContainerFile], change_file: Callable[[ContainerFile], ContainerFile]
    ) -> None:
        async with self.lock:
            current = [await self.rows.find(file.id) for file in files]
            await self.write_files([(file, change_file(file)) for file in current if file is not None])

    async def write_files(
        self,
        files: Sequence[tuple[ContainerFile | None, ContainerFile]],
        *,
        removed_files: Sequence[ContainerFile] = (),
        changes: Sequence[FileCountChange] = (),
        expected_versions: Collection[ExpectedVersion] = (),
        is_limited_by_max_files: bool = False,
    ) -> None:
        """
        Write rows, running counts and sums. Each row is a pair of before (None if it is new) and after.
        `removed_files`: rows to delete. `is_limited_by_max_files`: `settings.max_files` applies.

        Raises KeyEnded if the sender's key has ended, or TooManyFiles.
        """
        pairs = [(before, after) for before, after in files if before != after]
        all_changes = [*changes, *file_count_changes(pairs, removed_files)]
        if not (pairs or removed_files or all_changes):
            return
        max_rows = self.settings.max_files if is_limited_by_max_files else None
        await self.rows.write(
            pairs, removed_files, all_changes, expected_versions=expected_versions, max_rows=max_rows
        )
        self.sums.apply_write(pairs, removed_files, all_changes)
        self._news.set()

    async def read_changes_of_other_processes(self) -> None:
        """Compute the sums again if other processes changed rows."""
        async with self.lock:
            if await self.sums.reread_if_changed(self.rows):
                self._news.set()

    async def delete_expired(self, *, has_upstream: bool) -> None:
        now = self._clock.now()
        before = now - self.settings.retention
        while files := await self.rows.select_files(container_rows.OVERDUE, now=now, limit=MANY):
            await self.change_files(files, lambda file: replace(file, state=UNUSED, done_at=now))
        await self._delete_contents_of_selected_files(container_rows.SPENT, before, DELIVERED)
        if not has_upstream:
            await self._delete_contents_of_selected_files(container_rows.UNSENT, before, EXPIRED)

    async def wait_for_changes(self) -> None:
        """Wait until rows change. Only one reader may call this."""
        await self._news.wait()
        self._news.clear()
