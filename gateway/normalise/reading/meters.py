"""
Meters of one call (see spool.meters) from the usage objects of all providers: audio, images, searches, seconds.

Most calls are only text, so each reader first checks whether there is anything to read. An impossible
quantity is ignored and never rejects the call. If a call states a quantity twice, the quantity counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from gateway.normalise.reading.values import (
    BadValue,
    Other,
    parse_count,
    parse_number,
    struct_or_empty,
    struct_or_none,
)
from spool.meters import DECIMALS, METERS, MODALITIES, Quantity
from spool.record import decimal_text

OptionalMeters = dict[str, Quantity] | None  # meter -> quantity, or None if only text is stated

_MOST_LISTED: Final = 16  # maximum modalities read from one list
_KINDS: Final = 2  # number of kinds of cache writes: those kept for 5 minutes, and for an hour


class CachedParts(msgspec.Struct):
    """OpenAI's `cached_tokens_details`. SGLang's object of this name has other members, which are ignored."""

    audio_tokens: Any = None
    image_tokens: Any = None
    video_tokens: Any = None
    text_tokens: Any = None


class MediaDetails(msgspec.Struct):
    """OpenAI's and LiteLLM's details of an input or an output beyond text."""

    audio_tokens: Any = None
    image_tokens: Any = None
    video_tokens: Any = None
    cached_tokens_details: CachedParts | Other = None
    web_search_requests: Any = None
    character_count: Any = None
    image_count: Any = None
    video_length_seconds: Any = None


class ServerTools(msgspec.Struct):
    """
    Anthropic's use of tools that run on its servers. Only searches are read, because fetching pages is free.
    """

    web_search_requests: Any = None


class BilledUnits(msgspec.Struct):
    """The units that Cohere charges. Its other token counts are not charged."""

    input_tokens: Any = None
    output_tokens: Any = None
    search_units: Any = None
    classifications: Any = None


class CacheDetail(msgspec.Struct):
    ttl: Any = None
    inputTokens: Any = None


class SpokenParts(msgspec.Struct):
    speechTokens: Any = None


class SpokenSides(msgspec.Struct):
    input: SpokenParts | Other = None
    output: SpokenParts | Other = None


class SonicDetails(msgspec.Struct):
    """Nova Sonic's counts of the session so far. `delta`, the counts of the last event, is not read."""

    total: SpokenSides | Other = None


class ModalityCount(msgspec.Struct):
    modality: Any = None
    tokenCount: Any = None
    token_count: Any = None


def parse_quantity(value: Any) -> Quantity | None:
    """Parse a quantity: a non-negative number, with at most six decimals. Return None for any other value."""
    if type(value) is int:
        return value if value >= 0 else None
    try:
        number = None if isinstance(value, bool) else parse_number(value, "")
    except BadValue:
        return None
    if number is None or not number.is_finite() or not 0 <= number <= 10**12:
        return None
    if number == int(number):
        return int(number)
    return decimal_text(round(Decimal(number), DECIMALS))


def meters_of_details(
    inputs: MediaDetails,
    outputs: MediaDetails,
    *,
    tool_uses: Any = None,
    search_count: Any = None,
    audio_seconds: Any = None,
    cached_token_count: Any = None,
) -> OptionalMeters:
    """
    Return the meters of a usage report's details. `tool_uses` maps tools that the provider ran to their uses.
    `search_count` is the number of searches, `audio_seconds` the seconds of audio, and `cached_token_count`
    the number of cached tokens.
    """
    stated: dict[str, Any] = {}
    has_media = inputs.audio_tokens or inputs.image_tokens or inputs.video_tokens
    if has_media or outputs.audio_tokens or outputs.image_tokens or outputs.video_tokens:
        # read both sides, because a 0 on one side means that this side is only text
        stated |= _counts_by_modality_meter("input_{}_tokens", inputs)
        if isinstance(inputs.cached_tokens_details, CachedParts):
            stated |= _cached_tokens_by_meter(inputs.cached_tokens_details, stated, cached_token_count)
        stated |= _counts_by_modality_meter("output_{}_tokens", outputs)
    if outputs.image_count:
        stated["output_images"] = outputs.image_count
    if inputs.character_count:
        stated["input_characters"] = inputs.character_count
    if inputs.image_count:
        stated["input_images"] = inputs.image_count
    if inputs.video_length_seconds:
        stated["input_video_seconds"] = inputs.video_length_seconds
    if audio_seconds:
        stated["input_audio_seconds"] = audio_seconds
    if tool_uses is not None or search_count or inputs.web_search_requests:
        run = first_positive_search_count(inputs.web_search_requests, tool_uses, search_count)
        if run:
            stated["web_searches"] = run
    return keep_valid_meters(stated) if stated else None


def one_hour_cache_tokens(details: CacheDetail | Other) -> int | None:
    listed = details[:_KINDS] if isinstance(details, list) else []
    kinds = (struct_or_none(detail, CacheDetail) for detail in listed)
    return next(
        (parse_count(kind.inputTokens, "usage.cacheDetails") for kind in kinds if kind and kind.ttl == "1h"),
        None,
    )


def meters_of_speech(details: SonicDetails) -> OptionalMeters:
    """
    Return the audio meters of a spoken session, or None without audio. If only input or output has audio, a 0
    for the other is kept, because it means text.
    """
    sides = struct_or_empty(details.total, SpokenSides)
    input_parts, spoken = (
        struct_or_empty(sides.input, SpokenParts),
        struct_or_empty(sides.output, SpokenParts),
    )
    stated = {"input_audio_tokens": input_parts.speechTokens, "output_audio_tokens": spoken.speechTokens}
    return keep_valid_meters(stated) if any(stated.values()) else None


