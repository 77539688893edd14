"""
Operator API handlers for signing in and out, with an account or a one-time console link, and for sessions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.errors import Refusal
from gateway.core.fields import one_field_answer
from gateway.core.paths import console_link
from gateway.core.rate_limits import TokenBuckets
from gateway.http.answers import uncached_json
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.http.viewers import needs_viewing_reason
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.requests.address import NOTHING, SIGNED_IN, operator_call
from gateway.operations.requests.admission import (
    FOLDER,
    is_over_https,
    session_cookie_name,
    set_session_cookie,
    sign_in_limit,
)
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid, NotAllowed
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.operators import ADMIN, ROLES, SignInSession
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION
from spool.registry.roles import BASES


class SignIn(RequestBody):
    """A sign-in: either e-mail and password, or the secret of a console link."""

    email: Annotated[str | None, words("The e-mail address of the account.")] = None
    password: Annotated[str | None, words("The password of the account.")] = None
    link: Annotated[
        str | None, words("The secret of a console link, instead of e-mail address and password.")
    ] = None


class NewLink(RequestBody):
    role: Annotated[str, words("The role of the sessions that the link opens.")] = ADMIN


class SignedInSession(msgspec.Struct, kw_only=True):
    actor: Annotated[str, words("The person who is signed in."), example("bob@example.com")]
    role: Annotated[str, words("The role of the account or link."), example("operator")]
    csrf_token: Annotated[
        str | None,
        words("Send it as `X-CSRF-Token` with each change. Null on the socket."),
        example("6GSEk9TMHdP5N-IRYtwb"),
    ]
    ends: Annotated[
        str | None, words("When the session ends. Null on the socket."), example("2026-11-27T13:45:43.578Z")
    ]


class SessionRights(msgspec.Struct, kw_only=True):
    permission_sets: Annotated[
        list[str],
        words("Permission sets of the person, by id."),
        example(["api_key_management", "installation_administration", "modify_billing"]),
    ]
    roles: Annotated[list[str], words("The names of the person's roles."), example(["Organizer"])]
    is_limited: Annotated[bool, words("Whether the person sees only part of the calls."), example(False)]
    cost_types: Annotated[
        list[str],
        words("Kinds of cost that the person sees; if empty, none."),
        example(["real_cost", "reported_cost", "estimated_cost"]),
    ]
    min_group: Annotated[int | UnsetType, words("The setting `privacy.min_group`. Omitted if it is 0.")] = (
        UNSET
    )
    needs_reason: Annotated[
        bool | UnsetType,
        words("Whether the person must state a reason to see costs of others. Omitted if `min_group` is."),
    ] = UNSET


class SessionAnswer(msgspec.Struct, kw_only=True):
    session: Annotated[SignedInSession, words("The session, with the fields below.")]
    rights: Annotated[SessionRights, words("The access of the person.")]
    version: Annotated[str, words("The version of Tollhouse."), example("0.1.0")]
    telemetry_url: Annotated[
        str | None, words("The address for senders; null if it is the console's."), example(None)
    ]


class SessionItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the session."), example("02d3a965e558692c")]
    actor: Annotated[str, words("The person who is signed in."), example("bob@example.com")]
    role: Annotated[str, words("The role of the account or link."), example("operator")]
    account: Annotated[
        str | None,
        words("The account that signed in or created the link; null for a link from the server."),
        example("bob@example.com"),
    ]
    began_with: Annotated[
        str, words("How the person signed in: `password`, `link` or `provider`."), example("password")
    ]
    address: Annotated[
        str | None, words("The network address at sign-in, or null."), example("operator socket")
    ]
    created: Annotated[str, words("When the session began."), example("2026-11-27T01:45:43.578Z")]
    last_seen: Annotated[
        str, words("When the person last made a request."), example("2026-11-27T01:45:43.578Z")
    ]
    ends: Annotated[str, words("When the session ends."), example("2026-11-27T13:45:43.578Z")]


class MakeLinkAnswer(msgspec.Struct, kw_only=True):
    link: Annotated[str, words("The one-time link."), example("http://127.0.0.1:4318/console/#link=...")]
    role: Annotated[str, words("The role that the link gives."), example("viewer")]


@operator_call(
    "POST",
    "/sessions",
    None,
    "Sign in",
    status=201,
    shows=NOTHING,
    answers=one_field_answer(
        "OneSession", session=Annotated[SignedInSession, words("The session, with the fields below.")]
    ),
)
async def sign_in(request: OperatorRequest[PeopleServices, SignIn]) -> Result:
    body = request.body
    services = request.services
    operators = request.registry.operators
    address = request.actor.address
    if body.link is not None and body.email is None and body.password is None:
        # Links have a separate limit, so that guessed passwords never lock out the holder of a link.
        tries = [sign_in_limit(request, "link")]
        work = partial(operators.sign_in_by_link, body.link, address=address)
        signed_in = await _run_within_limits(tries, work)
        wrong = "this link is unknown, already used or too old; create a new one with tollhouse console link"
    elif body.link is None and body.email is not None and body.password is not None:
        email = body.email.strip().lower()[:300]
        buckets, network = sign_in_limit(request, "address")
        tries = [(buckets, network), (services.account_sign_ins, email)]
        turn = f"{network} {email}" if buckets is services.shared_sign_ins else network
        work = partial(operators.sign_in, body.email, body.password, address=address, turn_name=turn)
        signed_in = await _run_within_limits(tries, work)
        wrong = "the e-mail or the password is wrong"
    else:
        raise Refusal(400, "bad_payload", "send email and password, or link")
    if signed_in is None:
        raise Refusal(401, "sign_in", wrong)
    secret, session = signed_in
    response = uncached_json({"session": _describe_own_session(session)}, status=201)
    set_session_cookie(request, response, secret, session.ends_at - session.created_at)
    return response


async def _run_within_limits(
    tries: list[tuple[TokenBuckets, str]], work: Callable[[], Awaitable[tuple[str, SignInSession] | None]]
) -> tuple[str, SignInSession] | None:
    """
    Run `work` within the limits of `tries`. An attempt is charged before the slow check, and refunded after a
    success.
    """
    wait_s = max(buckets.wait_s(name) for buckets, name in tries)
    if wait_s:
        raise Refusal(429, "too_many_attempts", "too many wrong attempts; retry later", retry_after_s=wait_s)
    for buckets, name in tries:
        buckets.charge(name)
    result = await work()
    for buckets, name in tries if result else ():
        buckets.charge(name, -1)
    return result


@operator_call("GET", "/session", SIGNED_IN, "Show who is signed in", shows=NOTHING, answers=SessionAnswer)
async def show_session(request: OperatorRequest[PeopleServices, None]) -> Result:
    """
    Return the session, its rights, the version, and the address for telemetry. Only signed-in people
    may see them.
    """
    session = {"actor": request.actor.name, "role": request.role, "csrf_token": None, "ends": None}
    shown = _describe_own_session(request.session) if request.session else session
    rights = {
        "permission_sets": sorted(request.rights.permission_sets),
        "roles": list(request.rights.roles),
        "is_limited": request.has_limited_data_access,
        "cost_types": list(request.rights.cost_types),
    }
    registry = request.shared.registry
    if registry is not None and registry.people.min_group:
        needs = needs_viewing_reason(request.rights, request.actor.name, registry)
        rights |= {"min_group": registry.people.min_group, "needs_reason": needs}
    return {
        "session": shown,
        "rights": rights,
        "version": request.shared.version,
        "telemetry_url": request.shared.urls().telemetry,
    }


@operator_call(
    "DELETE",
    "/session",
    SIGNED_IN,
    "Sign out",
    shows=NOTHING,
    answers=one_field_answer(
        "SignOutAnswer",
        session=Annotated[str | None, words("Always null: no one is signed in."), example(None)],
    ),
)
async def sign_out(request: OperatorRequest[PeopleServices, None]) -> Result:
    if request.session is not None:
        await request.registry.operators.sign_out(request.session, actor=request.actor)
    # removes the responses that the browser has cached with their ETag
    forgets = {"Clear-Site-Data": '"cache"'}
    response = uncached_json({"session": None}, headers=forgets)
    http = request.http
    services = request.services
    response.del_cookie(
        session_cookie_name(http, services), path=FOLDER, secure=is_over_https(http, services)
    )
    return response


def describe_session(session: SignInSession) -> dict[str, object]:
    return {
        "id": session.id,
        "actor": session.actor,
        "role": session.role,
        "account": session.account or None,
        "began_with": _sign_in_kind(session),
        "address": session.address or None,
        "created": utc_iso(session.created_at),
        "last_seen": utc_iso(session.seen_at),
        "ends": utc_iso(session.ends_at),
    }


def _sign_in_kind(session: SignInSession) -> str:
    if session.issuer:
        return PROVIDER
    return PASSWORD if session.operator else LINK


PASSWORD, LINK, PROVIDER = "password", "link", "provider"

SESSIONS: ListDefinition[SignInSession] = ListDefinition(
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
            values=lambda session: (_sign_in_kind(session),), valid_values=(PASSWORD, LINK, PROVIDER)
        ),
    },
)


@operator_call(
    "GET", "/sessions", ORGANIZATION_ADMINISTRATION, "List the sessions", lists=SESSIONS, item=SessionItem
)
async def list_sessions(request: OperatorRequest[PeopleServices, None]) -> Result:
    return await request.list_page(SESSIONS, MemoryRows(await request.registry.operators.live_sessions()))


@operator_call(
    "DELETE",
    "/sessions/{id}",
    ORGANIZATION_ADMINISTRATION,
    "End a session",
    answers=one_field_answer(
        "EndSessionAnswer",
        ended=Annotated[str, words("The id of the ended session."), example("02d3a965e558692c")],
    ),
)
async def end_session(request: OperatorRequest[PeopleServices, None]) -> Result:
    id = request.path_parameter("id")
    await request.registry.operators.end_session(id, actor=request.actor)
    return {"ended": id}


@operator_call(
    "POST",
    "/console-links",
    ORGANIZATION_ADMINISTRATION,
    "Create a one-time link",
    status=201,
    answers=MakeLinkAnswer,
)
async def make_link(request: OperatorRequest[PeopleServices, NewLink]) -> Result:
    body = request.body
    session = request.session
    if body.role not in BASES:
        raise Invalid("role must be one of " + ", ".join(BASES))
    if session is not None and session.operator and session.role != ADMIN:
        # refused, because a person with another role may lose that role, and the created link would stay valid
        raise NotAllowed(
            "only an account with the role Admin (admin) can create a link; or run tollhouse console link"
        )
    if session is not None and not session.operator:
        # refused, because a chain of links could outlast the account that created the first link
        raise NotAllowed(
            "a session that a link started cannot create links; sign in with an account, or run "
            "tollhouse console link"
        )
    account = "" if session is None else session.account
    secret = await request.registry.operators.create_sign_in_link(
        role=body.role, actor=request.actor, account=account
    )
    return {"link": console_link(request.shared.urls().console, secret), "role": body.role}


def _describe_own_session(session: SignInSession) -> dict[str, object]:
    return {
        "actor": session.actor,
        "role": session.role,
        "csrf_token": session.csrf,
        "ends": utc_iso(session.ends_at),
    }
