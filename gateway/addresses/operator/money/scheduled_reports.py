"""Scheduled reports."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator.address import SLICED
from gateway.operator.costs import scheduled_reports as reports
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS

_ONE = "/scheduled-reports/{id}"

ROWS = (
    call("GET", f"{_ONE}/preview", VIEW_COSTS, reports.preview_scheduled_report,
         "Show what a scheduled report says of the last whole period", shows=SLICED, in_turn=True),
    call("POST", f"{_ONE}/send", MODIFY_VIEWS_AND_BUDGETS, reports.send_scheduled_report,
         "Send a scheduled report now", takes=reports.SendReport, shows=SLICED, status=201),
)  # fmt: skip
