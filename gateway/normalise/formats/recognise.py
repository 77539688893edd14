"""Telling the formats apart by the names in a payload, so that a sender need not name its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Final

from gateway.errors import BadPayload
from gateway.normalise.payload import items as payload

Members = Mapping[str, payload.Raw]

_FAR_ENOUGH: Final = 4096  # items that are looked at before a payload counts as unknown; APISIX sends 1,000 at once


def recognise(body: bytes) -> str | None:
    """The format of a JSON body, or None; the first item that gives itself away decides for all."""
    try:
        for item in islice(payload.items(body), _FAR_ENOUGH):
            if (found := format_of(payload.peek(item))) is not None:
                return found
    except BadPayload:
        pass
    return None


def format_shown(body: bytes, *, how: str) -> str:
    """The format of a body; BadPayload says why it cannot be read, or which formats are known and `how` to name one."""
    if (found := recognise(body)) is not None:
        return found
    payload.items(body)  # what is no JSON is refused for that
    known = ", ".join(name for name, _ in _SIGNS)
    raise BadPayload(f"the format was not recognised; {how}; known are {known}")


def format_of(members: Members) -> str | None:
    """By the top-level names of one item, and a look one level down where the table of signs has one."""
    return next((name for name, has_sign in _SIGNS if has_sign(members)), None)


def _any(*names: str) -> Callable[[Members], bool]:
    return lambda members: any(name in members for name in names)


def _all(*names: str) -> Callable[[Members], bool]:
    return lambda members: all(name in members for name in names)


def _inside(members: Members, name: str) -> Iterator[Members]:
    """The members of the object under a name, or of each object of the list there."""
    if name in members:
        yield from map(payload.peek, islice(payload.array(members[name]), _FAR_ENOUGH))


def _any_inside(members: Members, name: str, *inner: str) -> bool:
    return any(one.keys() >= {*inner} for one in _inside(members, name))


def _is_langfuse(members: Members) -> bool:
    if "batch" not in members:
        return False
    events = _inside(members, "batch")
    first = next(events, None)  # an empty batch is Langfuse's, too
    return first is None or any({"type", "body"} <= one.keys() for one in chain((first,), events))


def _is_litellm(members: Members) -> bool:
    return (
        "litellm_call_id" in members
        or {"custom_llm_provider", "call_type"} <= members.keys()
        or {"call_type", "startTime"} <= members.keys()  # older payloads and rows name no provider
    )


def _is_portkey(members: Members) -> bool:
    return "ai_org" in members or _any_inside(members, "request", "portkeyHeaders")


def _is_bedrock(members: Members) -> bool:
    return (
        bytes(members.get("schemaType", b"")) == b'"ModelInvocationLog"'
        or "awslogs" in members
        or {"messageType", "logGroup"} <= members.keys()
        or _any_inside(members, "records", "data")
    )


def _is_cloudflare(members: Members) -> bool:
    is_page = {"result", "result_info"} <= members.keys()  # also when there is nothing on it
    return is_page or "tokens_in" in members or _any_inside(members, "result", "tokens_in")


def _is_helicone(members: Members) -> bool:
    return "request_response_url" in members or {"request_id", "response_body"} <= members.keys()


def _is_agentgateway(members: Members) -> bool:
    is_request = bytes(members.get("scope", b"")) == b'"request"'
    return is_request and ("gateway" in members or "route" in members) and any("." in name for name in members)


def _is_azure(members: Members) -> bool:
    names = ("CorrelationId", "DeploymentName")
    return {*names} <= members.keys() or _any_inside(members, "records", *names)


def _is_stats(members: Members) -> bool:
    return "native_tokens_prompt" in members or _any_inside(members, "data", "native_tokens_prompt")


_SIGNS: tuple[tuple[str, Callable[[Members], bool]], ...] = (
    ("otlp/traces", _any("resourceSpans", "resource_spans")),
    ("otlp/metrics", _any("resourceMetrics", "resource_metrics")),
    ("otlp/logs", _any("resourceLogs", "resource_logs")),
    ("langfuse", _is_langfuse),
    ("litellm", _is_litellm),
    ("kong", _all("started_at", "latencies")),
    ("portkey", _is_portkey),
    ("bedrock", _is_bedrock),
    ("cloudflare", _is_cloudflare),
    ("envoy_ai_gateway", _any("gen_ai.request.model_override", "x-envoy-origin-path")),
    ("helicone", _is_helicone),
    ("bifrost", _any("RootSpan")),
    ("apisix", _any("llm_summary")),
    ("higress", _any("ai_log")),
    ("agentgateway", _is_agentgateway),
    ("vertex", _all("full_response", "logging_time")),
    ("azure_apim", _is_azure),
    ("openmeter", _any("specversion")),
    ("openrouter", _is_stats),
)
