"""
Anthropic: the spend limits of an organization's members, with their spend (Enterprise), or the limits without spend
(Console).
"""

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
from gateway.bills.statements.pull_requests import anthropic_headers
from gateway.bills.statements.puller import PullFailed
from spool.registry.tables.enforcers import EnforcerLimit

_PATH = "/v1/organizations/spend_limits"
_WINDOWS = {"daily": "day", "weekly": "week", "monthly": "month"}
_SCOPES = {"organization": ("", ""), "workspace": ("", "records do not name the workspace")}


async def read_limits(fetch_page: Get, add_limit: Take, now: float) -> None:
    if not await _read_pages_if_list_exists(fetch_page, add_limit, now, f"{_PATH}/effective", _member_limit):
        await _read_pages_if_list_exists(fetch_page, add_limit, now, _PATH, _scope_limit)


async def _read_pages_if_list_exists(
    fetch_page: Get, add_limit: Take, now: float, path: str, parse_limit: Any
) -> bool:
    """Read all pages of a list. Return False if this organization does not have the list."""
    cursor = ""
    while True:
        try:
            page = await fetch_page(f"{path}?limit=1000" + (f"&page={quote(cursor)}" if cursor else ""))
        except PullFailed as error:
            if error.is_absent and not cursor:
                return False
            raise
        for row in objects_in_page(page, "data"):
            if not add_limit(parse_limit(row, now)):
                return True
        following = scalar_text(page, "next_page")
        if not following or following == cursor:
            return True
        cursor = following


def _member_limit(row: Mapping[str, Any], now: float) -> EnforcerLimit:
    actor = row.get("actor")
    member: Mapping[str, Any] = actor if isinstance(actor, dict) else {}
    email = scalar_text(member, "email_address") or scalar_text(member, "email")
    id = scalar_text(member, "user_id") or scalar_text(member, "id")
    return EnforcerLimit(
        kind="user",
        id=id,
        name=email or scalar_text(member, "name") or id,
        spent=amount_text(row.get("period_to_date_spend"), cents=True),
        dimension="user",
        values=tuple(filter(None, (email, id))),
        **_amount_and_window(row, now),
    )


def _scope_limit(row: Mapping[str, Any], now: float) -> EnforcerLimit:
    scope = row.get("scope")
    of: Mapping[str, Any] = scope if isinstance(scope, dict) else {}
    kind = scalar_text(of, "type") or "organization"
    id = next((scalar_text(of, name) for name in of if name.endswith("_id")), "") or scalar_text(row, "id")
    dimension, unmatched = _SCOPES.get(kind, ("", f"records do not name the {kind}"))
    return EnforcerLimit(
        kind=kind,
        id=id,
        name=id,
        dimension=dimension,
        unmatched=unmatched,
        enforcing=row.get("is_enabled") is not False,
        **_amount_and_window(row, now),
    )


def _amount_and_window(row: Mapping[str, Any], now: float) -> dict[str, Any]:
    window = _WINDOWS.get(scalar_text(row, "period"))
    return {
        "limit": amount_text(row.get("amount"), cents=True),
        "currency": scalar_text(row, "currency") or "USD",
        **(calendar_window(window, now) if window else {}),
    }


ANTHROPIC = EnforcerType(
    base_url="https://api.anthropic.com",
    headers=anthropic_headers,
    scope={"provider": ("anthropic",)},
    read=read_limits,
    test=f"{_PATH}?limit=1",
)
