"""OpenAI: the hard spend limits of an organization and its projects. The interface states no spend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gateway.bills.enforcers.source import (
    EnforcerType,
    Get,
    Take,
    amount_text,
    calendar_window,
    objects_in_page,
    scalar_text,
)
from gateway.bills.statements.pull_requests import bearer_header
from gateway.bills.statements.puller import PullFailed
from spool.registry.tables.enforcers import EnforcerLimit

_ORGANIZATION = "/v1/organization"


async def read_limits(fetch_page: Get, add_limit: Take, now: float) -> None:
    limit = await _spend_limit(fetch_page, f"{_ORGANIZATION}/spend_limit")
    if limit is not None and not add_limit(
        EnforcerLimit(
            kind="organization", id="organization", name="organization", **_amount_and_window(limit, now)
        )
    ):
        return
    after = ""
    while True:
        page = await fetch_page(
            f"{_ORGANIZATION}/projects?limit=100" + (f"&after={quote(after)}" if after else "")
        )
        rows = objects_in_page(page, "data")
        for row in rows:
            if not await _read_project_limit(fetch_page, add_limit, now, row):
                return
        if not rows or page.get("has_more") is not True:
            return
        after = scalar_text(page, "last_id") or scalar_text(rows[-1], "id")


async def _read_project_limit(fetch_page: Get, add_limit: Take, now: float, row: Mapping[str, Any]) -> bool:
    id = scalar_text(row, "id")
    limit = await _spend_limit(fetch_page, f"{_ORGANIZATION}/projects/{quote(id, safe='')}/spend_limit")
    return limit is None or add_limit(
        EnforcerLimit(
            kind="project",
            id=id,
            name=scalar_text(row, "name") or id,
            unmatched="records do not name the project",
            **_amount_and_window(limit, now),
        )
    )


async def _spend_limit(fetch_page: Get, path: str) -> Mapping[str, Any] | None:
    try:
        limit = await fetch_page(path)
    except PullFailed as error:
        if error.is_absent:
            return None
        raise
    if not isinstance(limit, dict):
        raise PullFailed("the answer is not a spend limit", retry_after_s=None)
    return limit


def _amount_and_window(limit: Mapping[str, Any], now: float) -> dict[str, Any]:
    enforcement = limit.get("enforcement")
    status = scalar_text(enforcement, "status") if isinstance(enforcement, dict) else ""
    return {
        "limit": amount_text(limit.get("threshold_amount"), cents=True),
        "currency": scalar_text(limit, "currency") or "USD",
        "enforcing": status == "enforcing",
        **(calendar_window("month", now) if scalar_text(limit, "interval") == "month" else {}),
    }


OPENAI = EnforcerType(
    base_url="https://api.openai.com",
    headers=bearer_header,
    scope={"provider": ("openai",)},
    read=read_limits,
    test=f"{_ORGANIZATION}/projects?limit=1",
)
