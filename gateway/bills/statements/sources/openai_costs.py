"""
OpenAI's costs, which match the invoice: pages of `/v1/organization/costs` and the dashboard's export of them.

A line item is free text: `MODEL, input` and the like are money for tokens. Its quantities are ignored,
because the usage report has the tokens.
"""

from __future__ import annotations

import re

from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import (
    DAY_S,
    CsvTable,
    ReportSource,
    StatementDocument,
    buckets_with_results,
    read_results,
)
from gateway.bills.statements.sources.openai_usage import EDGES
from gateway.bills.statements.values import (
    Row,
    epoch_seconds,
    nested_object,
    read_number_field,
    read_text_field,
    require_value,
)

_OBJECT = "organization.costs.result"
_TOKENS = re.compile(r"(.+), (?:(?:text|(audio|image)) )?(cached input|cache write|input|output)")
_KINDS = {"cached input": "cache_read", "cache write": "cache_write", "input": "input", "output": "output"}
_STORAGE = "gibibyte_hours"
_OTHERS = {"web search": "web_search", "code interpreter": "code_execution", "file search": "file_search"}


def _is_costs_document(document: StatementDocument) -> bool:
    return any(result.get("object") == _OBJECT for _, result in buckets_with_results(document))


def _read_document(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    def add_result_row(result: Row, start: int, end: int) -> None:
        amount = nested_object(result, "amount")
        money = {"value": amount.get("value"), "currency": amount.get("currency")}
        _add_row(result, money, start, end, sum_collector)

    read_results(document, EDGES, sum_collector, add_result_row)


def _read_table(table: CsvTable, sum_collector: ReportSumCollector) -> None:
    for line, row in table.rows:
        with sum_collector.collect_row(f"line {line}", row):
            start = epoch_seconds(row, "start_time")
            end = epoch_seconds(row, "end_time")
            sum_collector.extend_span(start, end)
            account = read_text_field(row, "organization_id")
            if account is not None:
                sum_collector.accounts.add(account)
            if read_text_field(row, "amount_value") is not None:
                money = {"value": row["amount_value"], "currency": row.get("amount_currency")}
                _add_row(row, money, start, end, sum_collector)


def _add_row(row: Row, money: Row, start: int, end: int, sum_collector: ReportSumCollector) -> None:
    kind, model = _line_kind_and_model(
        read_text_field(row, "line_item"), read_text_field(row, "quantity_unit")
    )
    bucket = CellFields(
        provider="openai",
        start=start,
        end=end,
        account=read_text_field(row, "project_id"),
        key=read_text_field(row, "api_key_id"),
        model=model,
    )
    sum_collector.add_money(
        bucket,
        kind,
        require_value(read_number_field(money, "value"), "amount.value"),
        read_text_field(money, "currency"),
    )


def _line_kind_and_model(line: str | None, unit: str | None) -> tuple[str, str | None]:
    if line is None:
        return "cost", None
    match = _TOKENS.fullmatch(line)
    if match is not None:
        kind = _KINDS[match[3]]
        is_apart = match[2] is not None and kind in ("input", "output")
        return f"{match[2]}_{kind}" if is_apart else kind, match[1]
    if unit == _STORAGE:
        return "storage", None
    folded = line.lower()
    known = next((kind for phrase, kind in _OTHERS.items() if phrase in folded), None)
    return known or re.sub(r"[^a-z0-9]+", "_", folded).strip("_")[:60] or "other", None


OPENAI_COSTS = ReportSource(
    name="openai_costs",
    title="OpenAI costs",
    settle_s=2 * DAY_S,
    is_document=_is_costs_document,
    read_document=_read_document,
    is_table=lambda table: table.has_columns("start_time", "amount_value", "line_item"),
    read_table=_read_table,
)
