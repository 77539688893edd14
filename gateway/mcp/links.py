"""Pages of the console that show what an answer says, for the person who reads it. Whoever opens one signs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.mcp.tool import Asking
from gateway.money.costs.question import CostQuestion
from gateway.service.mounts import page_link
from spool.ledger.queries import end_of_hour

MAX_LINK = 2000  # characters: a question with many values has no link
_MOST_GROUPS = 2  # of the page Costs
_UNKNOWN = "unknown"  # how the console names the value of calls that have none


def page(asking: Asking[Any], path: str, parameters: Mapping[str, Sequence[str]] | None = None) -> str:
    """Empty where the address of the console is not known, or would be too long."""
    link = page_link(asking.shared.urls().shared, path, parameters)
    return link if len(link) <= MAX_LINK else ""


def opened_row(asking: Asking[Any], path: str, id: str) -> str:
    """One row of a page."""
    return page(asking, path, {"open": [id]})


def costs_page(
    asking: Asking[Any], posed: CostQuestion, by: Sequence[str], more: Mapping[str, str] | None = None
) -> str:
    """The page Costs with the same time, filters and view."""
    until = [] if posed.until >= end_of_hour(asking.shared.clock.now()) else [last_day(posed.until)]
    asked: dict[str, Sequence[str]] = {"from": [first_day(posed.since)], "to": until, "by": by[:_MOST_GROUPS]}
    asked |= {name: [value] for name, value in (more or {}).items() if value}
    asked |= {"view": [posed.view.id] if posed.view else []}
    asked |= {name: [each or _UNKNOWN for each in values] for name, values in posed.include.items()}
    asked |= {f"{name}!": [each or _UNKNOWN for each in values] for name, values in posed.exclude.items()}
    return page(asking, "/costs", asked)


def first_day(since: datetime) -> str:
    return since.astimezone(UTC).date().isoformat()


def last_day(until: datetime) -> str:
    """The last day of a span that ends before `until`."""
    return (until.astimezone(UTC) - timedelta(microseconds=1)).date().isoformat()
