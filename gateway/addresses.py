"""Every address of the house on one screen: which door answers there, and on which listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aiohttp import web

from gateway.api import catalogue, costs, insights
from gateway.api import status as house_side
from gateway.devices.registrar import Registrar
from gateway.http import bodies
from gateway.http.boundary import Handler, House
from gateway.intake.deposits import Deposits
from gateway.monitoring.health import Health
from gateway.monitoring.metrics import Exposition
from gateway.operator import application as operator
from gateway.receivers import ai_telemetry, foreign, topics
from gateway.receivers import devices as control_plane
from gateway.receivers import otlp_http as otlp
from spool.sqlite import SqliteSpool
from spool.sqlite.ledger.ledger import Ledger
from spool.sqlite.registry.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """What stands behind the doors of a house that has started."""

    spool: SqliteSpool
    registry: Registry | None
    house: House
    ledger: Ledger
    devices: Registrar
    deposits: Deposits
    operators: operator.OperatorServices
    health: Health
    exposition: Exposition
    poke: Callable[[], None]  # lets every route try again at once


def application(rooms: Rooms, *, doors: bool, operator_side: bool) -> web.Application:
    """What one listener serves: the doors for senders, the operator's side, or both."""
    app = web.Application()

    def at(path: str, handler: Handler) -> None:
        # Every method: the doors say 405 themselves, in their own encoding.
        app.router.add_route("*", path, handler, expect_handler=bodies.later)

    if doors:
        for path, handler in _doors(rooms):
            at(path, handler)
        if rooms.house.cors:
            app.on_response_prepare.append(rooms.house.cors.on_prepare)
    at("/livez", house_side.livez(rooms.health, tell=operator_side))
    at("/readyz", house_side.readyz(rooms.health, tell=operator_side))
    if operator_side:
        at("/metrics", house_side.metrics(rooms.exposition))
        at("/openapi.json", catalogue.openapi(rooms.operators.version))
        app.add_subapp(operator.PREFIX, operator.application(rooms.operators))
    at("/{path:(?s:.*)}", house_side.nowhere(rooms.house))  # a path may hold a line break, %0A
    return app


def _doors(rooms: Rooms) -> Iterator[tuple[str, Handler]]:
    """Where senders come in, in the order in which addresses are tried."""
    house, cursors = rooms.house, rooms.operators.cursor_secret
    yield "/v1/traces", otlp.door("traces", house)
    yield "/v1/metrics", otlp.door("metrics", house)
    yield "/v1/logs", otlp.door("logs", house)
    yield "/v1development/profiles", otlp.profiles(house)
    yield "/v1/ai-telemetry", ai_telemetry.door(house)
    yield "/v1/ai-telemetry/helicone/{hook}", foreign.helicone(house)
    yield "/v1/ai-telemetry/{format:.+}", ai_telemetry.door(house)
    yield "/api/public/ingestion", foreign.langfuse_ingestion(house)
    yield "/api/public/otel/v1/traces", foreign.langfuse_traces(house)
    yield "/api/public/health", foreign.langfuse_health(house, version=rooms.operators.version)
    yield "/api/public/projects", foreign.langfuse_projects(house)
    yield "/api/v1/events", foreign.openmeter(house)
    yield "/v1/ai-control-plane/enroll", control_plane.enroll(house, rooms.devices)
    yield "/v1/ai-control-plane/heartbeat", control_plane.heartbeat(house, rooms.devices)
    yield "/v1/ai-control-plane/ping", control_plane.ping(house, rooms.devices)
    yield from topics.addresses(house, rooms.spool, rooms.deposits, cursors=cursors)
    yield "/v2/billing/costs", costs.costs(house, rooms.ledger, secret=cursors)
    yield "/v2/billing/dimensions", costs.dimensions(house, rooms.ledger, secret=cursors)
    yield "/v2/billing/resource_tags", costs.resource_tags(house, rooms.ledger, secret=cursors)
    for path in insights.ADDRESSES:
        yield path, insights.door(path, house, rooms.registry, secret=cursors)
