"""
The types of enforcers. The answers are written after the vendors' documents: no real LiteLLM, OpenRouter, Anthropic or
OpenAI was run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.bills.enforcers.types.list import TYPES
from gateway.bills.statements.puller import PullFailed
from spool.registry.tables.enforcers import EnforcerLimit

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()  # a Wednesday
DAY_1, DAY_18, DAY_16 = (datetime(2026, 11, day, tzinfo=UTC).timestamp() for day in (1, 18, 16))
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC).timestamp()


async def limits(type: str, answers: Mapping[str, Any]) -> list[EnforcerLimit]:
    """Return what a type reads from answers by path. Every other path does not exist."""
    found: list[EnforcerLimit] = []

    async def get(path: str) -> Any:
        if path not in answers:
            raise PullFailed("404", retry_after_s=None, is_absent=True)
        return answers[path]

    def take(limit: EnforcerLimit) -> bool:
        found.append(limit)
        return True

    await TYPES[type].read(get, take, NOW)
    return found


def litellm(keys: list[Any], teams: list[Any] = [], users: list[Any] = []) -> Mapping[str, Any]:  # noqa: B006
    return {
        "/key/list?return_full_object=true&size=100&page=1": {"keys": keys[:1], "total_pages": len(keys)},
        "/key/list?return_full_object=true&size=100&page=2": {"keys": keys[1:], "total_pages": len(keys)},
        "/v2/team/list?page_size=100&page=1": {"teams": teams, "total_pages": 1},
        "/user/list?page_size=100&page=1": {"users": users, "total_pages": 1},
    }


async def test_litellm() -> None:
    key = {
        "token": "88dc28", "key_alias": "ci", "spend": 12.3456789, "max_budget": 50.0, "budget_duration": "30d",
        "budget_reset_at": "2026-12-01T00:00:00Z", "blocked": None,
    }  # fmt: skip
    open_key = {
        "token": "99",
        "key_alias": None,
        "spend": 1.5,
        "max_budget": None,
        "created_at": "2026-11-16T00:00:00",
    }
    team = {
        "team_id": "t-1", "team_alias": "search", "spend": 3, "max_budget": 9, "budget_duration": "1d",
        "budget_reset_at": "2026-11-19T00:00:00+00:00", "blocked": True,
    }  # fmt: skip
    user = {"user_id": "u", "user_email": "a@example.com", "spend": 0.0, "max_budget": 1, "budget_duration": "3d",
            "budget_reset_at": "2026-11-19T00:00:00Z"}  # fmt: skip
    first, second, of_team, of_user = await limits("litellm", litellm([key, open_key], [team], [user]))
    assert ("key", "ci", "50.0", "12.3456789", "month") == (
        first.kind, first.name, first.limit, first.spent, first.window,
    )  # fmt: skip
    assert (DAY_1, DECEMBER) == (first.starts_at, first.ends_at)
    assert ("api_key", ("ci", "88dc28")) == (first.dimension, first.values)
    assert (None, "never", DAY_16, ("99",)) == (second.limit, second.window, second.starts_at, second.values)
    assert ("day", DAY_18, False) == (of_team.window, of_team.starts_at, of_team.enforcing)
    assert ("team", ("t-1", "search")) == (of_team.dimension, of_team.values)
    assert ("3d", DAY_16) == (of_user.window, of_user.starts_at)


@pytest.mark.parametrize(
    ("duration", "resets_at", "window", "starts_at"),
    [
        ("1mo", "2026-12-01T00:00:00Z", "month", DAY_1),
        ("7d", "2026-11-23T00:00:00Z", "week", DAY_16),
        ("30d", "2026-12-16T00:00:00Z", "30d", DAY_16),
        ("2h", "2026-11-18T02:00:00Z", "2h", DAY_18),
        ("1mo", "2026-12-16T00:00:00Z", "1mo", None),
        ("30d", None, "30d", None),
    ],
)
async def test_windows_of_litellm(
    duration: str, resets_at: str, window: str, starts_at: float | None
) -> None:
    key = {"token": "1", "spend": 1, "budget_duration": duration, "budget_reset_at": resets_at}
    [limit] = await limits("litellm", litellm([key]))
    assert (window, starts_at) == (limit.window, limit.starts_at)


async def test_openrouter() -> None:
    row = {
        "hash": "f01d", "name": "prod", "label": "sk-or-v1-abc...123", "limit": 100, "limit_reset": "weekly",
        "limit_remaining": 58.5, "usage": 412.25, "usage_daily": 5, "usage_weekly": 41.5, "usage_monthly": 90,
        "disabled": False,
    }  # fmt: skip
    total = {
        "hash": "a",
        "name": "",
        "label": "old",
        "usage": 1,
        "limit": None,
        "limit_reset": None,
        "disabled": True,
    }
    pages = {"/api/v1/keys?offset=0": {"data": [row, total]}, "/api/v1/keys?offset=2": {"data": []}}
    week, ever = await limits("openrouter", pages)
    assert ("100", "41.5", "week", DAY_16) == (week.limit, week.spent, week.window, week.starts_at)
    assert ("1", "never", None, False) == (ever.spent, ever.window, ever.starts_at, ever.enforcing)


async def test_anthropic() -> None:
    """Anthropic states amounts in cents. Without Enterprise, its limits have no spend."""
    member = {
        "actor": {"type": "user_actor", "user_id": "user_1", "email_address": "a@example.com"}, "amount": "50000",
        "currency": "USD", "period": "monthly", "period_to_date_spend": "1234.5",
    }  # fmt: skip
    base = "/v1/organizations/spend_limits"
    pages = {
        f"{base}/effective?limit=1000": {"data": [member], "next_page": "p 2"},
        f"{base}/effective?limit=1000&page=p%202": {"data": [], "next_page": None},
    }
    [limit] = await limits("anthropic", pages)
    assert ("500", "12.345", "month", ("a@example.com", "user_1")) == (
        limit.limit, limit.spent, limit.window, limit.values,
    )  # fmt: skip
    scope = {"id": "spl_1", "amount": "700", "currency": "USD", "period": "daily", "is_enabled": True,
             "scope": {"type": "workspace", "workspace_id": "wrk"}}  # fmt: skip
    [limit] = await limits("anthropic", {f"{base}?limit=1000": {"data": [scope], "next_page": None}})
    assert ("7", None, "day", "wrk") == (limit.limit, limit.spent, limit.window, limit.id)
    assert "records do not name the workspace" == limit.unmatched


async def test_openai() -> None:
    """OpenAI states no spend with its limits. A project without a limit is left out."""
    limit = {
        "currency": "USD",
        "interval": "month",
        "threshold_amount": 10000,
        "enforcement": {"status": "enforcing"},
    }
    projects = {"data": [{"id": "proj_a", "name": "web"}, {"id": "proj_b", "name": "x"}], "has_more": False}
    pages = {
        "/v1/organization/spend_limit": limit,
        "/v1/organization/projects?limit=100": projects,
        "/v1/organization/projects/proj_a/spend_limit": {**limit, "enforcement": {"status": "inactive"}},
    }
    whole, web = await limits("openai", pages)
    assert ("100", None, "month", True, "") == (
        whole.limit,
        whole.spent,
        whole.window,
        whole.enforcing,
        whole.dimension,
    )
    assert ("web", False, "records do not name the project") == (web.name, web.enforcing, web.unmatched)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("answer", [None, [], {}, {"data": None}, {"keys": [1]}, {"data": [3]}, "text"])
async def test_other_answers_fail_with_a_reason(type: str, answer: Any) -> None:
    async def get(path: str) -> Any:
        return answer

    with pytest.raises(PullFailed):
        await TYPES[type].read(get, lambda _: True, NOW)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("value", [None, [], {}, "x", True, float("nan"), -1])
async def test_odd_values_are_read_without_an_error(type: str, value: Any) -> None:
    """
    Any field of an enforcer's response may have another type than documented. Amounts that are no numbers are
    unknown.
    """
    names = (
        "token", "key_alias", "spend", "max_budget", "budget_duration", "budget_reset_at", "limit", "limit_reset",
        "usage", "actor", "scope", "amount", "period", "currency", "period_to_date_spend", "id", "name",
    )  # fmt: skip
    row = dict.fromkeys(names, value)
    found: list[EnforcerLimit] = []

    async def get(path: str) -> Any:
        first = "offset" not in path or path.endswith("=0")
        return {
            "keys": [row],
            "teams": [],
            "users": [],
            "data": [row] if first else [],
            "threshold_amount": value,
        }

    def take(limit: EnforcerLimit) -> bool:
        found.append(limit)
        return True

    await TYPES[type].read(get, take, NOW)
    assert found
    assert all(limit.limit is None or limit.limit == "-1" or limit.limit == "-0.01" for limit in found)
