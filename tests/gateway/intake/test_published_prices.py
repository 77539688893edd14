"""
Published prices of units other than text tokens. Each expected cost is worked out by hand for a million tokens
(MILLION), an hour, a thousand units or one unit. A price per hour becomes a price per second with 18 decimals.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.intake.prices import PriceBook
from spool.record import Inference
from tests.gateway.intake.test_prices import at

BOOK = PriceBook.load()
MILLION = 10**6
HOUR = 3600

# The table's short names stand for these fields of a record. Each count is one million tokens unless a row
# states another number.
_FIELDS = {"input": "input_tokens", "output": "output_tokens", "read": "cache_read_tokens"}


def estimated(provider: str, model: str, meters: dict[str, Any], **fields: Any) -> str | None:
    tags, time = fields.pop("tags", {}), fields.pop("time", "2026-11-01")
    counts = {_FIELDS.get(name, name): number for name, number in fields.items()}
    none: dict[str, Any] = {"input_tokens": None, "output_tokens": None}
    record = Inference(
        id=b"\0" * 16, source="test", provider=provider, request_model=model, start_time=at(time), tags=tags,
        meters=meters, **(none | counts),
    )  # fmt: skip
    return BOOK.estimate_record(record)


def millions(*names: str) -> dict[str, int]:
    return dict.fromkeys((f"{name}_tokens" for name in names), MILLION)


OPENAI, GOOGLE = "openai", "gcp.gemini"
AUDIO_IN, AUDIO_OUT = millions("input_audio"), millions("output_audio")
SOUND = AUDIO_IN | AUDIO_OUT
CACHED_SOUND = millions("input_audio", "cache_audio_read")
CACHED_IMAGE = millions("input_image", "cache_image_read")


@pytest.mark.parametrize(
    ("model", "meters", "counts", "expected"),
    [
        # These prices per million are for text and audio, input before output: 4 + 32 + 16 + 64, 4 + 32 + 24
        # + 64 and so on.
        ("gpt-realtime", SOUND, {"input": 2 * MILLION, "output": 2 * MILLION}, "116"),
        ("gpt-realtime-2", SOUND, {"input": 2 * MILLION, "output": 2 * MILLION}, "124"),
        ("gpt-realtime-mini", SOUND, {"input": 2 * MILLION, "output": 2 * MILLION}, "33"),  # 0.6 + 10 + 2.4 + 20
        ("gpt-audio", SOUND, {"input": 2 * MILLION, "output": 2 * MILLION}, "108.5"),  # 2.5 + 32 + 10 + 64
        ("gpt-4o-transcribe", AUDIO_IN, {"input": 2 * MILLION, "output": MILLION}, "18.5"),  # 2.5 + 6 + 10
        # The whole input is cached, and it is all audio or all image.
        ("gpt-realtime", CACHED_SOUND, {"input": MILLION, "read": MILLION, "output": 0}, "0.4"),
        ("gpt-realtime-2", CACHED_SOUND, {"input": MILLION, "read": MILLION, "output": 0}, "0.4"),
        ("gpt-realtime-mini", CACHED_SOUND, {"input": MILLION, "read": MILLION, "output": 0}, "0.3"),
        ("gpt-realtime", millions("input_image"), {"input": MILLION, "output": 0}, "5"),
        ("gpt-realtime", CACHED_IMAGE, {"input": MILLION, "read": MILLION, "output": 0}, "0.5"),
        # Text costs 5 and 1.25, images cost 8 and 2, and the output costs 10 and 32.
        ("gpt-image-1.5", {**CACHED_IMAGE, "input_image_tokens": 2 * MILLION, "output_image_tokens": MILLION},
         {"input": 4 * MILLION, "read": 2 * MILLION, "output": 2 * MILLION}, "58.25"),
        ("gpt-image-2", {**CACHED_IMAGE, "input_image_tokens": 2 * MILLION},
         {"input": 4 * MILLION, "read": 2 * MILLION, "output": MILLION}, "46.25"),  # 5 + 8 + 1.25 + 2 + 30
        ("whisper-1", {"input_audio_seconds": HOUR}, {}, "0.36"),
        # 1.02 and 2.04 per hour are charged as 0.000283333333333333 and 0.000566666666666667 per second.
        ("gpt-realtime-whisper", {"audio_seconds": HOUR}, {}, "1.0199999999999988"),
        ("gpt-realtime-translate", {"audio_seconds": HOUR}, {}, "2.0400000000000012"),
        ("tts-1", {"input_characters": MILLION}, {}, "15"),
        ("tts-1-hd", {"input_characters": MILLION}, {}, "30"),
        ("gpt-5.6-terra", {"web_searches": 1000}, {"input": 0, "output": 0}, "10"),
        ("gpt-5.6-terra", {"storage_searches": 1000}, {"input": 0, "output": 0}, "2.5"),
    ],
)  # fmt: skip
def test_openai(model: str, meters: dict[str, int], counts: dict[str, int], expected: str) -> None:
    assert expected == estimated(OPENAI, model, meters, **counts)


@pytest.mark.parametrize(
    ("model", "meters", "counts", "expected"),
    [
        # Text costs 0.3 and audio 1; cached text costs 0.03 and cached audio 0.1.
        ("gemini-2.5-flash", {**CACHED_SOUND, "input_audio_tokens": 2 * MILLION},
         {"input": 4 * MILLION, "read": 2 * MILLION, "output": 0}, "1.43"),
        ("gemini-3.1-flash-lite", AUDIO_IN, {"input": 2 * MILLION, "output": 0}, "0.75"),  # 0.25 + 0.5
        ("gemini-3.8-live", {**SOUND, **millions("input_image", "input_video")},
         {"input": 4 * MILLION, "output": 2 * MILLION}, "22.25"),  # 0.75 + 3 + 1 + 1, 4.5 + 12
        ("gemini-3-pro-image", millions("output_image"), {"input": MILLION, "output": 2 * MILLION}, "134"),
        ("gemini-nano-banana-2.1", millions("output_image"), {"input": 0, "output": 2 * MILLION}, "37.5"),
        ("gemini-omni-1.1-flash", millions("output_video"), {"input": 0, "output": 2 * MILLION}, "26.5"),
        ("gemini-embedding-2", millions("input_image", "input_audio", "input_video"),
         {"input": 4 * MILLION}, "19.15"),  # 0.2 + 0.45 + 6.5 + 12
        ("gemini-2.5-flash", {"web_searches": 1000}, {"input": 0, "output": 0}, "35"),
        ("gemini-3.1-flash-lite", {"web_searches": 1000}, {"input": 0, "output": 0}, "14"),
    ],
)  # fmt: skip
def test_google(model: str, meters: dict[str, int], counts: dict[str, int], expected: str) -> None:
    assert expected == estimated(GOOGLE, model, meters, **counts)


@pytest.mark.parametrize(
    ("provider", "model", "meters", "counts", "expected"),
    [
        ("aws.bedrock", "amazon.nova-2-sonic-v1:0", SOUND, {"input": 2 * MILLION, "output": 2 * MILLION},
         "18.08"),  # 0.33 + 3 + 2.75 + 12
        # 0.04 per hour is charged as 0.000011111111111111 per second.
        ("groq", "whisper-large-v3-turbo", {"audio_seconds": HOUR}, {}, "0.0399999999999996"),
        ("groq", "canopylabs/orpheus-v1-english", {"input_characters": MILLION}, {}, "22"),
        ("groq", "canopylabs/orpheus-arabic-saudi", {"input_characters": MILLION}, {}, "40"),
        ("mistral_ai", "mistral-ocr-2503", {"input_document_pages": 1000}, {}, "1"),
        ("mistral_ai", "mistral-ocr-2512", {"input_document_pages": 1000}, {}, "2"),
        ("mistral_ai", "mistral-ocr-4-1", {"input_document_pages": 1000}, {}, "4"),
        ("mistral_ai", "mistral-ocr-4-1",
         {"input_document_pages": 1000, "input_annotated_document_pages": 1000}, {}, "5"),
        ("anthropic", "claude-opus-5", {"web_searches": 1000}, {"input": 0, "output": 0}, "10"),
        ("perplexity", "sonar-deep-research", {"web_searches": 1000}, {"input": 0, "output": 0}, "5"),
        ("perplexity", "sonar-deep-research", {"output_citation_tokens": MILLION},
         {"input": 0, "output": MILLION}, "2"),
        ("perplexity", "perplexity/sonar", {"web_searches": 1000}, {"input": 0, "output": 0}, "2.5"),
        ("perplexity", "sonar", {}, {"input": 0, "output": 0}, "0.012"),  # the fee per request, without any tokens
        ("perplexity", "sonar-pro", {}, {"input": 0, "output": 0}, "0.014"),
        # Some of these cache writes are for 5 minutes, the others for an hour.
        ("anthropic", "claude-opus-5", {},
         {"input": 2 * MILLION, "cache_write_tokens": 2 * MILLION, "cache_write_1h_tokens": MILLION, "output": 0},
         "16.25"),
    ],
)  # fmt: skip
def test_others(
    provider: str, model: str, meters: dict[str, int], counts: dict[str, int], expected: str
) -> None:
    assert expected == estimated(provider, model, meters, **counts)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, "2.8"),  # since 30 July, the prices of this model are 2 and 12 per million
        ({"service_tier": "priority"}, "5.6"),
        ({"service_tier": "fast"}, "5.6"),
        ({"service_tier": "flex"}, "1.4"),
        ({"service_tier": "batch"}, "1.4"),
    ],
)
def test_tiers_that_the_answer_names(tags: dict[str, str], expected: str) -> None:
    """
    Calls with a tier in the answer have the price of that tier. Each has 200,000 tokens of input and output,
    because prices change above that size.
    """
    assert expected == estimated(OPENAI, "gpt-5.6-terra", {}, input=200_000, output=200_000, tags=tags)


@pytest.mark.parametrize(
    ("tags", "expected"), [({}, "30"), ({"speed": "fast"}, "60"), ({"processing": "batch"}, "15")]
)
def test_fast_claude_costs_twice_and_a_batch_half(tags: dict[str, str], expected: str) -> None:
    assert expected == estimated("anthropic", "claude-opus-5", {}, input=MILLION, output=MILLION, tags=tags)


@pytest.mark.parametrize(
    ("provider", "model", "counts", "expected"),
    [
        (
            OPENAI,
            "gpt-5.6-terra",
            {"input": 272_000, "output": 0},
            "0.544",
        ),  # 272,000 tokens cost 2 per million
        # The whole request costs 4 and 18 per million.
        (OPENAI, "gpt-5.6-terra", {"input": 300_000, "output": 100_000}, "3"),
        (GOOGLE, "gemini-2.5-pro", {"input": 200_000, "output": 0}, "0.25"),  # 1.25 per million
        (GOOGLE, "gemini-2.5-pro", {"input": 300_000, "output": 100_000}, "2.25"),  # 2.5 and 15 per million
        # This model has no other price for large inputs.
        ("anthropic", "claude-opus-5", {"input": 900_000, "output": 0}, "4.5"),
    ],
)
def test_large_input_reprices_the_whole_request(
    provider: str, model: str, counts: dict[str, int], expected: str
) -> None:
    assert expected == estimated(provider, model, {}, **counts)


@pytest.mark.parametrize(
    ("model", "meters", "expected"),
    [
        (
            "whisper-large-v3-turbo",
            {"audio_seconds": HOUR},
            "0.0200000000000016",
        ),  # 0.000005555555555556 per second
        ("mistral-ocr-2512", {"input_document_pages": 1000}, "1"),
        ("mistral-ocr-2512", {"input_document_pages": 1000, "input_annotated_document_pages": 1000}, "1.5"),
        ("mistral-ocr-4-1", {"input_document_pages": 1000, "input_annotated_document_pages": 1000}, "2.5"),
    ],
)
def test_batches_halve_other_units_too(model: str, meters: dict[str, int], expected: str) -> None:
    provider = "groq" if model.startswith("whisper") else "mistral_ai"
    assert expected == estimated(provider, model, meters, tags={"service_tier": "batch"})
