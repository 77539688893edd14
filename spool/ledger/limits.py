"""
How much one question may take of the ledger: how many rows its answer may have, and until when it may be worked on.

Whoever admits a question sets its limit; everything that is asked of the ledger while it is worked on keeps
to it. Work of Tollhouse itself, such as evaluating budgets, has none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from spool.errors import AskedTooMuch

CHECK_EVERY = 1000  # sums between two looks at the clock

_INSTEAD = "ask for a shorter time, longer periods, fewer dimensions to group by, or filter by one of them"


@dataclass(frozen=True, kw_only=True)
class QuestionLimit:
    """`until` is a time of `time.monotonic`, whose seconds `max_time_s` names in words."""

    max_rows: int
    until: float
    max_time_s: float

    def check_rows(self, rows: int) -> None:
        """AskedTooMuch beyond the rows of an answer."""
        if rows > self.max_rows:
            raise AskedTooMuch(
                f"this question has more than {self.max_rows} rows (answers.max_summed_rows); {_INSTEAD}"
            )

    def check_time(self) -> None:
        """AskedTooMuch when the time is over."""
        if time.monotonic() > self.until:
            raise took_too_long(self.max_time_s)


def took_too_long(max_time_s: float) -> AskedTooMuch:
    return AskedTooMuch(f"this question took longer than {max_time_s:g} s (answers.max_time); {_INSTEAD}")


_limit: ContextVar[QuestionLimit | None] = ContextVar("question_limit", default=None)


def limit_of_question() -> QuestionLimit | None:
    """The limit of the question that is worked on here; None for work of Tollhouse itself."""
    return _limit.get()


@contextmanager
def limited(limit: QuestionLimit) -> Iterator[None]:
    """Bound all questions to the ledger within the block."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
