"""How each source that has an API is asked: address, query, headers, and where the next page is. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.bills.statements.values import Row
from spool.errors import Invalid

MOST_DAYS = 31  # of one request
OPENROUTER_DAYS = 30  # that an answer of OpenRouter has, whatever is asked
ANALYTICS_ROWS = 1000  # of a page
CURSOR_ROWS = 500  # of a page
LITELLM_ROWS = 100  # of a page; versions differ in what they allow at most, and all allow this

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """
    `query` is asked for a span of whole days that have passed (epoch seconds), `span_days` of them at most.

    With `posts` it is the JSON body of a POST, its values as numbers.

    `whole_pages`: each page holds whole buckets and is kept by itself. Otherwise a day's rows may be in
    several pages: all pages of a span are one report, which is kept when the last page is there.
    `tells_nothing_used`: a day without a row in the answer was not billed; otherwise it stays as it was. A
    report may stand at several `paths`, in which `{account}` is the account of the pull; one that is not
    there is left out if another one is. `days`: the number of days that it answers, whatever is asked.
    """

    base_url: str  # "" if each customer has an address of their own
    paths: tuple[str, ...]
    headers: Callable[[str], Mapping[str, str]]
    query: Callable[[int, int], Query]
    next_page: Callable[[Row], str | None]
    rows_in: str = "data"  # the list that every page has
    days: int | None = None
    span_days: int = MOST_DAYS
    posts: bool = False
    whole_pages: bool = False
    tells_nothing_used: bool = True


def bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


def basic(key: str) -> Mapping[str, str]:
    """The key as the name of a user without a password."""
    return {"Authorization": f"Basic {b64encode(f'{key}:'.encode()).decode()}"}


def anthropic(key: str) -> Mapping[str, str]:
    return {"x-api-key": key, "anthropic-version": "2023-06-01"}


def github(key: str) -> Mapping[str, str]:
    return {**bearer(key), "Accept": "application/vnd.github+json"}


def _next_page(page: Row) -> str | None:
    """Invalid if it does not tell: what is taken for the last page makes a day's figures whole."""
    has_more = page.get("has_more", False)
    found = page.get("next_page")
    if not isinstance(has_more, bool):
        raise Invalid("the answer is not a page of the report: its has_more is neither true nor false")
    if has_more and not (isinstance(found, str) and found):
        raise Invalid(
            "the answer is not a page of the report: there are more pages, and next_page names none"
        )
    return found if has_more else None


def _next_number(page: Row) -> str | None:
    """After a full page; `total_pages` is not looked at, because LiteLLM stops to count at 10,000 rows."""
    rows = page.get("data")
    number = page.get("page")
    size = page.get("page_size")
    most = size if isinstance(size, int) and size > 0 else LITELLM_ROWS
    if not isinstance(rows, list) or len(rows) < most:
        return None
    return str((number if isinstance(number, int) else 1) + 1)


def _next_current(page: Row) -> str | None:
    """Cursor numbers its pages from 1. Invalid if it does not tell whether there is one more."""
    pages = page.get("pagination")
    has_more = pages.get("hasNextPage") if isinstance(pages, dict) else None
    if not isinstance(has_more, bool):
        raise Invalid("the answer is not a page of the report: its hasNextPage is neither true nor false")
    number = pages.get("currentPage") if isinstance(pages, dict) else None
    if has_more and (not isinstance(number, int) or isinstance(number, bool)):
        raise Invalid(
            "the answer is not a page of the report: there are more pages, and currentPage is not a number"
        )
    return f"{number + 1}" if has_more and number is not None else None


def _no_page(page: Row) -> str | None:
    return None


def _openai(path: str, *groups: str) -> PullRequest:
    def query(start: int, end: int) -> Query:
        span = [
            ("start_time", str(start)),
            ("end_time", str(end)),
            ("bucket_width", "1d"),
            ("limit", str(MOST_DAYS)),
        ]
        return [*span, *(("group_by[]", group) for group in groups)]

    return PullRequest(
        base_url="https://api.openai.com/v1",
        paths=(path,),
        headers=bearer,
        query=query,
        next_page=_next_page,
        whole_pages=True,
    )


