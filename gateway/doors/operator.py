"""The operator API: every call in one table, every answer JSON, every list in the service's envelope."""

from __future__ import annotations

from aiohttp import web

from gateway.doors import (
    operator_billing,
    operator_dead,
    operator_devices,
    operator_findings,
    operator_insights,
    operator_keys,
    operator_ledger,
    operator_people,
    operator_sign_in,
    operator_spool,
    operator_streams,
)
from gateway.doors.operator_body import said_as_json
from gateway.doors.operator_calls import Call
from gateway.doors.operator_services import SERVICES, OperatorServices
from gateway.doors.operator_sign_in import guarded

__all__ = ["CALLS", "PREFIX", "OperatorServices", "application"]

PREFIX = "/console/api"  # where the application is mounted, over HTTP and on the socket

CALLS: tuple[Call, ...] = (
    *operator_sign_in.CALLS,
    *operator_keys.CALLS,
    *operator_devices.CALLS,
    *operator_spool.CALLS,
    *operator_streams.CALLS,
    *operator_billing.CALLS,
    *operator_dead.CALLS,
    *operator_findings.CALLS,
    *operator_ledger.CALLS,
    *operator_insights.CALLS,
    *operator_people.CALLS,
)


def application(services: OperatorServices) -> web.Application:
    """
    A new aiohttp application over the house, to be mounted under PREFIX.

    The HTTP side and the operator socket each mount one of their own, over the same services.
    """
    app = web.Application(middlewares=[said_as_json])
    app[SERVICES] = services
    for call in CALLS:
        app.router.add_route(call.method, call.path, guarded(call))
    return app
