"""
The log events that are AI calls, as one table: who sends them, under which names, and how they count.

Everything else that these products log (prompts, tools, turns, sub-agents, compactions) repeats a call or is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.calls import named_counts
from gateway.normalise.otlp.decoding.model import Attributes, LogRecord
from gateway.normalise.otlp.dialect import TokenNames
from gateway.normalise.otlp.products import claude_code_spans
from gateway.normalise.otlp.shapes import Names
from gateway.normalise.otlp.sources import source_of
from gateway.normalise.reading import vocabulary as words
from gateway.normalise.reading.cache_inclusion import Tokens, settle

DETAILS = "gen_ai.client.inference.operation.details"


def _by_model(attributes: Attributes, model: str | None) -> str | None:
    return semconv.model_provider(model) if model else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one product writes the calls that it logs."""

    source: str | None = None  # None: whoever the scope or the resource names
    model: Names = ("model",)
    response_model: Names = ()
    provider: Names = ()
    unnamed_provider: Callable[[Attributes, str | None], str | None] = _by_model
    tokens: TokenNames
    total: Names = ()
    tool_input: Names = ()  # the prompts of tools, counted beside the input
    without_cache: bool = False
    without_cache_at: frozenset[str] = frozenset()  # providers whose input is passed on as they count it
    without_reasoning: bool = False
    operation: str = words.CHAT
    response_id: Names = ()
    shared_id: Names = ()
    own_span: bool = False  # trace and span id are those of the call, not of what encloses it

    def provider_of(self, attributes: Attributes, model: str | None) -> str | None:
        """The provider that the event states, else the one that goes without saying."""
        stated = semconv.provider_of(attributes, None, self.provider)
        return stated or self.unnamed_provider(attributes, model)

    def count(self, attributes: Attributes, provider: str | None) -> Tokens:
        """The tokens of one call; Implausible when they cannot be."""
        said = named_counts(attributes, self.tokens)
        tool_input = semconv.first_count(attributes, self.tool_input)
        if tool_input and said.input is not None:
            said = said._replace(input=said.input + tool_input)
        return settle(
            said,
            total=semconv.first_count(attributes, self.total),
            without_cache=self.without_cache or provider in self.without_cache_at,
            without_reasoning=self.without_reasoning,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """An event name that stands for calls."""

    dialect: Dialect
    failed: bool = False
    timed: bool = True  # its duration_ms is that of the call
    is_call: Callable[[Attributes], bool] = lambda attributes: True


def _gemini_provider(attributes: Attributes, model: str | None) -> str:
    google_cloud = attributes.get("auth_type") in ("vertex-ai", "oauth-personal")
    return "gcp.vertex_ai" if google_cloud else "gcp.gen_ai"


CLAUDE_CODE = Dialect(
    source="claude_code",
    tokens=claude_code_spans.TOKENS,
    without_cache=True,
    response_id=claude_code_spans.CLAUDE_CODE.response_id,
    shared_id=claude_code_spans.CLAUDE_CODE.shared_id,
)
CODEX = Dialect(
    source="codex",
    unnamed_provider=lambda attributes, model: "openai",
    # tool_token_count holds the total, and it never decides anything: both parts are inside.
    tokens=TokenNames(
        input=("input_token_count",),
        output=("output_token_count",),
        cache_read=("cached_token_count",),
        cache_write=("cache_write_token_count",),
        reasoning=("reasoning_token_count",),
    ),
)
GEMINI_CLI = Dialect(
    source="gemini_cli",
    tokens=TokenNames(
        input=("input_token_count",),
        output=("output_token_count",),
        cache_read=("cached_content_token_count",),
        cache_write=(),
        reasoning=("thoughts_token_count",),
    ),
    tool_input=("tool_token_count",),
    without_reasoning=True,
    operation="generate_content",
    # What only the twin knows; see `gemini_twins`.
    provider=("gen_ai.provider.name",),
    response_model=("gen_ai.response.model",),
    response_id=("gen_ai.response.id",),
    unnamed_provider=_gemini_provider,
)
QWEN_CODE = Dialect(
    source="qwen_code",
    tokens=TokenNames(
        input=("input_token_count",),
        output=("output_token_count",),
        cache_read=("cached_content_token_count",),
        cache_write=(),
        reasoning=("thoughts_token_count",),
    ),
    total=("total_token_count",),
    response_id=("response_id",),
)
CLINE = Dialect(
    source="cline",
    provider=("provider",),
    tokens=TokenNames(
        input=("tokensIn",), output=("tokensOut",), cache_read=("cacheReadTokens",), cache_write=("cacheWriteTokens",)
    ),
    without_cache=True,
)
SEMCONV = Dialect(
    model=semconv.REQUEST_MODEL,
    response_model=semconv.RESPONSE_MODEL,
    provider=semconv.PROVIDER,
    tokens=TokenNames(
        input=semconv.INPUT,
        output=semconv.OUTPUT,
        cache_read=semconv.CACHE_READ,
        cache_write=semconv.CACHE_WRITE,
        reasoning=semconv.REASONING,
    ),
    total=semconv.TOTAL,
    response_id=semconv.RESPONSE_ID,
    shared_id=semconv.SHARED_ID,
    own_span=True,
)
COPILOT_CHAT = replace(SEMCONV, source="copilot_chat", unnamed_provider=lambda attributes, model: "github")
COPILOT_CLI = replace(COPILOT_CHAT, source="copilot_cli")
OPENLIT = replace(SEMCONV, source="openlit", without_cache_at=frozenset({"anthropic", "aws.bedrock"}))


def _codex_completed(attributes: Attributes) -> bool:
    # Two such records come per call, and only one of them has counts.
    return attributes.get("event.kind") == "response.completed" and any(
        semconv.first_count(attributes, names) is not None for names in (CODEX.tokens.input, CODEX.tokens.output)
    )


def _http_failed(attributes: Attributes) -> bool:
    status = semconv.first_count(attributes, semconv.HTTP_STATUS)
    return status is not None and status >= 400


def _cline_answered(attributes: Attributes) -> bool:
    return semconv.first_count(attributes, CLINE.tokens.input) is not None


def _semconv_call(attributes: Attributes) -> bool:
    operation = words.text(attributes.get("gen_ai.operation.name"))
    if operation is not None:
        return operation in words.OPERATIONS
    named = semconv.first_text(attributes, (*SEMCONV.model, *SEMCONV.response_model, *SEMCONV.provider))
    reported = semconv.first_name(attributes, (*SEMCONV.tokens.input, *SEMCONV.tokens.output, *semconv.ERROR_TYPE))
    return named is not None and reported is not None


_EVENTS = {
    "claude_code.api_request": CallEvent(dialect=CLAUDE_CODE),
    "claude_code.api_error": CallEvent(dialect=CLAUDE_CODE, failed=True),
    "codex.sse_event": CallEvent(dialect=CODEX, timed=False, is_call=_codex_completed),
    "codex.api_request": CallEvent(dialect=CODEX, failed=True, is_call=_http_failed),
    "gemini_cli.api_response": CallEvent(dialect=GEMINI_CLI),
    "gemini_cli.api_error": CallEvent(dialect=GEMINI_CLI, failed=True),
    "qwen-code.api_response": CallEvent(dialect=QWEN_CODE),
    "qwen-code.api_error": CallEvent(dialect=QWEN_CODE, failed=True),
    "task.conversation_turn": CallEvent(dialect=CLINE, is_call=_cline_answered),
}
_DETAILS = {
    dialect.source: CallEvent(dialect=dialect, is_call=_semconv_call)
    for dialect in (SEMCONV, COPILOT_CHAT, COPILOT_CLI, OPENLIT)
}

# What these products log beside their calls, and the conventions' message, choice and evaluation events.
_UNDERSTOOD = ("claude_code.", "codex.", "gemini_cli.", "qwen-code.", "copilot_chat.", "gen_ai.", "task.")


def find(name: str, source: str) -> CallEvent | None:
    """What an event of that name and source stands for; None when it can be no call."""
    if name == DETAILS:
        return _DETAILS.get(source, _DETAILS[None])
    return _EVENTS.get(name)


def is_understood(name: str) -> bool:
    """Whether an event without an entry in the table is known to be no call."""
    return name.startswith(_UNDERSTOOD)


def event_name(record: LogRecord) -> str:
    """The event's name: by attribute, else by the record's own field, else the body; with Claude Code's prefix."""
    name = words.text(record.attributes.get("event.name")) or record.event_name or record.body
    # Claude Code leaves its prefix out of the attribute; the body and the scope have it, where no collector took them.
    whole = "claude_code." + name.removeprefix("claude_code.")
    if record.body == whole or record.scope.name.startswith("com.anthropic.claude_code"):
        return whole
    return whole if whole in _EVENTS and source_of(record.resource, record.scope) == CLAUDE_CODE.source else name
