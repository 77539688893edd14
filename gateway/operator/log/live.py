"""The calls of the operator API that go on: what changed, and records as they are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from gateway.http.event_streams import event
from gateway.http.lists import chosen
from gateway.http.services import OperatorServices
from gateway.operator.log.newest import kept_records, records_in_views, seen, shown
from gateway.operator.requests import OperatorRequest, holder
from spool.record import AI_TELEMETRY, BILLING_DATA, TOPICS, UNIT_COST, USAGE_EVENTS

MOST_AT_ONCE = 500  # records of a topic


async def changes(request: OperatorRequest[None]) -> web.StreamResponse:
    """Says what changed and nothing more: who listens asks again for what it shows."""
    versions = _versions(request.services)
    seen = {name: version() for name, version in versions.items()}

    async def news() -> Iterable[bytes]:
        now = {name: version() for name, version in versions.items()}
        what = [name for name, version in now.items() if version != seen[name]]
        seen.update(now)
        return [event("changed", {"what": what})] if what else []

    return await follow(request, news)


def _versions(services: OperatorServices) -> Mapping[str, Callable[[], object]]:
    """By what a page shows: a value in memory that differs after a change of it."""
    log, deliveries, registry = services.log, services.deliveries, services.registry
    files = services.container_files
    tables = [each.table for each in (services.devices, services.clusters) if each is not None]

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
        **dict.fromkeys(("views", "budgets", "recommendations", "notifications", "statements", "roles"), kept),
        "container_files": lambda: files and files.sums.books(),
        "devices": lambda: [table.version for table in tables],
        "keys": kept,
        "connections": lambda: [kept(), log.next_number(BILLING_DATA)],
        "streams": lambda: [log.next_number(topic) for topic in (USAGE_EVENTS, UNIT_COST)],
    }


async def tail(request: OperatorRequest[None]) -> web.StreamResponse:
    """
    Records that pass the filters, as they are committed; `skipped` counts those that came faster than this reads, null
    for who may see some calls alone: they hear of calls once these are closed.
    """
    log = request.services.log
    end = log.closed_below if request.is_limited else log.next_number
    passes = chosen(await records_in_views(request), list(request.http.query.items()))
    reached = {topic: end(topic) for topic in TOPICS}

    async def news() -> Iterable[bytes]:
        found: list[bytes] = []
        for topic, first in reached.items():
            below = end(topic)
            begin = max(first, below - MOST_AT_ONCE)
            if begin > first and (topic == AI_TELEMETRY or not request.is_limited):
                skipped = None if request.is_limited else begin - first
                found.append(event("skipped", {"topic": topic, "records": skipped}))
            if below > begin:
                entries = await log.read(topic, begin, below - 1, with_open=True)
                records = seen(request, kept_records(log, entries))
                found += [event("record", shown(kept)) for kept in records if passes(kept)]
            reached[topic] = below
        return found

    return await follow(request, news)


async def follow(request: OperatorRequest[Any], news: Callable[..., Any]) -> web.StreamResponse:
    """
    An event stream, as long as the session goes on with the same rights; the operator socket has none that ends.

    A browser comes back with the rights that it has then.
    """

    async def may_listen() -> bool:
        session, registry = request.session, request.registry
        if session is None:
            return True
        rights = registry.roles.rights(holder(request.services, session))
        return rights == request.rights and await registry.operators.is_on(session)

    session = request.session
    person = f"command {request.actor.name}" if session is None else session.account or session.id
    return await request.services.event_streams.serve(request.http, news, may_listen, person=person)
