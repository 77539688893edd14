"""
Records that the log keeps no more, of a lake: where one is configured, lists of days and of spans go on there.

A lake that does not answer is no reason to refuse what the log has: a list says how far was looked. For who may see
some calls alone that is a fixed time, so there it is.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from gateway.api.kept.records import KeptRecord
from gateway.http.holders.spool import SpoolServices
from gateway.operator.requests import OperatorRequest
from spool.deliveries.past_records import PastDates
from spool.errors import SpoolUnavailable
from spool.ledger.own_records import first_after
from spool.record import AI_TELEMETRY
from spool.turns.fair_turns import pause

_log = logging.getLogger(__name__)


def dates_of(start: float, end: float) -> PastDates:
    """The days that a span touches; `end` is not part of it."""
    last = max(start, end - 1)
    first_day, last_day = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in (start, last))
    return PastDates(first_day, last_day)


def days_of(asked: Collection[str]) -> PastDates:
    """The days from the first to the last of some days and months."""
    return PastDates(min(f"{each}-01"[:10] for each in asked), max(f"{each}-31"[:10] for each in asked))


async def past_records(
    request: OperatorRequest[SpoolServices, Any],
    dates: PastDates,
    *,
    most: int | None = None,
    oldest_first: bool = False,
) -> AsyncGenerator[list[KeptRecord], None]:
    """Records of days that are older than the log; none if it has all, or if a lake may not show them."""
    log, past = request.services.log, request.services.past()
    if past is None or (most is not None and most <= 0):
        return
    if request.is_limited and past.lacks(request.ledger.sources):
        return  # whose calls they are is not known there
    floor = await first_after(log, AI_TELEMETRY, 0.0, log.next_number(AI_TELEMETRY))
    if floor <= 1:
        return
    try:
        async with aclosing(past.read(dates, below=floor, most=most, oldest_first=oldest_first)) as parts:
            async for found in parts:
                yield [
                    KeptRecord(
                        AI_TELEMETRY, number, at, False, record, is_number_shown=not request.is_limited
                    )
                    for number, at, record in found
                ]
                await pause()
    except SpoolUnavailable as error:
        if request.is_limited:
            raise
        _log.warning("past records are not listed: %s", error, extra={"action": "lake_not_read"})
