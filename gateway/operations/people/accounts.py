"""Operator API handlers for operator accounts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, SearchableObject, Sort
from gateway.http.requests import Result
from gateway.operations.answers import OperatorItem
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid, NotAllowed
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.operators import DISABLED, ENABLED, NO_ROLE, ROLES, VIEWER, Operator, operator_status
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION


class NewOperator(RequestBody):
    """The fields of an account to create."""

    email: Annotated[str, words("The e-mail address of the account.")]
    password: Annotated[str, words("The password of the account.")]
    role: Annotated[
        str | None,
        words("The role of the account; default: `none` if any role restricts access, else `viewer`."),
    ] = None


class OperatorChanges(RequestBody):
    """Changes of an account. Omitted fields stay unchanged."""

    role: Annotated[str | None, words("The role of the account.")] = None
    password: Annotated[str | None, words("The new password of the account.")] = None
    status: Annotated[str | None, words("`enabled` or `disabled`.")] = None


def describe_account(operator: Operator) -> dict[str, object]:
    return {
        "email": operator.email,
        "role": operator.role,
        "status": operator_status(operator),
        "issuer": operator.issuer or None,
        "created_by": operator.created_by,
        "created": utc_iso(operator.created_at),
        "last_modified": utc_iso(operator.last_modified),
    }


OPERATORS: ListDefinition[Operator] = ListDefinition(
    root="operators",
    show=describe_account,
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
        "status": Filter(
            values=lambda operator: (operator_status(operator),), valid_values=(ENABLED, DISABLED)
        ),
    },
)


class OneOperator(msgspec.Struct, kw_only=True):
    operator: Annotated[OperatorItem, words("The account.")]


async def _names_of_operators(request: OperatorRequest[PeopleServices, None]) -> Iterator[SearchableObject]:
    operators = await request.registry.operators.all()
    return (SearchableObject(operator.email, (operator.email,)) for operator in operators)


@operator_call(
    "GET",
    "/operators",
    ORGANIZATION_ADMINISTRATION,
    "List operators",
    names=_names_of_operators,
    lists=OPERATORS,
    item=OperatorItem,
)
async def list_operators(request: OperatorRequest[PeopleServices, None]) -> Result:
    operators = await request.registry.operators.all()
    return await request.list_page(OPERATORS, MemoryRows(operators))


@operator_call(
    "POST", "/operators", ORGANIZATION_ADMINISTRATION, "Add an operator", status=201, answers=OneOperator
)
async def add_operator(request: OperatorRequest[PeopleServices, NewOperator]) -> Result:
    body = request.body
    is_limiting = any(role.has_hidden_calls_or_cost_types for role in request.registry.roles.all())
    usual = NO_ROLE if is_limiting else VIEWER
    operator = await request.registry.operators.add(
        body.email, role=body.role or usual, password=body.password, actor=request.actor
    )
    return {"operator": describe_account(operator)}


@operator_call(
    "PATCH",
    "/operators/{email}",
    ORGANIZATION_ADMINISTRATION,
    "Change an operator's role or password",
    answers=OneOperator,
)
async def edit_operator(request: OperatorRequest[PeopleServices, OperatorChanges]) -> Result:
    body = request.body
    if body.status not in (None, ENABLED, DISABLED):
        raise Invalid(f"status must be {ENABLED} or {DISABLED}")
    if body.role is not None or body.status is not None:
        check_not_own_account(request, request.path_parameter("email"))
    operator = await request.registry.operators.change(
        request.path_parameter("email"),
        role=body.role,
        password=body.password,
        disabled=None if body.status is None else body.status == DISABLED,
        actor=request.actor,
    )
    return {"operator": describe_account(operator)}


@operator_call(
    "DELETE",
    "/operators/{email}",
    ORGANIZATION_ADMINISTRATION,
    "Remove an operator",
    answers=one_field_answer(
        "RemovedOperator",
        removed=Annotated[
            str, words("The e-mail address of the deleted account."), example("bob@example.com")
        ],
    ),
)
async def remove_operator(request: OperatorRequest[PeopleServices, None]) -> Result:
    email = request.path_parameter("email")
    check_not_own_account(request, email)
    await request.registry.operators.remove(email, actor=request.actor)
    return {"removed": email}


def check_not_own_account(request: OperatorRequest[Any, Any], email: str) -> None:
    """
    Raise NotAllowed for the person's own account, so that the last administrator cannot lock everybody out.
    """
    has_account = request.session is not None and request.session.operator
    if has_account and email.strip().lower() == request.actor.name:
        who_can = "another Admin or the command line can"
        raise NotAllowed(f"you cannot change your own role or status, or remove yourself; {who_can}")
