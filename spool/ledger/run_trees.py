"""
Aggregated costs: the sums of a run also count in the runs above it (the runs that started it). Pure.

An engine adds up the calls of each place (a run in a session). One pass from the leaves then adds each run to
the run that started it, so the time does not depend on the depth of the trees.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import add, neg
from typing import NamedTuple

from spool.ledger.ledger_rows import GroupSum
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S, Measures
from spool.ledger.work import NONE, OTHER, REST, RUN, RunTree, unit_digest_text, unit_numbers

Key = tuple[object, ...]  # start, outcome and further groups
Sums = dict[Key, Measures]


class _RunInSession(NamedTuple):
    """A run in a session. If the run is not listed (REST), `parent` is the run that started it."""

    run: int
    session: int
    parent: int

    @property
    def run_tree_node_number(self) -> int:
        """
        Return the number of the run as a tree node, or 0 without a run. All unlisted runs below a parent are
        one leaf, with a negative number.
        """
        return self.run if self.run > REST else -max(self.parent, 0) if self.run == REST else 0


def query_grouped_by_run_in_session(query: CostQuery) -> CostQuery:
    """Return the query grouped by place (a run in a session), for `LedgerRows.totals_by_group`."""
    if query.unit_of_work is None or query.work_unit_group_index is not None:
        return query
    return replace(query, group_by=(query.unit_of_work, *query.group_by))


def aggregate_sums(
    tree: RunTree, query: CostQuery, places: Iterable[GroupSum], *, by_day: bool
) -> Iterator[GroupSum]:
    """
    Yield the sums of each unit, including the runs below it. A group may occur several times. With `by_day`,
    sums start at the beginning of their UTC day.
    """
    unit, place = query.unit_of_work or RUN, query.work_unit_group_index or 0
    own = (
        (_parse_run_in_session(each, place), _sums_key(each, place, by_day=by_day), each.measures)
        for each in places
    )
    passes = _unit_number_filter(query, unit)
    for number, key, measures in (_sums_by_run if unit == RUN else _sums_by_session)(tree, own):
        if not passes(number):
            continue
        start, status, cost_source, *rest = key
        if query.work_unit_group_index is not None:
            rest.insert(place, _unit_text_of_number(unit, number))
        group = tuple(rest)
        if query.only is None or group in query.only:
            yield GroupSum(group, status, cost_source, measures, start)  # type: ignore[arg-type]


def _parse_run_in_session(sums: GroupSum, group_index: int) -> _RunInSession:
    return _RunInSession(*map(int, (sums.group[group_index] or "").split()))


def _sums_key(sums: GroupSum, group_index: int, *, by_day: bool) -> Key:
    start = sums.start - sums.start % DAY_S if by_day else sums.start
    return start, sums.status, sums.cost_source, *sums.group[:group_index], *sums.group[group_index + 1 :]


def _unit_number_filter(query: CostQuery, unit_kind: str) -> Callable[[int], bool]:
    excluded = {*unit_numbers(unit_kind, query.exclude.get(unit_kind, ()))}
    included = [{*unit_numbers(unit_kind, query.include[unit_kind])}] if unit_kind in query.include else []
    if query.only is not None and (place := query.work_unit_group_index) is not None:
        included.append({*unit_numbers(unit_kind, [group[place] for group in query.only])})
    return lambda number: number not in excluded and all(number in wanted for wanted in included)


def _unit_text_of_number(unit_kind: str, unit_number: int) -> str | None:
    return (
        None
        if unit_number == NONE
        else OTHER
        if unit_number == REST
        else unit_digest_text(unit_kind, unit_number)
    )


OwnCallSums = tuple[_RunInSession, Key, Measures]


def _sums_by_run(tree: RunTree, own_call_sums: Iterable[OwnCallSums]) -> Iterator[tuple[int, Key, Measures]]:
    sums = defaultdict[int, Sums](dict)
    for place, key, measures in own_call_sums:
        if place.run <= REST:
            yield place.run, key, measures
        if place.run_tree_node_number:
            _add_measures(sums[abs(place.run_tree_node_number)], key, measures)
    for run, added in _drain_sums_with_descendants(sums, tree.parents):
        if run not in tree.hidden:
            for key, measures in added.items():
                yield run, key, measures


def _sums_by_session(
    tree: RunTree, own_call_sums: Iterable[OwnCallSums]
) -> Iterator[tuple[int, Key, Measures]]:
    """
    Yield the sums of each session: its calls, all runs below its runs, and linked sessions. Each call counts
    once, even if several runs of the session are above it.
    """
    places = defaultdict[int, dict[int, Sums]](dict)  # own sums by run and session
    sessions = defaultdict[int, Sums](dict)  # sums that are not yet counted in the linked sessions above
    for place, key, measures in own_call_sums:
        if place.session <= REST:
            yield place.session, key, measures
        if place.run_tree_node_number:
            _add_measures(places[place.run_tree_node_number].setdefault(place.session, {}), key, measures)
        elif place.session > REST:
            _add_measures(sessions[place.session], key, measures)
    parents = {**tree.parents, **{node: -node for node in places if node < 0}}
    above, below = _AncestorSessions(tree.forks), dict[int, Sums]()
    entered = dict[int, Sequence[_Entered]]()
    for node, is_first in _enter_and_leave_nodes(places, parents):
        if is_first:
            entered[node] = above.enter_sessions({*tree.sessions.get(node, ()), *places.get(node, ())})
            continue
        above.pop_sessions(entered[node])
        own_sums, sums = places.pop(node, {}), below.pop(node, {})
        for session, own_end, end in entered.pop(node):
            _add_sums_below_end_session(sessions, session, own_end, own_sums.get(session, {}))
            _add_sums_below_end_session(sessions, session, end, sums)
        for of_session in own_sums.values():
            sums = _merge_into_larger(sums, of_session)
        if node in parents:
            below[parents[node]] = _merge_into_larger(below.get(parents[node], {}), sums)
    for session, added in _drain_sums_with_descendants(sessions, tree.forks):
        if session not in tree.hidden:
            for key, measures in added.items():
                yield session, key, measures


class _Entered(NamedTuple):
    """
    A session that contains a run, but none of the runs above the run.

    Sessions can be linked below other sessions. Calls are added to this session and those above it, up to a
    session that already contains them: `own_end` for the run's own calls, `end` for those of the runs below
    the run.
    """

    session: int
    own_end: int | None
    end: int | None


class _AncestorSessions:
    """
    The sessions of the runs above a run, and the sessions that links put above those sessions.

    Links may form a long chain. So the nearest session is found by jumps, in logarithmic time.
    """

    def __init__(self, forks: Mapping[int, int]) -> None:
        self._forks = forks
        self._unlinked = set[int]()
        self._linked: list[int] = []  # positions of runs with links, sorted
        self._spans = dict[int, list[int]]()  # its position, and the position after its last descendant
        self._jumps = dict[int, int]()
        depths = dict[int, int]()
        for session, is_first in _enter_and_leave_nodes((), forks):
            if not is_first:
                self._spans[session].append(len(self._spans))
                continue
            self._spans[session] = [len(self._spans)]
            parent = forks.get(session, session)
            near, depths[session] = self._jumps.get(parent, parent), depths.get(parent, -1) + 1
            far = self._jumps.get(near, near)
            is_even = depths[parent] - depths[near] == depths[near] - depths[far]
            self._jumps[session] = far if is_even else parent

    def enter_sessions(self, sessions: Iterable[int]) -> Sequence[_Entered]:
        ends = {session: self._nearest_entered_session(session) for session in sessions if session > REST}
        entered = []
        for session, own_end in ends.items():
            if own_end == session:
                continue
            end = self._nearest_entered_session(session)
            entered.append(_Entered(session, own_end, end))
            if end == session:
                continue
            if session in self._spans:
                insort(self._linked, self._spans[session][0])
            else:
                self._unlinked.add(session)
        return entered

    def pop_sessions(self, entered: Iterable[_Entered]) -> None:
        for session, _, end in entered:
            if end != session and session in self._spans:
                del self._linked[bisect_left(self._linked, self._spans[session][0])]
            else:
                self._unlinked.discard(session)

    def _nearest_entered_session(self, session: int) -> int | None:
        if session not in self._spans:
            return session if session in self._unlinked else None
        while not self._contains_entered_session(session):
            parent, jump = self._forks.get(session), self._jumps[session]
            if parent is None:
                return None
            session = parent if self._contains_entered_session(jump) else jump
        return session

    def _contains_entered_session(self, session: int) -> bool:
        first, last = self._spans[session]
        place = bisect_left(self._linked, first)
        return place < len(self._linked) and self._linked[place] < last


def _enter_and_leave_nodes(nodes: Iterable[int], parents: Mapping[int, int]) -> Iterator[tuple[int, bool]]:
    children = defaultdict[int, list[int]](list)
    for child, parent in parents.items():
        children[parent].append(child)
    waiting = [(node, True) for node in {*nodes, *children} if node not in parents]
    while waiting:
        node, is_first = waiting.pop()
        yield node, is_first
        if is_first:
            waiting.append((node, False))
            waiting += [(child, True) for child in children.get(node, ())]


def _drain_sums_with_descendants(
    sums_by_node: dict[int, Sums], parents: Mapping[int, int]
) -> Iterator[tuple[int, Sums]]:
    """Yield each node with the sums of itself and of all nodes below it. Empties `sums_by_node`."""
    for node, is_first in _enter_and_leave_nodes([*sums_by_node], parents):
        if not is_first:
            sums = sums_by_node.pop(node, {})
            yield node, sums
            if node in parents:
                sums_by_node[parents[node]] = _merge_into_larger(sums_by_node.get(parents[node], {}), sums)


def _merge_into_larger(one: Sums, other: Sums) -> Sums:
    """
    Merge the smaller sums into the larger ones, and return these. So a long chain of runs is not copied at
    each step.
    """
    few, many = sorted((one, other), key=len)
    for key, measures in few.items():
        _add_measures(many, key, measures)
    return many


def _add_measures(sums: Sums, key: Key, measures: Measures) -> None:
    known = sums.get(key)
    sums[key] = measures if known is None else list(map(add, known, measures))


def _add_sums_below_end_session(
    sums_by_session: defaultdict[int, Sums], session: int, end_session: int | None, sums: Sums
) -> None:
    for key, measures in sums.items():
        _add_measures(sums_by_session[session], key, measures)
        if end_session is not None:
            _add_measures(sums_by_session[end_session], key, [*map(neg, measures)])
