"""
OpenRouter's activity: `/api/v1/activity`, one row per day, model and endpoint. Days are UTC and complete.

Cache tokens are not reported, so all input is one kind. Usage with the customer's own provider key is billed
elsewhere and is ignored.
"""

from __future__ import annotations

from gateway.bills.statements.cells import Bucket, Cells
from gateway.bills.statements.source import DAY_S, Document, ReportSource, Table
from gateway.bills.statements.values import (
    Row,
    count,
    epoch_seconds,
    number,
    object_list,
    require_value,
    text,
)


def _is_openrouter_document(document: Document) -> bool:
    return any(
        isinstance(row, dict) and "usage" in row and "prompt_tokens" in row and "byok_usage_inference" in row
        for page in document.pages()
        for row in page.get("data") or ()
    )


def _read_document(document: Document, cells: Cells) -> None:
    for number_, page in enumerate(document.pages(), start=1):
        for row_number, row in enumerate(object_list(page.get("data"), "data"), start=1):
            with cells.collect_row(
                f"page {number_}, row {row_number}", row, once=bool(row.get("endpoint_id"))
            ):
                _add_row(row, cells)


def _read_table(table: Table, cells: Cells) -> None:
    for line, row in table.rows:
        with cells.collect_row(f"line {line}", row, once=bool(row.get("endpoint_id"))):
            _add_row(row, cells)


def _add_row(row: Row, cells: Cells) -> None:
    start = epoch_seconds(row, "date")
    start -= start % DAY_S
    cells.extend_span(start, start + DAY_S)
    bucket = Bucket(
        provider="openrouter",
        start=start,
        end=start + DAY_S,
        account=text(row, "workspace_id"),
        key=text(row, "api_key_hash"),
        model=text(row, "model_permaslug") or text(row, "model"),
    )
    cells.add_tokens(bucket, "input_total", count(row, "prompt_tokens"))
    cells.add_tokens(bucket, "output", count(row, "completion_tokens"))
    cells.add_requests(bucket, count(row, "requests"))
    cells.add_money(bucket, "cost", require_value(number(row, "usage"), "usage"))


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
