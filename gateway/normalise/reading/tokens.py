"""
Token counts of one call, from the usage objects of all providers, in one form: input includes the cache, and
output includes reasoning.

In some sources, input already includes the cache. A wrong guess changes the count of cached traffic by a
factor of ten, so the source, the form of its usage object or the counts themselves decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gateway.normalise.reading import meters
from gateway.normalise.reading.meters import BilledUnits, CacheDetail, MediaDetails, ServerTools, SonicDetails
from gateway.normalise.reading.values import MAX_TOKENS, BadValue, Other, parse_count, struct_or_empty
from spool.record import Inference

# Providers whose input count excludes the cache. Some instrumentations copy this count unchanged.
COUNT_CACHE_APART: Final = frozenset({"anthropic", "aws.bedrock"})


class Tokens(NamedTuple):
    """The token counts of one call, as reported or after `normalise_counts`. None means unknown."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cache_write_1h: int | None = None  # tokens that are written to the cache for an hour
    # quantities of other meters than plain text (see spool.meters), or None if they are not stated
    meters: dict[str, int | str] | None = None

    def __bool__(self) -> bool:
        """
        Return whether the input or output count is above 0. A call without a model counts as a call only
        then.
        """
        return bool(self.input or self.output)

    def number_of_known_counts(self) -> int:
        return sum(number is not None for number in self)


# fields of Tokens that are parts of input, output or cache_write
PARTS: Final = ("cache_read", "cache_write", "reasoning", "cache_write_1h")
NUMBERS: Final = ("input", "output", *PARTS)


def set_token_counts(record: Inference, tokens: Tokens) -> None:
    record.input_tokens, record.output_tokens, cache_read, cache_write, reasoning, one_hour, found_meters = (
        tokens
    )
    record.cache_read_tokens, record.cache_write_tokens = cache_read, cache_write
    record.reasoning_tokens, record.cache_write_1h_tokens = reasoning, one_hour
    if found_meters:
        record.meters = found_meters


class CacheWrites(msgspec.Struct):
    ephemeral_5m_input_tokens: Any = None
    ephemeral_1h_input_tokens: Any = None

    def total_tokens(self) -> int | None:
        return sum_of_known(
            parse_count(self.ephemeral_5m_input_tokens, "ephemeral_5m_input_tokens"), self.one_hour_tokens()
        )

    def one_hour_tokens(self) -> int | None:
        return parse_count(self.ephemeral_1h_input_tokens, "ephemeral_1h_input_tokens")


class Details(MediaDetails):
    cached_tokens: Any = None
    cache_creation_tokens: Any = None
    cache_write_tokens: Any = None  # OpenAI's name
    cache_creation_token_details: CacheWrites | Other = None
    reasoning_tokens: Any = None
    thinking_tokens: Any = None  # Anthropic's name

    def reasoning_count(self) -> int | None:
        stated = _value_or_fallback_if_none(self.reasoning_tokens, self.thinking_tokens)
        return parse_count(stated, "usage.completion_tokens_details.reasoning_tokens")


