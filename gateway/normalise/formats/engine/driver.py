"""
Reading of a body by one format, in slices, and the response to its sender.

Every item is counted. A bad item is rejected, and the other items still count. OTLP items that are rows of a
gateway's own log are read in the same way.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gateway.core.errors import Refusal
from gateway.normalise.formats.engine.declaration import (
    Answering,
    FormatAnswer,
    ItemFormat,
    Items,
    ReadCall,
    ReadTokenCount,
    Unreadable,
    build_json_answer,
    is_model_call,
    origins_of_known_fields,
)
from gateway.normalise.formats.list import BY_NAME, FORMATS, recognise_item_format
from gateway.normalise.outcome import (
    MALFORMED,
    MERGED,
    NOT_AI,
    UNRECOGNISED_AI,
    ReadOptions,
    ReadOutcome,
    RejectedPayloadItem,
)
from gateway.normalise.payload import body_limits
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import (
    BodyReadLimits,
    has_any_of_byte_strings,
    refuse_too_many_items,
)
from gateway.normalise.payload.items import NestedPayloadUnpacker
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.ai_names import ai_names_with_values
from gateway.normalise.reading.tags import remove_unknown_long_tags
from gateway.normalise.reading.values import BadValue, decode_object
from spool.identity import AS_GATEWAY, RecordIdentity, build_relayed_report

MAX_SHAPES: Final = 1000  # maximum names of unrecognized items that an operator can see


def read_body_items(
    format: ItemFormat, body: bytes, *, options: ReadOptions, read_limits: BodyReadLimits
) -> Generator[None, None, ReadOutcome]:
    """Read the items of a body into an outcome. Yields so that the event loop can run."""
    outcome = ReadOutcome(why=[] if options.explain else None, keep_tags=options.keep_tags)
    unfolding = NestedPayloadUnpacker(read_limits)
    counted = partial(_unwrapped_items, format, body, unfolding)
    is_packed = yield from has_any_of_byte_strings(body, format.signs_of_packing)
    if (yield from refuse_too_many_items(body, counted, read_limits, is_packed=is_packed)):
        # the first pass has reserved memory for the unpacked data, so the next pass reserves none
        unfolding = NestedPayloadUnpacker(read_limits.limits_for_next_pass())
    for item in _unwrapped_items(format, body, unfolding):
        if not len(item):
            yield
            continue
        read_limits.count_items(1, len(item))
        if read_limits.count_work_and_check_turn(len(item)):
            outcome.pack_finished_part_if_full()
            yield
        _read_item_into_outcome(outcome, format, item)
    return outcome


def _unwrapped_items(format: ItemFormat, body: bytes, nested_unpacking: NestedPayloadUnpacker) -> Items:
    for raw in payload.items_of_body(body):
        if format.unwrap is None or not len(raw):
            yield raw
        else:
            yield from nested_unpacking.count_wrapper_as_item(raw)
            yield from format.unwrap(raw, nested_unpacking)


def _read_item_into_outcome(outcome: ReadOutcome, format: ItemFormat, item: payload.Raw | Unreadable) -> None:
    index = outcome.received
    outcome.received += 1
    if isinstance(item, Unreadable):
        return outcome.reject_item(index, MALFORMED, item.message)
    try:
        event = decode_object(item, format.event)
        calls = read_event_calls(format, event)
    except payload.UNREADABLE as error:
        if payload.is_null(item):  # skip nulls, which the arrays of LiteLLM contain
            outcome.ignored[NOT_AI] += 1
            return None
        return outcome.reject_item(index, MALFORMED, payload.describe_decoding_error(error))
    if not calls:
        return _ignore_item(outcome, format, item, event)
    # an item with several calls: all but the first count as split
    outcome.split += len(calls) - 1
    for call in calls:
        if isinstance(call, BadValue):
            outcome.reject_item(index, call.reason, call.message)
            continue
        why = None if outcome.why is None else origins_of_known_fields(format.origins, call.record)
        tags = dict(call.record.tags)
        outcome.left_out += call.left_out + remove_unknown_long_tags(tags, outcome.keep_tags)
        call.record.tags = tags
        outcome.add_record(call.record, _identity_with_relay(call), why)
    return None


def _identity_with_relay(call: ReadCall | ReadTokenCount) -> RecordIdentity:
    """
    Return the dedup key of a call. If the call names a session, the key gets a second id for the session's
    request, because the assistant that sent the call through the gateway may report it as well.
    """
    identity = call.identity
    if isinstance(call, ReadTokenCount) or call.record.session is None or identity.relay is not None:
        return identity
    session, names_request = call.record.session, call.names_request
    return identity._replace(
        relay=build_relayed_report(
            call.record, session, report_kind=AS_GATEWAY, states_request_id=names_request
        )
    )


def read_event_calls(format: ItemFormat, event: Any) -> list[ReadCall | ReadTokenCount | BadValue]:
    """
    Return the calls of one item, its token counts without a call, and the errors of its values that cannot be
    counted. An item without model and tokens is not a call.
    """
    try:
        return [
            call
            for call in format.calls(event)
            if not isinstance(call, ReadCall) or call.is_certain or is_model_call(call.record)
        ]
    except BadValue as error:
        return [error]


def _ignore_item(outcome: ReadOutcome, format: ItemFormat, item: payload.Raw, event: Any) -> None:
    """
    Count an item as ignored. If the item is unrecognized, also note its member names, so that an operator
    sees them.

    An item is unrecognized if it has members typical of another format, or names of models or tokens that no
    rule reads.
    """
    members = payload.undecoded_members(item)
    names: list[str] = []
    if recognise_item_format(members) in (None, format.name):
        why = format.ignored_as(event) if format.ignored_as else None
        if why is not None or not (names := ai_names_with_values(members)):
            outcome.ignored[why or NOT_AI] += 1
            if why == MERGED:
                outcome.note_dropped_duplicate(
                    f"item {outcome.received - 1}", "repeats the item of the same call that has the counts"
                )
            return
    outcome.ignored[UNRECOGNISED_AI] += 1
    if len(outcome.unrecognised) < MAX_SHAPES:
        outcome.note_unrecognised_names(members.keys() - set(names), leading_names=names)


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def answer_to_payload(name: str, body: bytes, outcome: ReadOutcome, *, now: float) -> Answering:
    """
    Build the response to a payload that has been stored. `body` is decompressed.

    A payload in which every item is malformed is refused with 400, unless its format answers each item.
    """
    format = BY_NAME.get(name)  # format of this name, or None for OTLP
    if _is_every_item_malformed(outcome) and not (format and format.answers_each_item):
        first = outcome.rejects[0]
        message = f"every item is malformed; the first ({first.item}): {first.message}"
        return answer_to_refused_payload(
            NO_HEADERS, body, Refusal(400, "bad_payload", message), now=now, format=name
        )
    own = format.answer(body, outcome, now) if format and format.answer else None
    if isinstance(own, Generator):
        own = yield from own
    return own or build_json_answer(
        200,
        {
            "format": name,
            "accepted": outcome.count + len(outcome.records) + len(outcome.points),
            "ignored": outcome.ignored.total(),
            "rejected": msgspec.Raw(
                (yield from body_limits.encode_list_in_turns(map(_fields_of_reject, outcome.rejects)))
            ),
            **({"warnings": outcome.warnings} if outcome.warnings else {}),
        },
    )


def answer_to_refused_payload(
    headers: Mapping[str, str], body: bytes, refusal: Refusal, *, now: float, format: str | None = None
) -> FormatAnswer:
    """Return the response to a refused body. `format` is None if it is not known yet."""
    for known_format in FORMATS:
        own = (
            known_format.refuse(headers, body, refusal, now)
            if known_format.refuse and format in (None, known_format.name)
            else None
        )
        if own is not None:
            return own
    return build_json_answer(refusal.status, {"error": {"type": refusal.type, "message": refusal.message}})


def _is_every_item_malformed(outcome: ReadOutcome) -> bool:
    # Impossible figures do not cause a refusal, because Firehose and Kong would repeat a refused request forever.
    are_malformed = all(reject.reason == MALFORMED for reject in outcome.rejects)
    return 0 < outcome.received + outcome.split == len(outcome.rejects) and are_malformed


def _fields_of_reject(reject: RejectedPayloadItem) -> dict[str, object]:
    return {"item": reject.item, "reason": reject.reason, "message": reject.message}


_METADATA = "metadata."


def add_calls_of_gateway_row(
    format: ItemFormat,
    item_index: int,
    item: Any,
    outcome: ReadOutcome,
    *,
    tags: Mapping[str, str],
    device: str | None,
    version: str,
) -> bool:
    """
    Add the calls of an OTLP item that is a row of a gateway's own table or log. Each attribute of the item
    is a column.

    Return False if the item is not a call. `tags` and `device` come from the resource of the item.
    """
    calls = read_event_calls(format, _event_from_attributes(format.event, item.attributes))
    for call in calls:
        if isinstance(call, BadValue):
            outcome.reject_item(item_index, call.reason, f"item {item_index}: {call.message}")
            continue
        record = call.record
        own = dict(record.tags)
        outcome.left_out += call.left_out + tag_rules.remove_unknown_long_tags(own, outcome.keep_tags)
        for name, value in tags.items():
            outcome.left_out += name not in own and not tag_rules.put_tag_if_allowed(own, name, value)
        record.tags = own
        why = None if outcome.why is None else origins_of_known_fields(format.origins, record)
        outcome.add_record(record, _identity_with_relay(call), why, device=device, version=version)
    return bool(calls)


def _event_from_attributes(type: type[msgspec.Struct], attributes: Mapping[str, Any]) -> msgspec.Struct:
    columns = {
        field: attributes[column]
        for field, column in _fields_with_encoded_names(type)
        if column in attributes
    }
    if "metadata" in type.__struct_fields__:
        metadata_names = [name for name in attributes if name.startswith(_METADATA)]
        metadata = {name.removeprefix(_METADATA): attributes[name] for name in metadata_names}
        if metadata:
            columns["metadata"] = metadata
    return type(**columns)


@cache
def _fields_with_encoded_names(type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    fields = msgspec.structs.fields(type)
    return tuple((field.name, field.encode_name) for field in fields if field.name != "metadata")
