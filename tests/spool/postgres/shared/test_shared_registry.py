"""
Two processes on one registry: changes are serialized, and each one's memory follows the other's commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from gateway.money.allocation.declared import AllocationTable, NewNamespace
from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from gateway.operations.list import declared_tables
from spool.errors import AlreadyThere, NotAllowed, NotThere, SpoolUnavailable
from spool.postgres.registry import store
from spool.postgres.registry.store import PostgresRegistry
from spool.registry.changes import LOOKED_S
from spool.registry.connections import ConnectionDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.roles import FULL, NewRole, RoleLimits
from spool.registry.scopes import INGEST
from spool.registry.views import NewView
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import migrated
from tests.spool.kept import audit_rows
from tests.spool.postgres_cluster import Schema

ACTOR = Actor("ada@example.com", "127.0.0.1")
SECRET = b"i" * 32


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock(1_700_000_000.0)


@pytest.fixture
async def nodes(fresh_schema: Schema, clock: MovedClock) -> AsyncIterator[tuple[Registry, Registry]]:
    """One registry, opened by two processes."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(2):
            database = await stack.enter_async_context(migrated(fresh_schema))
            opened.append(
                await Registry.open(
                    PostgresRegistry(database), secret=SECRET, clock=clock, declared=declared_tables()
                )
            )
            stack.push_async_callback(opened[-1].close)
        yield opened[0], opened[1]


async def test_a_key_of_one_opens_on_the_other_until_it_is_deleted(nodes: tuple[Registry, Registry]) -> None:
    """
    A key that one process creates is accepted by the other until it is deleted. After the deletion, the second
    process also knows why the key is no longer valid.
    """
    here, there = nodes
    _, secret = await here.keys.create(name="search", scopes=[INGEST], actor=ACTOR)
    assert there.keys.find_by_secret(secret) is None
    await there.catch_up()
    found = there.keys.find_by_secret(secret)
    assert found is not None and "search" == found.name
    await here.keys.delete("search", confirm="search", actor=ACTOR)
    await there.catch_up()
    assert there.keys.find_by_secret(secret) is None
    assert there.keys.is_known_or_ended_secret(secret) is True


async def test_a_secret_that_was_rotated_away_ends_on_the_other(nodes: tuple[Registry, Registry]) -> None:
    """After the rotation, only the new secret is valid on both processes."""
    here, there = nodes
    _, old = await here.keys.create(name="search", scopes=[INGEST], actor=ACTOR)
    await there.catch_up()
    _, new = await here.keys.rotate("search", overlap_s=0, actor=ACTOR)
    await there.catch_up()
    assert there.keys.find_by_secret(old) is None
    assert there.keys.is_known_or_ended_secret(old) is True
    assert there.keys.find_by_secret(new) is not None


async def make_role(registry: Registry) -> None:
    draft = NewRole(name="searchers", data_access=FULL)
    await registry.roles.create(draft, known_dimensions=("team",), limits=RoleLimits(), actor=ACTOR)


async def make_view(registry: Registry) -> None:
    draft = NewView(name="all", filter={}, principal_dimension="team")
    await registry.views.create(draft, known_dimensions=("team",), max_rows=10, actor=ACTOR)


async def make_connection(registry: Registry) -> None:
    await registry.connections.create(
        ConnectionDraft(name="aws", cloud_provider="AWS"), max_rows=10, actor=ACTOR
    )


async def make_namespace(registry: Registry) -> None:
    await registry.declared_table(AllocationTable).create(
        NewNamespace(name="Retail"), id="retail", max_rows=10, actor=ACTOR
    )


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (make_role, lambda registry: {role.name for role in registry.roles.all()}),
        (make_view, lambda registry: registry.views.all()),
        (make_connection, lambda registry: registry.connections.all()),
        (make_namespace, lambda registry: registry.declared_table(AllocationTable).all()),
    ],
)
async def test_tables_in_memory_follow(
    nodes: tuple[Registry, Registry],
    make: Callable[[Registry], Awaitable[None]],
    shown: Callable[[Registry], object],
) -> None:
    """After its next check, each process shows what the other process created."""
    here, there = nodes
    before = shown(there)
    await make(here)
    assert before == shown(there) != shown(here)
    await there.catch_up()
    assert shown(here) == shown(there)


async def test_other_process_deletes_the_budget_of_a_deleted_view(nodes: tuple[Registry, Registry]) -> None:
    """If a view is deleted with its budget, the other process's memory deletes both."""
    here, there = nodes
    view = await here.views.create(
        NewView(name="all", filter={}, principal_dimension="team"),
        known_dimensions=("team",),
        max_rows=10,
        actor=ACTOR,
    )
    draft = NewBudget(name="b", view=ViewName(id=view.id), default_amount="10", alerts={"100": "Y"})
    budget = await here.declared_table(BudgetTable).create(
        draft, known_dimensions=("team",), max_rows=10, actor=ACTOR
    )
    await there.catch_up()
    assert [budget] == there.declared_table(BudgetTable).all()
    await here.declared_table(BudgetTable).delete(budget.id, actor=ACTOR)
    await there.catch_up()
    assert [] == there.declared_table(BudgetTable).all()


