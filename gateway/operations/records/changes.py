"""The operator API handler that streams which lists changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from aiohttp import web

from gateway.core.schemas import TEXT
from gateway.http.event_streams import EVENT_STREAM, encode_event
from gateway.money.budgets.declared import BudgetTable
from gateway.operations.money.annotations import AnnotationTable
from gateway.operations.money.own_prices import PriceTable
from gateway.operations.records.newest import newest_visible_records
from gateway.operations.requests.address import NOTHING, SIGNED_IN, operator_call
from gateway.operations.requests.requests import OperatorRequest, session_role_holder
from gateway.operations.services import OperatorServices
from spool.record import AI_TELEMETRY, BILLING_DATA, TOPICS, UNIT_COST, USAGE_EVENTS
from spool.registry.documents import row_version
from spool.registry.permission_sets import (
    ORGANIZATION_ADMINISTRATION,
    VIEW_COSTS,
    VIEW_OPERATION,
    VIEW_RECOMMENDATIONS,
    VIEW_RECORDS,
    VIEW_STREAM_SETTINGS,
)

# seconds between two events for people with restricted access, because the exact moment of a change would
# reveal other people's calls
OWN_EVERY_S = 15.0
OF_THE_REGISTRY = (
    "insights",
    "views",
    "annotations",
    "prices",
    "budgets",
    "plans",
    "contracts",
    "recommendations",
    "notifications",
    "statements",
    "roles",
)
# Kind of change -> permission set that its page needs.
NEEDS = {
    "records": VIEW_RECORDS,
    "recommendations": VIEW_RECOMMENDATIONS,
    "roles": ORGANIZATION_ADMINISTRATION,
    "streams": VIEW_STREAM_SETTINGS,
    **dict.fromkeys(
        (
            *("ledger", "insights", "views", "annotations", "prices", "budgets", "plans", "contracts"),
            *("statements", "connections"),
        ),
        VIEW_COSTS,
    ),
    **dict.fromkeys(
        ("routes", "dead", "notifications", "container_files", "devices", "keys"), VIEW_OPERATION
    ),
}


@operator_call(
    "GET", "/changes", SIGNED_IN, "Stream which lists change", gives={EVENT_STREAM: TEXT}, shows=NOTHING
)
async def changes(request: OperatorRequest[OperatorServices, None]) -> web.StreamResponse:
    """
    Stream only the names of lists that have changed. The client then requests the data that it shows.

    The stream names only lists that the person may open. For people with restricted access, an event is sent
    only every OWN_EVERY_S.
    """
    versions = (
        VisibleListVersions(request)
        if request.has_limited_data_access
        else partial(_versions_by_list, request.services)
    )
    seen = await versions()

    async def next_change_events() -> Iterable[bytes]:
        nonlocal seen
        before, seen = seen, await versions()
        changed_names = [
            name
            for name, version in seen.items()
            if version != before[name] and NEEDS[name] in request.rights.permission_sets
        ]
        return [encode_event("changed", {"what": changed_names})] if changed_names else []

    return await send_event_stream(request, next_change_events)


async def _versions_by_list(services: OperatorServices) -> Mapping[str, object]:
    log = services.spool.log
    deliveries = services.spool.deliveries
    registry = services.installation.registry
    files = services.senders.container_files
    senders = (services.senders.devices, services.senders.clusters)
    registry_version = registry and registry.version
    closed = [log.lowest_open_number(topic) for topic in TOPICS]
    return {
        "records": [closed, *map(log.next_number, TOPICS)],
        "ledger": log.lowest_open_number(AI_TELEMETRY),
        "routes": [deliveries.version, closed],
        "dead": deliveries.dead_version,
        **dict.fromkeys(OF_THE_REGISTRY, registry_version),
        "container_files": files and files.sums.accounting(),
        "devices": [sender.table.version for sender in senders if sender is not None],
        "keys": registry_version,
        "connections": [registry_version, log.next_number(BILLING_DATA)],
        "streams": [log.next_number(topic) for topic in (USAGE_EVENTS, UNIT_COST)],
    }


class VisibleListVersions:
    """
    A version of each list, which changes whenever the part of the list that a person with restricted access
    may see changes.

    The visible part is compared at fixed intervals. So changes that the person may not see neither cause a
    notice nor delay one.
    """

    def __init__(self, request: OperatorRequest[OperatorServices, Any]) -> None:
        self._request = request
        self._versions: Mapping[str, object] = {}
        self._next_at = 0.0
        self._registry: object = None  # registry version for which the visible part was computed
        self._visible: Mapping[str, str] = {}

    async def __call__(self) -> Mapping[str, object]:
        now = asyncio.get_running_loop().time()
        if now >= self._next_at:
            self._next_at = now + OWN_EVERY_S
            self._versions = await self._current_versions()
        return self._versions

    async def _current_versions(self) -> Mapping[str, object]:
        request = self._request
        newest_one = (await newest_visible_records(request, request.services.spool))[:1]
        calls = [(stored.committed_at, stored.record.id) for stored in newest_one]
        if self._registry != (version := request.registry.version):
            self._registry, self._visible = version, await self._versions_of_visible_registry_lists()
        visible = dict(self._visible)
        # the calls are part of the value for budgets, because a call changes the amount that a budget has spent
        spent = visible.pop("budgets"), calls
        return {**visible, "records": calls, "ledger": calls, "budgets": spent}

    async def _versions_of_visible_registry_lists(self) -> Mapping[str, str]:
        registry, visible = self._request.registry, await self._request.cost_reader.read_visibility()
        annotations = registry.declared_table(AnnotationTable).all()
        insights, savings = await registry.insights.detector_insights(), await registry.recommendations.all()
        return {
            "views": row_version([view for view in registry.views.all() if visible.can_see_view(view)]),
            "annotations": row_version(
                [annotation for annotation in annotations if visible.can_see_view_id(annotation.view)]
            ),
            "prices": row_version(registry.declared_table(PriceTable).all() if visible.is_whole else []),
            "budgets": row_version(
                [
                    budget
                    for budget in registry.declared_table(BudgetTable).all()
                    if visible.can_see_budget(budget)
                ]
            ),
            "insights": row_version([insight for insight in insights if visible.can_see_insight(insight)]),
            "recommendations": row_version(
                [
                    recommendation
                    for recommendation in savings
                    if visible.can_see_recommendation(recommendation)
                ]
            ),
        }


async def send_event_stream(
    request: OperatorRequest[OperatorServices, Any], news: Callable[..., Any]
) -> web.StreamResponse:
    """
    Send an event stream until the session ends or its rights change. On the operator socket, there is no
    session that could end.

    A browser then reconnects with its new rights.
    """

    async def can_still_listen() -> bool:
        session = request.session
        registry = request.registry
        if session is None:
            return True
        rights = registry.roles.holder_rights(session_role_holder(request.services.people, session))
        return rights == request.rights and await registry.operators.is_session_live(session)

    session = request.session
    person = f"command {request.actor.name}" if session is None else session.account or session.id
    return await request.shared.event_streams.serve_event_stream(
        request.http, news, can_still_listen, person=person
    )
