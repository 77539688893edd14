"""
Signing in with an OpenID provider over real sockets: who gets a session, who is refused, and how sessions end.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from gateway.configuration.sections import OidcSettings
from gateway.core.paths import OPERATOR_API
from gateway.http.address import CSRF_HEADER
from gateway.operations.holders.operators import SHARED_BURST, SIGN_IN_BURST
from gateway.people.authentication.oidc import sign_ins
from gateway.people.authentication.oidc.problems import PROBLEMS
from gateway.people.authentication.oidc.sign_ins import BEGUN_LIFE_S, GRACE_S, ProviderSignIns
from spool.registry.operators import ADMIN, OPERATOR, Actor
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.roles import FULL, NewRole, RoleLimits
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.openid_provider import CLIENT, SECRET, Key, OpenIdProvider, encoded, openid_provider, part

ROOT = Actor("root", "here")
EVE = "eve@example.com"


class House:
    """A Tollhouse server and a provider. `sign_in` acts as a browser that visits both."""

    def __init__(self, server: OperatorServer, provider: OpenIdProvider) -> None:
        self.server = server
        self.provider = provider
        assert server.services.people.oidc
        self.oidc = server.services.people.oidc

    async def get(
        self, path: str, query: dict[str, str] | None = None, cookie: str = ""
    ) -> aiohttp.ClientResponse:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as browser:
            url = URL(f"{self.server.url}{OPERATOR_API}{path}").with_query(query or {})
            async with browser.get(url, headers={"Cookie": cookie}, allow_redirects=False) as answer:
                await answer.read()
                return answer

    async def begin(self) -> tuple[str, str]:
        """Start a sign-in; return the redirect address and the cookie."""
        answer = await self.get("/oidc")
        cookie = answer.cookies.get("tollhouse-oidc")
        return answer.headers["Location"], f"tollhouse-oidc={cookie.value}" if cookie else ""

    async def finish(self, query: dict[str, str], cookie: str) -> aiohttp.ClientResponse:
        return await self.get("/oidc-callback", query, cookie)

    async def sign_in(self) -> str:
        """Return the session cookie, or the name of the problem."""
        location, cookie = await self.begin()
        if not location.startswith(self.provider.url):
            return location.removeprefix("../#problem=")
        return outcome(await self.finish(self.provider.code_for(location), cookie))

    async def status(self, cookie: str) -> int:
        return (await self.get("/session", cookie=cookie)).status

    async def reconfigure(self, **settings: Any) -> None:
        await self.oidc.close()
        settings = {**vars_of(self.oidc.settings), **settings}
        known = OidcSettings(**settings)
        self.oidc = ProviderSignIns(known, self.server.registry, self.server.clock)
        self.server.services.people.oidc = self.oidc

    async def log_out(self, token: str) -> int:
        async with aiohttp.ClientSession() as backend:
            form = {"logout_token": token}
            async with backend.post(f"{self.server.url}{OPERATOR_API}/oidc-logout", data=form) as answer:
                return answer.status

    async def operator(self) -> dict[str, Any]:
        [row] = (await self.server.ask("GET", "/operators")).payload["operators"]
        return dict(row)


def vars_of(settings: OidcSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def outcome(answer: aiohttp.ClientResponse) -> str:
    assert 303 == answer.status
    location = answer.headers["Location"]
    if location == "../":
        return f"tollhouse={answer.cookies['tollhouse'].value}"
    assert location.startswith("../#problem=") and "tollhouse" not in answer.cookies
    return location.removeprefix("../#problem=")


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with operator_server(tmp_path) as server, openid_provider(server.clock) as provider:
        secret = tmp_path / "secret"
        secret.write_text(SECRET)
        settings = OidcSettings(
            issuer=provider.url,
            client_id=CLIENT,
            client_secret_file=secret,
            console=f"{server.url}/console/",
            timeout=30,
        )
        server.services.people.oidc = ProviderSignIns(settings, server.registry, server.clock)
        house = House(server, provider)
        yield house
        await house.oidc.close()


async def test_a_person_of_the_provider_becomes_an_operator(house: House) -> None:
    """
    A person who signs in with the provider becomes an operator, who is named by the verified e-mail address, has
    the role of the settings, and is in the audit list.
    """
    cookie = await house.sign_in()
    session = await house.server.over_http("GET", "/session", headers={"Cookie": cookie})
    assert (ADA, "viewer") == tuple(session.payload["session"][name] for name in ("actor", "role"))
    row = await house.operator()
    assert (ADA, "viewer", "Enabled", house.provider.url) == tuple(
        row[name] for name in ("email", "role", "status", "issuer")
    )
    [listed] = (await house.server.ask("GET", "/sessions", began_with="provider")).payload["sessions"]
    assert ADA == listed["account"]
    audit = (await house.server.ask("GET", "/audit")).payload["audit"]
    assert [("session.begin", ADA), ("operator.add", ADA)] == [(row["action"], row["actor"]) for row in audit]
    assert house.provider.url == audit[0]["after"]["issuer"]


async def test_cookies_are_for_the_browser_alone(house: House) -> None:
    """The sign-in cookie must survive a redirect from another site. The session cookie must not."""
    begun = (await house.get("/oidc")).cookies["tollhouse-oidc"]
    assert begun["httponly"] is True
    assert begun["samesite"] == "Lax"
    assert begun["path"] == ""
    location, cookie = await house.begin()
    kept = (await house.finish(house.provider.code_for(location), cookie)).cookies["tollhouse"]
    assert kept["httponly"] is True
    assert kept["samesite"] == "Strict"
    assert kept["path"] == ""


@pytest.mark.proves("Somebody puts an operator's e-mail address into a profile at the provider")
async def test_a_local_account_stays_its_own(house: House) -> None:
    """
    A person with a local account's e-mail address at the provider is refused unless the settings join both.
    """
    await house.server.ask("POST", "/operators", {"email": ADA, "password": "x" * 12, "role": "admin"})
    assert "taken" == await house.sign_in()
    await house.reconfigure(link_accounts=True)
    cookie = await house.sign_in()
    assert 200 == await house.status(cookie)
    assert "admin" == (await house.operator())["role"]


async def test_a_disabled_operator_stays_out(house: House) -> None:
    """
    If an operator is disabled, sessions end at once, and a new sign-in says whom to contact. Enabling the operator
    allows sign-ins again.
    """
    cookie = await house.sign_in()
    assert (
        200 == (await house.server.ask("PATCH", f"/operators/{ADA}", {"status": "Disabled"}, by=EVE)).status
    )
    assert await house.status(cookie) == 401
    assert await house.sign_in() == "disabled"
    assert 400 == (await house.server.ask("PATCH", f"/operators/{ADA}", {"status": "off"}, by=EVE)).status
    await house.server.ask("PATCH", f"/operators/{ADA}", {"status": "Enabled"}, by=EVE)
    assert 200 == await house.status(await house.sign_in())


async def test_groups_give_roles(house: House) -> None:
    """
    The highest role counts at each sign-in. A person who left the group gets less at the next one, and
    earlier sessions end.
    """
    await house.reconfigure(roles={"finops": OPERATOR, "platform": ADMIN}, groups_claim="realm.groups")
    house.provider.claims = {"realm": {"groups": ["finops", "platform", 7]}}
    before = await house.sign_in()
    assert "admin" == (await house.operator())["role"]
    house.provider.claims = {"realm": {"groups": "finops"}}
    after = await house.sign_in()
    assert (await house.operator())["role"] == "operator"
    assert await house.status(before) == 401
    assert await house.status(after) == 200


@pytest.mark.parametrize(
    ("settings", "claims", "word"),
    [
        ({"allowed_groups": ("finops",)}, {"groups": ["sales"]}, "group"),
        ({"allowed_groups": ("finops",)}, {}, "group"),
        ({"allowed_domains": ("example.org",)}, {}, "domain"),
        ({"allowed_domains": ("ample.com",)}, {}, "domain"),
        ({}, {"email_verified": False}, "email"),
        ({}, {"email_verified": None}, "email"),
        ({"assume_verified_email": True}, {"email_verified": False}, "email"),
        ({}, {"email": 7}, "email"),
        ({}, {"email": "no address"}, "email"),
        ({"named_by": "sub", "allowed_domains": ("example.com",)}, {"email_verified": False}, "email"),
    ],
)
async def test_who_may_not_sign_in_hears_why(
    house: House, settings: dict[str, Any], claims: dict[str, Any], word: str
) -> None:
    """
    If a person may not sign in, the page states the reason: a missing group, a wrong domain or an
    unverified e-mail address.
    """
    await house.reconfigure(**settings)
    house.provider.claims = claims
    assert word == await house.sign_in()
    assert [] == (await house.server.ask("GET", "/operators")).payload["operators"]


@pytest.mark.parametrize(("subject", "name"), [("ada.1", "ada.1@127.0.0.1"), ("A|d a", None)])
async def test_people_can_be_named_by_their_id(house: House, subject: str, name: str | None) -> None:
    """
    For providers without e-mail addresses, people can be named by id. Different ids never become one name.
    """
    await house.reconfigure(named_by="sub")
    house.provider.claims = {"sub": subject, "email": None}
    assert 200 == await house.status(await house.sign_in())
    email = (await house.operator())["email"]
    assert name == email if name else len(email) == len("@127.0.0.1") + 32


Bend = Callable[[OpenIdProvider], None]


def set_claims(**claims: Any) -> Bend:
    return lambda provider: provider.claims.update(claims)


def unsigned(provider: OpenIdProvider) -> None:
    """Let the provider send an unsigned token with the right nonce."""
    provider.header = {"alg": "none"}


def public_key_as_secret(provider: OpenIdProvider) -> None:
    provider.header = {"alg": "HS256"}


def forged(forge: Callable[[OpenIdProvider, dict[str, Any]], str]) -> Bend:
    """Let the provider send a forged token with the right claims, including the nonce."""
    return lambda provider: setattr(provider, "forge", lambda claims: forge(provider, claims))


def without_signature(algorithm: str) -> Bend:
    return forged(lambda _, claims: f"{part({'alg': algorithm})}.{part(claims)}.")


def signed_with_secret(secret: Callable[[OpenIdProvider], bytes], **header: str) -> Bend:
    """Forge an HS256 token whose secret is the provider's public key."""

    def forge(provider: OpenIdProvider, claims: dict[str, Any]) -> str:
        message = f"{part({'alg': 'HS256', 'kid': 'one', **header})}.{part(claims)}"
        signature = hmac.digest(secret(provider), message.encode(), "sha256")
        return f"{message}.{encoded(signature)}"

    return forged(forge)


