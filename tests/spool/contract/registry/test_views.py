"""Views in a registry: known dimensions, unique names, a limit, and an audit row per change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spool.errors import Invalid, NotAllowed, NotThere
from spool.registry.documents import replace_fields
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.views import Anomalies, EmailConnection, NewView, SavedView, SlackChannel, ViewConnections
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA = Actor("ada@example.com", "local")
KNOWN = ("model", "team", "user", "tag:service")
DRAFT = NewView(
    name="Search, without tests",
    filter={"team": ("search", ""), "!tag:service": ("tests",)},
    principal_dimension="model",
    connections=ViewConnections(
        email=EmailConnection(addresses=("ada@example.com",), include_all_organizers=True),
        slack=(SlackChannel(id="C1", name="costs"),),
        notify=("oncall", "costs"),
    ),
    anomalies=Anomalies(threshold_type="Percent", threshold_value=50),
    granularity="weekly",
    group_by=("user", "model"),
    cost_type="saved_cost",
    range="last_30d",
)
BARE = NewView(name="everything", filter={}, principal_dimension="team")

pytestmark = pytest.mark.rule


async def create(
    registry: Registry, draft: NewView, *, max_rows: int = 10, known_names: Sequence[str] = KNOWN
) -> SavedView:
    return await registry.views.create(draft, known_dimensions=known_names, max_rows=max_rows, actor=ADA)


async def change(
    registry: Registry, id: str, changes: dict[str, Any], *, known_names: Sequence[str] = KNOWN
) -> SavedView:
    return await registry.views.change(id, changes, known_dimensions=known_names, actor=ADA)


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_a_view_is_there_after_a_restart(open_registry: RegistryOpener) -> None:
    """Every field of a view survives a restart. A view is found by id, and by name without case."""
    registry = await open_registry()
    made, bare = await create(registry, DRAFT), await create(registry, BARE)
    await registry.close()
    again = (await open_registry()).views
    assert [made, bare] == sorted(again.all(), key=lambda view: view.name != DRAFT.name)
    assert again.get(made.id) == made
    assert again.find_by_name("EVERYTHING ") == bare
    assert all(getattr(DRAFT, name) == getattr(made, name) for name in NewView.__struct_fields__)
    assert again.find("nobody") is None
    assert again.find_by_name("nobody") is None


async def test_a_filter_says_what_a_question_includes_and_excludes(open_registry: RegistryOpener) -> None:
    """A view's filter has the form of a CostQuery, where "" means unknown. Channels are listed once."""
    view = await create(await open_registry(), DRAFT)
    assert view.include == {"team": ("search", "")}
    assert view.exclude == {"tag:service": ("tests",)}
    assert ("oncall", "costs") == view.channels


async def test_a_view_with_budgets_is_not_deleted(registry: Registry) -> None:
    """
    The refusal names the view's budgets. Without budgets a view can be deleted. Each successful change has
    an audit row.
    """
    made = await create(registry, DRAFT)
    for id, view in (("b-1", made.id), ("b-2", "another")):
        await registry._changes.change_rows(
            lambda rows, id=id, view=view: rows.put_document(
                "budget", id, {"name": f"budget {id}", "view_id": view}
            )  # type: ignore[misc]
        )
    with pytest.raises(NotAllowed, match=r"budget b-1. Delete"):
        await registry.views.delete(made.id, actor=ADA)
    await registry._changes.change_rows(lambda rows: rows.delete_document("budget", "b-1"))
    await registry.views.delete(made.id, actor=ADA)
    assert registry.views.find(made.id) is None
    assert registry.views.all() == []
    with pytest.raises(NotThere):
        await registry.views.delete(made.id, actor=ADA)
    with pytest.raises(NotThere):
        await change(registry, made.id, {})
    assert [("view.create", made.id), ("view.delete", made.id)] == [
        (row.action, row.target) for row in await audit_rows(registry)
    ]


async def test_view_with_a_removed_tag_is_broken(registry: Registry) -> None:
    """A broken view states the reason. It can be renamed, but a change of its filter must repair it."""
    made, known = await create(registry, DRAFT), KNOWN[:-1]
    assert made.broken_reason(KNOWN) is None
    assert "tag:service" in (made.broken_reason(known) or "")
    assert "renamed" == (await change(registry, made.id, {"name": "renamed"}, known_names=known)).name
    with pytest.raises(Invalid, match="tag:service"):
        await change(registry, made.id, {"group_by": ("team",)}, known_names=known)
    assert (await change(registry, made.id, {"filter": {}}, known_names=known)).broken_reason(known) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": " "},
        {"name": "x" * 201},
        {"filter": {"colour": ("red",)}},
        {"filter": {"!!team": ("a",)}},
        {"filter": {"team": ()}},
        {"filter": {"team": ("x" * 257,)}},
        {"filter": {"team": tuple(map(str, range(501))), "!team": tuple(map(str, range(500)))}},
        {"principal_dimension": "colour"},
        {"group_by": ("colour",)},
        {"group_by": ("team",) * 9},
        {"granularity": "minutely"},
        {"cost_type": "usage_amount"},
        {"range": "ever"},
        {"anomalies": Anomalies(threshold_type="Absolute")},
        {"anomalies": Anomalies(threshold_type="Percent")},
        {"anomalies": Anomalies(threshold_value=0)},
        {"connections": ViewConnections(email=EmailConnection(addresses=("ada",)))},
        {"connections": ViewConnections(slack=(SlackChannel(id="", name="x"),))},
        {"connections": ViewConnections(notify=("",))},
        {"connections": ViewConnections(notify=("x",) * 51)},
    ],
)
async def test_what_breaks_a_rule_is_refused(registry: Registry, wrong: dict[str, Any]) -> None:
    """The rules apply to creation and change. Nothing of a refused draft is stored."""
    with pytest.raises(Invalid):
        await create(registry, replace_fields(DRAFT, **wrong))
    assert [] == registry.views.all()
    made = await create(registry, DRAFT)
    with pytest.raises(Invalid):
        await change(registry, made.id, wrong)
    assert made == registry.views.get(made.id)


async def test_filter_is_stored_as_text(open_registry: RegistryOpener) -> None:
    """A repeated value in a filter is stored once. Text that cannot be stored is replaced."""
    view = await create(
        await open_registry(), replace_fields(BARE, filter={"team": ("b", "a", "b", "\ud800")})
    )
    assert {"team": ("b", "a", "?")} == view.filter
