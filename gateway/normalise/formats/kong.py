"""Kong AI Gateway: the `ai` block of its HTTP log, with one call for each plugin that called a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    RawMembers,
    ReadCall,
    has_all_members,
    is_model_call,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.payload import items as payload
from gateway.normalise.reading.agent_headers import AgentHeaders
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.metadata import CallMetadata, WorkFields, first_key_name
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import CHAT, operation_of_path
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.request_ids import dedup_keys_from_headers
from gateway.normalise.reading.times import end_after_milliseconds, parse_instant
from gateway.normalise.reading.tokens import COUNT_CACHE_APART, Usage, tokens_of_usage
from gateway.normalise.reading.values import (
    BadValue,
    Other,
    first_text,
    parse_amount,
    struct_or_empty,
    struct_or_none,
    text_or_none,
)
from spool.identity import call_identity
from spool.record import Inference

NAME = "kong"

_OBJECTS = (
    "request",
    "response",
    "latencies",
    "trace_id",
    "consumer",
    "authenticated_entity",
    "route",
    "service",
)
# Names of the plugins in order: the first with data gets the id of the request.
_PROXIES = ("proxy", "ai-proxy-advanced", "ai-proxy")
# value that Kong writes if it answered the request before it knew provider and models
_UNSPECIFIED = "UNSPECIFIED"


class KongMeta(msgspec.Struct):
    provider_name: Any = None
    request_model: Any = None
    response_model: Any = None


class KongUsage(Usage):
    """Usage that may have the names of Kong 3.7, `prompt_token` and `completion_token`."""

    cost: Any = None
    prompt_token: Any = None
    completion_token: Any = None

    def __post_init__(self) -> None:
        if self.prompt_tokens is None and self.completion_tokens is None:
            self.prompt_tokens, self.completion_tokens = self.prompt_token, self.completion_token


class KongCache(msgspec.Struct):
    cache_status: Any = None


class KongBlock(msgspec.Struct):
    meta: KongMeta | Other = None
    usage: KongUsage | Other = None
    cache: KongCache | Other = None
    # any type, because Lua encodes an empty list as an object
    tried_targets: Any = None

    @property
    def has_meta_and_usage(self) -> bool:
        return isinstance(self.meta, KongMeta) and isinstance(self.usage, KongUsage)


class KongObject(msgspec.Struct):
    id: Any = None
    name: Any = None
    uri: Any = None
    status: Any = None
    username: Any = None
    custom_id: Any = None
    w3c: Any = None
    request: Any = None
    headers: AgentHeaders | Other = None


class KongEvent(WorkFields):
    ai: msgspec.Raw = msgspec.Raw()
    request: KongObject | Other = None
    response: KongObject | Other = None
    latencies: KongObject | Other = None
    started_at: Any = None
    trace_id: KongObject | Other = None
    consumer: KongObject | Other = None
    authenticated_entity: KongObject | Other = None
    route: KongObject | Other = None
    service: KongObject | Other = None
    workspace_name: Any = None


def read_calls(event: KongEvent) -> Iterable[ReadCall | BadValue]:
    """
    Read one call from each block that has both `meta` and `usage`. A bad block does not affect other blocks.
    """
    blocks = _block_by_plugin(payload.undecoded_members(event.ai))
    # The JSON text of each object is decoded once for all blocks, because there may be thousands of blocks.
    objects = {name: struct_or_empty(getattr(event, name), KongObject) for name in _OBJECTS}
    event = msgspec.structs.replace(event, **objects)
    own_id_taken = False
    for name in (*_PROXIES, *(name for name in blocks if name not in _PROXIES)):
        if name not in blocks:
            continue
        plugin = None if name in _PROXIES and not own_id_taken else name
        call = _read_call_or_error(event, blocks[name], plugin)
        if isinstance(call, BadValue) or is_model_call(call.record):
            own_id_taken = own_id_taken or plugin is None
            yield call


def _block_by_plugin(ai: RawMembers) -> dict[str, KongBlock]:
    if "meta" in ai and "usage" in ai:  # Kong 3.6 reports only one plugin, without its name
        only = KongBlock(
            meta=struct_or_none(ai["meta"], KongMeta), usage=struct_or_none(ai["usage"], KongUsage)
        )
        blocks: dict[str, KongBlock | None] = {"ai-proxy": only}
    else:
        blocks = {name: struct_or_none(block, KongBlock) for name, block in ai.items()}
    return {name: block for name, block in blocks.items() if block is not None and block.has_meta_and_usage}


def _read_call_or_error(event: KongEvent, block: KongBlock, plugin: str | None) -> ReadCall | BadValue:
    try:
        return _read_call(event, block, plugin)
    except BadValue as error:
        return error


def _read_call(event: KongEvent, block: KongBlock, plugin: str | None) -> ReadCall:
    request = struct_or_empty(event.request, KongObject)
    meta, usage = struct_or_empty(block.meta, KongMeta), struct_or_empty(block.usage, KongUsage)
    own_id = text_or_none(request.id)
    if own_id and plugin:
        own_id = f"{own_id}:{plugin}"
    stated, requested_model, response_model = map(
        _text_if_specified, (meta.provider_name, meta.request_model, meta.response_model)
    )
    record = Inference(
        id=b"",
        source=NAME,
        request_id=own_id,
        trace_id=text_or_none(struct_or_empty(event.trace_id, KongObject).w3c),
        start_time=parse_instant(event.started_at),
        provider=stated_or_model_provider(stated, requested_model or response_model),
        operation=_operation_of_block(block) or operation_of_path(request.uri),
        request_model=model_without_prefix(requested_model, stated),
        response_model=model_without_prefix(response_model, stated),
        api_key=first_key_name(struct_or_empty(event.authenticated_entity, KongObject).id),
    )
    record.region = region_of_call(address=_last_tried_target(block).get("host"), model=requested_model)
    record.end_time = end_after_milliseconds(
        record.start_time, struct_or_empty(event.latencies, KongObject).request
    )
    set_normalised_counts(record, tokens_of_usage(usage, without_cache=_input_excludes_cache(record, usage)))
    failed = mark_as_failed_if_http_error(record, struct_or_empty(event.response, KongObject).status)
    if (
        not failed
        and (text_or_none(struct_or_empty(block.cache, KongCache).cache_status) or "").lower() == "hit"
    ):
        record.status = "cached"
    record.cost = cost_unless_placeholder_zero(record, parse_amount(usage.cost, "usage.cost"))
    request_headers = struct_or_empty(event.request, KongObject).headers
    if isinstance(request_headers, AgentHeaders):
        request_headers.fill_session_and_run(record)
    metadata = _add_metadata(record, event, plugin)
    # Kong creates request.id, so callers cannot choose it.
    identity = call_identity(record, own_id=own_id)
    headers = struct_or_empty(event.response, KongObject).headers
    # `plugin` is None for the plugin that answers the request; the response headers belong only to its call
    if plugin is None and isinstance(headers, AgentHeaders):
        identity = identity._replace(also=dedup_keys_from_headers(record, headers))
    return ReadCall(record, identity, metadata.left_out, names_request=bool(identity.also))


def _input_excludes_cache(record: Inference, usage: KongUsage) -> bool:
    """
    Return whether the input count excludes cached tokens. It does if the provider counts them apart and the
    cache counts have the provider's names, because Kong then also copies the provider's input count.
    """
    own_names = (usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    return record.provider in COUNT_CACHE_APART and any(name is not None for name in own_names)


def _text_if_specified(value: Any) -> str | None:
    written = text_or_none(value)
    return None if written == _UNSPECIFIED else written


def _operation_of_block(block: KongBlock) -> str | None:
    """Return the operation by the route of the last tried target, because this target sent the response."""
    route = _last_tried_target(block).get("route_type")
    return CHAT if route == "llm/v1/chat" else operation_of_path(route)


def _last_tried_target(block: KongBlock) -> dict[str, Any]:
    targets = block.tried_targets
    target = targets[-1] if isinstance(targets, list) and targets else None
    return target if isinstance(target, dict) else {}


def _add_metadata(record: Inference, event: KongEvent, plugin: str | None) -> CallMetadata:
    metadata, consumer = CallMetadata(), struct_or_empty(event.consumer, KongObject)
    metadata.add_work_fields(event)
    metadata.add_tag("route", text_or_none(struct_or_empty(event.route, KongObject).name))
    metadata.add_tag("service", text_or_none(struct_or_empty(event.service, KongObject).name))
    metadata.add_tag("workspace", text_or_none(event.workspace_name))
    metadata.add_tag("plugin", plugin)
    metadata.fill_record(record, principal=first_text(consumer.username, consumer.custom_id))
    return metadata


def example_body(call: ExampleCall) -> Any:
    return {
        "request": {"id": call.uuid.replace("-", ""), "uri": "/v1/chat/completions"},
        "response": {"status": 200},
        "started_at": call.start_ns // 1_000_000,
        "latencies": {"request": call.duration_ms},
        "workspace_name": "default",
        "consumer": {"username": "example-user"},
        "route": {"name": "example-route"},
        "ai": {
            "proxy": {
                "meta": {
                    "provider_name": "openai",
                    "request_model": call.model,
                    "response_model": call.response_model,
                },
                "usage": call.usage | {"cost": call.cost},
                "tried_targets": [{"route_type": "llm/v1/chat"}],
            }
        },
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_all_members("started_at", "latencies"),
    example=example_body,
    event=KongEvent,
    calls=read_calls,
    origins={
        "request_id": "request.id, with the name of the block if another plugin made the call",
        "trace_id": "trace_id.w3c",
        "session": "request.headers.x-claude-code-session-id",
        "start_time": "started_at",
        "end_time": "started_at + latencies.request",
        "provider": "meta.provider_name",
        "operation": "tried_targets[-1].route_type, else request.uri",
        "request_model": "meta.request_model",
        "region": "host of the last of tried_targets",
        "response_model": "meta.response_model",
        "input_tokens": "usage.prompt_tokens",
        "output_tokens": "usage.completion_tokens",
        "cache_read_tokens": "usage.prompt_tokens_details.cached_tokens, else usage.cache_read_input_tokens",
        "cache_write_tokens": "usage.cache_creation_input_tokens",
        "reasoning_tokens": "usage.completion_tokens_details.reasoning_tokens",
        "cost": "usage.cost",
        "status": "response.status, cache.cache_status",
        "error_type": "response.status",
        "user": "consumer.username, else custom_id",
        "api_key": "authenticated_entity.id",
    },
)
