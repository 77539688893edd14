"""
Views for keys and for people. Beside the published fields stand Tollhouse's own: what a report of the view shows.

What a person does not see is answered as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.api.managed import Answer, Asker, ManagedResource
from gateway.api.times import seconds
from gateway.api.visible import EVERYTHING, Visible
from gateway.errors import Refusal
from gateway.http.holders.money import MoneyServices
from gateway.http.lists import Filter, List, MemoryRows, Sort, yes_no
from gateway.resources.declaration import answer, stated
from gateway.resources.views import NewView, OneView, Values, ViewChanges, ViewItem
from spool.errors import NotThere
from spool.ledger.queries import CostQuery, within
from spool.registry.views import Anomalies, View, ViewConnections, ViewDraft


@dataclass(frozen=True, slots=True)
class ShownView:
    """A view, and why it cannot be asked; None if it can."""

    view: View
    broken: str | None


def describe_view(row: ShownView) -> Answer:
    view = row.view
    return answer(
        ViewItem,
        view,
        filter={name: [value or None for value in values] for name, values in view.filter.items()},
        broken=row.broken,
        created=seconds(view.created),
        last_updated=seconds(view.last_updated),
    )


VIEWS: List[ShownView] = List(
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
        "is_broken": yes_no(lambda row: row.broken),
    },
)


async def _rows(asking: Asker) -> MemoryRows[ShownView]:
    sees = await asking.sees()
    return view_rows(asking.services, sees.view)


async def _create(asking: Asker, given: NewView) -> Answer:
    sees = await asking.sees()
    _check_filter(asking, sees, given.filter)
    money = asking.services
    draft = ViewDraft(**_fields(money, given))
    table, known = asking.registry.views, await asking.known()
    most = asking.shared.most(table.limit)
    made = await table.create(draft, known=known, most=most, actor=asking.actor, sees=sees.view)
    return _describe(money, made)


async def _show(asking: Asker, word: str) -> Answer:
    return _describe(asking.services, await _view(asking, word))


async def _change(asking: Asker, word: str, given: Any) -> Answer:
    id, money = (await _view(asking, word)).id, asking.services
    sees = await asking.sees()
    if given.filter is not UNSET:
        _check_filter(asking, sees, given.filter)
    known, fields = await asking.known(), _fields(money, given)
    changing = asking.registry.views.change(
        id, fields, version=given.version, known=known, actor=asking.actor, sees=sees.view
    )
    return _describe(money, await changing)


def _check_filter(asking: Asker, sees: Visible, filter: Mapping[str, Sequence[str | None]]) -> None:
    """Refusal 403 for calls that the asker may not see, Invalid for people whom no record names."""
    sees.check_filter(filter)
    for values in filter.values():
        asking.shared.people.check(value or "" for value in values)


async def _delete(asking: Asker, word: str) -> str:
    id = (await _view(asking, word)).id
    names_users = (await asking.sees()).is_whole
    await asking.registry.views.delete(id, actor=asking.actor, names_users=names_users)
    return id


async def _view(asking: Asker, word: str) -> View:
    table = asking.registry.views
    return table.find_any(word, (await asking.sees()).view) if asking.is_person else table.get(word)


VIEW = ManagedResource(
    noun="view",
    root="view",
    lists=VIEWS,
    new=NewView,
    changes=ViewChanges,
    item=ViewItem,
    one=OneView,
    rows=_rows,
    create=_create,
    show=_show,
    change=_change,
    delete=_delete,
)


def view_rows(money: MoneyServices, shows: Callable[[View], bool] = lambda _: True) -> MemoryRows[ShownView]:
    kept = money.require_registry().views.all()
    return MemoryRows([_add_state(money, view) for view in kept if shows(view)])


def within_view(money: MoneyServices, query: CostQuery, word: str) -> CostQuery:
    """The question inside a view, named as for `usable_view`."""
    view = usable_view(money, word)
    return within(query, include=view.include, exclude=view.exclude)


def usable_view(money: MoneyServices, word: str, sees: Visible = EVERYTHING) -> View:
    """The view of an id or a name. Refusal 400 for one that is unknown, not visible or broken."""
    views = money.require_registry().views
    try:
        view = views.find_any(word, sees.view)
    except NotThere as error:
        raise unknown_view(error) from None
    return views.matched(check_usable(money.ledger.dimensions(), view))


def unknown_view(error: NotThere) -> Refusal:
    return Refusal(400, "invalid_parameter", f"view: {error}")


def check_usable(dimensions: Collection[str], view: View) -> View:
    """The view itself. Refusal 400 for a broken one."""
    reason = view.broken(dimensions)
    if reason:
        raise Refusal(400, "invalid_parameter", f"the view {view.name} is broken: {reason}")
    return view


def _describe(money: MoneyServices, view: View) -> Answer:
    return {"view": describe_view(_add_state(money, view))}


def _add_state(money: MoneyServices, view: View) -> ShownView:
    return ShownView(view, view.broken(money.ledger.dimensions()))


def _fields(money: MoneyServices, given: Any) -> dict[str, Any]:
    """Return the stated fields by the names of a draft. Invalid for a channel that is not configured."""
    found = stated(
        given,
        filter=_stored_filter,
        connections=lambda value: msgspec.convert(msgspec.to_builtins(value), ViewConnections),
        anomalies=lambda value: msgspec.convert(msgspec.to_builtins(value), Anomalies),
    )
    if "connections" in found:
        money.require_registry().notices.check_channels("connections.notify", found["connections"].notify)
    return found


def _stored_filter(filter: dict[str, Values]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(value or "" for value in values) for name, values in filter.items()}
