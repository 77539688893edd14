"""Plans of assistants, and what they came to."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator.address import SLICED
from gateway.operator.costs import plans
from spool.registry.permission_sets import VIEW_COSTS

ROWS = (
    call("GET", "/plan-costs", VIEW_COSTS, plans.plan_costs, "What plans came to in a month: paid, included, beyond",
         optional=plans.ONCE, shows=SLICED, in_turn=True),
)  # fmt: skip
