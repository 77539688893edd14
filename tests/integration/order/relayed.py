"""Reports of calls that an assistant makes through a gateway: the assistant's, and the gateway's log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from gateway.normalise.formats.engine.declaration import ExampleCall
from gateway.normalise.formats.list import BY_NAME
from gateway.normalise.reading.assistants import (
    CLAUDE_CODE_SESSION,
    CODEX_SESSION,
    CODEX_TURN,
    OPENCODE_SESSION,
)
from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import attribute, span, traces
from tests.integration.order.running import Request

MS = SECOND // 1000
MODEL = "gpt-4o-mini"


@dataclass(frozen=True)
class Made:
    """A call that a gateway made. `start_ms` is since NOW. Without an assistant, it was a failed attempt."""

    number: int
    start_ms: int
    end_ms: int
    status: str = "ok"
    tokens: tuple[int, int] = (1320, 212)
    is_reported: bool = True  # whether the assistant reports this call

    @property
    def cost(self) -> Decimal:
        return Decimal("0.25") if self.status == "ok" else Decimal(0)


# -- assistants ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assistant:
    """An assistant: its reports, its session, and the header in which it states the session."""

    # a call, its session, and nanoseconds added by its clock
    report: Callable[[Made, str, int], dict[str, Any]]
    scope: str
    service: str
    session: Callable[[UUID], str] = str
    header: Callable[[str], Mapping[str, str]] = lambda session: {}
    is_span: bool = False

    def requests(self, calls: Sequence[Made], session: str, shift: int, *, apart: bool) -> list[Request]:
        """Return the reports in one request, or each in a request of its own."""
        items = [self.report(call, session, shift) for call in calls if call.is_reported]
        return [self._request(group) for group in ([[item] for item in items] if apart else [items])]

    def _request(self, items: list[dict[str, Any]]) -> Request:
        resource = {"service.name": self.service}
        if self.is_span:
            payload = traces(*items, scope=self.scope, resource=resource)
            return Request("otlp/traces", json.dumps(payload).encode())
        attributes = {"attributes": [attribute(name, value) for name, value in resource.items()]}
        scopes = [{"scope": {"name": self.scope}, "logRecords": items}]
        body = {"resourceLogs": [{"resource": attributes, "scopeLogs": scopes}]}
        return Request("otlp/logs", json.dumps(body).encode())


def _event(at_ms: int, shift: int, said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "timeUnixNano": str(NOW + at_ms * MS + shift),
        "attributes": [attribute(name, value) for name, value in said.items() if value is not None],
    }


def _of_codex(call: Made, session: str, shift: int) -> dict[str, Any]:
    said: dict[str, Any] = {"conversation.id": session, "model": MODEL}
    if call.status == "error":
        said |= {"event.name": "codex.api_request", "http.response.status_code": 500}
        said["duration_ms"] = call.end_ms - call.start_ms + 20
    else:
        said |= {"event.name": "codex.sse_event", "event.kind": "response.completed"}
        said |= dict(zip(("input_token_count", "output_token_count"), call.tokens, strict=True))
    return _event(call.end_ms + 10, shift, said)


def _of_api(call: Made, session: str, shift: int, *, prefix: str = "", **more: Any) -> dict[str, Any]:
    """Return an event of Claude Code, or of opencode's plug-in, which has the same names."""
    failed = call.status == "error"
    said: dict[str, Any] = {
        "event.name": "api_error" if failed else "api_request",
        "session.id": session, "model": MODEL, "duration_ms": call.end_ms - call.start_ms + 20, **more,
    }  # fmt: skip
    if not failed:
        said |= {"input_tokens": call.tokens[0], "output_tokens": call.tokens[1], "cost_usd": 0.9}
    event = _event(call.end_ms + 10, shift, said)
    return event | ({"body": {"stringValue": prefix + said["event.name"]}} if prefix else {})


def _of_claude_code(call: Made, session: str, shift: int) -> dict[str, Any]:
    request_id = None if call.status == "error" else f"req_{session.replace('-', '')}{call.number}"
    return _of_api(call, session, shift, prefix="claude_code.", request_id=request_id)


def _span(call: Made, shift: int, said: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {"status": {"code": 2}} if call.status == "error" else {}
    start, end = (NOW + ms * MS + shift for ms in (call.start_ms - 10, call.end_ms + 10))
    return span(call.number, dict(said), start=start, end=end, name="call", **changes)


def _of_ai_sdk(call: Made, session: str, shift: int) -> dict[str, Any]:
    said: dict[str, Any] = {
        "ai.operationId": "ai.streamText.doStream", "ai.model.id": MODEL, "session.id": session,
    }  # fmt: skip
    if call.status != "error":
        said |= {"ai.usage.inputTokens": call.tokens[0], "ai.usage.outputTokens": call.tokens[1]}
    return _span(call, shift, said) | {"traceId": session[-26:].encode().hex()[:32]}


def _of_copilot(call: Made, session: str, shift: int) -> dict[str, Any]:
    said: dict[str, Any] = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": MODEL, "gen_ai.conversation.id": session,
        "gen_ai.response.id": f"resp_{session}{call.number:064}",
        "gen_ai.usage.input_tokens": call.tokens[0], "gen_ai.usage.output_tokens": call.tokens[1],
    }  # fmt: skip
    return _span(call, shift, said) | {"traceId": session.replace("-", "")}