class Usage(msgspec.Struct):
    """A usage object in any form of OpenAI, Anthropic, Converse, Nova Sonic and Cohere."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    total_tokens: Any = None
    service_tier: Any = None
    inference_geo: Any = None  # Anthropic's name
    prompt_tokens_details: Details | Other = None
    completion_tokens_details: Details | Other = None
    input_tokens_details: Details | Other = None
    output_tokens_details: Details | Other = None
    input_token_details: Details | Other = None  # details in OpenAI's realtime responses and transcriptions
    output_token_details: Details | Other = None
    server_tool_use: ServerTools | Other = None
    num_search_queries: Any = None  # number of searches at Perplexity, like the next two fields
    citation_tokens: Any = None
    reasoning_tokens: Any = None
    prompt_audio_seconds: Any = None  # seconds of audio at Mistral
    type: Any = None  # charge of a transcription: by tokens or by duration
    seconds: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_creation: CacheWrites | Other = None
    inputTokens: Any = None
    outputTokens: Any = None
    cacheReadInputTokens: Any = None
    cacheWriteInputTokens: Any = None
    cacheDetails: CacheDetail | Other = None  # details of the cache, a list of CacheDetail
    totalInputTokens: Any = None  # token count of Nova Sonic, like the next two fields
    totalOutputTokens: Any = None
    details: SonicDetails | Other = None
    billed_units: BilledUnits | Other = None  # Cohere's
    cost_in_usd_ticks: Any = None  # the amount that xAI charged


class Gemini(msgspec.Struct):
    promptTokenCount: Any = None
    candidatesTokenCount: Any = None
    thoughtsTokenCount: Any = None
    toolUsePromptTokenCount: Any = None
    cachedContentTokenCount: Any = None
    totalTokenCount: Any = None
    trafficType: Any = None  # type of traffic, which only Vertex states
    promptTokensDetails: Other = None  # counts by modality, like the following fields
    toolUsePromptTokensDetails: Other = None
    candidatesTokensDetails: Other = None
    responseTokensDetails: Other = None  # counts by modality, which only the Live API sends
    cacheTokensDetails: Other = None


def normalise_counts(
    reported: Tokens,
    *,
    total: int | None = None,
    without_cache: bool = False,
    without_reasoning: bool = False,
) -> Tokens:
    """
    Return the counts in Tollhouse's form: input includes the cache, and output includes reasoning.

    `without_cache` and `without_reasoning` are True if the source is known to exclude them. Otherwise a
    reported total decides. If there is no total, a part that is larger than its whole shows that the whole
    excludes the part.
    """
    input_tokens, output_tokens, cache_read, cache_write, reasoning, one_hour, found_meters = reported
    cache, reasoning = (cache_read or 0) + (cache_write or 0), reasoning or 0
    # if the one-hour count exceeds all cache writes, it is not a part of them
    if one_hour and one_hour > (cache_write or 0):
        one_hour, reported = None, reported._replace(cache_write_1h=None)
    if not cache and not reasoning:
        return reported
    if total is not None:
        outside = total - (input_tokens or 0) - (output_tokens or 0)
        without_cache = without_cache or (cache > 0 and outside in (cache, cache + reasoning))
        rest = outside - cache if without_cache else outside
        without_reasoning = without_reasoning or (reasoning > 0 and rest == reasoning)
    is_whole = True
    if input_tokens is not None and (without_cache or cache > input_tokens):
        input_tokens += cache
        is_whole = False
    if output_tokens is not None and (without_reasoning or reasoning > output_tokens):
        output_tokens += reasoning
        is_whole = False
    if is_whole:
        return reported
    return Tokens(
        input_tokens, output_tokens, cache_read, cache_write, reported.reasoning, one_hour, found_meters
    )


def choose_input_and_output_with_total(
    tokens: Tokens, total: int, inputs: Sequence[Any], outputs: Sequence[Any], *, without_cache: bool
) -> Tokens:
    """
    Return `tokens` with the first pair of `inputs` and `outputs` that adds up to the total, or `tokens`
    unchanged.
    """
    cache, reasoning = (tokens.cache_read or 0) + (tokens.cache_write or 0), tokens.reasoning or 0
    rest = total - cache if without_cache else total
    if rest < 0:
        return tokens
    for stated in inputs:
        output = rest - stated if type(stated) is int and stated >= 0 else None
        if output is not None and output in outputs and output >= reasoning:
            whole = total - output
            if whole >= cache:
                return tokens._replace(input=whole, output=output)
    return tokens


def usage_if_consistent(whole: Tokens, stated: Tokens) -> Tokens | None:
    """
    Return the counts of a usage object if they agree with all counts stated separately. Otherwise return None.

    The usage object is preferred, because its form shows what its sums include. Counts stated separately may
    exclude the cache or reasoning.
    """
    if whole.input is None or whole.output is None:
        return None
    without_cache = whole.input - (whole.cache_read or 0) - (whole.cache_write or 0)
    without_reasoning = whole.output - (whole.reasoning or 0)
    if stated.input not in (None, whole.input, without_cache):
        return None
    if stated.output not in (None, whole.output, without_reasoning):
        return None
    if any(getattr(stated, part) not in (None, 0, getattr(whole, part)) for part in PARTS):
        return None
    return whole._replace(**{part: getattr(stated, part) for part in PARTS if getattr(whole, part) is None})


def with_missing_reasoning(tokens: Tokens, total: int | None) -> Tokens:
    """
    Return tokens with the reasoning that a report counts only in the total: the total minus input and output.
    """
    if total is None or tokens.input is None or tokens.output is None or tokens.reasoning:
        return tokens
    thoughts = total - tokens.input - tokens.output
    return tokens._replace(output=tokens.output + thoughts, reasoning=thoughts) if thoughts > 0 else tokens


def with_rest_of_total(tokens: Tokens, total: int | None) -> Tokens:
    """
    Return tokens with what a report counts only in the total. The rest is input, whose cached part is unknown.

    A total alone is the input as well. As the output stays unknown, the call gets no estimate unless its output is
    free, such as that of embeddings.
    """
    input_tokens, output_tokens = tokens.input, tokens.output
    if not total:
        return tokens
    if output_tokens is None:
        if input_tokens is None:
            return tokens._replace(input=total)
        return tokens._replace(output=total - input_tokens) if total > input_tokens else tokens
    rest = total - output_tokens
    return tokens._replace(input=rest) if rest > (input_tokens or 0) else tokens


def tokens_of_usage(usage: Usage, *, without_cache: bool = False) -> Tokens:
    """
    Return the tokens of a usage object. `without_cache`: the object has OpenAI's names, but the provider's
    input count excludes the cache.
    """
    if usage.prompt_tokens is not None or usage.completion_tokens is not None or _is_openai(usage):
        return _openai_tokens(usage, without_cache=without_cache)
    if usage.inputTokens is not None or usage.outputTokens is not None:
        return _converse_tokens(usage)
    if usage.totalInputTokens is not None:
        return _sonic_tokens(usage)
    return _anthropic_tokens(usage)


def tokens_of_gemini(usage: Gemini) -> Tokens:
    """
    Return the tokens of Gemini. The prompt count excludes tool results, and the candidates count excludes
    reasoning.

    Other providers of this form may include reasoning; the total shows whether they do.
    """
    thoughts = parse_count(usage.thoughtsTokenCount, "usageMetadata.thoughtsTokenCount")
    from_tools = parse_count(usage.toolUsePromptTokenCount, "usageMetadata.toolUsePromptTokenCount")
    prompt = parse_count(usage.promptTokenCount, "usageMetadata.promptTokenCount")
    candidates = parse_count(usage.candidatesTokenCount, "usageMetadata.candidatesTokenCount")
    cached = parse_count(usage.cachedContentTokenCount, "usageMetadata.cachedContentTokenCount")
    # some gateways forward the total without the count of reasoning tokens, which it includes
    if thoughts is None and prompt is not None:
        thoughts = _positive_rest(possible_token_total(usage.totalTokenCount), prompt, from_tools, candidates)
    total = possible_token_total(usage.totalTokenCount)
    put_out = usage.candidatesTokensDetails or usage.responseTokensDetails
    tools, cache = usage.toolUsePromptTokensDetails, usage.cacheTokensDetails
    found_meters = meters.meters_of_modality_lists(usage.promptTokensDetails, tools, put_out, cache)
    found_meters = meters.with_tool_tokens(found_meters, from_tools)
    input_tokens = sum_of_known(prompt, from_tools)
    if thoughts and total is not None and total == sum_of_known(prompt, from_tools, candidates):
        return normalise_counts(
            Tokens(input_tokens, candidates, cached, reasoning=thoughts, meters=found_meters)
        )
    return normalise_counts(
        Tokens(
            input_tokens, sum_of_known(candidates, thoughts), cached, reasoning=thoughts, meters=found_meters
        )
    )


def cache_write_count(usage: Usage) -> int | None:
    """
    Return the cache writes. Some libraries write a total of 0 next to the sums by lifetime, which then count.
    """
    total = parse_count(usage.cache_creation_input_tokens, "usage.cache_creation_input_tokens")
    if total or usage.cache_creation is None:
        return total
    kinds = struct_or_empty(usage.cache_creation, CacheWrites).total_tokens()
    return kinds if kinds or total is None else total


def possible_token_total(stated_total: Any) -> int | None:
    """
    Return a stated total of tokens, or None if it is impossible. It raises no error, because totals are never
    billed.
    """
    if type(stated_total) is int:  # the most frequent type first
        return stated_total if 0 <= stated_total <= MAX_TOKENS else None
    try:
        return parse_count(stated_total, "usage.total_tokens")
    except BadValue:
        return None


def _positive_rest(total: int | None, *parts: int | None) -> int | None:
    rest = 0 if total is None else total - sum(part or 0 for part in parts)
    return rest if rest > 0 else None


def sum_of_known(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _openai_tokens(usage: Usage, *, without_cache: bool) -> Tokens:
    details = usage.prompt_tokens_details or usage.input_tokens_details or usage.input_token_details
    input_details = struct_or_empty(details, Details)
    output_details = struct_or_empty(
        usage.completion_tokens_details or usage.output_tokens_details or usage.output_token_details, Details
    )
    cache_read = _value_or_fallback_if_none(input_details.cached_tokens, usage.cache_read_input_tokens)
    kinds = _value_or_fallback_if_none(input_details.cache_creation_token_details, usage.cache_creation)
    reported = Tokens(
        parse_count(
            _value_or_fallback_if_none(usage.prompt_tokens, usage.input_tokens), "usage.prompt_tokens"
        ),
        parse_count(
            _value_or_fallback_if_none(usage.completion_tokens, usage.output_tokens),
            "usage.completion_tokens",
        ),
        parse_count(cache_read, "usage.prompt_tokens_details.cached_tokens"),
        _openai_cache_write(usage, input_details),
        output_details.reasoning_count(),
        None if kinds is None else struct_or_empty(kinds, CacheWrites).one_hour_tokens(),
        meters.meters_of_details(
            input_details,
            output_details,
            tool_uses=usage.server_tool_use,
            search_count=usage.num_search_queries,
            audio_seconds=usage.prompt_audio_seconds,
            cached_token_count=cache_read,
        ),
    )
    if usage.citation_tokens is not None:
        return _with_citation_tokens(reported, usage)
    return normalise_counts(
        reported, total=possible_token_total(usage.total_tokens), without_cache=without_cache
    )


def _with_citation_tokens(reported: Tokens, usage: Usage) -> Tokens:
    # Perplexity's completion count and total exclude reasoning and citation tokens
    cited = parse_count(usage.citation_tokens, "usage.citation_tokens")
    thoughts = _value_or_fallback_if_none(
        reported.reasoning, parse_count(usage.reasoning_tokens, "usage.reasoning_tokens")
    )
    found_meters = meters.merge_meters(
        reported.meters, meters.keep_valid_meters({"output_citation_tokens": cited})
    )
    return reported._replace(
        output=sum_of_known(reported.output, thoughts, cited), reasoning=thoughts, meters=found_meters
    )


def _openai_cache_write(usage: Usage, input_details: Details) -> int | None:
    stated = _value_or_fallback_if_none(input_details.cache_creation_tokens, input_details.cache_write_tokens)
    write = parse_count(stated, "usage.prompt_tokens_details.cache_creation_tokens")
    if write is None:
        write = cache_write_count(usage)
    if write is not None or input_details.cache_creation_token_details is None:
        return write
    return struct_or_empty(input_details.cache_creation_token_details, CacheWrites).total_tokens()


def _converse_tokens(usage: Usage) -> Tokens:
    reported = Tokens(
        parse_count(usage.inputTokens, "usage.inputTokens"),
        parse_count(usage.outputTokens, "usage.outputTokens"),
        parse_count(usage.cacheReadInputTokens, "usage.cacheReadInputTokens"),
        parse_count(usage.cacheWriteInputTokens, "usage.cacheWriteInputTokens"),
        cache_write_1h=None
        if usage.cacheDetails is None
        else meters.one_hour_cache_tokens(usage.cacheDetails),
    )
    return normalise_counts(reported, without_cache=True)


def _sonic_tokens(usage: Usage) -> Tokens:
    input_tokens = parse_count(usage.totalInputTokens, "usage.totalInputTokens")
    spoken = parse_count(usage.totalOutputTokens, "usage.totalOutputTokens")
    return Tokens(
        input_tokens, spoken, meters=meters.meters_of_speech(struct_or_empty(usage.details, SonicDetails))
    )


def _anthropic_tokens(usage: Usage) -> Tokens:
    reported = Tokens(
        parse_count(usage.input_tokens, "usage.input_tokens"),
        parse_count(usage.output_tokens, "usage.output_tokens"),
        parse_count(usage.cache_read_input_tokens, "usage.cache_read_input_tokens"),
        cache_write_count(usage),
        struct_or_empty(usage.output_tokens_details, Details).reasoning_count(),
        None
        if usage.cache_creation is None
        else struct_or_empty(usage.cache_creation, CacheWrites).one_hour_tokens(),
        _search_and_audio_meters(usage),
    )
    return normalise_counts(reported, without_cache=True)


def _search_and_audio_meters(usage: Usage) -> meters.OptionalMeters:
    if usage.server_tool_use is None and usage.seconds is None:
        return None
    audio_seconds = usage.seconds if usage.type == "duration" else None
    searches = meters.first_positive_search_count(usage.server_tool_use)
    return meters.keep_valid_meters({"web_searches": searches, "input_audio_seconds": audio_seconds})


def _is_openai(usage: Usage) -> bool:
    """Return whether the object is OpenAI's. Anthropic's object has details only for the output."""
    details = (
        usage.prompt_tokens_details,
        usage.input_tokens_details,
        usage.completion_tokens_details,
        usage.input_token_details,
    )
    return any(isinstance(part, Details) for part in details)


def _value_or_fallback_if_none(value: Any, fallback: Any) -> Any:
    return fallback if value is None else value


# --- Buckets: counts under names that senders choose -----------------------------------------------------------

_TOTAL = ("total", "total_tokens")
_WRITTEN = re.compile("creation|write|ephemeral")
_ONE_HOUR = re.compile("_1h(?:_|$)")


def is_token_bucket(name: str) -> bool:
    """
    Return whether a bucket of Langfuse's usage counts tokens, by its name. Other buckets may count seconds or
    images.
    """
    return _is_input_bucket(name) or "output" in name or name in _TOTAL


def tokens_of_buckets(buckets: Mapping[str, int]) -> Tokens:
    """Return the counts of Langfuse's usage buckets, summed by kind. A count without any bucket is None."""
    inputs = {name: number for name, number in buckets.items() if _is_input_bucket(name)}
    outputs = {name: number for name, number in buckets.items() if "output" in name}
    cache_writes = {name: number for name, number in inputs.items() if _WRITTEN.search(name)}
    cache_reads = [number for name, number in inputs.items() if "cache" in name and name not in cache_writes]
    reasoning = [number for name, number in outputs.items() if "reasoning" in name]
    input_tokens = _first_bucket(buckets, "input", "input_tokens")
    output_tokens = _first_bucket(buckets, "output", "output_tokens")
    total = _first_bucket(buckets, *_TOTAL)
    if total is None or total != (input_tokens or 0) + (output_tokens or 0):
        input_tokens, output_tokens = sum_of_known(*inputs.values()), sum_of_known(*outputs.values())
    return Tokens(
        input=input_tokens,
        output=output_tokens,
        cache_read=sum_of_known(*cache_reads),
        cache_write=sum_of_known(*cache_writes.values()),
        reasoning=sum_of_known(*reasoning),
        cache_write_1h=sum_of_known(
            *[number for name, number in cache_writes.items() if _ONE_HOUR.search(name)]
        ),
    )


def _is_input_bucket(name: str) -> bool:
    return "input" in name or name.startswith("cache")


def _first_bucket(buckets: Mapping[str, int], *names: str) -> int | None:
    return next((buckets[name] for name in names if name in buckets), None)
