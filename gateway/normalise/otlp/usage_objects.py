"""
Usage objects and whole responses of providers, in attributes that hold their text.

The text is JSON or the `repr` of a Python dict. It is read while decoding and never stored. Only counts, the
response id, the region, and a service tier with its own prices are kept. If an attribute of its own states the same
field, that attribute takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.product import SpanFields
from gateway.normalise.payload.items import UNREADABLE
from gateway.normalise.payload.literal import read_python_literal
from gateway.normalise.payload.provider_bodies import tier_of_traffic_type
from gateway.normalise.reading import meters, regions
from gateway.normalise.reading.costs import cost_of_ticks
from gateway.normalise.reading.meters import CachedParts, meters_of_details, select_media_details
from gateway.normalise.reading.tokens import (
    CacheWrites,
    Details,
    Gemini,
    Tokens,
    Usage,
    normalise_counts,
    tokens_of_gemini,
    tokens_of_usage,
    usage_if_consistent,
)
from gateway.normalise.reading.values import (
    BadValue,
    Other,
    decimal_json_decoder,
    parse_count,
    struct_or_empty,
)
from spool.identity import is_long_id
from spool.processing import MODES

_LONGEST_USAGE = 16 * 1024
_JSON = ("{", "[")

# --- Usage objects ------------------------------------------------------------------------------------------


class LangChainTokenParts(CacheWrites):
    """
    The parts of LangChain's token counts. OpenAI's realtime responses use the same object names with other
    members.
    """

    cache_read: Any = None
    cache_creation: Any = None
    reasoning: Any = None
    audio: Any = None
    image: Any = None
    video: Any = None
    text_tokens: Any = None
    audio_tokens: Any = None
    image_tokens: Any = None
    cached_tokens: Any = None
    cached_tokens_details: CachedParts | Other = None
    reasoning_tokens: Any = None

    @property
    def has_parts_of_openai(self) -> bool:
        return not (self.text_tokens is None and self.audio_tokens is None and self.cached_tokens is None)

    def openai_details(self) -> Details:
        return Details(
            audio_tokens=self.audio_tokens,
            image_tokens=self.image_tokens,
            cached_tokens=self.cached_tokens,
            cached_tokens_details=self.cached_tokens_details,
            reasoning_tokens=self.reasoning_tokens,
        )


class UsageObject(Usage):
    """A usage object. Gemini's names appear in both spellings."""

    input_token_details: LangChainTokenParts | Other = None  # type: ignore[assignment]
    output_token_details: LangChainTokenParts | Other = None  # type: ignore[assignment]
    totalTokens: Any = None
    promptTokenCount: Any = None
    candidatesTokenCount: Any = None
    thoughtsTokenCount: Any = None
    toolUsePromptTokenCount: Any = None
    cachedContentTokenCount: Any = None
    totalTokenCount: Any = None
    trafficType: Any = None
    prompt_token_count: Any = None
    candidates_token_count: Any = None
    thoughts_token_count: Any = None
    tool_use_prompt_token_count: Any = None
    cached_content_token_count: Any = None
    total_token_count: Any = None
    traffic_type: Any = None
    promptTokensDetails: Other = None
    toolUsePromptTokensDetails: Other = None
    candidatesTokensDetails: Other = None
    responseTokensDetails: Other = None
    cacheTokensDetails: Other = None
    tool_use_prompt_tokens_details: Other = None
    candidates_tokens_details: Other = None
    response_tokens_details: Other = None
    cache_tokens_details: Other = None


def parse_usage_counts(json_or_python_text: str) -> dict[str, Any]:
    if len(json_or_python_text) > _LONGEST_USAGE:
        return {}
    try:
        return _counts_of_usage(decimal_json_decoder(UsageObject).decode(json_or_python_text))
    except UNREADABLE:
        return (
            _counts_of_usage(read_python_literal(json_or_python_text, UsageObject))
            if json_or_python_text.startswith("{'")
            else {}
        )


def fields_of_usage_object(value: Any) -> SpanFields:
    """Return the fields of a usage object. The field `usage` holds all counts as one set."""
    if not isinstance(value, dict):
        return {}
    return {**value, "usage": _tokens_from_fields(value)}


def first_usage_with_counts(*usages: Any) -> dict[str, Any]:
    read = (_counts_of_usage(usage) for usage in usages if isinstance(usage, UsageObject))
    return next((counts for counts in read if counts), {})


def provider_or_framework_counts(stated: dict[str, Any], answered: dict[str, Any]) -> dict[str, Any]:
    """
    Return the counts of the provider's own usage object (`answered`) if they agree with the framework's
    counts (`stated`), otherwise `stated`.
    """
    tokens = usage_if_consistent(_tokens_from_fields(answered), _tokens_from_fields(stated))
    if tokens is None:
        return stated
    return answered | {field: number for field, number in tokens._asdict().items() if number is not None}


