"""Names, labels and configurations of clusters as a file. A cluster may be in it before it reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.clusters.agent_config import check_agent_config
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFileHandler
from gateway.operations.requests.requests import RequestBody
from spool.errors import Invalid, NotAllowed
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION
from spool.registry.registry import Registry
from spool.registry.tables.cluster_settings import (
    ACTION,
    ClusterChange,
    ConfiguredCluster,
    check_cluster_name,
    cluster_id,
)

LIMIT = "clusters.max"


class ClusterInFile(RequestBody):
    name: str
    account: str = ""
    region: str = ""
    display_name: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    config: dict[str, Any] = msgspec.field(default_factory=dict)


class ClusterFileHandler(ObjectFileHandler):
    """
    The settings of clusters in a file: names, labels and configurations. A cluster without any of them is in
    no file. Files do not state whether a cluster may report, so a disabled cluster stays disabled.
    """

    files = ResourceFiles(name="clusters", key=("name", "account", "region"), ignores_case=False)
    noun = "cluster"
    action = ACTION
    new = ClusterInFile
    reads = VIEW_OPERATION
    changes = OPERATE_SPOOL

    async def rows_by_id(self, registry: Registry) -> Mapping[str, ConfiguredCluster]:
        settings = registry.cluster_settings.all()
        return {id: row for id, row in settings.items() if row.display_name or row.labels or row.config}

    async def find(self, registry: Registry, id: str) -> ConfiguredCluster:
        return registry.cluster_settings.all()[id]

    async def create(self, caller: MoneyCaller, new_values: ClusterInFile, secret: str | None) -> str:
        identity, table = (
            (new_values.account, new_values.region, new_values.name),
            caller.registry.cluster_settings,
        )
        check_cluster_name(identity)
        if not (new_values.display_name or new_values.labels or new_values.config):
            raise Invalid("name: this cluster has no settings; remove its item from the file")
        id, most = cluster_id(*identity), caller.shared.most(LIMIT)
        row = table.find(id)
        change = _change_from_file(new_values, row)
        if row is None and len(table.all()) >= most:
            raise NotAllowed(f"the limit of {most} clusters ({LIMIT}) is reached: remove one first")
        await table.change(identity, change, actor=caller.actor)
        return id

    async def change(
        self, caller: MoneyCaller, row: ConfiguredCluster, new_values: ClusterInFile, secret: str | None
    ) -> None:
        await self.create(caller, new_values, None)

    async def delete(self, caller: MoneyCaller, row: ConfiguredCluster) -> None:
        identity = (row.account, row.region, row.name)
        nothing = _change_from_file(ClusterInFile(name=row.name), row)
        await caller.registry.cluster_settings.change(identity, nothing, actor=caller.actor)

    def remark_in_apply_plan(self, row: ConfiguredCluster) -> str:
        return "" if row.enabled else "disabled, and stays disabled"


def _change_from_file(new_values: ClusterInFile, row: ConfiguredCluster | None) -> ClusterChange:
    check_agent_config(new_values.config)
    removed = dict.fromkeys(row.labels if row is not None else ())
    return ClusterChange(
        display_name=new_values.display_name,
        labels={**removed, **new_values.labels},
        config=new_values.config,
    )


CLUSTER_KIND = ClusterFileHandler()
