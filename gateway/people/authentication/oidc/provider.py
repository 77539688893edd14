"""
An OpenID provider, described by its discovery document: sign-in addresses, and checks of its tokens.

Requests have limits on time and size and follow no redirects. Only this module has an HTTP client for a
provider. The provider's signing keys are cached for an hour. They are fetched earlier if none of them
signed a token.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp
import msgspec

from gateway.configuration.secret_file import SecretFile
from gateway.configuration.sections import OidcSettings
from gateway.configuration.values import ConfigError, is_safe_address
from gateway.people.authentication.oidc.problems import GrantRefused, ProviderDown, TokenRefused
from gateway.people.authentication.oidc.tokens import (
    Claims,
    ExpectedAccess,
    SignedToken,
    TokenRequirements,
    check_access_token,
    check_id_token,
    check_logout_token,
    read_access_token,
    read_token,
)
from spool.clock import Clock

DISCOVERY = "/.well-known/openid-configuration"
_BASIC, _IN_FORM = "client_secret_basic", "client_secret_post"

MAX_ANSWER_BYTES = 256 * 1024

KEEP_S = 3600.0  # seconds for which fetched keys are trusted, because the provider may withdraw a key
# seconds between two fetches that tokens cause, so that invented tokens cause few requests
AGAIN_S = 30.0
MAX_KEYS = 100
# keys tried for a token without a key id; providers with several keys usually state the id
MAX_TRIES = 4
MAX_VERIFIED = 1000
_TYPE_OF = {"RS256": "RSA", "ES256": "EC"}


@dataclass(frozen=True, kw_only=True)
class _Description:
    authorization: str
    token: str
    keys: str
    ways_to_authenticate: Sequence[str]
    document: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class GrantedTokens:
    """Tokens that the provider granted. `claims` are checked, or None if a refresh returned no ID token."""

    claims: Claims | None
    refresh: str | None


class IdentityProvider:
    """
    An OpenID provider. Raises ConfigError if its secret is missing. Calls raise ProviderDown if the provider
    does not respond correctly.
    """

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
        """
        Fetch the provider's addresses and keys, so that a person is not sent to a provider that does not
        respond.
        """
        await self._fetch_keys()

    async def sign_in_address(self, *, state: str, nonce: str, verifier: str) -> str:
        address = (await self._read_description()).authorization
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": encode_base64url(sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(query)}"

    async def exchange_code(self, code: str, *, verifier: str, nonce: str) -> GrantedTokens:
        """
        Exchange a code for tokens. Raises GrantRefused for a used or unknown code, and TokenRefused for an
        invalid token.
        """
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect}
        answer = await self._request_tokens({**form, "code_verifier": verifier})
        claims = await self._verify_id_token(answer.get("id_token"), nonce=nonce)
        return GrantedTokens(claims=claims, refresh=_text_or_none(answer.get("refresh_token")))

    async def refresh(self, token: str) -> GrantedTokens:
        """Refresh tokens. Raises GrantRefused if the person may no longer be signed in."""
        answer = await self._request_tokens({"grant_type": "refresh_token", "refresh_token": token})
        id_token = answer.get("id_token")
        claims = None if id_token is None else await self._verify_id_token(id_token, nonce=None)
        return GrantedTokens(claims=claims, refresh=_text_or_none(answer.get("refresh_token")) or token)

    async def verify_logout_token(self, text: str) -> Claims:
        """Return the claims of a logout. Raises TokenRefused if this provider did not issue the token."""
        token = read_token(text)
        check_logout_token(token.claims, self._expected_claims())
        return await self._verify_signature(token)

    async def verify_access_token(self, text: str, expected: ExpectedAccess) -> Claims:
        """
        Return the claims of an access token. Raises TokenRefused if it is not for this server or not valid
        now.

        The check of the signature is the most expensive, so it is last.
        """
        token = read_access_token(text)
        check_access_token(token.claims, expected)
        return await self._verify_signature(token)

    def has_verified_token(self, text: str) -> bool:
        return self._keys.has_verified_token(text)

    async def discovery_document(self) -> Mapping[str, Any]:
        return (await self._read_description()).document

    async def _verify_id_token(self, text: object, *, nonce: str | None) -> Claims:
        token = read_token(text)
        check_id_token(token.claims, self._expected_claims(), nonce=nonce)
        return await self._verify_signature(token)

    async def _verify_signature(self, token: SignedToken) -> Claims:
        if not await self._keys.is_signed_by_provider(token):
            raise TokenRefused("no key of the provider has signed it")
        return token.claims

    def _expected_claims(self) -> TokenRequirements:
        settings = self._settings
        return TokenRequirements(
            issuer=settings.issuer,
            client_id=settings.client_id,
            now=self._clock.now(),
            skew_s=settings.clock_skew,
        )

    async def _request_tokens(self, form: Mapping[str, str]) -> Mapping[str, Any]:
        described = await self._read_description()
        status, answer = await self._post_form(described, described.token, form)
        if status == 200:
            return answer
        if answer.get("error") == "invalid_grant":
            raise GrantRefused
        shown = answer.get("error")
        known = isinstance(shown, str) and len(shown) <= 60 and shown.isprintable()
        raise ProviderDown(f"{described.token} answers {status}{f' ({shown})' if known else ''}")

    async def _post_form(
        self, described: _Description, address: str, form: Mapping[str, str]
    ) -> tuple[int, Mapping[str, Any]]:
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
        described = await self._read_description()
        key_list = (await self._client.get(described.keys)).get("keys")
        if not isinstance(key_list, list) or not all(isinstance(key, dict) for key in key_list):
            raise ProviderDown(f"{described.keys} contains no keys")
        return key_list

    async def _read_description(self) -> _Description:
        now = self._clock.monotonic()
        if self._description is None or now - self._description[0] > KEEP_S:
            self._description = (
                now,
                self._parse_description(await self._client.get(discovery_address(self._settings.issuer))),
            )
        return self._description[1]

    def _parse_description(self, document: Mapping[str, Any]) -> _Description:
        if document.get("issuer") != self._settings.issuer:
            raise ProviderDown(
                "its discovery document names another issuer; oidc.issuer must be exactly the same"
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
            authorization=authorization, token=token, keys=keys, ways_to_authenticate=known, document=document
        )


def discovery_address(issuer: str) -> str:
    return issuer.rstrip("/") + DISCOVERY


def encode_base64url(data: bytes) -> str:
    return b64encode(data, altchars=b"-_").rstrip(b"=").decode()


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


async def provider_problem(settings: OidcSettings, *, clock: Clock) -> str:
    """Return why the provider cannot be used, or "" if its addresses and keys were found."""
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


async def missing_client_features(settings: OidcSettings, *, clock: Clock) -> Sequence[str]:
    """
    Return a sentence for each thing that clients need and the provider lacks.

    Return nothing if the provider does not respond, because `provider_problem` reports that.
    """
    try:
        provider = IdentityProvider(settings, "", clock)
    except ConfigError:
        return ()
    try:
        return tuple(_missing_features(await provider.discovery_document()))
    except ProviderDown:
        return ()
    finally:
        await provider.close()


def _missing_features(document: Mapping[str, Any]) -> Iterator[str]:
    methods = document.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        yield (
            "code_challenge_methods_supported lacks S256, so clients that follow the protocol refuse to "
            "sign in"
        )
    by_document = document.get("client_id_metadata_document_supported") is True
    if not by_document and "registration_endpoint" not in document:
        yield "clients cannot register themselves; enter a client id in each client by hand"
    if document.get("authorization_response_iss_parameter_supported") is not True:
        yield (
            "responses do not name their issuer (RFC 9207), so a client of several providers may confuse them"
        )


class ProviderClient:
    """
    An HTTP client for the provider. It opens connections at the first request and keeps them until `close`.
    """

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None

    async def get(self, url: str) -> dict[str, Any]:
        status, document = await self._send_request("GET", url, None, {})
        if status != 200:
            raise ProviderDown(f"{url} answers {status}")
        return document

    async def post(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        return await self._send_request("POST", url, form, headers)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._context = None

    async def _send_request(
        self, method: str, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        try:
            async with self._open_session().request(
                method,
                url,
                data=form,
                headers={"Accept": "application/json", **headers},
                allow_redirects=False,
                proxy=self._settings.proxy or None,
                ssl=self._tls_for(url),
            ) as response:
                return response.status, _decode_object(
                    url, response.status, await _read_bounded(url, response)
                )
        except TimeoutError:
            raise ProviderDown(f"{url} did not respond within {self._settings.timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderDown(f"{url} is unreachable ({type(error).__name__})") from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=8),
                timeout=aiohttp.ClientTimeout(total=self._settings.timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _tls_for(self, url: str) -> ssl.SSLContext | bool:
        """Return the TLS context, which takes 25 ms to make, so plain http skips it."""
        if url.startswith("http://") and not self._settings.proxy:
            return True
        if self._context is None:
            self._context = ssl.create_default_context(cafile=self._settings.ca_file)
        return self._context


async def _read_bounded(url: str, response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > MAX_ANSWER_BYTES:
            raise ProviderDown(f"the response of {url} is larger than {MAX_ANSWER_BYTES // 1024} KiB")
    return bytes(content)


def _decode_object(url: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document = None
    if not isinstance(document, dict):
        raise ProviderDown(f"{url} answers {status} without a JSON object")
    return document


class SigningKeys:
    """
    The provider's public keys, which `fetch` reads, and the check of signatures, on a thread. The hashes of
    valid tokens are remembered until the keys are fetched again.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._verified: OrderedDict[bytes, None] = OrderedDict()
        self._loaded_at: float | None = None
        self._asked_at = 0.0
        self._one_at_a_time = asyncio.Lock()

    def has_verified_token(self, text: str) -> bool:
        """Return whether a token was verified before, with keys that are still trusted."""
        return not self._are_old and _hash_text(text) in self._verified

    async def is_signed_by_provider(self, token: SignedToken) -> bool:
        """
        Return whether the provider's keys signed a token. If none did, they are fetched again, because the
        provider may have a new key without an id.
        """
        tried = None
        # try the known keys first, so that a token with a known key does not wait for an unknown key
        if not self._are_old:
            tried = self._loaded_at
            if self.has_verified_token(token.text) or await self._verify_token(token):
                return True
        async with self._one_at_a_time:
            is_due = self._loaded_at == tried and self._clock.monotonic() - self._asked_at > AGAIN_S
            if self._are_old or is_due:
                await self._load_keys()
            return self._loaded_at != tried and await self._verify_token(token)

    async def _verify_token(self, token: SignedToken) -> bool:
        keys = self._matching_keys(token)
        is_signed = bool(keys) and await asyncio.to_thread(token.is_signed_by, keys)
        if is_signed and keys == self._matching_keys(token):
            self._verified[_hash_text(token.text)] = None
            if len(self._verified) > MAX_VERIFIED:
                self._verified.popitem(last=False)
        return is_signed

    @property
    def _are_old(self) -> bool:
        return self._loaded_at is None or self._clock.monotonic() - self._loaded_at > KEEP_S

    async def _load_keys(self) -> None:
        self._asked_at = self._clock.monotonic()
        self._keys = (await self._fetch())[:MAX_KEYS]
        self._verified.clear()
        self._loaded_at = self._clock.monotonic()

    def _matching_keys(self, token: SignedToken) -> Sequence[Mapping[str, Any]]:
        fitting = [
            key
            for key in self._keys
            if token.kid in (None, key.get("kid"))
            and key.get("kty") == _TYPE_OF[token.algorithm]
            and key.get("use", "sig") == "sig"
            and key.get("alg", token.algorithm) == token.algorithm
        ]
        return fitting[:MAX_TRIES]


def _hash_text(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
