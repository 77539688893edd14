"""
Unit-cost records as they are sent, under the service's rules: one bad record refuses the whole request, as there.

Pure: what a stream is already known to be comes in as a value. Names old and new are taken (`element-name`
and `element_name`); every refusal names the record, the field and what it must be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from gateway.normalise.payload.body_limits import SliceClock
from gateway.normalise.payload.items import UNREADABLE, check_containers
from gateway.normalise.reading.values import exact
from gateway.service.errors import BadPayload, Refusal
from spool.record import NS, UnitCostOperation
from spool.streams import (
    ALLOCATION,
    CREATE,
    DAILY,
    DELETE,
    GRANULARITIES,
    Stream,
    merged,
    rounded_text,
    stream_of,
)

MAX_BYTES: Final = 5 * 1024**2
MAX_RECORDS: Final = 3000
MAX_CONTAINERS: Final = 100_000  # lists and objects: three for each record, and brackets in its texts
MAX_KEYS: Final = 5
MAX_VALUES: Final = 20
MAX_TEXT: Final = 1024  # characters of a name or a value
FUTURE_S: Final = 86_400  # a day: clocks and time zones differ, more than that is a mistake
SHOWN: Final = 5  # bad records that a refusal names
TOLLHOUSE_ID: Final = "tollhouse_id"  # the id that another Tollhouse gave a record

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
_body = msgspec.json.Decoder(dict[str, Any], float_hook=exact)
_anything = msgspec.json.Decoder()

Find = Callable[[str], Stream | None]


class _Bad(Exception):
    """This record breaks a rule; the message names the field, never a value."""


@dataclass(slots=True)
class Operations:
    """A request that may be kept, with what its streams are afterwards."""

    records: list[UnitCostOperation] = field(default_factory=list)
    ids: list[bytes | None] = field(default_factory=list)  # those that another Tollhouse gave
    streams: dict[str, Stream] = field(default_factory=dict)


def stream_name(name: str) -> str:
    """A name in the streams' alphabet, or Refusal 400."""
    if not _NAME.fullmatch(name):
        message = "A stream's name has letters, digits, '_', '.' and '-', at most 256 of them."
        raise Refusal(400, "invalid_stream_name", message)
    return name


def items_of(body: bytes) -> Sequence[Any]:
    """The records of a request as they were sent; Refusal where these are none, or too many."""
    if len(body) > MAX_BYTES:
        raise Refusal(413, "body_too_large", "A request is at most 5 MB; send smaller batches.")
    check_containers(body, MAX_CONTAINERS)
    items = _object(body).get("records")
    if not isinstance(items, list) or not items:
        raise BadPayload('The body is {"records": [...]}, with at least one record.')
    if len(items) > MAX_RECORDS:
        raise Refusal(
            413, "too_many_records", f"A request holds at most {MAX_RECORDS} records; send smaller batches."
        )
    return items


def read(
    items: Sequence[Any], *, type: str | None, stream: str | None, operation: str, find: Find, now: float
) -> Generator[None, None, Operations]:
    """
    The operations of a request's records. `stream` and `type` None: the oldest form, where each record
    names its stream.

    `find` says what a stream is known to be. Refusal when any record breaks a rule.
    """
    said = Operations()
    problems: list[str] = []
    clock = SliceClock()
    for place, item in enumerate(items):
        if clock.is_over():
            yield
            clock.begin()
        try:
            _take(said, item, type=type, stream=stream, operation=operation, find=find, now=now)
        except _Bad as error:
            problems.append(f"record {place}: {error}")
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        message = f"Nothing was kept: {'; '.join(problems[:SHOWN])}{more}."
        raise Refusal(400, "invalid_records", message)
    return said


def created(body: bytes, *, type: str, stream: str, find: Find) -> tuple[UnitCostOperation, Stream]:
    """A stream that is created before its first record; Refusal 409 when it is there and is another."""
    said = _object(body) if body.strip() else {}
    for name in said.keys() - {"granularity", "filter", "associated_cost"}:
        raise Refusal(
            400,
            "invalid_stream",
            f"A stream takes granularity and filter or associated_cost, not {name[:64]!r}.",
        )
    keys = said.get("filter" if type == ALLOCATION else "associated_cost") or []
    if not isinstance(keys, list) or len(keys) > MAX_KEYS or not all(map(_is_text, keys)):
        raise Refusal(
            400, "invalid_stream", f"The dimensions of a stream are a list of at most {MAX_KEYS} names."
        )
    try:
        granularity = _granularity(said, type, required=False)
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
        _agree(known, operation)
    except _Bad as error:
        raise Refusal(409, "stream_exists", f"The stream is there already, and {error}.") from error
    return operation, merged(known, stream_of(operation))


def forced(body: bytes) -> bool:
    """Read the flag in the body of a DELETE: true, or an object whose one member is true."""
    if not body.strip():
        return False
    try:
        said = _anything.decode(body)
    except UNREADABLE as error:
        raise BadPayload("The body is not valid JSON.") from error
    if isinstance(said, dict) and len(said) == 1:
        (said,) = said.values()
    if not isinstance(said, bool):
        raise BadPayload('The body is true, false or {"force": true}.')
    return said


def _object(body: bytes) -> dict[str, Any]:
    try:
        return _body.decode(body)
    except UNREADABLE as error:
        raise BadPayload("The body is not a JSON object.") from error