def select_media_details(details: Mapping[str, Any]) -> MediaDetails:
    cached = details.get("cached_tokens_details")
    known = {name: details[name] for name in MediaDetails.__struct_fields__ if name in details}
    if isinstance(cached, dict):
        names = CachedParts.__struct_fields__
        known["cached_tokens_details"] = CachedParts(**{name: cached.get(name) for name in names})
    return MediaDetails(**known)


def first_positive_search_count(*stated: Any) -> Any:
    """
    Return the first stated number of searches above 0, because some reports state the same searches in two
    places.
    """
    for reported in stated:
        number = (
            struct_or_empty(reported, ServerTools).web_search_requests
            if isinstance(reported, ServerTools)
            else reported
        )
        if type(number) is int and number > 0:
            return number
    return None


def keep_valid_meters(stated: dict[str, Any]) -> OptionalMeters:
    quantities = {
        name: number for name, value in stated.items() if (number := parse_quantity(value)) is not None
    }
    return quantities or None


def meters_of_modality_lists(
    prompt: Any, tools: Any = None, candidates: Any = None, cache: Any = None
) -> OptionalMeters:
    """Return the meters of Gemini's token lists by modality. Tokens of tool results count as input."""
    stated: dict[str, Quantity] = {}
    for pattern, listed in (("input_{}_tokens", prompt), ("input_{}_tokens", tools)):
        _add_modality_list(stated, pattern, listed)
    has_input = bool(stated)
    _add_modality_list(stated, "output_{}_tokens", candidates)
    if has_input:
        _add_modality_list(stated, "cache_{}_read_tokens", cache)
        if isinstance(cache, list):  # a list is complete, so 0 is counted for a modality that is not in it
            for kind in MODALITIES:
                if f"input_{kind}_tokens" in stated:
                    stated.setdefault(f"cache_{kind}_read_tokens", 0)
    return stated or None


def with_tool_tokens(stated: OptionalMeters, tokens: int | None) -> OptionalMeters:
    return {**(stated or {}), "input_tool_tokens": tokens} if tokens else stated


def merge_meters(*several: OptionalMeters) -> OptionalMeters:
    """Return several meters as one set. The first value of a meter counts."""
    combined: dict[str, Quantity] = {}
    for stated in several:
        for name, number in (stated or {}).items():
            combined.setdefault(name, number)
    return combined or None


def _counts_by_modality_meter(pattern: str, details: MediaDetails | CachedParts) -> dict[str, Any]:
    numbers = zip(MODALITIES, (details.audio_tokens, details.image_tokens, details.video_tokens), strict=True)
    return {pattern.format(kind): number for kind, number in numbers if number is not None}


def _cached_tokens_by_meter(details: CachedParts, stated: dict[str, Any], whole: Any) -> dict[str, Any]:
    """Return the cached tokens by modality. If the parts add up to the whole, a missing modality is 0."""
    cached_parts = _counts_by_modality_meter("cache_{}_read_tokens", details)
    parts = [*cached_parts.values(), details.text_tokens]
    if whole is not None and sum(part for part in parts if type(part) is int) == whole:
        for kind in MODALITIES:
            if f"input_{kind}_tokens" in stated:
                cached_parts.setdefault(f"cache_{kind}_read_tokens", 0)
    return {
        f"cache_{kind}_read_tokens": cached_parts[f"cache_{kind}_read_tokens"]
        for kind in MODALITIES
        if f"cache_{kind}_read_tokens" in cached_parts and f"input_{kind}_tokens" in stated
    }


def _add_modality_list(stated: dict[str, Quantity], pattern: str, listed: Any) -> None:
    for raw in listed[:_MOST_LISTED] if isinstance(listed, list) else ():
        line = _read_modality(raw)
        kind = None if line is None else str(line.modality).rpartition(".")[2].lower()
        if line is None or kind not in MODALITIES:
            continue
        number = parse_quantity(line.tokenCount if line.token_count is None else line.token_count)
        if isinstance(number, int):
            name = pattern.format(kind)
            stated[name] = int(stated.get(name, 0)) + number


_MARKS = (b"AUDIO", b"IMAGE", b"VIDEO", b"audio", b"image", b"video")


def _read_modality(raw: Any) -> ModalityCount | None:
    if isinstance(raw, dict):
        names = {name: value for name, value in raw.items() if isinstance(name, str)}
        return ModalityCount(names.get("modality"), names.get("tokenCount"), names.get("token_count"))
    if not isinstance(raw, msgspec.Raw):
        return None
    written = bytes(raw)
    return struct_or_none(raw, ModalityCount) if any(mark in written for mark in _MARKS) else None


def meters_of_buckets(buckets: Iterable[tuple[str, Any]]) -> OptionalMeters:
    """Return the meters of named counts. Tollhouse's own meter names and their aliases are known."""
    numbers: dict[str, Any] = {}
    for written, value in buckets:
        name = _ALIASES.get(written, written)
        if name in METERS:
            numbers[name] = value
    return keep_valid_meters(numbers) if numbers else None


# meter names that users of Langfuse and pydantic-ai use
_ALIASES: Final = {
    **{f"input_{kind}": f"input_{kind}_tokens" for kind in MODALITIES},
    **{f"output_{kind}": f"output_{kind}_tokens" for kind in MODALITIES},
    **{f"input_cached_{kind}_tokens": f"cache_{kind}_read_tokens" for kind in MODALITIES},
    "web_search_requests": "web_searches",
}
