"""
Operator API handlers for rejected records: records that were set aside, and records that a partly
successful response rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.fields import build_answer, one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.normalise import billing
from gateway.normalise.reading import regions, tags
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.values import MAX_COST_DIGITS, MAX_TEXT, MAX_TOKENS
from gateway.operations.answers import DeadItem, Discarded, Retried, StoredRecord
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.deliveries.values import DeadLetter, PartialRefusal
from spool.errors import Invalid, NotAllowed, NotThere
from spool.people import People
from spool.record import (
    Correction,
    HourlyBillingFile,
    Inference,
    RecalculationEntry,
    Record,
    UnitCostOperation,
    UsageEvent,
    UsageMetric,
    pack_records,
    record_to_json,
    utc_iso,
)
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION


class Letters(RequestBody):
    """A selection of rejected records."""

    ids: Annotated[list[int] | None, words("The ids of the rejected records.")] = None
    route: Annotated[str | None, words("The route whose rejected records are chosen.")] = None
    all: Annotated[bool, words("Whether all rejected records are chosen.")] = False


class Edit(RequestBody):
    """Changes of a rejected record."""

    record: Annotated[
        dict[str, Any], words("The fields to change, by name. Unchanged fields may be repeated.")
    ]


def describe_dead(letter: DeadLetter) -> dict[str, object]:
    return build_answer(DeadItem, letter, record_id=letter.record.id.hex(), at=utc_iso(letter.at))


def describe_refusal(refusal: PartialRefusal) -> dict[str, object]:
    return build_answer(PartialRefusalItem, refusal, at=utc_iso(refusal.at))


DEAD: ListDefinition[DeadLetter] = ListDefinition(
    root="dead",
    show=describe_dead,
    identity=Sort(value=lambda letter: letter.id),
    sorts={
        "id": Sort(value=lambda letter: letter.id),
        "route": Sort(value=lambda letter: letter.route),
        "number": Sort(value=lambda letter: letter.number),
        "status": Sort(value=lambda letter: letter.status),
        "at": Sort(value=lambda letter: letter.at),
    },
    default_sort=("id", "asc"),
    filters={
        "route": Filter(values=lambda letter: (letter.route,)),
        "status": Filter(values=lambda letter: (letter.status,)),
    },
)


REFUSALS: ListDefinition[PartialRefusal] = ListDefinition(
    root="partial_refusals",
    show=describe_refusal,
    identity=Sort(value=lambda refusal: f"{refusal.route} {refusal.first:020} {refusal.at:017.6f}"),
    sorts={
        "at": Sort(value=lambda refusal: refusal.at),
        "route": Sort(value=lambda refusal: refusal.route),
        "count": Sort(value=lambda refusal: refusal.count),
    },
    default_sort=("at", "desc"),
    filters={"route": Filter(values=lambda refusal: (refusal.route,))},
)


class DeadDetails(DeadItem, kw_only=True):
    record: Annotated[StoredRecord | UnsetType, words("The stored record.")] = UNSET


class EditedRecord(msgspec.Struct, kw_only=True):
    id: Annotated[int, words("The id of the rejected record."), example(1)]
    route: Annotated[
        str, words("The route whose destination rejected the record."), example("archive/ai-telemetry")
    ]
    fields: Annotated[list[str], words("The fields that were changed."), example(["response_model"])]
    record: Annotated[StoredRecord, words("The changed record that is sent.")]


class PartialRefusalItem(msgspec.Struct, kw_only=True):
    route: Annotated[str, words("The route that sends the records."), example("archive/ai-telemetry")]
    first: Annotated[int, words("The number of the first record of the delivery."), example(62573)]
    last: Annotated[int, words("The number of the last record of the delivery."), example(62573)]
    count: Annotated[int, words("The number of rejected records."), example(1)]
    words: Annotated[
        str | None, words("The reason that the receiver gave, or null."), example("the record is too old")
    ]
    at: Annotated[str, words("When the receiver refused the records."), example("2026-11-27T01:27:40.000Z")]


@operator_call("GET", "/dead", VIEW_OPERATION, "List rejected records", lists=DEAD, item=DeadItem)
async def list_dead(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list_page(DEAD, MemoryRows(await request.services.deliveries.dead_letters()))


@operator_call(
    "GET",
    "/dead/{id}",
    VIEW_OPERATION,
    "Show a rejected record",
    answers=one_field_answer("OneDead", dead=Annotated[DeadDetails, words("The rejected record.")]),
)
async def show_dead(request: OperatorRequest[SpoolServices, None]) -> Result:
    letter = await _find_dead_letter(request, request.path_number("id"))
    return {"dead": {**describe_dead(letter), "record": record_to_json(letter.record)}}


@operator_call(
    "PATCH",
    "/dead/{id}",
    OPERATE_SPOOL,
    "Send a rejected record again with other values",
    answers=one_field_answer("OneEdited", edited=Annotated[EditedRecord, words("The changed record.")]),
)
async def edit_dead(request: OperatorRequest[SpoolServices, Edit]) -> Result:
    """
    Send a rejected record again with other values. The audit row contains the changed fields, and a hash of
    the record before and after the change.
    """
    services = request.services
    id = request.path_number("id")
    letter = await _find_dead_letter(request, id)
    record, names = edit_record_and_list_changes(letter.record, request.body.record, request.shared.people)
    noted = {
        "id": id,
        "fields": list(names),
        "before": _record_hash(letter.record),
        "after": _record_hash(record),
    }
    async with request.audited_change("dead.edit", letter.route, noted):
        await services.deliveries.edit_and_retry_dead_letter(id, record)
    await services.wake(letter.route)
    return {
        "edited": {"id": id, "route": letter.route, "fields": list(names), "record": record_to_json(record)}
    }


@operator_call("POST", "/dead/retry", OPERATE_SPOOL, "Send rejected records again", answers=Retried)
async def retry_dead(request: OperatorRequest[SpoolServices, Letters]) -> Result:
    services = request.services
    letters = await _chosen_dead_letters(request)
    ids = [letter.id for letter in letters]
    async with request.audited_change("dead.retry", _route_names(letters), _describe_ids(ids)):
        retried = await services.deliveries.retry_dead_letters(ids)
    for route in {letter.route for letter in letters}:
        await services.wake(route)
    return {"retried": retried}


async def _find_dead_letter(request: OperatorRequest[SpoolServices, Any], id: int) -> DeadLetter:
    for letter in await request.services.deliveries.dead_letters():
        if letter.id == id:
            return letter
    raise NotThere("there is no rejected record with this id")


def _record_hash(record: Record) -> str:
    return sha256(pack_records([record])).hexdigest()


@operator_call("POST", "/dead/discard", OPERATE_SPOOL, "Discard rejected records", answers=Discarded)
async def discard_dead(request: OperatorRequest[SpoolServices, Letters]) -> Result:
    services = request.services
    letters = await _chosen_dead_letters(request)
    ids = [letter.id for letter in letters]
    async with request.audited_change("dead.discard", _route_names(letters), _describe_ids(ids)):
        discarded = await services.deliveries.discard_dead_letters(ids)
    for route in {letter.route for letter in letters}:
        # the route may be paused because it had the maximum number of rejected records
        await services.wake(route)
    return {"discarded": discarded}


@operator_call(
    "GET",
    "/partial-refusals",
    VIEW_OPERATION,
    "List records rejected in partly successful responses",
    lists=REFUSALS,
    item=PartialRefusalItem,
)
async def list_partial_refusals(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list_page(REFUSALS, MemoryRows(await request.services.deliveries.partial_refusals()))


async def _chosen_dead_letters(request: OperatorRequest[SpoolServices, Letters]) -> list[DeadLetter]:
    body = request.body
    if (body.ids is not None) + (body.route is not None) + body.all != 1:
        raise Invalid("name rejected records by their ids, or one route, or all of them")
    letters = list(await request.services.deliveries.dead_letters(route=body.route))
    if body.ids is None:
        return letters
    matches = [letter for letter in letters if letter.id in set(body.ids)]
    if len(matches) != len(set(body.ids)):
        raise NotThere("there is no rejected record with one of these ids; nothing was changed")
    return matches


def _describe_ids(ids: Sequence[int]) -> dict[str, object]:
    return {"count": len(ids), "ids": list(ids[:100])}


def _route_names(letters: Sequence[DeadLetter]) -> str:
    return ", ".join(sorted({letter.route for letter in letters})) or "none"


STATUSES = ("ok", "error", "cached")
_PEOPLE = frozenset(("user", "team", "session", "subject"))  # fields whose text may be an e-mail address
_COST = re.compile(r"\d+(\.\d+)?")
_NOT_EDITABLE: Mapping[type[Record], str] = {
    UnitCostOperation: "a unit-cost record cannot be edited, because the totals of its stream include it; "
    "discard it and send a correction",
    Correction: "a correction is the difference between two states of a call and cannot be edited; retry or "
    "discard it",
    RecalculationEntry: "a recalculation cannot be edited, because its prices already apply; retry or discard it",
}


def edit_record_and_list_changes(
    record: Record, new_fields: Mapping[str, Any], people: People
) -> tuple[Record, Sequence[str]]:
    """
    Return a copy of a record with the given values, and the names of the changed fields. `people` replaces
    e-mail addresses as it does for records from senders. A given cost counts as reported.

    Raises Invalid with the name of a wrong field.
    """
    if refusal := _NOT_EDITABLE.get(type(record)):
        raise NotAllowed(refusal)
    shown = record_to_json(record)
    names = [name for name, value in new_fields.items() if name not in shown or shown[name] != value]
    if not names:
        raise Invalid("the record would not change; to send it unchanged, retry it")
    checks = _CHECKS[type(record)]
    for name in names:
        if name not in checks:
            raise Invalid(
                f"{name[:64]} cannot be changed; the fields of this record that can be changed are "
                f"{', '.join(checks)}"
            )
    changes = {
        name: _to_value_with_recorded_names(checks[name](name, new_fields[name]), name, people)
        for name in names
    }
    if isinstance(record, Inference) and "cost" in changes:
        estimated = "none" if record.estimated_cost is None else "estimated"
        changes["cost_source"] = estimated if changes["cost"] is None else "reported"
    if isinstance(record, HourlyBillingFile):
        changes |= _fields_from_billing_file(changes["body"])
    return msgspec.structs.replace(record, **changes), names


def _to_value_with_recorded_names(value: Any, field_name: str, people: People) -> Any:
    if field_name in _PEOPLE and isinstance(value, str):
        return people.text_for_record(value)
    if not isinstance(value, dict):
        return value
    texts = people.texts_for_record({key: text for key, text in value.items() if isinstance(text, str)})
    return {
        key: texts.get(key, item) for key, item in value.items() if key in texts or not isinstance(item, str)
    }


def _require_short_text_or_null(field_name: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT):
        raise Invalid(f"{field_name} must be text of 1 to {MAX_TEXT} characters, or null")
    return value


def _check_region(name: str, value: Any) -> str | None:
    region = regions.normal_region_name(value) if isinstance(value, str) else None
    if value is not None and region is None:
        raise Invalid(f"{name} must be a region as the provider names it, such as us-east-1 or eu, or null")
    return region


def _required_text(name: str, value: Any) -> str:
    text = _require_short_text_or_null(name, value)
    if text is None:
        raise Invalid(f"{name} is required")
    return text


def _check_tokens(name: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_TOKENS):
        raise Invalid(f"{name} must be a whole number from 0 to {MAX_TOKENS}, or null")
    return value


def _check_cost(name: str, value: Any) -> str | None:
    if value is not None and (
        not isinstance(value, str) or len(value) > MAX_COST_DIGITS or not _COST.fullmatch(value)
    ):
        raise Invalid(f'{name} must be decimal text such as "0.0125", or null')
    return value


def _check_time(name: str, value: Any) -> int | None:
    time = parse_instant(value) if isinstance(value, str) else None
    if value is not None and time is None:
        raise Invalid(f"{name} must be an RFC 3339 time such as 2026-01-31T12:00:00Z, or null")
    return time


def _check_status(name: str, value: Any) -> str:
    if value not in STATUSES:
        raise Invalid(f"{name} must be one of {', '.join(STATUSES)}")
    return str(value)


def _check_tags(name: str, value: Any) -> dict[str, str]:
    checked_tags: dict[str, str] = {}
    for key, text in value.items() if isinstance(value, dict) else [("", None)]:
        if (
            not isinstance(text, str)
            or tags.is_name_of_secret(key)
            or tags.is_credential(text)
            or not tags.put_tag_if_allowed(checked_tags, key, text)
        ):
            raise Invalid(
                f"{name}.{key[:64]} must be text with a short name, and must not be content or a "
                "secret; their number is limited"
            )
    return checked_tags


def _check_data(name: str, value: Any) -> dict[str, Any]:
    texts: dict[str, str] = {}
    for key, item in value.items() if isinstance(value, dict) else [("", None)]:
        if not tags.put_tag_if_allowed(texts, key, item):
            raise Invalid(
                f"{name}.{key[:64]} must be a number, a text or true or false, and must not be "
                "content; their number is limited"
            )
    return dict(value)


def _check_body(name: str, value: Any) -> bytes:
    body = msgspec.json.encode(value)
    drop = billing.read_billing_file(body)
    if drop.errors:
        raise Invalid("; ".join((f"{name} is not a billing file", *drop.errors)))
    return body


def _fields_from_billing_file(body: bytes) -> dict[str, Any]:
    drop = billing.read_billing_file(body)
    return {"month": drop.month, "operation": drop.operation, "rows": drop.rows}


_Check = Callable[[str, Any], Any]
_WHO: Mapping[str, _Check] = dict.fromkeys(("user", "team", "session", "device"), _require_short_text_or_null)
_WHEN: Mapping[str, _Check] = dict.fromkeys(("start_time", "end_time"), _check_time)
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")

_TEXTS = (
    "request_id",
    "trace_id",
    "span_id",
    "provider",
    "operation",
    "request_model",
    "response_model",
    "error_type",
)

_CHECKS: Mapping[type[Record], Mapping[str, _Check]] = {
    Inference: {
        **dict.fromkeys(_TEXTS, _require_short_text_or_null),
        "region": _check_region,
        **_WHEN,
        **dict.fromkeys(_COUNTS, _check_tokens),
        "cost": _check_cost,
        "status": _check_status,
        **_WHO,
        "tags": _check_tags,
    },
    UsageMetric: {
        "model": _require_short_text_or_null,
        "token_type": _require_short_text_or_null,
        **_WHEN,
        **_WHO,
        "tags": _check_tags,
    },
    UsageEvent: {
        "event_type": _required_text,
        "subject": _require_short_text_or_null,
        "start_time": _check_time,
        "data": _check_data,
        "tags": _check_tags,
    },
    HourlyBillingFile: {"body": _check_body},
}
