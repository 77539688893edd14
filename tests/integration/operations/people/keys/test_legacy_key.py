"""
The key of `server.api_key_file`: it has the same states as any key (published interface, 3.1) and
follows its file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from gateway.core.errors import Refusal
from gateway.people.authentication.access import GUESSES
from gateway.service.app import TollhouseApp
from spool.engines import SQLITE
from spool.registry.keys import DISABLED, ENABLED, LEGACY_NAME
from spool.registry.scopes import SEND_AI_TELEMETRY
from tests.integration.conftest import Serve, file_contents
from tests.integration.operations.server import INGEST, OperatorServer, operator_server
from tests.integration.payloads import json_span, json_traces
from tests.rounds import part
from tests.spool.kept import audit_rows

GRACE = "grace@example.com"
VIEW = "views:read_view"
SECRET = "an-old-secret"
EDIT = {"name": "ranking", "description": "new", "scopes": [VIEW]}
PATH = f"/keys/{quote(LEGACY_NAME)}"


@asynccontextmanager
async def with_file(place: Path, secret: str = SECRET) -> AsyncIterator[OperatorServer]:
    """Start a server whose key file holds this secret. Its data directory is next to the file."""
    (place / "key").write_text(secret)
    data = place / "data"
    data.mkdir(exist_ok=True)
    async with operator_server(data, engine=SQLITE, api_key_file=place / "key") as server:
        yield server


async def changed(server: OperatorServer, place: Path, secret: str) -> None:
    """Write another secret to the file and let the server read it."""
    (place / "key").write_text(secret)
    await server.access.store_uses()


def told(server: OperatorServer, secret: str, scope: str = INGEST) -> tuple[int, str]:
    """Return the status and the error type of a request with this secret."""
    try:
        server.access.admit(secret, scope, address="127.0.0.1")
    except Refusal as refusal:
        return refusal.status, refusal.type
    return 200, ""


async def listed(server: OperatorServer) -> dict[str, str]:
    keys = (await server.ask("GET", "/keys")).payload["keys"]
    return {key["name"]: key["status"] for key in keys}


async def operate(server: OperatorServer, name: str, operation: str) -> int:
    """Return the status of an operation on a key."""
    path = f"/keys/{quote(name)}"
    if operation == "edit":
        return (await server.ask("PATCH", path, EDIT, by=GRACE)).status
    if operation in ("enable", "disable"):
        return (await server.ask("POST", f"{path}/{operation}", by=GRACE)).status
    typed = {"delete": name, "delete mistyped": name.lower(), "delete untyped": ""}[operation]
    return (await server.ask("DELETE", path, by=GRACE, confirm=typed)).status


@pytest.mark.parametrize("origin", part(["created", "of the file"], every=2))
@pytest.mark.parametrize(
    ("before", "operation", "answer", "after"),
    [
        (ENABLED, "disable", 200, DISABLED),
        (DISABLED, "enable", 200, ENABLED),
        (ENABLED, "edit", 200, ENABLED),
        (DISABLED, "edit", 200, DISABLED),
        (ENABLED, "delete", 200, ""),
        (DISABLED, "delete", 200, ""),
        (ENABLED, "delete mistyped", 400, ENABLED),
        (DISABLED, "delete mistyped", 400, DISABLED),
        (ENABLED, "delete untyped", 400, ENABLED),
    ],
    ids=lambda each: str(each).lower(),
)
async def test_the_states_of_a_key(
    tmp_path: Path, origin: str, before: str, operation: str, answer: int, after: str
) -> None:
    """
    Each row of table 3.1: the key reaches the listed state, shows it, and opens only what that state allows.
    """
    async with with_file(tmp_path) as server:
        name, secret = LEGACY_NAME, SECRET
        if origin == "created":
            name = "Search Team"
            secret = (await server.create(name))["secret"]
        assert (await listed(server))[name] == ENABLED
        assert told(server, secret) == (200, "")
        if before == DISABLED:
            assert 200 == await operate(server, name, "disable")
        server.clock.move(60)
        assert answer == await operate(server, name, operation)
        now = EDIT["name"] if operation == "edit" else name
        assert after == (await listed(server)).get(str(now), "")
        scope = VIEW if operation == "edit" else INGEST
        refused = {ENABLED: (200, ""), DISABLED: (401, "disabled_key"), "": (401, "unknown_key")}
        assert refused[after] == told(server, secret, scope)
        if not after:
            assert 404 == (await server.ask("GET", f"/keys/{quote(name)}")).status
            assert 404 == await operate(server, name, "enable")
            return
        key = (await server.ask("GET", f"/keys/{quote(str(now))}")).payload["key"]
        if operation == "edit":
            assert EDIT == {field: key[field] for field in EDIT}
            assert after == DISABLED or (403, "missing_scope") == told(server, secret)
        if answer == 200:
            assert key["updated_by"] == GRACE
            assert key["last_modified"] == "2026-09-21T14:14:20.000Z"
        actions = [row.action for row in await audit_rows(server.registry)]
        assert (f"key.{operation.partition(' ')[0]}" in actions) == (answer == 200)


async def test_only_the_digest_of_the_secret_is_stored(tmp_path: Path) -> None:
    """
    Only the digest of the secret is stored. The secret is in no answer, no audit row and no file of
    the data directory.
    """
    async with with_file(tmp_path) as server:
        await changed(server, tmp_path, "another-secret")
        [key] = (await server.ask("GET", "/keys")).payload["keys"]
        assert key["name"] == LEGACY_NAME
        assert key["use_cases"] == [SEND_AI_TELEMETRY]
        assert key["scopes"] == []
        answers = [(await server.ask("GET", path)).payload for path in ("/keys", PATH, "/audit")]
        rows = await audit_rows(server.registry)
        assert ["key.create", "key.rotate"] == sorted(row.action for row in rows)
        kept = [*map(repr, rows), str(answers)]
        files = file_contents(tmp_path / "data")
        for secret in (SECRET, "another-secret"):
            assert not [each for each in kept if secret in each]
            assert [] == [name for name, content in files.items() if secret.encode() in content]


async def test_a_changed_file_is_a_new_secret_of_the_same_key(tmp_path: Path) -> None:
    """
    If the file has another secret, the key keeps its state, name and scopes. The old secret is invalid
    forever, even if the file has it again.
    """
    async with with_file(tmp_path) as server:
        await operate(server, LEGACY_NAME, "edit")
        await operate(server, "ranking", "disable")
        await changed(server, tmp_path, "another-secret")
        assert {"ranking": DISABLED} == await listed(server)
        assert (401, "disabled_key") == told(server, "another-secret", VIEW)
        await operate(server, "ranking", "enable")
        assert [(200, ""), (401, "unknown_key")] == [
            told(server, secret, VIEW) for secret in ("another-secret", SECRET)
        ]
        (tmp_path / "key").unlink()  # if the file is unreadable, the last secret stays valid
        await server.access.store_uses()
        assert (200, "") == told(server, "another-secret", VIEW)
    async with with_file(tmp_path, SECRET) as server:
        assert (401, "unknown_key") == told(server, SECRET, VIEW)
        assert (200, "") == told(server, "another-secret", VIEW)
        assert "another key" in (await server.ask("GET", "/keys")).payload["not_open"]


async def test_a_deleted_secret_is_401_for_ever(tmp_path: Path) -> None:
    """
    A deleted secret answers 401 even after a restart. Repeats do not count as guesses, and the key list
    explains the refusal.
    """
    for round in range(3):
        async with with_file(tmp_path) as server:
            if round == 0:
                assert "not_open" not in (await server.ask("GET", "/keys")).payload
                assert 200 == await operate(server, LEGACY_NAME, "delete")
            found = {told(server, SECRET) for _ in range(2 * GUESSES)}
            assert {(401, "unknown_key")} == found
            payload = (await server.ask("GET", "/keys")).payload
            assert payload["keys"] == []
            assert "put another key into the file" in payload["not_open"]
            refused = await server.ask("POST", "/keys/adopt")
            assert refused.status == 409
            assert "put another key into the file" in refused.error[2]


async def test_another_secret_waits_until_it_is_adopted(tmp_path: Path) -> None:
    """
    After a deletion, a new secret in the file stays invalid, even after a restart, until an operator adopts
    it as a new key.
    """
    async with with_file(tmp_path) as server:
        await operate(server, LEGACY_NAME, "delete")
        await changed(server, tmp_path, "another-secret")
        assert (401, "unknown_key") == told(server, "another-secret")
    async with with_file(tmp_path, "another-secret") as server:
        payload = (await server.ask("GET", "/keys")).payload
        assert payload["keys"] == []
        assert "tollhouse keys adopt" in payload["not_open"]
        assert 200 == (await server.ask("POST", "/keys/adopt", by=GRACE)).status
        payload = (await server.ask("GET", "/keys")).payload
        assert payload["keys"][0]["created_by"] == GRACE
        assert "not_open" not in payload
        assert [(200, ""), (401, "unknown_key")] == [
            told(server, secret) for secret in ("another-secret", SECRET)
        ]


async def test_its_name_is_reserved_while_it_is_there(tmp_path: Path) -> None:
    """No other key may take the name of the file's key. Its former name is free as soon as it has another."""
    wanted = {"name": LEGACY_NAME.upper(), "scopes": [INGEST]}
    async with with_file(tmp_path) as server:
        assert 409 == (await server.ask("POST", "/keys", wanted)).status
        await operate(server, LEGACY_NAME, "edit")
        assert 409 == (await server.ask("POST", "/keys", {**wanted, "name": "Ranking"})).status
        assert 201 == (await server.ask("POST", "/keys", wanted)).status
        assert 200 == await operate(server, "ranking", "delete")
        assert {LEGACY_NAME.upper(): ENABLED} == await listed(server)


