"""
Cursor's usage events: pages of `/teams/filtered-usage-events` of its Admin API, one event per request.

The charge of an event includes Cursor's token fee, which becomes a line of its own. Usage that is included in
a plan or not charged gets its value and an equal discount. User e-mail addresses are never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import DAY_S, ReportSource, StatementDocument
from gateway.bills.statements.values import (
    Damaged,
    Row,
    epoch_seconds,
    nested_object,
    object_list,
    read_boolean_field,
    read_count_field,
    read_number_field,
    read_text_field,
)
from spool.providers import CURSOR

EVENTS = "usageEvents"
TOKEN_FEE, BY_REQUEST, DISCOUNT = "token_fee", "per_request", "discount"
_KINDS = {
    "input": "inputTokens",
    "cache_read": "cacheReadTokens",
    "cache_write": "cacheWriteTokens",
    "output": "outputTokens",
}
_NOTHING = Decimal(0)


def _is_cursor_document(document: StatementDocument) -> bool:
    return any(
        isinstance(event, dict) and "timestamp" in event and "model" in event and "kind" in event
        for page in document.pages()
        for event in page.get(EVENTS) or ()
    )


def _add_document_events(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    for number_, page in enumerate(document.pages(), start=1):
        for event_number, event in enumerate(object_list(page.get(EVENTS), EVENTS), start=1):
            with sum_collector.collect_row(
                f"page {number_}, event {event_number}", event, is_identical_row_repeat=True
            ):
                _add_event(event, sum_collector)


def _add_event(event: Row, sum_collector: ReportSumCollector) -> None:
    start = _event_day(event)
    sum_collector.extend_span(start, start + DAY_S)
    bucket = CellFields(
        provider=CURSOR, start=start, end=start + DAY_S, model=read_text_field(event, "model")
    )
    usage = nested_object(event, "tokenUsage")
    for kind, name in _KINDS.items():
        sum_collector.add_tokens(bucket, kind, read_count_field(usage, name))
    sum_collector.add_requests(bucket, Decimal(1))
    for kind, cents in _cents_by_kind(event, usage).items():
        sum_collector.add_money(bucket, kind, cents.scaleb(-2))


def _cents_by_kind(event: Row, usage: Row) -> Mapping[str, Decimal]:
    # the charge of an event is the sum of these kinds
    value = read_number_field(usage, "totalCents")
    charged = read_number_field(event, "chargedCents")
    fee = read_number_field(event, "cursorTokenFee") or _NOTHING
    if not _is_charged(event):
        return {"cost": value or _NOTHING, DISCOUNT: -(value or _NOTHING)}
    if charged is None:  # events before 2026 have no total charge
        charged = (value or _NOTHING) + fee
    kind = "cost" if usage else BY_REQUEST
    paid = charged - fee
    if value is None or not read_number_field(usage, "discountPercentOff"):
        return {kind: paid, TOKEN_FEE: fee}
    return {kind: value, DISCOUNT: paid - value, TOKEN_FEE: fee}


def _is_charged(event: Row) -> bool:
    """Return whether the event was charged. Older events state this only by their kind."""
    is_chargeable = read_boolean_field(event, "isChargeable")
    if is_chargeable is not None:
        return is_chargeable
    kind = (read_text_field(event, "kind") or "").lower().replace("_", " ")
    return "included" not in kind and "not charged" not in kind


def _event_day(event: Row) -> int:
    milliseconds = read_number_field(event, "timestamp")
    if milliseconds is None:
        raise Damaged("timestamp is missing")
    at = epoch_seconds({"timestamp": int(milliseconds / 1000)}, "timestamp")
    return at - at % DAY_S


CURSOR_USAGE_EVENTS = ReportSource(
    name="cursor_usage_events",
    title="Cursor usage events",
    settle_s=2 * DAY_S,
    in_parts=True,
    is_document=_is_cursor_document,
    read_document=_add_document_events,
)
