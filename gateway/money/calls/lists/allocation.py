"""
Versions of definitions, namespaces and publish jobs as every list and answer shows them, to keys and operators alike.

`version`, `last_updated`, `last_updated_by` and `uri` are the published interface's; the others are Tollhouse's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.http.holders.money import MoneyServices
from gateway.http.lists import Filter, List, MemoryRows, Sort, yes_no
from gateway.http.resources.declaration import answer
from gateway.money.allocation.declared import (
    DEFAULT,
    STATES,
    AllocationTable,
    DefinitionVersion,
    Namespace,
    NamespaceItem,
    PublishJob,
)
from gateway.money.costs.times import seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVersion:
    """`uri` is where its text can be read, None where that is not an address of its own."""

    version: DefinitionVersion
    uri: str | None
    is_in_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNamespace:
    """`newest` is its newest version, None before the first; `broken` says why that is not in force."""

    namespace: Namespace
    newest: DefinitionVersion | None
    broken: str | None


def describe_version(row: ShownVersion) -> dict[str, object]:
    version = row.version
    return {
        "version": str(version.number),
        "namespace": version.namespace or None,
        "last_updated": seconds(version.created),
        "last_updated_by": version.created_by,
        "uri": row.uri,
        "dimensions": list(version.dimensions),
        "bytes": version.bytes,
        "is_in_force": row.is_in_force,
    }


def describe_namespace(row: ShownNamespace) -> dict[str, object]:
    namespace = row.namespace
    newest = row.newest
    return answer(
        NamespaceItem,
        namespace,
        version=None if newest is None else str(newest.number),
        dimensions=() if newest is None else newest.dimensions,
        broken=row.broken,
        created=seconds(namespace.created),
        last_updated=seconds(namespace.last_updated),
    )


def describe_job(job: PublishJob) -> dict[str, object]:
    return {
        "id": job.id,
        "namespace": job.namespace or None,
        "state": job.state,
        "base_version": str(job.base) if job.base else None,
        "version": None if job.version is None else str(job.version),
        "error": job.error or None,
        "errors": [
            {"error": each.error, "value": each.value, "path": list(each.path)} for each in job.faults
        ],
        "border": dict(job.border) or None,
        "submitted": seconds(job.submitted),
        "submitted_by": job.submitted_by,
        "last_updated": seconds(job.last_updated),
    }


_VERSION_SORTS: Mapping[str, Sort[ShownVersion]] = {
    "version": Sort(value=lambda row: row.version.number),
    "last_updated": Sort(value=lambda row: row.version.created),
    "last_updated_by": Sort(value=lambda row: row.version.created_by),
}
_LAST_UPDATED_BY: Filter[ShownVersion] = Filter(values=lambda row: (row.version.created_by,))

# Of the default namespace alone.
VERSIONS: List[ShownVersion] = List(
    root="versions",
    show=describe_version,
    identity=Sort(value=lambda row: row.version.number),
    sorts=_VERSION_SORTS,
    default_sort=("version", "desc"),
    filters={"last_updated_by": _LAST_UPDATED_BY},
)

# Of every namespace.
ALL_VERSIONS: List[ShownVersion] = List(
    root="versions",
    show=describe_version,
    identity=Sort(value=lambda row: row.version.id),
    sorts={**_VERSION_SORTS, "namespace": Sort(value=lambda row: row.version.namespace)},
    default_sort=("last_updated", "desc"),
    filters={
        "namespace": Filter(values=lambda row: (row.version.namespace,)),
        "last_updated_by": _LAST_UPDATED_BY,
        "is_in_force": yes_no(lambda row: row.is_in_force),
    },
)

NAMESPACES: List[ShownNamespace] = List(
    root="namespaces",
    show=describe_namespace,
    identity=Sort(value=lambda row: row.namespace.id),
    sorts={
        "id": Sort(value=lambda row: row.namespace.id),
        "name": Sort(value=lambda row: row.namespace.name),
        "created": Sort(value=lambda row: row.namespace.created),
        "last_updated": Sort(value=lambda row: row.namespace.last_updated),
    },
    default_sort=("id", "asc"),
    filters={
        "id": Filter(values=lambda row: (row.namespace.id,)),
        "name": Filter(values=lambda row: (row.namespace.name,)),
    },
)

PUBLISH_JOBS: List[PublishJob] = List(
    root="publish_jobs",
    show=describe_job,
    identity=Sort(value=lambda job: job.number),
    sorts={
        "submitted": Sort(value=lambda job: job.submitted),
        "last_updated": Sort(value=lambda job: job.last_updated),
        "state": Sort(value=lambda job: job.state),
        "namespace": Sort(value=lambda job: job.namespace),
    },
    default_sort=("submitted", "desc"),
    filters={
        "state": Filter(values=lambda job: (job.state,), valid_values=STATES),
        "namespace": Filter(values=lambda job: (job.namespace,)),
        "submitted_by": Filter(values=lambda job: (job.submitted_by,)),
    },
)


def add_state(money: MoneyServices, version: DefinitionVersion, uri: str | None = None) -> ShownVersion:
    return ShownVersion(version=version, uri=uri, is_in_force=_is_in_force(money, version))


def version_rows(
    money: MoneyServices, namespace: str | None = DEFAULT, *, place: str | None = None
) -> MemoryRows[ShownVersion]:
    """The versions of a namespace, None for those of all. `place` is the path under which they have addresses."""
    versions = money.require_registry().table(AllocationTable).versions(namespace)
    return MemoryRows(
        [add_state(money, each, place and f"{place}/{each.number}/definition") for each in versions]
    )


def namespace_with_state(money: MoneyServices, namespace: Namespace) -> ShownNamespace:
    newest = money.require_registry().table(AllocationTable).in_force().get(namespace.id)
    return ShownNamespace(
        namespace=namespace, newest=newest, broken=money.require_publishing().broken(namespace.id)
    )


def job_rows(money: MoneyServices) -> MemoryRows[PublishJob]:
    return MemoryRows(money.require_registry().table(AllocationTable).jobs())


def _is_in_force(money: MoneyServices, version: DefinitionVersion) -> bool:
    newest = money.require_registry().table(AllocationTable).in_force().get(version.namespace)
    return newest == version and money.require_publishing().broken(version.namespace) is None