async def test_a_key_of_the_name_was_there_before_the_file(tmp_path: Path) -> None:
    """
    The file's key works next to an older key with its name, and is registered when the name becomes free.
    """
    data = tmp_path / "data"
    data.mkdir()
    async with operator_server(data, engine=SQLITE) as server:
        other = (await server.create(LEGACY_NAME, scopes=[VIEW]))["secret"]
    async with with_file(tmp_path) as server:
        assert [(200, ""), (200, "")] == [told(server, SECRET), told(server, other, VIEW)]
        assert (403, "missing_scope") == told(server, SECRET, VIEW)
        assert 200 == (await server.ask("PATCH", PATH, {"name": "a viewer"})).status
        await server.access.store_uses()
        assert {"a viewer": ENABLED, LEGACY_NAME: ENABLED} == await listed(server)
        assert 200 == await operate(server, LEGACY_NAME, "disable")
        assert [(401, "disabled_key"), (200, "")] == [told(server, SECRET), told(server, other, VIEW)]


async def test_it_is_rotated_by_its_file_alone(tmp_path: Path) -> None:
    """
    A rotation is refused while a file defines the key. Without the setting, the key rotates like any other.
    """
    async with with_file(tmp_path) as server:
        refused = await server.ask("POST", f"{PATH}/rotate", {"overlap_s": 0})
        assert refused.status == 409
        assert "server.api_key_file" in refused.error[2]
        assert (200, "") == told(server, SECRET)
    async with operator_server(tmp_path / "data", engine=SQLITE) as server:
        assert (200, "") == told(server, SECRET)
        rotated = await server.ask("POST", f"{PATH}/rotate", {"overlap_s": 0})
        assert [(401, "unknown_key"), (200, "")] == [
            told(server, secret) for secret in (SECRET, rotated.payload["secret"])
        ]


