"""
Anthropic's Usage & Cost API: pages of `usage_report/messages` and `cost_report`.

Input tokens exclude cache tokens. Amounts are cents as text: "123.45" is $1.2345. Calls of the Priority Tier
appear in the usage but never in the costs.
"""

from __future__ import annotations

import re
from decimal import Decimal

from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import (
    DAY_S,
    BucketFieldNames,
    ReportSource,
    StatementDocument,
    buckets_with_results,
    read_results,
)
from gateway.bills.statements.values import (
    Row,
    nested_object,
    read_count_field,
    read_number_field,
    read_text_field,
    require_value,
    storable_amount,
)
from spool.statements import EXACT

_EDGES = BucketFieldNames("starting_at", "ending_at")
CENT = Decimal("0.01")
TOKEN_KINDS = {
    "uncached_input_tokens": "input",
    "cache_read_input_tokens": "cache_read",
    "cache_creation.ephemeral_5m_input_tokens": "cache_write_5m",
    "cache_creation.ephemeral_1h_input_tokens": "cache_write_1h",
    "output_tokens": "output",
}
_WINDOW = re.compile(r"(\d+)(k|m)?-\d", re.IGNORECASE)
_THOUSANDS = {"k": 1000, "m": 1_000_000}
COST_TYPES = {"web_search": "web_search", "code_execution": "code_execution", "session_usage": "session"}


def result_cell_fields(row: Row, start: int, end: int) -> CellFields:
    """
    Return the dimensions of a row of Anthropic's usage report. Fast mode replaces the tier, because it sets
    the price.
    """
    geo = read_text_field(row, "inference_geo")
    tier = read_text_field(row, "service_tier")
    return CellFields(
        provider="anthropic",
        start=start,
        end=end,
        account=read_text_field(row, "workspace_id"),
        key=read_text_field(row, "api_key_id"),
        model=read_text_field(row, "model"),
        tier="fast" if read_text_field(row, "speed") == "fast" and tier in (None, "standard") else tier,
        region=None if geo == "not_available" else geo,
        batch=None if tier is None else tier == "batch",
        context=_parse_context_window(read_text_field(row, "context_window")),
    )


def _parse_context_window(window: str | None) -> int | None:
    """Return the lower limit of `200k-1M`, for example, in tokens."""
    match = _WINDOW.match(window or "")
    return None if match is None else int(match[1]) * _THOUSANDS.get((match[2] or "").lower(), 1)


def add_tokens(row: Row, cell_fields: CellFields, sum_collector: ReportSumCollector) -> None:
    written = nested_object(row, "cache_creation")
    for name in ("uncached_input_tokens", "cache_read_input_tokens", "output_tokens"):
        sum_collector.add_tokens(cell_fields, TOKEN_KINDS[name], read_count_field(row, name))
    for name in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"):
        sum_collector.add_tokens(
            cell_fields, TOKEN_KINDS[f"cache_creation.{name}"], read_count_field(written, name)
        )


def cents_to_dollars(row: Row, name: str) -> Decimal:
    return storable_amount(EXACT.multiply(require_value(read_number_field(row, name), name), CENT))


def _has_result_with(document: StatementDocument, *names: str) -> bool:
    return any(
        _EDGES.start in bucket and set(names) <= set(result)
        for bucket, result in buckets_with_results(document)
    )


def _read_usage(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    read_results(
        document,
        _EDGES,
        sum_collector,
        lambda row, start, end: add_tokens(row, result_cell_fields(row, start, end), sum_collector),
    )


def _read_costs(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    def add_cost_row(row: Row, start: int, end: int) -> None:
        cost_type = read_text_field(row, "cost_type")
        token_type = read_text_field(row, "token_type")
        if cost_type == "tokens" or (cost_type is None and token_type is not None):
            kind = TOKEN_KINDS.get(token_type or "", "cost")
        else:
            kind = "cost" if cost_type is None else COST_TYPES.get(cost_type, cost_type[:60])
        sum_collector.add_money(
            result_cell_fields(row, start, end),
            kind,
            cents_to_dollars(row, "amount"),
            read_text_field(row, "currency"),
        )

    read_results(document, _EDGES, sum_collector, add_cost_row)


ANTHROPIC_USAGE = ReportSource(
    name="anthropic_usage",
    title="Anthropic usage report",
    settle_s=DAY_S,
    is_document=lambda document: _has_result_with(document, "uncached_input_tokens", "output_tokens"),
    read_document=_read_usage,
)
ANTHROPIC_COSTS = ReportSource(
    name="anthropic_costs",
    title="Anthropic cost report",
    settle_s=DAY_S,
    is_document=lambda document: _has_result_with(document, "amount", "currency"),
    read_document=_read_costs,
)
