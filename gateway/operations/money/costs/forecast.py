"""Operator API for the forecast of a running period. It uses the same method as budgets."""

from __future__ import annotations

from gateway.http.requests import Result
from gateway.money.budgets.declared import COST, MONTHLY, QUARTERLY, WEEKLY, YEARLY
from gateway.money.budgets.expansion import round_down
from gateway.money.budgets.forecast import TooEarly, forecast_running_period
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs.questions import read_question
from gateway.operations.requests.address import SLICED, call
from gateway.operations.requests.requests import OperatorRequest
from spool.errors import AskedTooMuch
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.texts import check_one_of

REPEATED = ("where",)
ONCE = ("view", "tz", "per")
PERIODS = (WEEKLY, MONTHLY, QUARTERLY, YEARLY)


@call(
    "GET",
    "/forecast",
    VIEW_COSTS,
    "Forecast the costs of a running period",
    optional=ONCE,
    repeated=REPEATED,
    shows=SLICED,
    in_turn=True,
)
async def forecast(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Forecast the running week, month, quarter or year. The totals are first updated with all closed records.

    `total` is null with a `reason` if there is too little history. The first of the remaining `days` is today
    and includes the spend so far.
    """
    parameters = request.http.query
    ledger = request.ledger
    await ledger.catch_up(request.services.log)
    per = parameters.get("per", MONTHLY)
    check_one_of("per", per, PERIODS)
    query = (await read_question(request, await request.reads.dimensions(units=True))).query
    if query.unit is not None and per == YEARLY:
        raise AskedTooMuch(f"a forecast by {query.unit} covers at most a quarter; use per={QUARTERLY}")
    result = await forecast_running_period(ledger, query, per, request.now())

    def shown(units: int) -> str:
        return round_down(COST, units)

    prediction = result.forecast
    period = result.period
    bounds: dict[str, str | None] = dict.fromkeys(("total", "low", "high"))
    if not isinstance(prediction, TooEarly):
        bounds = {
            "total": shown(prediction.total),
            "low": shown(prediction.low),
            "high": shown(prediction.high),
        }
    return {
        "forecast": {
            "per": per,
            "from": period.start.isoformat(),
            "to": period.end.isoformat(),
            "actual": shown(result.actual),
            **bounds,
            "reason": prediction.reason if isinstance(prediction, TooEarly) else None,
            "days": [
                {
                    "day": day.first_day,
                    "amount": shown(day.amount),
                    "low": shown(day.low),
                    "high": shown(day.high),
                }
                for day in result.days
            ],
        }
    }
