"""Publishing a definition on one of several gateways with a shared registry puts it in force on all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from gateway.money.allocation.declared import (
    DEFAULT,
    DONE,
    OVER,
    AllocationTable,
    DefinitionVersion,
    NewNamespace,
)
from gateway.money.allocation.language import Limits
from gateway.money.allocation.published import AllocationDefinitionHolder
from gateway.money.allocation.publishing import DefinitionPublisher
from gateway.operations.list import declared_tables
from spool.ledger.ledger import Ledger
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.sqlite.in_memory import new_in_memory_ledger, new_in_memory_registry
from spool.sqlite.registry import SqliteRegistry
from tests.moved_clock import MovedClock
from tests.waiting import limited

ADA = Actor("ada@example.com", "local")


class Gateway:
    """One gateway with its own in-memory copy of the registry."""

    def __init__(self, registry: Registry, ledger: Ledger) -> None:
        self.table = registry.declared_table(AllocationTable)
        self.published = AllocationDefinitionHolder(ledger)
        self.changed = asyncio.Event()
        self.publishing = DefinitionPublisher(
            self.table,
            ledger,
            self.published,
            limits=Limits,
            max_versions=lambda: 9,
            max_jobs=lambda: 9,
            changed=self.changed.set,
        )

    @classmethod
    async def start(cls, store: SqliteRegistry) -> Gateway:
        clock = MovedClock()
        ledger = await Ledger(new_in_memory_ledger(), clock=clock).load()
        gateway = cls(
            await Registry.open(store, secret=b"i" * 32, clock=clock, declared=declared_tables()), ledger
        )
        await gateway.publishing.load_versions_in_force()
        return gateway

    def in_force(self) -> tuple[str, list[str]]:
        return self.published.version, [dimension.name for dimension in self.published.dimensions()]


def definition(name: str) -> bytes:
    rule = "{Type: Group, Name: All, Conditions: [{HasValue: true}]}"
    return f"Dimensions: {{{name}: {{Name: {name}, Source: team, Rules: [{rule}]}}}}".encode()


@pytest.fixture
def store() -> SqliteRegistry:
    return new_in_memory_registry()


@pytest_asyncio.fixture
async def two(store: SqliteRegistry) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Start two gateways. The second follows what is published."""
    gateways = await Gateway.start(store), await Gateway.start(store)
    following = asyncio.create_task(gateways[1].publishing.follow_publications())
    yield gateways
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def test_what_one_publishes_is_in_force_at_the_other(two: tuple[Gateway, Gateway]) -> None:
    """
    A definition that one gateway publishes is in force at the other one. The other one also follows later
    versions, and a namespace until it is deleted.
    """
    first_gateway, second_gateway = two
    for number, name in enumerate(("Centre", "Unit"), start=1):
        await first_gateway.publishing.publish(definition(name), namespace=DEFAULT, base=None, actor=ADA)
        second_gateway.changed.clear()
        await second_gateway.table.load()
        async with limited():
            await second_gateway.changed.wait()
        assert (str(number), [name]) == second_gateway.in_force() == first_gateway.in_force()
        version = second_gateway.table.version(DEFAULT, number)
        assert [name] == [
            dimension.name
            for dimension in (await second_gateway.publishing.parse_version(version)).dimensions
        ]


async def test_a_job_that_another_has_carried_out(store: SqliteRegistry) -> None:
    """
    Another gateway carried out the job. A gateway that missed the change learns it from the finished job and
    puts the published definition in force.
    """
    first_gateway = await Gateway.start(store)
    job = await first_gateway.publishing.submit(definition("Centre"), namespace=DEFAULT, base=None, actor=ADA)
    second_gateway = await Gateway.start(store)
    for gateway in (first_gateway, second_gateway):
        running = asyncio.create_task(gateway.publishing.run())
        async with limited():
            while gateway.table.find_job(job.id).state not in OVER:
                await gateway.table.wait_for_change()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    await second_gateway.publishing.load_versions_in_force()
    assert [DONE, DONE] == [
        gateway.table.find_job(job.id).state for gateway in (first_gateway, second_gateway)
    ]
    assert ("1", ["Centre"]) == second_gateway.in_force()


async def test_a_job_waits_for_whoever_may_carry_it_out(two: tuple[Gateway, Gateway]) -> None:
    """A job that was created on the other gateway waits until a gateway may carry it out."""
    first_gateway, second_gateway = two
    running = asyncio.create_task(second_gateway.publishing.run())
    await asyncio.sleep(0)
    job = await first_gateway.publishing.submit(definition("Centre"), namespace=DEFAULT, base=None, actor=ADA)
    await second_gateway.table.load()
    async with limited():
        await second_gateway.changed.wait()
    assert second_gateway.table.find_job(job.id).state == DONE
    assert second_gateway.in_force() == ("1", ["Centre"])
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_definition_that_cannot_be_read_stops_no_other(
    store: SqliteRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error in one namespace keeps only that namespace out of force, and gives the reason."""
    first_gateway = await Gateway.start(store)
    await first_gateway.table.create(NewNamespace(name="Teams"), id="teams", max_rows=9, actor=ADA)
    for namespace, name in ((DEFAULT, "Centre"), ("teams", "Unit")):
        await first_gateway.publishing.publish(definition(name), namespace=namespace, base=None, actor=ADA)
    load_version = DefinitionPublisher._load_version

    async def fail_for_default(publisher: DefinitionPublisher, version: DefinitionVersion) -> None:
        if version.namespace == DEFAULT:
            raise RecursionError
        await load_version(publisher, version)

    monkeypatch.setattr(DefinitionPublisher, "_load_version", fail_for_default)
    second_gateway = await Gateway.start(store)
    assert ["Unit"] == second_gateway.in_force()[1]
    reason = "its newest version is not in force: an internal error; see the log: RecursionError"
    assert reason == second_gateway.publishing.broken_reason(DEFAULT)
    assert second_gateway.publishing.broken_reason("teams") is None
