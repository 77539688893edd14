"""Log lines about one call: LiteLLM's log, Envoy's access log, and the events of Claude Code."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.acceptance.reporters.made_call import MODEL, MadeCall, uuid_of
from tests.acceptance.reporters.span_reports import OWN_CAPTURES, Report, iso
from tests.clients.capture import read

# How LiteLLM was called. Its log of a streamed answer has no id of the provider's request.
MESSAGES, STREAMED, CHAT = "messages", "streamed", "chat"
_NS_PER_S = 1e9


# -- LiteLLM -------------------------------------------------------------------------------------------------


@cache
def _litellm_events() -> dict[tuple[str, bool], str]:
    """Return the first captured event of each kind as text: its way, and whether it failed."""
    found: dict[tuple[str, bool], str] = {}
    for request in read(OWN_CAPTURES / "litellm" / "log.jsonl.gz").requests:
        for event in json.loads(request.body):
            way = CHAT if event["call_type"] == "acompletion" else STREAMED if event["stream"] else MESSAGES
            found.setdefault((way, event["status"] == "failure"), json.dumps(event))
    return found


def of_litellm(
    call: MadeCall, dice: random.Random, *, way: str, trace: bytes | None, from_claude_code: bool
) -> Report:
    """
    Return a request of LiteLLM's generic callback.

    `trace` is the caller's trace. Claude Code states its session in a header, which LiteLLM takes as trace id.
    """
    event = json.loads(_litellm_events()[MESSAGES if call.failed and way == STREAMED else way, call.failed])
    call_id = uuid_of(dice)
    start_s, end_s = call.moment(0.05) / _NS_PER_S, call.moment(0.95) / _NS_PER_S
    event |= {
        "litellm_call_id": call_id,
        "trace_id": (trace or dice.randbytes(16)).hex(),
        "startTime": start_s,
        "endTime": end_s,
        "completionStartTime": end_s,
        "response_time": end_s - start_s,
        "end_user": "",
        "id": call_id,
    }
    metadata, hidden = event["metadata"], event["hidden_params"]
    metadata["requester_custom_headers"] = {}
    metadata["user_api_key_end_user_id"] = metadata["requester_metadata"] = None
    if from_claude_code:
        event["trace_id"] = call.session
        metadata["requester_custom_headers"] = {"x-claude-code-session-id": call.session, "x-app": "cli"}
    headers = hidden["additional_headers"]
    for name in headers or ():
        if name.endswith("request-id"):
            headers[name] = call.request_id
    if call.failed:
        event["error_information"]["error_provider_request_id"] = call.request_id
    else:
        event["id"] = f"chatcmpl-{uuid_of(dice)}" if way == CHAT else call.message_id
        _count(event, call)
    body = json.dumps([event]).encode()
    return Report("/v1/ai-telemetry/litellm", "application/json", body)


def _count(event: dict[str, Any], call: MadeCall) -> None:
    cost = float(call.cost)
    usage = event["metadata"]["usage_object"]
    usage |= {
        "prompt_tokens": call.input,
        "completion_tokens": call.output,
        "total_tokens": call.input + call.output,
        "cache_creation_input_tokens": call.cache_write,
        "cache_read_input_tokens": call.cache_read,
    }
    if "cost" in usage:
        usage["cost"] = cost
    usage["prompt_tokens_details"] |= {
        "cached_tokens": call.cache_read,
        "text_tokens": call.fresh,
        "cache_creation_tokens": call.cache_write,
        "cache_write_tokens": call.cache_write,
        "cache_creation_token_details": {
            "ephemeral_5m_input_tokens": call.cache_write,
            "ephemeral_1h_input_tokens": 0,
        },
    }
    usage["completion_tokens_details"] |= {"reasoning_tokens": call.thinking}
    event |= {
        "prompt_tokens": call.input,
        "completion_tokens": call.output,
        "total_tokens": call.input + call.output,
        "response_cost": cost,
        "cost_breakdown": {"total_cost": cost},
    }
    event["hidden_params"]["response_cost"] = cost


# -- Envoy AI Gateway ----------------------------------------------------------------------------------------


def of_envoy(call: MadeCall, dice: random.Random, *, request_id: bool) -> Report:
    """
    Return an access-log line with the keys of its documentation. `request_id`: the operator also logs the
    header of the provider's response.
    """
    counts = {
        "gen_ai.usage.input_tokens": call.input,
        "gen_ai.usage.output_tokens": call.output,
        "gen_ai.usage.cached_input_tokens": call.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": call.cache_write,
    }
    line = {
        "start_time": iso(call.start_ns),
        "duration": (call.end_ns - call.start_ns) // 1_000_000,
        "method": "POST",
        "x-envoy-origin-path": "/anthropic/v1/messages",
        "response_code": 500 if call.failed else 200,
        "response_flags": "-",
        "x-request-id": uuid_of(dice),
        "gen_ai.request.model": MODEL,
        "gen_ai.request.model_override": None,
        "gen_ai.provider.name": "default/anthropic/route/claude/rule/0/ref/0",
        "route_name": "httproute/default/claude/rule/0/match/0/*",
        **dict.fromkeys(counts, None),
    }
    if not call.failed:
        line |= counts
    if request_id:
        line["provider_request_id"] = call.request_id  # as docs/connect/envoy-ai-gateway.md names it
    body = json.dumps(line).encode()
    return Report("/v1/ai-telemetry/envoy_ai_gateway", "application/json", body)


# -- Claude Code ---------------------------------------------------------------------------------------------

_OF_A_CALL = ("api_request", "api_error", "api_retries_exhausted")


@cache
def _claude_code(failed: bool) -> ExportLogsServiceRequest:
    """Return the events of one call: the request, or the error with the end of its retries."""
    for sent in read(OWN_CAPTURES / "claude_code" / "direct.jsonl.gz").requests:
        request = ExportLogsServiceRequest.FromString(sent.body)
        (scope,) = request.resource_logs[0].scope_logs
        kept = [one for one in scope.log_records if _named(one) in _OF_A_CALL]
        if (_named(kept[0]) == "api_error") == failed:
            del scope.log_records[:]
            scope.log_records.extend(kept if failed else kept[:1])
            return request
    raise AssertionError("no such capture")


def _named(record: Any) -> str:
    return next((one.value.string_value for one in record.attributes if one.key == "event.name"), "")


def of_claude_code(call: MadeCall, *, request_id: bool, is_relayed: bool) -> Report:
    """
    Return the events of Claude Code. Behind LiteLLM (`is_relayed`), a failure may have no `request_id`, and Claude
    Code does not know the price.
    """
    cost = call.cost * 2 if is_relayed else call.cost
    request = ExportLogsServiceRequest()
    request.CopyFrom(_claude_code(call.failed))
    values: dict[str, Any] = {
        "session.id": call.session,
        "input_tokens": call.fresh,
        "output_tokens": call.output,
        "cache_read_tokens": call.cache_read,
        "cache_creation_tokens": call.cache_write,
        "cache_creation_5m_tokens": call.cache_write,
        "cost_usd_micros": int(cost * 1_000_000),
        "duration_ms": (call.end_ns - call.start_ns) // 1_000_000,
        "event.timestamp": iso(call.end_ns),
        "request_id": call.request_id,
        "attempt": 1,
        "total_attempts": 1,
    }
    for record in request.resource_logs[0].scope_logs[0].log_records:
        record.time_unix_nano = record.observed_time_unix_nano = call.end_ns
        if not request_id:
            kept = [one for one in record.attributes if one.key != "request_id"]
            del record.attributes[:]
            record.attributes.extend(kept)
        for one in record.attributes:
            if one.key == "cost_usd":
                one.value.double_value = float(cost)
            elif one.key == "anthropic.custom_base_url":
                one.value.bool_value = is_relayed
            elif one.key in values:
                value = values[one.key]
                setattr(one.value, "int_value" if isinstance(value, int) else "string_value", value)
    return Report("/v1/logs", "application/x-protobuf", request.SerializeToString())
