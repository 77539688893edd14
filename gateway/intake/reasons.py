"""
Explanations of a record from its own fields: its dedup key, its cost, its status, and the reason if it
is a duplicate.
"""

from __future__ import annotations

from typing import Any

from gateway.intake.price_lines import itemise_estimate, unpriced_reason_of_record
from gateway.intake.prices import PriceBook, missing_prices_in_book_name
from gateway.intake.shadows import is_run_summary, source_of_calls_in_summary
from spool import identity
from spool.record import TOKEN_UNIT, Correction, Inference, Record, UsageMetric

_COUNTS = {
    "reported": "the reported cost counts",
    "estimated": "the estimate counts",
    "none": "no cost is known",
}


def explanations_by_field(record: Record, price_book: PriceBook) -> dict[str, str]:
    """Return the reasons for a record's numbers. `price_book` is today's price list."""
    if isinstance(record, Inference):
        why = {"id": identity.describe_dedup_rule(record), **_cost_reasons(record, price_book)}
        if record.status == "cached":
            why["status"] = "served from a cache: counted as a call and as savings, never as cost"
        if record.shadow:
            why["shadow"] = (
                f"stored and shown, but never summed or sent upstream: {_uncounted_reason(record)}"
            )
        return why
    if isinstance(record, UsageMetric):
        why = {"value": _counter_value_explanation(record)}
        if record.shadow:
            why["shadow"] = (
                f"stored and shown, but never summed or sent upstream: {_reason_counter_is_not_counted(record)}"
            )
        return why
    if isinstance(record, Correction) and record.after.counted_by is not None:
        return {"reason": not_counted_reason(record.after.counted_by)}
    return {}


def not_counted_reason(counted_by: bytes) -> str:
    return (
        f"a later report showed that this record and record {counted_by.hex()} are the same call; only the other "
        "record counts"
    )


def price_line_fields(record: Record, price_book: PriceBook) -> list[dict[str, Any]]:
    """
    Return the price lines of a record, none if it was estimated with prices that differ from those in `price_book`.
    """
    if not isinstance(record, Inference) or price_book.estimate_record(record) != record.estimated_cost:
        return []
    return [line._asdict() for line in itemise_estimate(price_book, record) or ()]


def _cost_reasons(record: Inference, price_book: PriceBook) -> dict[str, str]:
    why = {}
    if record.cost is not None:
        why["cost"] = f"reported by {record.source}"
    if record.charges:
        why["charges"] = (
            f"reported by {record.source} in {', '.join(record.charges)}, and converted when totals "
            "are computed"
        )
    if record.estimated_cost is not None:
        counted = "its tokens" if not record.meters else "its tokens and meters"
        why["estimated_cost"] = f"calculated from {counted} with the price list {record.price_book}"
        for name in missing_prices_in_book_name(record.price_book):
            why["estimated_cost"] += (
                f"; the list has no {name} price for the model, so the standard price applies"
            )
    elif (explanation := unpriced_reason_of_record(price_book, record)) is not None:
        why["estimated_cost"] = explanation
    elif record.input_tokens is None and record.output_tokens is None:
        why["estimated_cost"] = "unknown: the call reports no tokens"
    else:
        why["estimated_cost"] = (
            "unknown: the price list has no price for its provider and model, or the call lacks a count"
        )
    now = price_book.estimate_record(record)
    if now != record.estimated_cost:
        today = f"today's price list gives {now or 'unknown'}"
        why["estimated_cost"] += f"; {today} (tollhouse ledger reprice)"
    why["cost_source"] = _COUNTS.get(record.cost_source, record.cost_source)
    return why


def _counter_value_explanation(metric: UsageMetric) -> str:
    if str(metric.value).startswith("-"):
        return (
            f"reverses what an earlier record of {metric.name} added, because the same program reported "
            "calls later"
        )
    return f"the increase of the counter {metric.name} in this report"


def _uncounted_reason(call: Inference) -> str:
    if call.counted_by is not None:
        return not_counted_reason(call.counted_by)
    uncounted = f"[sources.{call.source}] count = false"
    if not is_run_summary(call):
        return uncounted
    return (
        f"it sums up a run, and {source_of_calls_in_summary(call)} also reports the calls or counters of that "
        f"run, or its source is not counted ({uncounted})"
    )


def _reason_counter_is_not_counted(metric: UsageMetric) -> str:
    counted = "tokens" if metric.unit == TOKEN_UNIT else "cost"
    name = f"source {metric.source}"
    service = metric.tags.get("service")
    if service:
        name += f", service {service}"
    if metric.session:
        name += f", session {metric.session}"
    elif metric.user:
        name += f", user {metric.user}"
    else:
        name += ", without session and user"
    return (
        f"the same program ({name}) also reports calls with the same {counted}, or its source is not "
        f"counted ([sources.{metric.source}] count)"
    )