async def test_file_key_may_only_send_with_a_damaged_registry(serve: Serve, tmp_path: Path) -> None:
    """
    With a damaged registry the file's key may only send, and requests with all other keys are told to retry.
    After a repair it is a full key again.
    """
    file, traces = tmp_path / "key", json_traces(json_span())
    file.write_text(SECRET)
    before = await serve(api_key_file=file)
    made = before.app.services.operators.senders.access.key(LEGACY_NAME)
    assert (await before.send("/v1/traces", traces, key=SECRET)).status == 200
    assert "@" in made.created_by
    other = before.key
    await before.app.stop()
    data = before.app.config.data_dir
    kept = {path: path.read_bytes() for path in data.glob("registry.sqlite*")}
    for path in kept:
        path.write_bytes(b"not a database" * 1000)
    damaged = TollhouseApp(before.app.config, version="0")
    await damaged.start()
    try:
        before.app = damaged
        assert damaged.services.storage.registry is None
        statuses = [(await before.send("/v1/traces", traces, key=key)).status for key in (SECRET, other)]
        assert [200, 503] == statuses
        assert 403 == (await before.send("/v2/insights", b"", method="GET", key=SECRET)).status
    finally:
        await damaged.stop()
    for path in data.glob("registry.sqlite*"):
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    before.app = TollhouseApp(damaged.config, version="0")
    await before.app.start()
    assert [200, 200] == [
        (await before.send("/v1/traces", traces, key=key)).status for key in (SECRET, other)
    ]
