"""
Records older than the log, read from a data lake. If one is configured, lists of days and time ranges continue
there.

If the data lake is unreachable, a list still returns what the log has, and states how far it searched. For people
with restricted access, the searched time is fixed, so the request fails instead.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from gateway.operations.holders.operators import SpoolServices
from gateway.operations.records.published import KeptRecord
from gateway.operations.requests.requests import OperatorRequest
from spool.deliveries.protocols import PastDates, PastRecord, PastRecords
from spool.errors import SpoolUnavailable
from spool.ledger.own_records import first_number_after
from spool.record import AI_TELEMETRY
from spool.turns.fair_turns import pause_for_others

_log = logging.getLogger(__name__)


def dates_in_range(start: float, end: float) -> PastDates:
    """Return the days that a time range touches. The range excludes `end`."""
    last = max(start, end - 1)
    first_day, last_day = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in (start, last))
    return PastDates(first_day, last_day)


def days_between(dates: Collection[str]) -> PastDates:
    """Return all days from the first to the last of the given days and months."""
    return PastDates(min(f"{date}-01"[:10] for date in dates), max(f"{date}-31"[:10] for date in dates))


async def past_records(
    request: OperatorRequest[SpoolServices, Any],
    dates: PastDates,
    *,
    max_records: int | None = None,
    oldest_first: bool = False,
) -> AsyncGenerator[list[KeptRecord], None]:
    """
    Yield records of days that are older than the log. Yields nothing if the log has all records, or if the
    person may not see data from the lake.
    """
    past, floor = await _lake_reader_and_first_log_number(request, request.services)
    if past is None or (max_records is not None and max_records <= 0):
        return
    try:
        async with aclosing(
            past.read_records(dates, below_number=floor, max_records=max_records, oldest_first=oldest_first)
        ) as parts:
            async for batch in parts:
                yield [_past_record_to_kept_record(request, stored) for stored in batch]
                await pause_for_others()
    except SpoolUnavailable as error:
        _raise_for_limited_person_or_log(request, error)


async def past_record(
    request: OperatorRequest[Any, Any], spool: SpoolServices, id: bytes, dates: PastDates
) -> KeptRecord | None:
    """Return the record with an id from days that are older than the log, or None."""
    past, floor = await _lake_reader_and_first_log_number(request, spool)
    try:
        stored = None if past is None else await past.find_record(id, dates, below_number=floor)
    except SpoolUnavailable as error:
        _raise_for_limited_person_or_log(request, error)
        stored = None
    return None if stored is None else _past_record_to_kept_record(request, stored)


async def _lake_reader_and_first_log_number(
    request: OperatorRequest[Any, Any], spool: SpoolServices
) -> tuple[PastRecords | None, int]:
    """
    Return the reader of older records, and the first record number of the log. The reader is None if the log
    has all records, or if the lake does not state whose calls they are.
    """
    past = spool.past()
    if past is None or (
        request.has_limited_data_access and past.has_dimension_missing_in_lake(request.ledger.slice_sources)
    ):
        return None, 0
    floor = await first_number_after(spool.log, AI_TELEMETRY, 0.0, spool.log.next_number(AI_TELEMETRY))
    return (past if floor > 1 else None), floor


def _past_record_to_kept_record(request: OperatorRequest[Any, Any], stored: PastRecord) -> KeptRecord:
    number, at, record = stored
    return KeptRecord(
        AI_TELEMETRY, number, at, False, record, is_number_shown=not request.has_limited_data_access
    )


def _raise_for_limited_person_or_log(request: OperatorRequest[Any, Any], error: SpoolUnavailable) -> None:
    if request.has_limited_data_access:
        raise error
    _log.warning("records older than the log could not be read: %s", error, extra={"action": "lake_not_read"})
