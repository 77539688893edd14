"""
Unit-cost records, validated by the rules of your cost service. One bad record refuses the whole request, as
in your cost service.

The module does no I/O. Callers pass in the known facts about a stream. Old and new field names are accepted
(`element-name` and `element_name`). Every refusal names the record, the field and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from gateway.core.errors import BadPayload, Refusal
from gateway.normalise.payload.body_limits import TimeSliceClock
from gateway.normalise.payload.first_bytes import describe_foreign_encoding
from gateway.normalise.payload.items import UNREADABLE, refuse_too_many_containers
from gateway.normalise.reading.values import decimal_or_text
from spool.record import NS, UnitCostOperation
from spool.streams import (
    ALLOCATION,
    CREATE,
    DAILY,
    DELETE,
    GRANULARITIES,
    TelemetryStream,
    merge_streams,
    rounded_text,
    stream_of_operation,
)

MAX_BYTES: Final = 5 * 1024**2
MAX_RECORDS: Final = 3000
# maximum lists and objects in a body: three per record, and some more, because brackets in texts count as
# well
MAX_CONTAINERS: Final = 100_000
MAX_KEYS: Final = 5
MAX_VALUES: Final = 20
MAX_TEXT: Final = 1024  # maximum characters of a name or a value
# Seconds by which a time may be in the future. Clocks and time zones explain no more than a day.
FUTURE_S: Final = 86_400
SHOWN: Final = 5  # maximum invalid records that a refusal lists
TOLLHOUSE_ID: Final = "tollhouse_id"  # record id that another Tollhouse assigned

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_HEX_ID = re.compile(r"[0-9a-f]{32}")
_OLD_NAMES = {
    "element-name": "element_name",
    "associated-cost": "associated_cost",
    "telemetry_stream": "telemetry-stream",
}
_FIELDS = {
    ALLOCATION: frozenset({"timestamp", "granularity", "element_name", "filter", "value"}),
    "metric": frozenset({"timestamp", "granularity", "associated_cost", "value"}),
}
_body = msgspec.json.Decoder(dict[str, Any], float_hook=decimal_or_text)
_anything = msgspec.json.Decoder()

Find = Callable[[str], TelemetryStream | None]


class _Bad(Exception):
    """Raised for a unit-cost record that breaks a rule. The message names the field, never a value."""


@dataclass(slots=True)
class ReadOperations:
    records: list[UnitCostOperation] = field(default_factory=list)
    # record ids that another Tollhouse assigned, or None
    ids: list[bytes | None] = field(default_factory=list)
    streams: dict[str, TelemetryStream] = field(default_factory=dict)


def require_stream_name(name: str) -> str:
    """Return a stream's name. Raises Refusal 400 if it is invalid."""
    if not _NAME.fullmatch(name):
        message = "A stream name must have 1 to 256 letters, digits, '_', '.' or '-'."
        raise Refusal(400, "invalid_stream_name", message)
    return name


def records_of_request(body: bytes) -> Sequence[Any]:
    """Return the records of a request. Raises Refusal if there are none, or too many."""
    if len(body) > MAX_BYTES:
        raise Refusal(413, "body_too_large", "A request may have at most 5 MiB; send smaller batches.")
    refuse_too_many_containers(body, MAX_CONTAINERS)
    items = _decode_object(body).get("records")
    if not isinstance(items, list) or not items:
        raise BadPayload('The body must be {"records": [...]} with at least one record.')
    if len(items) > MAX_RECORDS:
        raise Refusal(
            413,
            "too_many_records",
            f"A request may have at most {MAX_RECORDS} records; send smaller batches.",
        )
    return items


def read_operations(
    items: Sequence[Any], *, type: str | None, stream: str | None, operation: str, find: Find, now: float
) -> Generator[None, None, ReadOperations]:
    """
    Convert a request's records to operations. If `stream` and `type` are None, each record names its own
    stream, as in the oldest form of the API.

    `find` returns the known facts about a stream. Raises Refusal if any record breaks a rule.
    """
    operations = ReadOperations()
    problems: list[str] = []
    clock = TimeSliceClock()
    for index, item in enumerate(items):
        if clock.is_over():
            yield
            clock.begin_slice()
        try:
            _add_operation(
                operations, item, type=type, stream=stream, operation=operation, find=find, now=now
            )
        except _Bad as error:
            problems.append(f"record {index}: {error}")
    if problems:
        suffix = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        message = f"Nothing was stored: {'; '.join(problems[:SHOWN])}{suffix}."
        raise Refusal(400, "invalid_records", message)
    return operations


