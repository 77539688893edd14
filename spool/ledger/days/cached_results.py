"""
A cache of query results.

Every transaction that changes sums of a month replaces the month's stored random mark. A cached result is
valid if its marks equal the stored ones, whichever process changed the sums. Billed costs are cached only for
past months, because the running month has counted costs on days without a bill.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any

from spool.ledger.costs import query_costs
from spool.ledger.counting import EVERY, EVERY_BILLED, data_version_name
from spool.ledger.dimensions import DerivedDimension
from spool.ledger.periods import next_beginning
from spool.ledger.queries import CostQuery, CostRow
from spool.record import CURRENCY

if TYPE_CHECKING:
    from spool.currencies import Rates
    from spool.ledger.ledger_rows import LedgerRows
    from spool.ledger.usages import UsageByGroup
    from spool.turns.question_limit import QuestionLimit

MOST_ROWS = 20_000  # maximum rows in all cached results together, some 20 MB
MOST_OF_ONE = 5_000
MOST_YEARS = 10  # maximum years that a cached query may cover
# values of the state on which results depend, besides the marks of months
_OF_STATE = ("hourly", "rebuilding", EVERY)
# state values on which results with billed costs depend
_OF_BILLED = (EVERY_BILLED,)
MOST_DIMENSIONS = 8  # maximum cached dimensions that queries define; each may have thousands of values
_DAY = timedelta(days=1)

DataVersions = tuple[int | None, ...]
Answer = list[CostRow] | dict[Any, Any]  # cached result: rows of costs, or groups of usages


class RememberedCosts:
    """A least-recently-used cache of query results, safe for several threads."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._answers: OrderedDict[Hashable, tuple[DataVersions, Answer]] = OrderedDict()
        self._row_count = 0
        # for each dimension: its inputs, the dimension, and the object that stands for it in cache keys
        self._dimensions: list[tuple[object, DerivedDimension, object]] = []
        self._every: int | None = None
        self._lock = Lock()

    def costs(
        self,
        ledger_rows: LedgerRows,
        query: CostQuery,
        limit: QuestionLimit | None,
        rates: Rates | None,
        now: float,
    ) -> list[CostRow]:
        if not _can_be_cached(query, now):
            return query_costs(ledger_rows, query, limit, rates)
        state = self._read_state_and_forget_renamed(ledger_rows)
        marks = data_versions_of_period(state, query.since, query.until, is_billed=bool(query.arranged))
        key = self._query_key(query)
        if isinstance(found := self._find_answer(key, marks), list):
            return found
        cost_rows = query_costs(ledger_rows, query, limit, rates)
        # exchange rates have no mark, so converted results are not cached
        if not any(row.charges or row.unconverted for row in cost_rows):
            self._store_answer(key, marks, cost_rows)
        return cost_rows

    def usages(
        self,
        ledger_rows: LedgerRows,
        queries: Sequence[CostQuery],
        limit: QuestionLimit | None,
        rates: Rates | None,
        now: float,
    ) -> list[UsageByGroup]:
        from spool.ledger.usages import usages_by_group

        state = self._read_state_and_forget_renamed(ledger_rows)
        answers: dict[int, UsageByGroup] = {}
        for place, query in enumerate(queries):
            found = (
                self._find_answer(*self._usage_key_and_versions(query, state))
                if _can_be_cached(query, now)
                else None
            )
            if isinstance(found, dict):
                answers[place] = found
        missing = [place for place in range(len(queries)) if place not in answers]
        read = (
            usages_by_group(ledger_rows, [queries[place] for place in missing], limit, rates)
            if missing
            else ()
        )
        for place, answer in zip(missing, read, strict=True):
            answers[place] = answer
            if _can_be_cached(queries[place], now) and not state.get("charged"):
                self._store_answer(*self._usage_key_and_versions(queries[place], state), answer)
        return [answers[place] for place in range(len(queries))]

    def dimension(self, depends_on: object, define: Callable[[], DerivedDimension]) -> DerivedDimension:
        """
        Return the same dimension object for equal `depends_on`, so that results by it can be cached. The
        dimension's values may depend on nothing else.
        """
        with self._lock:
            found = next((each for each in self._dimensions if each[0] == depends_on), None)
            if found is None:
                found = depends_on, define(), object()
            else:
                self._dimensions.remove(found)
            self._dimensions = [*self._dimensions, found][-MOST_DIMENSIONS:]
            return found[1]

    def has_dimension(self, dimension: DerivedDimension) -> bool:
        return any(dimension is each for _, each, _ in self._dimensions)

    def forget(self) -> None:
        with self._lock:
            self._answers.clear()
            self._dimensions = []
            self._row_count = 0

    def _usage_key_and_versions(
        self, query: CostQuery, state_values: Mapping[str, int]
    ) -> tuple[Hashable, DataVersions]:
        return ("usages", self._query_key(query)), data_versions_of_period(
            state_values, query.since, query.until
        )

    def _query_key(self, query: CostQuery) -> Hashable:
        """
        Return the query as a cache key. Cached dimensions are replaced by their key objects, because their
        functions have no equality.
        """
        marks = {id(dimension): mark for _, dimension, mark in self._dimensions}
        derived = {name: marks.get(id(each), each) for name, each in query.derived.items()}
        values = {each.name: getattr(query, each.name) for each in fields(query)} | {"derived": derived}
        return tuple(map(_to_hashable, values.values()))

    def _read_state_and_forget_renamed(self, ledger_rows: LedgerRows) -> Mapping[str, int]:
        """
        Return the ledger's state. If any process has renamed people since the last call, drop all results,
        because they contain names.
        """
        state = ledger_rows.state_values()
        if state.get(EVERY) != self._every:
            self._every = state.get(EVERY)
            self.forget()
        return state

    def _find_answer(self, key: Hashable, marks: DataVersions) -> Answer | None:
        with self._lock:
            known_marks, answer = self._answers.get(key, ((), []))
            if known_marks != marks:
                return None
            self._answers.move_to_end(key)
            return answer

    def _store_answer(self, key: Hashable, marks: DataVersions, answer: Answer) -> None:
        size = len(answer) + 1
        if size > min(MOST_OF_ONE, self._most_rows):
            return
        with self._lock:
            _, before = self._answers.pop(key, ((), None))
            self._row_count += size - (0 if before is None else len(before) + 1)
            self._answers[key] = marks, answer
            while self._row_count > self._most_rows:
                _, (_, oldest) = self._answers.popitem(last=False)
                self._row_count -= len(oldest) + 1


def _can_be_cached(query: CostQuery, now: float) -> bool:
    if query.currency != CURRENCY or query.until - query.since >= MOST_YEARS * 366 * _DAY:
        return False
    month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    # in every time zone, the query ends before the running month
    return not query.arranged or query.until <= month + _DAY


def data_versions_of_period(
    state_values: Mapping[str, int], since: datetime, until: datetime, *, is_billed: bool = False
) -> DataVersions:
    of_state, every = (_OF_BILLED, EVERY_BILLED) if is_billed else (_OF_STATE, EVERY)
    names = (*of_state, *_data_version_names(since, until, every))
    return tuple(map(state_values.get, names))


def _data_version_names(since: datetime, until: datetime, every: str) -> Iterator[str]:
    at, end = since.astimezone(UTC), until.astimezone(UTC)
    while at < end:
        yield data_version_name(at, every)
        at = next_beginning(at, "daily" if at.day == 1 else "monthly")


def _to_hashable(value: object) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((name, _to_hashable(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(value)
    return value  # every other value is hashable
