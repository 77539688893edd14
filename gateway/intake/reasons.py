"""Why a record says what it says, as far as the record itself tells it: its identity, cost, status and shadow."""

from __future__ import annotations

from typing import Any

from gateway.intake.price_lines import itemise, problem
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import sums_up, tells_the_calls_of
from spool import identity
from spool.record import TOKEN_UNIT, Inference, Record, UsageMetric

_COUNTS = {
    "reported": "the reported cost counts",
    "estimated": "the estimate counts",
    "none": "no cost is known",
}


def reasons(record: Record, book: PriceBook) -> dict[str, str]:
    """Field -> rule; `book` is today's."""
    if isinstance(record, Inference):
        why = {"id": identity.rule_of(record), **_of_cost(record, book)}
        if record.status == "cached":
            why["status"] = "answered from a cache: counted as a call and as money saved, never as spend"
        if record.shadow:
            why["shadow"] = f"kept and shown, never summed or sent upstream: {_of_sum(record)}"
        return why
    if isinstance(record, UsageMetric):
        why = {"value": _of_value(record)}
        if record.shadow:
            why["shadow"] = f"kept and shown, never summed or sent upstream: {_of_reporter(record)}"
        return why
    return {}


def price_lines(record: Record, book: PriceBook) -> list[dict[str, Any]]:
    """
    List the lines of an estimate: the unit, how many, the price of so many (`per`) of them, dollars.

    Empty where the book makes another sum than the record has: it was priced by another one.
    """
    if not isinstance(record, Inference) or book.estimate(record) != record.estimated_cost:
        return []
    return [line._asdict() for line in itemise(book, record) or ()]


def _of_cost(record: Inference, book: PriceBook) -> dict[str, str]:
    why = {}
    if record.cost is not None:
        why["cost"] = f"reported by {record.source}"
    if record.charges:
        why["charges"] = (
            f"reported by {record.source} in {', '.join(record.charges)}, and converted when sums are asked"
        )
    if record.estimated_cost is not None:
        counted = "its tokens" if not record.meters else "its tokens and meters"
        why["estimated_cost"] = f"calculated from {counted} with the list prices {record.price_book}"
    elif (words := problem(book, record)) is not None:
        why["estimated_cost"] = words
    elif record.input_tokens is None and record.output_tokens is None:
        why["estimated_cost"] = "unknown: it has no tokens"
    else:
        why["estimated_cost"] = "unknown: no price for its provider and model, or a count is missing"
    now = book.estimate(record)
    if now != record.estimated_cost:
        today = f"the list prices of today make it {now or 'unknown'}"
        why["estimated_cost"] += f"; {today} (tollhouse ledger reprice)"
    why["cost_source"] = _COUNTS.get(record.cost_source, record.cost_source)
    return why


def _of_value(metric: UsageMetric) -> str:
    if str(metric.value).startswith("-"):
        return f"takes back what an earlier record of {metric.name} added: a call of its reporter came later"
    return f"what the counter {metric.name} grew by in this report"


def _of_sum(call: Inference) -> str:
    if call.counted_by is not None:
        return f"a further report is of the same call as this one and as record {call.counted_by.hex()}, which counts"
    uncounted = f"[sources.{call.source}] count = false"
    if not sums_up(call):
        return uncounted
    return f"it sums up a run whose calls or counters {tells_the_calls_of(call)} tells, or {uncounted}"


def _of_reporter(metric: UsageMetric) -> str:
    """The rule of `shadows`, in words."""
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
        name += ", which names neither session nor user"
    return (
        f"its reporter ({name}) also tells calls with the same {counted}, or its source is not counted"
        f" ([sources.{metric.source}] count)"
    )
