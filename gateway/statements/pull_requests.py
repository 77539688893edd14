"""How each source that has an API is asked: address, query, headers, and where the next page is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MOST_DAYS = 31  # of one request

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """
    `query` is asked for the span from one day to another (epoch seconds), which is whole days that have passed. Every
    page holds whole buckets, so that each can be kept by itself.
    """

    base_url: str
    path: str
    headers: Callable[[str], Mapping[str, str]]
    query: Callable[[int, int], Query]
    next_page: Callable[[Mapping[str, Any]], str | None]


def _bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _anthropic(key: str) -> Mapping[str, str]:
    return {"x-api-key": key, "anthropic-version": "2023-06-01"}


def _next_page(page: Mapping[str, Any]) -> str | None:
    found = page.get("next_page")
    return found if page.get("has_more") is True and isinstance(found, str) and found else None


def _openai(path: str, *groups: str) -> PullRequest:
    def query(start: int, end: int) -> Query:
        span = [("start_time", str(start)), ("end_time", str(end)), ("bucket_width", "1d"), ("limit", str(MOST_DAYS))]
        return [*span, *(("group_by[]", group) for group in groups)]

    url = "https://api.openai.com/v1"
    return PullRequest(base_url=url, path=path, headers=_bearer, query=query, next_page=_next_page)


def _anthropic_report(path: str, *groups: str) -> PullRequest:
    def query(start: int, end: int) -> Query:
        span = [("starting_at", _moment(start)), ("ending_at", _moment(end)), ("bucket_width", "1d")]
        return [*span, ("limit", str(MOST_DAYS)), *(("group_by[]", group) for group in groups)]

    url = "https://api.anthropic.com"
    return PullRequest(base_url=url, path=path, headers=_anthropic, query=query, next_page=_next_page)


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_USAGE = ("project_id", "api_key_id", "model", "batch", "service_tier")

PULL_REQUESTS: Mapping[str, PullRequest] = {
    "openai_usage": _openai("/organization/usage/completions", *_USAGE),
    "openai_usage_embeddings": _openai("/organization/usage/embeddings", "project_id", "api_key_id", "model"),
    "openai_costs": _openai("/organization/costs", "project_id", "line_item", "api_key_id"),
    "anthropic_usage": _anthropic_report(
        "/v1/organizations/usage_report/messages",
        "api_key_id", "workspace_id", "model", "service_tier", "inference_geo",
    ),
    "anthropic_costs": _anthropic_report("/v1/organizations/cost_report", "workspace_id", "description"),
    "openrouter_activity": PullRequest(
        base_url="https://openrouter.ai",
        path="/api/v1/activity",
        headers=_bearer,
        query=lambda start, end: (),  # the last 30 days that have passed, in one page
        next_page=lambda page: None,
    ),
}  # fmt: skip
