"""The background reader counts every sample once, even if the process ends between two files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.bills.billed.row_book import ConnectionCostUpdater, RowSources
from gateway.clusters.usage.reader import ContainerUsageReader, UsageSources
from gateway.clusters.usage.series import NAME
from gateway.clusters.usage.usage import CPU, DayUsage
from spool.billing import BILLING_DROPS
from spool.container_files.container_rows import CONTAINER_USAGE
from spool.container_files.values import REMOTE_WRITE, ClusterIdentity, ContainerSender
from spool.engines import MEMORY, open_storage
from spool.ledger.dimensions import BILLED_TYPES
from spool.ledger.queries import CostQuery
from spool.people import People
from spool.settings import ContainerPrice, ContainerSettings, SpoolSettings
from spool.storage import Storage, StorageOptions
from tests.gateway.clusters.usage.remote_write import first
from tests.gateway.clusters.usage.test_series import literal
from tests.moved_clock import MovedClock

PROD = ClusterIdentity("a-1", "eu-west-1", "prod")
AGENT = ContainerSender(key="agent")
DAY_S = 86_400
DAY = int(datetime(2026, 10, 5, tzinfo=UTC).timestamp())
PRICE = ContainerPrice(cpu_hour=Decimal(36))  # 36 dollars per core-hour, which is one cent per core-second
WEB = {"namespace": "shop", "pod": "web-0", "container": "app", "node": "n-1"}


class Cluster:
    """A cluster with an agent that sends remote write bodies, and the reader of its files."""

    def __init__(self, storage: Storage, clock: MovedClock) -> None:
        self.storage, self.clock = storage, clock
        self.prices = [PRICE]
        self.reader = self.another()

    def another(self) -> ContainerUsageReader:
        """Create another reader, as after a restart."""
        sources = UsageSources(
            files=self.storage.container_files,
            usage=self.storage.small.open_table(CONTAINER_USAGE),
            prices=lambda: self.prices,
            tags=lambda: ["team"],
            retention_s=lambda: 60.0 * DAY_S,
        )
        return ContainerUsageReader(sources, self.clock)

    async def send(self, *samples: tuple[float, float], **more: str) -> None:
        """Send CPU seconds at offsets from DAY in one body."""
        labels = {NAME: "container_cpu_usage_seconds_total", **WEB, **more}
        told = [(int((DAY + at) * 1000), value) for at, value in samples]
        await self.put(literal(first([(labels, told)])))

    async def put(self, body: bytes) -> None:
        upload = await self.storage.container_files.begin_remote_write(PROD, AGENT, request="{}")
        await upload.write(body)
        await upload.store_if_new()
        self.clock.move(1)

    async def used(self, day: int = DAY) -> int:
        """Read all files; return the day's CPU use in microseconds."""
        await self.reader.read_new_files()
        await self.reader.days_with_usage()
        found = await self.reader.usage_by_cluster(day)
        return sum(amounts[CPU] for amounts in found.get(PROD, DayUsage()).used.values())


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    clock = MovedClock()
    clock.move(DAY + DAY_S - clock.now())
    container = ContainerSettings(price=(PRICE,))
    options = StorageOptions(settings=SpoolSettings(), clock=clock, container=container, directory=Path())
    storage = await open_storage(options, engine=MEMORY)
    yield Cluster(storage, clock)
    await storage.close()


async def test_every_sample_counts_once(cluster: Cluster) -> None:
    """Overlapping bodies, repeats, restarts and delivered bodies that stay on disk do not count twice."""
    await cluster.send((0, 10.0), (60, 12.0))
    assert 2_000_000 == await cluster.used()
    await cluster.send((0, 10.0), (60, 12.0))
    await cluster.send((60, 12.0), (120, 15.0))
    files = cluster.storage.container_files
    await files.mark_delivered(await files.due_files(REMOTE_WRITE, limit=10))
    assert 5_000_000 == await cluster.used()
    cluster.reader = cluster.another()
    assert 5_000_000 == await cluster.used()
    assert 0 == await cluster.reader.read_new_files()


