"""
Who speaks to the operator API: accounts, one-time links, sessions, CSRF, Host and roles, before any handler runs.

On the operator socket the file mode is the sign-in and a header names the actor. Over HTTP a session cookie signs in,
every change carries the session's CSRF token, and a request under a foreign Host or from a foreign page is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from aiohttp import web

from gateway.authentication.attempts import neighbourhood
from gateway.errors import Refusal
from gateway.operator.body import Body, answer, moment
from gateway.operator.calls import Asked, Call
from gateway.operator.services import SERVICES
from spool.errors import Invalid
from spool.registry.operators import ADMIN, ROLES, SESSION_LIFE_S, VIEWER, Actor, Session, at_least

AS = "X-Tollhouse-As"
CSRF = "X-CSRF-Token"
MAX_ACTOR = 200
SAFE_METHODS = ("GET", "HEAD")

LOCAL = web.RequestKey("LOCAL", bool)  # set by the operator socket, and only there


def guarded(call: Call) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The call's handler behind every check that it needs."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.get(LOCAL):
            asked = _on_the_socket(request)
        else:
            _same_house(request)
            asked = await _over_http(request, call)
        if call.role is not None and not at_least(asked.role, call.role):
            raise Refusal(403, "role", f"this needs the role {call.role}; you have {asked.role}")
        return await call.handler(asked)

    return handler


def _on_the_socket(request: web.Request) -> Asked:
    name = unquote(request.headers.get(AS, "")).strip()
    if not name or len(name) > MAX_ACTOR or not name.isprintable():
        raise Refusal(400, "actor", f"the header {AS} names who asks: 1 to {MAX_ACTOR} printable characters")
    return Asked(request, Actor(name, "operator socket"), ADMIN)


async def _over_http(request: web.Request, call: Call) -> Asked:
    services = request.app[SERVICES]
    address = request.remote or "unknown"
    if call.role is None:
        return Asked(request, Actor("", address), VIEWER)
    secret = request.cookies.get(cookie_name(request))
    session = await services.the_registry().operators.session(secret) if secret else None
    if session is None:
        raise Refusal(
            401, "signed_out", "sign in first: with an operator account or a link from: tollhouse console link"
        )
    if request.method not in SAFE_METHODS:
        token = request.headers.get(CSRF, "")
        if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), session.csrf.encode()):
            raise Refusal(403, "csrf", f"a change carries the session's token in the header {CSRF}")
    return Asked(request, Actor(session.actor, address), session.role, session)


def _same_house(request: web.Request) -> None:
    """A name that was made to point here (DNS rebinding) or a page of another origin gets nothing."""
    host = request.headers.get("Host", "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not _is_ours(name, request.app[SERVICES].hosts):
        raise Refusal(403, "foreign_host", "this host name is not the operator side's own")
    if request.method in SAFE_METHODS:
        return
    origin = request.headers.get("Origin")
    foreign = origin is not None and _authority(origin) != host.lower()
    if foreign or request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise Refusal(403, "foreign_origin", "changes come from the console's own pages only")


def _authority(origin: str) -> str | None:
    """The host and port of an origin; None when it is no address at all."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_ours(name: str, hosts: frozenset[str]) -> bool:
    """An address cannot be rebound, only a name can."""
    if name == "localhost" or name in hosts:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def cookie_name(request: web.Request) -> str:
    """Under TLS a name that browsers take from nobody but us, and never in the clear."""
    return "__Secure-tollhouse" if request.secure else "tollhouse"


class SignIn(Body):
    """Either e-mail and password, or the secret of a console link."""

    email: str | None = None
    password: str | None = None
    link: str | None = None


class NewLink(Body):
    role: str = ADMIN


async def sign_in(asked: Asked) -> web.Response:
    given = await asked.body(SignIn)
    operators = asked.services.the_registry().operators
    address = asked.actor.address
    if given.link is not None and given.email is None and given.password is None:
        tries = [f"link {neighbourhood(address)}"]  # guessed passwords never lock out whoever holds a link
        found = await _tried(asked, tries, partial(operators.follow, given.link, address=address))
        wrong = "this link is unknown, used or too old; make a new one with: tollhouse console link"
    elif given.link is None and given.email is not None and given.password is not None:
        tries = [f"address {neighbourhood(address)}", f"account {given.email.strip().lower()[:300]}"]
        found = await _tried(asked, tries, partial(operators.sign_in, given.email, given.password, address=address))
        wrong = "e-mail or password is wrong"
    else:
        raise Refusal(400, "bad_payload", "send email and password, or link")
    if found is None:
        raise Refusal(401, "sign_in", wrong)
    secret, session = found
    response = answer({"session": _shown(session)}, status=201)
    response.set_cookie(
        cookie_name(asked.request),
        secret,
        max_age=int(SESSION_LIFE_S),
        path="/console",
        httponly=True,
        samesite="Strict",
        secure=asked.request.secure,
    )
    return response


async def _tried(
    asked: Asked, tries: list[str], work: Callable[[], Awaitable[tuple[str, Session] | None]]
) -> tuple[str, Session] | None:
    """Charge before the slow check, so that a burst cannot slip through beside it; give back what was right."""
    buckets = asked.services.sign_ins
    wait_s = max(buckets.wait_s(name) for name in tries)
    if wait_s:
        raise Refusal(429, "too_many_attempts", "too many wrong attempts; repeat later", retry_after_s=wait_s)
    for name in tries:
        buckets.charge(name)
    found = await work()
    for name in tries if found else ():
        buckets.charge(name, -1)
    return found


async def show_session(asked: Asked) -> web.Response:
    """Also the version, for the console's foot: nobody else needs to know it."""
    asked.only()
    session = {"actor": asked.actor.name, "role": asked.role, "csrf_token": None, "ends": None}
    shown = _shown(asked.session) if asked.session else session
    return answer({"session": shown, "version": asked.services.version})


async def sign_out(asked: Asked) -> web.Response:
    asked.only()
    if asked.session is not None:
        await asked.services.the_registry().operators.sign_out(asked.session)
    response = answer({"session": None})
    response.del_cookie(cookie_name(asked.request), path="/console")
    return response


async def make_link(asked: Asked) -> web.Response:
    """The secret stands in the fragment, which no browser sends and no log keeps."""
    given = await asked.body(NewLink)
    if given.role not in ROLES:
        raise Invalid("a role is one of " + ", ".join(ROLES))
    secret = await asked.services.the_registry().operators.link(role=given.role, actor=asked.actor)
    return answer({"link": f"{asked.services.console_url()}#link={secret}", "role": given.role}, status=201)


def _shown(session: Session) -> dict[str, object]:
    return {
        "actor": session.actor,
        "role": session.role,
        "csrf_token": session.csrf,
        "ends": moment(session.created_at + SESSION_LIFE_S),
    }


CALLS = (
    Call("POST", "/sessions", None, sign_in, "Sign in", takes=SignIn),
    Call("GET", "/session", VIEWER, show_session, "Who is signed in"),
    Call("DELETE", "/session", VIEWER, sign_out, "Sign out"),
    Call("POST", "/console-links", ADMIN, make_link, "Make a one-time link", takes=NewLink),
)
