"""The views of a registry: every change with its audit row, and all of them in memory for those that ask costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from spool.errors import NotAllowed
from spool.registry import views
from spool.registry.budgets import BUDGETS
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared import makers
from spool.registry.shared.document_table import NamedTable, Sees, check_name, everything, stated
from spool.registry.shared.texts import check_dimensions
from spool.registry.tables.plans import PLANS
from spool.registry.views import DIMENSIONAL, VIEWS, View, ViewDraft


class ViewTable(NamedTable[View]):
    """
    Create, change and delete views. A method that raises (Invalid, NotAllowed, NotThere) changes nothing.

    `known` are the dimensions of the ledger.
    """

    kind = VIEWS
    draft = ViewDraft
    limit = makers.VIEWS
    action = "view"

    def matched(self, view: View) -> View:
        """Return a view whose filter holds for every form of the people that it names."""
        return replace(view, filter=self._changes.people.matched(view.filter))

    async def create(
        self,
        draft: ViewDraft,
        *,
        known: Collection[str],
        most: int,
        actor: Actor,
        sees: Sees[View] = everything,
    ) -> View:
        """NotAllowed when there are `most`, or a key made as many as it leaves free."""
        now = self._changes.now()
        drafted = views.check_view(draft)
        check_dimensions(views.dimensions(drafted), known)
        view = View(id=views.new_view_id(), created=now, last_updated=now, **stated(drafted))
        return await self._add(view, check=partial(_check, sees=sees), most=most, actor=actor)

    async def change(
        self,
        id: str,
        changes: Mapping[str, Any],
        *,
        version: str | None = None,
        known: Collection[str],
        actor: Actor,
        sees: Sees[View] = everything,
    ) -> View:
        """
        Set the fields of a draft that are given. A broken view can be renamed, and mended.

        NotAllowed if it is not of the `version` any more that was read.
        """

        def edit(before: View) -> View:
            drafted = views.check_view(self._redrafted(before, changes))
            if not DIMENSIONAL.isdisjoint(changes):
                check_dimensions(views.dimensions(drafted), known)
            return replace(before, **stated(drafted))

        check = partial(_check, sees=sees)
        return await self._edit(id, edit, check=check, version=version, actor=actor)

    async def delete(self, id: str, *, actor: Actor, names_users: bool = True) -> None:
        """NotAllowed while a budget or a plan hangs on it; `names_users`: the words name these."""
        await self._remove(id, check=partial(_check_unused, names_users=names_users), actor=actor)


def _check(rows: RegistryRows, kept: Mapping[str, View], view: View, *, sees: Sees[View]) -> None:
    check_name(kept.values(), view, noun="view", sees=sees)


def _check_unused(rows: RegistryRows, view: View, *, names_users: bool) -> None:
    found = rows.documents(BUDGETS.name).values()
    budgets = [str(body["name"]) for body in found if body.get("view_id") == view.id]
    plans = [plan.name for plan in PLANS.all(rows).values() if plan.view_id == view.id]
    if (budgets or plans) and not names_users:
        raise NotAllowed(
            "budgets or plans hang on this view, some of which you may not see; ask who manages them"
        )
    if budgets:
        raise NotAllowed(
            f"budgets hang on this view: {', '.join(sorted(budgets))}; delete or move them first"
        )
    if plans:
        raise NotAllowed(f"plans hang on this view: {', '.join(sorted(plans))}; delete or move them first")
