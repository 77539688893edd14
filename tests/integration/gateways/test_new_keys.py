"""
A key that was created or changed at one gateway is never refused at another because that one has not
seen the change.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from gateway.core.errors import Refusal
from gateway.people.authentication.access import GUESSES, KeyAccess
from spool.postgres.registry.key_checks import expected_versions_of_keys_no_longer_valid
from spool.postgres.registry.store import PostgresRegistry
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import CREATE_EVENT, INGEST
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_otlp_grpc import SERVICES
from tests.integration.receivers.test_topics import EVENT
from tests.integration.test_two_gateways import shared_config
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import migrated
from tests.spool.postgres_cluster import Schema

ADA = Actor("ada@example.com", "127.0.0.1")


@pytest_asyncio.fixture
async def gateways(new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path) -> tuple[Serving, Serving]:
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=config)
    return one, await serve(config=config, key_name="other sender", grpc_listen="127.0.0.1:0")


@pytest.mark.proves("a key that is newer than the cache")
async def test_a_change_of_a_key_opens_at_the_other_gateway_at_once(
    gateways: tuple[Serving, Serving],
) -> None:
    """
    A key that was just created, given a scope or enabled is accepted or gets 503, over HTTP and gRPC. It
    never gets 401 or 403.
    """
    one, other = gateways
    keys = one.app.services.operators.installation.require_registry().keys
    span, event = json_traces(json_span()), json.dumps(EVENT).encode()
    async with grpc.aio.insecure_channel(other.app.grpc_address) as channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        export = channel.unary_unary(f"/{SERVICES['traces']}/Export")
        for turn in range(3):
            _, secret = await keys.create(name=f"team {turn}", scopes=[INGEST], actor=ADA)
            assert 200 == (await other.send("/v1/traces", span, key=secret)).status
            _, called = await keys.create(name=f"called {turn}", scopes=[INGEST], actor=ADA)
            assert b"" == await export(b"", metadata=(("authorization", called),))
            assert 403 == (await other.send("/v1/events", event, key=secret)).status
            await keys.edit(f"team {turn}", scopes=[INGEST, CREATE_EVENT], actor=ADA)
            assert 200 == (await other.send("/v1/events", event, key=secret)).status
            await keys.disable(f"team {turn}", actor=ADA)
            await other.app.services.operators.installation.require_registry().wait_until_caught_up()
            assert 401 == (await other.send("/v1/traces", span, key=secret)).status
            await keys.enable(f"team {turn}", actor=ADA)
            assert 200 == (await other.send("/v1/traces", span, key=secret)).status


@pytest_asyncio.fixture
async def registries(new_schema: Callable[[], Schema]) -> AsyncIterator[tuple[Registry, Registry]]:
    """Open the registries of two gateways that do not follow each other's changes."""
    schema, opened = new_schema(), list[Registry]()
    async with AsyncExitStack() as stack:
        for _ in range(2):
            database = await stack.enter_async_context(migrated(schema))
            opened.append(
                await Registry.open(PostgresRegistry(database), secret=b"i" * 32, clock=MovedClock())
            )
            stack.push_async_callback(opened[-1].close)
        yield opened[0], opened[1]


@pytest.mark.proves("a key that is newer than the cache")
async def test_guesses_buy_no_look(
    registries: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    However many unknown keys wait, one scheduled read of the changes decides all, and finds the one new
    key among them.
    """
    here, there = registries
    access, looks = KeyAccess(there, clock=MovedClock()), 0
    news = PostgresRegistry.changes_since

    async def counted(store: PostgresRegistry, since: int | None) -> object:
        nonlocal looks
        looks += 1
        return await news(store, since)

    monkeypatch.setattr(PostgresRegistry, "changes_since", counted)
    _, secret = await here.keys.create(name="new", scopes=[INGEST], actor=ADA)

    async def ask(secret: str, place: int) -> str:
        try:
            return (
                await access.admit_with_current_keys(secret, INGEST, address=f"192.0.2.{place % 200}")
            ).name
        except Refusal as refusal:
            return refusal.type

    asked = [asyncio.create_task(ask(f"th_guess-{place}", place)) for place in range(1000)]
    asked.append(asyncio.create_task(ask(secret, 1)))
    await asyncio.sleep(0)
    assert not any(each.done() for each in asked)
    await there.catch_up()
    *guesses, new = await asyncio.gather(*asked)
    assert set(guesses) == {"unknown_key"}
    assert new == "new"
    assert looks == 1
    # If an address keeps guessing, its further requests are refused at once.
    more = [asyncio.create_task(ask(f"th_more-{place}", 1)) for place in range(GUESSES)]
    await asyncio.sleep(0)
    await there.catch_up()
    await asyncio.gather(*more)
    assert await ask("th_last", 1) == "too_many_attempts"
    assert looks == 2


async def test_what_is_not_known_is_no_refusal(
    registries: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the last read of the changes is over a second old, an unknown key gets 503. A known key is accepted.
    """
    here, there = registries
    access = KeyAccess(there, clock=MovedClock())
    _, known = await here.keys.create(name="known", scopes=[INGEST], actor=ADA)
    await there.catch_up()
    with pytest.raises(Refusal) as caught:
        await access.admit_with_current_keys("th_unknown", INGEST, address="192.0.2.1")
    assert caught.value.status == 503
    assert caught.value.type == "keys_unavailable"
    assert caught.value.retry_after_s == 1
    assert "known" == (await access.admit_with_current_keys(known, INGEST, address="192.0.2.1")).name


async def test_request_naming_key_by_number_is_accepted_until_key_expires(
    new_schema: Callable[[], Schema],
) -> None:
    """
    A request that names a key by number is accepted until the moment the key expires, whatever the cache says.
    """
    clock = MovedClock()
    async with migrated(new_schema()) as database:
        registry = await Registry.open(PostgresRegistry(database), secret=b"i" * 32, clock=clock)
        now = clock.now()
        key, _ = await registry.keys.create(name="short", scopes=[INGEST], expires_at=now + 60, actor=ADA)
        expects = registry.keys.enabled_key_expectations(key.id)

        async def ended(at: float) -> int:
            asking = database.transaction(
                lambda connection: len(
                    expected_versions_of_keys_no_longer_valid(
                        connection, database.fill_in_table_names, expects, now=at
                    )
                )
            )
            return await asking

        assert [0, 1] == [await ended(now + 59.999), await ended(now + 60)]
        await registry.close()
