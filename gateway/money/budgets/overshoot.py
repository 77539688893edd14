"""
The spend that an enforcer may let through after a budget is used up, because calls count only after they
arrive.

The bound comes from the stored sums of hours, so it needs no records: a span of at most `n` hours touches at
most `n + 1` hours.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from gateway.money.budgets.declared import SpendBudget
from gateway.money.budgets.figures import BudgetLedger, OwnerSpend
from spool.ledger.sums import HOUR_S
from spool.registry.documents import replace_fields
from spool.registry.views import SavedView

LOOK_BACK = timedelta(days=7)


async def highest_spend_in_span(
    budget_ledger: BudgetLedger, budget: SpendBudget, view: SavedView, span_s: float
) -> Mapping[str, int]:
    """
    Return, by owner, an upper bound of the spend in any span of `span_s` seconds within the last seven days.
    """
    now = datetime.fromtimestamp(budget_ledger.now, UTC)
    until = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    since = await budget_ledger.ledger.earliest_moment_with_hourly_sums(until - LOOK_BACK)
    in_utc = replace_fields(budget, time_zone="UTC")
    sums = await budget_ledger.spend_by_period(in_utc, view, since, until, "hourly", by_owner=True)
    return await asyncio.to_thread(_highest_sum_by_owner, sums, math.ceil(span_s / HOUR_S) + 1)


def _highest_sum_by_owner(sums: Mapping[tuple[datetime, str], OwnerSpend], hours: int) -> Mapping[str, int]:
    by_owner: dict[str, dict[int, int]] = defaultdict(dict)
    for (start, owner), spent in sums.items():
        by_owner[owner][int(start.timestamp()) // HOUR_S] = spent.actual
    return {
        owner: max(sum(spent.get(last - back, 0) for back in range(hours)) for last in spent)
        for owner, spent in by_owner.items()
    }
