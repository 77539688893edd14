"""
Spans of the Anthropic SDKs, of frameworks and of the Claude API about one call.

Spans of clients are captured requests with other ids, times and counts: those of `tests/clients/captures`, and those
of `captures` next to this file. The latter are from anthropic 2.14.0, @anthropic-ai/sdk 1.14.0,
@strands-agents/sdk 1.19.0, LiteLLM 1.108.7 and Claude Code 2.1.332, on 2026-11-27. The spans of the Claude API follow
the public reference (platform.claude.com, "OpenTelemetry span reference"), because only Anthropic sends them.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from tests.acceptance.reporters.made_call import MODEL, RESPONSE_MODEL, MadeCall
from tests.clients.capture import PLACE, read

OWN_CAPTURES = Path(__file__).parent / "captures"
SDK_SCOPE = "com.anthropic.sdk."
CONTENT = re.compile(r"(input|output)\.value|.*messages.*")
IDS = re.compile(r"\b(?:msg|req)_[0-9a-f]{24}\b")
COUNTS: dict[str, Callable[[MadeCall], int]] = {
    "gen_ai.usage.input_tokens": lambda call: call.input,
    "gen_ai.usage.output_tokens": lambda call: call.output,
    "gen_ai.usage.total_tokens": lambda call: call.input + call.output,
    "gen_ai.usage.cache_read.input_tokens": lambda call: call.cache_read,
    "gen_ai.usage.cache_write.input_tokens": lambda call: call.cache_write,
    "gen_ai.usage.cache_creation.input_tokens": lambda call: call.cache_write,
    "gen_ai.usage.cache_read_input_tokens": lambda call: call.cache_read,
    "gen_ai.usage.cache_write_input_tokens": lambda call: call.cache_write,
    "gen_ai.usage.details.cache_read_tokens": lambda call: call.cache_read,
    "gen_ai.usage.details.cache_write_tokens": lambda call: call.cache_write,
    "gen_ai.usage.details.cache_read_input_tokens": lambda call: call.cache_read,
    "gen_ai.usage.details.cache_creation_input_tokens": lambda call: call.cache_write,
    "gen_ai.aggregated_usage.input_tokens": lambda call: call.input,
    "gen_ai.aggregated_usage.output_tokens": lambda call: call.output,
    "gen_ai.aggregated_usage.cache_read.input_tokens": lambda call: call.cache_read,
    "gen_ai.aggregated_usage.cache_creation.input_tokens": lambda call: call.cache_write,
    "anthropic.usage.cache_creation.ephemeral_5m_input_tokens": lambda call: call.cache_write,
    "anthropic.usage.cache_creation.ephemeral_1h_input_tokens": lambda call: 0,
    "llm.token_count.prompt": lambda call: call.input,
    "llm.token_count.completion": lambda call: call.output,
    "llm.token_count.total": lambda call: call.input + call.output,
    "llm.token_count.prompt_details.cache_read": lambda call: call.cache_read,
    "llm.token_count.prompt_details.cache_write": lambda call: call.cache_write,
}
# Strands for TypeScript reports Anthropic's own input, without cached tokens
WITHOUT_CACHE = COUNTS | {
    "gen_ai.usage.input_tokens": lambda call: call.fresh,
    "gen_ai.usage.prompt_tokens": lambda call: call.fresh,
    "gen_ai.usage.completion_tokens": lambda call: call.output,
    "gen_ai.usage.total_tokens": lambda call: call.fresh + call.output,
}


class Report(NamedTuple):
    """One request of a reporter about a call."""

    path: str
    content_type: str
    body: bytes


class Place(NamedTuple):
    """The place of a span in a trace: the trace, the span, and the span above it."""

    trace: bytes
    span: bytes
    parent: bytes = b""


def new_root(dice: random.Random) -> Place:
    return Place(dice.randbytes(16), dice.randbytes(8))


def below(dice: random.Random, above: Place) -> Place:
    return Place(above.trace, dice.randbytes(8), above.span)


@dataclass(frozen=True)
class Template:
    """Captured spans of one reporter about one call: the call's own span, and the spans around it."""

    resource: Any
    scope: Any
    spans: Sequence[Any]
    call_span: Any
    counts: Mapping[str, Callable[[MadeCall], int]]


