"""The configuration that each cluster's agents run, as they report it: one document per cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

from spool.registry.changes import RegistryChangeWriter
from spool.registry.following import DOCUMENTS
from spool.registry.registry_rows import RegistryRows

KIND = "cluster_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """
    The configuration of a cluster's agents. `applied`: the version that runs, None if it is not from
    Tollhouse. `asked`: the version that was set when they reported. `failed`: why `asked` could not be
    applied. `reached`: the last version that was set and applied. `since`: epoch seconds.
    """

    applied: str | None
    asked: str | None
    reached: str | None
    failed: str
    since: float


class ClusterConfigTable:
    """The configurations by cluster id, all in memory."""

    announced_subjects = ((DOCUMENTS, KIND),)

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self._reports: Mapping[str, RunConfig] = {}

    async def load(self) -> None:
        self._reports = await self._changes.read(_read_run_configs)

    def find(self, cluster: str) -> RunConfig | None:
        return self._reports.get(cluster)

    async def store_report(
        self,
        cluster: str,
        *,
        applied: str | None,
        failed: str,
        wanted: str | None,
        existing_clusters: Collection[str],
    ) -> None:
        """
        Store a report. `wanted`: the version set for the cluster. An unchanged report writes nothing.

        Reports of clusters that are not in `existing_clusters` are deleted.
        """
        before = self._reports.get(cluster)
        reached = wanted if applied == wanted else None if before is None else before.reached
        now = self._changes.now()
        report = RunConfig(applied=applied, asked=wanted, reached=reached, failed=failed, since=now)
        if before is not None and replace(before, since=now) == report:
            return

        def store_report_and_delete_unknown_clusters(registry_rows: RegistryRows) -> Mapping[str, RunConfig]:
            reports = dict(_read_run_configs(registry_rows))
            for id in reports.keys() - set(existing_clusters):
                registry_rows.delete_document(KIND, id)
                del reports[id]
            reports[cluster] = report
            registry_rows.put_document(KIND, cluster, asdict(report))
            return reports

        await self._changes.change_rows(store_report_and_delete_unknown_clusters, self._set_reports)

    def _set_reports(self, reports: Mapping[str, RunConfig]) -> None:
        self._reports = reports


def _read_run_configs(registry_rows: RegistryRows) -> Mapping[str, RunConfig]:
    return {
        id: RunConfig(
            applied=body.get("applied"),
            asked=body.get("asked"),
            reached=body.get("reached"),
            failed=str(body.get("failed") or ""),
            since=float(body.get("since") or 0.0),
        )
        for id, body in registry_rows.documents(KIND).items()
    }
