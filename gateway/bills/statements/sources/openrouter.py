"""
OpenRouter's activity: `/api/v1/activity`, one row per day, model and endpoint. Days are UTC and complete.

Cache tokens are not reported, so all input is one kind. Usage with the customer's own provider key is billed
elsewhere and is ignored.
"""

from __future__ import annotations

from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import DAY_S, CsvTable, ReportSource, StatementDocument
from gateway.bills.statements.values import (
    Row,
    epoch_seconds,
    object_list,
    read_count_field,
    read_number_field,
    read_text_field,
    require_value,
)


def _is_openrouter_document(document: StatementDocument) -> bool:
    return any(
        isinstance(row, dict) and "usage" in row and "prompt_tokens" in row and "byok_usage_inference" in row
        for page in document.pages()
        for row in page.get("data") or ()
    )


def _read_document(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    for number_, page in enumerate(document.pages(), start=1):
        for row_number, row in enumerate(object_list(page.get("data"), "data"), start=1):
            with sum_collector.collect_row(
                f"page {number_}, row {row_number}", row, is_identical_row_repeat=bool(row.get("endpoint_id"))
            ):
                _add_row(row, sum_collector)


def _read_table(table: CsvTable, sum_collector: ReportSumCollector) -> None:
    for line, row in table.rows:
        with sum_collector.collect_row(
            f"line {line}", row, is_identical_row_repeat=bool(row.get("endpoint_id"))
        ):
            _add_row(row, sum_collector)


def _add_row(row: Row, sum_collector: ReportSumCollector) -> None:
    start = epoch_seconds(row, "date")
    start -= start % DAY_S
    sum_collector.extend_span(start, start + DAY_S)
    bucket = CellFields(
        provider="openrouter",
        start=start,
        end=start + DAY_S,
        account=read_text_field(row, "workspace_id"),
        key=read_text_field(row, "api_key_hash"),
        model=read_text_field(row, "model_permaslug") or read_text_field(row, "model"),
    )
    sum_collector.add_tokens(bucket, "input_total", read_count_field(row, "prompt_tokens"))
    sum_collector.add_tokens(bucket, "output", read_count_field(row, "completion_tokens"))
    sum_collector.add_requests(bucket, read_count_field(row, "requests"))
    sum_collector.add_money(bucket, "cost", require_value(read_number_field(row, "usage"), "usage"))


OPENROUTER = ReportSource(
    name="openrouter_activity",
    title="OpenRouter activity",
    settle_s=DAY_S,
    in_parts=True,
    is_document=_is_openrouter_document,
    read_document=_read_document,
    is_table=lambda table: table.has_columns(
        "date", "model", "prompt_tokens", "usage", "byok_usage_inference"
    ),
    read_table=_read_table,
)
