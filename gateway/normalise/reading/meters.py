"""
Meters of one call (spool.meters) out of the usage objects of all providers: audio, images, searches, seconds.

Most calls are text alone, so each reader first looks whether there is anything to read. A quantity that cannot
be is left out: it never costs the call. What the same call tells twice is one quantity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from gateway.normalise.reading.values import BadValue, Other, count, nested, number_of, of_json
from spool.meters import DECIMALS, METERS, MODALITIES, Quantity
from spool.record import decimal_text

Told = dict[str, Quantity] | None  # by meter; None: nothing but text is told

_MOST_LISTED: Final = 16  # modalities of one list
_KINDS: Final = 2  # of cache writes: kept for 5 minutes, for an hour


class CachedParts(msgspec.Struct):
    """OpenAI's `cached_tokens_details`. SGLang's object of this name tells devices, and none of these."""

    audio_tokens: Any = None
    image_tokens: Any = None
    video_tokens: Any = None
    text_tokens: Any = None


class MediaDetails(msgspec.Struct):
    """What the details of an input or an output tell beside text, in OpenAI's words and LiteLLM's."""

    audio_tokens: Any = None
    image_tokens: Any = None
    video_tokens: Any = None
    cached_tokens_details: CachedParts | Other = None
    web_search_requests: Any = None
    character_count: Any = None
    image_count: Any = None
    video_length_seconds: Any = None


class ServerTools(msgspec.Struct):
    """`server_tool_use`; fetching pages costs nothing."""

    web_search_requests: Any = None


class BilledUnits(msgspec.Struct):
    """What Cohere charges for; the tokens that it counts besides are the model's own."""

    input_tokens: Any = None
    output_tokens: Any = None
    search_units: Any = None
    classifications: Any = None


class CacheDetail(msgspec.Struct):
    """Converse's writes of one kind."""

    ttl: Any = None
    inputTokens: Any = None


class SpokenParts(msgspec.Struct):
    """What is speech and what is text of one side of an Amazon Nova Sonic session."""

    speechTokens: Any = None


class SpokenSides(msgspec.Struct):
    input: SpokenParts | Other = None
    output: SpokenParts | Other = None


class SonicDetails(msgspec.Struct):
    """The sums of a session; `delta` beside them is what the last event added."""

    total: SpokenSides | Other = None


class ModalityCount(msgspec.Struct):
    """One line of Gemini's lists."""

    modality: Any = None
    tokenCount: Any = None
    token_count: Any = None


def quantity(value: Any) -> Quantity | None:
    """A number of units, not negative and with six decimals at most; None for anything else."""
    if type(value) is int:
        return value if value >= 0 else None
    try:
        number = None if isinstance(value, bool) else number_of(value, "")
    except BadValue:
        return None
    if number is None or not number.is_finite() or not 0 <= number <= 10**12:
        return None
    if number == int(number):
        return int(number)
    return decimal_text(round(Decimal(number), DECIMALS))


def of_parts(
    inputs: MediaDetails,
    outputs: MediaDetails,
    *,
    searches: Any = None,
    queries: Any = None,
    heard: Any = None,
    whole_cache: Any = None,
) -> Told:
    """
    The meters of OpenAI's details; `searches` is an object of tools that the provider ran, `queries` a plain
    number of them, `heard` are seconds of audio, `whole_cache` the cached tokens.
    """
    told: dict[str, Any] = {}
    has_media = inputs.audio_tokens or inputs.image_tokens or inputs.video_tokens
    if has_media or outputs.audio_tokens or outputs.image_tokens or outputs.video_tokens:
        # where one side tells parts, a 0 of the other says that it is text
        told |= _modalities("input_{}_tokens", inputs)
        if isinstance(inputs.cached_tokens_details, CachedParts):
            told |= _cached(inputs.cached_tokens_details, told, whole_cache)
        told |= _modalities("output_{}_tokens", outputs)
    if outputs.image_count:
        told["output_images"] = outputs.image_count
    if inputs.character_count:
        told["input_characters"] = inputs.character_count
    if inputs.image_count:
        told["input_images"] = inputs.image_count
    if inputs.video_length_seconds:
        told["input_video_seconds"] = inputs.video_length_seconds
    if heard:
        told["input_audio_seconds"] = heard
    if searches is not None or queries or inputs.web_search_requests:
        run = searches_of(inputs.web_search_requests, searches, queries)
        if run:
            told["web_searches"] = run
    return of_numbers(told) if told else None


def one_hour_of(details: CacheDetail | Other) -> int | None:
    """Return the tokens written for one hour, from the first two cache details."""
    listed = details[:_KINDS] if isinstance(details, list) else []
    kinds = (of_json(detail, CacheDetail) for detail in listed)
    return next(
        (count(kind.inputTokens, "usage.cacheDetails") for kind in kinds if kind and kind.ttl == "1h"), None
    )


def of_speech(details: SonicDetails) -> Told:
    """The audio of a session; where one side tells some, a 0 of the other says that it is text."""
    sides = nested(details.total, SpokenSides)
    heard, said = nested(sides.input, SpokenParts), nested(sides.output, SpokenParts)
    told = {"input_audio_tokens": heard.speechTokens, "output_audio_tokens": said.speechTokens}
    return of_numbers(told) if any(told.values()) else None


