"""
A reported cost of 0 is a price only if nothing was used. This holds for every gateway that writes 0 for
an unknown price.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.intake.prices import PriceBook
from gateway.normalise.formats.list import FORMATS
from gateway.normalise.otlp.product import TelemetryProduct
from gateway.normalise.otlp.products import PRODUCTS
from tests.gateway.normalise.formats.payloads import one
from tests.gateway.normalise.otlp.payloads import only, span, traces

IMAGES = {"data": [{"url": "https://images.example/1"}, {"url": "https://images.example/2"}]}


def litellm(call_type: str, model: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-22334455667788990011", "litellm_call_id": "11", "call_type": call_type,
        "custom_llm_provider": "openai", "model": model, "status": "success", "startTime": 1795168800.0,
        "endTime": 1795168802.5, "prompt_tokens": 0, "completion_tokens": 0, "response_cost": 0,
    } | fields  # fmt: skip


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (litellm("aimage_generation", "dall-e-3", response=IMAGES), "0.24"),
        (litellm("atranscription", "whisper-1",
                 metadata={"usage_object": {"type": "duration", "seconds": 90}}), "0.009"),
        (litellm("aspeech", "tts-1",
                 metadata={"usage_object": {"prompt_tokens_details": {"character_count": 2000}}}), "0.03"),
    ],
)  # fmt: skip
def test_what_litellm_has_no_price_for_costs_our_own_price(event: dict[str, Any], expected: str) -> None:
    """
    If LiteLLM has no price for a call, it reports 0, so the estimate counts. The calls are two images, 90
    seconds of transcription and 2,000 characters of speech.
    """
    override = PriceOverride(model="dall-e-3", meters={"output_images": Decimal("0.12")})
    book = PriceBook.load(PriceSettings(override=(override,)))
    record = one("litellm", event)
    book.price_record(record)
    assert record.cost is None
    assert record.cost_source == "estimated"
    assert Decimal(expected) == round(Decimal(record.estimated_cost or 0), 12)


HELICONE = {
    "request_id": "r-1", "request_response_url": "https://helicone.example/r-1", "provider": "OPENAI",
    "model": "dall-e-3", "request_body": {"model": "dall-e-3"}, "metadata": {"cost": 0},
}  # fmt: skip
PORTKEY_FILE = {
    "_id": "f-1", "created_at": "2026-11-20T10:00:00Z",
    "request": {"url": "https://api.openai.com/v1/images/generations", "portkeyHeaders": {},
                "body": {"model": "dall-e-3"}},
    "metrics": {"cost": 0},
}  # fmt: skip
PORTKEY_ROW = {
    "id": "r-1", "ai_org": "openai", "ai_model": "whisper-1", "req_units": 0, "res_units": 0, "cost": 0,
    "request_url": "https://api.openai.com/v1/audio/transcriptions", "created_at": "2026-11-20T10:00:00Z",
}  # fmt: skip
AISIX = {
    "schema_version": "1.0", "request_id": "q1", "occurred_at": "2026-11-20T10:00:02Z", "upstream_latency_ms": 1800,
    "requested_model": "whisper-1", "audio_duration_seconds": 90, "cost_usd": 0,
}  # fmt: skip
KONG = {
    "started_at": 1795168800000, "latencies": {"request": 10}, "request": {"id": "k1", "uri": "/v1/images/generations"},
    "response": {"status": 200},
    "ai": {"proxy": {"meta": {"provider_name": "openai", "request_model": "dall-e-3"},
                     "usage": {"prompt_tokens": 0, "completion_tokens": 0, "cost": 0}}},
}  # fmt: skip
CLOUDFLARE = {
    "id": "c1", "created_at": "2026-11-20T10:00:00Z", "provider": "openai", "model": "dall-e-3", "tokens_in": 0,
    "tokens_out": 0, "cost": 0, "request_type": "image", "success": True,
}  # fmt: skip
BIFROST = {
    "TraceID": "0af7651916cd43dd8448eb211c80319c", "RootSpan": {"SpanID": "b7ad6b7169203331"},
    "Spans": [{"SpanID": "b7ad6b7169203332", "Kind": "llm.call", "Name": "image_generation dall-e-3", "Status": "ok",
               "Attributes": {"gen_ai.request.model": "dall-e-3", "gen_ai.usage.cost": 0.0}}],
}  # fmt: skip
AGENTGATEWAY = {
    "scope": "request", "gateway": "g", "time": "2026-11-20T10:00:00Z", "gen_ai.request.model": "dall-e-3",
    "gen_ai.usage.input_tokens": 7, "agw.ai.usage.cost.total": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("format", "event"),
    [
        ("helicone", HELICONE | {"response_body": IMAGES}),
        ("portkey", PORTKEY_FILE | {"response": {"status": 200, "body": IMAGES}}),
        ("portkey", PORTKEY_ROW),
        ("aisix", AISIX),
        ("kong", KONG),
        ("cloudflare", CLOUDFLARE),
        ("bifrost", BIFROST),
        ("agentgateway", AGENTGATEWAY),
        ("litellm", litellm("aspeech", "tts-1")),  # the report states no usage, but speech is never free
        ("litellm", litellm("arerank", "rerank-3.5")),
    ],
)
def test_no_gateways_zero_is_a_price_where_anything_was_used(format: str, event: dict[str, Any]) -> None:
    """
    A gateway's 0 is no price if tokens or meters show use. For images, audio and reranking, it is never a
    price, because not every log has counts.
    """
    assert one(format, event).cost is None


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failure"},
        {"cache_hit": True},
        {"call_type": "acompletion", "response": {}},
        {
            "model": "openrouter/mistralai/mistral-7b:free",
            "custom_llm_provider": "openrouter",
            "prompt_tokens": 9,
        },
    ],
)
def test_zero_is_the_price_of_what_failed_was_cached_used_nothing_or_is_free(changes: dict[str, Any]) -> None:
    """
    0 is the price of a call that failed, was cached, used nothing or is free. A chat without tokens used
    nothing, and an OpenRouter model whose name ends with `:free` is free.
    """
    event = litellm("aimage_generation", "dall-e-3", response=IMAGES) | changes
    assert "0" == one("litellm", event).cost


def test_openrouters_zero_is_a_price() -> None:
    """OpenRouter's 0 is a price, because OpenRouter states the real charge, even for free models."""
    stats = {"id": "gen-1795168800-abcdefghijklmnopqrst", "model": "mistralai/mistral-7b", "native_tokens_prompt": 9,
             "total_cost": 0}  # fmt: skip
    assert "0" == one("openrouter", {"data": stats}).cost


