"""
API of views, for keys and for people. If a person may not see a view, the API answers as if the view
did not exist.

Tollhouse adds its own fields to the published fields: the settings of the view's reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET

from gateway.core.fields import (
    KEPT,
    build_answer,
    changes_struct,
    given_fields,
    item_struct,
    one_item_answer_struct,
)
from gateway.core.visibility import SLICED
from gateway.http.lists import Filter, ListDefinition, Sort, yes_no_filter
from gateway.money.costs.times import format_seconds
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import SHOW, ByKeys, ByPeople, JsonAnswer, ManagedResource, OperationCaller
from spool.registry.document_table import Sees
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS
from spool.registry.registry import Registry
from spool.registry.views import NewView, SavedView, StatedFilter, ViewTable

ViewChanges = changes_struct(NewView)
ViewItem = item_struct(
    NewView,
    "A view in a response. Times are epoch seconds as text. `broken` is the reason why it cannot be used.",
    answer_only_fields={
        "broken": Annotated[
            str | None,
            words("Why the view cannot be used: a dimension of its filter no longer exists."),
            example(None),
        ],
        **KEPT,
    },
)
OneView = one_item_answer_struct(NewView, ViewItem)


@dataclass(frozen=True, slots=True)
class ShownView:
    """A view, and the reason why it cannot be used. The reason is None if it can be used."""

    view: SavedView
    broken: str | None


def describe_view(row: ShownView) -> JsonAnswer:
    view = row.view
    return build_answer(
        ViewItem,
        view,
        filter={name: [value or None for value in values] for name, values in view.filter.items()},
        broken=row.broken,
        created=format_seconds(view.created),
        last_updated=format_seconds(view.last_updated),
    )


VIEWS: ListDefinition[ShownView] = ListDefinition(
    root="views",
    show=describe_view,
    identity=Sort(value=lambda row: row.view.id),
    sorts={
        "name": Sort(value=lambda row: row.view.name),
        "created": Sort(value=lambda row: row.view.created),
        "last_updated": Sort(value=lambda row: row.view.last_updated),
    },
    default_sort=("name", "asc"),
    filters={
        "name": Filter(values=lambda row: (row.view.name,)),
        "principal_dimension": Filter(values=lambda row: (row.view.principal_dimension,)),
        "is_broken": yes_no_filter(lambda row: row.broken),
    },
)


class ViewResource(ManagedResource[SavedView, MoneyServices]):
    noun = "view"
    table = ViewTable
    lists = VIEWS
    new = NewView
    changes = ViewChanges
    item = ViewItem
    one = OneView
    files = ResourceFiles(name="views", refers={"connections.notify": "channels"})
    searched = ("name",)
    has_dimensions = True
    # keys of the resource; clients of the cost service expect the view itself after a change, without an
    # envelope
    keys = ByKeys(path="/v2/views", id="view_id", group="views", endpoint="views", is_bare_when_made=True)
    people = ByPeople(
        path="/views",
        reads=VIEW_COSTS,
        changes=MODIFY_VIEWS_AND_BUDGETS,
        shows=SLICED,
        words={SHOW: "Show a view, by id or name"},
    )

    def table_in(self, registry: Registry) -> ViewTable:
        return registry.views

    async def visibility_test(self, caller: OperationCaller[MoneyServices]) -> Sees[SavedView]:
        return (await caller.sees()).can_see_view

    async def convert_row_for_lists(
        self, caller: OperationCaller[MoneyServices], row: SavedView
    ) -> ShownView:
        return _view_with_state(caller.services, row)

    async def draft_fields(self, caller: OperationCaller[MoneyServices], new_values: Any) -> dict[str, Any]:
        """
        Return the given fields in stored form.

        Raises Refusal 403 for calls that the person may not see, and Invalid for unknown people or channels.
        """
        if new_values.filter is not UNSET:
            (await caller.sees()).check_filter(new_values.filter)
            for values in new_values.filter.values():
                caller.shared.people.reject_dropped_names(value or "" for value in values)
        stated_fields = given_fields(new_values, filter=_stored_filter)
        if "connections" in stated_fields:
            caller.registry.notices.check_channels("connections.notify", stated_fields["connections"].notify)
        return stated_fields

    async def delete(self, caller: OperationCaller[MoneyServices], id_or_name: str) -> str:
        id = (await self.find(caller, id_or_name)).id
        names_users = (await caller.sees()).is_whole
        await caller.registry.views.delete(id, actor=caller.actor, shows_users=names_users)
        return id


VIEW = ViewResource()


def _view_with_state(money: MoneyServices, view: SavedView) -> ShownView:
    return ShownView(view, view.broken_reason(money.ledger.dimensions()))


def _stored_filter(filter: StatedFilter) -> dict[str, tuple[str, ...]]:
    return {name: tuple(value or "" for value in values) for name, values in filter.items()}
