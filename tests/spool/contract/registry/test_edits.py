"""
Edits of rows in every table: an edit without a change leaves no trace, and no edit overwrites a change that
its author has not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from gateway.money.allocation.declared import AllocationTable, NewNamespace
from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from spool.errors import NotAllowed
from spool.registry.connections import ConnectionDraft
from spool.registry.insights import InsightDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.roles import FULL, NewRole, RoleLimits
from spool.registry.scopes import INGEST, PING
from spool.registry.views import NewView
from tests.moved_clock import MovedClock
from tests.spool.kept import audit_rows
from tests.spool.savings import SAVING

ADA, BEN = Actor("ada@example.com", "local"), Actor("ben@example.com", "local")
KNOWN = ("model", "team")
VIEW = NewView(name="search", filter={}, principal_dimension="model")
ROLE = NewRole(name="finance", data_access=FULL, members=("eve@example.com",))

pytestmark = pytest.mark.rule

Edit = Callable[[Actor], Awaitable[object]]


async def edits(registry: Registry) -> Mapping[str, Edit]:
    """Return for each table an edit that changes a row when it is made for the first time."""
    key, _ = await registry.keys.create(name="one", scopes=[INGEST], actor=ADA)
    view = await registry.views.create(VIEW, known_dimensions=KNOWN, max_rows=9, actor=ADA)
    draft = NewBudget(name="b", view=ViewName(id=view.id), default_amount="5")
    budget = await registry.declared_table(BudgetTable).create(
        draft, known_dimensions=KNOWN, max_rows=9, actor=ADA
    )
    role = await registry.roles.create(ROLE, known_dimensions=KNOWN, limits=RoleLimits(), actor=ADA)
    bill = await registry.connections.create(
        ConnectionDraft(name="bill", cloud_provider="x"), max_rows=9, actor=ADA
    )
    await registry.declared_table(AllocationTable).create(
        NewNamespace(name="n"), id="space", max_rows=9, actor=ADA
    )
    insight = await registry.insights.create(
        InsightDraft(title="t", description="d", category="c"), actor=ADA
    )
    note = await registry.insights.add_comment(insight.id, "first", actor=ADA)
    await registry.operators.add("eve@example.com", role="viewer", password="a long password", actor=ADA)
    await registry.recommendations.merge_savings([SAVING], looked_for=[SAVING.type])
    [saving] = await registry.recommendations.all()
    [remark] = await registry.recommendations.add_comments(saving.id, ["first"], actor=ADA)
    return {
        "key": lambda by: registry.keys.edit(
            key.name, description="new", labels={"team": "search"}, actor=by
        ),
        "key's status": lambda by: registry.keys.disable(key.name, actor=by),
        "view": lambda by: registry.views.change(
            view.id, {"range": "this_year"}, known_dimensions=KNOWN, actor=by
        ),
        "budget": lambda by: registry.declared_table(BudgetTable).change(
            budget.id, {"default_amount": "6"}, known_dimensions=KNOWN, actor=by
        ),
        "role": lambda by: registry.roles.change(
            role.id, {"description": "new"}, known_dimensions=KNOWN, limits=RoleLimits(), actor=by
        ),
        "connection": lambda by: registry.connections.change(bill.id, {"is_enabled": False}, actor=by),
        "namespace": lambda by: registry.declared_table(AllocationTable).change(
            "space", {"name": "other"}, actor=by
        ),
        "insight": lambda by: registry.insights.change(insight.id, fields={"title": "other"}, actor=by),
        "insight's status": lambda by: registry.insights.change(insight.id, status="addressed", actor=by),
        "comment": lambda by: registry.insights.change_comment(insight.id, note.id, "second", actor=by),
        "operator": lambda by: registry.operators.change("eve@example.com", role="operator", actor=by),
        "operator's status": lambda by: registry.operators.change("eve@example.com", disabled=True, actor=by),
        "recommendation": lambda by: registry.recommendations.change_recommendations(
            [saving.id], assignee="ben", actor=by
        ),
        "remark": lambda by: registry.recommendations.change_comment(
            saving.id, remark.id, "second", actor=by
        ),
        "type": lambda by: registry.recommendations.change_type("retries", {"enabled": False}, actor=by),
        "notes": lambda by: registry.org_context.set_text("new", actor=by),
    }


@pytest.mark.proves("a change without effect")
async def test_what_changes_nothing_leaves_no_trace(registry: Registry, clock: MovedClock) -> None:
    """If another person repeats an edit later, no time, name or audit row changes."""
    for name, edit in (await edits(registry)).items():
        clock.move(60)
        before = len(await audit_rows(registry))
        done = await edit(ADA)
        audited = len(await audit_rows(registry))
        assert audited == before + 1, name
        clock.move(60)
        assert done == await edit(BEN), name
        assert audited == len(await audit_rows(registry)), name
    empty = await registry.insights.create(InsightDraft(title="t", description="d", category="c"), actor=ADA)
    clock.move(60)
    assert empty == await registry.insights.change(empty.id, fields={}, actor=BEN)


async def test_an_edit_of_what_was_changed_since_is_refused(registry: Registry) -> None:
    """If two people edit the same version, the second is refused and finds the first edit."""
    view = await registry.views.create(VIEW, known_dimensions=KNOWN, max_rows=9, actor=ADA)
    draft = NewBudget(name="b", view=ViewName(id=view.id), default_amount="5")
    budget = await registry.declared_table(BudgetTable).create(
        draft, known_dimensions=KNOWN, max_rows=9, actor=ADA
    )
    role = await registry.roles.create(ROLE, known_dimensions=KNOWN, limits=RoleLimits(), actor=ADA)
    key, _ = await registry.keys.create(name="one", scopes=[INGEST], actor=ADA)

    def of_view(by: Actor) -> Awaitable[object]:
        return registry.views.change(
            view.id, {"name": by.name}, version=view.version, known_dimensions=KNOWN, actor=by
        )

    def of_budget(by: Actor) -> Awaitable[object]:
        return registry.declared_table(BudgetTable).change(
            budget.id, {"name": by.name}, version=budget.version, known_dimensions=KNOWN, actor=by
        )

    def of_role(by: Actor) -> Awaitable[object]:
        members = {"members": (*role.members, by.name)}
        return registry.roles.change(
            role.id, members, version=role.version, known_dimensions=KNOWN, limits=RoleLimits(), actor=by
        )

    def of_key(by: Actor) -> Awaitable[object]:
        scopes = [INGEST, PING] if by is BEN else [PING]
        return registry.keys.edit("one", scopes=scopes, version=key.version, actor=by)

    for edit in (of_view, of_budget, of_role, of_key):
        outcomes = await asyncio.gather(edit(ADA), edit(BEN), return_exceptions=True)
        assert [False, True] == sorted(isinstance(outcome, NotAllowed) for outcome in outcomes), outcomes
        [kept] = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert kept in (registry.views.get(view.id), registry.declared_table(BudgetTable).get(budget.id),
                        registry.roles.get(role.id), *registry.keys.all())  # fmt: skip