@cache
def template(family: str, run: str, scope: str, name: str, failed: bool, number: int = 0) -> Template:
    """Return the captured spans around the `number`-th span of a scope with this name and outcome."""
    path = OWN_CAPTURES / family / f"{run}.jsonl.gz"
    capture = read(path if path.exists() else PLACE / family / f"{run}.jsonl.gz")
    found = []
    for request in capture.requests:
        if not request.path.endswith("/v1/traces"):
            continue
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            for scoped in resource.scope_spans:
                if not scoped.scope.name.startswith(scope):
                    continue
                for span in scoped.spans:
                    if span.name == name and (span.status.code == Status.STATUS_CODE_ERROR) == failed:
                        around = [one for one in scoped.spans if one.trace_id == span.trace_id]
                        found.append((resource.resource, scoped.scope, around, span))
    counts = WITHOUT_CACHE if family == "strands_js" else COUNTS
    return Template(*found[number], counts)


def minted(template: Template, call: MadeCall, place: Place, dice: random.Random) -> list[Any]:
    """Return the template's spans with the ids, times and counts of a call. The call's span is at `place`."""
    old = template.call_span
    spans = {one.span_id: dice.randbytes(8) for one in template.spans} | {old.span_id: place.span}
    begun_ns, length_ns = old.start_time_unix_nano, old.end_time_unix_nano - old.start_time_unix_nano

    def moved(time_ns: int) -> int:
        return call.moment((time_ns - begun_ns) / max(length_ns, 1))

    made = []
    for captured in template.spans:
        span = Span()
        span.CopyFrom(captured)
        span.trace_id, span.span_id = place.trace, spans[captured.span_id]
        span.parent_span_id = spans.get(captured.parent_span_id, b"")
        if captured is old and place.parent:
            span.parent_span_id = place.parent
        span.start_time_unix_nano = moved(captured.start_time_unix_nano)
        span.end_time_unix_nano = moved(captured.end_time_unix_nano)
        _rewrite(span, template.counts, call)
        made.append(span)
    return made


def _rewrite(span: Any, counts: Mapping[str, Callable[[MadeCall], int]], call: MadeCall) -> None:
    kept = [one for one in span.attributes if not CONTENT.fullmatch(one.key)]
    for one in kept:
        if one.key in counts:
            one.value.int_value = counts[one.key](call)
        elif one.key == "operation.cost":
            one.value.double_value = float(call.cost)
        elif one.key in ("gen_ai.conversation.id", "gen_ai.agent.call.id"):
            one.value.string_value = call.session
        elif one.key in ("gen_ai.event.start_time", "gen_ai.event.end_time"):
            is_end = one.key.endswith("end_time")
            one.value.string_value = iso(span.end_time_unix_nano if is_end else span.start_time_unix_nano)
        elif one.value.WhichOneof("value") == "string_value":
            one.value.string_value = IDS.sub(lambda id: _of(call, id[0]), one.value.string_value)
    exceptions = [event for event in span.events if event.name == "exception"]
    for event in exceptions:
        event.time_unix_nano = span.end_time_unix_nano
    del span.attributes[:], span.events[:]
    span.attributes.extend(kept)
    span.events.extend(exceptions)


def _of(call: MadeCall, id: str) -> str:
    return call.message_id if id.startswith("msg_") else call.request_id


