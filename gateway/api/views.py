"""
Views for keys that manage them: one scope for each method.

As the service's own clients expect, a view that was created or changed is answered bare, and one that is read under
its name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from gateway.api.view_lists import VIEWS, shown_view, view_rows, with_state
from gateway.errors import Refusal
from gateway.http.requests import KeyRequest, Result
from gateway.http.services import OperatorServices
from spool.errors import NotThere
from spool.ledger.queries import CostQuery, within
from spool.registry.operators import Actor
from spool.registry.views import Anomalies, View, ViewConnections, ViewDraft

Values = list[str | None]  # null is the unknown value


class Email(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    addresses: list[str] = []
    include_all_organizers: bool = False


class Slack(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    name: str


class Notified(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`notify` names channels of the configuration; so does the name of a Slack channel."""

    email: Email = msgspec.field(default_factory=Email)
    slack: list[Slack] = []
    notify: list[str] = []


class AnomalySettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`threshold_value` is in percent, and of `Percent` alone."""

    enabled: bool = True
    threshold_type: Literal["Automatic", "Percent"] = "Automatic"
    threshold_value: int | None = None


class NewView(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`!` before a dimension of the filter excludes its values."""

    name: str
    filter: dict[str, Values]
    principal_dimension: str
    connections: Notified = msgspec.field(default_factory=Notified)
    anomalies: AnomalySettings = msgspec.field(default_factory=AnomalySettings)
    granularity: str = "total"
    group_by: list[str] = []
    cost_type: str = "real_cost"
    range: str = "mtd"


class ViewChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    What is left out stays as it is. With the `version` that was read, the change is refused if
    somebody else made one since.
    """

    version: str | None = None
    name: str | msgspec.UnsetType = msgspec.UNSET
    filter: dict[str, Values] | msgspec.UnsetType = msgspec.UNSET
    principal_dimension: str | msgspec.UnsetType = msgspec.UNSET
    connections: Notified | msgspec.UnsetType = msgspec.UNSET
    anomalies: AnomalySettings | msgspec.UnsetType = msgspec.UNSET
    granularity: str | msgspec.UnsetType = msgspec.UNSET
    group_by: list[str] | msgspec.UnsetType = msgspec.UNSET
    cost_type: str | msgspec.UnsetType = msgspec.UNSET
    range: str | msgspec.UnsetType = msgspec.UNSET


class ViewItem(msgspec.Struct, kw_only=True):
    """A view as it is answered; times are epoch seconds as text. `broken` says why it cannot be asked."""

    id: str
    name: str
    filter: dict[str, Values]
    principal_dimension: str
    connections: Notified
    anomalies: AnomalySettings
    granularity: str
    group_by: list[str]
    cost_type: str
    range: str
    broken: str | None
    created: str
    last_updated: str
    version: str


class OneView(msgspec.Struct, kw_only=True):
    view: ViewItem


async def read_views(request: KeyRequest[None]) -> Result:
    return await request.list(VIEWS, view_rows(request.services.operators))


async def create_view(request: KeyRequest[NewView]) -> Result:
    return await create(request.services.operators, request.body, request.actor)


async def read_view(request: KeyRequest[None]) -> Result:
    services = request.services.operators
    return {"view": shown(services, services.require_registry().views.get(request.word("view_id")))}


async def update_view(request: KeyRequest[ViewChanges]) -> Result:
    return await change(request.services.operators, request.word("view_id"), request.body, request.actor)


async def delete_view(request: KeyRequest[None]) -> Result:
    id = request.word("view_id")
    await request.services.operators.require_registry().views.delete(id, actor=request.actor)
    return {"view": {"id": id}}


def shown(services: OperatorServices, view: View) -> Mapping[str, object]:
    return shown_view(with_state(services, view))


async def create(
    services: OperatorServices, given: NewView, actor: Actor, *, known: Collection[str] | None = None
) -> Mapping[str, object]:
    """`known` are the dimensions that it may name, if not all."""
    table, known = services.require_registry().views, known or services.ledger.dimensions()
    draft = ViewDraft(**_fields(services, given))
    return shown(services, await table.create(draft, known=known, most=services.max_views(), actor=actor))


async def change(
    services: OperatorServices, id: str, given: ViewChanges, actor: Actor, *, known: Collection[str] | None = None
) -> Mapping[str, object]:
    """As `create`."""
    table, known = services.require_registry().views, known or services.ledger.dimensions()
    return shown(
        services, await table.change(id, _fields(services, given), version=given.version, known=known, actor=actor)
    )


def within_view(services: OperatorServices, query: CostQuery, word: str) -> CostQuery:
    """The question inside a view, named as for `usable_view`."""
    view = usable_view(services, word)
    return within(query, include=view.include, exclude=view.exclude)


def usable_view(services: OperatorServices, word: str) -> View:
    """The view of an id or a name. Refusal 400 for one that is unknown or broken."""
    try:
        view = services.require_registry().views.find_any(word)
    except NotThere as error:
        raise unknown_view(error) from None
    return check_usable(services, view)


def unknown_view(error: NotThere) -> Refusal:
    return Refusal(400, "invalid_parameter", f"view: {error}")


def check_usable(services: OperatorServices, view: View) -> View:
    """The view itself. Refusal 400 for a broken one."""
    if reason := view.broken(services.ledger.dimensions()):
        raise Refusal(400, "invalid_parameter", f"the view {view.name} is broken: {reason}")
    return view


def _fields(services: OperatorServices, given: NewView | ViewChanges) -> dict[str, Any]:
    """By the names of a draft, what is given. Invalid for a channel that the configuration does not have."""
    values = msgspec.structs.asdict(given)
    found = {name: value for name, value in values.items() if value is not msgspec.UNSET}
    found.pop("version", None)
    if "filter" in found:
        found["filter"] = {name: tuple(value or "" for value in values) for name, values in found["filter"].items()}
    for name, kind in (("connections", ViewConnections), ("anomalies", Anomalies)):
        if name in found:
            found[name] = msgspec.convert(msgspec.to_builtins(found[name]), kind)
    if "connections" in found:
        services.require_registry().notices.check_channels("connections.notify", found["connections"].notify)
    if "group_by" in found:
        found["group_by"] = tuple(found["group_by"])
    return found
