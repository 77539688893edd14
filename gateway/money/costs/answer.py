"""The answer to a question about costs, and the ledger that gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gateway.money.costs.question import CostQuestion
from gateway.money.costs.reader import CostReader
from gateway.service.first_use import imported
from spool.ledger.billed import COUNTED
from spool.ledger.costs import cut
from spool.ledger.queries import PLAN_TYPES, AnswersCosts, CostQuery, CostRow, Group
from spool.record import moment

_BILLED = "gateway.bills.billed.beside"


@dataclass(frozen=True, kw_only=True)
class CostAnswer:
    """
    `query` is the question as the ledger was asked: of one with a `top`, the groups that are shown by themselves.
    `before` are the rows of `previous`, of the same groups.

    `ledger` answers more about the same calls in the same money. `billed` says how final the days of billed money are,
    and to who sees all calls what nobody has of it; None for what was counted. `whole_since` is when sums begin that
    lack no record.
    """

    question: CostQuestion
    ledger: AnswersCosts
    query: CostQuery
    rows: Sequence[CostRow]
    previous: CostQuery | None
    before: Sequence[CostRow]
    billed: Mapping[str, object] | None
    whole_since: float

    @property
    def may_lack(self) -> str | None:
        """The time before which sums of the answer may lack records that were gone before they were counted."""
        since = (self.previous or self.query).since
        return moment(self.whole_since) if since.timestamp() < self.whole_since else None

    @property
    def cut_periods(self) -> Sequence[datetime]:
        """The periods that the question begins or ends in: the answer has a part of them."""
        return cut(self.query)


async def answer(
    question: CostQuestion, reader: CostReader, now: float, *, states_alone: bool = False
) -> CostAnswer:
    """
    Ask the ledger. `states_alone` leaves out of `billed` all but how final its days are.

    Refusal 403 for money that the roles hide. NotKept if a period divides a sum, AskedTooMuch of a question
    that is too large.
    """
    ledger = await ledger_for(question, reader)
    query, previous = question.query, question.previous
    rows = await ledger.costs(replace(query, top=question.top, top_by=question.top_by))
    filled = {COUNTED: ledger.counted} if question.fills else {}
    if question.top is not None:
        kept = await asyncio.to_thread(_groups, rows) | {(None,) * len(query.group_by)}
        query, previous = replace(query, kept=kept), previous and replace(previous, kept=kept)
    before = [] if previous is None else await ledger.costs(previous)
    billed = await told_of_bills(query, reader, now, states_alone=states_alone)
    return CostAnswer(
        question=question,
        ledger=ledger,
        query=query,
        rows=rows,
        previous=previous,
        before=before,
        billed=billed and {**billed, **filled},
        whole_since=await reader.whole.whole_since(),
    )


async def ledger_for(question: CostQuestion, reader: CostReader) -> Any:
    """
    Return the ledger that answers a question: cut to the calls that are seen in its money; of PLAN_TYPES those that
    plans of assistants cover, or the others; with counted money in place of bills that are missing, if that is asked
    for. Refusal 403 for money that the roles hide.
    """
    ledger = reader.ledger_of(question.cost_types)
    if question.fills:
        return (await imported(_BILLED)).WithMissing(ledger, reader.whole)
    if question.cost_type in PLAN_TYPES:
        plans = await imported("gateway.bills.plans.coverage")
        return plans.divided(ledger, reader.require_registry(), question.cost_type)
    return ledger


async def told_of_bills(
    query: CostQuery, reader: CostReader, now: float, *, states_alone: bool = False
) -> Mapping[str, object] | None:
    """Return `billed` of an answer."""
    if not query.arranged:
        return None
    beside = await imported(_BILLED)
    is_limited = reader.is_limited or states_alone
    found: Mapping[str, object] = await beside.billed_beside(
        reader.whole, query, now, states_alone=is_limited
    )
    return found


def _groups(rows: Sequence[CostRow]) -> frozenset[Group]:
    return frozenset([row.group for row in rows])
