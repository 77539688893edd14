"""An OpenID provider as its discovery document describes it: where people sign in, and what its tokens say."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from gateway.people.authentication.oidc.access_tokens import (
    ExpectedAccess,
    check_access_token,
    read_access_token,
)
from gateway.people.authentication.oidc.client import ProviderClient
from gateway.people.authentication.oidc.keys import KEEP_S, SigningKeys
from gateway.people.authentication.oidc.problems import GrantRefused, ProviderDown, TokenRefused
from gateway.people.authentication.oidc.tokens import (
    Claims,
    Expected,
    SignedToken,
    check_id_token,
    check_logout_token,
    read_token,
)
from gateway.service.configuration.addresses import is_safe_address
from gateway.service.configuration.secret_file import SecretFile
from gateway.service.configuration.sections import ConfigError, OidcSettings
from spool.clock import Clock

DISCOVERY = "/.well-known/openid-configuration"
_BASIC, _IN_FORM = "client_secret_basic", "client_secret_post"


@dataclass(frozen=True, kw_only=True)
class _Description:
    authorization: str
    token: str
    keys: str
    ways_to_authenticate: Sequence[str]
    document: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class GrantedTokens:
    """`claims` are those of the checked ID token, None if a refresh brought none."""

    claims: Claims | None
    refresh: str | None


class IdentityProvider:
    """Each call raises ProviderDown if the provider does not answer as one does. ConfigError without its secret."""

    def __init__(self, settings: OidcSettings, redirect: str, clock: Clock) -> None:
        self._settings = settings
        self._redirect = redirect
        self._clock = clock
        self._client = ProviderClient(settings)
        path = settings.client_secret_file
        self._secret = SecretFile("oidc.client_secret_file", path) if path else None
        self._keys = SigningKeys(self._fetch_keys, clock)
        self._description: tuple[float, _Description] | None = None

    async def close(self) -> None:
        await self._client.close()

    async def probe(self) -> None:
        """Ask for everything that a sign-in needs before a person is asked."""
        await self._fetch_keys()

    async def sign_in_address(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the provider's address to which the browser is sent."""
        address = (await self._described()).authorization
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": base64url(sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(query)}"

    async def redeem(self, code: str, *, verifier: str, nonce: str) -> GrantedTokens:
        """The tokens for a code. GrantRefused for one that is used or unknown, TokenRefused for a wrong token."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect}
        answer = await self._ask_for_tokens({**form, "code_verifier": verifier})
        claims = await self._id_claims(answer.get("id_token"), nonce=nonce)
        return GrantedTokens(claims=claims, refresh=_text(answer.get("refresh_token")))

    async def refresh(self, token: str) -> GrantedTokens:
        """New tokens for a refresh token. GrantRefused when the person may not be signed in any more."""
        answer = await self._ask_for_tokens({"grant_type": "refresh_token", "refresh_token": token})
        given = answer.get("id_token")
        claims = None if given is None else await self._id_claims(given, nonce=None)
        return GrantedTokens(claims=claims, refresh=_text(answer.get("refresh_token")) or token)

    async def logout_claims(self, text: str) -> Claims:
        """The claims of a logout token; TokenRefused if it is none of this provider's."""
        token = read_token(text)
        check_logout_token(token.claims, self._expected())
        return await self._signed(token)

    async def access_claims(self, text: str, expected: ExpectedAccess) -> Claims:
        """
        The claims of an access token; TokenRefused if it is not for us, or not good now. The signature, which
        costs most, is looked at last.
        """
        token = read_access_token(text)
        check_access_token(token.claims, expected)
        return await self._signed(token)

    def knows(self, text: str) -> bool:
        """Return whether the signature of a token was verified a while ago."""
        return self._keys.know(text)

    async def discovery(self) -> Mapping[str, Any]:
        """Return the provider's discovery document."""
        return (await self._described()).document

    async def _id_claims(self, text: object, *, nonce: str | None) -> Claims:
        token = read_token(text)
        check_id_token(token.claims, self._expected(), nonce=nonce)
        return await self._signed(token)

    async def _signed(self, token: SignedToken) -> Claims:
        """The claims of a token that the provider signed; TokenRefused for another one."""
        if not await self._keys.have_signed(token):
            raise TokenRefused("no key of the provider has signed it")
        return token.claims

    def _expected(self) -> Expected:
        settings = self._settings
        return Expected(
            issuer=settings.issuer,
            client_id=settings.client_id,
            now=self._clock.now(),
            skew_s=settings.clock_skew,
        )

    async def _ask_for_tokens(self, form: Mapping[str, str]) -> Mapping[str, Any]:
        described = await self._described()
        status, answer = await self._post(described, described.token, form)
        if status == 200:
            return answer
        if answer.get("error") == "invalid_grant":
            raise GrantRefused
        shown = answer.get("error")
        known = isinstance(shown, str) and len(shown) <= 60 and shown.isprintable()
        raise ProviderDown(f"{described.token} answers {status}{f' ({shown})' if known else ''}")

    async def _post(
        self, described: _Description, address: str, form: Mapping[str, str]
    ) -> tuple[int, Mapping[str, Any]]:
        """Status and answer to a form that is sent as the client of [oidc]."""
        headers = {}
        sent = {**form, "client_id": self._settings.client_id}
        if self._secret is not None:
            self._secret.refresh()
            if _BASIC in described.ways_to_authenticate or _IN_FORM not in described.ways_to_authenticate:
                pair = f"{quote_plus(self._settings.client_id)}:{quote_plus(self._secret.value)}"
                headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
                del sent["client_id"]
            else:
                sent["client_secret"] = self._secret.value
        return await self._client.post(address, sent, headers)

    async def _fetch_keys(self) -> Sequence[Mapping[str, Any]]:
        described = await self._described()
        found = (await self._client.get(described.keys)).get("keys")
        if not isinstance(found, list) or not all(isinstance(key, dict) for key in found):
            raise ProviderDown(f"{described.keys} holds no keys")
        return found

    async def _described(self) -> _Description:
        now = self._clock.monotonic()
        if self._description is None or now - self._description[0] > KEEP_S:
            self._description = (now, self._read(await self._client.get(discovery_of(self._settings.issuer))))
        return self._description[1]

    def _read(self, document: Mapping[str, Any]) -> _Description:
        if document.get("issuer") != self._settings.issuer:
            raise ProviderDown(
                "its discovery document names another issuer: oidc.issuer must be exactly that one"
            )
        addresses = []
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            address = document.get(name)
            if not isinstance(address, str) or not is_safe_address(address):
                raise ProviderDown(f"its discovery document has no {name} with https")
            addresses.append(address)
        ways = document.get("token_endpoint_auth_methods_supported")
        known = [way for way in ways if isinstance(way, str)] if isinstance(ways, list) else [_BASIC]
        authorization, token, keys = addresses
        return _Description(
            authorization=authorization,
            token=token,
            keys=keys,
            ways_to_authenticate=known,
            document=document,
        )