def _anthropic_report(path: str, width: str, limit: int, *groups: str, **fields: Any) -> PullRequest:
    def query(start: int, end: int) -> Query:
        span = [
            ("starting_at", _moment(start)),
            ("ending_at", _moment(end)),
            (width, "1d"),
            ("limit", str(limit)),
        ]
        return [*span, *(("group_by[]", group) for group in groups)]

    url = "https://api.anthropic.com"
    return PullRequest(
        base_url=url, paths=(path,), headers=anthropic, query=query, next_page=_next_page, **fields
    )


def _analytics(path: str, *groups: str) -> PullRequest:
    return _anthropic_report(path, "time_bucket_width", ANALYTICS_ROWS, *groups, span_days=1)


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _github_day(start: int, end: int) -> Query:
    day = datetime.fromtimestamp(start, UTC)
    return [("year", str(day.year)), ("month", str(day.month)), ("day", str(day.day))]


def _litellm_day(start: int, end: int) -> Query:
    """To midnight: LiteLLM counts the end in. In order of time, so that rows which come late shift few others."""
    span = [
        (name, f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}")
        for name, at in (("start_date", start), ("end_date", end))
    ]
    return [*span, ("page_size", str(LITELLM_ROWS)), ("sort_by", "startTime"), ("sort_order", "asc")]


def _cursor_day(start: int, end: int) -> Query:
    span = ("startDate", start * 1000), ("endDate", end * 1000), ("pageSize", CURSOR_ROWS)
    return [(name, str(number)) for name, number in span]


_USAGE = ("project_id", "api_key_id", "model", "batch", "service_tier")
_ANTHROPIC = ("api_key_id", "workspace_id", "model", "service_tier", "inference_geo")
_COPILOT = "/organizations/{account}/settings/billing"

PULL_REQUESTS: Mapping[str, PullRequest] = {
    "openai_usage": _openai("/organization/usage/completions", *_USAGE),
    "openai_usage_embeddings": _openai("/organization/usage/embeddings", "project_id", "api_key_id", "model"),
    "openai_costs": _openai("/organization/costs", "project_id", "line_item", "api_key_id"),
    "anthropic_usage": _anthropic_report(
        "/v1/organizations/usage_report/messages", "bucket_width", MOST_DAYS, *_ANTHROPIC, whole_pages=True
    ),
    "anthropic_costs": _anthropic_report(
        "/v1/organizations/cost_report",
        "bucket_width",
        MOST_DAYS,
        "workspace_id",
        "description",
        whole_pages=True,
    ),
    "anthropic_analytics_usage": _analytics("/v1/organizations/analytics/usage", *_ANTHROPIC),
    "anthropic_analytics_costs": _analytics(
        "/v1/organizations/analytics/cost", *_ANTHROPIC, "cost_type", "token_type"
    ),
    "openrouter_activity": PullRequest(
        base_url="https://openrouter.ai",
        paths=("/api/v1/activity",),
        headers=bearer,
        query=lambda start, end: (),  # the last days that have passed, in one page
        next_page=_no_page,
        days=OPENROUTER_DAYS,
    ),
    "github_copilot": PullRequest(
        base_url="https://api.github.com",
        paths=(f"{_COPILOT}/ai_credit/usage", f"{_COPILOT}/premium_request/usage"),
        headers=github,
        query=_github_day,
        next_page=_no_page,
        rows_in="usageItems",
        span_days=1,
    ),
    "cursor_usage_events": PullRequest(
        base_url="https://api.cursor.com",
        paths=("/teams/filtered-usage-events",),
        headers=basic,
        query=_cursor_day,
        next_page=_next_current,
        rows_in="usageEvents",
        span_days=1,
        posts=True,
    ),
    "litellm_spend_logs": PullRequest(
        base_url="",
        paths=("/spend/logs/v2",),
        headers=bearer,
        query=_litellm_day,
        next_page=_next_number,
        span_days=1,
        tells_nothing_used=False,  # LiteLLM may have deleted the logs of the day
    ),
}
