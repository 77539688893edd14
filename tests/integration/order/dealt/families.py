"""
Families of clients: for each join in docs/promises/ordering.md there is a family with reports that must join, next to
calls that must not.
"""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import span, traces
from tests.integration.order import test_further_names as further
from tests.integration.order import test_opencode as opencode
from tests.integration.order import test_streams as streams
from tests.integration.order import test_traces as two_sides
from tests.integration.order.dealt.conversation import Conversation, Item, Truth
from tests.integration.order.running import Request
from tests.integration.order.test_counters import counters, of_model, spans
from tests.integration.order.test_mixed_reports import REPORTERS, as_request
from tests.integration.reports import MODEL, MadeCall, callback, cost, log_event, sdk_span


def mixed(number: int, chance: random.Random) -> Conversation:
    """
    Up to four reporters that know the answer's id: gateway, SDK, Langfuse, webhook, event. Most state the
    cost, and some the parts of totals.
    """
    call = MadeCall(number, f"chatcmpl-{number:024x}", f"{number:08x}-aaaa-4bbb-8ccc-{number:012x}")
    model, items = f"mixed-{number}", []
    reporters = chance.sample(REPORTERS, chance.randint(2, 4))
    for reporter in reporters:
        report = reporter(call)
        request = as_request([report])
        body = request.body.replace(MODEL.encode(), model.encode())
        items.append(item(Request(request.format, body), {call.id}, sender=report.scope))
    came_in, came_out = call.tokens
    truth = Truth(
        calls=1,
        input_tokens=came_in,
        output_tokens=came_out,
        cache_read_tokens=7 if {callback, log_event} & set(reporters) else 0,
        reasoning_tokens=3 if callback in reporters else 0,
        cost=Decimal(str(cost(call))) if set(reporters) - {sdk_span, log_event} else Decimal(0),
    )
    return Conversation(name="mixed", items=items, truth={model: truth})


def usage_beside(number: int, chance: random.Random) -> Conversation:
    """AG2's chat span, and the span that records its usage."""
    model, at = f"ag2-{number}", {"traceId": f"{40_000 + number:032x}", "parent": 1}
    said = {
        "ag2.span.type": "llm", "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model, "gen_ai.usage.input_tokens": 700, "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read_input_tokens": 512, "gen_ai.usage.thinking_tokens": 9,
    }  # fmt: skip
    usage = {
        "ag2.span.type": "usage", "ag2.usage.kind": "model_call", "gen_ai.response.model": model,
        "gen_ai.usage.input_tokens": 700, "gen_ai.usage.output_tokens": 30, "ag2.usage.total_tokens": 730,
    }  # fmt: skip
    scope = "opentelemetry.instrumentation.ag2"
    items = [
        item(traced(span(2, said, **at), scope=scope), {"chat"}, sender="ag2"),
        item(traced(span(3, usage, **at), scope=scope), sender="ag2"),
    ]
    truth = Truth(calls=1, input_tokens=700, output_tokens=30, cache_read_tokens=512, reasoning_tokens=9)
    return Conversation(name="usage beside", items=items, truth={model: truth})


def event_of_twin(number: int, chance: random.Random) -> Conversation:
    """
    A framework's span around the SDK's span, and the event of the outer one. The call is answered or fails.
    """
    model, failed, ids = f"twin-{number}", chance.random() < 0.5, {"traceId": f"{50_000 + number:032x}"}
    told = (further.UNCOUNTED | {"error.type": "overloaded_error"}) if failed else further.CALL
    told = {**told, "gen_ai.request.model": model}
    inner = told if failed else {**told, "gen_ai.response.id": f"msg_0a0b0c0d0e0f0a0b{number:04}"}
    nested = further.as_traces(
        span(1, told, **ids), span(2, inner, parent=1, **ids), scope=further.EVENTS_SCOPE
    )
    event = further.event(1, told)
    event = Request(event.format, event.body.replace(f"{1:032x}".encode(), ids["traceId"].encode()))
    truth = Truth(calls=1, failures=1) if failed else Truth(calls=1, input_tokens=610, output_tokens=33)
    items = [item(nested, {"twin"}, sender="genai"), item(event, {"twin"}, sender="genai")]
    return Conversation(name="event of twin", items=items, truth={model: truth})


