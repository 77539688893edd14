"""The call of the operator API on one record on file: what is kept of it, and the reason of each of its figures."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from gateway.http.requests import Result
from gateway.operator.body import moment
from gateway.operator.dead_letters import shown_dead
from gateway.operator.deliveries import shown_delivery
from gateway.operator.requests import OperatorRequest
from gateway.rate_cards.card import CardUnreadable
from spool.deliveries.values import UnsettledDelivery
from spool.errors import Invalid, NotThere
from spool.log.protocols import ReadableLog
from spool.record import TOPICS, Inference, Record, UsageMetric, as_json

STEP = 4096  # records that are read between two turns of the event loop
NOT_STORED = (
    "the reports it was made of: their payloads, the attribute behind each figure, and which of them came later",
    "the identity under which its repeats are recognised, and the repeats themselves: they are counted",
    "the rule by which it is a shadow",
)

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class _Found:
    topic: str
    number: int
    committed_at: float
    record: Record


async def show_record(request: OperatorRequest[None]) -> Result:
    """Refusal 404 for a record that is not kept any more, or not closed yet."""
    services = request.services
    word = request.word("id").lower()
    if not _ID.fullmatch(word):
        raise Invalid("a record's id is 32 hexadecimal digits")
    found = await _find(services.log, bytes.fromhex(word))
    if found is None:
        raise NotThere("no closed record with this id is kept: it may be older than spool.retention, or still open")
    held = [one for one in await services.deliveries.unsettled() if _holds(one, found)]
    dead = [one for one in await services.deliveries.dead() if (one.topic, one.number) == (found.topic, found.number)]
    return {
        "record": as_json(found.record),
        "topic": found.topic,
        "number": found.number,
        "committed_at": moment(found.committed_at),
        "why": await _why(request, found.record),
        "deliveries": [shown_delivery(one) for one in held],
        "dead": [shown_dead(one) for one in dead],
        "not_stored": list(NOT_STORED),
    }


async def _find(log: ReadableLog, id: bytes) -> _Found | None:
    """The newest closed record with an id. Ids have no index to numbers, so every kept record is looked at."""
    for topic in TOPICS:
        last = log.closed_below(topic) - 1
        while last > 0:
            first = max(1, last - STEP + 1)
            for entry in reversed(await log.read(topic, first, last)):
                for number, record in enumerate(entry.records, entry.first):
                    if record is not None and record.id == id:
                        return _Found(topic, number, entry.committed_at, record)
            last = first - 1
            await asyncio.sleep(0)
    return None


def _holds(delivery: UnsettledDelivery, found: _Found) -> bool:
    of_topic = delivery.route.rpartition("/")[2] == found.topic
    return of_topic and delivery.first <= found.number <= delivery.last


async def _why(request: OperatorRequest[None], record: Record) -> dict[str, str]:
    """The rule behind what is kept, as far as the record itself tells it."""
    why: dict[str, str] = {}
    if isinstance(record, Inference):
        why |= await _why_cost(request, record)
        if record.status == "cached":
            why["status"] = "answered from a cache: counted as a call and as money saved, never as spend"
    elif isinstance(record, UsageMetric):
        why["value"] = f"what the counter {record.name} grew by in this report"
    if getattr(record, "shadow", False):
        why["shadow"] = "kept and shown, never summed or sent upstream: its reporter also tells these calls, or its "
        why["shadow"] += f"source is not counted ([sources.{getattr(record, 'source', 'NAME')}] count)"
    return why


async def _why_cost(request: OperatorRequest[None], record: Inference) -> dict[str, str]:
    why: dict[str, Any] = {}
    if record.cost is not None:
        why["cost"] = f"reported by {record.source}"
    if record.estimated_cost is not None:
        why["estimated_cost"] = f"worked out from its tokens with the price book {record.price_book}"
    elif record.input_tokens is None and record.output_tokens is None:
        why["estimated_cost"] = "unknown: it has no tokens"
    else:
        why["estimated_cost"] = "unknown: no price for its provider and model, or a count is missing"
    try:
        book = await asyncio.to_thread(request.services.prices)
    except CardUnreadable as error:
        raise Invalid(f"prices.file: {error}") from error
    now = book.estimate(record)
    if now != record.estimated_cost:
        why["estimated_cost"] += f"; the book of today makes it {now or 'unknown'} (tollhouse ledger reprice)"
    counts = {"reported": "the reported cost counts", "estimated": "the estimate counts", "none": "no cost is known"}
    why["cost_source"] = counts.get(record.cost_source, record.cost_source)
    return why
