"""The key of `server.api_key_file` at two gateways on one PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from spool.registry.keys import LEGACY_NAME, OPENS
from spool.registry.operators import Actor
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema
from tests.waiting import until

FIRST, SECOND, THIRD = "the-first-secret", "the-second-secret", "the-third-secret"
ACTOR = Actor("ada@example.com", "127.0.0.1")


@pytest.fixture
def config(new_schema: Callable[[], Schema], tmp_path: Path) -> Config:
    schema = new_schema()
    return shared_config(schema.dsn, schema.name, tmp_path)


def named(config: Config, name: str) -> Config:
    return replace(config, storage=replace(config.storage, node_name=name))


async def status(gateway: Serving, secret: str) -> int:
    return (await gateway.send("/v1/traces", json_traces(json_span()), key=secret)).status


async def started(serve: Serve, config: Config, file: Path) -> Serving:
    """Start the first gateway; return it once it is visible to other nodes."""
    one = await serve(config=named(config, "gateway-1"), api_key_file=file)

    async def is_seen() -> bool:
        return any(node.is_live for node in await one.app.services.storage.leases.node_states())

    await until(is_seen)
    return one


async def test_the_second_with_another_file_does_not_start(
    serve: Serve, config: Config, tmp_path: Path
) -> None:
    """
    A second gateway with another key file does not start. The error names both gateways, and the first one's
    key stays valid. With the same file the second one starts.
    """
    files = {name: tmp_path / name for name in (FIRST, SECOND)}
    for secret, file in files.items():
        file.write_text(secret)
    one = await started(serve, config, files[FIRST])
    second = named(config, "gateway-2")
    with pytest.raises(ConfigError, match=r"server\.api_key_file of gateway-2: .* that of gateway-1, "):
        await serve(config=second, api_key_file=files[SECOND])
    assert [200, 401] == [await status(one, secret) for secret in files]
    other = await serve(config=second, key_name="other sender", api_key_file=files[FIRST])
    assert [200, 401] == [await status(other, secret) for secret in files]


async def test_both_follow_the_file_and_a_deletion(serve: Serve, config: Config, tmp_path: Path) -> None:
    """
    Both gateways follow the key file: whichever of them reads a new secret first, both accept only this secret. A
    deletion also holds at both.
    """
    file = tmp_path / "key"
    file.write_text(FIRST)
    one = await started(serve, config, file)
    other = await serve(config=named(config, "gateway-2"), key_name="other sender", api_key_file=file)
    both = (one, other)
    file.write_text(SECOND)
    await one.app.services.operators.senders.access.store_uses()
    assert [200, 200] == [await status(gateway, SECOND) for gateway in both]
    assert [401, 401] == [await status(gateway, FIRST) for gateway in both]
    await other.app.services.operators.senders.access.store_uses()
    assert [200, 200] == [await status(gateway, SECOND) for gateway in both]
    registry = other.app.services.storage.registry
    assert registry is not None
    await registry.keys.delete(LEGACY_NAME, confirm=LEGACY_NAME, actor=ACTOR)
    for secret in (SECOND, FIRST, THIRD):
        file.write_text(secret)
        for gateway in both:
            await gateway.app.services.operators.senders.access.store_uses()
        assert [401, 401] == [await status(gateway, secret) for gateway in both]
    assert OPENS == await _adopted(one)
    assert [200, 200] == [await status(gateway, THIRD) for gateway in both]


async def _adopted(gateway: Serving) -> str:
    done = await gateway.app.services.operators.senders.access.adopt_legacy_key(
        works_after_deletion=True, actor=ACTOR
    )
    assert done is not None
    return done
