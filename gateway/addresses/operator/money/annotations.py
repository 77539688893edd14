"""Annotations, and the marks of a chart."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator.address import SLICED
from gateway.operator.costs import marks
from gateway.operator.costs.questions import asks_closed_months
from spool.registry.permission_sets import VIEW_COSTS

ROWS = (
    call("GET", "/marks", VIEW_COSTS, marks.marks, "Annotations, changed list prices and new models of a span, by day",
         optional=marks.ONCE, repeated=marks.REPEATED, shows=SLICED, in_turn=True, asks_closed=asks_closed_months),
)  # fmt: skip
