"""Reports of AI calls in the formats of their reporters, one payload item each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spool.record import NS, rfc3339
from tests.gateway.normalise.otlp.payloads import attribute, span
from tests.spool.contract.examples import NOON

MODEL = "toll-1"  # no price list has this model, so all costs are reported costs


@dataclass(frozen=True)
class Report:
    """One report of a call, as a payload item in its format."""

    call: str
    format: str
    item: dict[str, Any] = field(compare=False)
    scope: str = ""


@dataclass(frozen=True)
class MadeCall:
    """The figures of one call. They are derived from its number, so each call has its own."""

    number: int
    id: str
    call_id: str = ""
    name: str = ""

    @property
    def start(self) -> float:
        """
        Return a start time around an hour border, a quarter of an hour ago, because known ids are stored by hour.
        """
        return NOON - 880 + 21.3 * self.number

    @property
    def tokens(self) -> tuple[int, int]:
        return 100 + self.number, 10 + self.number

    def report(self, format: str, item: dict[str, Any], scope: str = "") -> Report:
        return Report(f"{self.number}{self.name}", format, item, scope)


def uuid(number: int) -> str:
    return f"{number:08x}-aaaa-4bbb-8ccc-{number:012x}"


def callback(call: MadeCall, *, off: int = 0, **more: Any) -> Report:
    """Report as LiteLLM's generic callback."""
    came_in, came_out = call.tokens
    item = {
        "id": call.id, "litellm_call_id": call.call_id, "trace_id": f"litellm-{call.number}", "status": "success",
        "call_type": "acompletion", "startTime": call.start, "endTime": call.start + 1.5, "model": MODEL,
        "custom_llm_provider": "openai", "prompt_tokens": came_in, "completion_tokens": came_out + off,
        "response_cost": cost(call),
        "request_tags": ["env:prod"],
        "metadata": {
            "user_api_key_team_id": "team", "user_api_key_alias": "alpha",
            "usage_object": {
                "prompt_tokens": came_in, "completion_tokens": came_out + off,
                "prompt_tokens_details": {"cached_tokens": 7}, "completion_tokens_details": {"reasoning_tokens": 3},
            },
        },
    }  # fmt: skip
    return call.report("litellm", item | more)


def row(call: MadeCall, *, off: int = 0) -> Report:
    """Report as LiteLLM's spend log."""
    came_in, came_out = call.tokens
    item = {
        "request_id": call.id, "litellm_call_id": call.call_id, "call_type": "acompletion", "cache_hit": "None",
        "startTime": rfc3339(int(call.start * NS)), "endTime": rfc3339(int(call.start * NS) + NS), "model": MODEL,
        "custom_llm_provider": "openai", "prompt_tokens": came_in, "completion_tokens": came_out + off,
        "spend": cost(call), "user": "ada", "metadata": "{}", "request_tags": '["env:row"]',
    }  # fmt: skip
    return call.report("litellm", item)


def proxy_span(call: MadeCall, *, off: int = 0, place: int = 1, **more: Any) -> Report:
    """Report as LiteLLM's OpenTelemetry callback. A failed call has no figures."""
    came_in, came_out = call.tokens
    failed = more.pop("failed", False)
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "acompletion", "gen_ai.system": "openai", "gen_ai.request.model": MODEL,
        "gen_ai.response.id": call.id, "litellm.call_id": call.call_id, "metadata.user_api_key_alias": "alpha",
    }  # fmt: skip
    if not failed:
        usage: dict[str, Any] = {
            "gen_ai.usage.input_tokens": came_in,
            "gen_ai.usage.output_tokens": came_out + off,
        }
        attributes |= usage | {"gen_ai.cost.total_cost": cost(call)}
    return _span(
        call, place, {**attributes, **more}, "litellm", 0.9, {"status": {"code": 2}} if failed else {}
    )


def sdk_span(call: MadeCall, *, off: int = 0) -> Report:
    """Report as OpenTelemetry's instrumentation of the application, which knows no cost."""
    came_in, came_out = call.tokens
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": MODEL,
        "gen_ai.response.model": f"{MODEL}-2026", "gen_ai.response.id": call.id, "gen_ai.conversation.id": "s-1",
        "gen_ai.usage.input_tokens": came_in, "gen_ai.usage.output_tokens": came_out + off,
    }  # fmt: skip
    return _span(call, 2, attributes, "opentelemetry.instrumentation.openai_v2", 3.1, {})


