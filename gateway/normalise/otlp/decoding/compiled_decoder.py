"""
Decoder of spans in OTLP/protobuf with the compiled module.

The module decodes what is laid out in the usual way. Python decodes the rest: a value, a span or a whole piece. So
spans and errors are those of `protobuf_decoder`, which has all rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, Final

from gateway.core.errors import Refusal
from gateway.normalise.otlp import admission
from gateway.normalise.otlp.decoding import protobuf_decoder, wire
from gateway.normalise.otlp.decoding.pieces import Malformed, PayloadPiece
from gateway.normalise.otlp.decoding.protobuf_decoder import (
    NO_EVENTS,
    decode_events,
    decode_in_place,
    decode_resource,
    decode_span,
)
from gateway.normalise.otlp.model import Resource, Scope, Span
from gateway.normalise.outcome import MALFORMED, RejectedPayloadItem
from gateway.normalise.payload.body_limits import BodyReadLimits
from spool.packed.native import DecodedResource, DecodedSpan, NativeModule, RequestReading

# how the module decodes a value, by the decoding rule of its name; Python decodes values with any other rule
_SCALAR, _DROPPED, _ENCODED = range(3)
_RULES: Final = {admission.SCALAR: _SCALAR, admission.DROPPED: _DROPPED}
_NO_RESOURCE, _NO_SCOPE = Resource({}), Scope("", "")
_UNCHECKED_PARTS: Final = 64  # parts that Python decodes between two checks of the time


def _module_rule_of_attribute(name: str) -> int:
    # an attribute without a name is never kept
    return _RULES.get(admission.decoding_rule_of_attribute(name), _ENCODED) if name else _DROPPED


class CompiledTracesDecoder:
    """
    Decodes the spans of requests with the compiled module. `spans` counts them by their decoder: `module` or
    `python`.
    """

    def __init__(self, native: NativeModule) -> None:
        self.spans = Counter(module=0, python=0)
        self._native = native
        self._decoder = native.request_decoder(_module_rule_of_attribute)

    def __call__(
        self, body: bytes, read_limits: BodyReadLimits | None = None
    ) -> Iterator[PayloadPiece[Span]]:
        return protobuf_decoder.traces(body, read_limits, self._decode_piece)

    def _decode_piece(
        self, encoded: bytes, first_index: int, read_limits: BodyReadLimits
    ) -> Iterator[PayloadPiece[Span]]:
        begin, rest_limits = first_index, read_limits
        try:
            reading = self._decoder.open(encoded) if self._native.is_on else None
            if reading is not None:
                _count_items(reading, encoded, read_limits)
                rest_limits = read_limits.limits_for_next_pass()
                if read_limits.count_work_and_check_turn(len(encoded)):
                    yield PayloadPiece()
                for part in self._decode_with_module(reading, begin, read_limits):
                    begin += part.received
                    yield part
                return
        except self._native.panic as error:
            self._native.count_fault(error)
        # after a failure, the spans before `begin` are already decoded
        for part in protobuf_decoder.decode_spans_of_piece(encoded, first_index, rest_limits):
            end = first_index + part.received
            part.received = max(0, end - max(begin, first_index))
            part.items = [item for item in part.items if item[0] >= begin]
            part.rejects = [reject for reject in part.rejects if reject.item >= begin]
            self.spans["python"] += part.received
            first_index = end
            yield part

    def _decode_with_module(
        self, reading: RequestReading, first_index: int, read_limits: BodyReadLimits
    ) -> Iterator[PayloadPiece[Span]]:
        resource, scope = _NO_RESOURCE, _NO_SCOPE
        part: PayloadPiece[Span] = PayloadPiece()
        at = first_index
        while (groups := reading.take()) is not None:
            first_of_groups, by_python, parts = at, 0, 0
            for new_resource, new_scope, spans in groups:
                if new_resource is not None:
                    resource = yield from _finish_resource(new_resource, read_limits)
                if new_scope is not None:
                    scope = Scope(*new_scope)
                for span in spans:
                    try:
                        if isinstance(span, bytes):
                            by_python += 1
                            parts += _UNCHECKED_PARTS
                            finished = yield from decode_span(resource, scope, span, read_limits)
                        else:
                            parts += len(span[8] or ())
                            finished = _build_span(resource, scope, span)
                            if (events := span[9]) is not None:
                                attributes = finished.attributes
                                finished.events = yield from decode_events(events, attributes, read_limits)
                        part.items.append((at, finished))
                    except Malformed as error:
                        part.rejects.append(RejectedPayloadItem(at, MALFORMED, f"spans[{at}]{error}"))
                    at += 1
                    if parts >= _UNCHECKED_PARTS:
                        if read_limits.count_work_and_check_turn(0, parts):
                            part.received = at - first_index
                            yield part
                            first_index, part = at, PayloadPiece()
                        parts = 0
            self.spans["python"] += by_python
            self.spans["module"] += at - first_of_groups - by_python
            if read_limits.count_work_and_check_turn(0, at - first_of_groups):
                part.received = at - first_index
                yield part
                first_index, part = at, PayloadPiece()
        part.received = at - first_index
        yield part


def _count_items(reading: RequestReading, encoded: bytes, read_limits: BodyReadLimits) -> None:
    try:
        read_limits.count_items(reading.items, len(encoded))
    except Refusal:
        # the error of a damaged piece comes first
        wire.TracesRequest.FromString(encoded)
        raise


def _build_span(resource: Resource, scope: Scope, decoded: DecodedSpan) -> Span:
    name, trace_id, span_id, parent_id, start, end, attributes, status, encoded_names, _ = decoded
    if encoded_names is not None:
        decode_in_place(attributes, encoded_names)
    return Span(
        resource, scope, name, trace_id, span_id, parent_id, start, end, attributes, status, NO_EVENTS
    )


def _finish_resource(
    decoded: bytes | DecodedResource, read_limits: BodyReadLimits
) -> Generator[PayloadPiece[Any], None, Resource]:
    if isinstance(decoded, bytes):
        return (yield from decode_resource(decoded, read_limits))
    attributes, names = decoded
    protobuf_decoder.decode_in_place(attributes, names or ())
    return Resource(attributes)
