"""The calls of the operator API that go on: what changed, and records as they are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from gateway.http.event_streams import EVENT_STREAM, event
from gateway.http.services import OperatorServices
from gateway.money.annotations.declared import AnnotationTable
from gateway.operator.address import NOTHING, SIGNED_IN, call
from gateway.operator.log.newest import (
    newest,
)
from gateway.operator.requests import OperatorRequest, holder
from gateway.operator.visible import visible_to
from gateway.schemas import TEXT
from spool.record import AI_TELEMETRY, BILLING_DATA, TOPICS, UNIT_COST, USAGE_EVENTS
from spool.registry.permission_sets import (
    ORGANIZATION_ADMINISTRATION,
    VIEW_COSTS,
    VIEW_OPERATION,
    VIEW_RECOMMENDATIONS,
    VIEW_RECORDS,
    VIEW_STREAM_SETTINGS,
)

# between two events for who may see some calls alone: the moment of a change tells something, too
OWN_EVERY_S = 15.0
# The permission set without which a page is closed, by what is said of it.
NEEDS = {
    "records": VIEW_RECORDS,
    "recommendations": VIEW_RECOMMENDATIONS,
    "roles": ORGANIZATION_ADMINISTRATION,
    "streams": VIEW_STREAM_SETTINGS,
    **dict.fromkeys(
        ("ledger", "insights", "views", "annotations", "budgets", "statements", "connections"), VIEW_COSTS
    ),
    **dict.fromkeys(
        ("routes", "dead", "notifications", "container_files", "devices", "keys"), VIEW_OPERATION
    ),
}


@call("GET", "/changes", SIGNED_IN, "Hear what changes", gives={EVENT_STREAM: TEXT}, shows=NOTHING)
async def changes(request: OperatorRequest[OperatorServices, None]) -> web.StreamResponse:
    """
    Says what changed and nothing more: who listens asks again for what it shows.

    Everybody hears of what he may open alone; who may see some calls alone hears of these, in steps of OWN_EVERY_S.
    """
    if request.is_limited:
        own = OwnNews(request)
        await own()  # what is there now is no news
        return await follow(request, own)
    versions = {
        name: version for name, version in _versions(request.services).items() if _may_open(request, name)
    }
    seen = {name: version() for name, version in versions.items()}

    async def news() -> Iterable[bytes]:
        now = {name: version() for name, version in versions.items()}
        return _changed(seen, now)

    return await follow(request, news)


def _changed(seen: dict[str, object], now: Mapping[str, object]) -> Iterable[bytes]:
    """The event for what differs, if anything does; `seen` is then what is now."""
    what = [name for name, version in now.items() if version != seen[name]]
    seen.update(now)
    return [event("changed", {"what": what})] if what else []


def _may_open(request: OperatorRequest[OperatorServices, Any], name: str) -> bool:
    return NEEDS[name] in request.rights.permission_sets


class OwnNews:
    """
    What changed of what a person may see who sees a part of the calls alone.

    Nothing that others do makes an event or moves one: what may be seen is compared with itself, at a beat.
    """

    def __init__(self, request: OperatorRequest[OperatorServices, Any]) -> None:
        self._request = request
        self._seen: dict[str, object] | None = None
        self._next_at = 0.0
        self._registry: object = None  # its version, at which what is visible was worked out
        self._visible: Mapping[str, object] = {}

    async def __call__(self) -> Iterable[bytes]:
        now = asyncio.get_running_loop().time()
        if now < self._next_at:
            return []
        self._next_at = now + OWN_EVERY_S
        versions = await self._versions()
        if self._seen is None:
            self._seen = dict(versions)
            return []
        return _changed(self._seen, versions)

    async def _versions(self) -> Mapping[str, object]:
        calls = [
            (kept.committed_at, kept.record.id)
            for kept in (await newest(self._request, self._request.services.spool))[:1]
        ]
        if self._registry != (version := self._request.registry.version):
            self._registry, self._visible = version, await self._of_registry()
        of_calls = dict.fromkeys(("records", "ledger", "budgets"), calls)
        versions = {**of_calls, **self._visible, "budgets": (calls, self._visible["budgets"])}
        return {name: each for name, each in versions.items() if _may_open(self._request, name)}

    async def _of_registry(self) -> Mapping[str, object]:
        """Return a hash for each list of the registry, over the rows that the person may see."""
        registry, visible = self._request.registry, await visible_to(self._request)
        insights, savings = await registry.insights.found(), await registry.recommendations.all()
        found: Mapping[str, Sequence[object]] = {
            "views": [each for each in registry.views.all() if visible.view(each)],
            "annotations": [
                each for each in registry.table(AnnotationTable).all() if visible.named(each.view_id)
            ],
            "budgets": [each for each in registry.budgets.all() if visible.budget(each)],
            "insights": [each for each in insights if visible.insight(each)],
            "recommendations": [each for each in savings if visible.recommendation(each)],
        }
        return {name: hash(repr(rows)) for name, rows in found.items()}


def _versions(services: OperatorServices) -> Mapping[str, Callable[[], object]]:
    """Return for each list a function whose value differs after a change of the list."""
    log = services.spool.log
    deliveries = services.spool.deliveries
    registry = services.installation.registry
    files = services.senders.container_files
    tables = [
        each.table for each in (services.senders.devices, services.senders.clusters) if each is not None
    ]

    def closed() -> object:
        return [log.closed_below(topic) for topic in TOPICS]

    def kept() -> object:
        return registry and registry.version

    return {
        "records": lambda: [closed(), *map(log.next_number, TOPICS)],
        "ledger": lambda: log.closed_below(AI_TELEMETRY),
        "routes": lambda: [deliveries.version, closed()],
        "dead": lambda: deliveries.dead_version,
        "insights": kept,
        **dict.fromkeys(
            ("views", "annotations", "budgets", "recommendations", "notifications", "statements", "roles"),
            kept,
        ),
        "container_files": lambda: files and files.sums.books(),
        "devices": lambda: [table.version for table in tables],
        "keys": kept,
        "connections": lambda: [kept(), log.next_number(BILLING_DATA)],
        "streams": lambda: [log.next_number(topic) for topic in (USAGE_EVENTS, UNIT_COST)],
    }


async def follow(
    request: OperatorRequest[OperatorServices, Any], news: Callable[..., Any]
) -> web.StreamResponse:
    """
    An event stream, as long as the session goes on with the same rights; the operator socket has none that ends.

    A browser comes back with the rights that it has then.
    """

    async def may_listen() -> bool:
        session = request.session
        registry = request.registry
        if session is None:
            return True
        rights = registry.roles.rights(holder(request.services.people, session))
        return rights == request.rights and await registry.operators.is_on(session)

    session = request.session
    person = f"command {request.actor.name}" if session is None else session.account or session.id
    return await request.shared.event_streams.serve(request.http, news, may_listen, person=person)