def published(**fields: Any) -> Bend:
    """Publish the signing key with fields that forbid or break its use."""
    return lambda provider: provider.key_fields.update(fields)


def headed(**header: Any) -> Bend:
    return lambda provider: provider.header.update(header)


def signed_by(key: Callable[[], Key], **fields: Any) -> Bend:
    def bend(provider: OpenIdProvider) -> None:
        provider.key = key()
        provider.published = [provider.key]
        provider.key_fields = fields

    return bend


def changed_after(provider: OpenIdProvider) -> None:
    """Sign one set of claims and send another."""
    head, _, signature = provider.key.token(provider.id_claims()).split(".")
    provider.forge = lambda claims: f"{head}.{part(claims)}.{signature}"


def foreign_key(provider: OpenIdProvider) -> None:
    provider.key = Key("one")


def key_of_the_sender(provider: OpenIdProvider) -> None:
    provider.key = Key("own")
    provider.header = {"jwk": provider.key.public}


def unknown_extension(provider: OpenIdProvider) -> None:
    provider.header = {"crit": ["b64"], "b64": False}


def mangled(provider: OpenIdProvider) -> None:
    head, _, signature = provider.key.token({}).split(".")
    provider.id_token = f"{head}.{encoded(b'[' * 100_000)[:40_000]}.{signature}"


