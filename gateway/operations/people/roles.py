"""Roles and permission sets for keys and people, and previews of what a person may do and see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from gateway.core.fields import build_answer, given_fields, one_field_answer
from gateway.core.paths import OPERATOR_API
from gateway.http.address import key_call
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort, yes_no_filter
from gateway.http.requests import Result
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.money.costs.times import format_seconds
from gateway.operations.answers import OperatorItem
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.holders.operators import MoneyServices, PeopleServices
from gateway.operations.managed import (
    DELETE,
    SHOW,
    ByKeys,
    ByPeople,
    HasLedger,
    JsonAnswer,
    ManagedResource,
    OperationCaller,
)
from gateway.operations.money.reports.readers import newest_sign_in_groups
from gateway.operations.people.accounts import OPERATORS
from gateway.operations.requests.address import ALL_ROWS, operator_call
from gateway.operations.requests.admission import can_call
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.requests.requests import OperatorRequest, RequestBody, is_given_default_role
from gateway.operations.services import OperatorServices
from gateway.people.roles.declared import OneRole, PermissionSetItem, RoleChanges, RoleItem
from spool import money
from spool.errors import Invalid, NotThere
from spool.ledger.dimensions import MODEL_FAMILY, PROVIDER_FAMILY, TOTAL
from spool.ledger.periods import named_span
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.slices import SlicedLedger
from spool.registry.documents import replace_fields
from spool.registry.field_notes import example, words
from spool.registry.operators import NO_ROLE, check_account_role, check_email
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION, PERMISSION_SETS, PermissionSet
from spool.registry.registry import Registry
from spool.registry.roles import (
    DATA_ACCESS,
    FULL,
    LIMITED,
    NO_DATA,
    FilterOfRole,
    LedgerSlice,
    NewRole,
    Rights,
    Role,
    RoleFilter,
    RoleHolder,
    check_role_draft,
    role_dimensions,
    session_holder,
)
from spool.registry.texts import check_dimensions
from spool.turns.threads import sort_in_short_steps

RANGE = "last_30d"
SHOWN_DIMENSIONS = (MODEL_FAMILY, PROVIDER_FAMILY, "source", "team", "user")
MAX_VALUES = 20  # maximum number of values shown per dimension, the most expensive first
DRAFT = "Draft"  # the name shown for a role that has no name yet


@dataclass(frozen=True, slots=True)
class ShownRole:
    """A role, with the reason why its filters match nothing, or None if they are valid."""

    role: Role
    broken: str | None


def describe_role(row: ShownRole) -> JsonAnswer:
    role = row.role
    shown = build_answer(
        RoleItem,
        role,
        filters=list(map(describe_filter, role.filters)),
        broken=row.broken,
        created=format_seconds(role.created),
        last_updated=format_seconds(role.last_updated),
    )
    change_fields = ("created", "last_updated", "last_updated_by", "version")
    return {**shown, **dict.fromkeys(change_fields)} if role.is_builtin else shown


def describe_filter(each: RoleFilter) -> dict[str, object]:
    """Describe a filter of a role. A null stands for the unknown value."""
    return {
        "dimension": each.dimension,
        "values": [value or None for value in each.values],
        "mode": each.mode,
    }


def describe_permission_set(each: PermissionSet) -> JsonAnswer:
    return build_answer(PermissionSetItem, each, name=each.title)


ROLES: ListDefinition[ShownRole] = ListDefinition(
    root="roles",
    show=describe_role,
    identity=Sort(value=lambda row: row.role.id),
    sorts={
        "name": Sort(value=lambda row: row.role.name.casefold()),
        "last_updated": Sort(value=lambda row: row.role.last_updated),
    },
    default_sort=("name", "asc"),
    filters={
        "name": Filter(values=lambda row: (row.role.name,)),
        "data_access": Filter(values=lambda row: (row.role.data_access,), valid_values=DATA_ACCESS),
        "permission_set": Filter(
            values=lambda row: row.role.permission_sets, valid_values=tuple(PERMISSION_SETS)
        ),
        "member": Filter(values=lambda row: row.role.members),
        "group": Filter(values=lambda row: row.role.groups),
        "is_builtin": yes_no_filter(lambda row: row.role.is_builtin),
    },
)

PERMISSION_SET_LIST: ListDefinition[PermissionSet] = ListDefinition(
    root="permission_sets",
    show=describe_permission_set,
    identity=Sort(value=lambda row: row.id),
    sorts={"name": Sort(value=lambda row: row.title.casefold()), "id": Sort(value=lambda row: row.id)},
    default_sort=("name", "asc"),
    filters={"id": Filter(values=lambda row: (row.id,), valid_values=tuple(PERMISSION_SETS))},
)


class RoleResource(ManagedResource[Role, HasLedger]):
    noun = "role"
    lists = ROLES
    new = NewRole
    changes = RoleChanges
    item = RoleItem
    one = OneRole
    files = ResourceFiles(name="roles", unordered=("cost_types", "groups", "members", "permission_sets"))
    searched = ("name",)
    keys = ByKeys(path="/v2/access-control/roles", id="role_id", group="access-control", endpoint="roles")
    people = ByPeople(
        path="/roles",
        reads=ORGANIZATION_ADMINISTRATION,
        changes=ORGANIZATION_ADMINISTRATION,
        words={SHOW: "Show a role, by its id or its name", DELETE: "Delete a role without members"},
    )

    def table_in(self, registry: Registry) -> Any:
        return registry.roles

    async def convert_row_for_lists(self, caller: OperationCaller[HasLedger], row: Role) -> ShownRole:
        return ShownRole(row, row.broken_reason(caller.services.ledger.dimensions()))

    async def draft_fields(self, caller: OperationCaller[HasLedger], new_values: Any) -> dict[str, Any]:
        """Convert the body, and raise Invalid if it names people whose names are dropped from all records."""
        for condition in new_values.filters or ():
            caller.shared.people.reject_dropped_names(value or "" for value in condition.values)
        return _role_fields(new_values)

    async def insert_row(
        self, caller: OperationCaller[HasLedger], fields: Mapping[str, Any], server_fields: Mapping[str, Any]
    ) -> Role:
        return await caller.registry.roles.create(
            NewRole(**fields),
            known_dimensions=await caller.known(),
            limits=caller.shared.role_limits(),
            actor=caller.actor,
            asker=caller.holder,
        )

    async def update_row(
        self,
        caller: OperationCaller[HasLedger],
        before: Role,
        fields: Mapping[str, Any],
        *,
        version: str | None = None,
    ) -> Role:
        return await caller.registry.roles.change(
            before.id,
            fields,
            version=version,
            known_dimensions=await caller.known(),
            limits=caller.shared.role_limits(),
            actor=caller.actor,
            asker=caller.holder,
        )


ROLE = RoleResource()


class PermissionSetName(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the permission set."), example("view_recommendations")]
    name: Annotated[str, words("The name of the permission set."), example("View Recommendations")]


class OpenedOperation(msgspec.Struct, kw_only=True):
    method: Annotated[str, words("The HTTP method of the operation."), example("GET")]
    path: Annotated[str, words("The path of the operation."), example("/records")]
    summary: Annotated[
        str,
        words("What the operation does."),
        example(
            "List the newest records, those of dates, or the most expensive of a "
            "time range, including open ones"
        ),
    ]


class DimensionValue(msgspec.Struct, kw_only=True):
    value: Annotated[str | None, words("The value; null if unknown."), example("gpt-4.1")]
    cost: Annotated[str, words("The cost of the calls."), example("319.119443")]
    calls: Annotated[int, words("The number of calls."), example(26453)]


class SeenDimension(msgspec.Struct, kw_only=True):
    dimension: Annotated[str, words("The dimension, such as `team`."), example("model_family")]
    values: Annotated[list[DimensionValue], words("The values of the dimension.")]
    left_out: Annotated[int, words("The number of values that are left out."), example(0)]


class SeenTotal(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[str, words("The start of the period."), example("2026-10-29T00:00:00+00:00")]
    to: Annotated[str, words("The end of the period."), example("2026-11-27T02:00:00+00:00")]
    cost: Annotated[str, words("The cost of the calls that the person may see."), example("797.047936925")]
    calls: Annotated[int, words("The number of calls that the person may see."), example(59232)]
    currency: Annotated[str, words("The currency of the amounts."), example("USD")]


class RolePreview(msgspec.Struct, kw_only=True):
    person: Annotated[
        str | None, words("The e-mail address of the person, or null."), example("bob@example.com")
    ]
    groups: Annotated[list[str], words("Groups of the OpenID provider."), example([])]
    account_role: Annotated[str, words("The role of the account."), example("operator")]
    roles: Annotated[
        list[str], words("The names of the person's roles."), example(["Operator", "Search leads"])
    ]
    permission_sets: Annotated[list[PermissionSetName], words("Permission sets of the person.")]
    data_access: Annotated[
        str, words("Calls that the person sees: `full`, `limited` or `none`."), example("full")
    ]
    cost_types: Annotated[
        list[str],
        words("Kinds of cost that the person sees; if empty, none."),
        example(["real_cost", "reported_cost", "estimated_cost"]),
    ]
    filters: Annotated[
        list[list[FilterOfRole]],
        words("Lists of conditions. A limited person sees a call that meets all conditions of one list."),
        example([]),
    ]
    calls: Annotated[list[OpenedOperation], words("The operations that the person may use.")]
    dimensions: Annotated[
        list[SeenDimension], words("The largest values that the person may see, by dimension.")
    ]
    total: Annotated[SeenTotal, words("The sums of what the person may see.")]


@key_call(
    "GET",
    "/v2/access-control/permission_sets",
    "access-control:read_permission_sets",
    "List permission sets",
    endpoint="roles",
    lists=PERMISSION_SET_LIST,
    item=PermissionSetItem,
)
async def read_permission_sets(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list_page(PERMISSION_SET_LIST, permission_set_rows())


def permission_set_rows() -> MemoryRows[PermissionSet]:
    return MemoryRows(list(PERMISSION_SETS.values()))


def _role_fields(body: Any) -> dict[str, Any]:
    return given_fields(body, filters=lambda filters: tuple(map(_stored_filter, filters)))


def _stored_filter(role_filter: FilterOfRole) -> RoleFilter:
    return RoleFilter(
        dimension=role_filter.dimension,
        values=tuple(value or "" for value in role_filter.values),
        mode=role_filter.mode,
    )


class RoleToPreview(RequestBody):
    """A request for a preview of a person, a draft of a role, or both."""

    person: Annotated[str | None, words("The e-mail address of the person.")] = None
    groups: Annotated[
        tuple[str, ...] | None,
        words("Groups of the OpenID provider; default: those of the person's newest active sign-in."),
    ] = None
    account_role: Annotated[str | None, words("The role that the person's account would have.")] = None
    role: Annotated[NewRole | None, words("A draft of a role, of which the person counts as a member.")] = (
        None
    )
    replaces: Annotated[str | None, words("The id or the name of the role that the draft would change.")] = (
        None
    )


@operator_call(
    "GET",
    "/roles/{role}/wider-operators",
    ORGANIZATION_ADMINISTRATION,
    "List people whose account shows more than their role allows",
    lists=OPERATORS,
    item=OperatorItem,
)
async def list_operators_who_see_more_than_role(request: OperatorRequest[PeopleServices, None]) -> Result:
    """
    List the operators whose account shows more calls than their limited role.

    The role may be assigned by name, or by a group that the OpenID provider reported at the newest active sign-in.
    """
    role = request.registry.roles.require_by_id_or_name(request.path_parameter("role"))
    operators = await request.registry.operators.all() if role.has_hidden_calls_or_cost_types else ()
    newest = {
        session.account: session
        for session in sorted(
            await request.registry.operators.live_sessions(), key=lambda open_session: open_session.created_at
        )
        if session.operator
    }
    groups = {account: session_holder(session).groups for account, session in newest.items()}
    by_group = {
        account
        for account, account_groups in groups.items()
        if not set(role.groups).isdisjoint(account_groups)
    }
    members = by_group.union(role.members)
    wider = [operator for operator in operators if operator.role != NO_ROLE and operator.email in members]
    return await request.list_page(OPERATORS, MemoryRows(wider))


@operator_call(
    "POST",
    "/roles/preview",
    ORGANIZATION_ADMINISTRATION,
    "Preview what a person or a draft of a role may do and see",
    in_turn=True,
    answers=one_field_answer(
        "RolePreviewAnswer", preview=Annotated[RolePreview, words("What the person may do and see.")]
    ),
)
async def preview_role(request: OperatorRequest[OperatorServices, RoleToPreview]) -> Result:
    """Preview a role without storing it. The costs shown are those of the last 30 days."""
    draft = request.body
    if draft.person is None and draft.role is None and not draft.groups:
        raise Invalid("name a person, groups or a draft of a role")
    holder = await _previewed_holder(request)
    rights = _previewed_rights(request, holder)
    sliced = SlicedLedger(request.services.money.ledger, rights.slice)
    await sliced.require_complete_totals(request.services.spool.log)
    return {
        "preview": {
            "person": holder.person or None,
            "groups": list(holder.groups),
            "account_role": holder.base,
            "roles": list(rights.roles),
            "permission_sets": [
                {"id": id, "name": permission_set.title}
                for id, permission_set in PERMISSION_SETS.items()
                if id in rights.permission_sets
            ],
            "data_access": _data_access_level(rights.slice),
            "cost_types": list(rights.cost_types),
            "filters": [list(map(describe_filter, part)) for part in rights.slice.parts if part],
            "calls": await _permitted_calls(request, rights),
            **await _visible_values_by_dimension(request, sliced, rights.slice),
        }
    }


async def _previewed_holder(request: OperatorRequest[OperatorServices, RoleToPreview]) -> RoleHolder:
    body = request.body
    person = "" if body.person is None else check_email(body.person)
    groups = await newest_sign_in_groups(request.registry, person) if body.groups is None else body.groups
    if body.account_role is not None:
        return RoleHolder(person=person, groups=groups, base=check_account_role(body.account_role))
    try:
        account = await request.registry.operators.get(person)
    except NotThere:
        return RoleHolder(person=person, groups=groups, base=NO_ROLE)
    has_default_role = is_given_default_role(request.services.people, account.issuer, groups)
    return RoleHolder(person=person, groups=groups, base=account.role, has_default_role=has_default_role)


def _previewed_rights(
    request: OperatorRequest[OperatorServices, RoleToPreview], holder: RoleHolder
) -> Rights:
    body = request.body
    roles = request.registry.roles
    services = request.services
    if body.role is None:
        if body.replaces is not None:
            raise Invalid("`replaces` names the role that a draft replaces, so state the draft in `role`")
        return roles.holder_rights(holder)
    given = body.role if body.role.name.strip() else replace_fields(body.role, name=DRAFT)
    draft = check_role_draft(given, request.shared.role_limits())
    check_dimensions(role_dimensions(draft), services.money.ledger.dimensions())
    replaced = None if body.replaces is None else roles.require_by_id_or_name(body.replaces).id
    return roles.rights_if_saved(holder, _role_draft_with_only_this_member(draft, holder), replaced=replaced)


def _role_draft_with_only_this_member(draft: NewRole, holder: RoleHolder) -> NewRole:
    return replace_fields(draft, members=(holder.person,), groups=())


def _data_access_level(slice: LedgerSlice) -> str:
    if slice.is_everything:
        return FULL
    return LIMITED if slice.parts else NO_DATA


async def _permitted_calls(
    request: OperatorRequest[OperatorServices, RoleToPreview], rights: Rights
) -> list[Mapping[str, str]]:
    """
    Return the operator API calls that the person may make. The console shows the pages that these calls allow.
    """
    return [
        {"method": row.methods[0], "path": row.path.removeprefix(OPERATOR_API), "summary": row.summary}
        for row in await request.http.app[ALL_ROWS]()
        if row.needs and can_call(row, rights)
    ]


def _highest_cost_first_key(row: CostRow) -> tuple[int, int, str]:
    return -money.text_to_units(row.cost), -row.calls, row.group[0] or ""


async def _visible_values_by_dimension(
    request: OperatorRequest[OperatorServices, RoleToPreview], sliced: SlicedLedger, slice: LedgerSlice
) -> Mapping[str, object]:
    since, until = named_span(RANGE, request.now())
    known = set(sliced.dimensions())
    values = []
    for name in sorted({*SHOWN_DIMENSIONS, *slice.dimensions} & known):
        rows = await sliced.costs(CostQuery(since=since, until=until, granularity=TOTAL, group_by=(name,)))
        rows = await asyncio.to_thread(sort_in_short_steps, rows, key=_highest_cost_first_key)
        values.append(
            {
                "dimension": name,
                "values": [
                    {"value": row.group[0], "cost": row.cost, "calls": row.calls} for row in rows[:MAX_VALUES]
                ],
                "left_out": max(0, len(rows) - MAX_VALUES),
            }
        )
    total = await sliced.costs(CostQuery(since=since, until=until, granularity=TOTAL))
    return {
        "dimensions": values,
        "total": {
            "from": since.isoformat(),
            "to": until.isoformat(),
            "cost": total[0].cost if total else "0",
            "calls": total[0].calls if total else 0,
            "currency": CURRENCY_UNIT,
        },
    }
