"""Spans that wait in memory to be learned hold no content."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.normalise.memory.pace import remove_content_from_span, span_attribute_names

CONTENT = "ask about Ann"


def test_a_waiting_span_has_no_content() -> None:
    """Only the names of attributes with content stay. Every other place that may hold content is emptied."""
    text = AnyValue(string_value=CONTENT)
    content = KeyValue(key="gen_ai.input.messages", value=text)
    span = Span(
        name="chat",
        trace_state=CONTENT,
        attributes=[content, KeyValue(key="gen_ai.request.model", value=AnyValue(string_value="gpt-4o"))],
        events=[Span.Event(name=CONTENT, attributes=[content])],
        links=[Span.Link(trace_state=CONTENT, attributes=[content])],
        status=Status(message=CONTENT),
    )
    waiting = remove_content_from_span(span.SerializeToString(), lambda _: False)
    assert CONTENT.encode() not in waiting
    assert {"gen_ai.input.messages", "gen_ai.request.model"} == span_attribute_names(waiting)
