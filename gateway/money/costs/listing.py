"""Answers of several queries that all see the same units of work as listed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from spool.errors import NotKept
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery

T = TypeVar("T")
TRIES = 5


async def repeat_while_listing_changes(
    ledger: Ledger, query: CostQuery, make: Callable[[], Awaitable[T]]
) -> T:
    """
    Call `make` again, a limited number of times, if units of work were removed from the totals meanwhile.

    The calls of a removed unit move to OTHER. Without the repetition, one query of the answer could count a
    unit that another query counts in OTHER or refuses as a filter.
    """
    if query.unit_of_work is None:
        return await make()
    for _ in range(TRIES - 1):
        before = await ledger.count_of_merges_into_other()
        try:
            answer = await make()
        except NotKept:
            if before == await ledger.count_of_merges_into_other():
                raise
        else:
            if before == await ledger.count_of_merges_into_other():
                return answer
    return await make()
