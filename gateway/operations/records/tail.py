"""The operator API handler that streams records as they are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiohttp import web

from gateway.core.schemas import TEXT
from gateway.http.event_streams import EVENT_STREAM, NextEvents, encode_event
from gateway.http.lists import row_filter
from gateway.operations.records.changes import send_event_stream
from gateway.operations.records.newest import (
    RECORDS,
    call_visibility_test,
    record_list_with_current_filters,
    to_kept_record,
)
from gateway.operations.records.published import KeptRecord, describe_stored, kept_records
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from gateway.operations.services import OperatorServices
from spool.ledger.own_records import STEP, SliceRecord, slice_records_between
from spool.record import AI_TELEMETRY, TOPICS
from spool.registry.permission_sets import VIEW_RECORDS
from spool.viewed_people import save_viewings

MOST_AT_ONCE = 500  # maximum number of records per topic in one event
RecordTest = Callable[[KeptRecord], bool]


@operator_call(
    "GET",
    "/tail",
    VIEW_RECORDS,
    "Stream records as they are committed",
    repeated=tuple(RECORDS.filters),
    gives={EVENT_STREAM: TEXT},
    shows=SLICED,
)
async def tail(request: OperatorRequest[OperatorServices, None]) -> web.StreamResponse:
    """
    Stream matching records as they are committed. `skipped` counts records that were left out because they
    arrived faster than this handler reads.

    People with restricted access get their own calls after these are closed. If too many arrive at once,
    their `skipped` is null instead of a number.
    """
    listed = await record_list_with_current_filters(request)
    passes = row_filter(listed, list(request.http.query.items()), request.shared.people)
    await save_viewings()
    return await send_event_stream(
        request,
        _own_calls_tail_reader(request, passes)
        if request.has_limited_data_access
        else _records_tail_reader(request, passes),
    )


def _records_tail_reader(
    request: OperatorRequest[OperatorServices, None], is_wanted: RecordTest
) -> NextEvents:
    log = request.services.spool.log
    reached = {topic: log.next_number(topic) for topic in TOPICS}

    async def next_tail_events() -> Iterable[bytes]:
        events: list[bytes] = []
        for topic, first in reached.items():
            below = log.next_number(topic)
            begin = max(first, below - MOST_AT_ONCE)
            if begin > first:
                events.append(encode_event("skipped", {"topic": topic, "records": begin - first}))
            if below > begin:
                entries = await log.read(topic, begin, below - 1, includes_open_records=True)
                events += [
                    encode_event("record", describe_stored(record))
                    for record in kept_records(log, entries)
                    if is_wanted(record)
                ]
            reached[topic] = below
        return events

    return next_tail_events


def _own_calls_tail_reader(
    request: OperatorRequest[OperatorServices, None], is_wanted: RecordTest
) -> NextEvents:
    """Stream the person's own closed calls. Calls of other people never displace one of them."""
    log = request.services.spool.log
    is_own = call_visibility_test(request)
    reached = log.lowest_open_number(AI_TELEMETRY)

    async def next_own_tail_events() -> Iterable[bytes]:
        nonlocal reached
        below = log.lowest_open_number(AI_TELEMETRY)
        own_records: list[SliceRecord] = []
        for begin in range(reached, below, STEP):
            own_records = [
                *own_records,
                *reversed(await slice_records_between(log, begin, min(begin + STEP, below), is_own)),
            ][-MOST_AT_ONCE - 1 :]
            await asyncio.sleep(0)
        reached = max(reached, below)
        skipped = (
            [encode_event("skipped", {"topic": AI_TELEMETRY, "records": None})]
            if len(own_records) > MOST_AT_ONCE
            else []
        )
        records = map(to_kept_record, own_records[-MOST_AT_ONCE:])
        return skipped + [
            encode_event("record", describe_stored(record)) for record in records if is_wanted(record)
        ]

    return next_own_tail_events