def read_stream_creation(
    body: bytes, *, type: str, stream: str, find: Find
) -> tuple[UnitCostOperation, TelemetryStream]:
    """
    Read a request that creates a stream. Raises Refusal 409 if a different stream already has that name.
    """
    fields = _decode_object(body) if body.strip() else {}
    for name in fields.keys() - {"granularity", "filter", "associated_cost"}:
        raise Refusal(
            400,
            "invalid_stream",
            f"Unknown field {name[:64]!r}; a stream has granularity, and filter or associated_cost.",
        )
    keys = fields.get("filter" if type == ALLOCATION else "associated_cost") or []
    if not isinstance(keys, list) or len(keys) > MAX_KEYS or not all(map(_is_non_empty_text, keys)):
        raise Refusal(
            400,
            "invalid_stream",
            f"filter or associated_cost must be a list of at most {MAX_KEYS} dimension names.",
        )
    try:
        granularity = _read_granularity(fields, type, required=False)
    except _Bad as error:
        raise Refusal(400, "invalid_stream", f"{error}.") from error
    operation = UnitCostOperation(
        id=b"",
        stream=stream,
        stream_type=type,
        operation=CREATE,
        granularity=granularity,
        dimensions={key: [] for key in keys},
        shadow=True,
    )
    known = find(stream)
    try:
        _require_same_stream(known, operation)
    except _Bad as error:
        raise Refusal(409, "stream_exists", f"The stream already exists, and {error}.") from error
    return operation, merge_streams(known, stream_of_operation(operation))


def read_force_flag(body: bytes) -> bool:
    """
    Return whether a request's body sets the flag: it is true, or an object with one member that is true.
    """
    if not body.strip():
        return False
    try:
        flag = _anything.decode(body)
    except UNREADABLE as error:
        raise BadPayload("The body is not valid JSON.") from error
    if isinstance(flag, dict) and len(flag) == 1:
        (flag,) = flag.values()
    if not isinstance(flag, bool):
        raise BadPayload('The body must be true, false or {"force": true}.')
    return flag


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        return _body.decode(body)
    except UNREADABLE as error:
        raise BadPayload(describe_foreign_encoding(body) or "The body is not a JSON object.") from error


def _add_operation(
    operations: ReadOperations,
    item: Any,
    *,
    type: str | None,
    stream: str | None,
    operation: str,
    find: Find,
    now: float,
) -> None:
    if not isinstance(item, dict):
        raise _Bad("must be an object")
    record = _with_current_names(item)
    hex_id = record.pop(TOLLHOUSE_ID, None)
    name = _pop_and_check_stream_name(record, stream)
    kind = type or _type_of_record(record)
    unknown = sorted(record.keys() - _FIELDS[kind])
    if unknown:
        raise _Bad(
            f"unknown field {unknown[0][:64]!r}; the fields of {_with_article(kind)} stream are "
            + ", ".join(sorted(_FIELDS[kind]))
        )
    known = operations.streams.get(name) or find(name)
    operation_record = _build_operation(record, kind, name, operation, now)
    if operation == DELETE and known is None:
        raise _Bad("the stream does not exist")
    _require_same_stream(known, operation_record)
    operations.streams[name] = merge_streams(known, stream_of_operation(operation_record))
    operations.records.append(operation_record)
    operations.ids.append(
        bytes.fromhex(hex_id) if isinstance(hex_id, str) and _HEX_ID.fullmatch(hex_id) else None
    )


