"""
OpenAI's usage: pages of `/v1/organization/usage/completions`, the dashboard's export of them, and
pages of embeddings.

`input_tokens` includes cached tokens and cache writes. Audio and image tokens get their own kinds here. A
bucket without data still counts as covered.
"""

from __future__ import annotations

from decimal import Decimal

from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import (
    DAY_S,
    BucketFieldNames,
    CsvTable,
    ReportSource,
    StatementDocument,
    buckets_with_results,
    read_results,
)
from gateway.bills.statements.values import (
    Damaged,
    Row,
    epoch_seconds,
    read_boolean_field,
    read_count_field,
    read_text_field,
)

EDGES = BucketFieldNames("start_time", "end_time")
_COMPLETIONS, _EMBEDDINGS = "organization.usage.completions.", "organization.usage.embeddings."
_MEDIA = ("audio", "image")


def _has_results_of(document: StatementDocument, kind: str) -> bool:
    return any(str(result.get("object", "")).startswith(kind) for _, result in buckets_with_results(document))


def _read_document(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    read_results(
        document, EDGES, sum_collector, lambda result, start, end: _add_row(result, start, end, sum_collector)
    )


def _read_table(table: CsvTable, sum_collector: ReportSumCollector) -> None:
    for line, row in table.rows:
        with sum_collector.collect_row(f"line {line}", row):
            start = epoch_seconds(row, "start_time")
            end = epoch_seconds(row, "end_time")
            sum_collector.extend_span(start, end)
            if (
                read_text_field(row, "input_tokens") is not None
                or read_text_field(row, "num_model_requests") is not None
            ):
                _add_row(row, start, end, sum_collector)


def _add_row(row: Row, start: int, end: int, sum_collector: ReportSumCollector) -> None:
    bucket = CellFields(
        provider="openai",
        start=start,
        end=end,
        account=read_text_field(row, "project_id"),
        key=read_text_field(row, "api_key_id"),
        model=read_text_field(row, "model"),
        tier=read_text_field(row, "service_tier"),
        batch=read_boolean_field(row, "batch"),
    )
    requests = read_count_field(row, "num_model_requests")
    whole = read_count_field(row, "input_tokens")
    output = read_count_field(row, "output_tokens") or Decimal(0)
    if whole is None and requests is None:
        raise Damaged("input_tokens and num_model_requests are missing")
    whole = whole or Decimal(0)
    read, written = (
        read_count_field(row, "input_cached_tokens") or Decimal(0),
        read_count_field(row, "input_cache_write_tokens") or Decimal(0),
    )
    fresh = whole - read - written
    for medium in _MEDIA:
        medium_tokens = read_count_field(row, f"input_{medium}_tokens") or Decimal(0)
        fresh -= medium_tokens
        sum_collector.add_tokens(bucket, f"{medium}_input", medium_tokens)
        medium_tokens = read_count_field(row, f"output_{medium}_tokens") or Decimal(0)
        output -= medium_tokens
        sum_collector.add_tokens(bucket, f"{medium}_output", medium_tokens)
    if fresh < 0 or output < 0:
        raise Damaged("the parts of the tokens exceed their total")
    sum_collector.add_tokens(bucket, "input", fresh)
    sum_collector.add_tokens(bucket, "cache_read", read)
    sum_collector.add_tokens(bucket, "cache_write", written)
    sum_collector.add_tokens(bucket, "output", output)
    sum_collector.add_requests(bucket, requests)


OPENAI_USAGE = ReportSource(
    name="openai_usage",
    title="OpenAI usage",
    settle_s=2 * DAY_S,
    is_document=lambda document: _has_results_of(document, _COMPLETIONS),
    read_document=_read_document,
    is_table=lambda table: table.has_columns("start_time", "num_model_requests", "input_tokens"),
    read_table=_read_table,
)
OPENAI_USAGE_EMBEDDINGS = ReportSource(
    name="openai_usage_embeddings",
    title="OpenAI embeddings usage",
    settle_s=2 * DAY_S,
    is_document=lambda document: _has_results_of(document, _EMBEDDINGS),
    read_document=_read_document,
)
