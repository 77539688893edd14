"""How lists of seats are asked for that vendors have an API for: address, headers, and all pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.statements.pull_requests import Query, basic, github
from spool.errors import Invalid

GITHUB_ROWS = 100  # of a page, the most that GitHub gives


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRequest:
    """`page_rows`: a page with fewer of `rows_in` is the last one; 0 if all are in one."""

    base_url: str
    path: str  # with {account} for the account of the pull
    headers: Callable[[str], Mapping[str, str]]
    rows_in: str
    page_rows: int = 0

    def query(self, page: int) -> Query:
        return (("per_page", str(self.page_rows)), ("page", str(page))) if self.page_rows else ()


SEAT_REQUESTS: Mapping[str, SeatRequest] = {
    "github_copilot_seats": SeatRequest(
        base_url="https://api.github.com",
        path="/orgs/{account}/copilot/billing/seats",
        headers=github,
        rows_in="seats",
        page_rows=GITHUB_ROWS,
    ),
    "cursor_members": SeatRequest(
        base_url="https://api.cursor.com",
        path="/teams/members",
        headers=basic,
        rows_in="teamMembers",
    ),
}


async def all_pages(
    request: SeatRequest, ask: Callable[[Query], Awaitable[bytes]], *, most: int
) -> Sequence[Any]:
    """Return every page of a list. Invalid if an answer is no page, or there are more than `most`."""
    pages: list[Any] = []
    for number in range(1, most + 1):
        try:
            page = msgspec.json.decode(await ask(request.query(number)))
        except ValueError as error:
            raise Invalid(f"the answer is not JSON: {error}") from error
        rows = page.get(request.rows_in) if isinstance(page, dict) else None
        if not isinstance(rows, list):
            raise Invalid(f"the answer is not a page of the list: it has no list {request.rows_in}")
        pages.append(page)
        if not request.page_rows or len(rows) < request.page_rows:
            return pages
    raise Invalid(f"there are more than {most} pages (reconciliation.max_pages): raise it")