def _with_current_names(item: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, value in item.items():
        current = _OLD_NAMES.get(name, name)
        if current in record and record[current] != value:
            raise _Bad(f"{current} is given with different values under its old and its new name")
        record[current] = value
    return record


def _pop_and_check_stream_name(record: dict[str, Any], stream: str | None) -> str:
    name = record.pop("telemetry-stream", stream)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Bad("telemetry-stream must consist of letters, digits, '_', '.' and '-'")
    if stream is not None and name != stream:
        raise _Bad("telemetry-stream must match the stream in the address")
    return name


def _type_of_record(record: Mapping[str, Any]) -> str:
    """
    Return a record's type. In the oldest form of the API, a record with an element or a filter is an
    allocation record.
    """
    return ALLOCATION if "element_name" in record or "filter" in record else "metric"


def _build_operation(
    record: Mapping[str, Any], kind: str, stream: str, operation: str, now: float
) -> UnitCostOperation:
    is_delete = operation == DELETE
    is_allocation = kind == ALLOCATION
    if is_delete and "value" in record:
        raise _Bad("value must be omitted when records are deleted")
    element = record.get("element_name")
    if is_allocation and not (is_delete and element is None) and not _is_non_empty_text(element):
        raise _Bad(f"element_name is required: text of at most {MAX_TEXT} characters")
    return UnitCostOperation(
        id=b"",
        stream=stream,
        stream_type=kind,
        operation=operation,
        start_time=_parse_time(record.get("timestamp"), now),
        granularity=_read_granularity(record, kind, required=True),
        element_name=element,
        dimensions=_read_filter(record.get("filter"))
        if is_allocation
        else _read_associated_cost_dimensions(record.get("associated_cost")),
        value=None if is_delete else _parse_positive_value(record.get("value")),
    )


def _parse_time(value: Any, now: float) -> int:
    if not isinstance(value, str):
        raise _Bad("timestamp is required: an ISO 8601 time or date")
    text = value.strip()
    try:
        moment = (
            datetime.fromisoformat(text)
            if len(text) > 10
            else datetime.combine(date.fromisoformat(text), datetime.min.time())
        )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = moment.timestamp()
    except (ValueError, OverflowError) as error:
        raise _Bad("timestamp must be an ISO 8601 time or date, such as 2026-11-20T10:00:00Z") from error
    if seconds > now + FUTURE_S:
        raise _Bad("timestamp is more than a day in the future")
    if seconds < 0:
        raise _Bad("timestamp is before 1970")
    return int(moment.replace(microsecond=0).timestamp()) * NS + moment.microsecond * 1000


def _read_granularity(record: Mapping[str, Any], kind: str, *, required: bool) -> str | None:
    value = record.get("granularity")
    if kind != ALLOCATION:
        if value is not None and (not isinstance(value, str) or value.upper() != DAILY):
            raise _Bad("granularity of a metric stream must be DAILY or omitted")
        return DAILY
    if value is None and not required:
        return None
    if not isinstance(value, str) or value.upper() not in GRANULARITIES:
        raise _Bad(f"granularity is required: {', '.join(GRANULARITIES)}")
    return value.upper()


def _read_filter(value: Any) -> dict[str, list[str]]:
    if value is None:
        return {}
    names = _require_dimension_names(value, "filter")
    for name in names:
        values = value[name]
        if not isinstance(values, list) or not values:
            raise _Bad("filter: each dimension must have a list of values")
        if len(values) > MAX_VALUES:
            raise _Bad(f"filter: a dimension may have at most {MAX_VALUES} values")
        if not all(map(_is_non_empty_text, values)):
            raise _Bad("filter: values must be non-empty text")
    return {name: list(value[name]) for name in names}


def _read_associated_cost_dimensions(value: Any) -> dict[str, list[str]]:
    if value is None:
        return {}
    names = _require_dimension_names(value, "associated_cost")
    if not all(_is_non_empty_text(value[name]) for name in names):
        raise _Bad("associated_cost: each dimension must have one value, a non-empty text")
    return {name: [value[name]] for name in names}


def _require_dimension_names(value: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        raise _Bad(f"{where} must be an object")
    if len(value) > MAX_KEYS:
        raise _Bad(f"{where} may have at most {MAX_KEYS} dimensions")
    if not all(map(_is_non_empty_text, value)):
        raise _Bad(f"{where}: dimension names must be non-empty text")
    return sorted(value)


def _parse_positive_value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise _Bad("value is required: a number")
    text = str(value).strip()
    if isinstance(value, str) and not _NUMBER.fullmatch(text):
        raise _Bad("value must be a number without separators")
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise _Bad("value must be a number") from error
    if not number.is_finite() or abs(number.adjusted()) > 100:
        raise _Bad("value is too large or too close to 0")
    if number <= 0:
        raise _Bad("value must be above 0")
    return rounded_text(number)


def _require_same_stream(known_stream: TelemetryStream | None, operation: UnitCostOperation) -> None:
    if known_stream is None:
        return
    if known_stream.type != operation.stream_type:
        raise _Bad(f"the stream is {_with_article(known_stream.type)} stream")
    if (
        None not in (known_stream.granularity, operation.granularity)
        and known_stream.granularity != operation.granularity
    ):
        raise _Bad(f"the granularity of the stream is {known_stream.granularity}")
    names = tuple(sorted(operation.dimensions))
    if known_stream.keys is None or (operation.operation == CREATE and not names):
        return
    if operation.operation == DELETE:
        if not set(names) <= set(known_stream.keys):
            raise _Bad("the stream's records do not have these dimensions")
    elif known_stream.keys != names:
        raise _Bad(
            f"dimensions must be the same in every record of the stream: {', '.join(known_stream.keys)}"
        )


def _with_article(kind: str) -> str:
    return f"an {kind}" if kind == ALLOCATION else f"a {kind}"


def _is_non_empty_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and bool(value.strip())
