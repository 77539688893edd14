"""
Google Cloud's billing export, limited to Vertex AI and the Gemini API: rows of `gcp_billing_export_v1_*` and
its detailed form, as JSON lines or CSV.

Thinking has its own SKU, separate from text output. Credits are negative amounts within a row; discount
credits apply to the usage of the row's model. An adjustment applies to the calls of its usage time, but does
not extend the days that the report covers. Cache storage is measured in hours, which no call reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from gateway.bills.statements import cloud_meters
from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import (
    DAY_S,
    BillPeriod,
    CsvTable,
    ReportSource,
    StatementDocument,
    cover_row,
)
from gateway.bills.statements.values import (
    Damaged,
    Row,
    epoch_seconds,
    nested_object,
    object_list,
    read_number_field,
    read_text_field,
    require_value,
)
from spool.ledger.periods import next_beginning
from spool.statements import CORRECTION, RowAmounts

_VERTEX, _VERTEX_ID = "vertex ai", "C7E2-9256-1C43"
_GEMINI = ("gemini api", "generative language")
_COST_TYPES = {"tax": "tax", "rounding_error": "rounding"}
_ADJUSTMENT = "adjustment"
_PACIFIC = ZoneInfo("America/Los_Angeles")
_LONG = 200_000  # input tokens above which Google bills a call under the SKU of long inputs
_NO_TOKENS = frozenset(
    {
        "storage",
        "throughput",
        "training",
        "hosting",
        "rerank",
        "guardrails",
        "other",
        "images",
        "seconds",
        "pages",
        "characters",
        "web_search",
        "file_search",
    }
)
# Credit types that lower a price. All other types are credits: free tiers, promotions, subscription benefits.
_DISCOUNTS = frozenset(
    {
        "DISCOUNT",
        "SUSTAINED_USAGE_DISCOUNT",
        "COMMITTED_USAGE_DISCOUNT",
        "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE",
        "RESELLER_MARGIN",
        "FEE_UTILIZATION_OFFSET",
    }
)
_MODEL = re.compile(
    r"^(.*?)(?: GA)?(?: (?:Global|Regional|Thinking|Text|Image|Audio|Video|Input|Output|Caching|Batch|Flex|Priority"
    r"|Long|Predictions)\b.*)?$"
)


def _document_rows(document: StatementDocument) -> Iterator[Row]:
    yield from document.pages()


def _is_google_document(document: StatementDocument) -> bool:
    return any("sku" in row and "usage_start_time" in row for row in _document_rows(document))


def _read_document(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    for row_number, row in enumerate(_document_rows(document), start=1):
        with sum_collector.collect_row(f"row {row_number}", row):
            _add_row(row, sum_collector)


def _read_table(table: CsvTable, sum_collector: ReportSumCollector) -> None:
    for line, row in table.rows:
        with sum_collector.collect_row(f"line {line}", row):
            _add_row(_nest_columns(row), sum_collector)


def _nest_columns(row: Row) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in row.items():
        head, separator, rest = name.partition(".")
        if separator and "." not in rest:
            nested.setdefault(head, {})[rest] = value
        else:
            nested[name] = value
    if isinstance(nested.get("credits"), dict):  # a query that selects `credits.amount` returns one sum
        nested["credits"] = [{"amount": nested["credits"].get("amount")}]
    elif isinstance(nested.get("credits"), str):
        raise Damaged("credits is not a list; export the sum of the credits as credits.amount")
    return nested


def _add_row(row: Row, sum_collector: ReportSumCollector) -> None:
    start = epoch_seconds(row, "usage_start_time")
    end = epoch_seconds(row, "usage_end_time")
    cost_type = read_text_field(row, "cost_type") or "regular"
    period = _bill_period(row)
    is_covering = period is not None or cost_type != _ADJUSTMENT
    bill = cover_row(sum_collector, period, start, end) if is_covering else ""
    account = read_text_field(row, "billing_account_id")
    if account is not None:
        sum_collector.accounts.add(account)
    service = nested_object(row, "service")
    sku = read_text_field(nested_object(row, "sku"), "description") or ""
    name = (read_text_field(service, "description") or "").lower()
    is_gemini = any(keyword in name for keyword in _GEMINI)
    if not (is_gemini or _VERTEX in name or read_text_field(service, "id") == _VERTEX_ID):
        return
    sku_words = cloud_meters.split_words(sku)
    tier = cloud_meters.find_tier(sku_words)
    bucket = CellFields(
        provider="gcp.gemini" if is_gemini else "gcp.vertex_ai",
        start=start,
        end=end,
        account=read_text_field(nested_object(row, "project"), "id"),
        model=parse_model(sku) if cost_type in ("regular", _ADJUSTMENT) else None,
        tier=tier,
        region="global"
        if "global" in sku_words
        else read_text_field(nested_object(row, "location"), "region"),
        batch=tier == "batch",
        context=_LONG if "long" in sku_words else None,
        bill=bill,
    )
    cost = require_value(read_number_field(row, "cost"), "cost")
    currency = read_text_field(row, "currency")
    for credit in object_list(row.get("credits"), "credits"):
        is_discount = read_text_field(credit, "type") in _DISCOUNTS
        sum_collector.add_money(
            bucket, "discount" if is_discount else "credit", read_number_field(credit, "amount"), currency
        )
    paid = RowAmounts(cost, read_number_field(row, "cost_at_list"))
    usage = nested_object(row, "usage")
    kind = _line_kind(sku_words, read_text_field(usage, "unit"))
    if cost_type == _ADJUSTMENT:
        sum_collector.add_amounts(replace(bucket, line_type=CORRECTION), kind, paid, currency)
        return
    if cost_type != "regular":
        sum_collector.add_money(bucket, _COST_TYPES.get(cost_type, "other"), cost, currency)
        return
    if kind not in _NO_TOKENS:
        sum_collector.add_tokens(bucket, kind, read_number_field(usage, "amount"))
    sum_collector.add_amounts(bucket, kind, paid, currency)


def _bill_period(row: Row) -> BillPeriod | None:
    """Return the month of the invoice, which Google bills in Pacific time, or None if the row states none."""
    month = read_text_field(nested_object(row, "invoice"), "month")
    if month is None:
        return None
    try:
        first = datetime.strptime(month, "%Y%m").replace(tzinfo=_PACIFIC)
    except ValueError as error:
        raise Damaged("invoice.month is not a month such as 202609") from error
    following = next_beginning(first, "monthly")
    return BillPeriod(int(first.timestamp()), int(following.timestamp()), f"{first:%Y-%m}")


def _line_kind(sku_words: list[str], unit: str | None) -> str:
    """
    Return a line's kind. Tokens are recognized by the SKU, because their unit is `count` or `requests`. Hours
    and bytes are never tokens.
    """
    known = set(sku_words)
    if "storage" in known:
        return "storage"
    if known & {"throughput", "tuning"} or unit in ("mo", "month", "seconds", "hour", "byte-seconds"):
        return "throughput" if "throughput" in known else cloud_meters.service_kind(sku_words) or "other"
    if "thinking" in known and "output" in known:
        return "reasoning"
    kind = cloud_meters.token_kind([word for word in sku_words if word != "text"])
    if kind is None and "caching" in known:
        return "cache_read"
    return kind or cloud_meters.non_token_kind(unit or "", sku_words) or "other"


def parse_model(sku: str) -> str | None:
    match = _MODEL.match(sku)
    return (match[1].strip().lower().replace(" ", "-") if match else "") or None


GOOGLE_BILLING = ReportSource(
    name="google_billing",
    title="Google Cloud billing export",
    settle_s=3 * DAY_S,
    in_parts=True,
    is_document=_is_google_document,
    read_document=_read_document,
    is_table=lambda table: table.has_columns("sku.description", "usage_start_time", "cost"),
    read_table=_read_table,
)
