"""Which groups of a question may be the largest by their cost, so that the others need not be read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from spool.ledger.counting import state_of
from spool.ledger.days.spans import divided
from spool.ledger.ledger_rows import WRONG, WRONG_OF, LedgerRows
from spool.ledger.limits import QuestionLimit
from spool.ledger.queries import BILLED_DIMENSIONS, CostQuery, Group
from spool.record import CURRENCY

ALIKE = 1000  # groups that cost about as much as the last of the largest: of more, each is read
MOST_SPANS = 100  # in one statement: SQLite takes 500


def largest_groups(
    rows: LedgerRows,
    query: CostQuery,
    asked: Iterable[tuple[datetime, datetime]],
    limit: QuestionLimit | None,
) -> set[Group]:
    """
    Return the largest groups of a question over its whole time, and those that may be among them.

    Empty if that is not known without reading all of them, or if they are as many. Raises what `costs` does.
    """
    periods = list(asked)
    if not periods or not _is_plain(query) or (state := state_of(rows))["charged"]:
        return set()
    wanted = query.top or 0
    if not rows.has_more_groups(query, wanted + 1):
        return set()
    spans = [(each.width, each.low, each.high, each.rollup) for each in divided(rows, query, periods, state)]
    if len(spans) > MOST_SPANS:
        return set()
    count, found = rows.largest(spans, query, wanted + ALIKE)
    if limit is not None:
        limit.check_rows(count)
        limit.check_time()
    if count <= wanted + 1:
        return set()
    last = found[max(wanted - 1, 0)][1]
    least = last - 2 * (WRONG + WRONG_OF * abs(last))
    near = {group for group, cost in found if cost >= least}
    return near if len(near) < wanted + ALIKE else set()


def _is_plain(query: CostQuery) -> bool:
    """True if the ledger's own sums in dollars decide."""
    if not has_many_groups(query):
        return False
    is_own = set(BILLED_DIMENSIONS).isdisjoint(query.named) and not query.arranged
    return is_own and query.top_by == "cost" and query.currency == CURRENCY


def has_many_groups(query: CostQuery) -> bool:
    """
    True if a question may have so many groups that few of them are found sooner than all are read.

    Derived dimensions alone have few, and to find one asks for the value of each number.
    """
    return bool(query.group_by) and not query.derived.keys() >= {*query.group_by}
