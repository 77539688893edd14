"""Every address of the house on one screen: which door answers there, and on which listener."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from gateway.api import catalogue, costs, insights, status
from gateway.http import bodies
from gateway.http.boundary import Handler
from gateway.operator import application as operator
from gateway.receivers import ai_telemetry, foreign, topics
from gateway.receivers import devices as control_plane
from gateway.receivers import otlp_http as otlp
from gateway.services import Services


def application(services: Services, *, doors: bool, operator_side: bool) -> web.Application:
    """What one listener serves: the doors for senders, the operator's side, or both."""
    app = web.Application()

    def at(path: str, handler: Handler) -> None:
        # Every method: the doors say 405 themselves, in their own encoding.
        app.router.add_route("*", path, handler, expect_handler=bodies.later)

    if doors:
        for path, handler in _doors(services):
            at(path, handler)
        if services.receivers.cors:
            app.on_response_prepare.append(services.receivers.cors.on_prepare)
    at("/livez", status.livez(services.health, tell=operator_side))
    at("/readyz", status.readyz(services.health, tell=operator_side))
    if operator_side:
        at("/metrics", status.metrics(services.exposition))
        at("/openapi.json", catalogue.openapi(services.operators.version))
        app.add_subapp(operator.PREFIX, operator.application(services.operators))
    at("/{path:(?s:.*)}", status.nowhere(services.receivers))  # a path may hold a line break, %0A
    return app


def _doors(services: Services) -> Iterator[tuple[str, Handler]]:
    """Where senders come in, in the order in which addresses are tried."""
    receivers, cursors = services.receivers, services.operators.cursor_secret
    yield "/v1/traces", otlp.door("traces", receivers)
    yield "/v1/metrics", otlp.door("metrics", receivers)
    yield "/v1/logs", otlp.door("logs", receivers)
    yield "/v1development/profiles", otlp.profiles(receivers)
    yield "/v1/ai-telemetry", ai_telemetry.door(receivers)
    yield "/v1/ai-telemetry/helicone/{hook}", foreign.helicone(receivers)
    yield "/v1/ai-telemetry/{format:.+}", ai_telemetry.door(receivers)
    yield "/api/public/ingestion", foreign.langfuse_ingestion(receivers)
    yield "/api/public/otel/v1/traces", foreign.langfuse_traces(receivers)
    yield "/api/public/health", foreign.langfuse_health(receivers, version=services.operators.version)
    yield "/api/public/projects", foreign.langfuse_projects(receivers)
    yield "/api/v1/events", foreign.openmeter(receivers)
    yield "/v1/ai-control-plane/enroll", control_plane.enroll(receivers, services.devices)
    yield "/v1/ai-control-plane/heartbeat", control_plane.heartbeat(receivers, services.devices)
    yield "/v1/ai-control-plane/ping", control_plane.ping(receivers, services.devices)
    yield from topics.addresses(receivers, services.spool, services.deposits, cursors=cursors)
    yield "/v2/billing/costs", costs.costs(receivers, services.ledger, secret=cursors)
    yield "/v2/billing/dimensions", costs.dimensions(receivers, services.ledger, secret=cursors)
    yield "/v2/billing/resource_tags", costs.resource_tags(receivers, services.ledger, secret=cursors)
    for path in insights.ADDRESSES:
        yield path, insights.door(path, receivers, services.registry, secret=cursors)
