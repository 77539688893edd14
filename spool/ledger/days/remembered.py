"""
Answers about months that are over, kept in memory while nothing in these months changes.

The rows keep a random mark for each month, which every transaction that changes sums of the month replaces. So an
answer with the marks of now is the answer of now, whichever process changed what.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING

from spool.ledger.costs import costs
from spool.ledger.counting import EVERY, EVERY_BILLED, mark_of
from spool.ledger.periods import next_beginning
from spool.ledger.queries import CostQuery, CostRow
from spool.record import CURRENCY

if TYPE_CHECKING:
    from spool.currencies import Rates
    from spool.ledger.ledger_rows import LedgerRows
    from spool.ledger.queries import QuestionLimit

MOST_ROWS = 20_000  # of all answers together, some 20 MB
MOST_OF_ONE = 5_000
MOST_YEARS = 10  # of one question
_OF_STATE = ("hourly", "rebuilding", EVERY)  # what decides about an answer beside its months
_OF_BILLED = (EVERY_BILLED,)  # the same of billed money
_DAY = timedelta(days=1)

Marks = tuple[int | None, ...]
Answer = list[CostRow]


class RememberedCosts:
    """The answers that were asked for last. Threads may ask at the same time."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._answers: OrderedDict[Hashable, tuple[Marks, Answer]] = OrderedDict()
        self._row_count = 0
        self._lock = Lock()

    def costs(
        self, rows: LedgerRows, query: CostQuery, limit: QuestionLimit | None, rates: Rates | None, now: float
    ) -> Answer:
        """Return what `costs` does, and what it returned before where nothing changed since."""
        if not _is_over(query, now):
            return costs(rows, query, limit, rates)
        marks = _marks(rows.state(), query)
        key = _key(query)
        found = self._known(key, marks)
        if found is None:
            found = costs(rows, query, limit, rates)
            if not any(row.charges or row.unconverted for row in found):  # rates decide about these, too
                self._keep(key, marks, found)
        return found

    def _known(self, key: Hashable, marks: Marks) -> Answer | None:
        with self._lock:
            kept, found = self._answers.get(key, ((), []))
            if kept != marks:
                return None
            self._answers.move_to_end(key)
            return found

    def _keep(self, key: Hashable, marks: Marks, answer: Answer) -> None:
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


def _is_over(query: CostQuery, now: float) -> bool:
    """True for dollars of months before the running one, in whatever zone."""
    if query.currency != CURRENCY:
        return False
    month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    is_short = query.until - query.since < MOST_YEARS * 366 * _DAY
    return is_short and query.until <= month + _DAY


def _marks(state: Mapping[str, int], query: CostQuery) -> Marks:
    """Return the marks that a question depends on."""
    of_state, every = (_OF_BILLED, EVERY_BILLED) if query.arranged else (_OF_STATE, EVERY)
    names = (*of_state, *_places(query.since, query.until, every))
    return tuple(map(state.get, names))


def _places(since: datetime, until: datetime, every: str) -> Iterator[str]:
    """The names of the marks of a span."""
    at, end = since.astimezone(UTC), until.astimezone(UTC)
    while at < end:
        yield mark_of(at, every)
        at = next_beginning(at, "daily" if at.day == 1 else "monthly")


def _key(query: CostQuery) -> Hashable:
    return tuple(_hashable(getattr(query, each.name)) for each in fields(query))


def _hashable(value: object) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((name, _hashable(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(value)
    return value  # the other fields of a question are frozen
