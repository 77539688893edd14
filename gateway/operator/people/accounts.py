"""The calls of the operator API for operator accounts and the audit list."""

from __future__ import annotations

from typing import Any

from gateway.http.holders.people import PeopleServices
from gateway.http.lists import Filter, List, MemoryRows, Sort, StoredRows
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.people.audited_names import NamedRow, named_rows
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid, NotAllowed
from spool.listing import ListPage, ListQuery, SortField
from spool.record import moment
from spool.registry.operators import DISABLED, ENABLED, NO_ROLE, ROLES, VIEWER, Operator, Session, status
from spool.registry.roles import holder_of


class NewOperator(RequestBody):
    """Without `role` it is `none` as soon as a role limits what somebody sees, and `viewer` before."""

    email: str
    password: str
    role: str | None = None


class OperatorChanges(RequestBody):
    """What is left out stays as it is."""

    role: str | None = None
    password: str | None = None
    status: str | None = None


def describe(operator: Operator) -> dict[str, object]:
    return {
        "email": operator.email,
        "role": operator.role,
        "status": status(operator),
        "issuer": operator.issuer or None,
        "created_by": operator.created_by,
        "created": moment(operator.created_at),
        "last_modified": moment(operator.last_modified),
    }


def describe_audit(told: NamedRow) -> dict[str, object]:
    row = told.row
    return {
        "id": row.id,
        "at": moment(row.at),
        "actor": row.actor,
        "address": row.address,
        "action": row.action,
        "target": row.target,
        "target_name": told.name,
        "target_exists": told.exists,
        "before": row.before,
        "after": row.after,
    }


OPERATORS: List[Operator] = List(
    root="operators",
    show=describe,
    identity=Sort(value=lambda operator: operator.email),
    sorts={
        "email": Sort(value=lambda operator: operator.email),
        "role": Sort(value=lambda operator: ROLES.index(operator.role)),
        "created": Sort(value=lambda operator: operator.created_at),
        "last_modified": Sort(value=lambda operator: operator.last_modified),
    },
    default_sort=("email", "asc"),
    filters={
        "role": Filter(values=lambda operator: (operator.role,), valid_values=ROLES),
        "status": Filter(values=lambda operator: (status(operator),), valid_values=(ENABLED, DISABLED)),
    },
)

_WORDS = ("actor", "action", "target")

AUDIT: List[NamedRow] = List(
    root="audit",
    show=describe_audit,
    identity=Sort(field=SortField("id")),
    sorts={name: Sort(field=SortField(name, is_text=name in _WORDS)) for name in ("at", "id", *_WORDS)},
    default_sort=("id", "desc"),
    filters={name: Filter(field=name, is_open=True) for name in (*_WORDS, "address")},
)


async def list_operators(request: OperatorRequest[PeopleServices, None]) -> Result:
    operators = await request.registry.operators.all()
    return await request.list(OPERATORS, MemoryRows(operators))


async def add_operator(request: OperatorRequest[PeopleServices, NewOperator]) -> Result:
    given = request.body
    is_limiting = any(role.is_limiting for role in request.registry.roles.all())
    usual = NO_ROLE if is_limiting else VIEWER
    operator = await request.registry.operators.add(
        given.email, role=given.role or usual, password=given.password, actor=request.actor
    )
    return {"operator": describe(operator)}


async def list_wider_operators(request: OperatorRequest[PeopleServices, None]) -> Result:
    """
    List the operators who have a limited role and whose account shows more than it.

    Given by name, or by a group that the OpenID provider told at the newest sign-in that goes on.
    """
    role = request.registry.roles.find_any(request.word("role"))
    operators = await request.registry.operators.all() if role.is_limiting else ()
    newest = {
        session.account: session
        for session in sorted(await request.registry.operators.sessions(), key=lambda each: each.created_at)
        if session.operator
    }
    groups = {account: holder_of(session).groups for account, session in newest.items()}
    by_group = {account for account, told in groups.items() if not set(role.groups).isdisjoint(told)}
    given = by_group.union(role.members)
    wider = [each for each in operators if each.role != NO_ROLE and each.email in given]
    return await request.list(OPERATORS, MemoryRows(wider))


async def edit_operator(request: OperatorRequest[PeopleServices, OperatorChanges]) -> Result:
    given = request.body
    if given.status not in (None, ENABLED, DISABLED):
        raise Invalid(f"a status is {ENABLED} or {DISABLED}")
    if given.role is not None or given.status is not None:
        _check_not_own_account(request)
    operator = await request.registry.operators.change(
        request.word("email"),
        role=given.role,
        password=given.password,
        disabled=None if given.status is None else given.status == DISABLED,
        actor=request.actor,
    )
    return {"operator": describe(operator)}


async def remove_operator(request: OperatorRequest[PeopleServices, None]) -> Result:
    _check_not_own_account(request)
    email = request.word("email")
    await request.registry.operators.remove(email, actor=request.actor)
    return {"removed": email}


def describe_session(session: Session) -> dict[str, object]:
    return {
        "id": session.id,
        "actor": session.actor,
        "role": session.role,
        "account": session.account or None,
        "began_with": _began_with(session),
        "address": session.address or None,
        "created": moment(session.created_at),
        "last_seen": moment(session.seen_at),
        "ends": moment(session.ends_at),
    }


def _began_with(session: Session) -> str:
    if session.issuer:
        return PROVIDER
    return PASSWORD if session.operator else LINK


PASSWORD, LINK, PROVIDER = "password", "link", "provider"
SESSIONS: List[Session] = List(
    root="sessions",
    show=describe_session,
    identity=Sort(value=lambda session: session.id),
    sorts={
        "created": Sort(value=lambda session: session.created_at),
        "last_seen": Sort(value=lambda session: session.seen_at),
        "actor": Sort(value=lambda session: session.actor),
    },
    default_sort=("created", "desc"),
    filters={
        "actor": Filter(values=lambda session: (session.actor,)),
        "role": Filter(values=lambda session: (session.role,), valid_values=ROLES),
        "began_with": Filter(
            values=lambda session: (_began_with(session),), valid_values=(PASSWORD, LINK, PROVIDER)
        ),
    },
)


async def list_sessions(request: OperatorRequest[PeopleServices, None]) -> Result:
    return await request.list(SESSIONS, MemoryRows(await request.registry.operators.sessions()))


async def end_session(request: OperatorRequest[PeopleServices, None]) -> Result:
    id = request.word("id")
    await request.registry.operators.end_session(id, actor=request.actor)
    return {"ended": id}


async def list_audit(request: OperatorRequest[PeopleServices, None]) -> Result:
    registry = request.registry

    async def page(query: ListQuery) -> ListPage[NamedRow]:
        found = await registry.audit_page(query)
        rows = await named_rows(registry, found.rows)
        return ListPage(
            rows=rows,
            keys=found.keys,
            before=found.before,
            after=found.after,
            total=found.total,
            known=found.known,
        )

    return await request.list(AUDIT, StoredRows(page))


def _check_not_own_account(request: OperatorRequest[PeopleServices, Any]) -> None:
    """NotAllowed for one's own account: the last administrator must not lock everybody out by mistake."""
    has_account = request.session is not None and request.session.operator
    if has_account and request.word("email").strip().lower() == request.actor.name:
        who_can = "another Organizer or the command line can"
        raise NotAllowed(f"you cannot change your own role or status, or remove yourself; {who_can}")
