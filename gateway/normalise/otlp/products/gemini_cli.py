"""
Gemini CLI. It logs each call twice: in its own event, and in the event of OpenTelemetry's GenAI conventions,
which has the response id.

Both events have the same `event.timestamp` and model. Their record times may differ by a millisecond. Spans
of the Gemini CLI repeat both events.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator

import msgspec

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.metric_rules import CACHE_READ, OUTPUT_VISIBLE, REASONING, TOOL_INPUT
from gateway.normalise.otlp.model import Attributes, LogRecord
from gateway.normalise.otlp.product import (
    LogDialect,
    LogEvent,
    MetricFamily,
    SpanDialect,
    TelemetryProduct,
    TokenNames,
)
from gateway.normalise.otlp.span_rules import no_operation_of_span
from gateway.normalise.reading import values
from gateway.normalise.reading.meters import with_tool_tokens
from gateway.normalise.reading.tokens import Tokens

_ALWAYS = ("gen_ai.response.id", "gen_ai.provider.name")
_WHEN_OK = ("gen_ai.response.model",)
# Attributes of a finished call. A record without any of them was written when the request started.
_ENDED = ("gen_ai.response.id", "gen_ai.response.model", *semconv.INPUT, *semconv.OUTPUT, *semconv.ERROR_TYPE)


class GeminiLogRecordPairs:
    """
    The twins of one payload's calls: records of Gemini CLI's own event, and of the GenAI conventions' event.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[int, LogRecord, LogEvent]] = []
        # Records by timestamp and model, then by session.
        self._twins: defaultdict[Hashable, dict[str | None, deque[LogRecord]]] = defaultdict(dict)

    def hold_product_event(self, item_index: int, record: LogRecord, event: LogEvent) -> None:
        self._calls.append((item_index, record, event))

    def hold_genai_event_if_it_completes_call(self, record: LogRecord) -> bool:
        if semconv.name_of_first_value(record.attributes, _ENDED) is None:
            return False
        model = semconv.first_text(record.attributes, ("gen_ai.request.model",))
        self._twins[_pairing_key(record, model)].setdefault(_session_id(record), deque()).append(record)
        return True

    def complete_calls_from_genai_events(self) -> Iterator[tuple[int, LogRecord, LogEvent]]:
        for index, record, event in self._calls:
            twin = self._pop_genai_record_of_call(record)
            if twin is not None:
                record = _with_attributes_of_genai_record(
                    record, twin, _ALWAYS if event.failed else _ALWAYS + _WHEN_OK
                )
            yield index, record, event

    def _pop_genai_record_of_call(self, record: LogRecord) -> LogRecord | None:
        """
        Remove and return the first held record with the timestamp and model of `record`. If both name a
        session, it must be the same session.
        """
        waiting = self._twins.get(_pairing_key(record, semconv.first_text(record.attributes, ("model",))), {})
        session = _session_id(record)
        if session is None:
            session = next(iter(waiting), None)
        elif session not in waiting:
            session = None
        if session not in waiting:
            return None
        twin = waiting[session].popleft()
        if not waiting[session]:
            del waiting[session]
        return twin


def _pairing_key(record: LogRecord, model: str | None) -> Hashable:
    return values.text_or_none(record.attributes.get("event.timestamp")), model


def _session_id(record: LogRecord) -> str | None:
    return values.text_or_none(record.attributes.get("session.id"))


def _with_attributes_of_genai_record(
    record: LogRecord, genai_record: LogRecord, names: tuple[str, ...]
) -> LogRecord:
    added = {name: genai_record.attributes[name] for name in names if name in genai_record.attributes}
    return msgspec.structs.replace(record, attributes=record.attributes | added)


def _google_provider(attributes: Attributes, model: str | None) -> str:
    google_cloud = attributes.get("auth_type") in ("vertex-ai", "oauth-personal")
    return "gcp.vertex_ai" if google_cloud else "gcp.gen_ai"


def _with_tool_prompt_tokens(attributes: Attributes, stated: Tokens) -> Tokens:
    """
    Return the stated tokens with the tokens of tool prompts added, because the stated input excludes them.
    """
    tool_input = semconv.first_count(attributes, ("tool_token_count",))
    if not tool_input or stated.input is None:
        return stated
    return stated._replace(
        input=stated.input + tool_input, meters=with_tool_tokens(stated.meters, tool_input)
    )


def _agent_tag_unless_main(attributes: Attributes, user: str | None) -> dict[str, str]:
    role = semconv.first_text(attributes, ("role",))
    return {} if role is None or role == "main" else {"agent": role}


_LOGGED = LogDialect(
    tokens=TokenNames(
        input=("input_token_count",),
        output=("output_token_count",),
        cache_read=("cached_content_token_count",),
        reasoning=("thoughts_token_count",),
    ),
    complete=_with_tool_prompt_tokens,
    without_reasoning=True,
    operation="generate_content",
    # Fields that only the event of the conventions states.
    provider=("gen_ai.provider.name",),
    response_model=("gen_ai.response.model",),
    response_id=("gen_ai.response.id",),
    unnamed_provider=_google_provider,
)

PRODUCT = TelemetryProduct(
    source="gemini_cli",
    scopes=("gemini-cli",),
    services=("gemini-cli",),
    spans=SpanDialect(operation=no_operation_of_span),
    events={
        "gemini_cli.api_response": LogEvent(dialect=_LOGGED),
        "gemini_cli.api_error": LogEvent(dialect=_LOGGED, failed=True),
    },
    event_beginnings=("gemini_cli.",),
    no_calls=("gemini_cli.chat_compression",),
    more_tags=_agent_tag_unless_main,
    twins=GeminiLogRecordPairs,
    metrics={
        "gemini_cli.token.usage": MetricFamily(
            type_keys=("type",),
            types={"output": OUTPUT_VISIBLE, "thought": REASONING, "cache": CACHE_READ, "tool": TOOL_INPUT},
        )
    },
    repeated_metrics=(r"gemini_cli\.token\.(efficiency|breakdown).*",),
    repeats_token_usage=True,
)