@pytest.mark.proves("A token of the OpenID provider is forged, or meant for another application")
@pytest.mark.parametrize(
    "bend",
    [
        set_claims(aud="another"),
        set_claims(aud=[CLIENT, "another"]),
        set_claims(aud=[CLIENT, "another"], azp="another"),
        set_claims(aud=None),
        set_claims(iss="https://evil.example"),
        set_claims(nonce="of another sign-in"),
        set_claims(sub=""),
        set_claims(sub=["ada-1"]),
        set_claims(exp=1_789_999_000),
        set_claims(exp="never"),
        set_claims(exp=True),
        set_claims(iat=1_790_000_100),
        set_claims(iat=None),
        set_claims(nbf=1_790_000_100),
        unsigned,
        public_key_as_secret,
        foreign_key,
        key_of_the_sender,
        unknown_extension,
        mangled,
        lambda provider: setattr(provider, "id_token", "x" * 70_000),
        lambda provider: setattr(provider, "id_token", "a.b"),
        set_claims(azp="another"),
        set_claims(azp=7),
        set_claims(aud={"tollhouse": 1}),
        set_claims(nonce=None),
        set_claims(nbf="later"),
        set_claims(nbf=True),
        without_signature("none"),
        without_signature("None"),
        without_signature("RS256"),
        signed_with_secret(lambda provider: provider.key.public_pem),
        signed_with_secret(lambda provider: provider.key.public["n"].encode()),
        signed_with_secret(lambda provider: provider.key.public_pem, alg="RS256"),
        signed_with_secret(lambda _: b""),
        headed(alg="RS512"),
        headed(alg="PS256"),
        headed(alg="ES256"),
        headed(alg=["RS256"]),
        headed(alg=None),
        headed(kid="of nobody"),
        headed(kid=1),
        headed(kid=["one"]),
        headed(crit=["exp"], exp=1),
        headed(crit=[]),
        headed(crit="b64"),
        headed(b64=False),
        published(use="enc"),
        published(alg="RS512"),
        published(kid="another"),
        published(kty="oct", k="c2VjcmV0"),
        published(kty="EC", crv="P-256"),
        published(n="!"),
        published(n=7),
        published(n=""),
        published(e="Ag"),
        signed_by(lambda: Key(rsa_bits=1024)),
        signed_by(lambda: Key("one", "ES256"), crv="P-384"),
        signed_by(lambda: Key("one", "ES256"), x="AA"),
        changed_after,
        forged(lambda provider, claims: provider.key.token({**claims, "pad": "x" * 65_536})),
        forged(lambda provider, claims: provider.key.token(claims) + "."),
        forged(lambda provider, claims: provider.key.token(claims) + ".AAAA.AAAA"),
        forged(lambda provider, claims: provider.key.token(claims) + "AA"),
        forged(lambda provider, claims: " " + provider.key.token(claims)),
        forged(lambda provider, claims: provider.key.token(claims) + "\n"),
        forged(lambda provider, claims: provider.key.token(claims).replace(".", ".!", 1)),
        forged(lambda provider, claims: provider.key.token([claims])),  # type: ignore[arg-type]
    ],
)
async def test_a_token_that_proves_nothing_is_refused(house: House, bend: Bend) -> None:
    """
    A token with a single wrong item is refused: audience, issuer, nonce, a time, the algorithm or the signature.
    """
    bend(house.provider)
    assert "token" == await house.sign_in()
    assert [] == (await house.server.ask("GET", "/operators")).payload["operators"]


