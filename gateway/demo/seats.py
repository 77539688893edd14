"""
Plans of the made-up organization: a seat that nobody uses, and one that has outgrown its plan. Their
billing cycles begin on the day on which the month ends, so the last one is over.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.demo.samples import ACTOR, OLD_S
from gateway.demo.workloads import CLAUDE_CODE
from spool.ledger.ledger import Ledger
from spool.registry.registry import Registry
from spool.registry.tables.plans import CALLS, PlanDraft, Seat
from spool.registry.views import ViewDraft

WORDS: Final = {"idle-seat": "mara", "outgrown-seat": CLAUDE_CODE.users[0]}  # word -> who has the seat
SMALL, LARGE = "Claude Team", "Claude Team Premium"
_MOST = 10


async def add_plans(registry: Registry, ledger: Ledger, *, end: int, words: frozenset[str]) -> None:
    """Add the plans of what is planted; a month without these words has none."""
    users = [user for word, user in WORDS.items() if word in words]
    if not users:
        return
    filter = {"source": (CLAUDE_CODE.source,)}
    draft = ViewDraft(name="Claude Code", filter=filter, principal_dimension="user")
    view = await registry.views.create(draft, known=ledger.dimensions(), most=_MOST, actor=ACTOR)
    last = datetime.fromtimestamp(end, UTC)
    since = (last - timedelta(seconds=OLD_S)).date().isoformat()
    seats = tuple(Seat(user=user, since=since, team=CLAUDE_CODE.team) for user in users)
    small = PlanDraft(
        name=SMALL,
        view_id=view.id,
        fee="20",
        included="20",
        unit=CALLS,
        overage_price="1",
        cycle_day=last.day,
        seats=seats,
    )
    large = PlanDraft(name=LARGE, view_id=view.id, fee="40", cycle_day=last.day)
    for plan in (small, large):
        await registry.plans.create(plan, most=_MOST, actor=ACTOR)
