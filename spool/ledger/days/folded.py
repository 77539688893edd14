"""
The kept or the largest groups of a question, and all others as one.

The kept ones are asked for by their values, and the others are what these leave of all calls: so no sum of another
group comes out of the rows, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from heapq import nsmallest
from typing import Any, Protocol, TypeVar

from spool.ledger.counting import state_of
from spool.ledger.days.spans import divided
from spool.ledger.ledger_rows import WRONG, WRONG_OF, LedgerRows
from spool.ledger.queries import BILLED_DIMENSIONS, EVERY_METER, TOTAL, CostQuery, Group, QuestionLimit
from spool.ledger.sums import OTHER
from spool.record import CURRENCY

# -- which groups may be the largest by their cost, so that the others need not be read ----------------------


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


# -- the kept or the largest groups, and all others ----------------------------------------------------------


MOST = 2000  # groups that are asked for by their values
_KEPT = "(kept)"  # of a derived dimension: no question can name it


class GroupTotal(Protocol):
    """The sums of one group in one period."""

    def size(self, name: str) -> int: ...

    def include(self, parts: Collection[Any], sign: int = 1) -> None: ...


T = TypeVar("T", bound=GroupTotal)
Totals = dict[datetime, dict[Group, T]]
Ask = Callable[[CostQuery], Totals[T]]


def folded(query: CostQuery, ask: Ask[T]) -> Totals[T]:
    """Return what `ask` says of a question that keeps some groups."""
    if not _is_divided(query):
        return ask(_as_function(query))
    rest = (OTHER,) * len(query.group_by)
    plain = replace(query, kept=None)
    kept = frozenset(query.kept or ()) - {rest}
    if not kept:
        return ask(query)
    found = ask(replace(plain, only=kept))
    whole = ask(replace(plain, group_by=()))
    for start, sums in whole.items():
        for total in sums.values():
            total.include(found[start].values(), -1)
            found[start][rest] = total
    return found


def _as_function(query: CostQuery) -> CostQuery:
    """Return a question by one derived dimension with another one in its place, which knows the kept values alone."""
    [name, *more] = query.group_by or ("",)
    derived = query.derived.get(name)
    if derived is None or more:
        return query
    kept = {value or "" for (value,) in query.kept or ()}
    value = derived.value

    def shown(sources: tuple[str, ...]) -> str:
        found = value(sources)
        return found if found in kept else OTHER

    alone = replace(derived, name=_KEPT, value=shown)
    return replace(query, group_by=(_KEPT,), derived={**query.derived, _KEPT: alone})


def _is_divided(query: CostQuery) -> bool:
    """True if the others are what the kept groups leave."""
    if not query.kept or not has_many_groups(query) or query.meter == EVERY_METER:
        return False
    return len(query.kept) <= MOST


def largest(
    rows: LedgerRows,
    query: CostQuery,
    asked: Iterable[tuple[datetime, datetime]],
    limit: QuestionLimit | None,
    ask: Ask[T],
) -> Totals[T]:
    """
    Return the totals of the largest groups of the whole time, `asked`, and of all others as one.

    Of the groups that are not kept, only the measure that decides is read, if any. If nothing else is asked for, what
    was read is the answer.
    """
    whole = replace(query, granularity=TOTAL)
    near = largest_groups(rows, whole, asked, limit)
    kept = near
    if not near or len(near) != query.top:
        decided = ask(replace(whole, measures=(query.top_by,), only=frozenset(near) or None))
        groups: Mapping[Group, T] = next(iter(decided.values()), {})
        kept = _largest(groups, query)
        if not near and query.granularity == TOTAL and {query.top_by} == {*query.measures}:
            return {start: _with_others(groups, query, kept) for start, groups in decided.items()}
        if not near and len(groups) <= len(kept):
            return ask(replace(query, top=None))
    return folded(replace(query, kept=_and_unknown(query, kept), top=None), ask)


def _with_others(groups: Mapping[Group, T], query: CostQuery, largest: Collection[Group]) -> dict[Group, T]:
    """Return the largest groups and the unknown one, and all others as one."""
    rest = (OTHER,) * len(query.group_by)
    kept = _and_unknown(query, largest) - {rest}
    found = {group: total for group, total in groups.items() if group in kept}
    others = [total for group, total in groups.items() if group not in kept]
    if others:
        found[rest], *more = others
        found[rest].include(more)
    return found


def _and_unknown(query: CostQuery, largest: Collection[Group]) -> frozenset[Group]:
    return frozenset([(None,) * len(query.group_by), *largest])


def _largest(groups: Mapping[Group, GroupTotal], query: CostQuery) -> set[Group]:
    sizes = {group: total.size(query.top_by) for group, total in groups.items()}
    most = query.top or 0
    return set(nsmallest(most, sizes, key=lambda group: (-sizes[group], [value or "" for value in group])))