def _take(
    said: Operations,
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
    record = _renamed(item)
    hex_id = record.pop(TOLLHOUSE_ID, None)
    name = _stream_of(record, stream)
    kind = type or _type_of(record)
    unknown = sorted(record.keys() - _FIELDS[kind])
    if unknown:
        raise _Bad(
            f"unknown field {unknown[0][:64]!r}; a record of {_article(kind)} stream has "
            + ", ".join(sorted(_FIELDS[kind]))
        )
    known = said.streams.get(name) or find(name)
    one = _operation(record, kind, name, operation, now)
    if operation == DELETE and known is None:
        raise _Bad("the stream does not exist")
    _agree(known, one)
    said.streams[name] = merged(known, stream_of(one))
    said.records.append(one)
    said.ids.append(bytes.fromhex(hex_id) if isinstance(hex_id, str) and _HEX_ID.fullmatch(hex_id) else None)


def _renamed(item: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, value in item.items():
        current = _OLD_NAMES.get(name, name)
        if current in record and record[current] != value:
            raise _Bad(f"{current} is given twice, under its old and its new name")
        record[current] = value
    return record


def _stream_of(record: dict[str, Any], stream: str | None) -> str:
    name = record.pop("telemetry-stream", stream)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Bad("telemetry-stream must be letters, digits, '_', '.' and '-'")
    if stream is not None and name != stream:
        raise _Bad("telemetry-stream is not the stream of the address")
    return name


def _type_of(record: Mapping[str, Any]) -> str:
    """The oldest form does not say: an allocation record has an element."""
    return ALLOCATION if "element_name" in record or "filter" in record else "metric"


def _operation(
    record: Mapping[str, Any], kind: str, stream: str, operation: str, now: float
) -> UnitCostOperation:
    is_delete = operation == DELETE
    is_allocation = kind == ALLOCATION
    if is_delete and "value" in record:
        raise _Bad("value must not be given when records are deleted")
    element = record.get("element_name")
    if is_allocation and not (is_delete and element is None) and not _is_text(element):
        raise _Bad(f"element_name is required: text of at most {MAX_TEXT} characters")
    return UnitCostOperation(
        id=b"",
        stream=stream,
        stream_type=kind,
        operation=operation,
        start_time=_time(record.get("timestamp"), now),
        granularity=_granularity(record, kind, required=True),
        element_name=element,
        dimensions=_filter(record.get("filter"))
        if is_allocation
        else _associated(record.get("associated_cost")),
        value=None if is_delete else _value(record.get("value")),
    )


def _time(value: Any, now: float) -> int:
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
        raise _Bad("timestamp is too far in the future")
    if seconds < 0:
        raise _Bad("timestamp is before 1970")
    return int(moment.replace(microsecond=0).timestamp()) * NS + moment.microsecond * 1000


def _granularity(record: Mapping[str, Any], kind: str, *, required: bool) -> str | None:
    value = record.get("granularity")
    if kind != ALLOCATION:
        if value is not None and (not isinstance(value, str) or value.upper() != DAILY):
            raise _Bad("granularity of a metric stream is DAILY, or not given")
        return DAILY
    if value is None and not required:
        return None
    if not isinstance(value, str) or value.upper() not in GRANULARITIES:
        raise _Bad(f"granularity is required: {', '.join(GRANULARITIES)}")
    return value.upper()


def _filter(value: Any) -> dict[str, list[str]]:
    if value is None:
        return {}
    names = _names(value, "filter")
    for name in names:
        values = value[name]
        if not isinstance(values, list) or not values:
            raise _Bad("filter: each dimension has a list of values")
        if len(values) > MAX_VALUES:
            raise _Bad(f"filter: a dimension has at most {MAX_VALUES} values")
        if not all(map(_is_text, values)):
            raise _Bad("filter: values are text that is not empty")
    return {name: list(value[name]) for name in names}


def _associated(value: Any) -> dict[str, list[str]]:
    if value is None:
        return {}
    names = _names(value, "associated_cost")
    if not all(_is_text(value[name]) for name in names):
        raise _Bad("associated_cost: each dimension has one value, text that is not empty")
    return {name: [value[name]] for name in names}


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        raise _Bad(f"{where} must be an object")
    if len(value) > MAX_KEYS:
        raise _Bad(f"{where} has at most {MAX_KEYS} dimensions")
    if not all(map(_is_text, value)):
        raise _Bad(f"{where}: a dimension's name is text that is not empty")
    return sorted(value)


def _value(value: Any) -> str:
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
        raise _Bad("value must be a number that is not absurd")
    if number <= 0:
        raise _Bad("value must be above 0")
    return rounded_text(number)


def _agree(known: Stream | None, operation: UnitCostOperation) -> None:
    """A stream keeps the type, the granularity and the dimensions that it began with."""
    if known is None:
        return
    if known.type != operation.stream_type:
        raise _Bad(f"the stream is {_article(known.type)} stream")
    if None not in (known.granularity, operation.granularity) and known.granularity != operation.granularity:
        raise _Bad(f"granularity of the stream is {known.granularity}")
    names = tuple(sorted(operation.dimensions))
    if known.keys is None or (operation.operation == CREATE and not names):
        return
    if operation.operation == DELETE:
        if not set(names) <= set(known.keys):
            raise _Bad("the stream's records do not have these dimensions")
    elif known.keys != names:
        raise _Bad("dimensions must be the same in every record of the stream")


def _article(kind: str) -> str:
    return f"an {kind}" if kind == ALLOCATION else f"a {kind}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and bool(value.strip())