def iso(time_ns: int) -> str:
    return (
        datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def attribute(name: str, value: str | int) -> Any:
    if isinstance(value, int):
        return KeyValue(key=name, value=AnyValue(int_value=value))
    return KeyValue(key=name, value=AnyValue(string_value=value))


# -- the Anthropic SDKs --------------------------------------------------------------------------------------

SDKS = {
    "python": ("anthropic_sdk", f"{SDK_SCOPE}python"),
    "typescript": ("anthropic_sdk_js", f"{SDK_SCOPE}typescript"),
}


def of_sdk(
    call: MadeCall, place: Place, dice: random.Random, *, language: str, streamed: bool, request_id: bool
) -> ResourceSpans:
    """Return the SDK's span. Behind some gateways the response has no `request-id`, so the span has none either."""
    family, scope = SDKS[language]
    number = 1 if call.failed or streamed else 0  # the second failure of a call is a 500
    found = template(family, "calls", scope, "anthropic.messages.create", call.failed, number)
    spans = minted(found, call, place, dice)
    for span in spans:
        if not call.failed:
            span.attributes.append(attribute("gen_ai.usage.reasoning.output_tokens", call.thinking))
        if not request_id:
            kept = [one for one in span.attributes if one.key != "anthropic.request.id"]
            del span.attributes[:]
            span.attributes.extend(kept)
    return ResourceSpans(resource=found.resource, scope_spans=[ScopeSpans(scope=found.scope, spans=spans)])


# -- frameworks ----------------------------------------------------------------------------------------------


class Framework(NamedTuple):
    """A framework: its captures, and whether the SDK's span is below its span or in a trace of its own."""

    family: str
    run: str
    scope: str
    name: str
    holds_sdk: bool
    language: str = "python"
    failures: str | None = None  # the capture that contains failures, if there is one


WITH_ID = {
    "genai": Framework(
        "genai", "messages", "opentelemetry.instrumentation.genai.anthropic", f"chat {MODEL}", True,
        failures="message_failures",
    ),
    "openllmetry": Framework(
        "openllmetry", "messages", "opentelemetry.instrumentation.anthropic", "anthropic.chat", False,
        failures="message_failures",
    ),
    "pydantic_ai": Framework("pydantic_ai", "answers", "pydantic-ai", f"chat {MODEL}", True),
}  # fmt: skip
WITHOUT_ID = {
    "openinference": Framework(
        "openinference", "messages", "openinference.instrumentation.anthropic", "messages.create", True,
        failures="message_failures",
    ),
    "langchain": Framework(
        "langchain", "answers", "openinference.instrumentation.langchain", "ChatAnthropic", False,
        failures="failures",
    ),
    "strands_js": Framework(
        "strands_js", "answer_and_failure", "clients", "chat", False, "typescript", "answer_and_failure"
    ),
    "openinference_stream": Framework(
        "openinference", "managed_stream", "openinference.instrumentation.anthropic", "messages.stream", False
    ),
}  # fmt: skip


def of_framework(framework: Framework, call: MadeCall, place: Place, dice: random.Random) -> ResourceSpans:
    run = framework.failures if call.failed else framework.run
    assert run is not None
    found = template(framework.family, run, framework.scope, framework.name, call.failed)
    spans = minted(found, call, place, dice)
    return ResourceSpans(resource=found.resource, scope_spans=[ScopeSpans(scope=found.scope, spans=spans)])


# -- the Claude API ------------------------------------------------------------------------------------------

# Which spans state the usage. A run of the model has the ids of the call, or only the attributes that all spans have.
ON_REQUEST, ON_RUN, WITHOUT_IDS, TWO_RUNS = (
    "request",
    "run as well",
    "run without ids as well",
    "two runs as well",
)
USAGES = (ON_REQUEST, ON_RUN, WITHOUT_IDS, TWO_RUNS)
IDS_OF_A_CALL = ("anthropic.request.id", "gen_ai.response.id")


def of_platform(call: MadeCall, place: Place, dice: random.Random, *, usage: str) -> ResourceSpans:
    """
    Return the spans of the Claude API: SERVER for the request, and INTERNAL for each run of the model. There are
    two runs if the API called a tool between them.
    """
    shared = {
        "gen_ai.provider.name": "anthropic",
        "anthropic.organization.id": "3d1d0c7e-91a2-4b0f-8a6a-0f6a1c9b7f10",
        "anthropic.workspace.id": "wrkspc_01JwQvzr7rXLA5AGx3HKfFUJ",
        "anthropic.request.id": call.request_id,
        "http.request.method": "POST",
        "http.route": "/v1/messages",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        **({"error.type": "api_error"} if call.failed else _answer(call)),
    }
    status = Status.STATUS_CODE_ERROR if call.failed else Status.STATUS_CODE_OK
    attributes = shared | {"http.response.status_code": 500 if call.failed else 200}
    if not call.failed:
        attributes |= _usage(call)
    name, times = "anthropic.messages.create", (call.moment(0.1), call.moment(0.9))
    spans = [_platform_span(name, Span.SPAN_KIND_SERVER, place, attributes, status, times)]
    parts = _parts(call) if usage == TWO_RUNS and not call.failed else [call]
    for part in parts:
        on_run = {} if usage == ON_REQUEST or call.failed else _usage(part)
        attributes = shared | on_run
        if usage in (WITHOUT_IDS, TWO_RUNS):
            attributes = {name: value for name, value in attributes.items() if name not in IDS_OF_A_CALL}
        run = below(dice, place)
        times = part.moment(0.15), part.moment(0.85)
        name, kind = "anthropic.model_run", Span.SPAN_KIND_INTERNAL
        spans.append(_platform_span(name, kind, run, attributes, status, times))
    return _platform_spans(spans)


def _parts(call: MadeCall) -> list[MadeCall]:
    """Divide a call into two runs of the model. The counts of the two add up to those of the call."""
    names = ("input", "output", "cache_read", "cache_write", "thinking")
    halves = {name: getattr(call, name) // 2 for name in names}
    rest = {name: getattr(call, name) - half for name, half in halves.items()}
    return [
        replace(call, **halves, end_ns=call.moment(0.5)),
        replace(call, **rest, start_ns=call.moment(0.5)),
    ]


def platform_test(dice: random.Random, time_ns: int) -> ResourceSpans:
    """Return the span that Anthropic sends if somebody tests a destination."""
    times = (time_ns, time_ns + 1)
    attributes: dict[str, str | int] = {"gen_ai.provider.name": "anthropic"}
    span = _platform_span(
        "anthropic.test", Span.SPAN_KIND_INTERNAL, new_root(dice), attributes, Status.STATUS_CODE_OK, times
    )
    return _platform_spans([span])


def _answer(call: MadeCall) -> dict[str, str | int]:
    return {
        "gen_ai.response.id": call.message_id,
        "gen_ai.response.model": RESPONSE_MODEL,
        "anthropic.response.service_tier": "standard",
        "anthropic.message.stop_reason": "end_turn",
    }


def _usage(call: MadeCall) -> dict[str, str | int]:
    return {
        "gen_ai.usage.input_tokens": call.input,
        "gen_ai.usage.output_tokens": call.output,
        "gen_ai.usage.cache_read.input_tokens": call.cache_read,
        "gen_ai.usage.cache_write.input_tokens": call.cache_write,
        "anthropic.usage.cache_creation.ephemeral_5m_input_tokens": call.cache_write,
        "anthropic.usage.cache_creation.ephemeral_1h_input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": call.thinking,
    }


def _platform_span(
    name: str,
    kind: Any,
    place: Place,
    attributes: Mapping[str, str | int],
    status: Any,
    times: tuple[int, int],
) -> Any:
    return Span(
        name=name,
        kind=kind,
        trace_id=place.trace,
        span_id=place.span,
        parent_span_id=place.parent,
        start_time_unix_nano=times[0],
        end_time_unix_nano=times[1],
        attributes=[attribute(*one) for one in attributes.items()],
        status=Status(code=status),
    )


def _platform_spans(spans: list[Any]) -> ResourceSpans:
    made = ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])
    made.resource.attributes.append(attribute("service.name", "claude-platform"))
    made.scope_spans[0].scope.name = "com.anthropic.claude-platform"
    return made


# -- requests ------------------------------------------------------------------------------------------------


def split(spans: ResourceSpans) -> Iterator[ResourceSpans]:
    """Return each span in a request of its own, as a collector may cut a batch."""
    for scoped in spans.scope_spans:
        for span in scoped.spans:
            one = ScopeSpans(scope=scoped.scope, spans=[span])
            yield ResourceSpans(resource=spans.resource, scope_spans=[one])


def trace_request(spans: ResourceSpans, *, as_json: bool) -> Report:
    request = ExportTraceServiceRequest(resource_spans=[spans])
    if not as_json:
        return Report("/v1/traces", "application/x-protobuf", request.SerializeToString())
    body = MessageToDict(request)
    for resource in body["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:  # OTLP/JSON writes ids of spans in hexadecimal digits
                for name in ("traceId", "spanId", "parentSpanId"):
                    span[name] = base64.b64decode(span.get(name, "")).hex()
    return Report("/v1/traces", "application/json", json.dumps(body).encode())
