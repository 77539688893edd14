"""
Access to the operator API as a browser meets it: accounts, links, sessions, CSRF, Host, Origin and roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from gateway.core.paths import OPERATOR_API
from gateway.operations.holders.operators import ACCOUNT_BURST, SIGN_IN_BURST
from gateway.operations.people.accounts import NewOperator
from gateway.operations.requests import admission
from gateway.operations.requests.requests import read_json_body
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool.registry.operators import SESSION_IDLE_S, SESSION_LIFE_S, Actor
from spool.registry.permission_sets import PERMISSION_SETS, VIEW_COSTS, VIEW_OPERATION
from spool.registry.roles import FULL, NewRole, RoleLimits
from tests.integration.operations.server import ADA, INGEST, Answer, OperatorServer, operator_server

PASSWORD = "correct horse battery"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(
        tmp_path, hosts=frozenset({"gateway.example.com"}), proxies=["127.0.0.1"]
    ) as server:
        yield server


async def account(server: OperatorServer, role: str = "admin", email: str = ADA) -> None:
    answer = await server.ask("POST", "/operators", {"email": email, "password": PASSWORD, "role": role})
    assert 201 == answer.status, answer.payload


async def signed_in(server: OperatorServer, role: str = "admin", email: str = ADA) -> dict[str, str]:
    """Sign in; return the headers of the browser."""
    await account(server, role, email)
    answer = await server.over_http("POST", "/sessions", {"email": email, "password": PASSWORD})
    assert 201 == answer.status, answer.payload
    return headers_of(answer)


def headers_of(answer: Answer) -> dict[str, str]:
    return {
        "Cookie": f"tollhouse={answer.cookies['tollhouse'].value}",
        "X-CSRF-Token": answer.payload["session"]["csrf_token"],
    }


@pytest.mark.proves("A console user makes the server read or write files of a chosen path")
async def test_a_session_opens_the_api_until_it_is_signed_out(server: OperatorServer) -> None:
    """
    A session opens the API until it is signed out. A change carries the operator's name. The cookie is hidden from
    scripts, and its path is the API's folder.
    """
    await account(server)
    answer = await server.over_http("POST", "/sessions", {"email": ADA.upper(), "password": PASSWORD})
    cookie, headers = answer.cookies["tollhouse"], headers_of(answer)
    assert cookie["httponly"] is True
    assert cookie["samesite"] == "Strict"
    assert cookie["path"] == ""
    assert "no-store" == answer.headers["Cache-Control"]
    created = await server.over_http("POST", "/keys", {"name": "abc", "scopes": [INGEST]}, headers=headers)
    assert ADA == created.payload["key"]["created_by"]
    session = (await server.over_http("GET", "/session", headers=headers)).payload["session"]
    assert session["actor"] == ADA
    assert session["role"] == "admin"
    assert headers["X-CSRF-Token"] == session["csrf_token"]
    for path, body in (
        ("/backup", {"directory": "/tmp/stolen"}),
        ("/statements", {"files": ["/etc/passwd"]}),
    ):
        # These calls name files on the server's machine, so every role needs the socket for them.
        answer = await server.over_http("POST", path, body, headers=headers)
        assert (403, "socket_only") == answer.error[:2]
    assert 200 == (await server.over_http("DELETE", "/session", headers=headers)).status
    assert 401 == (await server.over_http("GET", "/keys", headers=headers)).status


async def test_nothing_opens_without_a_session(server: OperatorServer) -> None:
    """Without a session, every call except the sign-in answers 401, whatever is wrong with its body."""
    wrong = ({"Content-Type": "text/nonsense"}, {"Content-Encoding": "rot13"})
    async with aiohttp.ClientSession() as nobody:
        for row in OPERATOR_ADDRESSES:
            path = server.url + row.documented_path.format(**dict.fromkeys(row.path_parameters, "1"))
            for headers in () if row.needs is None else wrong if row.body else ({},):
                request = nobody.request(
                    row.methods[0], path, data=b"x" if headers else None, headers=headers
                )
                async with request as answer:
                    assert 401 == answer.status, (row.methods, path)
                    assert "signed_out" == (await answer.json())["error"]["type"]


async def test_a_made_up_cookie_opens_nothing(server: OperatorServer) -> None:
    """
    A made-up cookie opens nothing. The header that is used on the socket opens nothing over HTTP either. No answer
    reveals the Tollhouse version.
    """
    for headers in (*({"Cookie": each} for each in ("tollhouse=guess", "tollhouse=", "other=1")),
                    {"X-Tollhouse-As": "root"}):  # fmt: skip
        answer = await server.over_http("GET", "/keys", headers=headers)
        assert answer.status == 401
        assert answer.headers["Server"] == "tollhouse"


CHANGES_NOTHING: tuple[tuple[Mapping[str, str | None], int, str], ...] = (
    *(({"X-CSRF-Token": token}, 403, "csrf") for token in (None, "", "wrong", "ü")),
    *(
        ({"Origin": origin}, 403, "foreign_origin")
        for origin in ("https://evil.example.com", "null", "http://[")
    ),
    ({"Sec-Fetch-Site": "cross-site"}, 403, "foreign_origin"),
    *(
        ({"Content-Type": kind}, 415, "unsupported_media_type")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
    ),
)


@pytest.mark.proves("A web page in an operator's browser changes something")
async def test_a_page_elsewhere_changes_nothing(server: OperatorServer) -> None:
    """
    Token, Origin, Sec-Fetch-Site and media type are checked, also for the sign-in (login CSRF). Reads do
    not need them.
    """
    signed, body = await signed_in(server), {"name": "abc", "scopes": [INGEST]}
    over_tls = (
        {"Origin": server.url.replace("http:", "https:")},
        403,
        "foreign_origin",
    )  # the page itself is plain HTTP
    for foreign, status, type in (*CHANGES_NOTHING, over_tls):
        headers = {name: value for name, value in {**signed, **foreign}.items() if value is not None}
        answer = await server.over_http("POST", "/keys", body, headers=headers)
        assert (status, type) == answer.error[:2], foreign
        if type == "foreign_origin":
            given = {name: str(value) for name, value in foreign.items()}
            credentials = {"email": ADA, "password": PASSWORD}
            answer = await server.over_http("POST", "/sessions", credentials, headers=given)
            assert (status, type) == answer.error[:2], foreign
    assert 200 == (await server.over_http("GET", "/keys", headers={"Cookie": signed["Cookie"]})).status
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert 201 == (await server.over_http("POST", "/keys", body, headers={**signed, **own})).status


@pytest.mark.proves("A web page in an operator's browser changes something")
async def test_a_rebound_host_name_gets_nothing(server: OperatorServer) -> None:
    """
    Against DNS rebinding, only IP addresses, localhost and configured names are accepted as host. Requests to
    them get 401, because they have no session. All other hosts get 403.
    """
    for host in ("127.0.0.1:4318", "[::1]:4318", "localhost", "gateway.example.com:4318"):
        assert 401 == (await server.over_http("GET", "/keys", headers={"Host": host})).status, host
    for host in ("evil.example.com", "localhost.evil.example.com", "127.0.0.1.evil.example.com", ""):
        assert 403 == (await server.over_http("GET", "/keys", headers={"Host": host})).status, host


async def test_a_wrong_key_is_refused_with_a_reason(server: OperatorServer) -> None:
    """A wrong password and an unknown account get the same answer."""
    await account(server)
    wrong = await server.over_http("POST", "/sessions", {"email": ADA, "password": "x" * 12})
    unknown = await server.over_http("POST", "/sessions", {"email": "eve@example.com", "password": PASSWORD})
    assert (401, "sign_in", "the e-mail or the password is wrong") == wrong.error == unknown.error


@pytest.mark.proves("Somebody guesses a password, or locks an operator out by guessing")
async def test_wrong_passwords_are_limited(server: OperatorServer) -> None:
    """After a burst of wrong passwords, even the right one has to wait. Right passwords do not count."""
    await account(server)
    for _ in range(SIGN_IN_BURST + 5):
        assert 201 == (await tried(server, PASSWORD)).status
    statuses = [(await tried(server, "x" * 12)).status for _ in range(SIGN_IN_BURST)]
    assert [401] * SIGN_IN_BURST == statuses
    limited = await tried(server, PASSWORD)
    assert (429, "too_many_attempts") == limited.error[:2]
    server.clock.move(int(limited.headers["Retry-After"]))
    assert 201 == (await tried(server, PASSWORD)).status


@pytest.mark.proves("Somebody guesses a password, or locks an operator out by guessing")
async def test_guesses_from_elsewhere_lock_nobody_out(server: OperatorServer) -> None:
    """Wrong passwords block only their own address. The account's owner can sign in from another."""
    await account(server)
    statuses = {(await tried(server, "x" * 12)).status for _ in range(SIGN_IN_BURST + 1)}
    assert {401, 429} == statuses
    assert 201 == (await tried(server, PASSWORD, address="198.51.100.8")).status


