"""Reads the items of a body by one format, in slices. Every item is counted; a bad one is rejected alone."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Final

from gateway.normalise.formats.engine.declaration import Call, Count, ItemFormat, Items, Unreadable, explained
from gateway.normalise.formats.engine.recognise import format_of
from gateway.normalise.formats.engine.rules import is_call
from gateway.normalise.options import Options
from gateway.normalise.outcome import MALFORMED, MERGED, NOT_AI, UNRECOGNISED_AI, Outcome
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import Allowance
from gateway.normalise.payload.item_count import check_count, has_any
from gateway.normalise.payload.unfolding import Unfolding
from gateway.normalise.reading.ai_names import ai_names
from gateway.normalise.reading.tags import drop_free_texts
from gateway.normalise.reading.values import BadValue, decoded

MAX_SHAPES: Final = 1000  # of items of other formats, for the operator to see


def read(
    format: ItemFormat, body: bytes, *, options: Options, allowance: Allowance
) -> Generator[None, None, Outcome]:
    """Read every item of the body; each `next` works through a slice of them."""
    outcome = Outcome(why=[] if options.explain else None, keep_tags=options.keep_tags)
    unfolding = Unfolding(allowance)
    counted = partial(_items, format, body, unfolding)
    is_packed = yield from has_any(body, format.signs_of_packing)
    if (yield from check_count(body, counted, allowance, is_packed=is_packed)):
        unfolding = Unfolding(allowance.again())  # what unfolds is held already
    for item in _items(format, body, unfolding):
        if not len(item):
            yield
            continue
        allowance.count(1, len(item))
        if allowance.is_due(len(item)):
            outcome.pack()
            yield
        _take(outcome, format, item)
    return outcome


def _items(format: ItemFormat, body: bytes, unfolding: Unfolding) -> Items:
    for raw in payload.items(body):
        if format.unwrap is None or not len(raw):
            yield raw
        else:
            yield from unfolding.take_off(raw)
            yield from format.unwrap(raw, unfolding)


def _take(outcome: Outcome, format: ItemFormat, item: payload.Raw | Unreadable) -> None:
    index = outcome.received
    outcome.received += 1
    if isinstance(item, Unreadable):
        return outcome.reject(index, MALFORMED, item.message)
    try:
        event = decoded(item, format.event)
        calls = calls_of(format, event)
    except payload.UNREADABLE as error:
        if payload.is_null(item):  # LiteLLM's arrays hold them
            outcome.ignored[NOT_AI] += 1
            return None
        return outcome.reject(index, MALFORMED, payload.problem(error))
    if not calls:
        return _pass_over(outcome, format, item, event)
    outcome.split += len(calls) - 1  # each beyond the first was split off
    for call in calls:
        if isinstance(call, BadValue):
            outcome.reject(index, call.reason, call.message)
            continue
        why = None if outcome.why is None else explained(format.origins, call.record)
        tags = dict(call.record.tags)
        outcome.left_out += call.left_out + drop_free_texts(tags, outcome.keep_tags)
        call.record.tags = tags
        outcome.add(call.record, call.identity, why)
    return None


def calls_of(format: ItemFormat, event: Any) -> list[Call | Count | BadValue]:
    """The calls of one item, and what of it cannot be counted. What has neither a model nor tokens is not a call."""
    try:
        return [
            found
            for found in format.calls(event)
            if not isinstance(found, Call) or found.is_certain or is_call(found.record)
        ]
    except BadValue as error:
        return [error]


def _pass_over(outcome: Outcome, format: ItemFormat, item: payload.Raw, event: Any) -> None:
    """
    Ignore an item without a call. An operator is shown the names of one that is not understood: it has
    another format's sign, or names of a model or of tokens that nothing took.
    """
    members = payload.peek(item)
    names: list[str] = []
    if format_of(members) in (None, format.name):
        why = format.ignored_as(event) if format.ignored_as else None
        if why is not None or not (names := ai_names(members)):
            outcome.ignored[why or NOT_AI] += 1
            if why == MERGED:
                outcome.drop(
                    f"item {outcome.received - 1}", "repeats the item of the same call that has the figures"
                )
            return
    outcome.ignored[UNRECOGNISED_AI] += 1
    if len(outcome.unrecognised) < MAX_SHAPES:
        outcome.show_shape(members.keys() - set(names), of=names)
