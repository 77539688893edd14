"""
The plan of the made-up organization, with a seat that nobody uses. Its billing cycles begin on the day on
which the month ends, so the last cycle is over.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.demo.samples import ACTOR, OLD_S
from gateway.demo.workloads import CLAUDE_CODE
from spool.ledger.ledger import Ledger
from spool.registry.registry import Registry
from spool.registry.tables.plans import PlanDraft, Seat
from spool.registry.views import ViewDraft

WORD = "idle-seat"
USERS = ("mara", CLAUDE_CODE.users[0])  # mara makes no call
_MOST = 10


async def add_plan(registry: Registry, ledger: Ledger, *, end: int, words: frozenset[str]) -> None:
    """Add the plan if its word is planted."""
    if WORD not in words:
        return
    filter = {"source": (CLAUDE_CODE.source,)}
    view_draft = ViewDraft(name="Claude Code", filter=filter, principal_dimension="user")
    view = await registry.views.create(view_draft, known=ledger.dimensions(), most=_MOST, actor=ACTOR)
    last = datetime.fromtimestamp(end, UTC)
    since = (last - timedelta(seconds=OLD_S)).date().isoformat()
    draft = PlanDraft(
        name="Claude Team",
        view_id=view.id,
        fee="25",
        included="40",
        overage_price="1",
        cycle_day=last.day,
        seats=tuple(Seat(user=user, since=since, team=CLAUDE_CODE.team) for user in USERS),
    )
    await registry.plans.create(draft, most=_MOST, actor=ACTOR)