async def tried(server: OperatorServer, password: str, address: str = "198.51.100.7") -> Answer:
    """Try to sign in from an address, through a configured proxy."""
    body = {"email": ADA, "password": password}
    return await server.over_http("POST", "/sessions", body, headers={"X-Forwarded-For": address})


async def test_guesses_from_everywhere_are_limited_by_account(server: OperatorServer) -> None:
    """An account also has a limit over all addresses."""
    await account(server)
    buckets = server.services.people.account_sign_ins
    for _ in range(ACCOUNT_BURST):
        buckets.charge(ADA)
    answer = await server.over_http("POST", "/sessions", {"email": ADA, "password": PASSWORD})
    assert (429, "too_many_attempts") == answer.error[:2]


@pytest.mark.proves("A removed operator stays signed in")
async def test_who_came_with_a_link_makes_none(server: OperatorServer) -> None:
    """
    A session from a link cannot create links. Otherwise links could create links forever, even after the
    first account was removed.
    """
    secret = link_of(await server.ask("POST", "/console-links", {}))
    headers = headers_of(await server.over_http("POST", "/sessions", {"link": secret}))
    answer = await server.over_http("POST", "/console-links", {}, headers=headers)
    assert answer.status == 409
    assert "tollhouse console link" in answer.error[2]


