"""
Reading of a body by one format, in slices, and the response to its sender.

Every item is counted. A bad item is rejected, and the other items still count.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gateway.core.errors import Refusal
from gateway.normalise.formats.engine.declaration import (
    Answering,
    FormatAnswer,
    ItemFormat,
    Items,
    Unreadable,
    build_json_answer,
    identity_with_relay,
    origins_of_known_fields,
    read_event_calls,
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
from gateway.normalise.reading.ai_names import ai_names_with_values
from gateway.normalise.reading.tags import remove_unknown_long_tags
from gateway.normalise.reading.values import BadValue, decode_object

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
        outcome.add_record(call.record, identity_with_relay(call), why)
    return None


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