def parts_in(details: Mapping[str, Any]) -> MediaDetails:
    """The same out of a map."""
    cached = details.get("cached_tokens_details")
    known = {name: details[name] for name in MediaDetails.__struct_fields__ if name in details}
    if isinstance(cached, dict):
        names = CachedParts.__struct_fields__
        known["cached_tokens_details"] = CachedParts(**{name: cached.get(name) for name in names})
    return MediaDetails(**known)


def searches_of(*stated: Any) -> Any:
    """The first number of searches that is not 0: some tell the same searches in two places."""
    for one in stated:
        number = nested(one, ServerTools).web_search_requests if isinstance(one, ServerTools) else one
        if type(number) is int and number > 0:
            return number
    return None


def of_numbers(told: dict[str, Any]) -> Told:
    """Return the values that are quantities; None if there are none."""
    found = {name: number for name, value in told.items() if (number := quantity(value)) is not None}
    return found or None


def of_lists(prompt: Any, tools: Any = None, candidates: Any = None, cache: Any = None) -> Told:
    """The meters of Gemini's lists of modalities: those of tools' answers are in the input, too."""
    told: dict[str, Quantity] = {}
    for pattern, listed in (("input_{}_tokens", prompt), ("input_{}_tokens", tools)):
        _add_listed(told, pattern, listed)
    has_input = bool(told)
    _add_listed(told, "output_{}_tokens", candidates)
    if has_input:
        _add_listed(told, "cache_{}_read_tokens", cache)
        if isinstance(cache, list):  # it tells all modalities that it holds
            for kind in MODALITIES:
                if f"input_{kind}_tokens" in told:
                    told.setdefault(f"cache_{kind}_read_tokens", 0)
    return told or None


def with_tools(told: Told, tokens: int | None) -> Told:
    """The meters with the tokens of tools' answers, which are a part of the input."""
    return {**(told or {}), "input_tool_tokens": tokens} if tokens else told


def merged(*several: Told) -> Told:
    """All of them; what is told twice counts as the first tells it."""
    found: dict[str, Quantity] = {}
    for told in several:
        for name, number in (told or {}).items():
            found.setdefault(name, number)
    return found or None


def _modalities(pattern: str, details: MediaDetails | CachedParts) -> dict[str, Any]:
    numbers = zip(MODALITIES, (details.audio_tokens, details.image_tokens, details.video_tokens), strict=True)
    return {pattern.format(kind): number for kind, number in numbers if number is not None}


def _cached(details: CachedParts, told: dict[str, Any], whole: Any) -> dict[str, Any]:
    """The cached part of each modality; where the parts make up the whole, what is not named is 0."""
    found = _modalities("cache_{}_read_tokens", details)
    parts = [*found.values(), details.text_tokens]
    if whole is not None and sum(part for part in parts if type(part) is int) == whole:
        for kind in MODALITIES:
            if f"input_{kind}_tokens" in told:
                found.setdefault(f"cache_{kind}_read_tokens", 0)
    return {
        f"cache_{kind}_read_tokens": found[f"cache_{kind}_read_tokens"]
        for kind in MODALITIES
        if f"cache_{kind}_read_tokens" in found and f"input_{kind}_tokens" in told
    }


def _add_listed(told: dict[str, Quantity], pattern: str, listed: Any) -> None:
    for raw in listed[:_MOST_LISTED] if isinstance(listed, list) else ():
        line = _line(raw)
        kind = None if line is None else str(line.modality).rpartition(".")[2].lower()
        if line is None or kind not in MODALITIES:
            continue
        number = quantity(line.tokenCount if line.token_count is None else line.token_count)
        if isinstance(number, int):
            name = pattern.format(kind)
            told[name] = int(told.get(name, 0)) + number


_MARKS = (b"AUDIO", b"IMAGE", b"VIDEO", b"audio", b"image", b"video")


def _line(raw: Any) -> ModalityCount | None:
    """One line of a list, unless it is text."""
    if isinstance(raw, dict):
        names = {name: value for name, value in raw.items() if isinstance(name, str)}
        return ModalityCount(names.get("modality"), names.get("tokenCount"), names.get("token_count"))
    if not isinstance(raw, msgspec.Raw):
        return None
    written = bytes(raw)
    return of_json(raw, ModalityCount) if any(mark in written for mark in _MARKS) else None


def of_buckets(buckets: Iterable[tuple[str, Any]]) -> Told:
    """The meters among free names of quantities: those that are written as Tollhouse writes them."""
    found: dict[str, Any] = {}
    for written, value in buckets:
        name = _ALIASES.get(written, written)
        if name in METERS:
            found[name] = value
    return of_numbers(found) if found else None


# Words of Langfuse's users and of pydantic-ai for the same.
_ALIASES: Final = {
    **{f"input_{kind}": f"input_{kind}_tokens" for kind in MODALITIES},
    **{f"output_{kind}": f"output_{kind}_tokens" for kind in MODALITIES},
    **{f"input_cached_{kind}_tokens": f"cache_{kind}_read_tokens" for kind in MODALITIES},
    "web_search_requests": "web_searches",
}
