"""
Unit-cost streams are created, summed into, replaced, deleted from, read and dropped.

The answers are the service's: 200 (201 when records of an allocation stream were deleted), 400 for the whole request
when one record in it is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from aiohttp import web

from gateway.authentication.access import Bearer
from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.lists import Filter, List, Sort, StoredRows
from gateway.http.requests import KeyRequest, Result
from gateway.normalise import unit_cost
from spool.identity import Identity, of_request
from spool.listing import SortField
from spool.log.values import Receipt
from spool.record import UnitCostOperation, rfc3339
from spool.streams import ALLOCATION, DELETE, DROP, SUM, Stream, Total

IDEMPOTENCY_KEY = "Idempotency-Key"
PAGE = 1000

RECORDS: List[Total] = List(
    root="records",
    show=lambda total: shown(total),
    identity=Sort(field=SortField("key")),
    sorts={
        "timestamp": Sort(field=SortField("start_time")),
        "element_name": Sort(field=SortField("element_name")),
    },
    default_sort=("timestamp", "asc"),
    filters={"element_name": Filter(field="element_name")},
    default_limit=PAGE,
    max_limit=PAGE,
)


async def sum_records(request: KeyRequest[bytes]) -> web.Response:
    """Add records to their streams: to the stream of the path, or without one to those that the records name."""
    return await _operate(request, SUM)


async def manage_records(request: KeyRequest[bytes]) -> web.Response:
    """Add, replace or delete records of a stream, as the path says."""
    return await _operate(request, request.word("operation"))


async def create_stream(request: KeyRequest[bytes]) -> web.Response:
    """201 for a new stream, 200 for one that is there already."""
    book = request.services.storage.book
    name, type = unit_cost.stream_name(request.word("stream")), request.word("type")
    is_new = book.find(name) is None
    operation, stream = unit_cost.created(request.body, type=type, stream=name, find=book.find)
    receipt = await _keep(request, [operation], [None], {name: stream})
    identity = {"name": name, "type": stream.type}
    shown_stream = {**identity, "granularity": stream.granularity, "dimensions": stream.keys}
    return answers.json_response({"stream": shown_stream}, status=201 if is_new else 200, receipt=receipt)


async def read_records(request: KeyRequest[None]) -> Result:
    """The page of a stream's records, each with its present total."""
    name = unit_cost.stream_name(request.word("stream"))
    stream = _known(request, name)
    if stream.type != request.http.match_info.get("type", stream.type):
        raise _no_stream()
    return await request.list(RECORDS, StoredRows(partial(request.services.storage.streams.page, name)))


async def delete_stream(request: KeyRequest[bytes]) -> web.Response:
    """Delete a stream; one that holds records wants `{"force": true}`."""
    is_forced = unit_cost.forced(request.body)
    name = unit_cost.stream_name(request.word("stream"))
    stream = _known(request, name)
    if not is_forced and await request.services.storage.streams.totals(name):
        message = 'The stream holds records; send {"force": true} to delete it with them.'
        raise Refusal(409, "stream_not_empty", message)
    dropped = UnitCostOperation(id=b"", stream=name, stream_type=stream.type, operation=DROP)
    receipt = await _keep(request, [dropped], [None], {})
    request.services.storage.book.forget(name)
    return answers.json_response({"stream": {"name": name, "deleted": True}}, receipt=receipt)


def shown(total: Total) -> Mapping[str, object]:
    """A record as it would be sent, under today's names."""
    record: dict[str, object] = {"timestamp": rfc3339(total.start_time), "granularity": total.granularity}
    if total.element_name is not None:
        record |= {"element_name": total.element_name, "filter": dict(total.dimensions)}
    else:
        record["associated_cost"] = {name: values[0] for name, values in total.dimensions.items()}
    return record | {"value": total.value}


async def _operate(request: KeyRequest[bytes], operation: str) -> web.Response:
    words = request.http.match_info
    type, stream = words.get("type"), words.get("stream")
    operations = unit_cost.read(
        request.body,
        type=type,
        stream=None if stream is None else unit_cost.stream_name(stream),
        operation=operation,
        find=request.services.storage.book.find,
        now=request.receivers.clock.now(),
    )
    receipt = await _keep(request, operations.records, operations.ids, operations.streams)
    status = 201 if operation == DELETE and type == ALLOCATION else 200
    return answers.json_response({"accepted": len(operations.records)}, status=status, receipt=receipt)


async def _keep(
    request: KeyRequest[bytes],
    records: Sequence[UnitCostOperation],
    ids: Sequence[bytes | None],
    after: Mapping[str, Stream],
) -> Receipt:
    """On disk when it returns. What the streams are from now on is claimed before anybody waits."""
    admission, name = request.services.stream_admission, request.bearer.name
    created = await admission.check(name, records, after)
    key = request.http.headers.get(IDEMPOTENCY_KEY)
    identities = []
    for place, (record, given) in enumerate(zip(records, ids, strict=True)):
        identity = _identity(given if request.bearer.may_chain else None, request.bearer, request.http.path, key, place)
        record.id = identity.id
        identities.append(identity)
    with ExitStack() as claims:
        for stream in after.values():
            claims.enter_context(request.services.storage.book.claim(stream))
        receipt = await request.services.deposits.operations(records, identities)
    await admission.created(created, name)
    return receipt


def _identity(given: bytes | None, bearer: Bearer, path: str, key: str | None, place: int) -> Identity:
    if given is not None:
        return Identity(given)
    if key:
        return Identity(of_request(bearer.name, path, key, place))
    return Identity(os.urandom(16), certain=False)


def _known(request: KeyRequest[Any], name: str) -> Stream:
    stream = request.services.storage.book.find(name)
    if stream is None:
        raise _no_stream()
    return stream


def _no_stream() -> Refusal:
    return Refusal(404, "no_such_stream", "There is no stream of this name and type.")
