"""
GitHub Copilot's usage in premium requests and AI credits: `/organizations/{org}/settings/billing/...`.

It reports no tokens. The included allowance becomes a discount, so the sum is the net amount that is billed.
Seats are charged in user months. A report without a day covers its whole month.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, datetime

from gateway.bills.statements.cells import Bucket, Cells
from gateway.bills.statements.source import DAY_S, Document, ReportSource
from gateway.bills.statements.values import (
    Damaged,
    Row,
    count,
    epoch_seconds,
    nested_object,
    number,
    object_list,
    require_value,
    text,
)
from spool.statements import SEAT

_SEAT_UNITS = ("usermonths", "usermonth")


def _read_document(document: Document, cells: Cells) -> None:
    for page_number, page in enumerate(document.pages(), start=1):
        span: tuple[int, int] | None = None
        with cells.collect_row(f"page {page_number}, timePeriod"):
            if page.get("timePeriod") is not None:
                span = _period_span(nested_object(page, "timePeriod"))
                cells.extend_span(*span)
            account = text(page, "organization") or text(page, "enterprise")
            if account is not None:
                cells.accounts.add(account)
        for number_, item in enumerate(object_list(page.get("usageItems"), "usageItems"), start=1):
            content = (span, *(page.get(name) for name in ("organization", "enterprise", "user")), item)
            with cells.collect_row(f"page {page_number}, item {number_}", content, once=True):
                _add_item(item, page, span, cells)


def _add_item(item: Row, page: Row, span: tuple[int, int] | None, cells: Cells) -> None:
    if "copilot" not in (text(item, "product") or "copilot").lower():
        return
    if text(item, "date") is not None:
        start = epoch_seconds(item, "date")
        span = start, start + DAY_S
        cells.extend_span(*span)
    if span is None:
        raise Damaged("the page has no timePeriod and the item has no date")
    bucket = Bucket(
        provider="github",
        start=span[0],
        end=span[1],
        account=text(page, "organization") or text(page, "enterprise") or text(item, "organizationName"),
        key=text(page, "user"),
        model=text(item, "model"),
    )
    unit = (text(item, "unitType") or "").lower()
    if "".join(filter(str.isalpha, unit)) in _SEAT_UNITS:
        cells.add_money(bucket, SEAT, require_value(number(item, "netAmount"), "netAmount"))
        cells.add_seats(bucket, number(item, "quantity") or number(item, "grossQuantity"))
        return
    gross = number(item, "grossAmount")
    net = require_value(number(item, "netAmount"), "netAmount")
    cells.add_money(bucket, "cost", net if gross is None else gross)
    if gross is not None:
        cells.add_money(bucket, "discount", net - gross)
    if unit in ("requests", "request"):
        quantity = number(item, "grossQuantity")
        cells.add_requests(bucket, number(item, "quantity") if quantity is None else quantity)


def _period_span(period: Row) -> tuple[int, int]:
    parts = [count(period, name) for name in ("year", "month", "day")]
    year, month, day = (None if part is None else int(part) for part in parts)
    if year is None or not 2000 <= year < 2999 or (month is None and day is not None):
        raise Damaged("timePeriod is not a time")
    try:
        start = int(
            datetime(year, 1 if month is None else month, 1 if day is None else day, tzinfo=UTC).timestamp()
        )
    except (ValueError, OverflowError) as error:
        raise Damaged("timePeriod is not a time") from error
    if day is not None:
        return start, start + DAY_S
    if month is not None:
        return start, start + monthrange(year, month)[1] * DAY_S
    return start, int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())


GITHUB_COPILOT = ReportSource(
    name="github_copilot",
    title="GitHub Copilot usage",
    settle_s=2 * DAY_S,
    in_parts=True,
    is_document=lambda document: any("usageItems" in page for page in document.pages()),
    read_document=_read_document,
)