def cut_twins(number: int, chance: random.Random) -> Conversation:
    """
    A framework's span around the SDK's span, in separate requests or together, and the event of the outer one.
    """
    model, ids = f"cut-{number}", {"traceId": f"{90_000 + number:032x}"}
    told = {**further.CALL, "gen_ai.request.model": model}
    outer = span(1, told, **ids)
    inner = span(2, {**told, "gen_ai.response.id": f"msg_0a0b0c0d0e0f0a0b9{number:04}"}, parent=1, **ids)
    event = further.event(1, told)
    event = Request(event.format, event.body.replace(f"{1:032x}".encode(), ids["traceId"].encode()))
    parts: list[tuple[list[Any], set[str]]] = [
        ([inner], {"id"}),
        ([outer], {"outer"}),
        ([outer, inner], {"id", "outer"}),
    ]
    items = [item(event, {"outer"}, sender="genai")]
    for place, (spans_of, names) in enumerate(chance.sample(parts, chance.randint(1, 3))):
        request = further.as_traces(*spans_of, scope=further.EVENTS_SCOPE)
        items.append(item(request, names, sender=f"cut {number} {place}"))
    truth = Truth(calls=1, input_tokens=610, output_tokens=33)
    return Conversation(name="cut twins", items=items, truth={model: truth}, again=truth)


def counted_beside(number: int, chance: random.Random) -> Conversation:
    """
    Google's ADK under OpenInference, with its own counters for the call's model and for a model without a call.
    """
    model, alone, service = f"gemini-{number}-pro", f"embedding-{number}", f"desk-{number}"
    said = {
        "openinference.span.kind": "LLM", "llm.model_name": model, "llm.token_count.prompt": 320,
        "llm.token_count.completion": 18, "llm.token_count.total": 338,
    }  # fmt: skip
    (pieces,) = spans("openinference.instrumentation.google_adk", said).pieces
    text = (
        json.dumps(pieces[0])
        .replace('"desk"', f'"{service}"')
        .replace(f"{1:032x}", f"{60_000 + number:032x}")
    )
    items = [Item("otlp/traces", json.loads(text), (frozenset({"call"}),), "adk")]
    cumulative = chance.random() < 0.5
    for points in (of_model(model, 320, 18), of_model(alone, 41, 0)):
        made = counters("gcp.vertex.agent", *points, service=service, cumulative=cumulative)
        items += [Item("otlp/metrics", payload, sender="adk") for piece in made.pieces for payload in piece]
    truth = {model: Truth(calls=1, input_tokens=320, output_tokens=18), alone: Truth(counted=41)}
    return Conversation(name="counted beside", items=items, truth=truth)


def without_id(number: int, chance: random.Random) -> Conversation:
    """
    LiteLLM's embedding, reported by two callbacks, the log and a CloudEvent. There may be a second one a
    millisecond later, and a failed attempt.
    """
    model, call_id = f"embedding-3-{number}", f"3f1d2c4b-0000-4000-8000-{number:012x}"
    trace = f"{70_000 + number:032x}"
    later = NOW + 1_000_000
    failed = further.callback(
        status="failure", error_information={"error_class": "Timeout"}, prompt_tokens=0, total_tokens=0
    )
    told = [
        (further.phoenix(1), {"trace"}),
        (further.otel(2), {"trace", "call", "answer"}),
        (further.callback(), {"trace", "call", "answer"}),
        (further.cloud_event(), {"answer"}),
        (further.phoenix(3, start=later), {"second"}),
        (failed, {"failed"}),
    ]
    first, between, log, event, *others = told
    more = chance.sample([first, event], chance.randint(0, 2))
    chosen = [*chance.choice([[between], [log], [between, log]]), *more, *others]
    items = []
    for request, names in chosen:
        body = (
            request.body.decode().replace("text-embedding-3-small", model).replace(further.CALL_ID, call_id)
        )
        items.append(
            item(
                Request(request.format, body.replace(further.TRACE, trace).encode()), names, sender="litellm"
            )
        )
    truth = {model: Truth(calls=3, failures=1, input_tokens=82)}
    return Conversation(name="without id", items=items, truth=truth, again=Truth(calls=1, input_tokens=41))


