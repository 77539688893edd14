"""Refused requests with expired keys, on each engine."""

from __future__ import annotations

from dataclasses import replace

from spool.registry.keys import ApiKey, Secret
from spool.registry.registry import Registry
from spool.registry.tables.expired_tries import ExpiredKeyUses


def key(id: int, expires_at: float) -> ApiKey:
    return ApiKey(
        id=id, name=f"key {id}", status="Enabled", created_by="ada@example.com", updated_by="ada@example.com",
        last_modified=1.0, secrets=(Secret(b"digest", expires_at),),
    )  # fmt: skip


def tries(expires_at: float, count: int, newest: float) -> ExpiredKeyUses:
    return ExpiredKeyUses(expires_at=expires_at, count=count, newest=newest)


async def test_the_tries_of_each_key_are_added_up(registry: Registry) -> None:
    """
    Refused tries of a key are added up over several processes, and the newest time stays. Tries of a deleted key
    are forgotten.
    """
    table, keys = registry.expired_tries, [key(1, 50.0), key(2, 60.0)]
    assert {} == await table.expired_uses_by_key_id()
    await table.add({1: tries(50.0, 2, 70.0), 2: tries(60.0, 1, 61.0)}, keys=keys)
    await table.add({1: tries(50.0, 3, 65.0)}, keys=keys)
    assert {1: tries(50.0, 5, 70.0), 2: tries(60.0, 1, 61.0)} == await table.expired_uses_by_key_id()
    await table.add({}, keys=keys[:1])
    assert {1: tries(50.0, 5, 70.0)} == await table.expired_uses_by_key_id()


async def test_another_expiry_starts_a_new_count(registry: Registry) -> None:
    """
    If a key gets another expiry, a new count of refused tries starts. Earlier tries are forgotten, even if a
    process reports them late.
    """
    table = registry.expired_tries
    await table.add({1: tries(50.0, 2, 70.0)}, keys=[key(1, 50.0)])
    moved = [key(1, 90.0)]
    await table.add({1: tries(90.0, 1, 95.0)}, keys=moved)
    await table.add({1: tries(50.0, 4, 80.0)}, keys=moved)
    assert {1: tries(90.0, 1, 95.0)} == await table.expired_uses_by_key_id()
    lasting = replace(moved[0], secrets=(Secret(b"digest"),))
    await table.add({}, keys=[lasting])
    assert {} == await table.expired_uses_by_key_id()
