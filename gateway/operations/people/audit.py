"""
Operator API handlers for permission sets and the audit list.

The target of an audit row is often an id, so the list adds its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from gateway.core.fields import build_answer
from gateway.http.lists import Filter, ListDefinition, Sort, StoredRows
from gateway.http.requests import Result
from gateway.money.allocation.declared import AllocationTable
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.people.roles import PERMISSION_SET_LIST, permission_set_rows
from gateway.operations.requests.address import NOTHING, operator_call
from gateway.operations.requests.requests import OperatorRequest
from gateway.people.roles.declared import PermissionSetItem
from spool.listing import ListPage, ListQuery, SortField
from spool.record import utc_iso
from spool.registry.audit import AuditRow
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION
from spool.registry.registry import Registry

INSIGHT, RECOMMENDATION, KEY, OPERATOR, JOB = "insight", "recommendation", "key", "operator", "publish_job"
_DEFAULT = "default"  # the console's name for the default namespace, which always exists
# fields of a change that contain a name of its object
_STATED = ("name", "title", "reference", "text", "namespace")


@dataclass(frozen=True, slots=True)
class AuditRowWithTargetName:
    """An audit row with its target's name. `exists`: the target still exists under this name."""

    row: AuditRow
    name: str | None
    exists: bool


async def add_target_names_to_audit_rows(
    registry: Registry, rows: Sequence[AuditRow]
) -> list[AuditRowWithTargetName]:
    """
    Add the name of each row's target: its current name, or else the name in the row, or else the name in the
    row of its deletion or creation. A target without such a name stays unnamed.
    """
    targets: dict[str, set[str]] = {}
    for row in rows:
        targets.setdefault(_action_kind(row), set()).add(row.target)
    known = {kind: await _audit_target_names_by_id(registry, kind, ids) for kind, ids in targets.items()}
    entries = [_with_target_name(row, known[_action_kind(row)].get(row.target)) for row in rows]
    last = await _last_audited_names(
        registry, [named_row.row for named_row in entries if named_row.name is None]
    )
    return [
        replace(
            named_row, name=named_row.name or last.get((_action_kind(named_row.row), named_row.row.target))
        )
        for named_row in entries
    ]


async def _last_audited_names(registry: Registry, rows: Sequence[AuditRow]) -> Mapping[tuple[str, str], str]:
    if not rows:
        return {}
    targets = tuple({row.target for row in rows})
    actions = tuple({f"{_action_kind(row)}.{verb}" for row in rows for verb in ("delete", "create")})
    query = ListQuery(
        sort=SortField("id"),
        order="desc",
        identity="id",
        limit=2 * len(targets),
        filters={"target": targets, "action": actions},
    )
    last_names: dict[tuple[str, str], str] = {}
    for row in (await registry.audit_page(query)).rows:
        name = _stated_name(row)
        if name:
            last_names.setdefault((_action_kind(row), row.target), name)
    return last_names


def _action_kind(row: AuditRow) -> str:
    return row.action.partition(".")[0]


def _with_target_name(row: AuditRow, name: str | None) -> AuditRowWithTargetName:
    return AuditRowWithTargetName(row, _stated_name(row) if name is None else name, name is not None)


def _stated_name(row: AuditRow) -> str | None:
    stated = {**(row.before or {}), **(row.after or {})}
    names = (stated.get(field) for field in _STATED)
    return next((name for name in names if isinstance(name, str) and name), None)


async def _audit_target_names_by_id(registry: Registry, kind: str, ids: set[str]) -> Mapping[str, str]:
    if kind == INSIGHT:
        return await registry.insights.titles_by_id(ids)
    if kind == RECOMMENDATION:
        return await registry.recommendations.titles_by_id(ids)
    if kind == OPERATOR:
        return {
            operator.email: operator.email
            for operator in await registry.operators.all()
            if operator.email in ids
        }
    if kind == KEY:
        return {key.name: key.name for key in registry.keys.all() if key.name in ids}
    if kind == JOB:
        return {
            job.id: job.namespace or _DEFAULT
            for job in registry.declared_table(AllocationTable).jobs()
            if job.id in ids
        }
    names = {id: registry.document_name(kind, id) for id in ids}
    return {id: name for id, name in names.items() if name is not None}


def describe_audit(audit_row: AuditRowWithTargetName) -> dict[str, object]:
    row = audit_row.row
    return build_answer(
        AuditItem, row, at=utc_iso(row.at), target_name=audit_row.name, target_exists=audit_row.exists
    )


_WORDS = ("actor", "action", "target")

AUDIT: ListDefinition[AuditRowWithTargetName] = ListDefinition(
    root="audit",
    show=describe_audit,
    identity=Sort(field=SortField("id")),
    sorts={name: Sort(field=SortField(name, is_text=name in _WORDS)) for name in ("at", "id", *_WORDS)},
    default_sort=("id", "desc"),
    filters={name: Filter(field=name, is_open=True) for name in (*_WORDS, "address")},
)


class AuditItem(msgspec.Struct, kw_only=True):
    id: Annotated[int, words("The id of the audit row."), example(137)]
    at: Annotated[str, words("When the change was made."), example("2026-11-27T01:45:44.554Z")]
    actor: Annotated[str, words("The person or key that made the change."), example("ada@example.com")]
    address: Annotated[str, words("The network address, or `operator socket`."), example("operator socket")]
    action: Annotated[str, words("The action, such as `view.delete`."), example("view.delete")]
    target: Annotated[
        str, words("The id or name of the changed item."), example("93cb8e3f3fbec5f69aab677ca66e7b3e")
    ]
    target_name: Annotated[str | None, words("The name of the changed item, or null."), example("Search")]
    target_exists: Annotated[bool, words("Whether the changed item still exists."), example(False)]
    before: Annotated[
        dict[str, Any] | None,
        words("The fields that differ, before the change, or null."),
        example(
            {
                "name": "Search",
                "filter": {"team": ["search"]},
                "principal_dimension": "model",
                "connections": {
                    "email": {"addresses": [], "include_all_organizers": False},
                    "slack": [],
                    "notify": [],
                },
                "anomalies": {"enabled": True, "threshold_type": "Automatic", "threshold_value": None},
                "granularity": "total",
                "group_by": ["user", "model"],
                "cost_type": "real_cost",
                "range": "last_30d",
            }
        ),
    ]
    after: Annotated[
        dict[str, Any] | None, words("The fields that differ, after the change, or null."), example(None)
    ]


@operator_call(
    "GET",
    "/permission-sets",
    ORGANIZATION_ADMINISTRATION,
    "List the permission sets of roles",
    lists=PERMISSION_SET_LIST,
    shows=NOTHING,
    item=PermissionSetItem,
)
async def list_permission_sets(request: OperatorRequest[PeopleServices, None]) -> Result:
    return await request.list_page(PERMISSION_SET_LIST, permission_set_rows())


@operator_call("GET", "/audit", ORGANIZATION_ADMINISTRATION, "List all changes", lists=AUDIT, item=AuditItem)
async def list_audit(request: OperatorRequest[PeopleServices, None]) -> Result:
    registry = request.registry

    async def read_named_page(query: ListQuery) -> ListPage[AuditRowWithTargetName]:
        audit_page = await registry.audit_page(query)
        rows = await add_target_names_to_audit_rows(registry, audit_page.rows)
        return ListPage(
            rows=rows,
            keys=audit_page.keys,
            before=audit_page.before,
            after=audit_page.after,
            total=audit_page.total,
            known=audit_page.known,
        )

    return await request.list_page(AUDIT, StoredRows(read_named_page))