def both_sides(number: int, chance: random.Random) -> Conversation:
    """
    A client's call with up to two attempts at a gateway, whose answer may lack an id, and the gateway's
    log of failures.
    """
    answered, attempts = chance.random() < 0.3, chance.randint(1, 2)
    how = {"traces_http": attempts > 1 or chance.random() < 0.5, "wraps": chance.random() < 0.5}
    client = two_sides.client(number, attempts=attempts, answered=answered, **how)
    items = [item(two_sides.request(client), {"client"}, sender="client")]
    for attempt in range(1, attempts + 1):
        is_last = attempt == attempts
        is_answer = answered and is_last
        spans = two_sides.gateway(number, attempt, answered=is_answer, **how)
        names = {f"log {attempt}", "client"} if is_last else {f"log {attempt}"}
        items.append(item(two_sides.request(spans), names, sender="gateway"))
        if not is_answer:
            items.append(item(two_sides.log(number, attempt), {f"log {attempt}"}, sender="gateway"))
    failures = attempts - answered
    truth = Truth(calls=attempts, failures=failures, input_tokens=30 * answered, output_tokens=7 * answered)
    return Conversation(
        name="both sides", items=items, truth={"toll-1": truth}, again=Truth(calls=1, failures=1)
    )


def reported_stream(number: int, chance: random.Random) -> Conversation:
    """
    Logfire's report of a stream, and the SDK's span below the span that begins the stream, in separate items.
    """
    parts = streams.stream(number, 60.0 * number)
    model = f"claude-haiku-{number}"
    items = []
    for name, told in parts.items():
        request = streams.request(told)
        body = request.body.replace(b"claude-haiku-4-5", model.encode())
        items.append(
            item(Request(request.format, body), *([] if name == "begins" else [{"stream"}]), sender="logfire")
        )
    truth = {model: Truth(calls=1, input_tokens=610, output_tokens=33)}
    return Conversation(name="reported stream", items=items, truth=truth)


def plug_in(number: int, chance: random.Random) -> Conversation:
    """opencode's plug-in: a span, an event and counters of one call."""
    end, session, model = NOW + number * 60 * SECOND, f"s-{number}", f"claude-sonnet-{number}"
    requests = [
        opencode.as_span(number, end=end),
        opencode.as_event(at=end + 40_000_000),
        *[opencode.counter(n, type, prefix="opencode") for n, type in ((100, "input"), (900, "cacheRead"))],
    ]
    items = []
    for place, request in enumerate(requests):
        body = request.body.replace(b'"s-1"', f'"{session}"'.encode()).replace(
            b"claude-sonnet-5", model.encode()
        )
        body = body.replace(f"{1:032x}".encode(), f"{80_000 + number:032x}".encode())
        told = [{"call"}] if place < 2 else []
        items.append(item(Request(request.format, body), *told, sender="opencode"))
    truth = Truth(
        calls=1,
        input_tokens=1050,
        output_tokens=50,
        cache_read_tokens=900,
        reasoning_tokens=30,
        cost=Decimal("0.0123"),
    )
    return Conversation(name="plug-in", items=items, truth={model: truth})


FAMILIES = (
    mixed, usage_beside, event_of_twin, cut_twins, counted_beside, without_id, both_sides, reported_stream, plug_in,
)  # fmt: skip

# In these families, every two reports have a common id, so the result does not depend on `hold`.
IN_ANY_TIME = (mixed, usage_beside, event_of_twin, counted_beside, reported_stream, plug_in)
WITHOUT_COUNTERS = tuple(family for family in FAMILIES if family not in (counted_beside, plug_in))


def item(request: Request, *calls: set[str], sender: str = "") -> Item:
    payload = json.loads(request.body)
    if request.format == "langfuse":
        (payload,) = payload["batch"]
    elif isinstance(payload, list):
        (payload,) = payload
    return Item(
        request.format, payload, tuple(frozenset(names) for names in calls), f"{request.format} {sender}"
    )


def traced(one: dict[str, Any], *, scope: str) -> Request:
    return Request(
        "otlp/traces", json.dumps(traces(one, scope=scope, resource={"service.name": "desk"})).encode()
    )
