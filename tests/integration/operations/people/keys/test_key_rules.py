"""
Parts 2.1 and 8 of the published interface: the fields of a key, its limits and its rotation.

Part 3.1, the states of a key, is tested in `tests/integration/operations/people/keys/test_legacy_key.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.cli.operator.client import quote_segment
from gateway.configuration.server import ServerSettings
from gateway.configuration.values import ConfigError
from gateway.core.errors import Refusal
from gateway.people.authentication.access import KeyAccess
from spool.engines import SQLITE
from spool.registry import scopes
from spool.registry.scopes import SCOPES, SEND_AI_TELEMETRY, SEND_BILLING_DATA
from tests.integration.conftest import file_contents
from tests.integration.operations.server import ADA, INGEST, OperatorServer, operator_server

GRACE = "grace@example.com"
KEY = "/keys/search%20team"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        yield server


def passes(server: OperatorServer, secret: str, scope: str = INGEST) -> bool:
    try:
        server.access.admit(secret, scope, address="127.0.0.1")
    except Refusal:
        return False
    return True


async def edited(server: OperatorServer, by: str = ADA, **changes: Any) -> dict[str, Any]:
    answer = await server.ask("PATCH", KEY, changes, by=by)
    assert 200 == answer.status, answer.payload
    key: dict[str, Any] = answer.payload["key"]
    return key


# Each row has invalid fields of a key, and a part of the error message.
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    *(({"name": name}, "at least 3 characters") for name in ("ab", "", "  ab  ")),
    *(
        ({"name": name}, "control characters")
        for name in ("a\tb\n ", "a\x00bc", "a\nbc", "a\x1b[31mbc", "a\u2028bc")
    ),
    ({"name": "x" * 201}, "at most 200 characters"),
    ({"use_cases": [SEND_BILLING_DATA]}, "not both"),
    ({"scopes": []}, "at least one scope"),
    ({"scopes": ["budgets:read_budgetz"]}, "unknown scope"),
    ({"scopes": None, "use_cases": ["Send Everything"]}, "unknown use case"),
    ({"labels": {"": "x"}}, "label"),
    ({"labels": {"team": ""}}, "1 to 256 characters"),
    ({"labels": {"te am": "x"}}, "label"),
    ({"labels": {"team": "x" * 257}}, "1 to 256 characters"),
    ({"labels": {"team": "a\nb"}}, "without control characters"),
    ({"labels": {f"l{n}": "x" for n in range(33)}}, "at most 32 labels"),
)


async def test_what_is_wrong_of_a_key_is_refused(server: OperatorServer) -> None:
    """
    An invalid key is refused when it is created or edited. The error states the rule, and nothing is stored.
    """
    made = (await server.create())["key"]
    for wrong, words in WRONG:
        whole = {"name": "another", "scopes": [INGEST], **wrong}
        body = {name: value for name, value in whole.items() if value is not None}
        answer = await server.ask("POST", "/keys", body)
        assert (400, "invalid") == answer.error[:2], wrong
        assert words in answer.error[2], wrong
        if wrong != {
            "use_cases": [SEND_BILLING_DATA]
        }:  # this edit is valid, because it replaces scopes by use cases
            change = {name: value for name, value in wrong.items() if value is not None}
            assert 400 == (await server.ask("PATCH", KEY, change)).status, wrong
    for missing in ({"scopes": [INGEST]}, {"name": "another"}, {"name": "another", "use_cases": []}):
        assert 400 == (await server.ask("POST", "/keys", missing)).status, missing
    assert [made] == (await server.ask("GET", "/keys")).payload["keys"]


async def test_a_name_is_trimmed_and_unique(server: OperatorServer) -> None:
    """Names are unique regardless of case, for new and edited keys. A key may keep its own name."""
    assert "search team" == (await server.create("  search team "))["key"]["name"]
    await server.create("abc")
    for taken in ("search team", "Search Team", " search team ", "ſearch team"):
        answer = await server.ask("POST", "/keys", {"name": taken, "scopes": [INGEST]})
        assert (409, "already_exists") == answer.error[:2]
        assert "already exists" in answer.error[2]
        assert 409 == (await server.ask("PATCH", "/keys/abc", {"name": taken})).status
    assert "Search TEAM" == (await edited(server, name="Search TEAM"))["name"]
    assert 404 == (await server.ask("GET", KEY)).status


async def test_any_name_can_be_named_in_a_path(server: OperatorServer) -> None:
    """A key's name is its handle, whatever characters it has."""
    names = ("a{b}c", "${x}{{y}}", "a/b/c", "a b?c#d", "%7B", "%2F%2F", "100%", "äöü", "...")
    for name in names:
        await server.create(name)
        assert name == (await server.ask("GET", f"/keys/{quote_segment(name)}")).payload["key"]["name"]
        assert 200 == (await server.ask("DELETE", f"/keys/{quote_segment(name)}", confirm=name)).status


