"""The HTTP requests of vendors' seat lists: addresses, headers and paging."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.bills.statements.pull_requests import (
    Query,
    anthropic_headers,
    basic_header,
    bearer_header,
    github_headers,
)
from spool.errors import Invalid

GITHUB_ROWS = 100  # rows per page; this limit and the next three are the vendors' maximums
CLAUDE_ROWS = 1000
CODE_ASSIST_ROWS = 200
GEMINI_ROWS = 50
LONGEST_CURSOR = 4096  # maximum characters of a page cursor

SeatPage = Mapping[str, Any]
FetchPath = Callable[[str, Query], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRequest:
    """
    Rules for requesting one seat list. `{account}` in `paths` is the pull's account; characters in
    `safe` stay unquoted.

    All `paths` are requested, each starting with the query `first`. `following` gets a page and its number,
    and returns the query of the next page or None.
    """

    base_url: str
    paths: tuple[str, ...]
    headers: Callable[[str], Mapping[str, str]]
    rows_in: str
    safe: str = ""
    first: Query = ()
    following: Callable[[SeatPage, int], Query | None] = lambda page, number: None

    def account_paths(self, account: str) -> Sequence[str]:
        return [path.format(account=quote(account, safe=self.safe)) for path in self.paths]


def _page_query(page_number: int) -> Query:
    return (("per_page", str(GITHUB_ROWS)), ("page", str(page_number)))


def _next_github_query(page: SeatPage, page_number: int) -> Query | None:
    return _page_query(page_number + 1) if len(page["seats"]) >= GITHUB_ROWS else None


def _next_claude_query(page: SeatPage, page_number: int) -> Query | None:
    """
    Return the query of the next page. Raises Invalid if the page does not state whether one follows, because
    people on a missed page would lose their seats.
    """
    has_more = page.get("has_more")
    if not isinstance(has_more, bool):
        raise Invalid("the answer is not a page of the list: its has_more is neither true nor false")
    if not has_more:
        return None
    return (("limit", str(CLAUDE_ROWS)), ("after_id", _cursor_field(page, "last_id")))


def _google_paging(size: int) -> Callable[[SeatPage, int], Query | None]:
    def next_google_query(page: SeatPage, page_number: int) -> Query | None:
        if not page.get("nextPageToken"):
            return None
        return (("pageSize", str(size)), ("pageToken", _cursor_field(page, "nextPageToken")))

    return next_google_query


def _cursor_field(page: SeatPage, field: str) -> str:
    name = page.get(field)
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_CURSOR:
        raise Invalid(f"the answer is not a page of the list: more pages follow, but {field} names none")
    return name


SEAT_REQUESTS: Mapping[str, SeatRequest] = {
    "github_copilot_seats": SeatRequest(
        base_url="https://api.github.com",
        paths=("/orgs/{account}/copilot/billing/seats",),
        headers=github_headers,
        rows_in="seats",
        first=_page_query(1),
        following=_next_github_query,
    ),
    "cursor_members": SeatRequest(
        base_url="https://api.cursor.com",
        paths=("/teams/members",),
        headers=basic_header,
        rows_in="teamMembers",
    ),
    "claude_members": SeatRequest(
        base_url="https://api.anthropic.com",
        paths=("/v1/organizations/users", "/v1/organizations/invites"),
        headers=anthropic_headers,
        rows_in="data",
        first=(("limit", str(CLAUDE_ROWS)),),
        following=_next_claude_query,
    ),
    "code_assist_licenses": SeatRequest(
        base_url="https://cloudcommerceconsumerprocurement.googleapis.com",
        paths=("/v1/{account}/licensePool:enumerateLicensedUsers",),
        headers=bearer_header,
        rows_in="licensedUsers",
        safe="/",
        first=(("pageSize", str(CODE_ASSIST_ROWS)),),
        following=_google_paging(CODE_ASSIST_ROWS),
    ),
    "gemini_licenses": SeatRequest(
        base_url="https://discoveryengine.googleapis.com",
        paths=("/v1/{account}/userLicenses",),
        headers=bearer_header,
        rows_in="userLicenses",
        safe="/",
        first=(("pageSize", str(GEMINI_ROWS)),),
        following=_google_paging(GEMINI_ROWS),
    ),
}


async def fetch_all_pages(
    request: SeatRequest, account: str, ask: FetchPath, *, max_pages: int
) -> Sequence[SeatPage]:
    """
    Return every page of a list. Raises Invalid if an answer is not a page, or there are more than `max_pages`.
    """
    pages: list[SeatPage] = []
    for path in request.account_paths(account):
        query: Query | None = request.first
        number = 0
        while query is not None:
            if len(pages) == max_pages:
                raise Invalid(
                    f"the list has more than {max_pages} pages (reconciliation.max_pages); raise the setting"
                )
            page, number = _parse_page(request, await ask(path, query)), number + 1
            pages.append(page)
            previous, query = query, request.following(page, number)
            if query == previous:
                raise Invalid("the cursor of the next page is that of the same page")
    return pages


def _parse_page(request: SeatRequest, content: bytes) -> SeatPage:
    try:
        page = msgspec.json.decode(content)
    except ValueError as error:
        raise Invalid(f"the answer is not JSON: {error}") from error
    if isinstance(page, dict):
        if not page.keys() - {"nextPageToken"}:  # Google omits the list if it is empty
            return {**page, request.rows_in: []}
        if isinstance(page.get(request.rows_in), list):
            return page
    raise Invalid(f"the answer is not a page of the list: it has no list {request.rows_in}")