_UNPRICED = [product for product in PRODUCTS if product.zero_cost_is_unknown]
_MARKS = {"ag2": {"ag2.span.type": "llm"}, "cloudflare": {"gen_ai.model.provider": "openai"}}


@pytest.mark.parametrize("product", _UNPRICED, ids=lambda product: product.source)
def test_spans_read_zero_as_the_format_of_their_gateway_does(product: TelemetryProduct) -> None:
    """
    A gateway's spans treat a cost of 0 as its log format does. The span here is an image without counts.
    """
    image = {"gen_ai.operation.name": "image_generation", "gen_ai.request.model": "dall-e-3"}
    marked = image | _MARKS.get(product.source, {}) | {"gen_ai.usage.cost": 0.0}
    scope = "" if product.source in _MARKS else product.scopes[0]
    record = only(traces(span(1, marked), scope=scope))
    assert product.source == record.source
    assert record.cost is None


def test_gateways_with_a_format_and_spans_agree() -> None:
    """If a gateway's log reports 0 for an unknown price, its spans do so as well."""
    unpriced = {product.source for product in _UNPRICED}
    read_as_spans = {product.source for product in PRODUCTS if product.take_span is None}
    zeros = {"litellm", "kong", "cloudflare", "bifrost", "agentgateway", "aisix", "helicone", "portkey"}
    assert zeros <= {format.name for format in FORMATS}
    assert zeros & read_as_spans == zeros & unpriced
