"""
Parts 2.1, 3.1 and 8 of the published interface, one test a row of its tables; each row's words are the docstring.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from gateway.people.authentication.access import Access
from gateway.service.configuration.sections import ConfigError, ServerSettings
from gateway.service.errors import Refusal
from spool.engines import SQLITE
from spool.registry.scopes import SCOPES, SEND_AI_TELEMETRY, SEND_BILLING_DATA
from tests.integration.conftest import file_contents
from tests.integration.operator.server import ADA, INGEST, OperatorServer, operator_server

GRACE = "grace@example.com"


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


# 2.1 API key


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["ab", "", "  ab  ", "a\tb\n "])
async def test_a_name_of_two_characters_is_refused(server: OperatorServer, name: str) -> None:
    """Name: string. Required. Minimum 3 characters."""
    answer = await server.ask("POST", "/keys", {"name": name, "scopes": [INGEST]})
    assert 400 == answer.status
    assert [] == (await server.ask("GET", "/keys")).payload["keys"]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["a{b}c", "${x}{{y}}", "a/b", "a b?c#d", "%7B", "..."])
async def test_a_key_is_found_by_any_name(server: OperatorServer, name: str) -> None:
    """Whatever characters a name has, its key is shown and deleted by it."""
    await server.create(name)
    path = f"/keys/{quote(name, safe='')}"
    assert name == (await server.ask("GET", path)).payload["key"]["name"]
    assert 200 == (await server.ask("DELETE", path, confirm=name)).status


@pytest.mark.asyncio
async def test_a_name_is_required(server: OperatorServer) -> None:
    """Name: Required."""
    answer = await server.ask("POST", "/keys", {"scopes": [INGEST]})
    assert (400, "bad_payload") == answer.error[:2]
    assert "name" in answer.error[2]


@pytest.mark.asyncio
async def test_a_name_of_three_characters_is_taken_trimmed(server: OperatorServer) -> None:
    """Name: Minimum 3 characters, counted without the white space around it."""
    assert "abc" == (await server.create("  abc "))["key"]["name"]


@pytest.mark.asyncio
@pytest.mark.parametrize("taken", ["search team", "Search Team", " search team ", "ſearch team"])
async def test_a_name_that_is_taken_is_refused(server: OperatorServer, taken: str) -> None:
    """Name: Unique within the organization, whatever the case."""
    await server.create("search team")
    answer = await server.ask("POST", "/keys", {"name": taken, "scopes": [INGEST]})
    assert (409, "already_exists") == answer.error[:2]
    assert "already exists" in answer.error[2]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["a\x00bc", "a\nbc", "a\x1b[31mbc", "a\u2028bc", "x" * 201])
async def test_names_that_would_break_a_terminal_are_refused(server: OperatorServer, name: str) -> None:
    """Name: beyond the interface, control characters, line breaks and more than 200 characters are refused."""
    assert 400 == (await server.ask("POST", "/keys", {"name": name, "scopes": [INGEST]})).status


@pytest.mark.asyncio
async def test_a_name_is_editable(server: OperatorServer) -> None:
    """Name: Editable."""
    await server.create("search team")
    answer = await server.ask("PATCH", "/keys/search%20team", {"name": "ranking team"})
    assert "ranking team" == answer.payload["key"]["name"]
    assert 404 == (await server.ask("GET", "/keys/search%20team")).status


@pytest.mark.asyncio
async def test_an_edit_keeps_to_the_rules_of_names(server: OperatorServer) -> None:
    """Name: minimum 3 characters and unique also apply to the edit; its own name is not a conflict."""
    await server.create("search team")
    await server.create("ranking team")
    assert 400 == (await server.ask("PATCH", "/keys/ranking%20team", {"name": "rt"})).status
    assert 409 == (await server.ask("PATCH", "/keys/ranking%20team", {"name": "Search team"})).status
    assert 200 == (await server.ask("PATCH", "/keys/ranking%20team", {"name": "Ranking Team"})).status


@pytest.mark.asyncio
async def test_a_description_is_optional_and_editable(server: OperatorServer) -> None:
    """Description: string. Optional. Editable."""
    assert "" == (await server.create("search team"))["key"]["description"]
    answer = await server.ask("PATCH", "/keys/search%20team", {"description": "all of search"})
    assert "all of search" == answer.payload["key"]["description"]


@pytest.mark.asyncio
async def test_scopes_and_use_cases_together_are_refused(server: OperatorServer) -> None:
    """Scopes: A key uses fixed scopes or managed scopes, never both."""
    body = {"name": "both", "scopes": [INGEST], "use_cases": [SEND_BILLING_DATA]}
    answer = await server.ask("POST", "/keys", body)
    assert 400 == answer.status
    assert "never both" in answer.error[2]


@pytest.mark.asyncio
@pytest.mark.parametrize("grant", [{}, {"scopes": []}, {"use_cases": []}])
async def test_a_key_without_any_scope_is_refused(server: OperatorServer, grant: dict[str, Any]) -> None:
    """Scopes: With fixed scopes at least one scope is required. With managed scopes one or more use cases."""
    answer = await server.ask("POST", "/keys", {"name": "none", **grant})
    assert 400 == answer.status
    assert "at least one" in answer.error[2]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("grant", "word"),
    [({"scopes": ["budgets:read_budgetz"]}, "scope"), ({"use_cases": ["Send Everything"]}, "use case")],
)
async def test_names_outside_the_catalogue_are_refused(
    server: OperatorServer, grant: dict[str, Any], word: str
) -> None:
    """Scopes: set of scope identifiers, or set of managed use cases."""
    answer = await server.ask("POST", "/keys", {"name": "unknown", **grant})
    assert 400 == answer.status
    assert f"unknown {word}" in answer.error[2]


@pytest.mark.asyncio
async def test_every_scope_of_the_catalogue_may_be_granted(server: OperatorServer) -> None:
    """Scopes: every identifier of part 5 opens exactly itself."""
    for scope in sorted(SCOPES):
        secret = (await server.create(f"of {scope}", scopes=[scope]))["secret"]
        assert {scope} == {each for each in SCOPES if passes(server, secret, each)}


@pytest.mark.asyncio
async def test_a_set_holds_each_scope_once(server: OperatorServer) -> None:
    """Scopes: a set."""
    key = (await server.create("twice", scopes=[INGEST, "views:read_view", INGEST]))["key"]
    assert key["scopes"] == [INGEST, "views:read_view"]
    assert key["scope_count"] == 2


@pytest.mark.asyncio
async def test_scopes_are_editable_from_fixed_to_managed_and_back(server: OperatorServer) -> None:
    """Scopes: Editable; what is given takes the place of the other kind."""
    secret = (await server.create("search team", scopes=["views:read_view"]))["secret"]
    managed = await server.ask("PATCH", "/keys/search%20team", {"use_cases": [SEND_AI_TELEMETRY]})
    assert managed.payload["key"]["scopes"] == []
    assert managed.payload["key"]["use_cases"] == [SEND_AI_TELEMETRY]
    assert passes(server, secret)
    fixed = await server.ask("PATCH", "/keys/search%20team", {"scopes": ["views:read_view"]})
    assert fixed.payload["key"]["scopes"] == ["views:read_view"]
    assert fixed.payload["key"]["use_cases"] == []
    assert not passes(server, secret)


@pytest.mark.asyncio
async def test_an_edit_may_not_take_the_last_scope(server: OperatorServer) -> None:
    """Scopes: at least one, after an edit too."""
    await server.create("search team")
    assert 400 == (await server.ask("PATCH", "/keys/search%20team", {"scopes": []})).status


@pytest.mark.asyncio
async def test_a_new_key_is_enabled(server: OperatorServer) -> None:
    """Status: enum Enabled, Disabled. A new key is Enabled."""
    assert "Enabled" == (await server.create())["key"]["status"]


@pytest.mark.asyncio
async def test_the_creator_is_shown_in_the_list(server: OperatorServer) -> None:
    """Created By: user e-mail. Shown in the key list."""
    await server.create()
    [key] = (await server.ask("GET", "/keys")).payload["keys"]
    assert ADA == key["created_by"]


@pytest.mark.asyncio
async def test_the_last_modifier_is_shown_in_the_list(server: OperatorServer) -> None:
    """Updated By: user e-mail. Last modifier. Shown in the key list."""
    await server.create()
    await server.ask("PATCH", "/keys/search%20team", {"description": "new"}, by=GRACE)
    [key] = (await server.ask("GET", "/keys")).payload["keys"]
    assert key["created_by"] == ADA
    assert key["updated_by"] == GRACE


@pytest.mark.asyncio
async def test_the_time_of_the_last_update_is_shown(server: OperatorServer) -> None:
    """Last Modified: Time of last update."""
    before = (await server.create())["key"]["last_modified"]
    server.clock.move(60)
    after = (await server.ask("PATCH", "/keys/search%20team", {"description": "new"})).payload["key"][
        "last_modified"
    ]
    assert before == "2026-09-21T14:13:20.000Z"
    assert after == "2026-09-21T14:14:20.000Z"


@pytest.mark.asyncio
async def test_last_accessed_is_not_in_use_until_the_first_use(server: OperatorServer) -> None:
    """Last Accessed: timestamp, or the literal text Not In Use when the key has never been used."""
    created = await server.create()
    assert "Not In Use" == created["key"]["last_accessed"]
    server.clock.move(5)
    server.access.admit(created["secret"], INGEST, address="127.0.0.1")
    [key] = (await server.ask("GET", "/keys")).payload["keys"]
    assert "2026-09-21T14:13:25.000Z" == key["last_accessed"]


@pytest.mark.asyncio
async def test_the_scope_count_is_the_number_of_granted_scopes(server: OperatorServer) -> None:
    """Scope count: integer. Number of granted API scopes, shown in the key list."""
    await server.create("fixed", scopes=["views:read_view", "views:read_views", INGEST])
    await server.create("managed", use_cases=[SEND_AI_TELEMETRY, SEND_BILLING_DATA])
    keys = (await server.ask("GET", "/keys")).payload["keys"]
    assert [("fixed", 3), ("managed", 3)] == [(key["name"], key["scope_count"]) for key in keys]


@pytest.mark.asyncio
async def test_the_secret_is_shown_once(server: OperatorServer) -> None:
    """The key secret is displayed once at creation and is not shown again; nothing on disk holds it."""
    secret = (await server.create())["secret"]
    assert secret.startswith("th_")
    assert len(secret) >= 3 + 43
    for path in ("/keys", "/keys/search%20team", "/audit"):
        assert secret not in str((await server.ask("GET", path)).payload)
    for name, content in file_contents(server.socket.parent).items():
        assert secret.encode() not in content, name


@pytest.mark.asyncio
async def test_a_single_key_of_before_is_listed_by_its_name(tmp_path: Path) -> None:
    """An organization that had a single key before multiple keys were supported has it listed as Legacy API Key."""
    file = tmp_path / "key"
    file.write_text("an-old-secret\n")
    async with operator_server(tmp_path, api_key_file=file) as server:
        [key] = (await server.ask("GET", "/keys")).payload["keys"]
        assert key["name"] == "Legacy API Key"
        assert key["status"] == "Enabled"
        assert key["use_cases"] == [SEND_AI_TELEMETRY]
        assert passes(server, "an-old-secret")
        assert not passes(server, "an-old-secret", "views:read_view")


@pytest.mark.asyncio
async def test_the_legacy_key_is_a_key_like_any_other(tmp_path: Path) -> None:
    """Edited, disabled, enabled and deleted, also over a restart; its secret is that of the file."""
    file, path = tmp_path / "key", "/keys/Legacy%20API%20Key"
    file.write_text("an-old-secret")
    async with operator_server(tmp_path, engine=SQLITE, api_key_file=file) as server:
        assert (
            409 == (await server.ask("POST", "/keys", {"name": "legacy api key", "scopes": [INGEST]})).status
        )
        rotation = await server.ask("POST", f"{path}/rotate", {})
        assert 409 == rotation.status and "server.api_key_file" in rotation.error[2]
        assert 200 == (await server.ask("POST", f"{path}/disable")).status
        assert not passes(server, "an-old-secret")
        await server.ask("POST", f"{path}/enable")
        changes = {"name": "the gateways", "scopes": ["views:read_view"], "description": "ours"}
        edited = (await server.ask("PATCH", path, changes)).payload["key"]
        assert edited["name"] == "the gateways"
        assert edited["updated_by"] == ADA
    async with operator_server(tmp_path, engine=SQLITE, api_key_file=file) as server:
        assert passes(server, "an-old-secret", "views:read_view") and not passes(server, "an-old-secret")
        file.write_text("another-secret")
        await server.access.flush()
        [key] = (await server.ask("GET", "/keys")).payload["keys"]
        assert key["name"] == "the gateways"
        assert key["scope_count"] == 1
        assert passes(server, "another-secret", "views:read_view")
        assert 200 == (await server.ask("DELETE", "/keys/the%20gateways", confirm="the gateways")).status
        assert [] == (await server.ask("GET", "/keys")).payload["keys"]
    async with operator_server(tmp_path, engine=SQLITE, api_key_file=file) as server:
        for secret in ("another-secret", "an-old-secret", "a-third-secret"):
            file.write_text(secret)
            await server.access.flush()
            assert not passes(server, secret, "views:read_view") and not passes(server, secret)
            adopted = await server.ask("POST", "/keys/adopt")
            assert (200 if secret == "a-third-secret" else 409) == adopted.status
        [key] = (await server.ask("GET", "/keys")).payload["keys"]
        assert key["name"] == "Legacy API Key"
        assert key["created_by"] == ADA
        assert passes(server, "a-third-secret")


@pytest.mark.asyncio
async def test_a_gateway_with_another_file_does_not_start(server: OperatorServer, tmp_path: Path) -> None:
    """While another one runs with the key of before; the message names it."""
    file = tmp_path / "key"

    async def others() -> list[str]:
        return ["gateway-2"]

    for secret in ("an-old-secret", "a-new-secret"):
        file.write_text(secret)
        settings = ServerSettings(api_key_file=file)
        access = Access(server.registry, settings, clock=server.clock, others=others)
        if secret == "an-old-secret":
            await access.start()
            await access.stop()
        else:
            with pytest.raises(ConfigError, match=r"server\.api_key_file.*gateway-2"):
                await access.start()
    assert passes(server, "an-old-secret")


@pytest.mark.asyncio
async def test_the_legacy_key_follows_its_file(tmp_path: Path) -> None:
    """A deployment that rotates the file needs no restart; a file that became unreadable leaves the last key."""
    file = tmp_path / "key"
    file.write_text("an-old-secret")
    async with operator_server(tmp_path, api_key_file=file) as server:
        file.write_text("a-brand-new-secret")
        await server.access.flush()
        assert passes(server, "an-old-secret") is False
        assert passes(server, "a-brand-new-secret") is True
        file.unlink()
        await server.access.flush()
        assert passes(server, "a-brand-new-secret")


# 3.1 API key status


@pytest.mark.asyncio
async def test_create_leads_to_enabled_and_shows_the_secret_once(server: OperatorServer) -> None:
    """(none), create key, name valid, at least one scope or use case: Enabled; the key secret is shown once."""
    created = await server.create()
    assert "Enabled" == created["key"]["status"]
    assert passes(server, created["secret"])
    assert "secret" not in (await server.ask("GET", "/keys/search%20team")).payload


@pytest.mark.asyncio
async def test_disable_leads_to_disabled(server: OperatorServer) -> None:
    """Enabled, disable: Disabled; status shown in the key list is updated."""
    secret = (await server.create())["secret"]
    assert "Disabled" == (await server.ask("POST", "/keys/search%20team/disable")).payload["key"]["status"]
    [key] = (await server.ask("GET", "/keys")).payload["keys"]
    assert "Disabled" == key["status"]
    assert not passes(server, secret)


@pytest.mark.asyncio
async def test_enable_leads_to_enabled(server: OperatorServer) -> None:
    """Disabled, enable: Enabled; status shown in the key list is updated."""
    secret = (await server.create())["secret"]
    await server.ask("POST", "/keys/search%20team/disable")
    await server.ask("POST", "/keys/search%20team/enable")
    [key] = (await server.ask("GET", "/keys")).payload["keys"]
    assert "Enabled" == key["status"]
    assert passes(server, secret)


@pytest.mark.asyncio
@pytest.mark.parametrize("status", ["Enabled", "Disabled"])
async def test_edit_leaves_the_status(server: OperatorServer, status: str) -> None:
    """Enabled or Disabled, edit: unchanged; name, description, scopes may change; Updated By, Last Modified do."""
    before = (await server.create())["key"]
    if status == "Disabled":
        await server.ask("POST", "/keys/search%20team/disable")
    server.clock.move(60)
    changes = {"name": "ranking", "description": "new", "scopes": ["views:read_view"]}
    after = (await server.ask("PATCH", "/keys/search%20team", changes, by=GRACE)).payload["key"]
    assert status == after["status"]
    assert changes == {name: after[name] for name in changes}
    assert after["updated_by"] == GRACE
    assert after["created_by"] == ADA
    assert after["last_modified"] > before["last_modified"]


@pytest.mark.asyncio
@pytest.mark.parametrize("status", ["Enabled", "Disabled"])
async def test_delete_with_the_exact_name_removes(server: OperatorServer, status: str) -> None:
    """Enabled or Disabled, delete, the exact key name is typed: (removed); access is revoked at once."""
    secret = (await server.create())["secret"]
    if status == "Disabled":
        await server.ask("POST", "/keys/search%20team/disable")
    assert 200 == (await server.ask("DELETE", "/keys/search%20team", confirm="search team")).status
    assert not passes(server, secret)
    assert [] == (await server.ask("GET", "/keys")).payload["keys"]
    assert 404 == (await server.ask("POST", "/keys/search%20team/enable")).status


@pytest.mark.asyncio
@pytest.mark.parametrize("typed", ["", "Search team", "search team ", "search"])
async def test_delete_with_anything_else_removes_nothing(server: OperatorServer, typed: str) -> None:
    """delete: The exact key name is typed to confirm."""
    secret = (await server.create())["secret"]
    answer = await server.ask("DELETE", "/keys/search%20team", confirm=typed)
    assert 400 == answer.status
    assert "exact name" in answer.error[2]
    assert passes(server, secret)


@pytest.mark.asyncio
async def test_a_deleted_key_cannot_come_back(server: OperatorServer) -> None:
    """delete: Cannot be undone; a new key of the same name has another secret."""
    secret = (await server.create())["secret"]
    await server.ask("DELETE", "/keys/search%20team", confirm="search team")
    again = (await server.create())["secret"]
    assert passes(server, secret) is False
    assert passes(server, again) is True


# 8 Limits


@pytest.mark.asyncio
async def test_limit_of_the_name_length(server: OperatorServer) -> None:
    """API key name length: minimum 3 characters; key creation and edit."""
    await server.create("abc")
    assert 400 == (await server.ask("POST", "/keys", {"name": "de", "scopes": [INGEST]})).status
    assert 400 == (await server.ask("PATCH", "/keys/abc", {"name": "de"})).status


@pytest.mark.asyncio
async def test_limit_of_unique_names(server: OperatorServer) -> None:
    """API key name: unique within the organization; key creation and edit."""
    await server.create("abc")
    await server.create("def")
    assert 409 == (await server.ask("POST", "/keys", {"name": "abc", "scopes": [INGEST]})).status
    assert 409 == (await server.ask("PATCH", "/keys/def", {"name": "abc"})).status


@pytest.mark.asyncio
async def test_limit_of_one_scope(server: OperatorServer) -> None:
    """Scopes on a fixed-scope key: at least 1; key creation."""
    assert 400 == (await server.ask("POST", "/keys", {"name": "abc", "scopes": []})).status
    assert 1 == (await server.create("abc", scopes=[INGEST]))["key"]["scope_count"]


@pytest.mark.asyncio
async def test_limit_of_items_per_page(server: OperatorServer) -> None:
    """Items per page: set by the limit parameter; paginated list endpoints."""
    for number in range(3):
        await server.create(f"key {number}")
    payload = (await server.ask("GET", "/keys", limit="2")).payload
    assert [key["name"] for key in payload["keys"]] == ["key 0", "key 1"]
    assert payload["pagination"]["page_count"] == 2


# Beyond the tables: rotation, labels, names in paths


@pytest.mark.asyncio
async def test_rotation_lets_both_secrets_in_until_the_overlap_ends(server: OperatorServer) -> None:
    """A service has the overlap's time to take over the new secret; then the old one is gone."""
    old = (await server.create())["secret"]
    answer = await server.ask("POST", "/keys/search%20team/rotate", {"overlap_s": 3600})
    new = answer.payload["secret"]
    assert passes(server, old) is True
    assert passes(server, new) is True
    assert "2026-09-21T15:13:20.000Z" == answer.payload["previous_secret_until"]
    server.clock.move(3600)
    assert passes(server, old) is False
    assert passes(server, new) is True
    assert (await server.ask("GET", "/keys/search%20team")).payload["previous_secret_until"] is None


