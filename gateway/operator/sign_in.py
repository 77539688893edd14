"""The calls of the operator API for signing in and out: with an account, or with a one-time console link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gateway.attempts import neighbourhood
from gateway.errors import Refusal
from gateway.http.answers import uncached_json
from gateway.http.requests import Result
from gateway.mounts import CONSOLE
from gateway.operator.admission import cookie_name
from gateway.operator.body import RequestBody, moment
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid
from spool.registry.operators import ADMIN, ROLES, SESSION_LIFE_S, Session


class SignIn(RequestBody):
    """Either e-mail and password, or the secret of a console link."""

    email: str | None = None
    password: str | None = None
    link: str | None = None


class NewLink(RequestBody):
    role: str = ADMIN


async def sign_in(request: OperatorRequest[SignIn]) -> Result:
    given = request.body
    operators = request.registry.operators
    address = request.actor.address
    if given.link is not None and given.email is None and given.password is None:
        # A bucket of its own, so that guessed passwords never lock out the holder of a link.
        tries = [f"link {neighbourhood(address)}"]
        work = partial(operators.follow, given.link, address=address)
        found = await _try(request, tries, work)
        wrong = "this link is unknown, used or too old; make a new one with: tollhouse console link"
    elif given.link is None and given.email is not None and given.password is not None:
        tries = [f"address {neighbourhood(address)}", f"account {given.email.strip().lower()[:300]}"]
        work = partial(operators.sign_in, given.email, given.password, address=address)
        found = await _try(request, tries, work)
        wrong = "e-mail or password is wrong"
    else:
        raise Refusal(400, "bad_payload", "send email and password, or link")
    if found is None:
        raise Refusal(401, "sign_in", wrong)
    secret, session = found
    response = uncached_json({"session": _shown(session)}, status=201)
    response.set_cookie(
        cookie_name(request.http),
        secret,
        max_age=int(SESSION_LIFE_S),
        path=CONSOLE,
        httponly=True,
        samesite="Strict",
        secure=request.http.secure,
    )
    return response


async def _try(
    request: OperatorRequest[Any], tries: list[str], work: Callable[[], Awaitable[tuple[str, Session] | None]]
) -> tuple[str, Session] | None:
    """Run `work` within the limits of `tries`: charge before the slow check, give back after a success."""
    buckets = request.services.sign_ins
    wait_s = max(buckets.wait_s(name) for name in tries)
    if wait_s:
        raise Refusal(429, "too_many_attempts", "too many wrong attempts; repeat later", retry_after_s=wait_s)
    for name in tries:
        buckets.charge(name)
    found = await work()
    for name in tries if found else ():
        buckets.charge(name, -1)
    return found


async def show_session(request: OperatorRequest[None]) -> Result:
    """The session, and the version for the console's footer: only who is signed in learns it."""
    session = {"actor": request.actor.name, "role": request.role, "csrf_token": None, "ends": None}
    shown = _shown(request.session) if request.session else session
    return {"session": shown, "version": request.services.version}


async def sign_out(request: OperatorRequest[None]) -> Result:
    if request.session is not None:
        await request.registry.operators.sign_out(request.session)
    response = uncached_json({"session": None})
    response.del_cookie(cookie_name(request.http), path=CONSOLE)
    return response


async def make_link(request: OperatorRequest[NewLink]) -> Result:
    """The secret stands in the fragment, which no browser sends and no log keeps."""
    given = request.body
    if given.role not in ROLES:
        raise Invalid("a role is one of " + ", ".join(ROLES))
    secret = await request.registry.operators.link(role=given.role, actor=request.actor)
    return {"link": f"{request.services.console_url()}#link={secret}", "role": given.role}


def _shown(session: Session) -> dict[str, object]:
    return {
        "actor": session.actor,
        "role": session.role,
        "csrf_token": session.csrf,
        "ends": moment(session.created_at + SESSION_LIFE_S),
    }
