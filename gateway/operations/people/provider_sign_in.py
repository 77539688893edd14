"""Operator API handlers for sign-in with an OpenID provider, and for logout by the provider."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.rate_limits import TokenBuckets, address_network
from gateway.http.answers import uncached_json
from gateway.http.requests import Result
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.requests.address import NOTHING, operator_call
from gateway.operations.requests.admission import FOLDER, is_over_https, set_session_cookie, sign_in_limit
from gateway.operations.requests.requests import OperatorRequest, read_bounded_body
from gateway.people.authentication.oidc.problems import PROBLEMS, ProviderDown, SignInProblem, TokenRefused
from spool.registry.field_notes import example, words

COOKIE = "tollhouse-oidc"
COOKIE_LIFE_S = 600
# tokens that starting a sign-in costs; a failed sign-in costs 1, but people may just leave the provider's page
BEGINNING = 0.1
_FORM = "application/x-www-form-urlencoded"
# A relative address, because a proxy may add a path in front. It is fixed, so no request can choose where a
# browser is sent.
_SIGN_IN_PAGE = "../"


class SignInProvider(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the provider on the sign-in button.")]


class SignInWays(msgspec.Struct, kw_only=True):
    provider: Annotated[
        SignInProvider | None, words("The provider, with the fields below, or null."), example(None)
    ]
    problems: Annotated[
        dict[str, str],
        words("The texts for failed sign-ins, by code."),
        example(
            {
                "state": (
                    "This sign-in has expired, was already used, or started in another "
                    "browser or at another address. Sign in again."
                ),
                "denied": (
                    "The sign-in was canceled at the provider, or the provider did not "
                    "allow it. Sign in again, or contact the provider's administrator."
                ),
                "down": (
                    "The provider does not respond correctly. Try again in a minute, or run"
                    " `tollhouse check` on the gateway's machine to see the reason. You can"
                    " also sign in with a local account or `tollhouse console link`."
                ),
                "code": ("The provider does not know this sign-in, or it was already used. Sign in again."),
                "token": (
                    "The provider's token could not be verified. Sign in again; the log of "
                    "Tollhouse has the reason."
                ),
                "email": (
                    "The provider has no verified e-mail address for you. Verify it there, "
                    "or contact an administrator of Tollhouse about "
                    "`oidc.assume_verified_email` and `oidc.named_by`."
                ),
                "domain": (
                    "E-mail addresses of your domain may not sign in. Contact an "
                    "administrator about `oidc.allowed_domains`."
                ),
                "group": (
                    "You are in no group that may sign in. Contact an administrator about "
                    "`oidc.allowed_groups`."
                ),
                "taken": (
                    "Another operator account has your e-mail address. Sign in with its "
                    "password, or contact an administrator: `oidc.link_accounts` joins "
                    "local accounts with those of the provider."
                ),
                "disabled": (
                    "Your account is disabled. Contact an administrator, who can run "
                    "`tollhouse operators enable`."
                ),
                "attempts": (
                    "Your network made too many sign-in attempts. Wait a minute, then sign in again."
                ),
                "unavailable": (
                    "Tollhouse cannot store a sign-in now. Try again in a minute; its log has the reason."
                ),
                "off": (
                    "Sign-in with a provider is not set up. An administrator can configure it in `[oidc]`."
                ),
            }
        ),
    ]


@operator_call("GET", "/sign-in-ways", None, "List the ways to sign in", shows=NOTHING, answers=SignInWays)
async def list_sign_in_ways(request: OperatorRequest[PeopleServices, None]) -> Result:
    """Return the ways to sign in here, and the texts for failed sign-ins."""
    provider = request.services.oidc
    shown = {"name": provider.settings.name} if provider else None
    return {"provider": shown, "problems": dict(PROBLEMS)}


@operator_call(
    "GET", "/oidc", None, "Go to the OpenID provider to sign in", status=303, gives={}, shows=NOTHING
)
async def begin_sign_in(request: OperatorRequest[PeopleServices, None]) -> Result:
    """
    Send the browser to the provider. The number of attempts per address is limited: a failed sign-in counts
    as one attempt, an unfinished one as a part of it, and a successful one not at all.
    """
    services, (buckets, name) = request.services, _provider_sign_in_limit(request)
    try:
        if services.oidc is None:
            raise SignInProblem("off")
        if buckets.wait_s(name):
            raise SignInProblem("attempts")
        buckets.charge(name, BEGINNING)
        address, browser = await services.oidc.begin_sign_in(address_group=name)
    except SignInProblem as problem:
        return _redirect_response(_problem_page(problem))
    response = _redirect_response(address)
    # SameSite is Lax, because the browser returns from another site.
    response.set_cookie(
        COOKIE,
        browser,
        max_age=COOKIE_LIFE_S,
        path=FOLDER,
        httponly=True,
        samesite="Lax",
        secure=is_over_https(request.http, services),
    )
    return response


@operator_call(
    "GET",
    "/oidc-callback",
    None,
    "Return from the OpenID provider",
    status=303,
    gives={},
    checks_query=False,
    shows=NOTHING,
)
async def finish_sign_in(request: OperatorRequest[PeopleServices, None]) -> Result:
    """Finish a sign-in with the parameters that the provider gave the browser."""
    services = request.services
    http = request.http
    buckets, name = _provider_sign_in_limit(request)
    answer = {name: http.query[name] for name in ("state", "code", "iss") if name in http.query}
    try:
        if services.oidc is None:
            raise SignInProblem("off")
        browser = http.cookies.get(COOKIE, "")
        secret, session = await services.oidc.finish(answer, browser=browser, address=request.actor.address)
    except SignInProblem as problem:
        # charge no attempt if the sign-in did not start here, or was charged already
        if problem.word not in ("state", "off"):
            buckets.charge(name, 1 - BEGINNING)
        response = _redirect_response(_problem_page(problem))
    else:
        buckets.charge(name, -BEGINNING)
        response = _redirect_response(_SIGN_IN_PAGE)
        set_session_cookie(request, response, secret, session.ends_at - session.created_at)
    response.del_cookie(COOKIE, path=FOLDER, secure=is_over_https(http, services))
    return response


@operator_call(
    "POST", "/oidc-logout", None, "End sessions with a logout token of the OpenID provider", shows=NOTHING
)
async def end_provider_sessions(request: OperatorRequest[PeopleServices, None]) -> Result:
    """
    End sessions at the provider's request (back-channel logout). The provider's signature
    authenticates this request.
    """
    provider = request.services.oidc
    if provider is None:
        raise Refusal(404, "not_found", PROBLEMS["off"])
    if request.http.content_type != _FORM:
        raise Refusal(415, "unsupported_media_type", f"send the logout token as {_FORM}")
    body = await read_bounded_body(request.http)
    # Logouts have the larger limit for shared addresses, because a provider may end many sessions at once.
    buckets, name = request.services.shared_sign_ins, f"logout {address_network(request.actor.address)}"
    wait_s = buckets.wait_s(name)
    if wait_s:
        message = "too many refused logout tokens from this address; retry later"
        raise Refusal(429, "too_many_attempts", message, retry_after_s=wait_s)
    try:
        [token] = parse_qs(body.decode("ascii"), max_num_fields=20)["logout_token"]
        with buckets.charge_on_failure(name, TokenRefused):
            return uncached_json({"ended": await provider.end_sessions_of_logout_token(token)})
    except (KeyError, ValueError) as error:
        raise Refusal(400, "bad_payload", "send one logout_token") from error
    except TokenRefused as error:
        raise Refusal(400, "logout_token", f"the logout token is refused: {error}") from error
    except ProviderDown as error:
        raise Refusal(503, "provider_down", PROBLEMS["down"], retry_after_s=30) from error


def _provider_sign_in_limit(request: OperatorRequest[PeopleServices, None]) -> tuple[TokenBuckets, str]:
    return sign_in_limit(request, "provider")


def _problem_page(problem: SignInProblem) -> str:
    """
    Return the address of the sign-in page with the problem's code in the fragment. The page shows a sentence
    for the code.
    """
    return f"{_SIGN_IN_PAGE}#problem={problem.word}"


def _redirect_response(location: str) -> web.Response:
    return web.Response(status=303, headers={"Location": location, "Cache-Control": "no-store"})
