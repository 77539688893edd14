"""
Helicone's webhook: its own counts if it states them. Otherwise, the counts are read from its copies of the bodies.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    RawMembers,
    ReadCall,
    add_tier_tag,
    set_normalised_counts,
)
from gateway.normalise.payload.provider_bodies import ProviderBody
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.tokens import Tokens, Usage
from gateway.normalise.reading.values import (
    Other,
    first_text,
    parse_amount,
    parse_count,
    struct_or_empty,
    struct_or_none,
    text_or_none,
)
from spool.record import Inference

NAME = "helicone"


class HeliconeFigures(msgspec.Struct):
    cost: Any = None
    promptTokens: Any = None
    completionTokens: Any = None


class HeliconeEvent(msgspec.Struct):
    request_id: Any = None
    user_id: Any = None
    request_body: ProviderBody | Other = None
    response_body: ProviderBody | Other = None
    model: Any = None
    provider: Any = None
    metadata: HeliconeFigures | Other = None


def has_helicone_fields(members: RawMembers) -> bool:
    return "request_response_url" in members or {"request_id", "response_body"} <= members.keys()


def is_signed_by_helicone(secret: str, body: bytes, signature: str) -> bool:
    expected = hmac.new(secret.encode(), body, sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.strip().lower().encode("utf-8", "surrogatepass"))


def read_calls(event: HeliconeEvent) -> Iterable[ReadCall]:
    """
    Read one object as one call. The webhook states no time, operation or status.

    The webhook truncates large bodies. Then the id of the call may be the only known fact.
    """
    request_body, response_body = (
        struct_or_empty(event.request_body, ProviderBody),
        struct_or_empty(event.response_body, ProviderBody),
    )
    figures = struct_or_empty(event.metadata, HeliconeFigures)
    model = first_text(event.model, request_body.model)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.request_id),
        provider=stated_or_model_provider(event.provider, model or response_body.answering_model),
        request_model=model_without_prefix(model, event.provider),
        response_model=model_without_prefix(response_body.answering_model, event.provider),
    )
    record.region = region_of_call(response_body.processing_geography, model=model)
    set_normalised_counts(record, _tokens_of_figures_and_bodies(figures, request_body, response_body))
    gateway_cost = cost_unless_placeholder_zero(record, parse_amount(figures.cost, "metadata.cost"))
    record.cost = response_body.billed_cost or gateway_cost
    metadata = CallMetadata()
    add_tier_tag(metadata, response_body.service_tier_name)
    metadata.fill_record(record, end_user=text_or_none(event.user_id))
    identity = response_body.call_identity(record, own_id=record.request_id)
    return (ReadCall(record, identity, metadata.left_out, is_certain=_has_truncated_bodies(event)),)


def _has_truncated_bodies(event: HeliconeEvent) -> bool:
    bodies = (event.request_body, event.response_body)
    return text_or_none(event.request_id) is not None and any(_is_truncated(body) for body in bodies)


def _is_truncated(body: Any) -> bool:
    return isinstance(body, str) and bool(body) and struct_or_none(body, ProviderBody) is None


def _tokens_of_figures_and_bodies(
    figures: HeliconeFigures, request_body: ProviderBody, response_body: ProviderBody
) -> Tokens:
    """
    Return Helicone's totals of tokens. They lack Anthropic's cache and Perplexity's reasoning, which are read
    from the bodies.
    """
    of_body = response_body.counted_tokens(request_body)
    input_tokens = parse_count(figures.promptTokens, "metadata.promptTokens")
    output_tokens = parse_count(figures.completionTokens, "metadata.completionTokens")
    usage = struct_or_empty(response_body.usage, Usage)
    if input_tokens is not None and usage.input_tokens is not None:
        input_tokens = (
            None if input_tokens == parse_count(usage.input_tokens, "usage.input_tokens") else input_tokens
        )
    if output_tokens is not None and usage.citation_tokens is not None:
        output_tokens = None
    return of_body._replace(
        input=of_body.input if input_tokens is None else input_tokens,
        output=of_body.output if output_tokens is None else output_tokens,
    )


def example_body(call: ExampleCall) -> Any:
    return {
        "request_id": call.uuid,
        "user_id": "example-user",
        "request_body": "truncated",
        "response_body": "truncated",
        "request_response_url": "https://example.com/bodies",
        "model": call.model,
        "provider": "OPENAI",
        "metadata": {
            "cost": call.cost,
            "promptTokens": call.input_tokens,
            "completionTokens": call.output_tokens,
            "latencyMs": call.duration_ms,
        },
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_helicone_fields,
    example=example_body,
    event=HeliconeEvent,
    calls=read_calls,
    origins={
        "request_id": "request_id",
        "provider": "provider, else derived from the model name",
        "region": "response_body.usage.inference_geo",
        "request_model": "model, else request_body.model",
        "response_model": "response_body.model",
        "input_tokens": "metadata.promptTokens, else response_body.usage",
        "output_tokens": "metadata.completionTokens, else response_body.usage",
        "cache_read_tokens": "response_body.usage",
        "cache_write_tokens": "response_body.usage",
        "reasoning_tokens": "response_body.usage",
        "cost": "metadata.cost",
        "user": "user_id",
    },
)