@pytest.mark.asyncio
async def test_rotation_without_overlap_ends_every_older_secret(server: OperatorServer) -> None:
    """A leaked secret is closed at once, the one of a running overlap with it."""
    first = (await server.create())["secret"]
    second = (await server.ask("POST", "/keys/search%20team/rotate", {})).payload["secret"]
    assert 409 == (await server.ask("POST", "/keys/search%20team/rotate", {})).status
    third = (await server.ask("POST", "/keys/search%20team/rotate", {"overlap_s": 0})).payload["secret"]
    assert passes(server, first) is False
    assert passes(server, second) is False
    assert passes(server, third) is True


@pytest.mark.asyncio
async def test_labels_come_with_the_bearer(server: OperatorServer) -> None:
    """Labels of a key fill what a report leaves open, so they travel with every admission."""
    created = await server.create(scopes=[INGEST], labels={"team": "search", "cost.center": "42"})
    bearer = server.access.admit(created["secret"], INGEST, address="127.0.0.1")
    assert {"team": "search", "cost.center": "42"} == bearer.labels == created["key"]["labels"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"team": ""},
        {"te am": "x"},
        {"team": "x" * 257},
        {"team": "a\nb"},
        {f"l{n}": "x" for n in range(33)},
    ],
)
async def test_labels_are_bounded(server: OperatorServer, labels: dict[str, str]) -> None:
    """At most 32 labels, plain names, values of 1 to 256 characters."""
    assert (
        400
        == (await server.ask("POST", "/keys", {"name": "abc", "scopes": [INGEST], "labels": labels})).status
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["a/b/c", "100%", "äöü", "a?b#c", "%2F%2F", "..."])
async def test_any_name_can_be_named_in_a_path(server: OperatorServer, name: str) -> None:
    """A key's name is its handle, whatever characters it has."""
    from gateway.cli.operator.client import part

    await server.create(name)
    assert name == (await server.ask("GET", f"/keys/{part(name)}")).payload["key"]["name"]
    assert 200 == (await server.ask("DELETE", f"/keys/{part(name)}", confirm=name)).status


