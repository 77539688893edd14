"""The limit of each resource, and the share of a key in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from gateway.operations.list import declared_tables
from tests.integration.operations.every.conftest import CONFIG, started
from tests.integration.operations.every.declared import COVERED, MANAGED, Resource, World

pytestmark = pytest.mark.asyncio(loop_scope="module")
MOST = 6
LIMITED = [each for each in COVERED if each.list.row.path in MANAGED]
by_people = pytest.mark.parametrize(
    "resource", [each for each in LIMITED if each.create.is_for_people], ids=lambda each: each.name
)
by_key = pytest.mark.parametrize(
    "resource", [each for each in LIMITED if not each.create.is_for_people], ids=lambda each: each.name
)


def table_of(world: World, resource: Resource) -> Any:
    registry = world.serving.app.services.operators.installation.require_registry()
    return MANAGED[resource.list.row.path].table_in(registry)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tight(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Start a server whose settings allow MOST items of each resource."""
    config = CONFIG
    async with started(tmp_path_factory.mktemp("names"), CONFIG) as world:
        limits = {table_of(world, each).limit for each in LIMITED if not table_of(world, each).most}
    for limit in limits:
        section, _, field = limit.partition(".")
        config = replace(config, **{section: replace(getattr(config, section), **{field: MOST})})
    with pytest.MonkeyPatch.context() as patch:
        for table in declared_tables():
            if getattr(table, "most", 0):
                patch.setattr(table, "most", MOST)
        async with started(tmp_path_factory.mktemp("tight"), config) as world:
            yield world


async def created_until_refused(world: World, resource: Resource) -> tuple[int, str]:
    """Create items until one is refused; return their number and the message."""
    for number in range(MOST + 1):
        answer, _ = await world.create(resource)
        if answer.status >= 300:
            assert (answer.status, answer.payload["error"]["type"]) == (409, "not_allowed"), answer.said
            return number, answer.payload["error"]["message"]
    raise AssertionError(f"{resource.name} has no limit")


@by_key
async def test_a_key_has_a_share(tight: World, resource: Resource) -> None:
    """
    A key gets at most half of the room that others leave free under the limit of a resource, so that people still
    have room.
    """
    table = table_of(tight, resource)
    others = table.count() - 1  # the key itself created one example
    number, message = await created_until_refused(tight, resource)
    assert number + 1 == (MOST - others + 1) // 2
    assert "a key gets at most half of what others leave free" in message
    assert table.count() < MOST


@by_people
async def test_one_more_than_the_limit_is_refused(tight: World, resource: Resource) -> None:
    """If one object more than the limit is created, it is refused, and the message names the limit."""
    table = table_of(tight, resource)
    before = table.count()
    number, message = await created_until_refused(tight, resource)
    assert (before + number, table.count()) == (MOST, MOST)
    assert f"the limit of {MOST} " in message
    assert "delete one first" in message
    assert table.most or table.limit in message
