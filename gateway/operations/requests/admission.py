"""
Admission to the operator API: sessions, CSRF token, Host, Origin and permission sets, checked before any handler
runs.

On the operator socket, the file mode is the sign-in and a header names the actor. Over HTTP, a session cookie signs
in, and every change needs the session's CSRF token. A request with a foreign Host or from a foreign page is
rejected.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.configuration.values import is_loopback
from gateway.core.errors import Refusal
from gateway.core.paths import AS, OPERATOR_API
from gateway.core.rate_limits import TokenBuckets, address_network
from gateway.http.address import CSRF_HEADER
from gateway.http.admission import check_single_headers, hostname_without_port, is_own_name
from gateway.http.answers import JSON, UNCACHED, AnswerInPieces, json_pieces, send_answer
from gateway.http.error_table import (
    SAFE_METHODS,
    delay_refusal_until_durable,
    statuses_to_delay_until_durable,
)
from gateway.http.listening.forwarded import may_be_shared_address
from gateway.http.listening.listener import wait_for_turn
from gateway.http.requests import Result, check_parameters, services_type_of_handler
from gateway.http.viewers import (
    COMMAND,
    CONSOLE,
    Viewer,
    is_limited_to_self,
    needs_viewing_reason,
    record_viewings,
    viewing_reason,
)
from gateway.money.costs.reader import hidden_cost_types_refusal
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.requests.address import OPERATION, SIGNED_IN, SLICED, WHOLE, OperatorApiAddress
from gateway.operations.requests.list_csv import send_list_as_csv
from gateway.operations.requests.requests import (
    JSON_LIMIT,
    OperatorRequest,
    read_json_body,
    session_role_holder,
)
from gateway.operations.services import OperatorServices
from spool.errors import Invalid
from spool.registry.operators import ADMIN, Actor, check_email
from spool.registry.permission_sets import PERMISSION_SETS
from spool.registry.roles import COUNTED_TYPES, EVERYTHING, Rights, RoleHolder

MAX_ACTOR = 200
NO_ADDRESS = (
    "a change must name a person by e-mail address: set --as EMAIL, TOLLHOUSE_AS, or "
    f"operators.local.USER in the configuration (default: USER@HOSTNAME; header: {AS})"
)
# Without a path, a cookie applies to the folder of the call that sets it, which is the API's folder. That is
# also right if a proxy adds a prefix to the path.
FOLDER = ""

LOCAL = web.RequestKey("LOCAL", bool)  # set only for requests that arrive over the operator socket


def operator_endpoint(operator_address: OperatorApiAddress, services: OperatorServices) -> Handler:
    """Return the aiohttp handler of an address: its own handler after all checks."""

    holder_services = services.services_of_type(services_type_of_handler(operator_address.handler))

    async def admit_operator(request: web.Request) -> OperatorRequest[Any, object]:
        admitted = await _admit_request(request, operator_address, services)
        admitted.services = holder_services
        return admitted

    async def handle_request(request: web.Request) -> web.StreamResponse:
        admitted = await admit_operator(request)
        if admitted.session is not None:
            await wait_for_turn(f"person {admitted.actor.name}")
        if operator_address.checks_query and operator_address.lists is None:
            check_parameters(
                request, (*operator_address.required, *operator_address.optional), operator_address.repeated
            )
        admitted.check_again = partial(admit_operator, request)
        if operator_address.body is not None:
            body: object = await read_json_body(
                request, operator_address.body, operator_address.limit or JSON_LIMIT, services
            )
            # check again, because the rights may have changed while the body arrived
            admitted = await admit_operator(request)
            admitted.body = body
        statuses = () if operator_address.needs is None else statuses_to_delay_until_durable(request.method)

        async def call_with(admitted: OperatorRequest[Any, object]) -> Result:
            viewer, registry = _make_viewer(operator_address, admitted), services.installation.registry
            handled = record_viewings(operator_address.handler(admitted), viewer, registry)
            return await delay_refusal_until_durable(handled, registry, statuses=statuses)

        async def call_handler() -> Result:
            answer = await _answer_in_format(operator_address, admitted, call_with)
            if (
                operator_address.asks_closed is None
                or isinstance(answer, (web.StreamResponse, AnswerInPieces))
                or not operator_address.asks_closed(admitted)
            ):
                return answer

            secret = services.installation.cursor_secret
            return await answer_with_etag(
                request, answer, asker=_caller_and_rights_text(admitted), secret=secret
            )

        if operator_address.needs_query_turn(admitted.body):
            questions = services.installation.questions
            party_name = f"person {admitted.actor.name}"
            return await questions.send_in_turn(
                party_name, request, call_handler, status=operator_address.status, headers=UNCACHED
            )
        return await send_answer(
            request, await call_handler(), status=operator_address.status, headers=UNCACHED
        )

    return handle_request


async def _answer_in_format(
    operator_address: OperatorApiAddress,
    admitted: OperatorRequest[Any, object],
    call_handler: Callable[[OperatorRequest[Any, object]], Awaitable[Result]],
) -> Result:
    if operator_address.lists is not None and admitted.is_csv_requested:
        return await send_list_as_csv(operator_address, admitted, call_handler)
    return await call_handler(admitted)


def _make_viewer(operator_address: OperatorApiAddress, admitted: OperatorRequest[Any, object]) -> Viewer:
    rights, name, shared = admitted.rights, admitted.actor.name, admitted.shared
    is_limited = not rights.slice.has_every_call
    return Viewer(
        name=name,
        face=CONSOLE if admitted.session is not None else COMMAND,
        page=operator_address.path.removeprefix(OPERATOR_API),
        reason=viewing_reason(admitted.http),
        at=admitted.now(),
        is_own_only=is_limited and is_limited_to_self(rights, name, shared.people),
        needs_reason=needs_viewing_reason(rights, name, shared.registry),
    )


def _caller_and_rights_text(admitted: OperatorRequest[Any, object]) -> str:
    """
    Return a text that identifies the person and the person's rights. Every process returns the same text.
    """
    rights = admitted.rights
    shown_types = [(sorted(types), filters) for types, filters in rights.shown]
    return repr(
        (
            admitted.actor.name,
            admitted.role,
            sorted(rights.permission_sets),
            rights.slice,
            rights.roles,
            shown_types,
        )
    )


def demo_endpoint(operator_address: OperatorApiAddress, services: OperatorServices) -> Handler:
    """
    Return the aiohttp handler of an address for the demo month, which is read-only.

    The person and the rights are checked as for real data.
    """
    kind = services_type_of_handler(operator_address.handler)

    async def handle_request(request: web.Request) -> web.StreamResponse:
        admitted = await _admit_request(request, operator_address, services)
        demo = services.installation.demo
        if demo is None:
            raise Refusal(404, "no_demo", "no demo month is loaded here")
        if request.method not in SAFE_METHODS:
            raise Refusal(403, "demo", "the demo month is read-only; change your own data instead")
        if operator_address.checks_query and operator_address.lists is None:
            check_parameters(
                request, (*operator_address.required, *operator_address.optional), operator_address.repeated
            )
        async with demo().open_month_for_request() as month:
            admitted.services = month.services_of_type(kind)
            admitted.shared, admitted.whole_ledger = month.installation, month.money.ledger

            async def call_handler() -> Result:
                return await _answer_in_format(operator_address, admitted, operator_address.handler)

            party_name = f"person {admitted.actor.name}"
            if operator_address.needs_query_turn(None):
                questions = services.installation.questions
                return await questions.send_in_turn(
                    party_name, request, call_handler, status=operator_address.status, headers=UNCACHED
                )
            return await send_answer(
                request, await call_handler(), status=operator_address.status, headers=UNCACHED
            )

    return handle_request


async def _admit_request(
    request: web.Request, operator_address: OperatorApiAddress, services: OperatorServices
) -> OperatorRequest[Any, object]:
    check_single_headers(request.headers.items())
    if request.get(LOCAL):
        admitted = _admit_on_socket(request, services)
    else:
        _check_origin(request, services.people)
        admitted = await _admit_over_http(request, operator_address, services)
    _check_permission(operator_address, admitted.rights)
    _check_data_access(operator_address, admitted)
    return admitted


def _admit_on_socket(request: web.Request, services: OperatorServices) -> OperatorRequest[Any, object]:
    name = unquote(request.headers.get(AS, "")).strip()
    if not name or len(name) > MAX_ACTOR or not name.isprintable():
        raise Refusal(
            400, "actor", f"the header {AS} must name the caller with 1 to {MAX_ACTOR} printable characters"
        )
    if request.method not in SAFE_METHODS:
        try:
            name = check_email(name)
        except Invalid as error:
            raise Refusal(400, "actor", NO_ADDRESS) from error
    actor = Actor(name, "operator socket")
    return OperatorRequest(
        http=request,
        body=None,
        services=services,
        shared=services.installation,
        whole_ledger=services.money.ledger,
        actor=actor,
        role=ADMIN,
        rights=_rights_on_socket(services, name),
    )


def _rights_on_socket(services: OperatorServices, name: str) -> Rights:
    registry = services.installation.registry
    if registry is None:
        return EVERYTHING
    granted = registry.roles.holder_rights(RoleHolder(person=name.lower())).permission_sets
    return replace(EVERYTHING, permission_sets=EVERYTHING.permission_sets | granted)


async def _admit_over_http(
    request: web.Request, operator_address: OperatorApiAddress, services: OperatorServices
) -> OperatorRequest[Any, object]:
    address = request.remote or "unknown"
    if operator_address.needs is None:
        actor = Actor("", address)
        return OperatorRequest(
            http=request,
            body=None,
            services=services,
            shared=services.installation,
            whole_ledger=services.money.ledger,
            actor=actor,
            role="",
            rights=Rights(),
        )
    secret = request.cookies.get(session_cookie_name(request, services.people))
    session = (
        await services.installation.require_registry().operators.find_and_extend_session(secret)
        if secret
        else None
    )
    if session is None:
        message = "sign in first, with an operator account or with a link from: tollhouse console link"
        raise Refusal(401, "signed_out", message)
    if request.method not in SAFE_METHODS:
        token = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), session.csrf.encode()):
            raise Refusal(403, "csrf", f"a change needs the session's token in the header {CSRF_HEADER}")
    asker = session_role_holder(services.people, session)
    return OperatorRequest(
        http=request,
        body=None,
        services=services,
        shared=services.installation,
        whole_ledger=services.money.ledger,
        actor=Actor(session.actor, address),
        role=session.role,
        rights=services.installation.require_registry().roles.holder_rights(asker),
        session=session,
        asker=asker,
    )


def can_call(operator_address: OperatorApiAddress, rights: Rights) -> bool:
    return (
        _has_required_permission(operator_address, rights)
        and not _needs_access_to_more_calls(operator_address, rights)
        and not _hides_some_calls(operator_address, rights)
    )


def _has_required_permission(operator_address: OperatorApiAddress, rights: Rights) -> bool:
    return operator_address.needs in (None, SIGNED_IN) or operator_address.needs in rights.permission_sets


def _check_permission(operator_address: OperatorApiAddress, rights: Rights) -> None:
    if operator_address.needs is None or _has_required_permission(operator_address, rights):
        return
    raise missing_right_refusal(operator_address.needs)


def missing_right_refusal(permission_set: str, subject: str = "this") -> Refusal:
    """Return the refusal for a missing permission set. `subject` is the subject of the sentence."""
    title = PERMISSION_SETS[permission_set].title
    message = f"{subject} needs the permission set {title}; an Admin can give you a role with it"
    return Refusal(403, "permission_set", message)


def _check_data_access(operator_address: OperatorApiAddress, admitted: OperatorRequest[Any, object]) -> None:
    if _needs_access_to_more_calls(operator_address, admitted.rights):
        roles = ", ".join(admitted.rights.roles) or "you have no role"
        message = (
            f"this shows all calls, but you may see only some of them ({roles}); an Admin can "
            "give you a role with full data access"
        )
        raise Refusal(403, "limited_data", message)
    if _hides_some_calls(operator_address, admitted.rights):
        raise hidden_cost_types_refusal(admitted.rights, COUNTED_TYPES)


def _needs_access_to_more_calls(operator_address: OperatorApiAddress, rights: Rights) -> bool:
    if operator_address.shows == OPERATION:
        return not rights.visible_slice.is_everything
    return operator_address.shows == WHOLE and not rights.slice.is_everything


def _hides_some_calls(operator_address: OperatorApiAddress, rights: Rights) -> bool:
    return operator_address.shows == SLICED and not operator_address.asks_cost_type and rights.hides_calls


def _check_origin(request: web.Request, people: PeopleServices) -> None:
    """
    Raise Refusal 403 for a host name that is not the server's own (DNS rebinding), and for a change from a
    page of another origin. A page of the same host by HTTPS is another origin than one by HTTP.
    """
    host = request.headers.get("Host", "")
    if not is_own_name(hostname_without_port(host), people.hosts):
        raise Refusal(403, "foreign_host", "this host name is not configured for the operator API")
    if request.method in SAFE_METHODS:
        return
    own = f"{'https' if is_over_https(request, people) else 'http'}://{host}".lower()
    foreign = request.headers.get("Origin", own).lower() != own
    if foreign or request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise Refusal(403, "foreign_origin", "only pages of the console may make changes")


def set_session_cookie(
    request: OperatorRequest[PeopleServices, Any], response: web.Response, secret: str, life_s: float
) -> None:
    response.set_cookie(
        session_cookie_name(request.http, request.services),
        secret,
        max_age=int(life_s),
        path=FOLDER,
        httponly=True,
        samesite="Strict",
        secure=is_over_https(request.http, request.services),
    )


def session_cookie_name(request: web.Request, people: PeopleServices) -> str:
    """
    Return the name of the session cookie. With TLS, its prefix makes browsers accept and send it only over HTTPS.
    """
    return "__Secure-tollhouse" if is_over_https(request, people) else "tollhouse"


def is_over_https(request: web.Request, people: PeopleServices) -> bool:
    """
    Return whether the browser uses HTTPS: directly, to a named proxy, or by the configuration.

    A browser that opens a loopback address is on this machine and does not go through a proxy.
    """
    return request.secure or (
        people.is_behind_tls and not is_loopback(hostname_without_port(request.headers.get("Host", "")))
    )


def sign_in_limit(
    request: OperatorRequest[PeopleServices, Any], attempt_kind: str
) -> tuple[TokenBuckets, str]:
    """
    Return the limit of attempts for the request's address, and the key under which `attempt_kind` is counted there.
    """
    services = request.services
    network = address_network(request.actor.address)
    is_shared = may_be_shared_address(request.http, is_behind_tls=services.is_behind_tls)
    return services.shared_sign_ins if is_shared else services.sign_ins, f"{attempt_kind} {network}"


# Cache headers of closed answers. A browser may store the answer for this person, but must revalidate it
# before each use, so a signed-out person gets 401. The ETag covers the whole content, so a correction, a
# bill, a price or a role changes it.
_KEPT = {"Cache-Control": "private, no-cache", "Vary": "Cookie", "X-Content-Type-Options": "nosniff"}


async def answer_with_etag(
    request: web.Request, answer: Mapping[str, object], *, asker: str, secret: bytes
) -> web.Response | AnswerInPieces:
    """
    Return the answer with its ETag, or 304 if the request names it. Each `asker` gets another ETag for
    the same answer.
    """
    pieces = await asyncio.to_thread(lambda: list(json_pieces(answer)))
    digest = blake2b(asker.encode(), key=secret[: blake2b.MAX_KEY_SIZE], digest_size=16)
    digest.update(b"\0")
    for piece in pieces:
        digest.update(piece)
    tag = f'"{digest.hexdigest()}"'
    headers = {**_KEPT, "ETag": tag}
    if tag in _requested_etags(request):
        return web.Response(status=304, headers=headers)
    return AnswerInPieces(pieces=pieces, content_type=JSON, headers=headers)


def _requested_etags(request: web.Request) -> list[str]:
    fields = ",".join(request.headers.getall("If-None-Match", ()))
    return [tag.strip().removeprefix("W/") for tag in fields.split(",")]