async def test_clocks_may_differ_a_little(house: House) -> None:
    """Clocks may differ by `clock_skew` in both directions, and not by more."""
    now = house.server.clock.now()
    for claims, word in (({"exp": now - 59, "iat": now - 300}, ""), ({"iat": now + 60, "nbf": now + 60}, ""),
                         ({"exp": now - 60}, "token"), ({"iat": now + 61}, "token")):  # fmt: skip
        house.provider.claims = claims
        found = await house.sign_in()
        assert found == word or (not word and 200 == await house.status(found)), claims


async def test_an_audience_of_several_needs_the_party(house: House) -> None:
    """With several audiences, `azp` must name this client."""
    house.provider.claims = {"aud": ["another", CLIENT], "azp": CLIENT}
    assert 200 == await house.status(await house.sign_in())


@pytest.mark.proves("A token of the OpenID provider is forged, or meant for another application")
async def test_keys_are_rotated(house: House) -> None:
    """
    A token that names a new key fetches the keys again, also for another algorithm. Invented key ids cause
    no further requests.
    """
    assert 200 == await house.status(await house.sign_in())
    house.provider.key = Key("two", "ES256")
    house.provider.published = [house.provider.key]
    house.server.clock.move(31)
    assert 200 == await house.status(await house.sign_in())
    asked = house.provider.asked.count("keys")
    house.provider.header = {"kid": "made up"}
    assert ["token"] * 3 == [await house.sign_in() for _ in range(3)]
    assert 2 == asked == house.provider.asked.count("keys")


@pytest.mark.parametrize("kid", [None, "one"])
async def test_keys_are_rotated_under_the_same_id(house: House, kid: str | None) -> None:
    """
    The provider may replace a key under the same key id, or state no id. If a signature does not match, the keys
    are fetched again later.
    """
    house.provider.key = Key(kid)
    house.provider.published = [house.provider.key]
    assert 200 == await house.status(await house.sign_in())
    house.provider.key = Key(kid)
    house.provider.published = [house.provider.key]
    assert "token" == await house.sign_in()
    house.server.clock.move(31)
    assert 200 == await house.status(await house.sign_in())