async def test_changes_of_both_processes_are_serialized(nodes: tuple[Registry, Registry]) -> None:
    """Of several keys with one name one is created, and the audit list's numbers have no gap."""
    made = [node.keys.create(name="one", scopes=[INGEST], actor=ACTOR) for node in nodes * 4]
    outcomes = await asyncio.gather(*made, return_exceptions=True)
    assert 7 == sum(isinstance(outcome, AlreadyThere) for outcome in outcomes)
    await asyncio.gather(*(node.keys.rotate("one", overlap_s=0, actor=ACTOR) for node in nodes * 3))
    assert list(range(1, 8)) == sorted(row.id for row in await audit_rows(nodes[0]))


@pytest.mark.proves("edits at two gateways at once")
async def test_edits_of_one_row_at_two_nodes_are_all_there(nodes: tuple[Registry, Registry]) -> None:
    """
    Simultaneous changes of different fields are both stored. If two processes change one list from the same
    version, the second is refused, reads again and adds to it.
    """
    here, there = nodes
    await make_view(here)
    [view] = here.views.all()
    draft = NewBudget(name="b", view=ViewName(id=view.id), default_amount="5")
    budget = await here.declared_table(BudgetTable).create(
        draft, known_dimensions=("model",), max_rows=9, actor=ACTOR
    )
    role = await here.roles.create(
        NewRole(name="finance", data_access=FULL), known_dimensions=(), limits=RoleLimits(), actor=ACTOR
    )
    await there.catch_up()
    for turn in range(5):
        fields = {"default_amount": str(turn + 6)}, {"name": f"budget {turn}"}
        await asyncio.gather(
            *(
                node.declared_table(BudgetTable).change(
                    budget.id, field, known_dimensions=("model",), actor=ACTOR
                )
                for node, field in zip(nodes, fields, strict=True)
            )
        )
        for node in nodes:
            await node.catch_up()
            kept = node.declared_table(BudgetTable).get(budget.id)
            assert str(turn + 6) == kept.default_amount
            assert kept.name == f"budget {turn}"

    async def add(node: Registry, member: str) -> None:
        """Add a member as a person does in a form: read, change, and repeat if refused."""
        while True:
            await node.catch_up()
            read = node.roles.get(role.id)
            await asyncio.sleep(0)  # the other process reads as well before either process writes
            try:
                await node.roles.change(
                    role.id, {"members": (*read.members, member)}, version=read.version, known_dimensions=(),
                    limits=RoleLimits(), actor=ACTOR,
                )  # fmt: skip
            except NotAllowed:
                continue
            return

    added = [f"person-{number}@example.com" for number in range(10)]
    await asyncio.gather(*(add(nodes[place % 2], member) for place, member in enumerate(added)))
    for node in nodes:
        await node.catch_up()
        assert added == sorted(node.roles.get(role.id).members)


async def test_who_missed_too_much_reads_everything(
    nodes: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that missed more changes than the limited list contains reads all tables again."""
    here, there = nodes
    monkeypatch.setattr(store, "KEPT_CHANGES", 10)
    await make_view(here)
    await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    for _ in range(99):
        await here.keys.rotate("one", overlap_s=0, actor=ACTOR)
    await there.catch_up()
    assert len(there.views.all()) == 1
    assert len(there.keys.all()) == 1


async def test_a_number_that_is_given_again_is_another_change(
    nodes: tuple[Registry, Registry], fresh_schema: Schema
) -> None:
    """
    A takeover undid the newest change, and the next change got its number. Memory no longer has the undone change.
    """
    here, there = nodes
    await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    await here.keys.create(name="undone", scopes=[INGEST], actor=ACTOR)
    for node in nodes:
        await node.catch_up()
    undo = (
        "DELETE FROM {schema}.secrets WHERE key_id = 2; DELETE FROM {schema}.keys WHERE id = 2;"
        "DELETE FROM {schema}.registry_changes WHERE seq = 2; UPDATE {schema}.registry_head SET seq = 1"
    )
    async with migrated(fresh_schema) as database:
        await database.run(lambda connection: connection.execute(database.fill_in_table_names(undo)))
    await there.keys.create(name="later", scopes=[INGEST], actor=ACTOR)
    for node in nodes:
        await node.catch_up()
        assert ["later", "one"] == sorted(key.name for key in node.keys.all())


async def test_an_own_change_is_not_read_again(nodes: tuple[Registry, Registry]) -> None:
    """
    A process does not read its own change again, because memory already has it. Only changes of others move the
    version.
    """
    here, there = nodes
    await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    assert () == tuple((await here.catch_up()).changed or ())
    before = there.version
    await there.catch_up()
    assert before + 1 == there.version


async def test_memory_that_was_not_looked_after_is_not_fresh(
    nodes: tuple[Registry, Registry], clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory counts as fresh for a second after the last successful check."""
    here, there = nodes
    _, secret = await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    clock.move(LOOKED_S)
    assert there.is_memory_fresh
    clock.move(0.1)
    assert not there.is_memory_fresh

    async def fails(since: int | None) -> None:
        raise SpoolUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresRegistry, "changes_since", lambda self, since: fails(since))
        with pytest.raises(SpoolUnavailable):
            await there.catch_up()
    assert there.is_memory_fresh is False
    assert there.keys.find_by_secret(secret) is None
    await there.catch_up()
    assert there.is_memory_fresh and there.keys.find_by_secret(secret) is not None


async def test_a_change_on_a_key_that_the_other_deleted(nodes: tuple[Registry, Registry]) -> None:
    """
    A change of a key that the other process has deleted is refused, because the stored row decides, not memory.
    """
    here, there = nodes
    await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    await there.catch_up()
    await here.keys.delete("one", confirm="one", actor=ACTOR)
    with pytest.raises(NotThere):
        await there.keys.disable("one", actor=ACTOR)
