"""The views of a registry: every change with its audit row, and all of them in memory for those that ask costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from spool.errors import NotAllowed
from spool.registry import views
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared import makers
from spool.registry.shared.document_table import ManagedTable, NamedTable, Sees, check_name
from spool.registry.shared.texts import check_dimensions
from spool.registry.views import DIMENSIONAL, VIEWS, View, ViewDraft

# Documents that hang on a view, each with its `view_id`: their kinds, and how a refusal names them.
ON_VIEWS: Mapping[str, str] = {"budget": "budgets", "plan": "plans"}


class ViewTable(ManagedTable[View], NamedTable[View]):
    """Create, change and delete views. A method that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind = VIEWS
    draft = ViewDraft
    limit = makers.VIEWS
    action = "view"

    def matched(self, view: View) -> View:
        """Return a view whose filter holds for every form of the people that it names."""
        return replace(view, filter=self._changes.people.matched(view.filter))

    def checked(self, draft: ViewDraft) -> ViewDraft:
        return views.check_view(draft)

    def check_known(self, draft: ViewDraft, given: Collection[str], known: Collection[str]) -> None:
        """A broken view can be renamed, and repaired."""
        if not DIMENSIONAL.isdisjoint(given):
            check_dimensions(views.dimensions(draft), known)

    def check_place(
        self, rows: RegistryRows, stored: Mapping[str, View], row: View, sees: Sees[View]
    ) -> None:
        check_name(stored.values(), row, noun="view", sees=sees)

    async def delete(self, id: str, *, actor: Actor, names_users: bool = True) -> None:
        """NotAllowed while a document of ON_VIEWS is on it; the refusal names them with `names_users`."""
        await self._remove(id, check=partial(_check_unused, names_users=names_users), actor=actor)


def _check_unused(rows: RegistryRows, view: View, *, names_users: bool) -> None:
    for kind, plural in ON_VIEWS.items():
        found = rows.documents(kind).values()
        names = sorted(str(body["name"]) for body in found if body.get("view_id") == view.id)
        if names and not names_users:
            raise NotAllowed(
                "budgets or plans hang on this view, some of which you may not see; ask who manages them"
            )
        if names:
            raise NotAllowed(f"{plural} hang on this view: {', '.join(names)}; delete or move them first")