@pytest.mark.proves("A sign-in code is used twice, or signs in another person")
async def test_a_code_works_once(house: House) -> None:
    """
    The code of a sign-in works once. A used code is refused by Tollhouse, and under a new state also by the
    provider.
    """
    location, cookie = await house.begin()
    brought = house.provider.code_for(location)
    assert outcome(await house.finish(brought, cookie)).startswith("tollhouse=")
    assert "state" == outcome(await house.finish(brought, cookie))
    location, cookie = await house.begin()
    state = house.provider.code_for(location)["state"]
    assert "code" == outcome(await house.finish({**brought, "state": state}, cookie))


@pytest.mark.proves("A sign-in code is used twice, or signs in another person")
async def test_a_sign_in_ends_in_the_browser_that_began_it(house: House) -> None:
    """
    Only the browser that began a sign-in may finish it. Otherwise an attacker could sign somebody in under
    the attacker's name. Expired and unknown sign-ins are refused as well.
    """
    location, cookie = await house.begin()
    assert "state" == outcome(await house.finish(house.provider.code_for(location), "tollhouse-oidc=other"))
    assert "state" == outcome(await house.finish({"state": "x", "code": "y"}, cookie))
    assert "state" == outcome(await house.finish({}, cookie))
    location, cookie = await house.begin()
    house.server.clock.move(BEGUN_LIFE_S)
    assert "state" == outcome(await house.finish(house.provider.code_for(location), cookie))


async def test_an_answer_of_another_provider_is_refused(house: House) -> None:
    """
    An answer may name its issuer (RFC 9207), which must match. An answer without a code counts as a refusal.
    """
    location, cookie = await house.begin()
    brought = {**house.provider.code_for(location), "iss": "https://evil.example"}
    assert "token" == outcome(await house.finish(brought, cookie))
    location, cookie = await house.begin()
    state = URL(location).query["state"]
    assert "denied" == outcome(await house.finish({"error": "access_denied", "state": state}, cookie))


@pytest.mark.proves("A sign-in link leads to another site")
async def test_no_parameter_redirects_the_browser_elsewhere(house: House) -> None:
    """No parameter can redirect the browser elsewhere. It always returns to the console."""
    answer = await house.get("/oidc", {"next": "https://evil.example"})
    assert 400 == answer.status
    location, cookie = await house.begin()
    brought = {
        **house.provider.code_for(location),
        "next": "//evil.example",
        "return_to": "https://evil.example",
    }
    answer = await house.finish(brought, cookie)
    assert answer.status == 303
    assert answer.headers["Location"] == "../"


@pytest.mark.proves("The provider stops answering, or answers endlessly")
@pytest.mark.parametrize("name", ["discovery", "keys", "token"])
@pytest.mark.parametrize("how", ["down", "giant"])
async def test_a_provider_that_does_not_answer_is_said(house: House, name: str, how: str) -> None:
    """Whichever address of the provider fails, nobody is signed in, and local accounts still work."""
    getattr(house.provider, how).add(name)
    assert "down" == await house.sign_in()
    await house.server.ask("POST", "/operators", {"email": "b@example.com", "password": "x" * 12})
    local = await house.server.over_http(
        "POST", "/sessions", {"email": "b@example.com", "password": "x" * 12}
    )
    assert 201 == local.status


@pytest.mark.proves("The provider stops answering, or answers endlessly")
async def test_a_slow_provider_is_given_up(house: House) -> None:
    """The provider gets `timeout` seconds. Other requests are answered meanwhile."""
    await house.reconfigure(timeout=0.2)
    house.provider.hang["keys"] = asyncio.Event()
    signing_in = asyncio.create_task(house.sign_in())
    assert 401 == await house.status("")
    assert "down" == await signing_in


@pytest.mark.proves("A sign-in link leads to another site")
@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": None},
    ],
)
async def test_a_wrong_discovery_document_is_refused(house: House, document: dict[str, Any]) -> None:
    """A discovery document with another issuer or with unsafe addresses is refused."""
    house.provider.document = document
    assert "down" == await house.sign_in()


