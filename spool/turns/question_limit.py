"""The limits of one query of a person or key: rows and time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from spool.errors import AskedTooMuch

CHECK_EVERY = 1000  # sums added between two checks of the time

INSTEAD = (
    "Choose a shorter time range, longer periods or fewer dimensions to group by, or filter by one of them"
)


@dataclass(frozen=True, kw_only=True)
class QuestionLimit:
    """
    The limits of one query: rows and time. `until`: a time of `time.monotonic`. `max_time_s`: for messages.
    """

    max_rows: int
    until: float
    max_time_s: float

    def check_rows(self, rows: int) -> None:
        if rows > self.max_rows:
            raise AskedTooMuch(
                f"this query has more than {self.max_rows} rows (answers.max_summed_rows). {INSTEAD}"
            )

    def check_time(self) -> None:
        if time.monotonic() > self.until:
            raise too_long_error(self.max_time_s)


def too_long_error(max_time_s: float) -> AskedTooMuch:
    return AskedTooMuch(f"this query took longer than {max_time_s:g} s (answers.max_time). {INSTEAD}")


_limit: ContextVar[QuestionLimit | None] = ContextVar("question_limit", default=None)


def limit_of_running_query() -> QuestionLimit | None:
    """Return the limit of the running query, or None for Tollhouse's own work."""
    return _limit.get()


@contextmanager
def apply_limit(limit: QuestionLimit | None) -> Iterator[None]:
    """Apply the limit to all queries in the block. None: no limit, for work that no single query causes."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
