"""Days and months (UTC) that records belong to, by the rule of the ledger."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from gateway.records.calls.filters import DATE
from spool.errors import Invalid
from spool.ledger.sums import hour_of

_FORM = re.compile(r"\d{4}-\d{2}(?:-\d{2})?", re.ASCII)


def day_and_month(start_time: int | None, committed_at: float) -> tuple[str, str]:
    """Return the day and month in which the ledger counts a record: those of its start, else of its arrival."""
    day = datetime.fromtimestamp(hour_of(start_time, committed_at), UTC).strftime("%Y-%m-%d")
    return day, day[:7]


def start_of(date: str) -> float:
    """Return the begin of a day or a month in epoch seconds. Invalid for any other text."""
    wrong = Invalid(f"{DATE} is a day such as 2026-11-20, or a month such as 2026-11, of UTC")
    if not _FORM.fullmatch(date):
        raise wrong
    try:
        return datetime.fromisoformat(f"{date}-01"[:10]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise wrong from None