def _tokens_from_fields(fields: dict[str, Any]) -> Tokens:
    return Tokens(*[fields.get(field) for field in Tokens._fields])


def _counts_of_usage(usage: UsageObject) -> dict[str, Any]:
    """Return the counts of a usage object, and the cost if the provider states what it charged."""
    try:
        tokens, total = _tokens_and_total(usage)
    # ignore a bad count here; it is rejected only in attributes that state counts by themselves
    except BadValue:
        return {}
    stated_counts = {field: number for field, number in tokens._asdict().items() if number is not None}
    if stated_counts and total is not None:
        stated_counts["total"] = total
    if not stated_counts:
        return stated_counts
    billed_cost = cost_of_ticks(usage.cost_in_usd_ticks)
    if billed_cost is not None:
        stated_counts["cost"] = Decimal(billed_cost)
    traffic = _value_or_fallback_if_none(usage.trafficType, usage.traffic_type)
    of_vertex = None if traffic is None else tier_of_traffic_type(traffic)
    return stated_counts | _service_tier_field(usage.service_tier, of_vertex) | _region_as_field(usage)


def _service_tier_field(*stated: Any) -> dict[str, Any]:
    """
    Return the first service tier that has prices of its own, as the field `service_tier`. OpenAI states the
    tier next to the usage, Anthropic inside the usage.
    """
    tier = next(
        (candidate for candidate in stated if isinstance(candidate, str) and candidate in MODES), None
    )
    return {} if tier is None else {"service_tier": tier}


def _region_as_field(usage: UsageObject) -> dict[str, Any]:
    region = regions.normal_region_name(usage.inference_geo)
    return {} if region is None else {"region": region}


def _tokens_and_total(usage: UsageObject) -> tuple[Tokens, int | None]:
    stated = usage.total_tokens if usage.total_tokens is not None else usage.totalTokens
    total = parse_count(stated, "total_tokens")
    inputs, outputs = usage.input_token_details, usage.output_token_details
    if isinstance(inputs, LangChainTokenParts) and inputs.has_parts_of_openai:
        return _realtime_tokens(usage, inputs), total
    if isinstance(inputs, LangChainTokenParts) or isinstance(outputs, LangChainTokenParts):
        return _langchain_tokens(usage, total), total
    if usage.promptTokenCount is not None or usage.prompt_token_count is not None:
        gemini = Gemini(*[_value_or_fallback_if_none(*spellings) for spellings in _gemini_count_pairs(usage)])
        gemini.promptTokensDetails = _value_or_fallback_if_none(
            usage.promptTokensDetails, usage.prompt_tokens_details
        )
        gemini.toolUsePromptTokensDetails = _value_or_fallback_if_none(
            usage.toolUsePromptTokensDetails, usage.tool_use_prompt_tokens_details
        )
        gemini.candidatesTokensDetails = _value_or_fallback_if_none(
            usage.candidatesTokensDetails, usage.candidates_tokens_details
        )
        gemini.responseTokensDetails = _value_or_fallback_if_none(
            usage.responseTokensDetails, usage.response_tokens_details
        )
        gemini.cacheTokensDetails = _value_or_fallback_if_none(
            usage.cacheTokensDetails, usage.cache_tokens_details
        )
        total = parse_count(
            _value_or_fallback_if_none(usage.totalTokenCount, usage.total_token_count), "totalTokenCount"
        )
        # reasoning that is only part of the total is found later, by the name of the model
        if gemini.thoughtsTokenCount is not None:
            gemini.totalTokenCount = total
        return tokens_of_gemini(gemini), total
    return tokens_of_usage(usage), total


def _gemini_count_pairs(usage: UsageObject) -> tuple[tuple[Any, Any], ...]:
    return (
        (usage.promptTokenCount, usage.prompt_token_count),
        (usage.candidatesTokenCount, usage.candidates_token_count),
        (usage.thoughtsTokenCount, usage.thoughts_token_count),
        (usage.toolUsePromptTokenCount, usage.tool_use_prompt_token_count),
        (usage.cachedContentTokenCount, usage.cached_content_token_count),
    )


def _value_or_fallback_if_none(value: Any, fallback: Any) -> Any:
    return fallback if value is None else value


def _realtime_tokens(usage: UsageObject, inputs: LangChainTokenParts) -> Tokens:
    plain = Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=inputs.openai_details(),
        output_tokens_details=struct_or_empty(
            usage.output_token_details, LangChainTokenParts
        ).openai_details(),
    )
    return tokens_of_usage(plain)


