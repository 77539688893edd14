"""
Anthropic's Usage and Cost Analytics API: pages of `analytics/usage` and `analytics/cost`, one row per group.

The difference to list prices becomes a discount. Everything after `data_refreshed_at` is incomplete. Rows
grouped by access rule (`rbac_group_id`) overlap other rows and are rejected.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.bills.statements.cells import ReportSumCollector
from gateway.bills.statements.source import DAY_S, ReportSource, StatementDocument
from gateway.bills.statements.sources.anthropic import (
    COST_TYPES,
    TOKEN_KINDS,
    add_tokens,
    cents_to_dollars,
    result_cell_fields,
)
from gateway.bills.statements.values import (
    Damaged,
    Row,
    epoch_seconds,
    nested_object,
    object_list,
    read_count_field,
    read_number_field,
    read_text_field,
)
from spool.statements import EXACT, RowAmounts


def _has_rows(document: StatementDocument, name: str) -> bool:
    return any(
        isinstance(row, dict) and name in row and "starting_at" in row and "results" not in row
        for page in document.pages()
        for row in page.get("data") or ()
    )


def _read_rows(
    document: StatementDocument, sum_collector: ReportSumCollector, add: Callable[[Row, Row], None]
) -> None:
    for which, page in enumerate(document.pages(), start=1):
        if page.get("data_refreshed_at") is not None:
            refreshed = epoch_seconds(page, "data_refreshed_at")
            sum_collector.refreshed_at = min(refreshed, sum_collector.refreshed_at or refreshed)
        for row_number, row in enumerate(object_list(page.get("data"), "data"), start=1):
            with sum_collector.collect_row(
                f"page {which}, row {row_number}", row, is_identical_row_repeat=True
            ):
                sum_collector.extend_span(epoch_seconds(row, "starting_at"), epoch_seconds(row, "ending_at"))
                group = nested_object(row, "group")
                if read_text_field(group, "rbac_group_id") is not None:
                    raise Damaged(
                        "rows by rbac_group_id overlap and cannot be summed; group by another field"
                    )
                add(row, group)


def _read_usage(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    def add_usage_row(row: Row, group: Row) -> None:
        bucket = result_cell_fields(group, epoch_seconds(row, "starting_at"), epoch_seconds(row, "ending_at"))
        usage = nested_object(row, "usage")
        add_tokens(usage, bucket, sum_collector)
        sum_collector.add_requests(bucket, read_count_field(usage, "requests"))

    _read_rows(document, sum_collector, add_usage_row)


def _read_costs(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    def add_cost_row(row: Row, group: Row) -> None:
        bucket = result_cell_fields(group, epoch_seconds(row, "starting_at"), epoch_seconds(row, "ending_at"))
        cost = nested_object(row, "cost")
        token_type = read_text_field(group, "token_type")
        cost_type = read_text_field(group, "cost_type")
        kind = TOKEN_KINDS.get(token_type or "", "cost")
        if cost_type not in (None, "tokens"):
            kind = COST_TYPES.get(cost_type, cost_type[:60])
        paid = cents_to_dollars(cost, "amount")
        currency = read_text_field(cost, "currency")
        if read_number_field(cost, "list_amount") is None:
            sum_collector.add_money(bucket, kind, paid, currency)
            return
        listed = cents_to_dollars(cost, "list_amount")
        sum_collector.add_amounts(bucket, kind, RowAmounts(listed, listed), currency)
        sum_collector.add_money(bucket, "discount", EXACT.subtract(paid, listed), currency)

    _read_rows(document, sum_collector, add_cost_row)


ANTHROPIC_ANALYTICS_USAGE = ReportSource(
    name="anthropic_analytics_usage",
    title="Anthropic usage analytics",
    settle_s=DAY_S,
    in_parts=True,
    is_document=lambda document: _has_rows(document, "usage"),
    read_document=_read_usage,
)
ANTHROPIC_ANALYTICS_COSTS = ReportSource(
    name="anthropic_analytics_costs",
    title="Anthropic cost analytics",
    settle_s=DAY_S,
    in_parts=True,
    is_document=lambda document: _has_rows(document, "cost"),
    read_document=_read_costs,
)
