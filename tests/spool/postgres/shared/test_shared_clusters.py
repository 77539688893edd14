"""
Two processes on one table of clusters: a key's reports are stored only while the key is valid and the
limits allow it.
"""

from __future__ import annotations

import asyncio

import pytest

from spool.clusters import ClusterTable, ReportedCluster, TooManyClusters
from spool.errors import KeyEnded
from spool.postgres.devices import PostgresClusters
from spool.postgres.registry.store import PostgresRegistry
from spool.registry.key_expectations import valid_key_expectation
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.cluster_settings import ClusterChange
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import migrated
from tests.spool.postgres_cluster import Schema

ENDED = valid_key_expectation(b"there is no such key")


def named(name: str) -> ReportedCluster:
    return ReportedCluster(account="1", region="eu", name=name)


async def test_no_more_than_may_be_on_all_together(fresh_schema: Schema) -> None:
    """
    New clusters that both processes receive at once are counted in the database. An existing cluster
    can always report.
    """
    async with migrated(fresh_schema) as database:
        tables = [await ClusterTable.open(PostgresClusters(database), clock=MovedClock()) for _ in range(2)]
        for table in tables:
            table.max = 3
        reports = [tables[n % 2].store_report(named(f"{n}")) for n in range(6)]
        outcomes = await asyncio.gather(*reports, return_exceptions=True)
        assert 3 == sum(isinstance(one, TooManyClusters) for one in outcomes)
        for table in tables:
            await table.read_changes_of_other_processes()
            assert 3 == len(table)
            for cluster in table.all():
                await table.store_report(named(cluster.name))


async def test_a_key_that_has_ended(fresh_schema: Schema) -> None:
    """Neither reports nor changes under an ended key are stored."""
    async with migrated(fresh_schema) as database:
        table = await ClusterTable.open(PostgresClusters(database), clock=MovedClock())
        with pytest.raises(KeyEnded):
            await table.store_report(named("new"), expected_versions=[ENDED])
        await table.store_report(named("old"))
        [cluster] = table.all()
        registry = await Registry.open(PostgresRegistry(database), secret=b"i" * 32, clock=MovedClock())
        table.settings = registry.cluster_settings
        with pytest.raises(KeyEnded):
            await table.change(cluster.id, ClusterChange(enabled=False), Actor("key", "127.0.0.1", (ENDED,)))
        await table.read_changes_of_other_processes()
        assert [cluster] == table.all()
