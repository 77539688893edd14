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
    Call,
    ExampleCall,
    ItemFormat,
    Members,
    count_tokens,
    tag_tier,
)
from gateway.normalise.payload.provider_bodies import ProviderBody
from gateway.normalise.reading.costs import known_cost
from gateway.normalise.reading.metadata import Metadata
from gateway.normalise.reading.models import model_name, stated_or_model_provider
from gateway.normalise.reading.regions import region_of
from gateway.normalise.reading.tokens import Tokens, Usage
from gateway.normalise.reading.values import Other, count, first_text, money, nested, object_or_none, text
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


def has_sign(members: Members) -> bool:
    return "request_response_url" in members or {"request_id", "response_body"} <= members.keys()


def helicone_signed(secret: str, body: bytes, signature: str) -> bool:
    expected = hmac.new(secret.encode(), body, sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.strip().lower().encode("utf-8", "surrogatepass"))


def read_calls(event: HeliconeEvent) -> Iterable[Call]:
    """
    Read one object as one call. The webhook states no time, operation or status.

    The webhook truncates large bodies. Then the id of the call may be the only known fact.
    """
    request_body, response_body = (
        nested(event.request_body, ProviderBody),
        nested(event.response_body, ProviderBody),
    )
    figures = nested(event.metadata, HeliconeFigures)
    model = first_text(event.model, request_body.model)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text(event.request_id),
        provider=stated_or_model_provider(event.provider, model or response_body.answered_by),
        request_model=model_name(model, event.provider),
        response_model=model_name(response_body.answered_by, event.provider),
    )
    record.region = region_of(response_body.geography, model=model)
    count_tokens(record, _tokens(figures, request_body, response_body))
    record.cost = known_cost(record, money(figures.cost, "metadata.cost"))
    metadata = Metadata()
    tag_tier(metadata, response_body.tier)
    metadata.fill_record(record, end_user=text(event.user_id))
    identity = response_body.identity(record, own_id=record.request_id)
    return (Call(record, identity, metadata.left_out, is_certain=_are_cut(event)),)


def _are_cut(event: HeliconeEvent) -> bool:
    """Return whether the bodies are cut, because the webhook truncates them at 10 KB."""
    bodies = (event.request_body, event.response_body)
    return text(event.request_id) is not None and any(_is_cut(body) for body in bodies)


def _is_cut(body: Any) -> bool:
    return isinstance(body, str) and bool(body) and object_or_none(body, ProviderBody) is None


def _tokens(figures: HeliconeFigures, request_body: ProviderBody, response_body: ProviderBody) -> Tokens:
    """Read Anthropic's cache and Perplexity's reasoning from the body, because the totals omit them."""
    of_body = response_body.tokens(request_body)
    input_tokens = count(figures.promptTokens, "metadata.promptTokens")
    output_tokens = count(figures.completionTokens, "metadata.completionTokens")
    usage = nested(response_body.usage, Usage)
    if input_tokens is not None and usage.input_tokens is not None:
        input_tokens = (
            None if input_tokens == count(usage.input_tokens, "usage.input_tokens") else input_tokens
        )
    if output_tokens is not None and usage.citation_tokens is not None:
        output_tokens = None
    return of_body._replace(
        input=of_body.input if input_tokens is None else input_tokens,
        output=of_body.output if output_tokens is None else output_tokens,
    )


def example(call: ExampleCall) -> Any:
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
    has_sign=has_sign,
    example=example,
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