async def test_what_ends_between_reading_and_keeping_is_read_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the process ends after reading and before storing usage, the file is read again, because the read
    position is stored after the usage.
    """
    await cluster.send((0, 0.0), (60, 7.0))
    usage = cluster.reader._sources.usage

    async def killed(documents: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(usage, "store_documents", killed)
        with pytest.raises(KeyboardInterrupt):
            await cluster.reader.read_new_files()
    cluster.reader = cluster.another()
    assert 7_000_000 == await cluster.used()


async def test_late_samples_add_to_days_that_are_over(cluster: Cluster) -> None:
    """A finished day still gets usage from samples that bridge a gap of three days."""
    await cluster.send((0, 0.0), (60, 6.0), (DAY_S - 60, 6.0))
    assert 6_000_000 == await cluster.used()
    cluster.clock.move(2 * DAY_S)
    await cluster.send((2 * DAY_S, 6.0), pod="other")
    assert 6_000_000 == await cluster.used()
    assert {DAY} <= {each.day for each in await cluster.reader._sources.usage.days_since(0)}
    await cluster.send((DAY_S + 60, 18.0))
    assert await cluster.used() == 12_000_000
    assert await cluster.used(DAY + DAY_S) == 6_000_000


async def test_what_cannot_be_read_stops_nothing(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A file that cannot be read is logged once, and the files before and after it count."""
    await cluster.send((0, 0.0))
    await cluster.put(b"no block of snappy")
    await cluster.send((60, 3.0))
    assert 3_000_000 == await cluster.used()
    assert 3_000_000 == await cluster.used()
    assert 1 == sum("leave out a file" in record.message for record in caplog.records)


async def test_nothing_is_read_without_a_price(cluster: Cluster) -> None:
    """Once a price exists, the reader reads all stored files of a cluster."""
    cluster.prices = []
    await cluster.send((0, 0.0), (60, 3.0))
    assert 0 == await cluster.reader.read_new_files()
    cluster.prices = [PRICE]
    assert 3_000_000 == await cluster.used()


async def test_files_beyond_one_step_are_read_in_arrival_order(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there are more files than one step reads, they are read in the order of arrival."""
    monkeypatch.setattr("gateway.clusters.usage.reader.MANY", 2)
    for minute in range(6):
        await cluster.send((60 * minute, float(minute)))
    assert 5_000_000 == await cluster.used()


async def test_large_clusters_are_read_every_ten_minutes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The open usage of a large cluster is written every ten minutes instead of every minute. Nothing is lost.
    """
    monkeypatch.setattr("gateway.clusters.usage.reader.LARGE", 100)
    await cluster.send((0, 0.0), (60, 3.0))
    assert 3_000_000 == await cluster.used()
    await cluster.send((120, 5.0))
    cluster.clock.move(590)
    assert 3_000_000 == await cluster.used()
    cluster.clock.move(10)
    assert 5_000_000 == await cluster.used()


async def test_clusters_are_read_one_after_the_other(cluster: Cluster) -> None:
    """Each cluster has its own usage, and a file without series writes nothing."""
    other = ClusterIdentity("a-2", "", "test")
    for identity in (other, PROD, other):
        upload = await cluster.storage.container_files.begin_remote_write(identity, AGENT, request="{}")
        at = 60 * (identity == PROD)
        labels = {NAME: "container_cpu_usage_seconds_total", **WEB}
        body = first([(labels, [(DAY * 1000, 0.0), ((DAY + 60 + at) * 1000, 4.0 + at)])])
        await upload.write(literal(body))
        await upload.store_if_new()
        cluster.clock.move(1)
    await cluster.put(literal(first([]) or b"\x48\x00"))
    assert 64_000_000 == await cluster.used()
    found = (await cluster.reader.usage_by_cluster(DAY))[other].used
    assert [4_000_000] == [amounts[CPU] for amounts in found.values()]


async def test_from_remote_write_to_costs(cluster: Cluster) -> None:
    """
    Usage from remote write becomes costs by team, which is a pod label. Costs of the current day are
    recalculated once an hour.
    """
    await cluster.send((0, 1.0), label_team="search", **{NAME: "kube_pod_labels"})
    await cluster.send((0, 0.0), (60, 30.0))
    ledger = cluster.storage.ledger
    sources = RowSources(
        ledger=ledger,
        drops=cluster.storage.small.open_table(BILLING_DROPS),
        connections=list,
        owner_tags=lambda: {"team": "team"},
        people=lambda: People.for_installation(b"p"),
        usage=cluster.reader,
    )
    book = ConnectionCostUpdater(sources, cluster.clock)
    assert 1 == await book.recalculate_changed_months()
    query = CostQuery(
        since=datetime.fromtimestamp(DAY, UTC),
        until=datetime.fromtimestamp(DAY + DAY_S, UTC),
        granularity="total",
        group_by=("team", "workload", "origin"),
        arranged=BILLED_TYPES["billed_cost"],
    )
    [row] = await ledger.costs(query)
    assert row.group == ("search", "web", "containers")
    assert row.cost == "0.3"
    await cluster.send((120, 60.0))
    cluster.clock.move(3600)
    assert 1 == await book.recalculate_changed_months()
    [row] = await ledger.costs(query)
    assert "0.6" == row.cost
