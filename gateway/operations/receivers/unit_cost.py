"""
The receiver for unit-cost streams: create streams, read and delete them, and sum, replace or delete their records.

The responses equal those of your cost service: 200, or 201 after records of an allocation stream were
deleted. If one record is wrong, the whole request gets 400.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Protocol

import msgspec
from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.fields import one_field_answer
from gateway.core.schemas import (
    ANYTHING,
    COUNT,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    array_schema,
    closed_object_schema,
    open_object_schema,
    schema_with_description,
)
from gateway.http import answers
from gateway.http.address import READ, WHOLE_BYTES, WRITE, ApiAddress, Content
from gateway.http.answers import JSON
from gateway.http.lists import Filter, ListDefinition, MemoryRows, PageQuery, Sort, StoredRows
from gateway.http.requests import Result
from gateway.http.turns import LARGE, run_on_thread_if_large, run_with_pauses
from gateway.intake.deposits import NonTelemetryIntake
from gateway.intake.stream_admission import StreamAdmission
from gateway.normalise import unit_cost
from gateway.normalise.unit_cost import ReadOperations
from gateway.operations.requests.key_requests import KeyRequest, item_identity, names_for_repeat_detection
from spool.errors import Stale
from spool.identity import RequestDedupKeys
from spool.listing import ListPage, SortField
from spool.log.values import Receipt
from spool.record import NS, UnitCostOperation, rfc3339
from spool.registry.field_notes import example, words
from spool.registry.scopes import CREATE_STREAM, DELETE_STREAM, MANAGE_RECORDS, READ_TELEMETRY
from spool.registry.streams import stream_expectation
from spool.streams import (
    ALLOCATION,
    DELETE,
    DROP,
    SUM,
    TYPES,
    KnownStreams,
    StreamReader,
    StreamTotal,
    TelemetryStream,
    TotalsPart,
    is_same_stream,
    merge_streams,
)
from spool.turns.fair_turns import pause_if_step_was_long

PAGE = 1000
_FARTHEST = 2**63 - 1  # the latest time that can be stored, in nanoseconds

RECORDS: ListDefinition[StreamTotal] = ListDefinition(
    root="records",
    show=lambda total: describe_total(total),
    identity=Sort(field=SortField("key")),
    sorts={
        "timestamp": Sort(field=SortField("start_time")),
        "element_name": Sort(field=SortField("element_name", is_text=True)),
    },
    default_sort=("timestamp", "asc"),
    filters={
        "element_name": Filter(field="element_name", is_open=True),
        "start_time": Filter(type="date-time"),
        "end_time": Filter(type="date-time"),
        "dimension": Filter(),
    },
    default_limit=PAGE,
    max_limit=PAGE,
)

STREAMS: ListDefinition[TelemetryStream] = ListDefinition(
    root="streams",
    show=lambda stream: describe_stream(stream),
    identity=Sort(value=lambda stream: stream.name),
    sorts={"name": Sort(value=lambda stream: stream.name), "type": Sort(value=lambda stream: stream.type)},
    default_sort=("name", "asc"),
    filters={"type": Filter(values=lambda stream: (stream.type,), valid_values=TYPES)},
)


class UnitCostServices(Protocol):
    """What this receiver needs. `is_shared`: several gateways share the storage."""

    streams: StreamReader
    book: KnownStreams
    is_shared: bool
    stream_admission: StreamAdmission
    deposits: NonTelemetryIntake


# The first path that matches handles a request, so the order of the addresses matters.
_STREAMS = "/unit-cost/v1/telemetry"
_STREAM = _STREAMS + "/{type:allocation|metric}/{stream}"


class StreamItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the stream."), example("requests")]
    type: Annotated[str, words("The type of the stream."), example("allocation")]
    granularity: Annotated[str | None, words("The length of a period; null if unknown."), example("DAILY")]
    dimensions: Annotated[
        list[str] | None, words("The dimensions of the stream; null if unknown."), example([])
    ]


_STREAM_SHOWN: Content = {
    JSON: one_field_answer(
        "OneStream", stream=Annotated[StreamItem, words("The stream, with the fields below.")]
    )
}
_ACCEPTED: Content = {
    JSON: closed_object_schema(
        {"accepted": schema_with_description(COUNT, "The number of accepted records.")}
    )
}
_RECORD_FIELDS = {
    "timestamp": schema_with_description(TEXT, "The start of the period."),
    "granularity": schema_with_description(TEXT_OR_NULL, "The length of the period."),
    "value": schema_with_description(TEXT_OR_NULL, "The amount."),
}
_OF_ELEMENT = {
    "element_name": schema_with_description(
        TEXT, "The element that the amount belongs to, such as a customer."
    ),
    "filter": schema_with_description(OBJECT, "Values by dimension. The dimensions are those of the stream."),
}
_RECORD = closed_object_schema(
    _RECORD_FIELDS,
    {
        **_OF_ELEMENT,
        "associated_cost": schema_with_description(OBJECT, "The cost of the element in the period."),
    },
)
_NEW_RECORDS = open_object_schema(
    {
        "records": array_schema(
            open_object_schema(
                {
                    **_RECORD_FIELDS,
                    "value": schema_with_description(ANYTHING, "The amount, as text or a number."),
                    **_OF_ELEMENT,
                    "telemetry_stream": schema_with_description(
                        TEXT, "The name of the stream, if the address has none."
                    ),
                }
            )
        )
    }
)
_NEW_STREAM = open_object_schema(
    {
        "granularity": schema_with_description(TEXT, "The length of a period."),
        "filter": schema_with_description(array_schema(TEXT), "The names of the dimensions of the stream."),
    }
)


def _read_address(path: str, name: str, summary: str, *, endpoint: str = "unit-cost/records") -> ApiAddress:
    return ApiAddress(
        methods=("GET", "HEAD"),
        path=path,
        name=name,
        summary=summary,
        endpoint=endpoint,
        scope=READ_TELEMETRY,
        lists=RECORDS,
        item=_RECORD,
        refusals=(*READ, 404),
    )


def _manage_address(path: str, name: str, summary: str) -> ApiAddress:
    return ApiAddress(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        endpoint="unit-cost",
        scope=MANAGE_RECORDS,
        takes={JSON: _NEW_RECORDS},
        gives={200: _ACCEPTED, 201: _ACCEPTED},
        refusals=(*WRITE, 404, 409),
        takes_idempotency_key=True,
    )


@ApiAddress(
    methods=("GET", "HEAD"),
    path=_STREAMS,
    name="list_telemetry_streams",
    summary="List unit-cost streams",
    endpoint="unit-cost",
    scope=READ_TELEMETRY,
    lists=STREAMS,
    item=StreamItem,
    refusals=READ,
)
async def list_telemetry_streams(request: KeyRequest[UnitCostServices, None]) -> Result:
    return await request.list_page(STREAMS, MemoryRows(await request.services.streams.streams()))


@ApiAddress(
    methods=("PUT",),
    path=_STREAM,
    summary="Create a stream, or confirm that it exists",
    endpoint="unit-cost",
    scope=CREATE_STREAM,
    max_bytes=WHOLE_BYTES,
    takes={JSON: _NEW_STREAM},
    gives={200: _STREAM_SHOWN, 201: _STREAM_SHOWN},
    refusals=(*WRITE, 404, 409),
)
async def create_stream(request: KeyRequest[UnitCostServices, bytes]) -> web.Response:
    """Create a stream. Answers 201 for a new stream and 200 for an existing one."""
    return await _answer_again_if_streams_changed(request, lambda: _create_telemetry_stream(request))


async def _create_telemetry_stream(request: KeyRequest[UnitCostServices, bytes]) -> web.Response:
    book = request.services.book
    name = unit_cost.require_stream_name(request.path_parameter("stream"))
    type = request.path_parameter("type")
    is_new = book.find_stream(name) is None
    operation, stream = unit_cost.read_stream_creation(
        request.body, type=type, stream=name, find=book.find_stream
    )
    receipt = await _store_operations(request, ReadOperations([operation], [None], {name: stream}))
    return answers.json_response(
        {"stream": describe_stream(stream)}, status=201 if is_new else 200, receipt=receipt
    )


@_manage_address(_STREAMS, "sum_records_of_streams", "Add records that name their streams")
@_manage_address(_STREAM, "sum_records_of_stream", "Add records to a stream (older address)")
async def add_records_to_stream(request: KeyRequest[UnitCostServices, bytes]) -> web.Response:
    """Add records to the stream in the path. If the path names no stream, each record names its stream."""
    return await _run_operation(request, SUM)


@_manage_address(
    _STREAM + "/{operation:sum|replace|delete}",
    "manage_records",
    "Add, replace or delete records of a stream",
)
async def manage_records(request: KeyRequest[UnitCostServices, bytes]) -> web.Response:
    return await _run_operation(request, request.path_parameter("operation"))


@_read_address(_STREAM, "read_stream", "List the records of a stream (older address)", endpoint="unit-cost")
@_read_address(
    _STREAM + "/records", "read_records", "List the records of a stream of this type, with their totals"
)
@_read_address(
    _STREAMS + "/{stream}/records", "read_records_by_name", "List the records of a stream, with their totals"
)
async def read_records(request: KeyRequest[UnitCostServices, None]) -> Result:
    """
    Return a page of a stream's records, each with its current total.

    The range includes `start_time` and excludes `end_time`. `dimension=NAME=VALUE` may repeat. A record must
    have one of the requested values of each named dimension.
    """
    name = unit_cost.require_stream_name(request.path_parameter("stream"))
    stream = _require_stream(request, name)
    if stream.type != request.http.match_info.get("type", stream.type):
        raise _no_stream_refusal()
    return await request.list_page(RECORDS, _TotalRows(request.services.streams, name))


@ApiAddress(
    methods=("DELETE",),
    path=_STREAMS + "/{stream}",
    summary='Delete a stream; if it has records, send {"force": true}',
    endpoint="unit-cost/streams",
    scope=DELETE_STREAM,
    max_bytes=WHOLE_BYTES,
    gives={
        200: {
            JSON: closed_object_schema(
                {
                    "stream": closed_object_schema(
                        {
                            "name": schema_with_description(TEXT, "The name of the deleted stream."),
                            "deleted": schema_with_description({"const": True}, "Always true."),
                        }
                    )
                }
            )
        }
    },
    refusals=(*WRITE, 404, 409),
)
async def delete_stream(request: KeyRequest[UnitCostServices, bytes]) -> web.Response:
    is_forced = unit_cost.read_force_flag(request.body)
    name = unit_cost.require_stream_name(request.path_parameter("stream"))
    stream = _require_stream(request, name)
    if not is_forced and await request.services.streams.stream_totals(name):
        message = 'The stream has records. Send {"force": true} to delete it with its records.'
        raise Refusal(409, "stream_not_empty", message)
    dropped = UnitCostOperation(id=b"", stream=name, stream_type=stream.type, operation=DROP)
    receipt = await _store_operations(request, ReadOperations([dropped], [None]))
    request.services.book.forget_stream(name)
    return answers.json_response({"stream": {"name": name, "deleted": True}}, receipt=receipt)


class _TotalRows:
    """The totals of a stream in storage, limited by the filters."""

    def __init__(self, streams: StreamReader, stream: str) -> None:
        self._streams = streams
        self._stream = stream

    async def page(
        self, list_definition: ListDefinition[StreamTotal], page_query: PageQuery
    ) -> ListPage[StreamTotal]:
        filters = dict(page_query.filters)
        part = TotalsPart(
            since=_parse_time_filter("start_time", filters.pop("start_time", ())),
            until=_parse_time_filter("end_time", filters.pop("end_time", ())),
            dimensions=_parse_dimensions(filters.pop("dimension", ())),
        )
        rows = StoredRows(partial(self._streams.totals_page, self._stream, part=part))
        return await rows.page(list_definition, replace(page_query, filters=filters))


def _parse_time_filter(name: str, filter_texts: Sequence[str]) -> int | None:
    """Return a time filter in nanoseconds since 1970. Raises Refusal 400 for an invalid or repeated time."""
    if not filter_texts:
        return None
    message = f"{name} must be one ISO 8601 time, such as 2026-11-01T00:00:00Z"
    if len(filter_texts) > 1:
        raise Refusal(400, "invalid_parameter", message)
    try:
        moment = datetime.fromisoformat(filter_texts[0])
        at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise Refusal(400, "invalid_parameter", message) from error
    return max(-_FARTHEST, min(_FARTHEST, round(at) * NS))


def _parse_dimensions(texts: Sequence[str]) -> dict[str, list[str]]:
    values_by_name: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refusal(400, "invalid_parameter", "dimension must be written NAME=VALUE")
        values_by_name.setdefault(name, []).append(value)
    if len(values_by_name) > unit_cost.MAX_KEYS:
        raise Refusal(400, "invalid_parameter", f"dimension may name at most {unit_cost.MAX_KEYS} dimensions")
    return values_by_name


def describe_stream(stream: TelemetryStream) -> dict[str, object]:
    """Return the fixed properties of a stream. Unknown properties are null."""
    keys = None if stream.keys is None else list(stream.keys)
    return {"name": stream.name, "type": stream.type, "granularity": stream.granularity, "dimensions": keys}


def describe_total(total: StreamTotal) -> Mapping[str, object]:
    """Return a record in the form in which senders send it, with the current field names."""
    record: dict[str, object] = {"timestamp": rfc3339(total.start_time), "granularity": total.granularity}
    if total.element_name is not None:
        record |= {"element_name": total.element_name, "filter": dict(total.dimensions)}
    else:
        record["associated_cost"] = {name: values[0] for name, values in total.dimensions.items()}
    return record | {"value": total.value}


async def _answer_again_if_streams_changed(
    request: KeyRequest[UnitCostServices, Any], answer: Callable[[], Awaitable[web.Response]]
) -> web.Response:
    try:
        return await answer()
    except Stale:
        services = request.services
        services.book.replace_known(await services.streams.streams())
        services.stream_admission.expire_stream_sizes()
        return await answer()


async def _run_operation(request: KeyRequest[UnitCostServices, bytes], operation: str) -> web.Response:
    return await _answer_again_if_streams_changed(
        request, lambda: _store_record_operation(request, operation)
    )


async def _store_record_operation(
    request: KeyRequest[UnitCostServices, bytes], operation: str
) -> web.Response:
    path_values = request.http.match_info
    names = names_for_repeat_detection(request)
    type = path_values.get("type")
    stream = path_values.get("stream")
    # Accept a repeated request even if the streams have changed since.
    is_repeat = names is not None and request.services.deposits.has_request(names)
    body = request.body
    items = await run_on_thread_if_large(
        lambda: unit_cost.records_of_request(body), is_large=len(body) > LARGE
    )
    operations = await run_with_pauses(
        unit_cost.read_operations(
            items,
            type=type,
            stream=None if stream is None else unit_cost.require_stream_name(stream),
            operation=operation,
            find=partial(_stream_without_properties, type)
            if is_repeat
            else request.services.book.find_stream,
            now=request.receivers.clock.now(),
        )
    )
    receipt = await _store_operations(request, operations, names, is_repeat=is_repeat)
    status = 201 if operation == DELETE and type == ALLOCATION else 200
    return answers.json_response({"accepted": len(operations.records)}, status=status, receipt=receipt)


async def _store_operations(
    request: KeyRequest[UnitCostServices, bytes],
    operations: ReadOperations,
    names: RequestDedupKeys | None = None,
    *,
    is_repeat: bool = False,
) -> Receipt:
    """
    Store operations and return when they are on disk. New properties of streams are claimed before this waits
    for the disk, because another request could define them meanwhile.

    Raises Stale if another request or gateway has defined one of the streams differently.
    """
    admission, book = request.services.stream_admission, request.services.book
    name, records = request.bearer.name, operations.records
    after = {} if is_repeat else operations.streams
    created = [] if is_repeat else await admission.check_and_reserve_new_streams(name, records, after)
    identities = []
    for position, (record, given_id) in enumerate(zip(records, operations.ids, strict=True)):
        identity = item_identity(names, position, given_id if request.bearer.may_chain else None)
        record.id = identity.id
        identities.append(identity)
        await pause_if_step_was_long()
    with ExitStack() as claims:
        for stream in after.values():
            defined = book.find_stream(stream.name)
            if not is_same_stream(defined, stream):
                raise Stale("another request defined a stream differently meanwhile: send the records again")
            claims.enter_context(book.claim_stream(merge_streams(defined, stream)))
        expects = (
            [stream_expectation(stream) for stream in after.values()] if request.services.is_shared else ()
        )
        receipt = await request.services.deposits.store_operations(
            records, identities, request.bearer, expected_versions=expects, request=names, is_repeat=is_repeat
        )
    await admission.set_stream_owners(created, name)
    return receipt


def _stream_without_properties(type: str | None, name: str) -> TelemetryStream | None:
    """
    Return a stream for a request that was stored earlier. The stream has no properties, so that the request's
    records cannot contradict it.
    """
    return None if type is None else TelemetryStream(name=name, type=type, granularity=None, keys=None)


def _require_stream(request: KeyRequest[UnitCostServices, Any], name: str) -> TelemetryStream:
    stream = request.services.book.find_stream(name)
    if stream is None:
        raise _no_stream_refusal()
    return stream


def _no_stream_refusal() -> Refusal:
    return Refusal(404, "no_such_stream", "No stream has this name and type.")
