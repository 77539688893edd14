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
    Make an answer again if units of work were unlisted while it was made.

    One part of it would have a unit, and another would have its calls in OTHER, or would refuse a filter by
    it.
    """
    if query.unit_of_work is None:
        return await make()
    for _ in range(TRIES - 1):
        before = await ledger.count_unlistings()
        try:
            answer = await make()
        except NotKept:
            if before == await ledger.count_unlistings():
                raise
        else:
            if before == await ledger.count_unlistings():
                return answer
    return await make()
