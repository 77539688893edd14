"""
Token counts in the shapes of the providers, brought to one: input with the cache in it, output with reasoning in it.

Which shape a usage object has decides whether the cache is already inside; a wrong guess is a factor of ten on cached
traffic, so nothing is guessed that the shape or the figures themselves do not tell.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gateway.normalise.reading.values import Other, count, nested


class Tokens(NamedTuple):
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def __bool__(self) -> bool:
        """Whether anything was counted: a call without a model is one only then."""
        return bool(self.input or self.output)

    @property
    def stated(self) -> bool:
        return any(number is not None for number in self)


class CacheWrites(msgspec.Struct):
    """Writes by how long they are kept."""

    ephemeral_5m_input_tokens: Any = None
    ephemeral_1h_input_tokens: Any = None

    def total(self) -> int | None:
        return added(
            count(self.ephemeral_5m_input_tokens, "ephemeral_5m_input_tokens"),
            count(self.ephemeral_1h_input_tokens, "ephemeral_1h_input_tokens"),
        )


class Details(msgspec.Struct):
    """`prompt_tokens_details`, `completion_tokens_details` and their newer names."""

    cached_tokens: Any = None
    cache_creation_tokens: Any = None
    cache_write_tokens: Any = None  # OpenAI's own word
    cache_creation_token_details: CacheWrites | Other = None
    reasoning_tokens: Any = None
    thinking_tokens: Any = None  # Anthropic's word

    def reasoning(self) -> int | None:
        said = _either(self.reasoning_tokens, self.thinking_tokens)
        return count(said, "usage.completion_tokens_details.reasoning_tokens")


class Usage(msgspec.Struct):
    """A provider's own usage object: OpenAI's two shapes, Anthropic's, and Converse's."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    prompt_tokens_details: Details | Other = None
    completion_tokens_details: Details | Other = None
    input_tokens_details: Details | Other = None
    output_tokens_details: Details | Other = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_creation: CacheWrites | Other = None
    inputTokens: Any = None
    outputTokens: Any = None
    cacheReadInputTokens: Any = None
    cacheWriteInputTokens: Any = None


class Gemini(msgspec.Struct):
    """`usageMetadata`."""

    promptTokenCount: Any = None
    candidatesTokenCount: Any = None
    thoughtsTokenCount: Any = None
    toolUsePromptTokenCount: Any = None
    cachedContentTokenCount: Any = None


def settled(
    input: int | None,
    output: int | None,
    read: int | None = None,
    write: int | None = None,
    reasoning: int | None = None,
) -> Tokens:
    """Figures that are meant to be inclusive: where that is impossible they were counted apart, and are added."""
    if input is not None and (apart := (read or 0) + (write or 0)) > input:
        input += apart
    if output is not None and reasoning is not None and reasoning > output:
        output += reasoning
    return Tokens(input, output, read, write, reasoning)


def of_usage(usage: Usage) -> Tokens:
    """By the shape that its names give away."""
    if usage.prompt_tokens is not None or usage.completion_tokens is not None or _is_openai(usage):
        return _openai(usage)
    if usage.inputTokens is not None or usage.outputTokens is not None:
        return _apart(
            count(usage.inputTokens, "usage.inputTokens"),
            count(usage.outputTokens, "usage.outputTokens"),
            count(usage.cacheReadInputTokens, "usage.cacheReadInputTokens"),
            count(usage.cacheWriteInputTokens, "usage.cacheWriteInputTokens"),
        )
    return _apart(
        count(usage.input_tokens, "usage.input_tokens"),
        count(usage.output_tokens, "usage.output_tokens"),
        count(usage.cache_read_input_tokens, "usage.cache_read_input_tokens"),
        cache_write(usage),
        nested(usage.output_tokens_details, Details).reasoning(),
    )


def of_gemini(usage: Gemini) -> Tokens:
    """The prompt holds what was cached; tools' answers stand beside it, and thoughts beside the candidates."""
    thoughts = count(usage.thoughtsTokenCount, "usageMetadata.thoughtsTokenCount")
    from_tools = count(usage.toolUsePromptTokenCount, "usageMetadata.toolUsePromptTokenCount")
    return settled(
        added(count(usage.promptTokenCount, "usageMetadata.promptTokenCount"), from_tools),
        added(count(usage.candidatesTokenCount, "usageMetadata.candidatesTokenCount"), thoughts),
        count(usage.cachedContentTokenCount, "usageMetadata.cachedContentTokenCount"),
        reasoning=thoughts,
    )


def cache_write(usage: Usage) -> int | None:
    """The total when it is given, else the 5-minute and 1-hour kinds together."""
    total = count(usage.cache_creation_input_tokens, "usage.cache_creation_input_tokens")
    return nested(usage.cache_creation, CacheWrites).total() if total is None else total


def added(*parts: int | None) -> int | None:
    """The sum of what was said; None when nothing was."""
    said = [part for part in parts if part is not None]
    return sum(said) if said else None


def _openai(usage: Usage) -> Tokens:
    came_in = nested(usage.prompt_tokens_details or usage.input_tokens_details, Details)
    came_out = nested(usage.completion_tokens_details or usage.output_tokens_details, Details)
    read = _either(came_in.cached_tokens, usage.cache_read_input_tokens)
    return settled(
        count(_either(usage.prompt_tokens, usage.input_tokens), "usage.prompt_tokens"),
        count(_either(usage.completion_tokens, usage.output_tokens), "usage.completion_tokens"),
        count(read, "usage.prompt_tokens_details.cached_tokens"),
        _openai_write(usage, came_in),
        came_out.reasoning(),
    )


def _openai_write(usage: Usage, came_in: Details) -> int | None:
    details = _either(came_in.cache_creation_tokens, came_in.cache_write_tokens)
    write = count(details, "usage.prompt_tokens_details.cache_creation_tokens")
    if write is None:
        write = cache_write(usage)
    return nested(came_in.cache_creation_token_details, CacheWrites).total() if write is None else write


def _apart(
    input: int | None, output: int | None, read: int | None, write: int | None, reasoning: int | None = None
) -> Tokens:
    return settled(None if input is None else input + (read or 0) + (write or 0), output, read, write, reasoning)


def _is_openai(usage: Usage) -> bool:
    """By its details; those of the output alone tell nothing, because Anthropic gives them too."""
    inward = (usage.prompt_tokens_details, usage.input_tokens_details)
    return any(isinstance(part, Details) for part in (*inward, usage.completion_tokens_details))


def _either(one: Any, other: Any) -> Any:
    return other if one is None else one
