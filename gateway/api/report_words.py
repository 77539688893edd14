"""The words of reports and comparisons, which commands know too: it imports nothing that answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.api.measures import USAGE
from spool.ledger.queries import BILLED_TYPES, PLAN_TYPES, TOTAL

MONEY = ("cost", "reported", "estimated", "saved")
SUMS = (*MONEY, *USAGE)
PERCENTILES = {"latency_p50_ms": 50, "latency_p95_ms": 95, "latency_p99_ms": 99}
LATENCY = ("timed", *PERCENTILES)
MEASURES = (*SUMS, *LATENCY, "cost_per_call", "cost_per_million_tokens")
# Only for who asks for them: the first two of the unit that the question names.
UNITS, COST_PER_UNIT, SAVED_BY_CACHING = ASKED = ("units", "cost_per_unit", "saved_by_caching")
REAL_COST = "real_cost"
# The cost types of which measures are made, beside that of `cost`; calls and tokens are of none.
MEASURED_IN = {
    "reported": "reported_cost",
    "estimated": "estimated_cost",
    "saved": "saved_cost",
    SAVED_BY_CACHING: "estimated_cost",
}
MONEY_KINDS = (REAL_COST, *PLAN_TYPES, *BILLED_TYPES)  # that `cost` of a report can be
MAX_TOP = 1000
PREVIOUS = "previous"
SAME_WEEKDAYS = "same_weekdays"
DEFAULT_TOP = 10


def columns(asked: Mapping[str, Any]) -> list[str]:
    """Name the columns that distinguish the rows of a report."""
    return [*(["period"] if asked["per"] != TOTAL else []), *asked["by"]]
