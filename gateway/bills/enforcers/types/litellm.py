"""
LiteLLM: budgets of keys, teams and users, with the spend that the proxy counted.

The usage of a key's further windows and of its models is stated only for each key (`/key/info`), so it is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.bills.enforcers.source import (
    EnforcerType,
    Get,
    Take,
    amount_text,
    objects_in_page,
    parse_seconds,
    scalar_text,
    start_of_window_ending,
)
from gateway.bills.statements.pull_requests import bearer_header
from spool.ledger.sums import DAY_S
from spool.registry.tables.enforcers import EnforcerLimit

PAGE = 100
_LISTS = (
    ("key", f"/key/list?return_full_object=true&size={PAGE}", "keys", ("token", "key_alias")),
    ("team", f"/v2/team/list?page_size={PAGE}", "teams", ("team_id", "team_alias")),
    ("user", f"/user/list?page_size={PAGE}", "users", ("user_id", "user_email")),
)
_DIMENSIONS = {"key": "api_key", "team": "team", "user": "user"}
_DURATION = re.compile(r"(\d+)(s|m|h|d|w|mo)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": DAY_S, "w": 7 * DAY_S}


async def read_limits(fetch_page: Get, add_limit: Take, now: float) -> None:
    for kind, path, root, names in _LISTS:
        number = 1
        while True:
            page = await fetch_page(f"{path}&page={number}")
            for row in objects_in_page(page, root):
                if not add_limit(_parse_limit(kind, row, *names)):
                    return
            total = page.get("total_pages")
            if not isinstance(total, int) or number >= total:
                break
            number += 1


def _parse_limit(kind: str, row: Mapping[str, Any], id: str, name: str) -> EnforcerLimit:
    alias, own = scalar_text(row, name), scalar_text(row, id)
    # calls in the ledger name a LiteLLM key by its alias, and a team by its id
    values = (alias, own) if kind == "key" else (own, alias)
    return EnforcerLimit(
        kind=kind,
        id=own,
        name=alias or own,
        limit=amount_text(row.get("max_budget")),
        spent=amount_text(row.get("spend")),
        enforcing=row.get("blocked") is not True,
        dimension=_DIMENSIONS[kind],
        values=tuple(filter(None, values)),
        **_parse_window(row),
    )


def _parse_window(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a counter's window: name, start and end. Without a duration, it runs since its creation."""
    found = _DURATION.fullmatch(scalar_text(row, "budget_duration"))
    if found is None:
        return {"window": "never", "starts_at": parse_seconds(row.get("created_at"))}
    ends_at = parse_seconds(row.get("budget_reset_at"))
    number, unit = int(found[1]), found[2]
    window = _calendar_window_name(number, unit, ends_at)
    if ends_at is None:
        return {"window": window}
    if window in ("day", "week", "month"):
        return {"window": window, "starts_at": start_of_window_ending(window, ends_at), "ends_at": ends_at}
    starts_at = ends_at - number * _SECONDS[unit] if unit in _SECONDS else None
    return {"window": window, "starts_at": starts_at, "ends_at": ends_at}


def _calendar_window_name(unit_count: int, unit: str, ends_at: float | None) -> str:
    """
    Return the name of the window with this duration. LiteLLM resets windows of 1d, 7d and 30d at the start of
    a day, a week and a month.
    """
    end = None if ends_at is None else datetime.fromtimestamp(ends_at, UTC)
    is_midnight = end is not None and end.time() == datetime.min.time()
    if is_midnight and end is not None:
        if (unit_count, unit) in ((1, "d"), (24, "h")):
            return "day"
        if (unit_count, unit) in ((7, "d"), (1, "w")) and end.weekday() == 0:
            return "week"
        if (unit_count, unit) in ((30, "d"), (1, "mo")) and end.day == 1:
            return "month"
    return f"{unit_count}{unit}"


LITELLM = EnforcerType(
    base_url="",
    headers=bearer_header,
    scope={"source": ("litellm",)},
    read=read_limits,
    test=f"/key/list?return_full_object=true&size={PAGE}&page=1",
)
