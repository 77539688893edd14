"""Which groups of a question may be the largest by their cost, so that the others need not be read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from spool.ledger.counting import state_of
from spool.ledger.days.spans import divided
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.limits import QuestionLimit
from spool.ledger.queries import BILLED_DIMENSIONS, CostQuery, Group
from spool.record import CURRENCY

ALIKE = 1000  # groups that cost about as much as the last of the largest: of more, each is read
MOST_SPANS = 100  # in one statement: SQLite takes 500
# Of a cost in billionths of a dollar: more than a double and the digits that are left out can make of it.
_WRONG, _WRONG_OF = 1000.0, 1e-9


def largest_groups(
    rows: LedgerRows,
    query: CostQuery,
    asked: Iterable[tuple[datetime, datetime]],
    limit: QuestionLimit | None,
) -> set[Group]:
    """
    Return the largest groups of a question over its whole time, those that may be among them, and the unknown one.

    Empty if that is not known without reading all of them, or if they are as many. Raises what `costs` does.
    """
    periods = list(asked)
    if not periods or not _is_plain(query) or (state := state_of(rows))["charged"]:
        return set()
    wanted = query.top or 0
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
    least = last - 2 * (_WRONG + _WRONG_OF * abs(last))
    near = {group for group, cost in found if cost >= least}
    return {(None,) * len(query.group_by), *near} if len(near) < wanted + ALIKE else set()


def _is_plain(query: CostQuery) -> bool:
    """
    True if the ledger's own sums in dollars decide.

    A derived dimension has few groups, and to choose them asks for the value of each number: to read all is less.
    """
    if not query.group_by or not query.derived.keys().isdisjoint(query.group_by):
        return False
    is_own = set(BILLED_DIMENSIONS).isdisjoint(query.named) and not query.arranged
    return is_own and query.top_by == "cost" and query.currency == CURRENCY
