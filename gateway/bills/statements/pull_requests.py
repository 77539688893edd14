"""
The HTTP requests of each source with an API: address, query, headers, and the position of the next page. Pure.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.bills.statements.values import Row
from spool.errors import Invalid

MOST_DAYS = 31  # maximum days per request to a provider
OPENROUTER_DAYS = 30  # days in every response of OpenRouter, whatever the request
ANALYTICS_ROWS = 1000
CURSOR_ROWS = 500
LITELLM_ROWS = 100  # rows per page; LiteLLM versions have different limits, and every version allows 100

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """
    Rules for requesting the reports of one source. `query` builds the query for a span of past whole days, at
    most `span_days`. Its arguments are epoch seconds.

    With `posts`, the query is sent as the JSON body of a POST, with numbers as values.

    `whole_pages`: each page has whole buckets and is stored at once. Otherwise the rows of a day may be on
    several pages, so all pages of a span become one report, which is stored after the last page.

    `empty_days_are_unbilled`: a day without rows counts as not billed. Otherwise the stored day stays unchanged.

    `paths` may hold `{account}` for the pull's account. A path that does not exist is skipped if another path
    exists. `days` is the number of days that the source always returns.
    """

    base_url: str  # "" if each customer has a different address
    paths: tuple[str, ...]
    headers: Callable[[str], Mapping[str, str]]
    query: Callable[[int, int], Query]
    next_page: Callable[[Row], str | None]
    rows_in: str = "data"  # name of the member that has the rows, which every page must have
    days: int | None = None
    span_days: int = MOST_DAYS
    posts: bool = False
    whole_pages: bool = False
    empty_days_are_unbilled: bool = True


def bearer_header(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


def basic_header(key: str) -> Mapping[str, str]:
    """Return a basic authorization header with the key as the user name and no password."""
    return {"Authorization": f"Basic {b64encode(f'{key}:'.encode()).decode()}"}


def anthropic_headers(key: str) -> Mapping[str, str]:
    return {"x-api-key": key, "anthropic-version": "2023-06-01"}


def github_headers(key: str) -> Mapping[str, str]:
    return {**bearer_header(key), "Accept": "application/vnd.github+json"}


def _next_page_cursor(page: Row) -> str | None:
    """
    Return the cursor of the next page, or None. Raises Invalid if the page does not state whether more pages
    follow, because a missed page would make a day look complete.
    """
    has_more = page.get("has_more", False)
    cursor = page.get("next_page")
    if not isinstance(has_more, bool):
        raise Invalid("the answer is not a page of the report: its has_more is neither true nor false")
    if has_more and not (isinstance(cursor, str) and cursor):
        raise Invalid("the answer is not a page of the report: more pages follow, but next_page names none")
    return cursor if has_more else None


def _next_litellm_page(page: Row) -> str | None:
    """Return the page after a full page. `total_pages` is ignored: LiteLLM stops counting at 10,000 rows."""
    rows = page.get("data")
    number = page.get("page")
    size = page.get("page_size")
    page_size = size if isinstance(size, int) and size > 0 else LITELLM_ROWS
    if not isinstance(rows, list) or len(rows) < page_size:
        return None
    return str((number if isinstance(number, int) else 1) + 1)


def _next_page_of_cursor_report(page: Row) -> str | None:
    """
    Return Cursor's next page, counted from 1. Raises Invalid if the page does not state whether one follows.
    """
    pages = page.get("pagination")
    has_more = pages.get("hasNextPage") if isinstance(pages, dict) else None
    if not isinstance(has_more, bool):
        raise Invalid("the answer is not a page of the report: its hasNextPage is neither true nor false")
    number = pages.get("currentPage") if isinstance(pages, dict) else None
    if has_more and (not isinstance(number, int) or isinstance(number, bool)):
        raise Invalid(
            "the answer is not a page of the report: more pages follow, but currentPage is not a number"
        )
    return f"{number + 1}" if has_more and number is not None else None


def _no_next_page(page: Row) -> str | None:
    return None


def _openai_request(path: str, *groups: str) -> ReportRequest:
    def query_for_span(start: int, end: int) -> Query:
        span = [
            ("start_time", str(start)),
            ("end_time", str(end)),
            ("bucket_width", "1d"),
            ("limit", str(MOST_DAYS)),
        ]
        return [*span, *(("group_by[]", group) for group in groups)]

    return ReportRequest(
        base_url="https://api.openai.com/v1",
        paths=(path,),
        headers=bearer_header,
        query=query_for_span,
        next_page=_next_page_cursor,
        whole_pages=True,
    )


def _anthropic_report(path: str, bucket_width: str, limit: int, *groups: str, **fields: Any) -> ReportRequest:
    def query_for_span(start: int, end: int) -> Query:
        span = [
            ("starting_at", _format_moment(start)),
            ("ending_at", _format_moment(end)),
            (bucket_width, "1d"),
            ("limit", str(limit)),
        ]
        return [*span, *(("group_by[]", group) for group in groups)]

    url = "https://api.anthropic.com"
    return ReportRequest(
        base_url=url,
        paths=(path,),
        headers=anthropic_headers,
        query=query_for_span,
        next_page=_next_page_cursor,
        **fields,
    )


def _analytics_request(path: str, *groups: str) -> ReportRequest:
    return _anthropic_report(path, "time_bucket_width", ANALYTICS_ROWS, *groups, span_days=1)


def _format_moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _date_range_query_for_github(start: int, end: int) -> Query:
    day = datetime.fromtimestamp(start, UTC)
    return [("year", str(day.year)), ("month", str(day.month)), ("day", str(day.day))]


def _date_range_query_for_litellm(start: int, end: int) -> Query:
    """
    Return the query for a span of days. It ends at midnight, because LiteLLM includes the end. Rows are
    sorted by time, so late rows shift few others between pages.
    """
    span = [
        (name, f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}")
        for name, at in (("start_date", start), ("end_date", end))
    ]
    return [*span, ("page_size", str(LITELLM_ROWS)), ("sort_by", "startTime"), ("sort_order", "asc")]


def _date_range_query_for_cursor(start: int, end: int) -> Query:
    span = ("startDate", start * 1000), ("endDate", end * 1000), ("pageSize", CURSOR_ROWS)
    return [(name, str(number)) for name, number in span]


_USAGE = ("project_id", "api_key_id", "model", "batch", "service_tier")
_ANTHROPIC = ("api_key_id", "workspace_id", "model", "service_tier", "inference_geo")
_COPILOT = "/organizations/{account}/settings/billing"

PULL_REQUESTS: Mapping[str, ReportRequest] = {
    "openai_usage": _openai_request("/organization/usage/completions", *_USAGE),
    "openai_usage_embeddings": _openai_request(
        "/organization/usage/embeddings", "project_id", "api_key_id", "model"
    ),
    "openai_costs": _openai_request("/organization/costs", "project_id", "line_item", "api_key_id"),
    "anthropic_usage": _anthropic_report(
        "/v1/organizations/usage_report/messages",
        "bucket_width",
        MOST_DAYS,
        *_ANTHROPIC,
        "context_window",
        whole_pages=True,
    ),
    "anthropic_costs": _anthropic_report(
        "/v1/organizations/cost_report",
        "bucket_width",
        MOST_DAYS,
        "workspace_id",
        "description",
        whole_pages=True,
    ),
    "anthropic_analytics_usage": _analytics_request("/v1/organizations/analytics/usage", *_ANTHROPIC),
    "anthropic_analytics_costs": _analytics_request(
        "/v1/organizations/analytics/cost", *_ANTHROPIC, "cost_type", "token_type"
    ),
    "openrouter_activity": ReportRequest(
        base_url="https://openrouter.ai",
        paths=("/api/v1/activity",),
        headers=bearer_header,
        query=lambda start, end: (),  # no query, because the source always returns the last days on one page
        next_page=_no_next_page,
        days=OPENROUTER_DAYS,
    ),
    "github_copilot": ReportRequest(
        base_url="https://api.github.com",
        paths=(f"{_COPILOT}/ai_credit/usage", f"{_COPILOT}/premium_request/usage"),
        headers=github_headers,
        query=_date_range_query_for_github,
        next_page=_no_next_page,
        rows_in="usageItems",
        span_days=1,
    ),
    "cursor_usage_events": ReportRequest(
        base_url="https://api.cursor.com",
        paths=("/teams/filtered-usage-events",),
        headers=basic_header,
        query=_date_range_query_for_cursor,
        next_page=_next_page_of_cursor_report,
        rows_in="usageEvents",
        span_days=1,
        posts=True,
    ),
    "litellm_spend_logs": ReportRequest(
        base_url="",
        paths=("/spend/logs/v2",),
        headers=bearer_header,
        query=_date_range_query_for_litellm,
        next_page=_next_litellm_page,
        span_days=1,
        # a day without rows may have been billed, because LiteLLM may have deleted its logs
        empty_days_are_unbilled=False,
    ),
}
