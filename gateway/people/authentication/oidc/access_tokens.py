"""Access tokens of assistants: what one must say to open the tools, and what it lets. Pure: no socket, no clock."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gateway.people.authentication.oidc.problems import TokenRefused
from gateway.people.authentication.oidc.tokens import (
    Claims,
    SignedToken,
    check_not_from_later,
    check_subject,
    read_token,
    time_of,
)

MAX_CHARACTERS = 16 * 1024
_TYPES = ("at+jwt", "application/at+jwt", "jwt")
_OF_ID_TOKENS = ("at_hash", "c_hash")
# How providers name the kind of a token, in its claims or when they are asked about it, and access tokens there.
_KIND_CLAIMS = ("typ", "token_type", "token_use")
_ACCESS_KINDS = (*_TYPES, "bearer", "access", "access_token", "urn:ietf:params:oauth:token-type:access_token")
_MOST_CLIENT = 200
_MOST_SCOPES = 1000


@dataclass(frozen=True, kw_only=True)
class ExpectedAccess:
    """What a token must name, and when. Without `clients` those of every client are taken."""

    issuer: str
    audiences: Collection[str]
    clients: Collection[str]
    now: float
    skew_s: float
    max_life_s: float


def read_access_token(text: str) -> SignedToken:
    """TokenRefused unless it may be a signed access token."""
    if len(text) > MAX_CHARACTERS:
        raise TokenRefused("it is longer than 16 KiB")
    token = read_token(text)
    if not isinstance(token.typ, str) or token.typ.lower() not in _TYPES:
        raise TokenRefused("its type (typ) is neither at+jwt nor JWT")
    return token


def check_access_token(claims: Claims, expected: ExpectedAccess) -> None:
    """TokenRefused, with words that name the check and no value, unless a token is for us and good now."""
    if claims.get("iss") != expected.issuer:
        raise TokenRefused("it is of another issuer (iss)")
    given = claims.get("aud")
    audience = given if isinstance(given, list) else [given]
    if not any(isinstance(each, str) and each in expected.audiences for each in audience):
        raise TokenRefused("it is for another audience (aud)")
    ends = time_of(claims, "exp")
    began = time_of(claims, "iat")
    if ends <= expected.now - expected.skew_s:
        raise TokenRefused("it is over (exp)")
    check_not_from_later(claims, expected.now + expected.skew_s)
    if ends - began > expected.max_life_s:
        raise TokenRefused("it is good for longer than mcp.oauth.max_life (exp, iat)")
    check_subject(claims)
    if any(name in claims for name in _OF_ID_TOKENS):
        raise TokenRefused("it is an ID token")
    for name in _KIND_CLAIMS:
        kind = claims.get(name)
        if kind is not None and not (isinstance(kind, str) and kind.lower() in _ACCESS_KINDS):
            raise TokenRefused(f"it is no access token ({name})")
    if "cnf" in claims:
        raise TokenRefused("it is bound to a key of its client (cnf), which is not looked at here")
    if expected.clients and client_of(claims) not in expected.clients:
        raise TokenRefused("it was issued to a client that mcp.oauth.clients does not name")


def client_of(claims: Claims) -> str:
    """The id of the client that asked for the token; empty if it does not say."""
    found = claims.get("client_id", claims.get("azp"))
    return found[:_MOST_CLIENT] if isinstance(found, str) and found.isprintable() else ""


def lets(claims: Claims, scope: str) -> bool:
    """True if a token has a scope, which providers write with or without what stands before its last `/`."""
    found = claims.get("scope", claims.get("scp"))
    given = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
    return any(each in (scope, scope.rpartition("/")[2]) for each in given[:_MOST_SCOPES])


def leaves_groups_out(claims: Claims, claim: str) -> bool:
    """True if a token says that the person is in more groups than it could hold."""
    elsewhere = claims.get("_claim_names")
    return claims.get("hasgroups") in (True, "true") or (isinstance(elsewhere, dict) and claim in elsewhere)
