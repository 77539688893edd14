"""
Spans that tell the usage of a call beside it, under the same parent: they repeat the call and count nothing.

A guessed call, which names neither an operation nor a kind, repeats a sibling that says to be a call. A span
of usage alone never counts; without a sibling it is shown to the operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.spans.trace_tree import Key

MODEL_CALL = "model_call"  # what the usage of a span is of, where it is that of a call

Place = tuple[str | None, Key | None]  # trace id and parent
_Told = tuple[Place, int | None]  # with the output


class UsageSpan(NamedTuple):
    """A span that tells the usage of the call beside it."""

    span_id: str | None
    names: tuple[str, ...]  # of its attributes
    place: Place
    output: int | None
    is_of_call: bool  # False: its usage is not that of a call to a model


def find_repeated(calls: Sequence[tuple[SpanCall, Key | None]]) -> dict[int, SpanCall]:
    """Find the sibling that each guessed call repeats, by the place of the guessed call."""
    siblings = _calls_by_place(calls)
    found: dict[int, SpanCall] = {}
    for call, parent in calls:
        if call.is_guess and call.has_usage:
            beside = siblings.get(((call.record.trace_id, parent), call.tokens.output), ())
            repeated = next((other for other in beside if _is_same(call, other)), None)
            if repeated is not None:
                found[call.place] = repeated
    return found


def without_call(spans: Iterable[UsageSpan], calls: Sequence[tuple[SpanCall, Key | None]]) -> list[UsageSpan]:
    """The spans that stand beside no call with their output."""
    siblings = _calls_by_place(calls)
    return [span for span in spans if not (span.is_of_call and (span.place, span.output) in siblings)]


def _calls_by_place(calls: Sequence[tuple[SpanCall, Key | None]]) -> Mapping[_Told, list[SpanCall]]:
    found: dict[_Told, list[SpanCall]] = {}
    for call, parent in calls:
        if not call.is_guess and call.has_usage:
            found.setdefault(((call.record.trace_id, parent), call.tokens.output), []).append(call)
    return found


def _is_same(guess: SpanCall, call: SpanCall) -> bool:
    cache = (call.tokens.cache_read or 0) + (call.tokens.cache_write or 0)
    inputs = (call.tokens.input, (call.tokens.input or 0) - cache)
    return guess.tokens.input in inputs and not _models(guess).isdisjoint(_models(call))


def _models(call: SpanCall) -> set[str]:
    """The models that it names, without the provider in front."""
    named = (call.record.request_model, call.record.response_model)
    return {model.rpartition("/")[2].lower() for model in named if model is not None}
