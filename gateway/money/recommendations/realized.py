"""
What an addressed recommendation has saved: the cost of an answered call before and after, on the calls after.

Measured on the work as a whole, whatever its model is now, and never more than what was promised for as many calls.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.money.recommendations.facts import DAY_S, DAYS
from spool.ledger import money
from spool.ledger.ledger import Ledger
from spool.ledger.queries import TOTAL, CostQuery, CostRow
from spool.registry.recommendations import Realized, Recommendation

LEAST_DAYS = 14  # whole days after the one on which it was addressed


async def realized_by(ledger: Ledger, each: Recommendation, now: float) -> Realized | None:
    """
    Return the money that a recommendation saved, over thirty days at most; None if it is not addressed,
    is about seats, or it is too early to say.
    """
    if each.addressed_at is None or each.promised is None or not each.saving.measured_by:
        return None
    addressed = int(each.addressed_at) // DAY_S * DAY_S
    since = addressed + DAY_S
    until = min(int(now) // DAY_S * DAY_S, since + DAYS * DAY_S)
    if until - since < LEAST_DAYS * DAY_S:
        return None
    before = await _cost(ledger, each, addressed - DAYS * DAY_S, addressed)
    after = await _cost(ledger, each, since, until)
    amount = saved(before, after, promised=money.units(each.promised))
    return Realized(amount=money.text(amount), since=_text(since), until=_text(until))


def saved(before: CostRow | None, after: CostRow | None, *, promised: int) -> int:
    """
    Return the saved amount in units of money; 0 if there is nothing to compare, or an answered call costs
    more than before.
    """
    if before is None or after is None:
        return 0
    answered_before, answered_after = (row.calls - row.errors for row in (before, after))
    if not answered_before or not answered_after:
        return 0
    would_cost = money.units(before.cost) * answered_after // answered_before
    most = promised * answered_after // answered_before
    return max(0, min(would_cost - money.units(after.cost), most))


async def _cost(ledger: Ledger, each: Recommendation, since: int, until: int) -> CostRow | None:
    known = ledger.own_dimensions()
    include = {name: (value,) for name, value in each.saving.measured_by.items() if name in known}
    query = CostQuery(since=_at(since), until=_at(until), granularity=TOTAL, include=include)
    return next(iter(await ledger.costs(query)), None)


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _text(seconds: int) -> str:
    return _at(seconds).strftime("%Y-%m-%d")
