"""The table of clusters on disk and in memory: identity, changes by reports, limits, and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from spool.clusters import MAX_CHECKS, MAX_ERROR, Cluster, ClusterCheck, ClusterRows, ClusterTable
from spool.clusters import ReportedCluster as Reported
from spool.errors import Invalid, NotThere, SpoolFull, SpoolUnavailable
from spool.log.partial_reports import ExpectedVersion
from spool.postgres.devices import PostgresClusters
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.cluster_settings import MAX_TEXT, ClusterChange
from spool.sql.clusters import SqlClusters
from spool.sqlite import in_memory
from spool.sqlite.database import Database, SqliteTransactions
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from spool.sqlite.migrations import migrate, read_script
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import EVERY_ENGINE, SECRET, migrated
from tests.spool.ledger.engines import POOLED, POSTGRES, schemas_of

WHOLE = Reported(
    account="123", region="eu", name="mill", state="init_ok", chart_version="1.2", agent_version="1.3",
    validator_version="1.4", k8s_version="1.31", provider_id="aws:///i-1", release_name="agent", namespace="cost",
    device="mill-agent", checks=(ClusterCheck(name="api_key_valid", passing=False, error="401"),),
)  # fmt: skip
ADA = Actor("ada", "127.0.0.1")
HEARD = Reported(account="123", region="eu", name="mill")


@pytest.fixture(params=EVERY_ENGINE)
async def rows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ClusterRows]:
    if request.param in (POSTGRES, POOLED):
        async with migrated(schemas_of(request.param, request)()) as postgres:
            yield PostgresClusters(postgres)
        return
    database = await Database.open(
        tmp_path / "spool.sqlite", lambda connection: migrate(connection, (read_script("devices.sql"),))
    )
    yield SqlClusters(SqliteTransactions(database, "clusters"))
    await database.close()


async def opened(cluster_rows: ClusterRows, clock: MovedClock) -> ClusterTable:
    table = await ClusterTable.open(cluster_rows, clock=clock)
    registry = await Registry.open(in_memory.new_in_memory_registry(), secret=SECRET, clock=clock)
    table.settings = registry.cluster_settings
    return table


async def test_a_reported_cluster_outlives_the_process(rows: ClusterRows, clock: MovedClock) -> None:
    table = await opened(rows, clock)
    await table.store_report(WHOLE)
    kept = (await opened(rows, clock)).find_by_name("123", "eu", "mill")
    assert kept == table.find(WHOLE.id)
    assert kept is not None
    assert WHOLE.checks == kept.checks
    assert WHOLE.device == kept.device
    assert clock.now() == kept.first_seen


async def test_what_a_report_leaves_out_stays(rows: ClusterRows, clock: MovedClock) -> None:
    """
    Values that a cluster's report omits stay as they were. An empty list of checks states that there are no checks.
    """
    table = await opened(rows, clock)
    await table.store_report(WHOLE)
    [before] = table.all()
    clock.move(60)
    await table.store_report(HEARD)
    assert replace(before, last_seen=clock.now()) == table.find(WHOLE.id)
    await table.store_report(replace(HEARD, state="pod_stopping", checks=()))
    [after] = table.all()
    assert after.state == "pod_stopping"
    assert after.checks == ()
    assert after.chart_version == "1.2"


async def test_account_region_and_name_distinguish_clusters(rows: ClusterRows, clock: MovedClock) -> None:
    """Account, region and name are compared separately, even if their concatenations are equal."""
    table = await opened(rows, clock)
    names = (("a", "b", "c"), ("ab", "", "c"), ("", "ab", "c"), ("a", "b", 'c", "d'), ("", "", "c"))
    for account, region, name in names:
        await table.store_report(Reported(account=account, region=region, name=name))
    assert len(names) == len(table) == len({cluster.id for cluster in table.all()})
    assert set(names) == {
        (each.account, each.region, each.name) for each in (await opened(rows, clock)).all()
    }


async def test_simultaneous_reports_lose_nothing(rows: ClusterRows, clock: MovedClock) -> None:
    """Simultaneous reports are each applied to the result of the one before."""
    table = await opened(rows, clock)
    await table.store_report(WHOLE)
    await asyncio.gather(
        table.store_report(replace(HEARD, namespace="other")),
        table.store_report(replace(HEARD, k8s_version="1.32")),
    )
    [kept] = await rows.load()
    assert kept.namespace == "other"
    assert kept.k8s_version == "1.32"


@pytest.mark.proves("tables that one key fills")
async def test_a_key_that_brings_made_up_clusters_leaves_room_for_others(
    rows: ClusterRows, clock: MovedClock
) -> None:
    """
    At the limit for one key, its known clusters still report, and another key's first cluster is stored.
    """
    table = await opened(rows, clock)
    table.max = 6
    for number in range(3):
        await table.store_report(replace(HEARD, name=f"made-up-{number}"), key="flood")
    with pytest.raises(SpoolFull):
        await table.store_report(replace(HEARD, name="made-up-3"), key="flood")
    await table.store_report(replace(HEARD, name="made-up-2"), key="flood")
    await table.store_report(HEARD, key="other")
    assert 4 == len(table)


async def test_there_are_at_most_as_many_as_the_limit(rows: ClusterRows, clock: MovedClock) -> None:
    """A new cluster over the limit is refused. Known clusters still report, and a deletion frees a place."""
    table = await opened(rows, clock)
    table.max = 1
    await table.store_report(WHOLE)
    other = replace(HEARD, name="other")
    with pytest.raises(SpoolFull, match=r"clusters\.max"):
        await table.store_report(other)
    await table.store_report(HEARD)
    await table.delete(WHOLE.id, ADA)
    await table.store_report(other)
    assert ["other"] == [each.name for each in table.all()] == [each.name for each in await rows.load()]


async def test_texts_are_bounded(rows: ClusterRows, clock: MovedClock) -> None:
    """
    A name that is too long is refused, because two names could be equal after cutting. Other texts are cut.
    """
    table = await opened(rows, clock)
    check = ClusterCheck(name="n" * 999, passing=True, error="e" * 9999)
    name = "n" * MAX_TEXT
    await table.store_report(replace(WHOLE, name=name, state="s" * 999, checks=(check,) * 999))
    [kept] = await rows.load()
    assert kept.state == "s" * MAX_TEXT
    assert len(kept.checks) == MAX_CHECKS
    assert {(MAX_TEXT, MAX_ERROR)} == {(len(each.name), len(each.error)) for each in kept.checks}
    for wrong in ("", name + "n"):
        with pytest.raises(Invalid, match=str(MAX_TEXT)):
            await table.store_report(replace(WHOLE, name=wrong))
    assert 1 == len(table)


async def test_an_unknown_cluster_is_not_changed(rows: ClusterRows, clock: MovedClock) -> None:
    table = await opened(rows, clock)
    with pytest.raises(NotThere):
        await table.change("none", ClusterChange(enabled=False), ADA)
    with pytest.raises(NotThere):
        await table.delete("none", ADA)


class _Full(SqlClusters):
    async def write(
        self,
        cluster: Cluster,
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        max_rows: int | None = None,
    ) -> None:
        raise SpoolUnavailable("the disk is full")


async def test_settings_need_the_registry(rows: ClusterRows, clock: MovedClock) -> None:
    """If the registry is not available, a cluster reports as before, but nobody can change or delete it."""
    table = await ClusterTable.open(rows, clock=clock)
    await table.store_report(WHOLE)
    with pytest.raises(SpoolUnavailable, match="the registry is damaged"):
        await table.change(WHOLE.id, ClusterChange(enabled=False), ADA)
    with pytest.raises(SpoolUnavailable, match="the registry is damaged"):
        await table.delete(WHOLE.id, ADA)
    assert table.all() == list(await rows.load())


async def test_what_is_not_on_disk_is_not_shown(clock: MovedClock) -> None:
    """A cluster's report that could not be stored changes nothing, also not in memory."""
    table = await opened(_Full(SqliteTransactions(MemoryDatabase(SPOOL), "clusters")), clock)
    with pytest.raises(SpoolUnavailable):
        await table.store_report(WHOLE)
    assert [] == table.all()
