"""
Tokens of an OpenID provider: parts, signatures, and the rules for ID tokens, logout tokens and assistants'
access tokens.

The module has no socket and no clock. Only this module uses a library for signed JSON Web Tokens.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
import msgspec

from gateway.people.authentication.oidc.problems import TokenRefused

# shorter keys can be broken, and longer keys block the event loop
RSA_BITS = range(2048, 8193)
# a private key is ignored, even if a provider publishes it
_PUBLIC = ("kty", "crv", "n", "e", "x", "y")
_LIBRARY = jwt.PyJWS()

MAX_CHARACTERS = 16 * 1024
_TYPES = ("at+jwt", "application/at+jwt", "jwt")
_OF_ID_TOKENS = ("at_hash", "c_hash")
# claims with the kind of token, by provider
_KIND_CLAIMS = ("typ", "token_type", "token_use")
_ACCESS_KINDS = (*_TYPES, "bearer", "access", "access_token", "urn:ietf:params:oauth:token-type:access_token")
_MOST_CLIENT = 200
_MOST_SCOPES = 1000


def split_token(text: str) -> tuple[Mapping[str, Any], bytes]:
    """
    Return the header and the payload of a token, without checking the signature. Raises ValueError if it is
    not a signed token.
    """
    try:
        token = _LIBRARY.decode_complete(text, options={"verify_signature": False})
    except jwt.InvalidTokenError as error:
        raise ValueError("not a signed token") from error
    return token["header"], token["payload"]


def is_signed(text: str, algorithm: str, key: Mapping[str, Any]) -> bool:
    """
    Return whether a key signed a text. The algorithm must fit the key's type, so a public key is never used
    as a shared secret.
    """
    if algorithm == "ES256" and key.get("crv") != "P-256":
        return False
    public = {name: key[name] for name in _PUBLIC if name in key}
    try:
        read = jwt.PyJWK(public, algorithm)
        if algorithm == "RS256" and read.key.key_size not in RSA_BITS:
            return False
        _LIBRARY.decode(text, read, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError, TypeError):
        return False
    return True


Claims = Mapping[str, Any]

ALGORITHMS = ("RS256", "ES256")
MAX_TOKEN_CHARACTERS = 64 * 1024
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
# Seconds for which a logout token is valid, because providers send it at once. Its id is remembered as long,
# so that it cannot be used twice.
LOGOUT_TOKEN_LIFE_S = 300.0


@dataclass(frozen=True, kw_only=True)
class SignedToken:
    """A decoded token. Its signature must be checked (`is_signed_by`) before its claims are trusted."""

    algorithm: str
    kid: str | None
    typ: object
    claims: Claims
    text: str = field(repr=False)

    def is_signed_by(self, keys: Iterable[Mapping[str, Any]]) -> bool:
        return any(is_signed(self.text, self.algorithm, key) for key in keys)


@dataclass(frozen=True, kw_only=True)
class TokenRequirements:
    """The issuer and the client that a token must name. The token must also be valid `now`."""

    issuer: str
    client_id: str
    now: float
    skew_s: float


def read_token(text: object) -> SignedToken:
    """Read a token. Raises TokenRefused unless it is a signed token with an accepted algorithm."""
    if not isinstance(text, str) or len(text) > MAX_TOKEN_CHARACTERS:
        raise TokenRefused("it is not a token, or longer than 64 KiB")
    try:
        header, payload = split_token(text)
    except ValueError:
        raise TokenRefused("it is not a signed token in the compact form") from None
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise TokenRefused("its algorithm must be one of " + ", ".join(ALGORITHMS))
    if "crit" in header:
        raise TokenRefused("its header requires an extension (crit) that Tollhouse does not support")
    return SignedToken(
        algorithm=algorithm,
        kid=header.get("kid"),
        typ=header.get("typ"),
        claims=_decode_claims(payload),
        text=text,
    )


def check_id_token(claims: Claims, expected: TokenRequirements, *, nonce: str | None) -> None:
    """
    Check an ID token. `nonce` is None after a refresh, because a new token need not repeat it.

    Raises TokenRefused.
    """
    _check_audience(claims, expected)
    check_subject(claims)
    if claim_time(claims, "exp") <= expected.now - expected.skew_s:
        raise TokenRefused("it has expired")
    check_not_in_future(claims, expected.now + expected.skew_s)
    if nonce is not None:
        stated_nonce = claims.get("nonce")
        if not isinstance(stated_nonce, str) or not hmac.compare_digest(
            stated_nonce.encode(), nonce.encode()
        ):
            raise TokenRefused("it belongs to another sign-in (nonce)")


def check_logout_token(claims: Claims, expected: TokenRequirements) -> None:
    """
    Raise TokenRefused unless it is a token with which the provider may end sessions (OpenID Connect
    Back-Channel Logout 1.0, 2.6).
    """
    _check_audience(claims, expected)
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise TokenRefused("it is not a logout token")
    if "nonce" in claims:
        raise TokenRefused("a logout token must not have a nonce")
    if "sid" in claims and not _is_text(claims["sid"]):
        raise TokenRefused("the session id (sid) of the token is not text")
    if "sid" not in claims or "sub" in claims:
        check_subject(claims)
    if not _is_text(claims.get("jti")):
        raise TokenRefused("it has no id (jti)")
    check_not_in_future(claims, expected.now + expected.skew_s)
    oldest = expected.now - expected.skew_s
    if claim_time(claims, "iat") <= oldest - LOGOUT_TOKEN_LIFE_S or (
        "exp" in claims and claim_time(claims, "exp") <= oldest
    ):
        raise TokenRefused("it has expired")


def _check_audience(claims: Claims, expected: TokenRequirements) -> None:
    if claims.get("iss") != expected.issuer:
        raise TokenRefused("it is from another issuer")
    stated_audience = claims.get("aud")
    audience = stated_audience if isinstance(stated_audience, list) else [stated_audience]
    if expected.client_id not in audience:
        raise TokenRefused("it is for another client (aud)")
    party = claims.get("azp")
    if (party is not None or len(audience) > 1) and party != expected.client_id:
        raise TokenRefused("it was issued to another client (azp)")


def check_subject(claims: Claims) -> None:
    """Raise TokenRefused unless the claims name a person."""
    if not _is_text(claims.get("sub")):
        raise TokenRefused("it names no person (sub)")


def check_not_in_future(claims: Claims, latest: float) -> None:
    """Raise TokenRefused if the token was issued, or becomes valid, after `latest` (epoch seconds)."""
    if claim_time(claims, "iat") > latest or ("nbf" in claims and claim_time(claims, "nbf") > latest):
        raise TokenRefused("it is from the future; compare the clocks of the provider and of this machine")


def claim_time(claims: Claims, name: str) -> float:
    """Return a time in epoch seconds. Raises TokenRefused if the claim has none."""
    at = claims.get(name)
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        raise TokenRefused(f"it has no time {name}")
    return at


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 255


def _decode_claims(payload: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise TokenRefused("its claims are not a JSON object") from None


@dataclass(frozen=True, kw_only=True)
class ExpectedAccess:
    """The rules that an access token must meet. Without `clients`, every client is accepted."""

    issuer: str
    audiences: Collection[str]
    clients: Collection[str]
    now: float
    skew_s: float
    max_life_s: float


def read_access_token(text: str) -> SignedToken:
    """Read an access token. Raises TokenRefused if it cannot be a signed access token."""
    if len(text) > MAX_CHARACTERS:
        raise TokenRefused("it is longer than 16 KiB")
    token = read_token(text)
    if not isinstance(token.typ, str) or token.typ.lower() not in _TYPES:
        raise TokenRefused("its type (typ) is neither at+jwt nor JWT")
    return token


def check_access_token(claims: Claims, expected: ExpectedAccess) -> None:
    """Check an access token. TokenRefused states the failed check, but no value of the token."""
    if claims.get("iss") != expected.issuer:
        raise TokenRefused("it is from another issuer (iss)")
    stated_audience = claims.get("aud")
    audience = stated_audience if isinstance(stated_audience, list) else [stated_audience]
    if not any(isinstance(member, str) and member in expected.audiences for member in audience):
        raise TokenRefused("it is for another audience (aud)")
    ends = claim_time(claims, "exp")
    began = claim_time(claims, "iat")
    if ends <= expected.now - expected.skew_s:
        raise TokenRefused("it has expired (exp)")
    check_not_in_future(claims, expected.now + expected.skew_s)
    if ends - began > expected.max_life_s:
        raise TokenRefused("its lifetime is longer than mcp.oauth.max_life (exp, iat)")
    check_subject(claims)
    if any(name in claims for name in _OF_ID_TOKENS):
        raise TokenRefused("it is an ID token")
    for name in _KIND_CLAIMS:
        kind = claims.get(name)
        if kind is not None and not (isinstance(kind, str) and kind.lower() in _ACCESS_KINDS):
            raise TokenRefused(f"it is not an access token ({name})")
    if "cnf" in claims:
        raise TokenRefused("it is bound to a key of its client (cnf), which Tollhouse does not check")
    if expected.clients and token_client(claims) not in expected.clients:
        raise TokenRefused("it was issued to a client that mcp.oauth.clients does not list")


def token_client(claims: Claims) -> str:
    client = claims.get("client_id", claims.get("azp"))
    return client[:_MOST_CLIENT] if isinstance(client, str) and client.isprintable() else ""


def has_scope(claims: Claims, scope: str) -> bool:
    """Return whether claims have a scope. Providers may put a prefix that ends with `/` before it."""
    scope_claim = claims.get("scope", claims.get("scp"))
    granted = (
        scope_claim.split()
        if isinstance(scope_claim, str)
        else scope_claim
        if isinstance(scope_claim, list)
        else []
    )
    return any(granted_scope in (scope, scope.rpartition("/")[2]) for granted_scope in granted[:_MOST_SCOPES])


def has_groups_left_out_of_token(claims: Claims, groups_claim: str) -> bool:
    """
    Return whether the claims leave groups out, because the person may be in too many groups for a token.
    """
    elsewhere = claims.get("_claim_names")
    return claims.get("hasgroups") in (True, "true") or (
        isinstance(elsewhere, dict) and groups_claim in elsewhere
    )