async def test_every_scope_of_the_catalogue_may_be_granted(server: OperatorServer) -> None:
    """Every scope in part 5 opens exactly itself."""
    for scope in sorted(SCOPES):
        secret = (await server.create(f"of {scope}", scopes=[scope]))["secret"]
        assert {scope} == {each for each in SCOPES if passes(server, secret, each)}


async def test_scopes_are_editable_from_fixed_to_managed_and_back(server: OperatorServer) -> None:
    """Scopes and use cases replace each other. Scopes are a set, and the count is of the granted scopes."""
    created = await server.create(scopes=[INGEST, "views:read_view", INGEST])
    secret = created["secret"]
    assert created["key"]["scopes"] == [INGEST, "views:read_view"]
    assert created["key"]["scope_count"] == 2
    managed = await edited(server, use_cases=[SEND_AI_TELEMETRY, SEND_BILLING_DATA])
    assert managed["scopes"] == []
    assert managed["use_cases"] == [SEND_AI_TELEMETRY, SEND_BILLING_DATA]
    assert managed["scope_count"] == 3
    assert passes(server, secret)
    fixed = await edited(server, scopes=["views:read_view"])
    assert fixed["scopes"] == ["views:read_view"]
    assert fixed["use_cases"] == []
    assert not passes(server, secret)


async def test_who_made_and_changed_a_key_is_shown(server: OperatorServer) -> None:
    """
    The answer about a key has Created By, Updated By and Last Modified. A description is optional and
    can be edited.
    """
    made = (await server.create())["key"]
    assert made["status"] == "Enabled"
    assert made["description"] == ""
    assert made["last_modified"] == "2026-09-21T14:13:20.000Z"
    server.clock.move(60)
    await edited(server, by=GRACE, description="all of search")
    [key] = (await server.ask("GET", "/keys")).payload["keys"]
    assert key["description"] == "all of search"
    assert key["created_by"] == ADA
    assert key["updated_by"] == GRACE
    assert key["last_modified"] == "2026-09-21T14:14:20.000Z"


async def test_last_accessed_is_not_in_use_until_the_first_use(server: OperatorServer) -> None:
    """
    Last Accessed is a timestamp, or the literal text Not In Use. Every admission carries the key's labels.
    """
    created = await server.create(scopes=[INGEST], labels={"team": "search", "cost.center": "42"})
    assert "Not In Use" == created["key"]["last_accessed"]
    server.clock.move(5)
    bearer = server.access.admit(created["secret"], INGEST, address="127.0.0.1")
    [key] = (await server.ask("GET", "/keys")).payload["keys"]
    assert "2026-09-21T14:13:25.000Z" == key["last_accessed"]
    assert {"team": "search", "cost.center": "42"} == bearer.labels == key["labels"]


async def test_the_secret_is_shown_once(tmp_path: Path) -> None:
    """
    A key's secret is shown only at creation, and no file contains it. A new key with the name of a deleted
    one has another secret.
    """
    async with operator_server(tmp_path, engine=SQLITE) as server:
        secret = (await server.create())["secret"]
        assert secret.startswith("th_")
        assert len(secret) >= 3 + 43
        for path in ("/keys", KEY, "/audit"):
            assert secret not in str((await server.ask("GET", path)).payload)
        for name, content in file_contents(server.socket.parent).items():
            assert secret.encode() not in content, name
        await server.ask("DELETE", KEY, confirm="search team")
        again = (await server.create())["secret"]
        assert passes(server, secret) is False
        assert passes(server, again) is True