@pytest.mark.proves("A removed operator stays signed in")
async def test_a_removed_account_ends_its_links_too(server: OperatorServer) -> None:
    """Links of a removed account are invalid, used or not."""
    headers = await signed_in(server)
    used, unused = [
        link_of(await server.over_http("POST", "/console-links", {}, headers=headers)) for _ in range(2)
    ]
    by_link = headers_of(await server.over_http("POST", "/sessions", {"link": used}))
    assert 200 == (await server.over_http("GET", "/keys", headers=by_link)).status
    await account(server, email="root@example.com")
    await server.ask("DELETE", f"/operators/{ADA}")
    assert 401 == (await server.over_http("GET", "/keys", headers=by_link)).status
    assert 401 == (await server.over_http("POST", "/sessions", {"link": unused})).status


async def test_sessions_are_listed_and_ended(server: OperatorServer) -> None:
    """
    The list of sessions shows who is signed in, how and from where. An administrator can end any session.
    """
    headers = await signed_in(server)
    secret = link_of(await server.over_http("POST", "/console-links", {"role": "viewer"}, headers=headers))
    by_link = headers_of(await server.over_http("POST", "/sessions", {"link": secret}))
    [row] = (await server.ask("GET", "/sessions", began_with="link")).payload["sessions"]
    assert (ADA, ADA, "viewer", "127.0.0.1") == tuple(
        row[name] for name in ("actor", "account", "role", "address")
    )
    assert 2 == (await server.ask("GET", "/sessions")).payload["pagination"]["total_count"]
    assert 403 == (await server.over_http("GET", "/sessions", headers=by_link)).status
    assert 200 == (await server.over_http("DELETE", f"/sessions/{row['id']}", headers=headers)).status
    assert 401 == (await server.over_http("GET", "/session", headers=by_link)).status
    assert 404 == (await server.over_http("DELETE", f"/sessions/{row['id']}", headers=headers)).status