def _turn(session: str) -> Mapping[str, str]:
    return {CODEX_TURN: json.dumps({"session_id": session, "thread_id": session, "turn_id": "t"})}


def _opencode_session(id: UUID) -> str:
    return f"ses_{id.hex[:26]}"


def _opencode_header(session: str) -> Mapping[str, str]:
    return {OPENCODE_SESSION: session, "x-session-affinity": session}


ASSISTANTS = {
    "claude_code": Assistant(
        _of_claude_code, "com.anthropic.claude_code.events", "claude-code",
        header=lambda session: {CLAUDE_CODE_SESSION: session},
    ),
    "codex": Assistant(_of_codex, "codex_otel.log_only", "codex_exec", header=_turn),
    "codex, as LiteLLM's trace": Assistant(_of_codex, "codex_otel.log_only", "codex_exec"),
    "codex, whole headers": Assistant(
        _of_codex, "codex_otel.log_only", "codex_exec", header=lambda session: {CODEX_SESSION: session}
    ),
    "opencode's plug-in": Assistant(
        _of_api, "com.opencode", "opencode", session=_opencode_session, header=_opencode_header
    ),
    "opencode": Assistant(
        _of_ai_sdk, "opencode", "opencode", session=_opencode_session, header=_opencode_header, is_span=True
    ),
    "copilot": Assistant(_of_copilot, "github.copilot", "github-copilot", is_span=True),
}  # fmt: skip


# -- gateways --------------------------------------------------------------------------------------------------


def _example(name: str, call: Made) -> Any:
    """Return a call as the gateway's format reports it, without a cache of the provider."""
    end, duration = NOW + call.end_ms * MS, call.end_ms - call.start_ms
    came_in, came_out = call.tokens
    made = ExampleCall(
        end_ns=end, duration_ms=duration, input_tokens=came_in, output_tokens=came_out, cached_tokens=0,
        cost=0.25, model=MODEL,
    )  # fmt: skip
    item = BY_NAME[name].example(made)
    return item[0] if isinstance(item, list) else item


def _of_litellm(call: Made, session: str, headers: Mapping[str, str]) -> Any:
    item = _example("litellm", call)
    item["metadata"]["requester_custom_headers"] = dict(headers)
    item["trace_id"] = session if not headers else uuid5(NAMESPACE_OID, f"{session} {call.number}").hex
    return _with_outcome(
        item, call, {"status": "failure", "id": item["litellm_call_id"]}, {"cache_hit": True}
    )


def _of_sealed_litellm(call: Made, session: str, headers: Mapping[str, str]) -> Any:
    item = _of_litellm(call, UUID(session).hex, headers)
    return item | {"id": f"resp_{item['litellm_call_id']}{'a' * 64}", "call_type": "aresponses"}


def _of_rows(call: Made, session: str, headers: Mapping[str, str]) -> Any:
    """Return a row of LiteLLM's spend log, whose column for the session has the trace."""
    item = _example("litellm", call)
    row = {
        "request_id": item["id"], "call_type": "acompletion", "spend": 0.25, "model": item["model"],
        "startTime": item["startTime"], "endTime": item["endTime"], "custom_llm_provider": "openai",
        "session_id": session, "prompt_tokens": call.tokens[0], "completion_tokens": call.tokens[1],
        "cache_hit": "False", "metadata": {"status": "success"}, "status": "success",
    }  # fmt: skip
    failed = {"request_id": item["litellm_call_id"], "status": "failure", "spend": 0}
    return _with_outcome(row, call, failed, {"cache_hit": "True"})


def _of_kong(call: Made, session: str, headers: Mapping[str, str]) -> Any:
    item = _example("kong", call)
    item["request"]["headers"] = dict(headers)
    proxy = item["ai"]["proxy"]
    if call.status == "cached":
        proxy["cache"] = {"cache_status": "Hit"}
    return _with_outcome(item, call, {"response": {"status": 500}}, {})


def _of_apisix(call: Made, session: str, headers: Mapping[str, str]) -> Any:
    item = _example("apisix", call)
    item["request"]["headers"] |= headers
    return _with_outcome(item, call, {"response": {"status": 500}}, {})


def _at(name: str, place: str, failed: Mapping[str, Any], cached: Mapping[str, Any] | None = None) -> Any:
    """Return the reports of a gateway that logs the session in one member, such as `metadata.session_id`."""

    def report(call: Made, session: str, headers: Mapping[str, str]) -> Any:
        item = _example(name, call)
        member, _, inner = place.partition("/")
        held = item.get(member)
        if isinstance(held, str):
            item[member] = json.dumps(json.loads(held) | {inner: session})
        else:
            item[member] = {**(held or {}), inner: session} if inner else session
        return _with_outcome(item, call, failed, cached or {})

    return report