@pytest.mark.asyncio
async def test_managed_use_cases_are_resolved_when_a_request_is_checked(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A scope that a release adds to a use case opens for existing managed keys with no edit; fixed keys never
    widen. A server works out once what a key may do, so the keys that are asked behind the change are others.
    """
    from spool.registry import scopes

    earlier = (await server.create("earlier", use_cases=[SEND_AI_TELEMETRY]))["secret"]
    managed = (await server.create("managed", use_cases=[SEND_AI_TELEMETRY]))["secret"]
    fixed = (await server.create("fixed", scopes=[INGEST]))["secret"]
    new = "events_v1:create_event"
    assert not passes(server, earlier, new)
    monkeypatch.setitem(scopes.USE_CASES, SEND_AI_TELEMETRY, frozenset({INGEST, new}))
    assert passes(server, managed, new) is True
    assert passes(server, fixed, new) is False


@pytest.mark.asyncio
async def test_keys_survive_a_restart(tmp_path: Path) -> None:
    """Everything of a key but its last seconds of access is on disk when a change was answered."""
    async with operator_server(tmp_path, engine=SQLITE) as server:
        created = await server.create(scopes=[INGEST], labels={"team": "search"}, description="d")
        rotated = (await server.ask("POST", "/keys/search%20team/rotate", {})).payload
        before = (await server.ask("GET", "/keys/search%20team")).payload
    async with operator_server(tmp_path, engine=SQLITE) as server:
        assert before == (await server.ask("GET", "/keys/search%20team")).payload
        assert passes(server, created["secret"]) is True
        assert passes(server, rotated["secret"]) is True
