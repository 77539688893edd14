"""Assistants over HTTP: one message a request, with a key or with the token of a person."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from gateway.authentication.assistant_people import AssistantPerson, step_up
from gateway.configuration.assistants import FOR_ALL, FOR_PEOPLE
from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.address import ERROR, Address
from gateway.http.answers import JSON
from gateway.http.key_carriage import AS_API_KEY
from gateway.http.requests import KeyRequest, Result, check_json
from gateway.http.services import OperatorServices
from gateway.mcp.credentials import admit_person
from gateway.mcp.hosts import check_host
from gateway.mcp.messages import asks_tool
from gateway.mcp.protocol import answer
from gateway.mcp.tool import Asking
from gateway.schemas import OBJECT, TEXT, closed
from spool.registry.permission_sets import PERMISSION_SETS, USE_ASSISTANTS
from spool.registry.roles import EVERYTHING, Rights
from spool.registry.scopes import AI_HUB

MAX_BYTES = 256 * 1024  # of a message: questions are small

_MESSAGE = closed({"jsonrpc": {"const": "2.0"}, "id": {"type": ["string", "integer"]}, "result": OBJECT})
_FAILURE = closed(
    {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer", "null"]},
        "error": closed({"code": {"type": "integer"}, "message": TEXT}, {"data": OBJECT}),
    }
)


def _row(path: str, summary: str, *, name: str = "") -> Address:
    return Address(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        endpoint="mcp",
        scope=AI_HUB,
        key=AS_API_KEY,
        guard=check_host,
        people=admit_person,
        check=check_json,
        takes={JSON: OBJECT},
        max_bytes=MAX_BYTES,
        in_turn=True,
        asks_much=asks_tool,
        gives={200: {JSON: {"anyOf": [_MESSAGE, _FAILURE]}}, 202: {}},
        errors={JSON: {"anyOf": [ERROR, _FAILURE]}},
        refusals=(400, 401, 403, 404, 413, 415, 429, 500, 503),
    )


@_row(FOR_ALL, "Ask as an assistant: one message of the Model Context Protocol")
@_row(
    FOR_PEOPLE, "The same at an address of its own for people (mcp.oauth.resource)", name="ask_mcp_as_person"
)
async def ask_mcp(request: KeyRequest[OperatorServices, bytes]) -> Result:
    """Answer one message; a notification gets 202 without a body."""
    operators = request.services
    bearer = request.bearer
    rights, step_up_to = EVERYTHING, None
    if bearer.person is not None:
        rights, step_up_to = await _rights_of_now(request, bearer.person)
    asking = Asking(
        services=operators,
        shared=request.shared,
        whole_ledger=operators.money.ledger,
        actor=request.actor,
        rights=rights,
        principal=bearer.party,
        count=partial(operators.assistants.tool_calls.count, bearer.party),
        charge=partial(operators.assistants.tool_calls.charge, bearer.party, request.actor),
        told=request.receivers.metrics.tool_called,
        step_up=step_up_to,
    )
    reply = await answer(request.take_body(), asking, request.http.headers)
    if reply.body is None:
        return web.Response(status=reply.status)
    headers = {} if reply.challenge is None else {answers.CHALLENGE: reply.challenge}
    return answers.respond(reply.body, status=reply.status, headers=headers)


async def _rights_of_now(
    request: KeyRequest[OperatorServices, bytes], person: AssistantPerson
) -> tuple[Rights, str | None]:
    """
    Return the rights of a person at this moment, and the challenge for a token that is good for reading alone. A
    slow sender has the rights of when all of the body is here. Refusal 403 for people who may not use assistants.
    """
    operators = request.services
    people = operators.people.assistants
    if people is None:
        raise Refusal(503, "people_unavailable", "who signs in here is not known now", retry_after_s=30)
    person = await people.still(person, address=request.http.remote or "")
    rights = request.shared.require_registry().roles.rights(person.holder)
    if USE_ASSISTANTS not in rights.permission_sets:
        title = PERMISSION_SETS[USE_ASSISTANTS].title
        message = f"this needs the permission set {title}; an Organizer can give it to you in a role"
        raise Refusal(403, "permission_set", message)
    return rights, None if person.may_write else step_up(operators.assistants.mcp().oauth)
