"""
MCP over HTTP: one message per request, with an API key or a person's token.

A web page can make a browser send requests to a loopback server under a foreign name (DNS rebinding). Therefore
a loopback listener accepts only host names known to be its own, and no listener accepts pages of other origins.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from urllib.parse import urlsplit

from aiohttp import web

from gateway.configuration.assistants import FOR_ALL, FOR_PEOPLE
from gateway.configuration.sections import McpOAuthSettings
from gateway.configuration.values import is_loopback
from gateway.core.errors import Refusal
from gateway.core.schemas import (
    OBJECT,
    TEXT,
    closed_object_schema,
    open_object_schema,
    schema_with_description,
)
from gateway.http import answers
from gateway.http.address import API_KEY_HEADER, AS_API_KEY, ERROR, ApiAddress, authorization_header
from gateway.http.admission import hostname_without_port, is_own_name
from gateway.http.answers import JSON
from gateway.http.requests import Result, check_json_content_type
from gateway.mcp.messages import is_tool_or_resource_call
from gateway.mcp.protocol import answer_message
from gateway.mcp.tool import ToolCallContext
from gateway.operations.requests.admission import is_over_https
from gateway.operations.requests.operation_requests import OperationKeyRequest
from gateway.operations.services import AllServices, OperatorServices
from gateway.people.authentication.assistant_people import (
    PersonUsingAssistant,
    bad_token_refusal,
    is_path_for_tokens,
    no_credential_refusal,
    step_up_challenge,
)
from gateway.people.authentication.bearer import AuthenticatedKey, PersonWithToken
from spool.registry.permission_sets import PERMISSION_SETS, USE_ASSISTANTS
from spool.registry.roles import EVERYTHING, Rights
from spool.registry.scopes import AI_HUB


def require_own_host(request: web.Request, services: AllServices) -> None:
    """Refuse with 403 a foreign Host on loopback, and a foreign Origin on every listener."""
    host = request.headers.get("Host", "")
    operators = services.operators
    mcp = operators.assistants.mcp()
    named = {*mcp.hosts, hostname_without_port(urlsplit(mcp.oauth.resource).netloc)}
    is_own = is_own_name(
        hostname_without_port(host), operators.people.hosts | {name.lower() for name in named if name}
    )
    if not is_own and _is_on_loopback(request):
        raise Refusal(
            403, "foreign_host", "this host name is not allowed; an operator may add it to mcp.hosts"
        )
    origin = request.headers.get("Origin")
    if origin is not None and not (is_own and origin.lower() in _own_origins(request, services)):
        message = (
            "web pages of this origin are not allowed; an operator may add this server's name to mcp.hosts"
        )
        raise Refusal(403, "foreign_origin", message)


def _own_origins(request: web.Request, services: AllServices) -> Collection[str]:
    """Return the origins of this server. Both schemes count if a proxy may receive HTTPS that no setting states."""
    host = request.headers.get("Host", "").lower()
    resource = services.operators.assistants.mcp().oauth.resource.lower()
    over_https, over_http = f"https://{host}", f"http://{host}"
    if is_over_https(request, services.operators.people) or f"{resource}/".startswith(f"{over_https}/"):
        return (over_https,)
    return (over_http,) if is_loopback(hostname_without_port(host)) else (over_http, over_https)


def _is_on_loopback(request: web.Request) -> bool:
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return isinstance(name, tuple) and is_loopback(str(name[0]))


_KEYS = ("th_", "thd_", "the_")  # prefixes of all keys and enrolment tokens that an installation issues
_BEARER = "bearer "


async def bearer_of_person_token(request: web.Request, services: AllServices) -> AuthenticatedKey | None:
    """
    Return the bearer of a person's token.

    Returns None if this address needs a key, or if the request has a key; the common rules for keys then
    apply. Refuses with 401 and a challenge if the request has no credential or an invalid token.
    """
    operators = services.operators
    oauth = operators.assistants.mcp().oauth
    if not is_path_for_tokens(oauth, request.path):
        return None
    header = authorization_header(request)
    if request.headers.get(API_KEY_HEADER):
        return None
    if not header or not header.strip():
        raise no_credential_refusal(oauth)
    token = _parse_person_token(
        header, oauth, takes_keys=services.operators.senders.access.is_bearer_prefix_accepted
    )
    if token is None:
        return None
    people = operators.people.assistants
    if people is None:
        message = "people's sign-in cannot be checked at the moment; retry later, or use an API key"
        raise Refusal(503, "people_unavailable", message, retry_after_s=30)
    person = await people.admit(token, address=request.remote or "")
    return AuthenticatedKey(person.principal, frozenset({AI_HUB}), person=person)


def _parse_person_token(header: str, oauth: McpOAuthSettings, *, takes_keys: bool) -> str | None:
    if header[: len(_BEARER)].lower() != _BEARER:
        return None
    text = header[len(_BEARER) :].strip()
    if text.startswith(_KEYS):
        return None
    if text.count(".") == 2:
        return text
    if takes_keys:
        return None
    raise bad_token_refusal(oauth, "it is not a signed token in the compact form")


MAX_BYTES = 256 * 1024  # maximum bytes of a message; the arguments of a tool are much smaller

_VERSION = schema_with_description({"const": "2.0"}, "Always `2.0`.")
_QUESTION = open_object_schema(
    {
        "jsonrpc": _VERSION,
        "id": schema_with_description(
            {"type": ["string", "integer"]}, "The id of the request. Its answer has the same id."
        ),
        "method": schema_with_description(TEXT, "The method of the Model Context Protocol."),
        "params": schema_with_description(
            open_object_schema(
                {
                    "name": schema_with_description(TEXT, "The name of the tool."),
                    "arguments": schema_with_description(OBJECT, "The arguments of the tool."),
                }
            ),
            "The parameters of the method.",
        ),
    }
)
_MESSAGE = closed_object_schema(
    {
        "jsonrpc": _VERSION,
        "id": schema_with_description({"type": ["string", "integer"]}, "The id of the request."),
        "result": schema_with_description(OBJECT, "The result of the method."),
    }
)
_FAILURE = closed_object_schema(
    {
        "jsonrpc": _VERSION,
        "id": schema_with_description(
            {"type": ["string", "integer", "null"]}, "The id of the request, or null."
        ),
        "error": closed_object_schema(
            {
                "code": schema_with_description({"type": "integer"}, "The code of JSON-RPC."),
                "message": schema_with_description(TEXT, "What is wrong and what to do."),
            },
            {"data": schema_with_description(OBJECT, "Details of the error.")},
        ),
    }
)


def _mcp_address(path: str, summary: str, *, name: str = "") -> ApiAddress:
    return ApiAddress(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        endpoint="mcp",
        scope=AI_HUB,
        key=AS_API_KEY,
        guard=require_own_host,
        people=bearer_of_person_token,
        check=check_json_content_type,
        takes={JSON: _QUESTION},
        max_bytes=MAX_BYTES,
        in_turn=True,
        asks_much=is_tool_or_resource_call,
        gives={200: {JSON: {"anyOf": [_MESSAGE, _FAILURE]}}, 202: {}},
        errors={JSON: {"anyOf": [ERROR, _FAILURE]}},
        refusals=(400, 401, 403, 404, 413, 415, 429, 500, 503),
    )


@_mcp_address(FOR_ALL, "Send one message of the Model Context Protocol (MCP)")
@_mcp_address(
    FOR_PEOPLE,
    "Send one MCP message with a person's token (address of mcp.oauth.resource)",
    name="ask_mcp_as_person",
)
async def ask_mcp(request: OperationKeyRequest[OperatorServices, bytes]) -> Result:
    """Answer one MCP message. Notifications get 202 without a body."""
    operators = request.services
    bearer = request.bearer
    rights, step_up_to = (
        (EVERYTHING, None)
        if bearer.person is None
        else await _current_rights_and_write_challenge(request, bearer.person)
    )
    asking = ToolCallContext(
        services=operators,
        shared=operators.installation,
        whole_ledger=operators.money.ledger,
        actor=request.actor,
        rights=rights,
        principal=bearer.fair_turn_party_name,
        count=partial(operators.assistants.tool_calls.count_message, bearer.fair_turn_party_name),
        charge=partial(
            operators.assistants.tool_calls.charge_call, bearer.fair_turn_party_name, request.actor
        ),
        told=request.receivers.metrics.count_tool_call,
        step_up=step_up_to,
    )
    reply = await answer_message(request.take_body(), asking, request.http.headers)
    if reply.body is None:
        return web.Response(status=reply.status)
    headers = {} if reply.challenge is None else {answers.CHALLENGE: reply.challenge}
    return answers.bytes_response(reply.body, status=reply.status, headers=headers)


async def _current_rights_and_write_challenge(
    request: OperationKeyRequest[OperatorServices, bytes], person: PersonWithToken
) -> tuple[Rights, str | None]:
    """
    Return a person's current rights, and a challenge for writing if the token only allows reading.

    The rights are checked after the body has arrived, so a slow request cannot keep rights that were removed.
    Refuses with 403 people who may not use assistants.
    """
    operators = request.services
    people = operators.people.assistants
    if people is None:
        raise Refusal(
            503, "people_unavailable", "people's sign-in cannot be checked at the moment", retry_after_s=30
        )
    assert isinstance(person, PersonUsingAssistant)
    person = await people.refresh_person(person, address=request.http.remote or "")
    rights = request.shared.require_registry().roles.holder_rights(person.holder)
    if USE_ASSISTANTS not in rights.permission_sets:
        title = PERMISSION_SETS[USE_ASSISTANTS].title
        message = f"this needs the permission set {title}; an Admin can give you a role that has it"
        raise Refusal(403, "permission_set", message)
    return rights, None if person.may_write else step_up_challenge(operators.assistants.mcp().oauth)
