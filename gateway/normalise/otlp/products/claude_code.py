"""Claude Code: one event per request, and counters. Its spans repeat the events under the same request id."""

from __future__ import annotations

from dataclasses import replace

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.metric_rules import CACHE_READ, CACHE_WRITE, INPUT_UNCACHED
from gateway.normalise.otlp.model import Attributes, LogRecord, Span
from gateway.normalise.otlp.product import (
    MONEY_UNIT,
    AttributeNamesByField,
    KindAttribute,
    Links,
    LogDialect,
    LogEvent,
    MetricFamily,
    SpanDialect,
    TelemetryProduct,
    TokenNames,
    accept_everything,
)
from gateway.normalise.reading import operations, values
from spool.identity import AS_EVENT, AS_SPAN, dedup_key_from_call_id, links_by_session_and_end_time
from spool.record import Inference

SOURCE = "claude_code"
_SCOPE = "com.anthropic.claude_code"
_PREFIX = "claude_code."
_CALL = "llm_request"


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    is_call = _CALL in (span.attributes.get("span.type"), span.name.rpartition(".")[2])
    return operations.CHAT if is_call else None


def _provider_of_model_or_stated(stated: str | None, model: str | None) -> str | None:
    return (None if model is None else semconv.provider_by_model_name(model)) or stated


def _set_failure_and_call_ids(span: Span, call: SpanCall) -> None:
    record, attributes = call.record, span.attributes
    if attributes.get("success") in (False, "false") and record.status == "ok":
        record.status, record.error_type = "error", semconv.machine_readable_error(attributes)
    call_id = semconv.first_text(attributes, _CALL_ID)
    if call_id is None:
        call.is_logged = True
    else:  # match by the id of the call, which the event about its end has as well
        call.joins = (dedup_key_from_call_id(SOURCE, call_id),)
        call.provider_request_id = call_id


def _event_name_with_prefix(record: LogRecord, name: str, source: str) -> str:
    """
    Return an event name with Claude Code's prefix, if the event is Claude Code's. The name attribute has no
    prefix. The body or the scope shows the product, unless a collector removed them.
    """
    whole = _PREFIX + name.removeprefix(_PREFIX)
    is_own = record.body == whole or record.scope.name.startswith(_SCOPE)
    return whole if is_own or (source == SOURCE and whole in _EVENTS) else name


# The product's own names come first, because their input always excludes the cache. The input under the
# conventions' name excludes it only if no own name is stated.
_TOKENS = TokenNames(
    input=("input_tokens", *semconv.INPUT),
    output=("output_tokens", *semconv.OUTPUT),
    cache_read=("cache_read_tokens", *semconv.CACHE_READ),
    cache_write=("cache_creation_tokens", *semconv.CACHE_WRITE),
)
_RESPONSE_ID = (*semconv.RESPONSE_ID, "request_id")
_SHARED_ID = ("client_request_id",)
_CALL_ID = ("request_id",)
_INSTALLATION = "user.id"  # attribute with a random id of the installation


def _response_id_or_id_of_several_calls(attributes: Attributes) -> tuple[str | None, str | None]:
    return semconv.response_id_or_id_of_several_calls(attributes, _RESPONSE_ID, _SHARED_ID)


def _device_tag_unless_user(attributes: Attributes, user: str | None) -> dict[str, str]:
    installation = values.text_or_none(attributes.get(_INSTALLATION))
    return {} if installation is None or installation == user else {"device": installation}


def _has_request_id(attributes: Attributes) -> bool:
    return values.text_or_none(attributes.get("request_id")) is not None


def _has_session_and_prompt_ids(attributes: Attributes) -> bool:
    return bool(_dedup_links_of_prompt_failure(attributes))


def _span_links_without_request_id(attributes: Attributes, call: Inference) -> Links:
    if _has_request_id(attributes):
        return ()
    return links_by_session_and_end_time(call, own_report_kind=AS_EVENT, other_report_kind=AS_SPAN)


def _dedup_links_of_error(attributes: Attributes, call: Inference) -> Links:
    """
    Return links from an error to the event that ends the prompt's retries, so that both count as one failure.
    """
    return _dedup_links_of_prompt_failure(attributes) + _span_links_without_request_id(attributes, call)


