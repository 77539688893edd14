"""The ledger, reports, comparisons and forecasts."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.http.answers import JSON
from gateway.operator import overview
from gateway.operator.address import SLICED
from gateway.operator.costs import comparison, forecast, ledger, questions, report, what_if
from gateway.schemas import OBJECT, TEXT
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS

ROWS = (
    call("GET", "/ledger", VIEW_COSTS, ledger.state, "How far the ledger reaches", shows=SLICED),
    call("GET", "/overview", VIEW_COSTS, overview.overview, "All figures of the console's first page",
         optional=overview.ONCE, shows=SLICED, in_turn=True),
    call("GET", "/report", VIEW_COSTS, report.report, "Costs by dimensions", optional=questions.ONCE,
         repeated=questions.REPEATED, gives={JSON: OBJECT, "text/csv": TEXT}, shows=SLICED, asks_cost_type=True,
         in_turn=True, asks_closed=questions.asks_closed_months),
    call("GET", "/comparison", VIEW_COSTS, comparison.comparison, "What changed the costs", optional=comparison.ONCE,
         repeated=comparison.REPEATED, shows=SLICED, in_turn=True, asks_closed=questions.asks_closed_months),
    call("GET", "/forecast", VIEW_COSTS, forecast.forecast, "What a running period will cost", optional=forecast.ONCE,
         repeated=forecast.REPEATED, shows=SLICED, in_turn=True),
    call("GET", "/what-if", VIEW_COSTS, what_if.what_if, "What calls would have cost with another model",
         required=what_if.REQUIRED, optional=what_if.ONCE, repeated=what_if.REPEATED, shows=SLICED, in_turn=True),
    call("POST", "/ledger/rebuild", MODIFY_BILLING, ledger.rebuild, "Count anew what is kept",
         takes=ledger.Rebuild),
    call("POST", "/ledger/rates", MODIFY_BILLING, ledger.freeze_rates, "Freeze the rates of a month",
         takes=ledger.FreezeRates),
    call("DELETE", "/ledger/rates/{month}", MODIFY_BILLING, ledger.thaw_rates, "Take back frozen rates"),
    call("POST", "/ledger/reprice", MODIFY_BILLING, ledger.reprice, "Price estimates again", takes=ledger.Reprice),
)  # fmt: skip
