"""
Variations of trace requests from cases, captures and load.

They change ids, times, counts, texts and attributes that no rule reads. They also change the order and the
number of attributes, and add names.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway import normalise
from gateway.normalise.memory.slots import (
    COUNTS,
    FIRST_TEXT,
    OF_RESOURCE,
    can_attribute_become_tag,
    varying_value_slot_or_zero,
)
from tests.bench.load import payloads
from tests.gateway.normalise.otlp.trace_requests import trace_requests

_EDGES = (0, 1, 2, 3, 10, 199_999, 200_000, 200_001, 10**9, 10**9 + 1, -1)
_TEXTS = (
    "", "-", "none", "None", "a", "ben", "asha", "sk-1234567890123456", "msg_01AbCdEf", "user@example.com", "x" * 97,
    "a..b", "two words", "x_cache_hit12", "chatcmpl-1", "0", "12", "Zoë", "run-7.2:b",
)  # fmt: skip


def sources() -> list[bytes]:
    return [*trace_requests(), *(payloads.protobuf_spans(10, first=first) for first in (0, 10, 20, 30))]


def renewed(request: Any, chance: random.Random) -> None:
    """Give each trace and span a new id everywhere in the request, and shift all times."""
    ids: dict[bytes, bytes] = {}
    later = chance.randrange(10**15)

    def other(id: bytes) -> bytes:
        if not any(id):
            return id
        if id not in ids:
            ids[id] = chance.randbytes(len(id))
        return ids[id]

    for span in spans_of(request):
        span.trace_id, span.span_id = other(span.trace_id), other(span.span_id)
        span.parent_span_id = other(span.parent_span_id)
        for name in ("start_time_unix_nano", "end_time_unix_nano"):
            if moment := getattr(span, name):
                setattr(span, name, moment + later)


def spans_of(request: Any) -> Iterator[Any]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from scope_spans.spans


def with_new_slots(request: Any, chance: random.Random) -> None:
    """Change counts by a common factor or separately, and change the ends of texts that vary."""
    for group in request.resource_spans:
        for attribute in group.resource.attributes:
            if attribute.key in OF_RESOURCE and attribute.value.HasField("string_value"):
                attribute.value.string_value = f"service-{chance.randrange(100)}"
    for span in spans_of(request):
        factor = chance.choice((1, 1, 2, 3, 17))
        for attribute in span.attributes:
            slot, value = varying_value_slot_or_zero(attribute.key), attribute.value
            kind = value.WhichOneof("value")
            if (
                can_attribute_become_tag(attribute.key, frozenset())
                and kind == "string_value"
                and chance.random() < 0.5
            ):
                value.string_value = chance.choice((*_TEXTS, f"tag-{chance.randrange(50)}"))
            if 0 < slot <= len(COUNTS) and kind == "int_value":
                value.int_value = min(value.int_value * factor, 2**62)
            elif slot >= FIRST_TEXT and kind == "string_value" and len(value.string_value) > 8:
                end = "".join(chance.choices("abcdef0123456789", k=6))
                value.string_value = value.string_value[:-6] + end


def disturbed(request: Any, chance: random.Random) -> None:
    """Give some attributes unexpected names, types or values."""
    for group in request.resource_spans:
        if chance.random() < 0.2:
            disturb_service(group, chance)
    for span in spans_of(request):
        if chance.random() < 0.5 or not span.attributes:
            continue
        attribute = chance.choice(span.attributes)
        slot, value = varying_value_slot_or_zero(attribute.key), attribute.value
        what = chance.randrange(9)
        if what == 0:
            value.string_value = chance.choice(_TEXTS)
        elif what == 1:
            value.int_value = chance.choice(_EDGES)
        elif what == 2:
            span.attributes.remove(attribute)
        elif what == 3:
            span.attributes.add(key=attribute.key).value.CopyFrom(value)
        elif what == 4:
            span.attributes.add(key=chance.choice(_NAMES)).value.string_value = chance.choice(_TEXTS)
        elif what == 5:
            pairs = list(span.attributes)
            chance.shuffle(pairs)
            del span.attributes[:]
            span.attributes.extend(pairs)
        elif what == 6:
            span.status.code = chance.randrange(3)
        elif what == 7:
            other = chance.choice(span.attributes)
            other.value.CopyFrom(value)
        elif slot:
            value.int_value = chance.choice(_EDGES) if slot <= len(COUNTS) else 5
        if chance.random() < 0.1:
            span.ClearField(
                chance.choice(("parent_span_id", "start_time_unix_nano", "end_time_unix_nano", "name"))
            )


def disturb_service(group: Any, chance: random.Random) -> None:
    """Give a resource an unexpected service name, or one that another attribute has as well."""
    del group.resource.attributes[:]
    service = group.resource.attributes.add(key=chance.choice(OF_RESOURCE)).value
    spans = [span for scope in group.scope_spans for span in scope.spans]
    texts = [attribute.value.string_value for span in spans for attribute in span.attributes]
    service.string_value = chance.choice([*_SERVICES, *_TEXTS, *texts])
    if chance.random() < 0.1:
        service.int_value = 7


_SERVICES = (
    "unknown_service",
    "unknown_service:python",
    "shop",
    "claude-code",
    "gemini-cli",
    "codex_cli_rs",
    "kong",
)
_NAMES = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.total_tokens", "gen_ai.operation.name",
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.reasoning_tokens", "gen_ai.response.id", "user.id",
    "session.id", "error.type", "gen_ai.request.model", "gen_ai.provider.name", "made.up", "gen_ai.tool.name",
    "gen_ai.agent.name", "cost_center", "department", "team.id", "traceloop.association.properties.tier",
    "langfuse.trace.metadata.plan", "langsmith.metadata.ls_provider", "langsmith.metadata.region",
    "trace.metadata.note", "ai.telemetry.metadata.plan", "anthropic.request.id", "aws.request_id", "rpc.method",
    "anthropic.custom_base_url", "metadata.requester_custom_headers", "hidden_params", "gen_ai.event.start_time",
)  # fmt: skip


@cache
def texts_of_rules() -> list[str]:
    """Return all short texts in the code of the rules, because a rule may look for an attribute of that name."""
    found = set[str]()
    for folder in ("otlp", "reading"):
        for path in (Path(normalise.__file__).parent / folder).rglob("*.py"):
            constants = (
                node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
            )
            found |= {text for text in constants if isinstance(text, str) and 0 < len(text) < 64}
    return sorted(found)


def any_name(chance: random.Random) -> str:
    """Return the name of an attribute that no span had before, or a name to which a rule may refer."""
    number, text = chance.randrange(100), chance.choice(texts_of_rules())
    return chance.choice(
        (
            f"app.{chance.getrandbits(48):x}", f"llm.input_messages.{number}.message.content", text, f"{text}{number}",
            f"app.{text}", f"my_model_{number}", f"tokens_{number}_used", f"metadata.{number}", f"ключ-{number}",
        )
    )  # fmt: skip


def with_further_names(request: Any, chance: random.Random) -> None:
    for span in spans_of(request):
        for _ in range(chance.choice((0, 1, 1, 2, 30))):
            value = span.attributes.add(key=any_name(chance)).value
            if chance.random() < 0.7:
                value.string_value = chance.choice(_TEXTS)
            else:
                value.int_value = chance.choice(_EDGES)


def mixed(requests: list[Any], chance: random.Random) -> bytes:
    """Join requests into one, and repeat some of them."""
    whole = ExportTraceServiceRequest()
    for request in requests:
        whole.resource_spans.extend(request.resource_spans)
    if chance.random() < 0.1:
        whole.resource_spans.extend(requests[0].resource_spans)
    if chance.random() < 0.3 and len(whole.resource_spans) > 1:
        groups = list(whole.resource_spans)
        chance.shuffle(groups)
        del whole.resource_spans[:]
        whole.resource_spans.extend(groups)
    return whole.SerializeToString()


def varied(chance: random.Random, *, plain: bool = False) -> Iterator[bytes]:
    """Yield endless requests. With `plain`, only ids and times change."""
    bodies = sources()
    while True:
        chance.shuffle(bodies)
        rest = list(bodies)
        while rest:
            count = chance.choice((1, 1, 1, 2, 3))
            taken, rest = rest[:count], rest[count:]
            requests = []
            for body in taken:
                request = ExportTraceServiceRequest.FromString(body)
                renewed(request, chance)
                if not plain:
                    if chance.random() < 0.3:
                        with_further_names(request, chance)
                    if chance.random() < 0.7:
                        with_new_slots(request, chance)
                    if chance.random() < 0.4:
                        disturbed(request, chance)
                requests.append(request)
            yield mixed(requests, chance)
