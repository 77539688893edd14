"""The views of a registry: every change with its audit row, and all of them in memory for those that ask costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from spool.errors import AlreadyThere, NotAllowed, NotThere
from spool.registry import views
from spool.registry.changes import Changes
from spool.registry.operators import Actor
from spool.registry.rows import RegistryRows
from spool.registry.shared.edits import check_version, edited
from spool.registry.shared.following import DOCUMENTS
from spool.registry.shared.makers import VIEWS, check_share, forget_maker, note_maker
from spool.registry.texts import check_dimensions
from spool.registry.views import DIMENSIONAL, DRAFTED, KIND, View, ViewDraft

_BUDGET = "budget"  # the kind of document whose `view_id` names a view


class ViewTable:
    """
    Create, change and delete views. A method that raises (Invalid, NotAllowed, NotThere) changes nothing.

    `known` are the dimensions of the ledger.
    """

    about = ((DOCUMENTS, KIND),)

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._views: dict[str, View] = {}

    async def load(self) -> None:
        self._views = dict(await self._changes.read(_all))

    def all(self) -> list[View]:
        return list(self._views.values())

    def find(self, id: str) -> View | None:
        return self._views.get(id)

    def get(self, id: str) -> View:
        return _found(self._views, id)

    def find_any(self, word: str) -> View:
        """The view of this id, else of this name. NotThere if there is neither."""
        view = self.find(word) or self.named(word)
        if view is None:
            raise NotThere("there is no view with this id or name")
        return view

    def named(self, name: str) -> View | None:
        """The view of this name, whatever the case."""
        wanted = name.strip().casefold()
        return next((view for view in self._views.values() if view.name.casefold() == wanted), None)

    async def create(self, draft: ViewDraft, *, known: Collection[str], most: int, actor: Actor) -> View:
        """NotAllowed when there are `most`, or a key made as many as it leaves free."""
        now = self._changes.clock.now()
        drafted = views.checked_view(draft)
        check_dimensions(views.dimensions(drafted), known)
        view = View(id=views.new_view_id(), created=now, last_updated=now, **_fields(drafted))

        def work(rows: RegistryRows) -> View:
            kept = _all(rows)
            if len(kept) >= most:
                raise NotAllowed(f"there are {most} views (views.max); delete one")
            check_share(rows, VIEWS, kept, most, actor)
            _check_name(kept, view)
            rows.put_document(KIND, view.id, views.stored(view))
            note_maker(rows, VIEWS, view.id, actor)
            rows.add_audit(now, actor, "view.create", view.id, after=_shown(view, DRAFTED))
            return view

        return await self._changes.change(work, self._remember)

    async def change(
        self,
        id: str,
        changes: Mapping[str, Any],
        *,
        version: str | None = None,
        known: Collection[str],
        actor: Actor,
    ) -> View:
        """
        Set the fields of a draft that are given. A broken view can be renamed, and mended.

        NotAllowed if it is not of the `version` any more that was read.
        """
        now = self._changes.clock.now()

        def work(rows: RegistryRows) -> View:
            kept = _all(rows)
            before = _found(kept, id)
            check_version(before.version, version)
            drafted = views.checked_view(ViewDraft(**{**_fields(before), **changes}))
            if not DIMENSIONAL.isdisjoint(changes):
                check_dimensions(views.dimensions(drafted), known)
            after = edited(before, replace(before, **_fields(drafted)), last_updated=now)
            if after is before:
                return before
            _check_name(kept, after)
            rows.put_document(KIND, id, views.stored(after))
            names = [name for name in DRAFTED if getattr(before, name) != getattr(after, name)]
            rows.add_audit(now, actor, "view.change", id, before=_shown(before, names), after=_shown(after, names))
            return after

        return await self._changes.change(work, self._remember)

    async def delete(self, id: str, *, actor: Actor) -> None:
        """NotAllowed while a budget hangs on it."""

        def work(rows: RegistryRows) -> None:
            before = _found(_all(rows), id)
            budgets = [str(body["name"]) for body in rows.documents(_BUDGET).values() if body.get("view_id") == id]
            if budgets:
                raise NotAllowed(f"budgets hang on this view: {', '.join(sorted(budgets))}; delete or move them first")
            rows.delete_document(KIND, id)
            forget_maker(rows, VIEWS, id)
            rows.add_audit(self._changes.clock.now(), actor, "view.delete", id, before=_shown(before, DRAFTED))

        await self._changes.change(work, lambda _: self._forget(id))

    def _remember(self, view: View) -> None:
        self._views[view.id] = view

    def _forget(self, id: str) -> None:
        self._views.pop(id, None)


def _all(rows: RegistryRows) -> dict[str, View]:
    return {id: views.restored(body) for id, body in rows.documents(KIND).items()}


def _found(kept: Mapping[str, View], id: str) -> View:
    view = kept.get(id)
    if view is None:
        raise NotThere("there is no view with this id")
    return view


def _fields(draft: ViewDraft) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in DRAFTED}


def _shown(view: View, names: Collection[str]) -> dict[str, Any]:
    body = views.stored(view)
    return {name: body[name] for name in names}


def _check_name(kept: Mapping[str, View], view: View) -> None:
    name = view.name.casefold()
    if any(each.name.casefold() == name and each.id != view.id for each in kept.values()):
        raise AlreadyThere(f"there is a view named {view.name!r}")