def discovery_of(issuer: str) -> str:
    return issuer.rstrip("/") + DISCOVERY


def base64url(data: bytes) -> str:
    return b64encode(data, altchars=b"-_").rstrip(b"=").decode()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


async def provider_problem(settings: OidcSettings, *, clock: Clock) -> str:
    """Why nobody can sign in with the provider now; empty if its addresses and keys were found."""
    try:
        provider = IdentityProvider(settings, "", clock)
    except ConfigError as error:
        return "; ".join(error.problems)
    try:
        await provider.probe()
    except ProviderDown as error:
        return str(error)
    finally:
        await provider.close()
    return ""


async def missing_for_clients(settings: OidcSettings, *, clock: Clock) -> Sequence[str]:
    """
    List what assistants will miss at the provider, a sentence each; nothing if it does not answer,
    which `provider_problem` says.
    """
    try:
        provider = IdentityProvider(settings, "", clock)
    except ConfigError:
        return ()
    try:
        return tuple(_missing(await provider.discovery()))
    except ProviderDown:
        return ()
    finally:
        await provider.close()


def _missing(document: Mapping[str, Any]) -> Iterator[str]:
    methods = document.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        yield "code_challenge_methods_supported has no S256: clients that keep to the protocol refuse to sign in"
    by_document = document.get("client_id_metadata_document_supported") is True
    if not by_document and "registration_endpoint" not in document:
        yield "no way for clients to register: give each its client id by hand"
    if document.get("authorization_response_iss_parameter_supported") is not True:
        yield "answers do not name their issuer (RFC 9207): a client of several providers may mix them up"
