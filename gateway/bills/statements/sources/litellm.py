"""
LiteLLM's spend logs and daily sums: rows of `LiteLLM_SpendLogs`, `/spend/logs/v2` or `LiteLLM_DailyUserSpend`.

Prompt tokens include cache tokens. Answers from LiteLLM's own cache are ignored, because nobody billed them.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import DAY_S, HOUR_S, CsvTable, ReportSource, StatementDocument
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
from spool import providers


def _document_rows(document: StatementDocument) -> Iterator[Row]:
    for page in document.pages():
        inside = page.get("data")
        if isinstance(inside, list):
            yield from (row for row in inside if isinstance(row, dict))
        else:
            yield page


def _is_litellm_document(document: StatementDocument) -> bool:
    return any(
        "spend" in row and "prompt_tokens" in row and ("startTime" in row or "date" in row)
        for row in _document_rows(document)
    )


def _read_document(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    for page in document.pages():
        object_list(page.get("data"), "data")
    for row_number, row in enumerate(_document_rows(document), start=1):
        with sum_collector.collect_row(f"row {row_number}", row, is_identical_row_repeat=_has_id(row)):
            _add_row(
                row,
                nested_object(row, "metadata") if not isinstance(row.get("metadata"), str) else {},
                sum_collector,
            )


def _read_table(table: CsvTable, sum_collector: ReportSumCollector) -> None:
    for line, row in table.rows:
        with sum_collector.collect_row(f"line {line}", row, is_identical_row_repeat=_has_id(row)):
            _add_row({**row, "startTime": row.get("starttime")}, {}, sum_collector)


def _has_id(row: Row) -> bool:
    return bool(row.get("request_id") or row.get("id"))


def _add_row(row: Row, metadata: Row, sum_collector: ReportSumCollector) -> None:
    start = epoch_seconds(row, "startTime" if row.get("startTime") is not None else "date")
    start -= start % DAY_S
    sum_collector.extend_span(start, start + DAY_S)
    if str(row.get("cache_hit", "")).lower() == "true":
        return
    provider = read_text_field(row, "custom_llm_provider")
    if provider is None:
        if not any(
            (
                read_count_field(row, "prompt_tokens"),
                read_count_field(row, "completion_tokens"),
                read_number_field(row, "spend"),
            )
        ):
            return  # the call failed before LiteLLM chose a provider
        raise Damaged("custom_llm_provider is missing")
    bucket = CellFields(
        provider=providers.canonical_provider_name(provider),
        start=start,
        end=start + DAY_S,
        account=read_text_field(row, "organization_id"),
        key=read_text_field(row, "api_key"),
        model=read_text_field(row, "model"),
    )
    usage = nested_object(metadata, "usage_object")
    reported_object = {**usage, **{name: row[name] for name in _CACHE if row.get(name) is not None}}
    whole, read, written = (
        read_count_field(row, "prompt_tokens"),
        *(read_count_field(reported_object, name) for name in _CACHE),
    )
    if whole is not None and (read is not None or written is not None):
        fresh = whole - (read or 0) - (written or 0)
        if fresh < 0:
            raise Damaged("prompt_tokens is less than its cached tokens")
        sum_collector.add_tokens(bucket, "input", fresh)
        sum_collector.add_tokens(bucket, "cache_read", read)
        sum_collector.add_tokens(bucket, "cache_write", written)
    else:
        sum_collector.add_tokens(bucket, "input_total", whole)
    sum_collector.add_tokens(bucket, "output", read_count_field(row, "completion_tokens"))
    sum_collector.add_requests(
        bucket, read_count_field(row, "api_requests") if "api_requests" in row else Decimal(1)
    )
    sum_collector.add_money(bucket, "cost", require_value(read_number_field(row, "spend"), "spend"))


_CACHE = ("cache_read_input_tokens", "cache_creation_input_tokens")

LITELLM = ReportSource(
    name="litellm_spend_logs",
    title="LiteLLM spend logs",
    settle_s=HOUR_S,
    in_parts=True,
    is_document=_is_litellm_document,
    read_document=_read_document,
    is_table=lambda table: table.has_columns("spend", "prompt_tokens", "custom_llm_provider"),
    read_table=_read_table,
)