def generation(call: MadeCall, *, off: int = 0) -> Report:
    """Report as LiteLLM's Langfuse callback, which puts the time before the provider's id."""
    came_in, came_out = call.tokens
    body = {
        "id": f"time-07-15-06-{call.number:06d}_{call.id}", "traceId": f"trace-{call.number}", "model": MODEL,
        "startTime": rfc3339(int(call.start * NS)), "endTime": rfc3339(int(call.start * NS) + 2 * NS),
        "usageDetails": {"input": came_in, "output": came_out + off}, "costDetails": {"total": cost(call)},
    }  # fmt: skip
    event = {"id": body["id"], "type": "generation-create", "timestamp": "2026-11-20T07:15:06Z", "body": body}
    return call.report("langfuse", event)


def webhook(call: MadeCall, *, off: int = 0) -> Report:
    """Report as Helicone's webhook, which has no time. The provider's id is in the response body."""
    came_in, came_out = call.tokens
    item = {
        "request_id": uuid(call.number), "user_id": "end", "model": MODEL, "provider": "OPENAI",
        "request_response_url": "https://kept.example", "response_body": {"id": call.id, "model": MODEL},
        "metadata": {"cost": cost(call), "promptTokens": came_in, "completionTokens": came_out + off},
    }  # fmt: skip
    return call.report("helicone", item)


def log_event(call: MadeCall, *, off: int = 0) -> Report:
    """
    Report as the event of the semantic conventions that accompanies a span. It has cached tokens but no session.
    """
    came_in, came_out = call.tokens
    attributes = {
        "event.name": "gen_ai.client.inference.operation.details", "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai", "gen_ai.request.model": MODEL, "gen_ai.response.id": call.id,
        "gen_ai.usage.input_tokens": came_in, "gen_ai.usage.output_tokens": came_out + off,
        "gen_ai.usage.cache_read.input_tokens": 7,
    }  # fmt: skip
    item = {
        "timeUnixNano": str(int((call.start + 4.2) * NS)), "traceId": f"{2000 + call.number:032x}",
        "spanId": f"{2:016x}", "attributes": [attribute(name, value) for name, value in attributes.items()],
    }  # fmt: skip
    return call.report("otlp/logs", item, "opentelemetry.instrumentation.openai_v2")


def cloud_event(call: MadeCall, *, off: int = 0) -> Report:
    """Report as LiteLLM's OpenMeter callback, whose events carry the provider's id."""
    came_in, came_out = call.tokens
    item = {
        "specversion": "1.0", "type": "litellm_tokens", "id": call.id, "time": rfc3339(int((call.start + 2) * NS)),
        "subject": "ada", "source": "litellm-proxy",
        "data": {
            "model": MODEL, "cost": cost(call), "prompt_tokens": came_in, "completion_tokens": came_out + off,
            "total_tokens": came_in + came_out + off,
        },
    }  # fmt: skip
    return call.report("openmeter", item)


def http_log(call: MadeCall) -> Report:
    """Report as Kong's HTTP log, which has its own id instead of the provider's."""
    came_in, came_out = call.tokens
    usage = {"prompt_tokens": came_in, "completion_tokens": came_out, "cost": cost(call)}
    item = {
        "request": {"id": f"{call.number:032x}", "uri": "/chat/completions"}, "response": {"status": 200},
        "started_at": int(call.start * 1000), "latencies": {"request": 1500}, "route": {"name": "ai"},
        "ai": {"proxy": {"meta": {"provider_name": "openai", "request_model": MODEL}, "usage": usage}},
    }  # fmt: skip
    return call.report("kong", item)


def cost(call: MadeCall) -> float:
    return call.number / 1000 + 0.0001


def _span(
    call: MadeCall, place: int, attributes: dict[str, Any], scope: str, later: float, more: dict[str, Any]
) -> Report:
    start = int((call.start + later) * NS)
    ids = {"traceId": f"{1000 * place + call.number:032x}"}
    return call.report("otlp/traces", span(place, attributes, start=start, **ids, **more), scope)
