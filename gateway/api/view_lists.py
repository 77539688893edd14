"""
Views as every list and answer shows them, to keys and to operators alike.

Beside the published fields stand Tollhouse's own: what a report of the view shows, and why it cannot be asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gateway.api.insight_lists import seconds
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.services import OperatorServices
from spool.registry.views import View


@dataclass(frozen=True, slots=True)
class ShownView:
    """A view, and why it cannot be asked; None if it can."""

    view: View
    broken: str | None


def shown_view(row: ShownView) -> dict[str, object]:
    view = row.view
    return {
        "id": view.id,
        "name": view.name,
        "filter": {name: [value or None for value in values] for name, values in view.filter.items()},
        "principal_dimension": view.principal_dimension,
        "connections": msgspec.to_builtins(view.connections),
        "anomalies": msgspec.to_builtins(view.anomalies),
        "granularity": view.granularity,
        "group_by": list(view.group_by),
        "cost_type": view.cost_type,
        "range": view.range,
        "broken": row.broken,
        "created": seconds(view.created),
        "last_updated": seconds(view.last_updated),
        "version": view.version,
    }


VIEWS: List[ShownView] = List(
    root="views",
    show=shown_view,
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
        "is_broken": Filter(
            values=lambda row: ("true" if row.broken else "false",), valid_values=("true", "false"), type="boolean"
        ),
    },
)


def view_rows(services: OperatorServices, shows: Callable[[View], bool] = lambda _: True) -> MemoryRows[ShownView]:
    kept = services.require_registry().views.all()
    return MemoryRows([with_state(services, view) for view in kept if shows(view)])


def with_state(services: OperatorServices, view: View) -> ShownView:
    return ShownView(view, view.broken(services.ledger.dimensions()))
