"""
Calls that stand alone in their request: what reading and booking one gives, in one step.

The rules of booking are those of `SpanReader`; a form holds only if it gives what they give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from gateway.normalise.memory.forms import SpanForm, Varying, sum_of
from gateway.normalise.options import Options
from gateway.normalise.otlp.callers import NO_CALLER, Caller, nearest
from gateway.normalise.otlp.model import Resource, Scope
from gateway.normalise.otlp.spans.calls import SpanCall
from gateway.normalise.otlp.spans.reader import SpanReader
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading.tokens import set_counts
from spool.identity import Identity, is_long, of_call, of_response
from spool.record import Inference

_COUNTS: Final = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "cache_write_1h_tokens",
)  # fmt: skip
_CALLER: Final = Caller.__struct_fields__
_copied: Final[Callable[[Inference], Inference]] = Inference.__copy__  # type: ignore[attr-defined]
_identity: Final = tuple.__new__
_PLAIN: Final = (), True, (), (), (), False  # of an identity, behind its id


class CallAlone(msgspec.Struct, frozen=True):
    """
    A call of a kind, or a span of one that is none (`record` is None then).

    Places are those of `Varying.values`.
    """

    record: Inference | None
    fields: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]
    counts: tuple[tuple[str, int, tuple[int, ...]], ...]
    response_id: str | None
    response_place: int  # -1: it does not vary
    shared_id: str | None
    shared_place: int
    own_id: str | None
    device: str | None
    ignored: str | None
    shown: tuple[str, ...] | None
    left_out: int

    def book(self, outcome: Outcome, varying: Sequence[Any], counts: Sequence[int]) -> None:
        """Add to the outcome what the span gives; its resource was entered."""
        outcome.left_out += self.left_out
        template = self.record
        if template is None:
            if self.ignored is not None:
                outcome.ignored[self.ignored] += 1
            if self.shown is not None:
                outcome.unrecognised.append(self.shown)
            return
        record = _copied(template)
        for name, place in self.fields:
            setattr(record, name, varying[place])
        tags = record.tags = template.tags.copy()
        for name, place in self.tags:
            tags[name] = varying[place]
        for name, stated, factors in self.counts:
            setattr(record, name, counts[stated] if stated >= 0 else sum_of(factors, counts))
        place = self.response_place
        response_id = varying[place] if place >= 0 else self.response_id
        if response_id and record.status != "cached" and is_long(response_id):
            identity: Identity = _identity(Identity, (of_response(response_id), *_PLAIN))
        else:
            place, own = self.shared_place, self.own_id
            shared_id = varying[place] if place >= 0 else self.shared_id
            identity = of_call(
                record, response_id=response_id, shared_id=shared_id, span=own is None, own_id=own
            )
        outcome.add(record, identity, device=self.device)


def are_apart(rows: Sequence[Sequence[Any]]) -> bool:
    """True if no span comes twice, and none is below another one; `rows` are those of the module."""
    ids = {row[2] for row in rows}
    return len(ids) == len(rows) and None not in ids and ids.isdisjoint([row[3] for row in rows])


def alone_of(
    form: SpanForm, resource: Resource, scope: Scope, varying: Sequence[Varying], options: Options
) -> CallAlone | None:
    """Return what a form makes of a span that stands alone; None if booking it takes more than this."""
    call = form.read.call
    found = _nothing(form) if call is None else _call(form, call)
    if found is None:
        return None
    holds = all(is_booked_as(found, form, resource, scope, one, options) for one in varying)
    return found if holds else None


def _nothing(form: SpanForm) -> CallAlone:
    read = form.read
    return CallAlone(
        None, (), (), (), None, -1, None, -1, None, None, read.ignored, read.shown, read.left_out
    )  # fmt: skip


def _call(form: SpanForm, call: SpanCall) -> CallAlone | None:
    own = dict(form.call)
    has_more = call.is_linked or call.is_logged or call.is_guess or call.is_of_sdk or call.agent is not None
    if has_more or not own.keys() <= {"response_id", "shared_id"} or call.resource_caller.session is not None:
        return None
    record, fields = _copied(call.record), dict(form.record)
    record.tags = call.record.tags.copy()
    caller = nearest(call.caller, call.resource_caller)
    slots = {_CALLER[at]: place for at, place in form.caller}
    if caller is not NO_CALLER or slots:
        for name in _CALLER:
            fields.pop(name, None)
            setattr(record, name, getattr(caller, name))
        fields |= slots
    set_counts(record, call.tokens)
    if any(at >= len(_COUNTS) for at, _, _ in form.tokens):
        return None
    counts = tuple([(_COUNTS[at], stated, factors) for at, stated, factors in form.tokens])
    return CallAlone(
        record,
        tuple(fields.items()),
        form.tags,
        counts,
        call.response_id,
        own.get("response_id", -1),
        call.shared_id,
        own.get("shared_id", -1),
        call.own_id,
        call.device,
        None,
        None,
        form.read.left_out,
    )


def is_booked_as(
    alone: CallAlone, form: SpanForm, resource: Resource, scope: Scope, slots: Varying, options: Options
) -> bool:
    """True if the reader books the same."""
    by_rules, found = Outcome(keep_tags=options.keep_tags), Outcome(keep_tags=options.keep_tags)
    reader = SpanReader(by_rules, options)
    reader.enter(resource, scope)
    reader.take_read(0, form.read_span(slots.values, slots.counts))
    for _ in reader.finish():
        pass
    SpanReader(found, options).enter(resource, scope)
    alone.book(found, slots.values, slots.counts)
    return by_rules == found