async def test_a_gateway_with_another_file_does_not_start(server: OperatorServer, tmp_path: Path) -> None:
    """
    A gateway with another key file does not start while another gateway runs with the former key. The error names
    that gateway.
    """
    file = tmp_path / "key"

    async def others() -> list[str]:
        return ["gateway-2"]

    for secret in ("an-old-secret", "a-new-secret"):
        file.write_text(secret)
        settings = ServerSettings(api_key_file=file)
        access = KeyAccess(server.registry, settings, clock=server.clock, others=others)
        if secret == "an-old-secret":
            await access.start()
            await access.stop()
        else:
            with pytest.raises(ConfigError, match=r"server\.api_key_file.*gateway-2"):
                await access.start()
    assert passes(server, "an-old-secret")


async def test_rotation_lets_both_secrets_in_until_the_overlap_ends(server: OperatorServer) -> None:
    """A service has the overlap time to adopt the new secret. After that the old secret is invalid."""
    old = (await server.create())["secret"]
    answer = await server.ask("POST", f"{KEY}/rotate", {"overlap_s": 3600})
    new = answer.payload["secret"]
    assert passes(server, old) is True
    assert passes(server, new) is True
    assert "2026-09-21T15:13:20.000Z" == answer.payload["previous_secret_until"]
    server.clock.move(3600)
    assert passes(server, old) is False
    assert passes(server, new) is True
    assert (await server.ask("GET", KEY)).payload["previous_secret_until"] is None


async def test_rotation_without_overlap_ends_every_older_secret(server: OperatorServer) -> None:
    """A leaked secret is invalid at once, and so is an older secret whose overlap still runs."""
    first = (await server.create())["secret"]
    second = (await server.ask("POST", f"{KEY}/rotate", {})).payload["secret"]
    assert 409 == (await server.ask("POST", f"{KEY}/rotate", {})).status
    third = (await server.ask("POST", f"{KEY}/rotate", {"overlap_s": 0})).payload["secret"]
    assert passes(server, first) is False
    assert passes(server, second) is False
    assert passes(server, third) is True


async def test_managed_use_cases_are_resolved_when_a_request_is_checked(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a release adds a scope to a use case, existing managed keys have it without an edit. Fixed keys
    never gain scopes.

    The test uses other keys after the change, because a server computes the rights of a key once.
    """
    earlier = (await server.create("earlier", use_cases=[SEND_AI_TELEMETRY]))["secret"]
    managed = (await server.create("managed", use_cases=[SEND_AI_TELEMETRY]))["secret"]
    fixed = (await server.create("fixed", scopes=[INGEST]))["secret"]
    new = "events_v1:create_event"
    assert not passes(server, earlier, new)
    monkeypatch.setitem(scopes.USE_CASES, SEND_AI_TELEMETRY, frozenset({INGEST, new}))
    assert passes(server, managed, new) is True
    assert passes(server, fixed, new) is False


async def test_a_secret_leads_to_its_key(server: OperatorServer) -> None:
    """The owner of a secret gets its key's name and rights, and whether its sender may be another gateway."""
    server.access.configure(ServerSettings(chain_keys=("near-*",)), None)
    for name, may_chain in (("near-one", True), ("laptops", False)):
        created = await server.ask("POST", "/keys", {"name": name, "use_cases": [SEND_AI_TELEMETRY]})
        found = await server.ask("POST", "/keys/identify", {"secret": created.payload["secret"]})
        assert found.status == 200
        assert found.payload["key"]["name"] == name
        assert (found.payload["granted"], found.payload["may_chain"]) == ([INGEST], may_chain)
    unknown = await server.ask("POST", "/keys/identify", {"secret": "th_unknown"})
    assert unknown.status == 404
    assert "th_unknown" not in str(unknown.payload)