async def test_attempts_are_limited(house: House) -> None:
    """Attempts to sign in are limited, but successful ones do not count towards the limit."""
    for _ in range(SIGN_IN_BURST + 2):
        assert 200 == await house.status(await house.sign_in())
    # use up most of the limit, which is high because many people may share this address
    house.server.services.people.shared_sign_ins.charge("provider 127.0.0.1", SHARED_BURST - 0.5)
    found = [(await house.begin())[0] for _ in range(SIGN_IN_BURST + 1)]
    assert "../#problem=attempts" == found[-1]


async def test_a_beginning_costs_less_than_a_failure(house: House) -> None:
    """An abandoned sign-in costs a part of an attempt. A refused one costs a whole attempt."""
    buckets = house.server.services.people.shared_sign_ins
    buckets.charge("provider 127.0.0.1", SHARED_BURST - 4.55)
    begun = [await house.begin() for _ in range(15)]
    assert all(location.startswith(house.provider.url) for location, _ in begun)
    for location, cookie in begun[:3]:
        state = URL(location).query["state"]
        assert "denied" == outcome(await house.finish({"error": "access_denied", "state": state}, cookie))
        # An answer to an unknown sign-in does not use up the limit, so nobody can use it up for others.
        assert "state" == outcome(await house.finish({"state": "x", "code": "y"}, cookie))
    assert "../#problem=attempts" in [(await house.begin())[0] for _ in range(6)]


