"""OpenRouter: the limits of keys. All windows are in UTC, and weeks begin on Monday."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.bills.enforcers.source import (
    EnforcerType,
    Get,
    Take,
    amount_text,
    calendar_window,
    objects_in_page,
    parse_seconds,
    scalar_text,
)
from gateway.bills.statements.pull_requests import bearer_header
from spool.registry.tables.enforcers import EnforcerLimit

_WINDOWS = {"daily": "day", "weekly": "week", "monthly": "month"}


async def read_limits(fetch_page: Get, add_limit: Take, now: float) -> None:
    offset = 0
    while True:
        rows = objects_in_page(await fetch_page(f"/api/v1/keys?offset={offset}"), "data")
        for row in rows:
            if not add_limit(_parse_limit(row, now)):
                return
        if not rows:
            return
        offset += len(rows)


def _parse_limit(row: Mapping[str, Any], now: float) -> EnforcerLimit:
    reset = scalar_text(row, "limit_reset")
    window = _WINDOWS.get(reset)
    if window is None:
        counted: dict[str, Any] = {"window": "never", "starts_at": parse_seconds(row.get("created_at"))}
    else:
        counted = calendar_window(window, now)
    name = scalar_text(row, "name")
    return EnforcerLimit(
        kind="key",
        id=scalar_text(row, "hash"),
        name=name or scalar_text(row, "label"),
        limit=amount_text(row.get("limit")),
        spent=amount_text(row.get(f"usage_{reset}" if window else "usage")),
        enforcing=row.get("disabled") is not True,
        dimension="api_key",
        values=tuple(filter(None, (name, scalar_text(row, "hash")))),
        **counted,
    )


OPENROUTER = EnforcerType(
    base_url="https://openrouter.ai",
    headers=bearer_header,
    scope={"source": ("openrouter",)},
    read=read_limits,
    test="/api/v1/keys?offset=0",
)