def _of_langfuse(call: Made, session: str, headers: Mapping[str, str]) -> Any:
    batch = _example("langfuse", call)
    trace, generation = (event["body"] for event in batch["batch"])
    trace["sessionId"] = session
    if call.status == "error":
        generation |= {"level": "ERROR", "usageDetails": {"input": 0, "output": 0}, "costDetails": {}}
        generation["usageDetails"] = {"input": 1}
    return batch


def _of_openrouter(call: Made, session: str, headers: Mapping[str, str]) -> Any:
    item = _example("openrouter", call)
    failed = {"cancelled": True, "total_cost": 0, "native_tokens_prompt": 0, "native_tokens_completion": 0}
    data = item["data"] | {"session_id": session, "upstream_id": f"chatcmpl-{item['data']['id']}"}
    return {"data": _with_outcome(data, call, failed, {})}


def _with_outcome(item: Any, call: Made, failed: Mapping[str, Any], cached: Mapping[str, Any]) -> Any:
    """Change an example by the outcome. A cached answer costs nothing, and a failure has no tokens."""
    if call.status == "ok":
        return item
    text = json.dumps(item).replace("0.25", "0")
    if call.status == "cached":
        return json.loads(text) | cached
    for count in call.tokens:
        text = (
            text.replace(f'"{count}"', '"0"').replace(f": {count},", ": 0,").replace(f": {count}}}", ": 0}}")
        )
    return json.loads(text) | failed


@dataclass(frozen=True)
class GatewayLog:
    """A gateway's log. `statuses` are outcomes that it states. `sees`: what it logs of the assistant's request."""

    format: str
    report: Callable[[Made, str, Mapping[str, str]], Any]
    # how the gateway logs the assistant's session: "headers", "x-headers" or "metadata", in which operators
    # put it
    sees: str = "metadata"
    statuses: frozenset[str] = frozenset({"ok", "error", "cached"})
    is_list: bool = False

    def requests(
        self, calls: Sequence[Made], session: str, headers: Mapping[str, str], *, apart: bool
    ) -> list[Request]:
        items = [self.report(call, session, headers) for call in calls]
        if apart or not self.is_list:
            return [Request(self.format, json.dumps(item).encode()) for item in items]
        return [Request(self.format, json.dumps(items).encode())]


_NO_CACHE = frozenset({"ok", "error"})
_FAILED_ROW = {"response_status_code": 500, "cost": 0}
GATEWAYS = {
    "litellm": GatewayLog("litellm", _of_litellm, sees="x-headers", is_list=True),
    "litellm's rows": GatewayLog("litellm", _of_rows, is_list=True),
    "kong": GatewayLog("kong", _of_kong, sees="headers"),
    "apisix": GatewayLog("apisix", _of_apisix, sees="headers", statuses=_NO_CACHE, is_list=True),
    "portkey": GatewayLog(
        "portkey", _at("portkey", "metadata/session_id", _FAILED_ROW), statuses=_NO_CACHE
    ),
    "cloudflare": GatewayLog(
        "cloudflare",
        _at("cloudflare", "metadata/session_id", {"success": False, "status_code": 500}, {"cached": True}),
        is_list=True,
    ),
    "envoy": GatewayLog(
        "envoy_ai_gateway", _at("envoy_ai_gateway", "session.id", {"response_code": 500}), statuses=_NO_CACHE
    ),
    "higress": GatewayLog(
        "higress", _at("higress", "ai_log/session_id", {"response_code": "500"}), statuses=_NO_CACHE
    ),
    "openrouter": GatewayLog("openrouter", _of_openrouter, statuses=_NO_CACHE),
    "databricks": GatewayLog(
        "databricks", _at("databricks", "request_tags/session", {"status_code": 500}),
        statuses=_NO_CACHE, is_list=True,
    ),
    "langfuse": GatewayLog("langfuse", _of_langfuse, statuses=_NO_CACHE),
}  # fmt: skip
SEALED = replace(GATEWAYS["litellm"], report=_of_sealed_litellm, statuses=frozenset({"ok"}))


def pairs() -> list[tuple[str, str]]:
    """Return each assistant with each gateway whose log has its session."""
    return [
        (assistant, gateway)
        for assistant in ASSISTANTS
        for gateway in GATEWAYS
        if _are_pair(assistant, gateway)
    ]


def _are_pair(assistant: str, gateway: str) -> bool:
    sees = GATEWAYS[gateway].sees
    if assistant == "codex, as LiteLLM's trace":
        return gateway == "litellm"
    if assistant == "codex, whole headers":
        return sees == "headers"
    return assistant != "copilot" or gateway == "litellm"


def log_of(assistant: str, gateway: str) -> GatewayLog:
    """Copilot states no session, so only LiteLLM's sealed ids tell that a gateway may have its call."""
    return SEALED if assistant == "copilot" else GATEWAYS[gateway]
