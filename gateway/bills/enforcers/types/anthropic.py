"""
Anthropic: the spend limits of an organization's members, with their spend (Enterprise), or the limits without spend
(Console).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gateway.bills.enforcers.source import EnforcerType, Get, Take, amount_text, calendar, rows_in, text
from gateway.bills.statements.pull_requests import anthropic
from gateway.bills.statements.puller import PullFailed
from spool.registry.tables.enforcers import EnforcerLimit

_PATH = "/v1/organizations/spend_limits"
_WINDOWS = {"daily": "day", "weekly": "week", "monthly": "month"}
_SCOPES = {"organization": ("", ""), "workspace": ("", "records do not name the workspace")}


async def read(get: Get, take: Take, now: float) -> None:
    if not await _pages(get, take, now, f"{_PATH}/effective", _of_member):
        await _pages(get, take, now, _PATH, _of_scope)


async def _pages(get: Get, take: Take, now: float, path: str, limit_of: Any) -> bool:
    """Read all pages of a list. Return False if this organization does not have the list."""
    cursor = ""
    while True:
        try:
            page = await get(f"{path}?limit=1000" + (f"&page={quote(cursor)}" if cursor else ""))
        except PullFailed as error:
            if error.is_absent and not cursor:
                return False
            raise
        for row in rows_in(page, "data"):
            if not take(limit_of(row, now)):
                return True
        following = text(page, "next_page")
        if not following or following == cursor:
            return True
        cursor = following


def _of_member(row: Mapping[str, Any], now: float) -> EnforcerLimit:
    actor = row.get("actor")
    member: Mapping[str, Any] = actor if isinstance(actor, dict) else {}
    email = text(member, "email_address") or text(member, "email")
    id = text(member, "user_id") or text(member, "id")
    return EnforcerLimit(
        kind="user",
        id=id,
        name=email or text(member, "name") or id,
        spent=amount_text(row.get("period_to_date_spend"), cents=True),
        dimension="user",
        values=tuple(filter(None, (email, id))),
        **_common(row, now),
    )


def _of_scope(row: Mapping[str, Any], now: float) -> EnforcerLimit:
    scope = row.get("scope")
    of: Mapping[str, Any] = scope if isinstance(scope, dict) else {}
    kind = text(of, "type") or "organization"
    id = next((text(of, name) for name in of if name.endswith("_id")), "") or text(row, "id")
    dimension, unmatched = _SCOPES.get(kind, ("", f"records do not name the {kind}"))
    return EnforcerLimit(
        kind=kind,
        id=id,
        name=id,
        dimension=dimension,
        unmatched=unmatched,
        enforcing=row.get("is_enabled") is not False,
        **_common(row, now),
    )


def _common(row: Mapping[str, Any], now: float) -> dict[str, Any]:
    window = _WINDOWS.get(text(row, "period"))
    return {
        "limit": amount_text(row.get("amount"), cents=True),
        "currency": text(row, "currency") or "USD",
        **(calendar(window, now) if window else {}),
    }


ANTHROPIC = EnforcerType(
    base_url="https://api.anthropic.com",
    headers=anthropic,
    scope={"provider": ("anthropic",)},
    read=read,
    test=f"{_PATH}?limit=1",
)
