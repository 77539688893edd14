"""The call of the operator API for what plans of assistants came to in a month."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.bills.plans.costs import PlanQuestion, asked_costs, month_of
from gateway.http.holders.money import MoneyServices
from gateway.http.operator.address import SLICED, call
from gateway.http.operator.requests import OperatorRequest
from gateway.http.requests import Result
from spool.currencies import DECIMALS
from spool.record import CURRENCY
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.texts import check_one_of

ONCE = ("month", "currency")


@call(
    "GET",
    "/plan-costs",
    VIEW_COSTS,
    "What plans came to in a month: paid, included, beyond",
    optional=ONCE,
    shows=SLICED,
    in_turn=True,
)
async def plan_costs(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    A calendar month (UTC), up to everything closed by now; the fees of the running month are those of its days until
    today. `paid` are fees, `overage` and what no plan covers (`metered`); `included_value` is what the covered calls
    are worth at list prices, and no part of it. `idle_seats` had no call in the cycles that ended in the month.

    People who see only some calls get the seats whose user and team pass, and the value of these calls alone.
    """
    query = request.http.query
    now = request.now()
    currency = query.get("currency", CURRENCY)
    check_one_of("currency", currency, DECIMALS)
    await request.ledger.catch_up(request.services.log)
    asking = PlanQuestion(
        ledger=request.ledger,
        whole=request.whole_ledger,
        registry=request.registry,
        month=month_of(query.get("month"), now),
        currency=currency,
        now=now,
        most=request.shared.answers().max_rows,
    )
    answer = await asked_costs(asking)
    found: Mapping[str, Any] = msgspec.to_builtins(answer)
    return found
