"""
The background reader of metrics from cluster agents. It stores container usage by cluster and day.

A cluster's usage of days that are still open is stored before the read position. After a crash, the last
hour's files are read again, which adds nothing twice. Only one cluster and one of its files are in memory at
a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from gateway.clusters.usage.series import parse_series
from gateway.clusters.usage.usage import (
    DayUsage,
    MeterRules,
    OpenDays,
    OpenUsage,
    UsageMeter,
    add_days,
    decode_usage,
    encode_usage,
)
from spool.clock import Clock
from spool.container_files import container_rows
from spool.container_files.container_rows import OPEN, ContainerUsage, UsageDay, UsageDocument
from spool.container_files.files import ContainerFiles
from spool.container_files.values import ClusterIdentity, ContainerFile
from spool.errors import Invalid
from spool.settings import ContainerPrice

# seconds before the read position that are read again, because other processes receive files at about
# the same time
SLACK_S = 3600.0
MANY = 100  # number of files to read per step
# limit in bytes for the documents that a round stores; above it, the next round starts only after REST_S
LARGE = 1 << 20
REST_S = 600.0
DAY_S = 86_400
OPEN_DAYS = 2  # number of days in the open document; each older day has its own document
# Stands for no cluster: the identity under which the read position is stored.
NOWHERE = ClusterIdentity("", "", "")

_log = logging.getLogger(__name__)
Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True)
class UsageSources:
    """
    The inputs of the container usage reader. `prices` returns the configured prices; if there are none,
    nothing is read. `tags` returns the labels to store as tags.
    """

    files: ContainerFiles
    usage: ContainerUsage
    prices: Callable[[], Sequence[ContainerPrice]]
    tags: Callable[[], Sequence[str]]
    retention_s: Callable[[], float]


class ContainerUsageReader:
    """
    Reads metrics with `read_new_files`, which is called repeatedly. `usage_by_cluster` returns the resulting
    usage.
    """

    def __init__(self, sources: UsageSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._read: dict[str, float] = {}  # read files -> time of their arrival
        self._since: float | None = None
        self._kept_bytes = 0  # bytes of documents stored in this round
        self._rest_until = 0.0
        self._days: Sequence[UsageDay] = ()
        # the open days of each cluster, with the time of their last change
        self._opened: dict[ClusterIdentity, tuple[float, Mapping[int, DayUsage]]] = {}

    @property
    def prices(self) -> Sequence[ContainerPrice]:
        return self._sources.prices()

    async def read_new_files(self) -> int:
        """
        Read new files, and delete usage that is older than the stored billing rows.

        A large cluster's usage of unfinished days has many megabytes, so it is not written after every call.
        """
        if not self.prices or self._clock.now() < self._rest_until:
            return 0
        if self._since is None:
            self._since = await self._newest_read_upload_at()
        count = self._kept_bytes = 0
        while files := await self._next_files():
            count += len(files)
            await self._store_usage(files)
        if self._kept_bytes > LARGE:
            self._rest_until = self._clock.now() + REST_S
        oldest = self._clock.now() - self._sources.retention_s()
        await self._sources.usage.delete_old_days(int(oldest))
        return count

    async def days_with_usage(self) -> Sequence[UsageDay]:
        """
        Return the days with usage, by cluster. A later `usage_by_cluster` uses the state that this call read.
        """
        documents = await self._sources.usage.days_since(OPEN)
        all_days = {document for document in documents if document.day != OPEN}
        opened = {}
        for document in documents:
            if document.day == OPEN and document.identity != NOWHERE:
                opened_days = self._opened.get(document.identity)
                if opened_days is None or opened_days[0] != document.changed_at:
                    opened_days = (
                        document.changed_at,
                        (await self._read_document(document.identity, OPEN, OpenDays)).days,
                    )
                opened[document.identity] = opened_days
                all_days |= {_with_day(document, day) for day in opened_days[1]}
        self._opened = opened
        self._days = sorted(all_days, key=lambda entry: (entry.day, entry.identity))
        return self._days

    async def usage_by_cluster(self, day: int) -> Mapping[ClusterIdentity, DayUsage]:
        by_cluster = {}
        for known_day in self._days:
            if known_day.day == day:
                by_cluster[known_day.identity] = await self._cluster_usage(known_day.identity, day)
        return by_cluster

    async def _cluster_usage(self, identity: ClusterIdentity, day: int) -> DayUsage:
        _, open_days = self._opened.get(identity, (0.0, {}))
        if day in open_days:
            return open_days[day]
        return await self._read_document(identity, day, DayUsage)

    async def _read_document(self, identity: ClusterIdentity, day: int, type: Callable[[], Kept]) -> Kept:
        document = await self._sources.usage.document(identity, day)
        if document is None:
            return type()
        decoded: Kept = await asyncio.to_thread(msgspec.json.decode, document.body, type=type)
        return decoded

    async def _newest_read_upload_at(self) -> float:
        document = await self._sources.usage.document(NOWHERE, OPEN)
        return document.changed_at if document else 0.0

    async def _next_files(self) -> Sequence[ContainerFile]:
        since = (self._since or 0.0) - SLACK_S
        while True:
            files = await self._sources.files.rows.select_files(
                container_rows.READABLE, now=since, limit=MANY
            )
            if new := [file for file in files if file.id not in self._read]:
                return new
            newest = max((_uploaded_at(file) for file in files), default=since)
            if len(files) < MANY or newest <= since:
                return []
            since = newest

    async def _store_usage(self, files: Sequence[ContainerFile]) -> None:
        newest = max([self._since or 0.0, *map(_uploaded_at, files)])
        by_cluster: dict[ClusterIdentity, list[ContainerFile]] = defaultdict(list)
        for file in files:
            by_cluster[file.identity].append(file)
        for identity, theirs in by_cluster.items():
            if documents := await self._usage_documents_with_files(identity, theirs):
                await self._sources.usage.store_documents(documents)
                self._kept_bytes += sum(len(document.body) for document in documents)
        await self._sources.usage.store_documents([_usage_document(NOWHERE, OPEN, newest, b"{}")])
        self._since = newest
        self._read |= {file.id: _uploaded_at(file) for file in files}
        oldest = newest - SLACK_S
        self._read = {id: at for id, at in self._read.items() if at >= oldest}

    async def _usage_documents_with_files(
        self, identity: ClusterIdentity, files: Sequence[ContainerFile]
    ) -> Sequence[UsageDocument]:
        """
        Return the stored documents of a cluster after adding files to its usage, or () if the files add
        nothing.
        """
        document = await self._sources.usage.document(identity, OPEN)
        usage = OpenUsage() if document is None else await asyncio.to_thread(decode_usage, document.body)
        rules = MeterRules(
            tags=list(self._sources.tags()),
            most=self._sources.files.settings.max_series,
            now_ms=int(self._clock.now() * 1000),
        )
        meter = UsageMeter(usage, rules)
        for file in files:
            await self._meter_file(meter, file)
        if not meter.taken:
            return []
        await asyncio.to_thread(meter.add_nodes_and_forget_ended)
        if meter.left_out:
            message = "the costs leave out %d series of a cluster (container.max_series)"
            extra = {"action": "series_left_out", "cluster": identity.name}
            _log.warning(message, meter.left_out, extra=extra)
        return await self._build_documents(identity, usage)

    async def _meter_file(self, meter: UsageMeter, file: ContainerFile) -> None:
        """
        Add the usage in a file to the meter. A file that cannot be read adds nothing and is logged once.
        """
        try:
            pieces = [piece async for piece in self._sources.files.contents.read(file.id)]
            await asyncio.to_thread(_meter_pieces, meter, file, pieces)
        except FileNotFoundError:
            return
        except Invalid as error:
            extra = {"action": "container_metrics_unread", "cluster": file.cluster, "file": file.reference}
            _log.warning("the costs leave out a file of container metrics: %s", error, extra=extra)

    async def _build_documents(self, identity: ClusterIdentity, usage: OpenUsage) -> Sequence[UsageDocument]:
        now = self._clock.now()
        running = int(now) // DAY_S * DAY_S
        over = [day for day in usage.days if day <= running - OPEN_DAYS * DAY_S]
        documents = []
        for day in over:
            stored = await self._read_document(identity, day, DayUsage)
            total = add_days(stored, usage.days.pop(day))
            body = await asyncio.to_thread(msgspec.json.encode, total)
            documents.append(_usage_document(identity, day, now, body))
        body = await asyncio.to_thread(encode_usage, usage)
        documents.append(_usage_document(identity, OPEN, now, body))
        return documents


def _uploaded_at(file: ContainerFile) -> float:
    return file.uploaded_at or 0.0


def _meter_pieces(meter: UsageMeter, file: ContainerFile, pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    pieces.clear()
    meter.add_series(parse_series(file, content))


def _with_day(open_day: UsageDay, day: int) -> UsageDay:
    where = open_day.identity
    return UsageDay(
        account=where.account,
        region=where.region,
        cluster=where.name,
        day=day,
        changed_at=open_day.changed_at,
    )


def _usage_document(identity: ClusterIdentity, day: int, changed_at: float, body: bytes) -> UsageDocument:
    return UsageDocument(
        account=identity.account,
        region=identity.region,
        cluster=identity.name,
        day=day,
        changed_at=changed_at,
        body=body,
    )
