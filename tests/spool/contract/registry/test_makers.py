"""Keys that create rows in shared tables: one key with many rows leaves space for others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gateway.money.allocation.declared import AllocationTable, NewNamespace
from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from spool.errors import AlreadyThere, NotAllowed
from spool.registry.connections import ConnectionDraft
from spool.registry.insights import Finding, InsightDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.roles import FULL, NewRole, RoleLimits
from spool.registry.tables import insights as insight_table
from spool.registry.tables import recommendations as recommendation_table
from spool.registry.views import NewView
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.savings import SAVING

ADA = Actor("ada@example.com", "local")
FLEET, OTHER = Actor("fleet", "10.0.0.1", is_key=True), Actor("other", "10.0.0.2", is_key=True)
KNOWN = ("model", "team")
MOST = 4  # maximum number of rows in each table of this test

pytestmark = pytest.mark.rule

Make = Callable[[str, Actor], Awaitable[str]]
Delete = Callable[[str], Awaitable[None]]


async def views(registry: Registry) -> tuple[Make, Delete]:
    async def make(name: str, by: Actor) -> str:
        draft = NewView(name=name, filter={}, principal_dimension="model")
        return (await registry.views.create(draft, known_dimensions=KNOWN, max_rows=MOST, actor=by)).id

    return make, lambda id: registry.views.delete(id, actor=ADA)


async def budgets(registry: Registry) -> tuple[Make, Delete]:
    draft = NewView(name="all", filter={}, principal_dimension="model")
    view = registry.views.find_by_name("all") or await registry.views.create(
        draft, known_dimensions=KNOWN, max_rows=1, actor=ADA
    )

    async def make(name: str, by: Actor) -> str:
        draft = NewBudget(name=name, view=ViewName(id=view.id), default_amount="5")
        return (
            await registry.declared_table(BudgetTable).create(
                draft, known_dimensions=KNOWN, max_rows=MOST, actor=by
            )
        ).id

    return make, lambda id: registry.declared_table(BudgetTable).delete(id, actor=ADA)


async def connections(registry: Registry) -> tuple[Make, Delete]:
    async def make(name: str, by: Actor) -> str:
        draft = ConnectionDraft(name=name, cloud_provider="x")
        return (await registry.connections.create(draft, max_rows=MOST, actor=by)).id

    return make, lambda id: registry.connections.delete(id, actor=ADA)


async def roles(registry: Registry) -> tuple[Make, Delete]:
    async def make(name: str, by: Actor) -> str:
        draft = NewRole(name=name, data_access=FULL)
        return (
            await registry.roles.create(draft, known_dimensions=KNOWN, limits=RoleLimits(most=MOST), actor=by)
        ).id

    return make, lambda id: registry.roles.delete(id, actor=ADA)


async def namespaces(registry: Registry) -> tuple[Make, Delete]:
    async def make(name: str, by: Actor) -> str:
        made = await registry.declared_table(AllocationTable).create(
            NewNamespace(name=name), id=name, max_rows=MOST, actor=by
        )
        return made.id

    return make, lambda id: registry.declared_table(AllocationTable).delete(id, actor=ADA)


async def insights(registry: Registry) -> tuple[Make, Delete]:
    async def make(name: str, by: Actor) -> str:
        return (await registry.insights.find_or_add(InsightDraft(title=name), actor=by)).id

    async def delete(id: str) -> None:
        await registry.insights.delete_with_comments(id, actor=ADA)

    return make, delete


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insight_table, "MAX_INSIGHTS", MOST)
    monkeypatch.setattr(insight_table, "MAX_COMMENTS", MOST)
    monkeypatch.setattr(recommendation_table, "MAX_COMMENTS", MOST)


@pytest.mark.proves("tables that one key fills")
@pytest.mark.parametrize(
    ("table", "limit"),
    [
        (views, "views.max"),
        (budgets, "budgets.max"),
        (connections, "billing.max_connections"),
        (roles, "roles.max"),
        (namespaces, "allocation.max_namespaces"),
        (insights, ""),
    ],
)
async def test_one_key_leaves_room_for_another(
    open_registry: RegistryOpener, table: Callable[[Registry], Awaitable[tuple[Make, Delete]]], limit: str
) -> None:
    """
    A key cannot use the whole limit, even after a restart. Deleted rows free space, and a person may use all
    that is left.
    """
    registry = await open_registry()
    make, _ = await table(registry)
    first = await make("a", FLEET)
    await make("b", FLEET)
    await registry.close()
    make, delete = await table(await open_registry())
    with pytest.raises(NotAllowed, match="a key gets at most half of what others leave free"):
        await make("c", FLEET)
    await make("c", OTHER)
    with pytest.raises(NotAllowed, match="a key gets at most half"):
        await make("d", OTHER)
    await delete(first)
    await make("e", ADA)
    await make("f", ADA)
    with pytest.raises(NotAllowed, match=f"limit of 4 .*{limit}"):
        await make("g", ADA)


@pytest.mark.parametrize("table", [views, budgets, connections, roles])
async def test_names_are_unique(
    open_registry: RegistryOpener, table: Callable[[Registry], Awaitable[tuple[Make, Delete]]]
) -> None:
    """Names of rows that keys create are compared without case, so they are unique."""
    make, _ = await table(await open_registry())
    await make("a", ADA)
    with pytest.raises(AlreadyThere):
        await make("A", ADA)


async def test_a_key_that_logs_insights_leaves_room_for_findings(registry: Registry) -> None:
    """
    Detectors' findings are stored, however many insights an assistant logs. Known words are still returned.
    """
    first = await registry.insights.find_or_add(InsightDraft(title="0"), actor=FLEET)
    await registry.insights.find_or_add(InsightDraft(title="1"), actor=FLEET)
    with pytest.raises(NotAllowed):
        await registry.insights.find_or_add(InsightDraft(title="2"), actor=FLEET)
    with pytest.raises(NotAllowed):
        await registry.insights.create(InsightDraft(title="2"), actor=FLEET)
    assert first == await registry.insights.find_or_add(InsightDraft(title="0"), actor=FLEET)
    merged = await registry.insights.merge_findings(
        [Finding(key="spike:a", draft=InsightDraft(title="a"))], looked_for=["spike"]
    )
    assert merged.new == 1
    assert merged.left_out == 0


async def test_a_key_that_comments_leaves_room_for_another(registry: Registry) -> None:
    """One key's comments leave space for another key's, on insights and on recommendations."""
    insight = await registry.insights.create(InsightDraft(title="t"), actor=ADA)
    await registry.recommendations.merge_savings([SAVING], looked_for=[SAVING.type])
    [saving] = await registry.recommendations.all()
    for text in ("one", "two"):
        await registry.insights.add_comment(insight.id, text, actor=FLEET)
    with pytest.raises(NotAllowed, match="a key gets at most half"):
        await registry.insights.add_comment(insight.id, "three", actor=FLEET)
    with pytest.raises(NotAllowed, match="a key gets at most half"):
        await registry.recommendations.add_comments(saving.id, ["one", "two", "three"], actor=FLEET)
    await registry.recommendations.add_comments(saving.id, ["one", "two"], actor=FLEET)
    for actor in (OTHER, ADA):
        await registry.insights.add_comment(insight.id, "seen", actor=actor)
        await registry.recommendations.add_comments(saving.id, ["seen"], actor=actor)