def _langchain_tokens(usage: UsageObject, total: int | None) -> Tokens:
    inputs = struct_or_empty(usage.input_token_details, LangChainTokenParts)
    outputs = struct_or_empty(usage.output_token_details, LangChainTokenParts)
    stated = Tokens(
        parse_count(usage.input_tokens, "input_tokens"),
        parse_count(usage.output_tokens, "output_tokens"),
        parse_count(inputs.cache_read, "cache_read"),
        parse_count(inputs.cache_creation, "cache_creation") or inputs.total_tokens(),
        parse_count(outputs.reasoning, "reasoning"),
        inputs.one_hour_tokens(),
        _langchain_parts(inputs, outputs),
    )
    return normalise_counts(stated, total=total)


def _langchain_parts(inputs: LangChainTokenParts, outputs: LangChainTokenParts) -> meters.OptionalMeters:
    sides = (("input", inputs), ("output", outputs))
    media_tokens = {
        f"{side}_{kind}_tokens": number
        for side, parts in sides
        for kind, number in (("audio", parts.audio), ("image", parts.image), ("video", parts.video))
        if number is not None
    }
    return meters.keep_valid_meters(media_tokens) if any(media_tokens.values()) else None


# --- Responses -----------------------------------------------------------------------------------------------

# Matches ids that a provider gave; ids of models or frameworks do not match.
_GIVEN = re.compile(r"(?:chatcmpl|cmpl|msg|resp|gen)[-_][\w-]{16,120}", re.ASCII)
_READABLE = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


class AnswerMetadata(Struct):
    id: Any = None
    service_tier: Any = None
    usage: UsageObject | Other = None
    token_usage: UsageObject | Other = None


class LangChainMessage(Struct):
    id: Any = None
    response_metadata: AnswerMetadata | Other = None
    usage_metadata: UsageObject | Other = None


class SerialisedMessage(LangChainMessage):
    kwargs: LangChainMessage | Other = None


class LangChainGeneration(Struct):
    message: SerialisedMessage | Other = None


class ProviderAnswer(Struct):
    """A provider's response. Its content is not decoded."""

    id: Any = None
    responseId: Any = None
    response_id: Any = None
    model: Any = None
    modelVersion: Any = None
    model_version: Any = None
    role: Any = None
    service_tier: Any = None
    usage: UsageObject | Other = None
    usageMetadata: UsageObject | Other = None
    usage_metadata: UsageObject | Other = None
    response_metadata: AnswerMetadata | Other = None
    llm_output: AnswerMetadata | Other = None
    generations: list[list[LangChainGeneration]] | str | int | float | bool | None = None


_answers = msgspec.json.Decoder(ProviderAnswer)
_messages = msgspec.json.Decoder(list[ProviderAnswer])


def parse_response_fields(written: str) -> dict[str, Any]:
    """Return `response_id`, `service_tier` and counts, or an empty dict for any other text."""
    if not written.startswith(_JSON):
        return {}
    try:
        if written.startswith("["):
            return _fields_of_messages(_messages.decode(written))
        return _fields_of_response(_answers.decode(written))
    except UNREADABLE:
        return {}


def first_unique_id(*stated: Any) -> str | None:
    """
    Return the first id that is unique, or None. Use this only where the framework states that the ids belong
    to responses.
    """
    return next((id for id in stated if _is_unique_id(id)), None)


def _fields_of_messages(messages: list[ProviderAnswer]) -> dict[str, Any]:
    """
    Read a list of messages. A list of one complete response is read as that response, because OpenAI's agents
    for JavaScript write it in this form. Other lists may hold ids of single messages, so only ids that a
    provider gave to a whole response count.
    """
    if len(messages) == 1:
        fields = _fields_of_response(messages[0])
        if "response_id" in fields and _is_complete_response(messages[0], fields):
            return fields
    message_ids = {
        message.id for message in messages if message.role == "assistant" and _is_id_of_provider(message.id)
    }
    return {"response_id": message_ids.pop()} if len(message_ids) == 1 else {}


def _fields_of_response(answer: ProviderAnswer) -> dict[str, Any]:
    if answer.generations is not None:
        return _fields_of_generations(answer)
    fields = first_usage_with_counts(answer.usage, answer.usageMetadata, answer.usage_metadata)
    metadata = struct_or_empty(answer.response_metadata, AnswerMetadata)
    stated = next(
        (part for part in (answer.id, answer.responseId, answer.response_id) if part is not None), None
    )
    if _is_id_of_provider(metadata.id):
        fields["response_id"] = metadata.id
    elif _is_id_of_provider(stated) or (_is_unique_id(stated) and _is_complete_response(answer, fields)):
        fields["response_id"] = stated
    return _service_tier_field(answer.service_tier, metadata.service_tier) | fields