async def test_who_begins_often_forgets_own_beginnings(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """If too many sign-ins have begun, the oldest one of the address with the most is dropped."""
    monkeypatch.setattr(sign_ins, "MAX_BEGUN", 3)
    location, browser = await house.oidc.begin_sign_in(address_group="owner")
    for _ in range(5):
        await house.oidc.begin_sign_in(address_group="stranger")
    brought = house.provider.code_for(location)
    assert outcome(await house.finish(brought, f"tollhouse-oidc={browser}")).startswith("tollhouse=")


@pytest.mark.proves("A person who left the organization stays signed in")
async def test_the_provider_ends_sessions(house: House) -> None:
    """
    The provider can end sessions with a logout token, which names the sign-in or the person. Each logout token
    works only once.
    """
    first = await house.sign_in()
    house.provider.claims = {"sid": "s2"}
    second = await house.sign_in()
    assert 200 == await house.log_out(house.provider.logout_token(sid="s1"))
    assert await house.status(first) == 401
    assert await house.status(second) == 200
    token = house.provider.logout_token()
    assert await house.log_out(token) == 200
    assert await house.status(second) == 401
    third = await house.sign_in()
    assert await house.log_out(token) == 400
    assert await house.status(third) == 200
    ended = (await house.server.ask("GET", "/audit", action="session.end")).payload["audit"]
    assert {("OpenID provider", "127.0.0.1", ADA)} == {
        (row["actor"], row["address"], row["target"]) for row in ended
    }


@pytest.mark.parametrize("named", [{}, {"sid": "s1"}], ids=["by the person", "by the sign-in"])
async def test_logout_token_repeated_after_a_restart_ends_no_new_session(
    house: House, named: dict[str, str]
) -> None:
    """
    After a restart, it is forgotten that a logout token was used. If the token arrives again, sessions that began
    after it was issued still stay.
    """
    before = await house.sign_in()
    token = house.provider.logout_token(**named)
    assert await house.log_out(token) == 200
    assert await house.status(before) == 401
    house.server.clock.move(house.oidc.settings.clock_skew + 1)
    after = await house.sign_in()
    await house.reconfigure()  # this simulates a restart, which loses the state in memory
    assert await house.log_out(token) == 200
    assert await house.status(after) == 200
    assert await house.log_out(house.provider.logout_token(**named)) == 200
    assert await house.status(after) == 401


NO_LOGOUTS: Sequence[dict[str, Any]] = [
    {"events": None},
    {"events": {"another": {}}},
    {"nonce": "n"},
    {"sub": None},
    {"jti": None},
    {"aud": "another"},
    {"iss": "https://evil.example"},
    {"iat": 1_789_999_000, "exp": None},
    {"exp": 1_789_999_900},
    {"sid": 7},
]


@pytest.mark.proves("Somebody ends the sessions of others")
async def test_a_token_that_is_no_logout_ends_nothing(house: House) -> None:
    """
    An ID token is refused, and so is a token without the logout event, with a nonce, or that has expired.
    """
    cookie = await house.sign_in()
    for changes in NO_LOGOUTS:
        assert 400 == await house.log_out(house.provider.logout_token(**changes)), changes
        assert 200 == await house.status(cookie), changes


async def test_a_logout_needs_a_token(house: House) -> None:
    """A logout request with an invalid token or media type is refused."""
    assert 400 == await house.log_out("x")
    assert 415 == (await house.server.over_http("POST", "/oidc-logout", {})).status
    assert 400 == await house.log_out(house.provider.key.token(house.provider.id_claims()))


async def test_recheck_queries_the_provider_whether_a_session_may_continue(house: House) -> None:
    """
    Each `recheck` interval uses the provider's last refresh token. A session continues while the
    provider is down.
    """
    house.provider.refresh_token = "r"
    cookie = await house.sign_in()
    asked = house.provider.asked.count("token")
    await house.oidc.end_unconfirmed_sessions()
    assert asked == house.provider.asked.count("token")
    for _ in range(2):
        house.server.clock.move(900)
        await house.oidc.end_unconfirmed_sessions()
        assert 200 == await house.status(cookie)
    assert asked + 2 == house.provider.asked.count("token")
    house.provider.down.add("token")
    house.server.clock.move(900)
    await house.oidc.end_unconfirmed_sessions()
    assert 200 == await house.status(cookie)


@pytest.mark.proves("A person who left the organization stays signed in")
@pytest.mark.parametrize("what", ["gone", "group", "role", "restart"])
async def test_what_changed_at_the_provider_ends_the_session(house: House, what: str) -> None:
    """
    A deleted account, changed groups or a changed role ends the session. So does a restart, because the
    refresh token is never on disk.
    """
    await house.reconfigure(allowed_groups=("all",), roles={"boss": "admin"})
    house.provider.claims = {"groups": ["all", "boss"]}
    house.provider.refresh_token = "r"
    cookie = await house.sign_in()
    if what == "gone":
        house.provider.is_gone = True
    elif what == "restart":
        await house.reconfigure()
        await house.oidc.end_unconfirmed_sessions()
        assert 200 == await house.status(cookie)
    else:
        house.provider.claims = {"groups": ["boss"] if what == "group" else ["all"]}
    house.server.clock.move(901 + GRACE_S if what == "restart" else 900)
    await house.oidc.end_unconfirmed_sessions()
    assert 401 == await house.status(cookie)


async def test_a_session_of_another_gateway_is_checked_there(house: House) -> None:
    """
    Only the gateway with the refresh token can check, and it notes until when the check is valid. If it goes
    silent, the others end the session.
    """
    house.provider.refresh_token = "r"
    cookie = await house.sign_in()
    holder = house.oidc
    others = [ProviderSignIns(holder.settings, house.server.registry, house.server.clock) for _ in range(2)]

    async def others_look(after_s: float) -> int:
        house.server.clock.move(after_s)
        for other in others:
            await other.end_unconfirmed_sessions()
        return await house.status(cookie)

    for _ in range(2):
        assert 200 == await others_look(900)  # the check is due now, and the next line runs it
        await holder.end_unconfirmed_sessions()
    assert 200 == await others_look(900 + GRACE_S)
    assert 401 == await others_look(1)
    await holder.end_unconfirmed_sessions()
    audit = (await house.server.ask("GET", "/audit", action="session.end")).payload["audit"]
    assert [("OpenID provider", ADA)] == [(row["actor"], row["target"]) for row in audit]
    for other in others:
        await other.close()


async def test_notes_about_checks_of_ended_sessions_are_deleted(house: House) -> None:
    """Notes about checks of ended sessions are deleted with the next check of any session."""
    house.provider.refresh_token = "r"
    operators, noted = house.server.registry.operators, []
    for _ in range(2):
        await house.sign_in()
        house.server.clock.move(900)
        await house.oidc.end_unconfirmed_sessions()
        [session] = await operators.live_sessions()
        noted.append(list(await operators.check_claim_ends_by_session()) == [session.digest])
        await operators.sign_out(session)
    assert [True, True] == noted


@pytest.mark.proves("The default role of the OpenID provider grants what a role denies")
async def test_a_group_of_a_role_signs_in_without_a_role_of_its_own(house: House) -> None:
    """
    A person without a role of their own, whose group is in a role, can sign in and gets exactly the rights of this
    role at once. A recheck does not end the session.
    """
    await house.reconfigure(roles={"boss": "admin"})
    draft = NewRole(name="Finance", data_access=FULL, permission_sets=(VIEW_COSTS,), groups=("finance",))
    role = await house.server.registry.roles.create(
        draft, known_dimensions=(), limits=RoleLimits(), actor=ROOT
    )
    house.provider.claims = {"groups": ["finance"]}
    house.provider.refresh_token = "r"
    cookie = await house.sign_in()
    assert "none" == (await house.operator())["role"]
    assert [200, 403] == [(await house.get(path, cookie=cookie)).status for path in ("/report", "/status")]
    house.server.clock.move(900)
    await house.oidc.end_unconfirmed_sessions()
    assert 200 == (await house.get("/report", cookie=cookie)).status
    await house.server.registry.roles.change(
        role.id, {"groups": ("others",)}, known_dimensions=(), limits=RoleLimits(), actor=ROOT
    )
    assert [200, 403] == [(await house.get(path, cookie=cookie)).status for path in ("/session", "/report")]
    house.provider.claims = {"groups": ["finance", "boss"]}
    await house.sign_in()
    assert "admin" == (await house.operator())["role"]


@pytest.mark.proves("The default role of the OpenID provider grants what a role denies")
async def test_new_role_replaces_the_default_role_in_live_sessions(house: House) -> None:
    """
    A new role replaces the default role with the next request, even in a session from before the role. A role
    that a group gives stays.
    """
    await house.reconfigure(roles={"boss": "admin"}, default_role="viewer")
    root, before = house.server, await house.sign_in()
    assert [200, 200] == [(await house.get(path, cookie=before)).status for path in ("/report", "/status")]
    draft = {"name": "Finance", "data_access": "none", "permission_sets": ["view_costs"], "members": [ADA]}
    tried = await root.ask("POST", "/roles/preview", {"person": ADA, "role": draft})
    assert tried.payload["preview"]["roles"] == ["Finance"]
    assert tried.payload["preview"]["data_access"] == "none"
    made = await root.ask("POST", "/roles", draft)
    assert 201 == made.status, made.payload
    assert [200, 403] == [(await house.get(path, cookie=before)).status for path in ("/report", "/status")]
    shown = await root.ask("POST", "/roles/preview", {"person": ADA})
    assert ["Finance"] == shown.payload["preview"]["roles"]
    house.provider.claims = {"groups": ["boss"]}
    mapped = await house.sign_in()
    assert [200, 200] == [(await house.get(path, cookie=mapped)).status for path in ("/report", "/status")]


async def test_nobody_ends_his_own_administration_with_a_new_role(house: House) -> None:
    """
    A role that names the person would replace the default role, their only right to administer. So it is refused.
    """
    await house.reconfigure(roles={"boss": "admin"}, default_role="admin")
    cookie = await house.sign_in()
    session = await house.server.over_http("GET", "/session", headers={"Cookie": cookie})
    headers = {"Cookie": cookie, CSRF_HEADER: session.payload["session"]["csrf_token"]}
    draft = {"name": "Finance", "data_access": "none", "members": [ADA]}
    refused = await house.server.over_http("POST", "/roles", draft, headers=headers)
    assert refused.status == 409
    assert "own right to administer" in str(refused.payload)
    assert 200 == (await house.get("/roles", cookie=cookie)).status


async def test_a_session_lasts_as_long_as_the_settings_say(house: House) -> None:
    """A session ends after the time that the settings state, to the second, even if it is in use."""
    await house.reconfigure(session=1800.0)
    cookie = await house.sign_in()
    house.server.clock.move(1799)
    assert 200 == await house.status(cookie)
    house.server.clock.move(1)
    assert 401 == await house.status(cookie)


async def test_the_sign_in_page_learns_the_ways(house: House) -> None:
    """
    The sign-in page gets the provider's name for its button and a sentence for each problem. Without a provider it
    gets neither.
    """
    ways = await house.server.over_http("GET", "/sign-in-ways")
    assert {"provider": {"name": "OpenID"}, "problems": dict(PROBLEMS)} == ways.payload
    house.server.services.people.oidc = None
    assert (await house.server.over_http("GET", "/sign-in-ways")).payload["provider"] is None
    assert "../#problem=off" == (await house.begin())[0]
    assert "off" == outcome(await house.finish({}, ""))
    assert 404 == await house.log_out("x")
