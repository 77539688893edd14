"""What operators ask of the drops of billing connections, beside the calls of every resource."""

from __future__ import annotations

from typing import Any

from gateway.bills.calls.drop_rows import MONTH_ROWS
from gateway.bills.calls.lists import DROPS, drop_rows
from gateway.bills.calls.published_connections import send_month
from gateway.http.holders.money import MoneyServices
from gateway.http.operator.address import call
from gateway.http.operator.requests import OperatorRequest
from gateway.http.requests import Result
from gateway.intake.billing_connections import BillingConnections
from spool.registry.permission_sets import VIEW_COSTS

OPERATORS = ""  # no key has this name: all of them share what one key may hold


@call("GET", "/connections/{id}/drops", VIEW_COSTS, "List the drops of a connection", lists=DROPS)
async def list_drops(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list(DROPS, drop_rows(_connections(request), request.word("id")))


@call("GET", "/connections/{id}/drops/{month}", VIEW_COSTS, "Show the rows of a month", lists=MONTH_ROWS)
async def show_month(request: OperatorRequest[MoneyServices, None]) -> Result:
    connections = _connections(request)
    id = request.word("id")
    month = request.word("month")
    with request.shared.inflight.share(OPERATORS) as share:
        return await send_month(request, connections, id, month, share=share)


def _connections(request: OperatorRequest[MoneyServices, Any]) -> BillingConnections:
    request.shared.require_registry()
    return request.services.billing_connections
