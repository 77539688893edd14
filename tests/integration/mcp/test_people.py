"""
People whose assistants sign in with the organization's identity provider: access, and what each person sees.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.people.authentication.oidc.provider import AGAIN_S, KEEP_S, missing_client_features
from spool.registry.operators import Operator, Person
from spool.registry.roles import RoleLimits
from spool.registry.scopes import AI_HUB
from tests.integration.conftest import ACTOR, Serve
from tests.integration.mcp.people import ADA, EVE, METADATA, RESOURCE, Door, open_door
from tests.openid_provider import CLIENT, Key, OpenIdProvider
from tests.spool.contract.examples import add, call
from tests.spool.kept import audit_rows

CHALLENGE = f'Bearer resource_metadata="{METADATA}", scope="tollhouse.read"'
WELL_KNOWN = "/.well-known/oauth-protected-resource"
WRITES = {"log_insight": True, "set_org_context": True}


@pytest_asyncio.fixture
async def door(serve: Serve, tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(serve, tmp_path, oidc={"default_role": "viewer"}) as opened:
        yield opened


async def calls(door: Door, **cost_of: str) -> None:
    log, at = door.serving.app.services.operators.spool.log, door.clock.now() - 60
    for number, (team, cost) in enumerate(cost_of.items()):
        await add(log, call(number, at=at, team=team, cost=cost, cost_source="reported"))


# -- how a client finds the provider ---------------------------------------------------------------------------


async def test_a_client_finds_the_provider(door: Door) -> None:
    """
    Clients find the identity provider in a document that is the same at the resource's address and at the root, and
    readable from every origin.
    """
    found = [
        await door.serving.send(WELL_KNOWN + path, b"", None, method=method, key=None)
        for path in ("/mcp", "")
        for method in ("GET", "HEAD", "OPTIONS")
    ]
    assert [200, 200, 204] * 2 == [each.status for each in found]
    assert found[0].body == found[3].body
    assert {
        "resource": RESOURCE, "authorization_servers": [door.provider.url], "scopes_supported": ["tollhouse.read"],
        "bearer_methods_supported": ["header"], "resource_name": "Tollhouse",
    } == json.loads(found[0].body)  # fmt: skip
    assert all("*" == each.headers["Access-Control-Allow-Origin"] for each in found)
    assert 404 == (await door.serving.send(f"{WELL_KNOWN}/other", b"", None, method="GET", key=None)).status


async def test_request_without_credentials_is_challenged_before_its_body_is_checked(door: Door) -> None:
    """
    A request without credentials is challenged before its body is checked, because clients probe with invalid
    bodies. A wrong key starts no sign-in.
    """
    for body, content_type in ((b"{}", "application/json"), (b"", None), (b"nonsense", "text/plain")):
        answer = await door.serving.send("/mcp", body, content_type, key=None)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == CHALLENGE
    for headers in (
        {"Authorization": "th_wrong"},
        {"Authorization": "Bearer th_wrong"},
        {"X-Api-Key": "a.b.c"},
    ):
        answer = await door.post({}, None, headers)
        assert answer.status == 401
        assert "WWW-Authenticate" not in answer.headers


async def test_keys_go_on_working(door: Door) -> None:
    """
    If people sign in, keys still work: a key sees all data. X-Api-Key takes precedence over a token in the same
    request.
    """
    await calls(door, search="3", chat="4")
    key = await door.serving.make_key("assistant", scopes=[AI_HUB])
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert 200 == (await door.post(body, None, {"Authorization": key})).status
    assert 200 == (await door.post(body, "a.b.c", {"X-Api-Key": key})).status


@pytest.mark.parametrize("path", ["/mcp", "/mcp/people"])
async def test_off_nothing_is_there(serve: Serve, path: str) -> None:
    """Without a configured resource there is no challenge and no document. Only keys work."""
    serving = await serve()
    nowhere = await serving.send("/nowhere", b"", None, method="GET", key=None)
    document = await serving.send(WELL_KNOWN + path, b"", None, method="GET", key=None)
    assert document.status == 404
    assert nowhere.body == document.body
    answer = await serving.send(path, b"{}", key=None)
    assert answer.status == 401
    assert b"missing_key" in answer.body
    assert "WWW-Authenticate" not in answer.headers


async def test_people_may_have_an_address_of_their_own(serve: Serve, tmp_path: Path) -> None:
    """
    With a separate address for people, /mcp accepts only keys, and no document at the root makes its
    clients sign in.
    """
    async with open_door(serve, tmp_path, oauth={"resource": f"{RESOURCE}/people"}) as door:
        door.provider.resource = f"{RESOURCE}/people"
        statuses = [
            (await door.serving.send(WELL_KNOWN + path, b"", None, method="GET", key=None)).status
            for path in ("", "/mcp", "/mcp/people")
        ]
        assert [404, 404, 200] == statuses
        assert "WWW-Authenticate" not in (await door.post({}, None)).headers
        answer = await door.post({}, None, path="/mcp/people")
        assert f'{METADATA}/people"' in answer.headers["WWW-Authenticate"]
        await door.limit(ADA, "search")
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        token = door.provider.access_token()
        assert [401, 200] == [
            (await door.post(body, token, path=path)).status for path in ("/mcp", "/mcp/people")
        ]


# -- invalid tokens -------------------------------------------------------------------------------------------

Forge = Callable[[OpenIdProvider], str]


def claiming(**claims: Any) -> Forge:
    return lambda provider: provider.access_token(**claims)


def by_another_key(provider: OpenIdProvider) -> str:
    return Key("one").token(provider.access_claims(), typ="at+jwt")


def headed(typ: str | None = "at+jwt", **header: Any) -> Forge:
    def forge(provider: OpenIdProvider) -> str:
        provider.header = header
        return provider.access_token(typ=typ)

    return forge


NOW = 1_790_000_000
FORGED: dict[str, Forge] = {
    "an ID token": lambda provider: provider.key.token(provider.id_claims(), typ="JWT"),
    "an ID token for the resource": claiming(at_hash="x"),
    "an ID token of Keycloak": claiming(typ="ID"),
    "another audience": claiming(aud="https://other.example.com/mcp"),
    "the console's client": claiming(aud=CLIENT),
    "no audience": claiming(aud=None),
    "a part of the audience": claiming(aud="https://tollhouse.example.com"),
    "another issuer": claiming(iss="https://evil.example"),
    "bound to a key": claiming(cnf={"jkt": "x"}),
    "over": claiming(exp=NOW - 60),
    "from the future": claiming(iat=NOW + 61, exp=NOW + 100),
    "not yet good": claiming(nbf=NOW + 61),
    "no end": claiming(exp=None),
    "no beginning": claiming(iat=None),
    "a long life": claiming(iat=NOW, exp=NOW + 86_401),
    "nobody": claiming(sub=None),
    "by another key": by_another_key,
    "no signature": headed(alg="none"),
    "a shared secret": headed(alg="HS256"),
    "an unknown extension": headed(crit=["exp"]),
    "no type": headed(typ=None),
    "a logout token": headed(typ="logout+jwt"),
    "too long": claiming(pad="x" * 12_300),
    "two parts": lambda _: "a.b",
    "opaque": lambda _: "opaque",
}


@pytest.mark.proves(
    "A token for another purpose, or of a person who lost a right, opens the tools of assistants"
)
async def test_a_token_that_proves_nothing_is_refused(door: Door) -> None:
    """
    An invalid token gets a 401 that names the failed check and quotes nothing of the token. No operator is added.
    """
    for name, forge in FORGED.items():
        door.provider.header = {}
        answer = await door.ask(forge(door.provider))
        challenge = answer.headers["WWW-Authenticate"]
        assert answer.status == 401, name
        assert 'error="invalid_token"' in challenge, name
        assert METADATA in challenge and "evil" not in challenge and "other.example" not in challenge, name
        assert [] == await door.registry.operators.all(), name


GOOD_CLAIMS: Sequence[dict[str, Any]] = [
    {"aud": ["another", RESOURCE]}, {"exp": NOW - 59, "iat": NOW - 100}, {"iat": NOW + 60, "nbf": NOW + 60},
    {"exp": NOW + 86_400, "iat": NOW}, {"scope": None, "scp": ["tollhouse.read"]},
    {"scope": "openid tollhouse.read"}, {"nonce": "n"}, {"client_id": None, "azp": "a"}, {"pad": "x" * 11_000},
]  # fmt: skip


async def test_a_good_token_opens_the_tools(door: Door) -> None:
    """Tokens are accepted at the limits of clock tolerance and at the maximum header size."""
    for claims in GOOD_CLAIMS:
        assert 200 == (await door.ask(door.provider.access_token(**claims))).status, claims


async def test_a_token_opens_the_tools_alone(door: Door) -> None:
    """Only the address of the tools accepts a token. No address accepts a token in the query or as a key."""
    token = door.provider.access_token()
    for path in ("/v2/insights", "/v2/billing/costs", "/v1/events"):
        answer = await door.serving.send(
            path, b"", None, method="GET", headers={"Authorization": f"Bearer {token}"}
        )
        assert 401 == answer.status, path
    assert 401 == (await door.post({}, None, path=f"/mcp?access_token={token}")).status
    assert 401 == (await door.post({}, None, {"X-Api-Key": token})).status


async def test_only_named_clients_come_in(serve: Serve, tmp_path: Path) -> None:
    async with open_door(
        serve, tmp_path, oauth={"clients": ("assistant",)}, oidc={"default_role": "viewer"}
    ) as door:
        statuses = [
            (await door.ask(door.provider.access_token(client_id=client))).status
            for client in ("assistant", "other", None)
        ]
        assert [200, 401, 401] == statuses


async def test_new_keys_of_the_provider_are_found_and_old_ones_last_an_hour(door: Door) -> None:
    """
    If the provider is down, known keys keep working for an hour. Without keys the answer is 503, because a
    new sign-in would not help.
    """
    assert 200 == (await door.ask(door.provider.access_token())).status
    door.provider.down = {"keys"}
    assert 200 == (await door.ask(door.provider.access_token())).status
    door.clock.move(KEEP_S + 1)
    answer = await door.ask(door.provider.access_token())
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "30"
    door.provider.down, door.provider.key = set(), Key("two", "ES256")
    door.provider.published = [door.provider.key]
    door.clock.move(AGAIN_S + 1)
    assert 200 == (await door.ask(door.provider.access_token())).status


# -- who the person is, and what each sees --------------------------------------------------------------------


@pytest.mark.proves(
    "A token for another purpose, or of a person who lost a right, opens the tools of assistants"
)
async def test_two_people_get_their_own_answers(door: Door) -> None:
    """
    If two people send the same query at the same moment, each gets the answer for their own role. A removed role
    takes effect with the next message.
    """
    await calls(door, search="3", chat="4")
    ada, eve = door.provider.access_token(), door.provider.access_token(sub="eve-2", email=EVE)
    role = await door.limit(EVE, "chat")
    await door.registry.operators.add_person(
        _person(door, EVE, "eve-2"), address="", takes_over_accounts=False
    )
    await door.registry.operators.change(EVE, role="none", actor=ACTOR)
    assert ({"search": "3.000000", "chat": "4.000000"}, {"chat": "4.000000"}) == tuple(
        [
            {team: f"{float(cost):.6f}" for team, cost in (await door.teams(each)).items()}
            for each in (ada, eve)
        ]
    )
    listed = [json.loads((await door.ask(each)).body)["result"]["tools"] for each in (ada, eve)]
    assert len(listed[0]) > len(listed[1])
    await door.registry.roles.change(
        role, {"members": ()}, version=None, known_dimensions=("team",), limits=RoleLimits(), actor=ACTOR
    )
    answer = await door.ask(eve)
    assert answer.status == 403
    assert "WWW-Authenticate" not in answer.headers
    assert 200 == (await door.ask(ada)).status


def _person(door: Door, email: str, subject: str) -> Person:
    return Person(email=email, role="viewer", decides_role=False, issuer=door.provider.url, subject=subject)


async def only(door: Door) -> Operator:
    [operator] = await door.registry.operators.all()
    return operator


async def test_a_first_token_adds_the_operator(door: Door) -> None:
    """
    The first token of a person adds an operator and an audit row, the same as after a first sign-in to the console.
    """
    assert 200 == (await door.ask(door.provider.access_token())).status
    operator = await only(door)
    assert operator.email == ADA
    assert operator.role == "viewer"
    assert operator.subject == "ada-1"
    rows = await audit_rows(door.registry)
    assert ["operator.add"] == [row.action for row in rows if row.target == ADA]
    answer = await door.ask(door.provider.access_token(sub="x", email=None))
    assert answer.status == 403
    assert b"sign in to the console once" in answer.body


async def test_a_disabled_operator_is_out_and_a_removed_one_stays_out(door: Door) -> None:
    """
    A disabled and a removed operator lose access with the next message. Only a token from a later sign-in
    restores a removed operator.
    """
    token = door.provider.access_token()
    await door.ask(token)
    await door.registry.operators.change(ADA, disabled=True, actor=ACTOR)
    answer = await door.ask(token)
    assert answer.status == 403
    assert "WWW-Authenticate" not in answer.headers
    await door.registry.operators.change(ADA, disabled=False, actor=ACTOR)
    assert 200 == (await door.ask(token)).status
    await door.registry.operators.remove(ADA, actor=ACTOR)
    assert 401 == (await door.ask(token)).status
    door.clock.move(61)
    assert 200 == (await door.ask(door.provider.access_token())).status


@pytest.mark.proves(
    "A token for another purpose, or of a person who lost a right, opens the tools of assistants"
)
@pytest.mark.parametrize(
    ("ended", "token", "status"),
    [({"sid": "s1"}, {}, 401), ({"sid": "s2"}, {}, 200), ({"sid": "s1"}, {"sid": None}, 401),
     ({}, {}, 401), ({}, {"sid": None}, 401), ({"sub": None, "sid": "s1"}, {}, 401)],
)  # fmt: skip
async def test_a_logout_ends_tokens(
    door: Door, ended: dict[str, Any], token: dict[str, Any], status: int
) -> None:
    """
    A logout ends the tokens of the sign-in, or all tokens of the person. A token without a sign-in id counts
    as part of it.
    """
    kept = door.provider.access_token(**token)
    assert 200 == (await door.ask(kept)).status
    people = door.serving.app.services.operators.people.oidc
    assert people is not None
    await people.end_sessions_of_logout_token(door.provider.logout_token(**ended))
    assert status == (await door.ask(kept)).status
    door.clock.move(1)
    assert 200 == (await door.ask(door.provider.access_token(sid="later"))).status


async def test_groups_that_a_token_does_not_say_open_nothing(serve: Serve, tmp_path: Path) -> None:
    """
    If roles depend on groups and the token has none, access is refused. Otherwise the default role could show
    what a group hides.
    """
    oidc = {"default_role": "viewer", "roles": {"ops": "operator"}}
    async with open_door(serve, tmp_path, oidc=oidc) as door:
        await calls(door, search="3", chat="4")
        await door.limit("", "chat", groups=("chat-people",))
        token = door.provider.access_token
        assert ["chat"] == list(await door.teams(token(groups=["chat-people"])))
        assert (
            403 == (await door.ask(token())).status
        )  # the person is known by now, but a token without groups is still refused
        assert 403 == (await door.ask(token(sub="eve-2", email=EVE))).status
        for sign in ({"_claim_names": {"groups": "src1"}}, {"hasgroups": True}):
            assert 403 == (await door.ask(token(groups=["ops"], **sign))).status
        assert 200 == (await door.ask(token(sub="eve-2", email=EVE, groups=["ops"]))).status
        await door.registry.operators.change(EVE, role="viewer", actor=ACTOR)
        listed = json.loads((await door.ask(token(sub="eve-2", email=EVE, groups=["ops"]))).body)
        assert "log_insight" not in {tool["name"] for tool in listed["result"]["tools"]}


# -- scopes, limits and accounting ----------------------------------------------------------------------------


async def test_writing_requires_a_scope_and_a_role(serve: Serve, tmp_path: Path) -> None:
    """
    A read-only token gets 403 with the scope to request. If the role forbids writing, the tool answers in
    words, because no new token would help.
    """
    async with open_door(serve, tmp_path, oidc={"default_role": "operator"}, mcp={"tools": WRITES}) as door:
        token = door.provider.access_token
        listed = json.loads((await door.ask(token())).body)["result"]["tools"]
        assert "log_insight" in {tool["name"] for tool in listed}
        asked = {"name": "log_insight", "arguments": {"title": "Look"}}
        answer = await door.ask(token(), "tools/call", **asked)
        challenge = answer.headers["WWW-Authenticate"]
        assert answer.status == 403
        assert 'scope="tollhouse.read tollhouse.write"' in challenge
        assert 'error="insufficient_scope"' in challenge and METADATA in challenge
        assert "allows only reading" in json.loads(answer.body)["error"]["message"]
        answer = await door.ask(token(scope="other"))
        assert answer.status == 403
        assert 'scope="tollhouse.read"' in answer.headers["WWW-Authenticate"]
        written = await door.call(token(scope="tollhouse.write"), "log_insight", title="Look")
        assert not written["isError"]
        [row] = [row for row in await audit_rows(door.registry) if row.action.startswith("insight.")]
        assert row.actor == ADA
        assert row.address.endswith(" assistant")
        await door.registry.operators.change(ADA, role="viewer", actor=ACTOR)
        closed = await door.call(token(scope="tollhouse.write"), "log_insight", title="Look")
        assert closed["isError"] and "permission set" in closed["content"][0]["text"]


async def test_a_person_has_one_limit_for_all_tokens(serve: Serve, tmp_path: Path) -> None:
    """All tokens of a person share one limit. A colleague has a separate limit."""
    async with open_door(
        serve, tmp_path, oidc={"default_role": "viewer"}, mcp={"calls_per_minute": 1, "daily_calls": 0}
    ) as door:
        token = door.provider.access_token
        asked = {"name": "get_reference_info", "arguments": {"reference_type": "measures"}}
        statuses = [
            (await door.ask(each, "tools/call", **asked)).status
            for each in (token(), token(jti="2", client_id="b"), token(sub="eve-2", email=EVE))
        ]
        assert [200, 429, 200] == statuses


async def test_what_came_of_tokens_is_counted(door: Door) -> None:
    await door.ask(door.provider.access_token())
    await door.ask(door.provider.access_token(aud="other"))
    shown = (await door.serving.send("/metrics", b"", None, method="GET")).body.decode()
    assert 'tollhouse_mcp_tokens_total{outcome="admitted"} 1.0' in shown
    assert 'tollhouse_mcp_tokens_total{outcome="invalid"} 1.0' in shown


async def test_check_says_what_clients_will_miss(door: Door) -> None:
    """`check` writes a sentence for each thing that the provider's document lacks."""
    oidc = door.serving.app.services.operators.people.oidc
    assert oidc is not None

    async def missing(**document: Any) -> int:
        door.provider.document = document
        return len(await missing_client_features(oidc.settings, clock=door.clock))

    whole = {
        "code_challenge_methods_supported": ["S256"], "registration_endpoint": "x",
        "authorization_response_iss_parameter_supported": True,
    }  # fmt: skip
    assert [3, 0] == [await missing(), await missing(**whole)]
    assert 1 == await missing(**{**whole, "code_challenge_methods_supported": ["plain"]})
    door.provider.down = {"discovery"}
    assert 0 == await missing()
