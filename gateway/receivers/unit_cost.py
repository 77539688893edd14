"""
`/unit-cost/v1/telemetry/...`: streams are created, summed into, replaced, deleted from, read and dropped.

The answers are the service's: 200 (201 when records of an allocation stream were deleted), 400 for the whole request
when one record in it is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from gateway.authentication.access import Bearer
from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.boundary import Handler, admit, authorization, guarded, read_body
from gateway.http.lists import Filter, List, Sort, StoredRows, envelope
from gateway.intake.deposits import Deposits
from gateway.normalise import unit_cost
from gateway.services import ReceiverServices
from spool.identity import Identity, of_request
from spool.listing import SortField
from spool.log.values import Receipt
from spool.record import UnitCostOperation, rfc3339
from spool.streams import ALLOCATION, DELETE, DROP, SUM, Stream, StreamBook, StreamReader, Total

CREATE_STREAM = "unit-cost_v1:create_telemetry_stream"
DELETE_STREAM = "unit-cost_v1:delete_telemetry_stream"
MANAGE_RECORDS = "unit-cost_v1:manage_telemetry_records"
READ = "unit-cost_v1:read_telemetry"

PREFIX = "/unit-cost/v1/telemetry"
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


@dataclass(frozen=True, kw_only=True)
class Streams:
    """What the unit-cost endpoints need beside the receiver services."""

    deposits: Deposits
    book: StreamBook
    reader: StreamReader
    cursors: bytes


def addresses(services: ReceiverServices, streams: Streams) -> Sequence[tuple[str, Handler]]:
    """Every address with its door; the first that matches takes the request."""
    one = PREFIX + "/{type:allocation|metric}/{stream}"
    return (
        (PREFIX, oldest_form(services, streams)),
        (one, by_type(services, streams)),
        (one + "/{operation:sum|replace|delete}", operations(services, streams)),
        (one + "/records", records(services, streams)),
        (PREFIX + "/{stream}/records", records(services, streams)),
        (PREFIX + "/{stream}", dropping(services, streams)),
    )


def operations(services: ReceiverServices, streams: Streams) -> Handler:
    """`POST .../{allocation or metric}/{stream}/{sum, replace, delete}`"""

    async def take(request: web.Request) -> web.Response:
        return await _operate(request, services, streams, request.match_info["operation"])

    return guarded("unit-cost", take, services)


def oldest_form(services: ReceiverServices, streams: Streams) -> Handler:
    """`POST /unit-cost/v1/telemetry`: a sum in which each record names its stream."""

    async def take(request: web.Request) -> web.Response:
        return await _operate(request, services, streams, SUM)

    return guarded("unit-cost", take, services)


def by_type(services: ReceiverServices, streams: Streams) -> Handler:
    """PUT creates, POST is the older word for sum, GET reads."""

    async def take(request: web.Request) -> web.Response:
        if request.method == "PUT":
            return await _create(request, services, streams)
        if request.method == "POST":
            return await _operate(request, services, streams, SUM)
        return await _list(request, services, streams)

    return guarded("unit-cost", take, services, methods="PUT, POST, GET, HEAD")


def records(services: ReceiverServices, streams: Streams) -> Handler:
    """`GET .../records`: every record of a stream with its present total."""

    async def take(request: web.Request) -> web.Response:
        return await _list(request, services, streams)

    return guarded("unit-cost/records", take, services, methods="GET, HEAD")


def dropping(services: ReceiverServices, streams: Streams) -> Handler:
    """`DELETE /unit-cost/v1/telemetry/{stream}`; a stream that holds records wants `true`."""

    async def take(request: web.Request) -> web.Response:
        bearer = admit(services, request, authorization(request), scope=DELETE_STREAM)
        with services.budget.lease() as lease:
            is_forced = unit_cost.forced(await read_body(services, request, lease, bearer))
        name = unit_cost.stream_name(request.match_info["stream"])
        stream = _known(streams, name)
        if not is_forced and await streams.reader.totals(name):
            message = 'The stream holds records; send {"force": true} to delete it with them.'
            raise Refusal(409, "stream_not_empty", message)
        dropped = UnitCostOperation(id=b"", stream=name, stream_type=stream.type, operation=DROP)
        receipt = await _keep(streams, request, bearer, [dropped], [None], {})
        streams.book.forget(name)
        return answers.json_response({"stream": {"name": name, "deleted": True}}, receipt=receipt)

    return guarded("unit-cost/streams", take, services, methods="DELETE")


def shown(total: Total) -> Mapping[str, object]:
    """A record as it would be sent, under today's names."""
    record: dict[str, object] = {"timestamp": rfc3339(total.start_time), "granularity": total.granularity}
    if total.element_name is not None:
        record |= {"element_name": total.element_name, "filter": dict(total.dimensions)}
    else:
        record["associated_cost"] = {name: values[0] for name, values in total.dimensions.items()}
    return record | {"value": total.value}