def _is_complete_response(answer: ProviderAnswer, stated_fields: dict[str, Any]) -> bool:
    is_counted = any(field in stated_fields for field in Tokens._fields)
    return is_counted and any((answer.model, answer.modelVersion, answer.model_version))


def _fields_of_generations(answer: ProviderAnswer) -> dict[str, Any]:
    """
    Read LangChain's generations of a response. With several prompts, the counts are not read from a message,
    because they do not belong to one.
    """
    counts: dict[str, Any] = {}
    whole = struct_or_empty(answer.llm_output, AnswerMetadata)
    ids: list[Any] = []
    tiers: list[Any] = []
    generations = answer.generations if isinstance(answer.generations, list) else []
    if len(generations) == 1:
        for choice in generations[0]:
            outer = struct_or_empty(choice.message, SerialisedMessage)
            for message in (struct_or_empty(outer.kwargs, LangChainMessage), outer):
                metadata = struct_or_empty(message.response_metadata, AnswerMetadata)
                ids += [metadata.id, message.id]
                tiers.append(metadata.service_tier)
                counts = counts or first_usage_with_counts(
                    message.usage_metadata, metadata.usage, metadata.token_usage
                )
        ids.append(whole.id)
    counts = _service_tier_field(*tiers) | (counts or first_usage_with_counts(whole.usage, whole.token_usage))
    response_id = next((id for id in ids if _is_id_of_provider(id)), None)
    return counts if response_id is None else {**counts, "response_id": response_id}


def _is_id_of_provider(id: Any) -> bool:
    return isinstance(id, str) and _GIVEN.fullmatch(id) is not None


def _is_unique_id(id: Any) -> bool:
    return isinstance(id, str) and _READABLE.fullmatch(id) is not None and is_long_id(id)


# --- Helpers for objects of single products ------------------------------------------------------------------

_LONGEST = 4096
_DEEPEST = 6
_PAIR = re.compile(r"""['"](\w{1,64})['"]\s*:\s*(-?[0-9]{1,20}(?:\.[0-9]{1,20})?)(?![\w.])""")


def counts_by_field(tree: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> SpanFields:
    """Return counts by field. The first name of a field that has a number counts."""
    stated_counts: dict[str, Any] = {}
    for field, keys in names.items():
        for key in keys:
            if key in tree and (number := semconv.parse_count_if_number(tree[key], key)) is not None:
                stated_counts[field] = number
                break
    return stated_counts


def numbers_in_python_repr(value: Any) -> dict[str, int | str]:
    """
    Return the numbers in a text of Python. The first number of a repeated name counts. Nested dicts are
    included.
    """
    numbers: dict[str, int | str] = {}
    if isinstance(value, str) and len(value) <= _LONGEST:
        for name, digits in _PAIR.findall(value):
            if name not in numbers:
                numbers[name] = int(digits) if digits.isdecimal() else digits
    return numbers


def openai_usage(usage: dict[str, Any]) -> SpanFields:
    is_old = "prompt_tokens" in usage or "completion_tokens" in usage
    input_side, output_side = ("prompt", "completion") if is_old else ("input", "output")
    totals = {
        "input": (f"{input_side}_tokens",),
        "output": (f"{output_side}_tokens",),
        "total": ("total_tokens",),
    }
    inputs = object_or_empty(usage, f"{input_side}_tokens_details")
    outputs = object_or_empty(usage, f"{output_side}_tokens_details")
    media_meters = meters_of_details(
        select_media_details(inputs),
        select_media_details(outputs),
        cached_token_count=inputs.get("cached_tokens"),
    )
    return {
        **counts_by_field(usage, totals),
        **counts_by_field(inputs, {"cache_read": ("cached_tokens",), "cache_write": ("cache_write_tokens",)}),
        **counts_by_field(outputs, {"reasoning": ("reasoning_tokens",)}),
        **({} if media_meters is None else {"meters": media_meters}),
    }


def object_or_empty(tree: Any, name: str) -> dict[str, Any]:
    value = tree.get(name) if isinstance(tree, dict) else None
    return value if isinstance(value, dict) else {}


def token_counts_in_tree(tree: dict[str, Any], depth: int = _DEEPEST) -> dict[str, Any]:
    """Return the token counts of a tree of objects, under their names. Everything else is dropped."""
    token_counts: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and depth:
            if below := token_counts_in_tree(value, depth - 1):
                token_counts[name] = below
        elif isinstance(value, int | float) and not isinstance(value, bool) and "oken" in name:
            token_counts[name] = value
    return token_counts
