"""
A small OpenID provider on real sockets, with real keys and signatures, and with faults that a test can inject.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, quote_plus

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from yarl import URL

CLIENT, SECRET = "tollhouse", "a+secret:of%the-client"


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: object) -> str:
    return encoded(json.dumps(value).encode())


class Key:
    def __init__(self, kid: str | None = "one", algorithm: str = "RS256", rsa_bits: int = 2048) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self._rsa = rsa.generate_private_key(65537, rsa_bits) if algorithm == "RS256" else None
        self._ec = ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else None

    @property
    def _id(self) -> dict[str, str]:
        return {} if self.kid is None else {"kid": self.kid}

    @property
    def public(self) -> dict[str, str]:
        """Return the public key as a JSON Web Key."""
        shown = {"use": "sig", "alg": self.algorithm, **self._id}
        if self._rsa:
            numbers = self._rsa.public_key().public_numbers()
            return {**shown, "kty": "RSA", "n": encoded(numbers.n.to_bytes(256)), "e": encoded(b"\1\0\1")}
        assert self._ec
        point = self._ec.public_key().public_numbers()
        x, y = (encoded(number.to_bytes(32)) for number in (point.x, point.y))
        return {**shown, "kty": "EC", "crv": "P-256", "x": x, "y": y}

    @property
    def public_pem(self) -> bytes:
        pair = self._rsa or self._ec
        assert pair
        return pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def token(self, claims: Mapping[str, Any], **header: Any) -> str:
        signed = f"{part({'alg': self.algorithm, **self._id, **header})}.{part(claims)}"
        return f"{signed}.{encoded(self._signature(signed.encode()))}"

    def _signature(self, message: bytes) -> bytes:
        if self._rsa:
            return self._rsa.sign(message, padding.PKCS1v15(), SHA256())
        assert self._ec
        r, s = decode_dss_signature(self._ec.sign(message, ec.ECDSA(SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)


@cache
def first_key() -> Key:
    """Return a key that all tests share, because generating one takes a tenth of a second."""
    return Key()


class OpenIdProvider:
    """
    A provider that signs in anybody. `claims` and `header` are added to each ID token. Paths in `down` answer 503.
    """

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.url = ""
        self.key = first_key()
        self.published = [self.key]
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.document: dict[str, Any] = {}
        # these fields replace the fields of the same names in every published key
        self.key_fields: dict[str, Any] = {}
        self.down: set[str] = set()
        self.giant: set[str] = set()
        self.hang: dict[str, asyncio.Event] = {}
        self.asked: list[str] = []
        self.id_token: str | None = None  # the provider returns this id token instead of a signed one
        self.forge: Callable[[dict[str, Any]], str] | None = (
            None  # the provider calls this function to replace the claims of a token
        )
        self.refresh_token: str | None = None
        self.is_gone = False  # whether the account is deleted; if so, refresh tokens are refused
        self.codes: dict[str, dict[str, str]] = {}
        self.resource = "https://tollhouse.example.com/mcp"

    def code_for(self, address: str) -> dict[str, str]:
        """Sign a person in at `address` and return the query parameters that the browser carries back."""
        query = dict(URL(address).query)
        assert "S256" == query["code_challenge_method"]
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        return {"code": code, "state": query["state"]}

    def id_claims(self, **changes: Any) -> dict[str, Any]:
        now = self.clock.now()
        return {"iss": self.url, "aud": CLIENT, "sub": "ada-1", "sid": "s1", "iat": now, "exp": now + 300,
                "email": "ada@example.com", "email_verified": True, **self.claims, **changes}  # fmt: skip

    def access_token(self, *, typ: str | None = "at+jwt", **changes: Any) -> str:
        """
        Return a signed access token for an assistant. A claim that is None is left out. `header`
        changes its header.
        """
        shown = {name: value for name, value in self.access_claims(**changes).items() if value is not None}
        header = {**({} if typ is None else {"typ": typ}), **self.header}
        return self.key.token(shown, **header)

    def access_token_of(self, claims: Mapping[str, Any]) -> str:
        """Return a signed access token with claims of any name, even `typ`, which is usually a header."""
        return self.key.token({**self.access_claims(), **claims}, typ="at+jwt")

    def access_claims(self, **changes: Any) -> dict[str, Any]:
        now = self.clock.now()
        return {"iss": self.url, "aud": self.resource, "sub": "ada-1", "iat": int(now), "exp": int(now) + 300,
                "client_id": "assistant", "scope": "tollhouse.read", "email": "ada@example.com",
                "email_verified": True, "sid": "s1", **changes}  # fmt: skip

    def logout_token(self, **changes: Any) -> str:
        now = self.clock.now()
        event = "http://schemas.openid.net/event/backchannel-logout"
        claims = {"iss": self.url, "aud": CLIENT, "sub": "ada-1", "iat": now, "exp": now + 120,
                  "jti": secrets.token_hex(4), "events": {event: {}}, **changes}  # fmt: skip
        shown = {name: value for name, value in claims.items() if value is not None}
        return self.key.token(shown, typ="logout+jwt")

    async def discovery(self, _: web.Request) -> web.Response:
        return await self._answer("discovery", {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            **self.document,
        })  # fmt: skip

    async def keys(self, _: web.Request) -> web.Response:
        return await self._answer(
            "keys", {"keys": [{**key.public, **self.key_fields} for key in self.published]}
        )

    async def authorize(self, request: web.Request) -> web.Response:
        """Sign the person in without a login form, and redirect back."""
        back = URL(request.query["redirect_uri"]).with_query(self.code_for(str(request.url)))
        return web.Response(status=302, headers={"Location": str(back)})

    async def token(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        scheme, _, pair = request.headers["Authorization"].partition(" ")
        expected = f"{CLIENT}:{quote_plus(SECRET)}"
        if (scheme, b64decode(pair).decode()) != ("Basic", expected):
            return web.json_response({"error": "invalid_client"}, status=401)
        nonce = {}
        if form["grant_type"] == "refresh_token":
            if self.is_gone or form["refresh_token"] != self.refresh_token:
                return web.json_response({"error": "invalid_grant"}, status=400)
        else:
            begun = self.codes.pop(form["code"], None)
            challenge = encoded(sha256(form["code_verifier"].encode()).digest())
            if (
                begun is None
                or begun["code_challenge"] != challenge
                or begun["redirect_uri"] != form["redirect_uri"]
            ):
                return web.json_response({"error": "invalid_grant"}, status=400)
            nonce = {"nonce": begun["nonce"]}
        claims = {**nonce, **self.id_claims()}
        forged = self.forge(claims) if self.forge else self.id_token
        given = {"id_token": forged or self.key.token(claims, **self.header)}
        if self.refresh_token:
            self.refresh_token = secrets.token_urlsafe(8)
            given["refresh_token"] = self.refresh_token
        return await self._answer("token", {"access_token": "a", "token_type": "Bearer", **given})

    async def _answer(self, name: str, payload: object) -> web.Response:
        self.asked.append(name)
        if name in self.hang:
            await self.hang[name].wait()
        if name in self.down:
            return web.Response(status=503, text="down")
        if name in self.giant:
            return web.json_response({"x": "x" * 2_000_000})
        return web.json_response(payload)


@asynccontextmanager
async def openid_provider(clock: Any) -> AsyncIterator[OpenIdProvider]:
    provider = OpenIdProvider(clock)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.discovery)
    app.router.add_get("/keys", provider.keys)
    app.router.add_get("/authorize", provider.authorize)
    app.router.add_post("/token", provider.token)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        for event in provider.hang.values():
            event.set()
        await runner.cleanup()


@contextmanager
def openid_provider_beside(clock: Any) -> Iterator[OpenIdProvider]:
    """
    Run a provider on its own thread, for tests without an event loop. Its host name is a different
    site than 127.0.0.1.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    manager = openid_provider(clock)
    try:
        provider = asyncio.run_coroutine_threadsafe(manager.__aenter__(), loop).result(30)
        provider.url = provider.url.replace("127.0.0.1", "localhost")
        yield provider
        asyncio.run_coroutine_threadsafe(manager.__aexit__(None, None, None), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
