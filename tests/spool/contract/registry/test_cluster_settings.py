"""Settings of clusters: stored before or after the first report, limits, audit rows and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from spool.clusters import ClusterTable, ReportedCluster
from spool.errors import Invalid, Managed, NotThere
from spool.registry.file_owners import DeclaringFile, owner_document_id
from spool.registry.keys import MAX_LABELS
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.cluster_settings import (
    ACTION,
    MAX_CONFIG_BYTES,
    MAX_CONFIG_DEPTH,
    MAX_TEXT,
    ClusterChange,
    cluster_id,
)
from spool.sql.clusters import SqlClusters
from spool.sqlite.database import SqliteTransactions
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

pytestmark = pytest.mark.rule

ADA = Actor("ada@example.com", "local")
MILL = ("123", "eu", "mill")
ID = cluster_id(*MILL)
EVERY = ClusterChange(
    display_name="Mill", labels={"team": "search"}, enabled=False, config={"x_n": [1, None]}
)


def nested(depth: int) -> dict[str, Any]:
    """Return a configuration with this number of levels."""
    return {"x_n": [] if depth == 2 else nested(depth - 1)} if depth > 1 else {}


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_settings_outlive_the_process(open_registry: RegistryOpener, clock: MovedClock) -> None:
    """A cluster that never reported has settings. They are removed by a deletion."""
    registry = await open_registry()
    await registry.cluster_settings.change(MILL, EVERY, actor=ADA)
    before = registry.cluster_settings.all()
    await registry.close()
    registry = await open_registry()
    assert before == registry.cluster_settings.all()
    found = before[ID]
    assert (found.account, found.region, found.name) == MILL
    assert (found.display_name, found.labels, found.enabled, found.config) == (
        "Mill", {"team": "search"}, False, {"x_n": [1, None]},
    )  # fmt: skip
    assert (found.updated_at, found.updated_by) == (clock.now(), ADA.name)
    await registry.cluster_settings.delete(MILL, actor=ADA)
    assert {} == registry.cluster_settings.all()
    registry = await open_registry()
    assert {} == registry.cluster_settings.all()


async def test_settings_apply_from_the_first_report(registry: Registry, clock: MovedClock) -> None:
    rows = SqlClusters(SqliteTransactions(MemoryDatabase(SPOOL), "clusters"))
    table = await ClusterTable.open(rows, clock=clock)
    table.settings = registry.cluster_settings
    await registry.cluster_settings.change(MILL, EVERY, actor=ADA)
    assert [] == table.all()
    account, region, name = MILL
    await table.store_report(ReportedCluster(account=account, region=region, name=name))
    [cluster] = table.all()
    assert cluster == table.find_by_name(*MILL)
    assert (cluster.display_name, cluster.enabled) == ("Mill", False)
    version = table.version
    changed = await table.change(ID, ClusterChange(enabled=True), ADA)
    assert changed.enabled
    assert table.version > version
    with pytest.raises(NotThere):
        await table.change("none", ClusterChange(enabled=True), ADA)


async def test_labels_are_merged_and_a_configuration_replaced(registry: Registry) -> None:
    """A label with the value None is deleted."""
    table = registry.cluster_settings
    await table.change(MILL, ClusterChange(labels={"a": "1", "b": "2"}, config={"x_a": 1}), actor=ADA)
    await table.change(MILL, ClusterChange(labels={"a": None, "c": "3"}, config={"x_b": 2}), actor=ADA)
    [found] = table.all().values()
    assert found.labels == {"b": "2", "c": "3"}
    assert found.config == {"x_b": 2}


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        (ClusterChange(display_name="n" * MAX_TEXT), ClusterChange(display_name="n" * (MAX_TEXT + 1))),
        (ClusterChange(display_name="n"), ClusterChange(display_name="a\nb")),
        (
            ClusterChange(config={"a": "x" * (MAX_CONFIG_BYTES - len('{"a": ""}'))}),
            ClusterChange(config={"a": "x" * (MAX_CONFIG_BYTES - len('{"a": ""}') + 1)}),
        ),
        (ClusterChange(config=nested(MAX_CONFIG_DEPTH)), ClusterChange(config=nested(MAX_CONFIG_DEPTH + 1))),
        (
            ClusterChange(labels={f"l{n}": "x" for n in range(MAX_LABELS)}),
            ClusterChange(labels={f"l{n}": "x" for n in range(MAX_LABELS + 1)}),
        ),
    ],
)
async def test_settings_are_bounded(
    registry: Registry, allowed: ClusterChange, refused: ClusterChange
) -> None:
    await registry.cluster_settings.change(MILL, allowed, actor=ADA)
    kept = registry.cluster_settings.all()
    with pytest.raises(Invalid):
        await registry.cluster_settings.change(MILL, refused, actor=ADA)
    assert kept == registry.cluster_settings.all()
    assert [ID] == list(kept)


@pytest.mark.parametrize(
    "change",
    [
        ClusterChange(enabled=False),
        ClusterChange(display_name="Mill"),
        ClusterChange(labels={"a": "1", "none": None}),
        ClusterChange(config={"x_a": 1}),
        ClusterChange(),
    ],
)
async def test_a_change_without_a_difference_leaves_no_trace(
    registry: Registry, clock: MovedClock, change: ClusterChange
) -> None:
    """
    A change of a cluster's settings that repeats an earlier one, even by another person later, changes no time and
    no name, and adds no audit row.
    """
    table = registry.cluster_settings
    await table.change(MILL, change, actor=ADA)
    done, audited = table.find(ID), len(await audit_rows(registry))
    clock.move(60)
    await table.change(MILL, change, actor=Actor("ben", "local"))
    assert done == table.find(ID)
    assert audited == len(await audit_rows(registry)) == (change != ClusterChange())


async def test_changes_are_audited_with_the_earlier_values(registry: Registry) -> None:
    table = registry.cluster_settings
    await table.change(MILL, ClusterChange(enabled=False), actor=ADA)
    await table.change(MILL, ClusterChange(enabled=False, display_name="Mill"), actor=ADA)
    await table.delete(MILL, actor=ADA)
    rows = await audit_rows(registry)
    assert {(f"mill ({ID})", ADA.name)} == {(row.target, row.actor) for row in rows}
    deleted = {"display_name": "Mill", "labels": {}, "enabled": False, "config": {}}
    assert [
        ("cluster.update", {"enabled": True}, {"enabled": False}),
        ("cluster.update", {"display_name": ""}, {"display_name": "Mill"}),
        ("cluster.delete", deleted, None),
    ] == [(row.action, row.before, row.after) for row in rows]


async def test_default_settings_stay_only_if_the_cluster_reports_what_it_runs(registry: Registry) -> None:
    """
    Default settings of a cluster stay stored only if the cluster reports what it runs. Their time says since when
    the agent should run no configuration.
    """
    table = registry.cluster_settings
    await table.change(MILL, ClusterChange(config={"x_a": 1}), actor=ADA)
    await table.change(MILL, ClusterChange(config={}), actor=ADA)
    assert {} == dict(table.all())
    await table.change(MILL, ClusterChange(config={"x_a": 1}), actor=ADA)
    await registry.cluster_configs.store_report(
        ID, applied="v", failed="", wanted="v", existing_clusters=[ID]
    )
    await table.change(MILL, ClusterChange(config={}), actor=ADA)
    assert [ID] == list(table.all())


async def test_only_its_file_changes_a_managed_cluster(registry: Registry) -> None:
    """A managed cluster can still be disabled and enabled."""
    table = registry.cluster_settings
    owner = DeclaringFile(id=owner_document_id(ACTION, ID), set="platform", file="clusters.yaml", line=1)
    await registry.file_owners.store_owner(owner)
    with pytest.raises(Managed):
        await table.change(MILL, ClusterChange(config={"x_a": 1}), actor=ADA)
    with pytest.raises(Managed):
        await table.delete(MILL, actor=ADA)
    for enabled in (False, True):
        await table.change(MILL, ClusterChange(enabled=enabled), actor=ADA)
