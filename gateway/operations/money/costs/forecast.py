"""Operator API for the forecast of a running period. It uses the same method as budgets."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.requests import Result
from gateway.money.budgets.declared import COST, MONTHLY, QUARTERLY, WEEKLY, YEARLY
from gateway.money.budgets.expansion import format_amount_rounded_down
from gateway.money.budgets.forecast import TooEarly, forecast_running_period
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs.questions import read_question
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.errors import AskedTooMuch
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.texts import check_one_of

REPEATED = ("where",)
ONCE = ("view", "tz", "per")
PERIODS = (WEEKLY, MONTHLY, QUARTERLY, YEARLY)


class ForecastDay(msgspec.Struct, kw_only=True):
    day: Annotated[str, words("The day that the figures are for."), example("2026-11-27")]
    amount: Annotated[str, words("The expected cost of the day."), example("32.21")]
    low: Annotated[str, words("The lower end of the likely range."), example("30.25")]
    high: Annotated[str, words("The upper end of the likely range."), example("35.35")]


class CostForecast(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    per: Annotated[str, words("The length of the period, such as `monthly`."), example("monthly")]
    from_: Annotated[str, words("The start of the period."), example("2026-11-01T00:00:00+00:00")]
    to: Annotated[str, words("The end of the period."), example("2026-12-01T00:00:00+00:00")]
    actual: Annotated[str, words("The cost so far."), example("718.4")]
    total: Annotated[str | None, words("The expected cost of the whole period."), example("817.42")]
    low: Annotated[str | None, words("The lower end of the likely range."), example("811.16")]
    high: Annotated[str | None, words("The upper end of the likely range."), example("827.41")]
    reason: Annotated[str | None, words("Why there is no forecast, or null."), example(None)]
    days: Annotated[list[ForecastDay], words("The expected amounts of the remaining days.")]


@operator_call(
    "GET",
    "/forecast",
    VIEW_COSTS,
    "Forecast the costs of a running period",
    optional=ONCE,
    repeated=REPEATED,
    shows=SLICED,
    in_turn=True,
    answers=one_field_answer(
        "OneForecast", forecast=Annotated[CostForecast, words("The forecast, with the fields below.")]
    ),
)
async def forecast(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Forecast the running week, month, quarter or year. All closed records are counted first.

    The first of the remaining `days` is today and includes the spend so far.
    """
    parameters = request.http.query
    ledger = request.ledger
    await ledger.require_complete_totals(request.services.log)
    per = parameters.get("per", MONTHLY)
    check_one_of("per", per, PERIODS)
    query = (
        await read_question(request, await request.cost_reader.visible_dimensions(includes_work_units=True))
    ).query
    if query.unit_of_work is not None and per == YEARLY:
        raise AskedTooMuch(
            f"a forecast by {query.unit_of_work} covers at most a quarter; use per={QUARTERLY}"
        )
    result = await forecast_running_period(ledger, query, per, request.now())

    def format_cost(units: int) -> str:
        return format_amount_rounded_down(COST, units)

    prediction = result.forecast
    period = result.period
    bounds: dict[str, str | None] = dict.fromkeys(("total", "low", "high"))
    if not isinstance(prediction, TooEarly):
        bounds = {
            "total": format_cost(prediction.total),
            "low": format_cost(prediction.low),
            "high": format_cost(prediction.high),
        }
    return {
        "forecast": {
            "per": per,
            "from": period.start.isoformat(),
            "to": period.end.isoformat(),
            "actual": format_cost(result.actual),
            **bounds,
            "reason": prediction.reason if isinstance(prediction, TooEarly) else None,
            "days": [
                {
                    "day": day.first_day,
                    "amount": format_cost(day.amount),
                    "low": format_cost(day.low),
                    "high": format_cost(day.high),
                }
                for day in result.days
            ],
        }
    }