def _dedup_links_of_exhausted_retries(attributes: Attributes, call: Inference) -> Links:
    return tuple([(own, other) for other, own in _dedup_links_of_prompt_failure(attributes)])


def _dedup_links_of_prompt_failure(attributes: Attributes) -> Links:
    session, prompt = (values.text_or_none(attributes.get(name)) for name in ("session.id", "prompt.id"))
    if session is None or prompt is None:
        return ()
    failed, exhausted = (
        dedup_key_from_call_id(SOURCE, f"{end}\0{session}\0{prompt}") for end in ("error", "exhausted")
    )
    return ((failed, exhausted),)


def _mark_as_refusal(attributes: Attributes, call: Inference) -> None:
    call.error_type = "refusal"


_LOGGED = LogDialect(
    tokens=_TOKENS,
    without_cache=accept_everything,
    response_id=_RESPONSE_ID,
    shared_id=_SHARED_ID,
    provider_request_id=_CALL_ID,
)
# rules for calls whose end another event reports, and for that event
_ENDED = replace(_LOGGED, call_id=_CALL_ID)
_EVENTS = {
    "claude_code.api_request": LogEvent(dialect=_ENDED, links=_span_links_without_request_id),
    "claude_code.api_error": LogEvent(dialect=_LOGGED, failed=True, links=_dedup_links_of_error),
    # This event ends the call with the same id. The call was billed.
    "claude_code.api_refusal": LogEvent(
        dialect=_ENDED, failed=True, refine=_mark_as_refusal, adds_to_call=True, is_call=_has_request_id
    ),
    # This event repeats the last error of its prompt, or replaces an error that was not reported.
    "claude_code.api_retries_exhausted": LogEvent(
        dialect=_LOGGED,
        failed=True,
        timed=False,
        is_call=_has_session_and_prompt_ids,
        links=_dedup_links_of_exhausted_retries,
    ),
}

_NO_CALLS = (
    "user_prompt",
    "tool_result",
    "tool_decision",
    "assistant_response",
    "api_request_body",
    "api_response_body",
    "subagent_completed",
    "compaction",
)

PRODUCT = TelemetryProduct(
    source=SOURCE,
    scope_beginnings=(_SCOPE,),
    services=("claude-code", "claude-code-desktop"),
    kinds=(KindAttribute(attribute="span.type"),),
    own_names={
        "input": _TOKENS.input,
        "output": _TOKENS.output,
        "cache_read": _TOKENS.cache_read,
        "cache_write": _TOKENS.cache_write,
        "request_model": (*semconv.REQUEST_MODEL, "model"),
        "user": ("user.account_uuid", "user.account_id", semconv.USER_EMAIL, _INSTALLATION),
        # id of a sub-agent as the run; calls of the main agent have no run
        "run": ("agent_id",),
        "parent_run": ("parent_agent_id",),
    },
    tags={
        **{name: (name,) for name in ("query_source", "effort", "speed")},
        # names of skills, plugins and MCP servers, which the sender may mask
        **{name: (f"{name}.name",) for name in ("skill", "plugin", "mcp_server")},
    },
    lane=("session", "run", "tag:query_source"),
    more_tags=_device_tag_unless_user,
    spans=SpanDialect(
        operation=_operation_if_call,
        without_cache=accept_everything,
        provider=_provider_of_model_or_stated,
        ids=_response_id_or_id_of_several_calls,
        refine=_set_failure_and_call_ids,
    ),
    events=_EVENTS,
    event_beginnings=(_PREFIX,),
    no_calls=tuple([_PREFIX + name for name in _NO_CALLS]),
    event_name=_event_name_with_prefix,
    metrics={
        "claude_code.token.usage": MetricFamily(
            type_keys=("type",),
            types={"input": INPUT_UNCACHED, "cacheRead": CACHE_READ, "cacheCreation": CACHE_WRITE},
        ),
        "claude_code.cost.usage": MetricFamily(unit=MONEY_UNIT),
    },
)