async def test_a_session_ends_after_rest_and_after_half_a_day(server: OperatorServer) -> None:
    """Requests keep a session alive and idleness ends it. After twelve hours it ends even if it is in use."""
    headers = await signed_in(server)
    for _ in range(int(SESSION_LIFE_S // 3000)):
        assert 200 == (await server.over_http("GET", "/keys", headers=headers)).status
        server.clock.move(3000)
    server.clock.move(1200)
    assert 401 == (await server.over_http("GET", "/keys", headers=headers)).status
    again = await server.over_http("POST", "/sessions", {"email": ADA, "password": PASSWORD})
    server.clock.move(SESSION_IDLE_S)
    assert 401 == (await server.over_http("GET", "/keys", headers=headers_of(again))).status


async def test_a_changed_account_signs_out_everywhere(server: OperatorServer) -> None:
    """Removal, a new role and a new password end all sessions of the account at once."""
    await account(server, email="root@example.com")
    for number, body in enumerate((None, {"role": "viewer"}, {"password": "another long one"})):
        email = f"{number}@example.com"
        headers, method = await signed_in(server, email=email), "DELETE" if body is None else "PATCH"
        assert 200 == (await server.ask(method, f"/operators/{email}", body, by="root@example.com")).status
        assert 401 == (await server.over_http("GET", "/keys", headers=headers)).status


async def test_nobody_removes_oneself(server: OperatorServer) -> None:
    """
    Nobody can remove their own account by mistake, in any spelling of the address, even if another admin exists.
    """
    headers, changes = await signed_in(server), ({"role": "viewer"}, {"status": "Disabled"})
    await account(server, email="root@example.com")
    for email in (ADA, ADA.upper()):
        assert 409 == (await server.over_http("DELETE", f"/operators/{email}", headers=headers)).status
    for change in changes:
        answer = await server.over_http("PATCH", f"/operators/{ADA}", change, headers=headers)
        assert answer.status == 409, change


@pytest.mark.proves("A withdrawn right stays in effect")
@pytest.mark.parametrize("change", [{"role": "viewer"}, {"status": "Disabled"}, None])
async def test_rights_are_those_of_when_the_body_is_here(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch, change: dict[str, str] | None
) -> None:
    """
    A person may send a change and hold its body back. If the account was changed or removed (None)
    meanwhile, nothing changes.
    """
    headers = await signed_in(server)
    await account(server, email="root@example.com")
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request, body: type[Any], *limit_and_services: Any) -> Any:
        if body is NewOperator:
            begun.set()
            await gate.wait()
        return await read_json_body(request, body, *limit_and_services)

    monkeypatch.setattr(admission, "read_json_body", slow)
    friend = {"email": "friend@example.com", "password": PASSWORD, "role": "admin"}
    adding = asyncio.create_task(server.over_http("POST", "/operators", friend, headers=headers))
    await begun.wait()
    method = "DELETE" if change is None else "PATCH"
    assert 200 == (await server.ask(method, f"/operators/{ADA}", change, by="root@example.com")).status
    gate.set()
    assert 401 == (await adding).status
    assert "friend@example.com" not in [each.email for each in await server.registry.operators.all()]


async def test_last_owner_is_protected_on_the_socket_as_well(server: OperatorServer) -> None:
    """Removing, disabling or demoting the last Owner answers 409 with the name and what to do first."""
    await account(server)
    for method, body in (("DELETE", None), ("PATCH", {"status": "Disabled"}), ("PATCH", {"role": "none"})):
        answer = await server.ask(method, f"/operators/{ADA}", body, by="root@example.com")
        assert answer.status == 409
        assert "no other Admin is enabled. Make another account an Admin" in answer.error[2]


@pytest.mark.proves("A withdrawn right stays in effect")
async def test_a_role_document_holds_from_the_next_request_on(server: OperatorServer) -> None:
    """
    Rights that a role document gives or removes apply to the next request. An account without a role of its
    own has no other rights.
    """
    headers = await signed_in(server, "none")
    paths = ("/session", "/status", "/keys", "/report")

    async def opened() -> list[int]:
        return [(await server.over_http("GET", path, headers=headers)).status for path in paths]

    assert [200, 403, 403, 403] == await opened()
    roles, actor = server.registry.roles, Actor("root", "here")
    draft = NewRole(name="Watch", data_access=FULL, permission_sets=(VIEW_OPERATION,), members=(ADA,))
    role = await roles.create(draft, known_dimensions=(), limits=RoleLimits(), actor=actor)
    assert [200, 200, 200, 403] == await opened()
    changed = {"permission_sets": (VIEW_COSTS,)}
    await roles.change(role.id, changed, known_dimensions=(), limits=RoleLimits(), actor=actor)
    assert [200, 403, 403, 200] == await opened()
    await roles.change(role.id, {"members": ()}, known_dimensions=(), limits=RoleLimits(), actor=actor)
    assert [200, 403, 403, 403] == await opened()


@pytest.mark.proves("A withdrawn right stays in effect")
async def test_a_role_document_makes_no_links(server: OperatorServer) -> None:
    """
    A link would outlive the role document, so it gives no right to create links. A link never carries its
    creator's role documents.
    """
    headers = await signed_in(server, "viewer")
    draft = NewRole(
        name="All", data_access=FULL, permission_sets=tuple(PERMISSION_SETS), members=(ADA, "root@x.y")
    )
    await server.registry.roles.create(
        draft, known_dimensions=(), limits=RoleLimits(), actor=Actor("root", "here")
    )
    refused = await server.over_http("POST", "/console-links", {}, headers=headers)
    assert refused.status == 409
    assert "an account with the role Admin" in refused.error[2]
    roots = await signed_in(server, email="root@x.y")
    secret = link_of(await server.over_http("POST", "/console-links", {"role": "viewer"}, headers=roots))
    by_link = headers_of(await server.over_http("POST", "/sessions", {"link": secret}))
    assert [200, 403] == [
        (await server.over_http("GET", path, headers=by_link)).status for path in ("/keys", "/operators")
    ]
    nothing = await server.over_http("POST", "/console-links", {"role": "none"}, headers=roots)
    assert nothing.status == 400
    assert "viewer, operator, admin" in nothing.error[2]


def link_of(answer: Answer) -> str:
    address, _, secret = str(answer.payload["link"]).partition("#link=")
    assert address == "http://127.0.0.1:4318/console/"
    return secret


async def test_a_console_link_signs_in_once(server: OperatorServer) -> None:
    """
    A console link opens one session, which has the name of the link's creator. The secret is in the URL
    fragment, which no log contains.
    """
    secret = link_of(await server.ask("POST", "/console-links", {}, by="root@example.com"))
    answer = await server.over_http("POST", "/sessions", {"link": secret})
    assert answer.payload["session"]["actor"] == "root@example.com"
    assert answer.payload["session"]["role"] == "admin"
    created = await server.over_http(
        "POST", "/keys", {"name": "abc", "scopes": [INGEST]}, headers=headers_of(answer)
    )
    assert "root@example.com" == created.payload["key"]["created_by"]
    again = await server.over_http("POST", "/sessions", {"link": secret})
    assert (401, "sign_in") == again.error[:2]


@pytest.mark.proves("Another user of the machine opens the operator socket")
async def test_what_is_no_account_and_no_sign_in_is_refused(server: OperatorServer) -> None:
    """
    A sign-in needs e-mail and password, or a link. A password needs twelve characters, and each address
    has one account.
    """
    assert 0o600 == server.socket.stat().st_mode & 0o777  # the file mode protects the socket
    shapes: tuple[Any, ...] = (
        {},
        {"email": ADA},
        {"link": "x", "email": ADA, "password": PASSWORD},
        {"token": "x"},
        [],
    )
    for body in shapes:
        assert (400, "bad_payload") == (await server.over_http("POST", "/sessions", body)).error[:2]
    await account(server)
    for given, status, type in (
        ({"email": "eve@example.com", "password": "x" * 11}, 400, "invalid"),
        ({"email": " ADA@example.com", "password": PASSWORD}, 409, "already_exists"),
    ):
        assert (status, type) == (await server.ask("POST", "/operators", given)).error[:2]
    assert (404, "not_found") == (await server.ask("GET", "/nothing")).error[:2]
    assert (405, "method_not_allowed") == (await server.ask("PUT", "/keys")).error[:2]
    for actor in ("", "x" * 201, "a\nb"):  # every change needs a valid actor
        assert 400 == (await server.ask("GET", "/keys", by=actor)).status


async def test_every_change_is_in_the_audit_list(server: OperatorServer) -> None:
    """
    Each change has a row in the audit list, which states who, when, what, from where, before and after, and never a
    secret.
    """
    headers = await signed_in(server)
    secret = (await server.create("search team", scopes=[INGEST]))["secret"]
    rotated = await server.ask("POST", "/keys/search%20team/rotate", {"overlap_s": 0})
    await server.over_http("PATCH", "/keys/search%20team", {"description": "new"}, headers=headers)
    await server.ask("POST", "/keys/search%20team/disable")
    await server.ask("DELETE", "/keys/search%20team", confirm="search team")
    await account(server, email="root@example.com")
    await server.ask("PATCH", f"/operators/{ADA}", {"role": "viewer"}, by="root@example.com")
    payload = (await server.ask("GET", "/audit", sort_key="id", sort_order="asc")).payload
    assert [
        "operator.add", "session.begin", "key.create", "key.rotate", "key.edit", "key.disable", "key.delete",
        "operator.add", "operator.role",
    ] == [row["action"] for row in payload["audit"]]  # fmt: skip
    edit = next(row for row in payload["audit"] if row["action"] == "key.edit")
    assert {
        "actor": ADA, "address": "127.0.0.1", "target": "search team", "at": "2026-09-21T14:13:20.000Z",
        "before": {"description": ""}, "after": {"description": "new"}, "target_name": "search team",
        "target_exists": False,
    } == {name: edit[name] for name in edit if name not in ("id", "action")}  # fmt: skip
    assert (
        "operator socket" == next(row for row in payload["audit"] if row["action"] == "key.create")["address"]
    )
    for word in (secret, rotated.payload["secret"], PASSWORD, "scrypt"):
        assert word not in str(payload)


async def test_a_wrong_body_is_refused(server: OperatorServer) -> None:
    """A malformed body gets an error answer, never a crash."""
    headers = {**await signed_in(server), "Content-Type": "application/json"}
    bodies = ("{", '"' + "x" * 300_000 + '"')
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        for body in bodies:
            sent = session.post(f"{server.url}{OPERATOR_API}/keys", data=body.encode(), headers=headers)
            async with sent as response:
                assert (413 if len(body) > 262_144 else 400) == response.status
                assert {"type", "message"} == set((await response.json())["error"])
