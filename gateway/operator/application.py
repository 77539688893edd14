"""The operator API: every call in one table, every answer JSON, every list in the service's envelope."""

from __future__ import annotations

from aiohttp import web

from gateway.operator import billing as operator_billing
from gateway.operator import dead as operator_dead
from gateway.operator import devices as operator_devices
from gateway.operator import findings as operator_findings
from gateway.operator import insights as operator_insights
from gateway.operator import keys as operator_keys
from gateway.operator import ledger as operator_ledger
from gateway.operator import people as operator_people
from gateway.operator import sign_in as operator_sign_in
from gateway.operator import spool as operator_spool
from gateway.operator import streams as operator_streams
from gateway.operator.body import said_as_json
from gateway.operator.calls import Call
from gateway.operator.services import SERVICES, OperatorServices
from gateway.operator.sign_in import guarded

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
