"""The declaration of a type of enforcers, and readers of values that several types need. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from gateway.bills.statements.puller import PullFailed
from spool.ledger.periods import next_beginning, period_beginning
from spool.registry.tables.enforcers import EnforcerLimit

# Function that sends a GET request for a path with its query, and returns the JSON value. Raises PullFailed.
Get: TypeAlias = "Callable[[str], Awaitable[Any]]"
# Function that receives the limits one by one, and returns False when no more are accepted.
Take: TypeAlias = "Callable[[EnforcerLimit], bool]"
WINDOWS = {"day": "daily", "week": "weekly", "month": "monthly"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerType:
    """
    A type of enforcers. `scope` has the values of dimensions that its calls have. `read` requests the limits.
    Its last argument is the time of the reading.
    """

    base_url: str  # default address of the enforcer's API, or "" if each installation has its own
    headers: Callable[[str], Mapping[str, str]]
    scope: Mapping[str, tuple[str, ...]]
    read: Callable[[Get, Take, float], Awaitable[None]]
    test: str  # path of a request that tests the enforcer's key


def objects_in_page(page: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the list of objects in a page. Raises PullFailed if the page has none."""
    rows = page.get(name) if isinstance(page, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise PullFailed(f"the answer has no list {name}", retry_after_s=None)
    return rows


def scalar_text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return str(value) if isinstance(value, str | int) else ""


def amount_text(value: Any, *, cents: bool = False) -> str | None:
    """Return an amount as exact decimal text, or None if it is no number. Floats are read as they are written."""
    try:
        exact = Decimal(str(value)) if value is not None and not isinstance(value, bool) else None
    except InvalidOperation:
        return None
    if exact is None or not exact.is_finite():
        return None
    return f"{exact / 100 if cents else exact:f}"


def parse_seconds(value: Any) -> float | None:
    """Parse a timestamp. A time without a zone is in UTC."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def calendar_window(window: str, now: float) -> dict[str, Any]:
    """Return window, start and end of the running day, week (from Monday) or month in UTC."""
    start = period_beginning(datetime.fromtimestamp(now, UTC), WINDOWS[window])
    end = next_beginning(start, WINDOWS[window])
    return {"window": window, "starts_at": start.timestamp(), "ends_at": end.timestamp()}


def start_of_window_ending(window: str, end: float) -> float:
    last = datetime.fromtimestamp(end, UTC) - timedelta(seconds=1)
    return period_beginning(last, WINDOWS[window]).timestamp()
