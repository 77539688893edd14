"""The calls of the operator API for operator accounts and the audit list."""

from __future__ import annotations

from aiohttp import web

from gateway.http.lists import Filter, List, MemoryRows, Sort, StoredRows
from gateway.operator.body import Body, answer, moment
from gateway.operator.calls import Asked, Call
from spool.errors import NotAllowed
from spool.listing import SortField
from spool.registry.audit import AuditRow
from spool.registry.operators import ADMIN, ROLES, VIEWER, Operator


class NewOperator(Body):
    email: str
    password: str
    role: str = VIEWER


class OperatorChanges(Body):
    """What is left out stays as it is."""

    role: str | None = None
    password: str | None = None


def shown(operator: Operator) -> dict[str, object]:
    return {
        "email": operator.email,
        "role": operator.role,
        "created_by": operator.created_by,
        "created": moment(operator.created_at),
        "last_modified": moment(operator.last_modified),
    }


def shown_audit(row: AuditRow) -> dict[str, object]:
    return {
        "id": row.id,
        "at": moment(row.at),
        "actor": row.actor,
        "address": row.address,
        "action": row.action,
        "target": row.target,
        "before": row.before,
        "after": row.after,
    }


OPERATORS: List[Operator] = List(
    root="operators",
    show=shown,
    identity=Sort(value=lambda operator: operator.email),
    sorts={
        "email": Sort(value=lambda operator: operator.email),
        "role": Sort(value=lambda operator: ROLES.index(operator.role)),
        "created": Sort(value=lambda operator: operator.created_at),
        "last_modified": Sort(value=lambda operator: operator.last_modified),
    },
    default_sort=("email", "asc"),
    filters={"role": Filter(values=lambda operator: (operator.role,), valid_values=ROLES)},
)

AUDIT: List[AuditRow] = List(
    root="audit",
    show=shown_audit,
    identity=Sort(field=SortField("id")),
    sorts={name: Sort(field=SortField(name)) for name in ("at", "id", "actor", "action", "target")},
    default_sort=("id", "desc"),
    filters={name: Filter(field=name) for name in ("actor", "action", "target", "address")},
)


async def list_operators(asked: Asked) -> web.Response:
    return await asked.list(OPERATORS, MemoryRows(await asked.services.the_registry().operators.all()))


async def add_operator(asked: Asked) -> web.Response:
    given = await asked.body(NewOperator)
    operator = await asked.services.the_registry().operators.add(
        given.email, role=given.role, password=given.password, actor=asked.actor
    )
    return answer({"operator": shown(operator)}, status=201)


async def edit_operator(asked: Asked) -> web.Response:
    given = await asked.body(OperatorChanges)
    if given.role is not None:
        _not_oneself(asked)
    operator = await asked.services.the_registry().operators.change(
        asked.word("email"), role=given.role, password=given.password, actor=asked.actor
    )
    return answer({"operator": shown(operator)})


async def remove_operator(asked: Asked) -> web.Response:
    asked.only()
    _not_oneself(asked)
    email = asked.word("email")
    await asked.services.the_registry().operators.remove(email, actor=asked.actor)
    return answer({"removed": email})


async def list_audit(asked: Asked) -> web.Response:
    registry = asked.services.the_registry()
    return await asked.list(AUDIT, StoredRows(registry.audit_page))


def _not_oneself(asked: Asked) -> None:
    """The last administrator cannot lock everybody out of the console by a slip."""
    if asked.session is not None and asked.session.operator and asked.word("email") == asked.actor.name:
        raise NotAllowed("nobody takes a role away from oneself; another admin or the command line can")


CALLS = (
    Call("GET", "/operators", ADMIN, list_operators, "List operators", lists=OPERATORS),
    Call("POST", "/operators", ADMIN, add_operator, "Add an operator", takes=NewOperator),
    Call(
        "PATCH",
        "/operators/{email}",
        ADMIN,
        edit_operator,
        "Change an operator's role or password",
        takes=OperatorChanges,
    ),
    Call("DELETE", "/operators/{email}", ADMIN, remove_operator, "Remove an operator"),
    Call("GET", "/audit", ADMIN, list_audit, "List every change", lists=AUDIT),
)
