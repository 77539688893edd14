"""Plans of assistants, and what they came to."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.managed import SHOW
from gateway.api.plans import PLAN
from gateway.operator.address import SLICED
from gateway.operator.costs import plans
from gateway.operator.managed import managed_by_people
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS

ROWS = (
    *managed_by_people(PLAN, "/plans", reads=VIEW_COSTS, changes=MODIFY_VIEWS_AND_BUDGETS,
                       words={SHOW: "Show a plan, by its id or its name"}),
    call("GET", "/plan-costs", VIEW_COSTS, plans.plan_costs, "What plans came to in a month: paid, included, beyond",
         optional=plans.ONCE, shows=SLICED, in_turn=True),
)  # fmt: skip
