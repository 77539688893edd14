"""
How fine the sums are that the ledger keeps: hours, and before a border whole days alone, both of UTC.

A question is answered exactly or not at all: what an instant within the smallest sum would divide is not known.
"""

from __future__ import annotations

from collections.abc import Iterable

from spool.errors import NotKept
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import DAY_S, HOUR_S
from spool.record import border


def check(rows: LedgerRows, hourly: int, instants: Iterable[float]) -> None:
    """NotKept if an instant (epoch seconds) lies within an hour, or before `hourly` within a day, that has sums."""
    for instant in instants:
        width = HOUR_S if instant >= hourly else DAY_S
        start = int(instant // width) * width
        if start != instant and rows.numbers(width, start):
            raise NotKept(
                f"{_hours() if width == HOUR_S else _days(hourly)}; this question divides one at "
                f"{border(instant)}"
            )


def check_hours(hourly: int, since: float) -> None:
    """NotKept if hours from `since` on (epoch seconds) are kept no more."""
    if since < hourly:
        raise NotKept(_border(hourly))


def _border(hourly: int) -> str:
    since = border(hourly)
    return f"before {since} costs are kept by whole days of UTC alone: ask from {since} on"


def _days(hourly: int) -> str:
    return f"{_border(hourly)}, or for periods that begin and end at midnight UTC"


def _hours() -> str:
    return (
        "costs are kept by whole hours of UTC: ask for periods that begin and end on the hour, in a zone "
        "whose offset"
        " from UTC is whole hours"
    )
