"""Annotations, and the marks of a chart."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.annotations import ANNOTATION
from gateway.operator.address import SLICED
from gateway.operator.costs import marks
from gateway.operator.costs.questions import asks_closed_months
from gateway.operator.managed import managed_by_people
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS

ROWS = (
    *managed_by_people(ANNOTATION, "/annotations", reads=VIEW_COSTS, changes=MODIFY_VIEWS_AND_BUDGETS, shows=SLICED),
    call("GET", "/marks", VIEW_COSTS, marks.marks, "Annotations, changed list prices and new models of a span, by day",
         optional=marks.ONCE, repeated=marks.REPEATED, shows=SLICED, in_turn=True, asks_closed=asks_closed_months),
)  # fmt: skip