async def _operate(request: web.Request, services: ReceiverServices, streams: Streams, operation: str) -> web.Response:
    bearer = admit(services, request, authorization(request), scope=MANAGE_RECORDS)
    type, stream = request.match_info.get("type"), request.match_info.get("stream")
    with services.budget.lease() as lease:
        body = await read_body(services, request, lease, bearer)
        said = unit_cost.read(
            body,
            type=type,
            stream=None if stream is None else unit_cost.stream_name(stream),
            operation=operation,
            find=streams.book.find,
            now=services.clock.now(),
        )
        receipt = await _keep(streams, request, bearer, said.records, said.ids, said.streams)
    status = 201 if operation == DELETE and type == ALLOCATION else 200
    return answers.json_response({"accepted": len(said.records)}, status=status, receipt=receipt)


async def _create(request: web.Request, services: ReceiverServices, streams: Streams) -> web.Response:
    bearer = admit(services, request, authorization(request), scope=CREATE_STREAM)
    name, type = unit_cost.stream_name(request.match_info["stream"]), request.match_info["type"]
    with services.budget.lease() as lease:
        body = await read_body(services, request, lease, bearer)
        is_new = streams.book.find(name) is None
        operation, stream = unit_cost.created(body, type=type, stream=name, find=streams.book.find)
        receipt = await _keep(streams, request, bearer, [operation], [None], {name: stream})
    said = {"name": name, "type": stream.type, "granularity": stream.granularity, "dimensions": stream.keys}
    return answers.json_response({"stream": said}, status=201 if is_new else 200, receipt=receipt)


async def _list(request: web.Request, services: ReceiverServices, streams: Streams) -> web.Response:
    admit(services, request, authorization(request), scope=READ)
    name = unit_cost.stream_name(request.match_info["stream"])
    stream = _known(streams, name)
    if stream.type != request.match_info.get("type", stream.type):
        raise _no_stream()
    rows = StoredRows(partial(streams.reader.page, name))
    query = list(request.query.items())
    return answers.json_response(await envelope(RECORDS, rows, query, secret=streams.cursors))


async def _keep(
    streams: Streams,
    request: web.Request,
    bearer: Bearer,
    records: Sequence[UnitCostOperation],
    ids: Sequence[bytes | None],
    after: Mapping[str, Stream],
) -> Receipt:
    """On disk when it returns. What the streams are from now on is claimed before anybody waits."""
    key = request.headers.get(IDEMPOTENCY_KEY)
    identities = []
    for place, (record, given) in enumerate(zip(records, ids, strict=True)):
        identity = _identity(given, bearer, request.path, key, place)
        record.id = identity.id
        identities.append(identity)
    with ExitStack() as claims:
        for stream in after.values():
            claims.enter_context(streams.book.claim(stream))
        return await streams.deposits.operations(records, identities)


def _identity(given: bytes | None, bearer: Bearer, path: str, key: str | None, place: int) -> Identity:
    if given is not None:
        return Identity(given)
    if key:
        return Identity(of_request(bearer.name, path, key, place))
    return Identity(os.urandom(16), certain=False)


def _known(streams: Streams, name: str) -> Stream:
    stream = streams.book.find(name)
    if stream is None:
        raise _no_stream()
    return stream


def _no_stream() -> Refusal:
    return Refusal(404, "no_such_stream", "There is no stream of this name and type.")
