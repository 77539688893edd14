"""
Operator API handler for a person who leaves: what the person has, and the end of it.

Each step is the operation by which people end one thing, with the rights of the caller. A step that was done before is
not listed, so the request can be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Annotated, Any

import msgspec

from gateway.bills.plans.declared import PlanChanges
from gateway.core.errors import Refusal
from gateway.http.requests import Result
from gateway.operations.bills.plans import PLAN
from gateway.operations.people.accounts import check_not_own_account
from gateway.operations.people.keys import check_may_grant_scopes
from gateway.operations.people.managed import operation_caller_for_person
from gateway.operations.people.privacy import Belongings, read_belongings, resolve_person_in_path
from gateway.operations.people.roles import ROLE
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.admission import missing_right_refusal
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from gateway.operations.services import OperatorServices
from gateway.people.roles.declared import RoleChanges
from spool.devices.device import REVOKED
from spool.errors import SpoolError
from spool.registry.field_notes import example, words
from spool.registry.keys import ENABLED, ApiKey
from spool.registry.permission_sets import (
    API_KEY_MANAGEMENT,
    MODIFY_VIEWS_AND_BUDGETS,
    OPERATE_SPOOL,
    ORGANIZATION_ADMINISTRATION,
)
from spool.registry.texts import check_day_from_1970, check_one_of
from spool.statements import day_text

STEPS = ("seats", "devices", "keys", "roles", "account")
PLANNED, DONE, FAILED, NOT_ALLOWED = "planned", "done", "failed", "not_allowed"


class Leaving(RequestBody):
    """A person leaves."""

    on: Annotated[
        str,
        words("The last day of the seats (UTC); default: today. All other steps apply at once."),
        example("2026-11-30"),
    ] = ""
    steps: Annotated[
        list[str] | None,
        words(f"The steps to take: {', '.join(STEPS)}; default: all."),
        example(["seats", "devices"]),
    ] = None
    dry_run: Annotated[bool, words("Whether to list the steps and change nothing."), example(False)] = False


class LeavingStep(msgspec.Struct, kw_only=True):
    step: Annotated[str, words(f"The step: {', '.join(STEPS)}."), example("seats")]
    name: Annotated[str, words("The thing that the step ends."), example("Claude Team")]
    what: Annotated[str, words("What the step does."), example("ends the seat after 2026-11-30")]
    state: Annotated[
        str, words("`planned` in a dry run, `done`, `failed`, or `not_allowed`."), example("done")
    ]
    reason: Annotated[str, words("Why the step failed, or who may take it; otherwise empty."), example("")]


class LeavingReceipt(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name that the console shows, or empty."), example("Ada Lovelace")]
    names: Annotated[
        list[str], words("All names of the person in records."), example(["ada", "ada@example.com"])
    ]
    dry_run: Annotated[bool, words("Whether nothing was changed."), example(False)]
    steps: Annotated[
        list[LeavingStep], words("The steps, each with the fields below. Earlier ones are left out.")
    ]


class OneLeaving(msgspec.Struct, kw_only=True):
    leaving: Annotated[LeavingReceipt, words("The receipt.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    kind: str
    name: str
    what: str
    needs: str
    run: Callable[[], Awaitable[object]]


@operator_call(
    "POST", "/people/{user}/leave", ORGANIZATION_ADMINISTRATION, "End what a person has", answers=OneLeaving
)
async def let_person_leave(request: OperatorRequest[OperatorServices, Leaving]) -> Result:
    """
    List what the person has (`dry_run`), or end it: seats end after the day `on`, devices are revoked, keys and the
    account are disabled, and the membership in roles ends. Costs keep the name. Each step needs the permission set that
    the change by hand needs, and a failed step stops no other.
    """
    body = request.body
    for step in body.steps or ():
        check_one_of("steps", step, STEPS)
    last = check_day_from_1970("on", body.on or day_text(int(request.now())))
    person = await resolve_person_in_path(request)
    steps = [
        step
        for step in _steps(request, await read_belongings(request, person), last)
        if body.steps is None or step.kind in body.steps
    ]
    return {
        "leaving": {
            "name": person.label,
            "names": list(person.names),
            "dry_run": body.dry_run,
            "steps": [await _take(request, step) for step in steps],
        }
    }


async def _take(request: OperatorRequest[OperatorServices, Leaving], step: _Step) -> dict[str, str]:
    state, reason = PLANNED if request.body.dry_run else DONE, ""
    if step.needs not in request.rights.permission_sets:
        state, reason = NOT_ALLOWED, missing_right_refusal(step.needs).message
    elif not request.body.dry_run:
        try:
            await step.run()
        except (Refusal, SpoolError) as error:
            state, reason = FAILED, str(error)
    return {"step": step.kind, "name": step.name, "what": step.what, "state": state, "reason": reason}


def _steps(
    request: OperatorRequest[OperatorServices, Leaving], own: Belongings, last: date
) -> Iterator[_Step]:
    caller, senders = (operation_caller_for_person(request, request.services.money), request.services.senders)
    end = (last + timedelta(days=1)).isoformat()
    ending = [(plan, seat) for plan, seat in own.seats if not seat.until or seat.until > end]
    for plan in {plan.id: plan for plan, _ in ending}.values():
        seats = [
            msgspec.structs.replace(seat, until=end) if (plan, seat) in ending else seat
            for seat in plan.seats
            if (plan, seat) not in ending or seat.since < end
        ]
        yield _Step(
            kind="seats",
            name=plan.name,
            what=f"ends the seat after {last}",
            needs=MODIFY_VIEWS_AND_BUDGETS,
            run=partial(PLAN.change, caller, plan.id, PlanChanges(seats=seats, version=plan.version)),
        )
    for device in own.devices:
        if device.state != REVOKED:
            yield _Step(
                kind="devices",
                name=device.id,
                what="revokes the device",
                needs=OPERATE_SPOOL,
                run=partial(senders.require_devices().revoke_device, device.id, request.actor),
            )
    for key in own.keys:
        if key.status == ENABLED:
            yield _Step(
                kind="keys",
                name=key.name,
                what="disables the key, so its calls are refused",
                needs=API_KEY_MANAGEMENT,
                run=partial(_disable_key, request, key),
            )
    for role in own.roles:
        members = [member for member in role.members if member not in own.members]
        yield _Step(
            kind="roles",
            name=role.name,
            what="ends the membership",
            needs=ORGANIZATION_ADMINISTRATION,
            run=partial(ROLE.change, caller, role.id, RoleChanges(members=members, version=role.version)),
        )
    for account in own.accounts:
        if not account.disabled:
            yield _Step(
                kind="account",
                name=account.email,
                what="disables the account and ends its sessions",
                needs=ORGANIZATION_ADMINISTRATION,
                run=partial(_disable_account, request, account.email),
            )


async def _disable_key(request: OperatorRequest[OperatorServices, Any], key: ApiKey) -> None:
    check_may_grant_scopes(request, key.current_scopes)
    await request.registry.keys.disable(key.name, actor=request.actor)


async def _disable_account(request: OperatorRequest[OperatorServices, Any], email: str) -> None:
    check_not_own_account(request, email)
    await request.registry.operators.change(email, disabled=True, actor=request.actor)
