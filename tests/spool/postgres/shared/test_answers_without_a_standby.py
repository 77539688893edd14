"""Answers to a repeated change while the first change exists on one machine only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from gateway.money.allocation.declared import AllocationTable, NewNamespace
from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from gateway.operations.list import declared_tables
from spool.devices.table import DeviceTable
from spool.errors import AlreadyThere, NotAllowed, NotCertain, NotThere
from spool.postgres.database import Database
from spool.postgres.devices import PostgresDevices
from spool.postgres.migrations import migrate_schema
from spool.postgres.registry.store import PostgresRegistry
from spool.registry.connections import ConnectionDraft
from spool.registry.insights import InsightDraft
from spool.registry.registry import Registry
from spool.registry.roles import FULL, NewRole, RoleLimits
from spool.registry.scopes import INGEST
from spool.registry.views import NewView
from spool.settings import NO_POOLER
from tests.moved_clock import MovedClock
from tests.spool.contract.registry.test_statements import row, statement
from tests.spool.postgres.shared.test_shared_devices import ACTOR, device
from tests.spool.postgres.waiting_commits import commit_that_waits
from tests.spool.postgres_cluster import SUCCESSOR, Schema, Server

KNOWN = ("model", "team")
Change = Callable[[], Awaitable[object]]


@pytest.fixture
async def strict(fresh_schema: Schema, cluster: Server) -> AsyncIterator[Database]:
    """
    A database that requires a standby and soon gives up. The server waits for no standby unless a
    test says otherwise.
    """
    database = Database(
        fresh_schema.dsn,
        schema=fresh_schema.name,
        pooled=fresh_schema.pooler != NO_POOLER,
        commit_timeout_s=0.2,
        needs_standby=False,
    )
    await migrate_schema(database)
    yield database
    await asyncio.to_thread(cluster.change, synchronous_standby_names="")
    await database.close()


async def opened(database: Database) -> Registry:
    return await Registry.open(
        PostgresRegistry(database), secret=b"s" * 32, clock=MovedClock(), declared=declared_tables()
    )


async def deletions(registry: Registry) -> Mapping[str, Change]:
    """Create a row of each table and return how each is deleted."""
    await registry.keys.create(name="key", scopes=[INGEST], actor=ACTOR)
    draft = NewView(name="budgeted", filter={}, principal_dimension="model")
    under = await registry.views.create(draft, known_dimensions=KNOWN, max_rows=9, actor=ACTOR)
    planned = NewBudget(name="budget", view=ViewName(id=under.id), default_amount="5")
    budget = await registry.declared_table(BudgetTable).create(
        planned, known_dimensions=KNOWN, max_rows=9, actor=ACTOR
    )
    view = await registry.views.create(
        NewView(name="view", filter={}, principal_dimension="model"),
        known_dimensions=KNOWN,
        max_rows=9,
        actor=ACTOR,
    )
    role = await registry.roles.create(
        NewRole(name="role", data_access=FULL), known_dimensions=KNOWN, limits=RoleLimits(), actor=ACTOR
    )
    connection = await registry.connections.create(
        ConnectionDraft(name="bill", cloud_provider="x"), max_rows=9, actor=ACTOR
    )
    space = await registry.declared_table(AllocationTable).create(
        NewNamespace(name="n"), id="space", max_rows=9, actor=ACTOR
    )
    bill = await registry.statements.import_statement(statement(row()), actor=ACTOR)
    insight = await registry.insights.create(
        InsightDraft(title="t", description="d", category="c"), actor=ACTOR
    )
    await registry.operators.add("ada@example.com", role="viewer", password="a long password", actor=ACTOR)
    return {
        "key": lambda: registry.keys.delete("key", confirm="key", actor=ACTOR),
        "budget": lambda: registry.declared_table(BudgetTable).delete(budget.id, actor=ACTOR),
        "view": lambda: registry.views.delete(view.id, actor=ACTOR),
        "role": lambda: registry.roles.delete(role.id, actor=ACTOR),
        "connection": lambda: registry.connections.delete(connection.id, actor=ACTOR),
        "namespace": lambda: registry.declared_table(AllocationTable).delete(space.id, actor=ACTOR),
        "import of a bill": lambda: registry.statements.undo(bill.id, actor=ACTOR),
        "insight": lambda: registry.insights.delete_with_comments(insight.id, actor=ACTOR),
        "operator": lambda: registry.operators.remove("ada@example.com", actor=ACTOR),
    }


@pytest.mark.proves("a deleted key works again")
async def test_unconfirmed_deletion_is_not_answered_as_done(strict: Database, cluster: Server) -> None:
    """
    If a row of each table is deleted while the standby is away, the deletion is unconfirmed. A repeat is
    unconfirmed as well, even if no standby is named. If no confirmation is required, the repeat is answered.
    """
    registry = await opened(strict)
    deleted = await deletions(registry)
    await asyncio.to_thread(cluster.change, synchronous_standby_names=SUCCESSOR)
    waiting = await commit_that_waits(cluster)
    for name, delete in deleted.items():
        with pytest.raises(NotCertain):
            print("deleted", name, await delete())
    await registry.catch_up()
    for name, delete in deleted.items():
        with pytest.raises(NotCertain):
            print("deleted again", name, await delete())
    # The remaining steps are the same for every table.
    await asyncio.to_thread(cluster.change, synchronous_standby_names="")
    await waiting
    strict.needs_standby = True
    for other in (registry, await opened(strict)):
        with pytest.raises(NotCertain, match="the standby is gone"):
            await other.keys.delete("key", confirm="key", actor=ACTOR)
    strict.needs_standby = False
    for name, delete in deleted.items():
        with pytest.raises(NotAllowed if name == "import of a bill" else NotThere):
            await delete()


async def test_what_is_there_on_one_machine_is_not_answered_as_done(strict: Database) -> None:
    """
    No answer relies on an unconfirmed row: for example on a used name, a key that is already disabled,
    unchanged notes or an unchanged device.
    """
    registry, table = await opened(strict), await DeviceTable.open(PostgresDevices(strict))
    await registry.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    await registry.org_context.set_text("notes", actor=ACTOR)
    note = InsightDraft(title="t", description="d", category="c")
    await registry.insights.find_or_add(note, actor=ACTOR)
    await table.replace_row(device())
    asked: Mapping[str, Change] = {
        "notes": lambda: registry.org_context.set_text("notes", actor=ACTOR),
        "insight": lambda: registry.insights.find_or_add(note, actor=ACTOR),
        "device": lambda: table.update("laptop-1", lambda known: known or device()),
    }
    strict.needs_standby = True
    for name, ask in asked.items():
        with pytest.raises(NotCertain, match="the standby is gone"):
            print(name, await ask())
    with pytest.raises(NotCertain, match="the standby is gone"):
        await registry.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    strict.needs_standby = False
    for ask in asked.values():
        await ask()
    with pytest.raises(AlreadyThere):
        await registry.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    await table.close()


async def test_concurrent_callers_share_a_wait(strict: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A caller that arrives during a wait shares the next wait with all others, never one that started
    before its call.
    """
    store, waits = PostgresRegistry(strict), 0
    begun, goes = asyncio.Event(), asyncio.Event()

    async def confirm(*, needs_standby: bool) -> None:
        nonlocal waits
        waits += 1
        begun.set()
        await goes.wait()

    monkeypatch.setattr(strict.pool, "wait_until_confirmed", confirm)
    first = asyncio.create_task(store.wait_until_durable())
    await begun.wait()
    others = [asyncio.create_task(store.wait_until_durable()) for _ in range(20)]
    await asyncio.sleep(0)
    goes.set()
    await asyncio.gather(first, *others)
    assert waits == 2
