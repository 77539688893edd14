"""
GitHub Copilot's usage in premium requests and AI credits: `/organizations/{org}/settings/billing/...`.

It reports no tokens. The included allowance becomes a discount, so the sum is the net amount that is billed.
Seats are charged in user months. A report without a day covers its whole month.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, datetime

from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import DAY_S, ReportSource, StatementDocument
from gateway.bills.statements.values import (
    Damaged,
    Row,
    epoch_seconds,
    nested_object,
    object_list,
    read_count_field,
    read_number_field,
    read_text_field,
    require_value,
)
from spool.statements import SEAT

_SEAT_UNITS = ("usermonths", "usermonth")


def _add_document_items(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    for page_number, page in enumerate(document.pages(), start=1):
        span: tuple[int, int] | None = None
        with sum_collector.collect_row(f"page {page_number}, timePeriod"):
            if page.get("timePeriod") is not None:
                span = _period_span(nested_object(page, "timePeriod"))
                sum_collector.extend_span(*span)
            account = read_text_field(page, "organization") or read_text_field(page, "enterprise")
            if account is not None:
                sum_collector.accounts.add(account)
        for number_, item in enumerate(object_list(page.get("usageItems"), "usageItems"), start=1):
            content = (span, *(page.get(name) for name in ("organization", "enterprise", "user")), item)
            with sum_collector.collect_row(
                f"page {page_number}, item {number_}", content, is_identical_row_repeat=True
            ):
                _add_usage_item(item, page, span, sum_collector)


def _add_usage_item(
    item: Row, page: Row, span: tuple[int, int] | None, sum_collector: ReportSumCollector
) -> None:
    if "copilot" not in (read_text_field(item, "product") or "copilot").lower():
        return
    if read_text_field(item, "date") is not None:
        start = epoch_seconds(item, "date")
        span = start, start + DAY_S
        sum_collector.extend_span(*span)
    if span is None:
        raise Damaged("the page has no timePeriod and the item has no date")
    bucket = CellFields(
        provider="github",
        start=span[0],
        end=span[1],
        account=read_text_field(page, "organization")
        or read_text_field(page, "enterprise")
        or read_text_field(item, "organizationName"),
        key=read_text_field(page, "user"),
        model=read_text_field(item, "model"),
    )
    unit = (read_text_field(item, "unitType") or "").lower()
    if "".join(filter(str.isalpha, unit)) in _SEAT_UNITS:
        sum_collector.add_money(
            bucket, SEAT, require_value(read_number_field(item, "netAmount"), "netAmount")
        )
        sum_collector.add_seats(
            bucket, read_number_field(item, "quantity") or read_number_field(item, "grossQuantity")
        )
        return
    gross = read_number_field(item, "grossAmount")
    net = require_value(read_number_field(item, "netAmount"), "netAmount")
    sum_collector.add_money(bucket, "cost", net if gross is None else gross)
    if gross is not None:
        sum_collector.add_money(bucket, "discount", net - gross)
    if unit in ("requests", "request"):
        quantity = read_number_field(item, "grossQuantity")
        sum_collector.add_requests(
            bucket, read_number_field(item, "quantity") if quantity is None else quantity
        )


def _period_span(period: Row) -> tuple[int, int]:
    parts = [read_count_field(period, name) for name in ("year", "month", "day")]
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
    read_document=_add_document_items,
)
