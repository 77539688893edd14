"""
Responses of the fake provider: OpenAI's chat completions, responses and embeddings, Anthropic's
messages, Gemini's content.

Each response exists whole and as a stream of the same figures, together with its journal entry.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.clients.journal import Call

SNAPSHOTS = {
    "gpt-4o": "gpt-4o-2024-08-06",
    "gpt-4o-mini": "gpt-4o-mini-2024-07-18",
    "gpt-5": "gpt-5-2025-08-07",
    "claude-sonnet-4-5": "claude-sonnet-4-5-20250929",
}
_WORDS = ("The toll ", "is one ", "penny.")
_ARGUMENTS = '{"city": "Bath"}'
ARGUMENTS = (
    "arguments of the tool"  # the key of a request under which this provider puts the tool's arguments
)

Event = tuple[str | None, dict[str, Any]]  # the name and the data of one server-sent event


class Figures(NamedTuple):
    """Token counts as records store them: input includes cached tokens, output includes reasoning."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class ProviderAnswer(NamedTuple):
    """A response of the fake provider in both forms. `call` is its journal entry."""

    call: Call
    body: dict[str, Any]
    events: list[Event]  # the response as a stream of events
    ends_with_done: bool = False


def _call(asked: dict[str, Any], request_id: str | None, **more: Any) -> Call:
    model = asked["model"]
    said = {
        "operation": "chat",
        "status": "ok",
        "provider": "openai",
        "response_model": SNAPSHOTS.get(model, model),
    }
    return Call(**{**said, **more}, request_model=model, request_id=request_id)


def _wants_tool(asked: dict[str, Any], turns: list[Any]) -> str | None:
    """
    Return the tool that the model calls: the first offered tool. Once the tool's result is in the
    request, return none.
    """
    if (
        not asked.get("tools")
        or "tool_result" in json.dumps(turns)
        or "function_call_output" in json.dumps(turns)
    ):
        return None
    if any(isinstance(turn, dict) and turn.get("role") == "tool" for turn in turns):
        return None
    tool = asked["tools"][0]
    name: str = tool["function"]["name"] if "function" in tool else tool["name"]
    return name


def _chat(asked: dict[str, Any], figures: Figures) -> ProviderAnswer:
    usage = {
        "prompt_tokens": figures.input,
        "completion_tokens": figures.output,
        "total_tokens": figures.input + figures.output,
        "prompt_tokens_details": {
            "cached_tokens": figures.cache_read,
            "cache_write_tokens": figures.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": figures.reasoning},
    }
    said_usage = not asked.get("stream") or (asked.get("stream_options") or {}).get("include_usage", False)
    call = _call(
        asked, f"chatcmpl-{secrets.token_hex(14)}", **(_openai_tokens(figures) if said_usage else {})
    )
    shared = {"id": call.request_id, "created": int(time.time()), "model": call.response_model}
    tool = _wants_tool(asked, asked["messages"])
    called = {"id": f"call_{secrets.token_hex(12)}", "type": "function"}
    function = {"name": tool, "arguments": asked.get(ARGUMENTS, _ARGUMENTS)}
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if tool else "".join(_WORDS),
        "refusal": None,
    }
    if tool:
        message["tool_calls"] = [{**called, "function": function}]
    reason = "tool_calls" if tool else "stop"
    body = {
        **shared,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": usage,
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return None, {**shared, "object": "chat.completion.chunk", "choices": [choice]}

    events = [chunk({"role": "assistant", "content": None if tool else ""})]
    if tool:
        events.append(chunk({"tool_calls": [{"index": 0, **called, "function": function}]}))
    else:
        events += [chunk({"content": word}) for word in _WORDS]
    events.append(chunk({}, reason))
    if said_usage:
        events.append((None, {**shared, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
    return ProviderAnswer(call, body, events, ends_with_done=True)


def _openai_tokens(figures: Figures) -> dict[str, int]:
    return {
        "input_tokens": figures.input,
        "output_tokens": figures.output,
        "cache_read_tokens": figures.cache_read,
        "cache_write_tokens": figures.cache_write,
        "reasoning_tokens": figures.reasoning,
    }


def _responses(asked: dict[str, Any], figures: Figures) -> ProviderAnswer:
    call = _call(asked, f"resp_{secrets.token_hex(24)}", **_openai_tokens(figures))
    turns = asked["input"] if isinstance(asked["input"], list) else []
    item = _responses_item(_wants_tool(asked, turns), asked.get(ARGUMENTS, _ARGUMENTS))
    if item["type"] == "function_call" and "namespace" in asked["tools"][0]:
        item["namespace"] = asked["tools"][0]["namespace"]
    body = {
        "id": call.request_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": call.response_model,
        "output": [item],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": asked.get("tools") or [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": figures.input,
            "input_tokens_details": {
                "cached_tokens": figures.cache_read,
                "cache_write_tokens": figures.cache_write,
            },
            "output_tokens": figures.output,
            "output_tokens_details": {"reasoning_tokens": figures.reasoning},
            "total_tokens": figures.input + figures.output,
        },
    }
    begun = {**body, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *_responses_item_events(item),
        {"type": "response.completed", "response": body},
    ]
    numbered = [(event["type"], {**event, "sequence_number": n}) for n, event in enumerate(events)]
    return ProviderAnswer(call, body, numbered)


def _responses_item(tool: str | None, arguments: str) -> dict[str, Any]:
    if tool is not None:
        called = {"call_id": f"call_{secrets.token_hex(12)}", "name": tool, "arguments": arguments}
        return {"type": "function_call", "id": f"fc_{secrets.token_hex(12)}", "status": "completed", **called}
    part = {"type": "output_text", "text": "".join(_WORDS), "annotations": [], "logprobs": []}
    shared = {"id": f"msg_{secrets.token_hex(12)}", "status": "completed", "role": "assistant"}
    return {"type": "message", **shared, "content": [part]}


def _responses_item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"output_index": 0, "item_id": item["id"]}
    if item["type"] == "function_call":
        begun = {**item, "status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **done}
    else:
        text = {**place, "content_index": 0}
        part = item["content"][0]
        added = {**item, "status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": 0, "item": added}
        yield {"type": "response.content_part.added", **text, "part": {**part, "text": ""}}
        for word in _WORDS:
            yield {"type": "response.output_text.delta", **text, "delta": word, "logprobs": []}
        yield {"type": "response.output_text.done", **text, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **text, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}


def _embeddings(asked: dict[str, Any], figures: Figures) -> ProviderAnswer:
    """Make an embeddings response. OpenAI gives embeddings no id."""
    call = _call(asked, None, operation="embeddings", input_tokens=figures.input)
    texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    body = {
        "object": "list",
        "model": call.response_model,
        "data": [{"object": "embedding", "index": n, "embedding": [0.25, -0.5]} for n, _ in enumerate(texts)],
        "usage": {"prompt_tokens": figures.input, "total_tokens": figures.input},
    }
    return ProviderAnswer(call, body, [])


def _messages(asked: dict[str, Any], figures: Figures) -> ProviderAnswer:
    """
    Anthropic's usage: the input excludes cached tokens. A stream reports the output twice: 1 at the start, the
    total at the end.
    """
    call = _call(
        asked,
        f"msg_{secrets.token_hex(12)}",
        provider="anthropic",
        input_tokens=figures.input,
        output_tokens=figures.output,
        cache_read_tokens=figures.cache_read,
        cache_write_tokens=figures.cache_write,
    )
    usage: dict[str, Any] = {
        "input_tokens": figures.input - figures.cache_read - figures.cache_write,
        "cache_read_input_tokens": figures.cache_read,
        "cache_creation_input_tokens": figures.cache_write,
        "cache_creation": {"ephemeral_5m_input_tokens": figures.cache_write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": figures.output,
        "service_tier": "standard",
    }
    tool = _wants_tool(asked, asked["messages"])
    block: dict[str, Any] = {"type": "text", "text": "".join(_WORDS)}
    if tool:
        block = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": tool}
        block["input"] = json.loads(asked.get(ARGUMENTS, _ARGUMENTS))
    ended = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    shared = {"id": call.request_id, "type": "message", "role": "assistant", "model": call.response_model}
    begun: dict[str, Any] = {**shared, "content": [], "stop_reason": None, "stop_sequence": None}
    deltas = [{"type": "text_delta", "text": word} for word in _WORDS]
    if tool:
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    usage_at_last = {name: value for name, value in usage.items() if isinstance(value, int)}
    empty = {**block, "input": {}} if tool else {**block, "text": ""}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**begun, "usage": {**usage, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": usage_at_last},
        {"type": "message_stop"},
    ]
    body = {**shared, "content": [block], **ended, "usage": usage}
    return ProviderAnswer(call, body, [(event["type"], event) for event in events])


def _generate_content(asked: dict[str, Any], figures: Figures) -> ProviderAnswer:
    """Gemini's usage: the output excludes thoughts, and each chunk of a stream reports the usage so far."""
    call = _call(
        asked,
        secrets.token_urlsafe(17),
        operation="generate_content",
        provider="gcp.gen_ai",
        input_tokens=figures.input,
        output_tokens=figures.output,
        cache_read_tokens=figures.cache_read,
        reasoning_tokens=figures.reasoning,
    )
    usage = {
        "promptTokenCount": figures.input,
        "cachedContentTokenCount": figures.cache_read,
        "candidatesTokenCount": figures.output - figures.reasoning,
        "thoughtsTokenCount": figures.reasoning,
        "totalTokenCount": figures.input + figures.output,
    }
    parts: list[dict[str, Any]] = [{"text": word} for word in _WORDS]
    if (tool := _gemini_tool(asked)) is not None:
        parts = [{"functionCall": {"name": tool, "args": json.loads(_ARGUMENTS)}}]

    def body(some: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": some}, "index": 0, **more}
        shared = {"modelVersion": call.response_model, "responseId": call.request_id}
        return {"candidates": [candidate], "usageMetadata": usage, **shared}

    events: list[Event] = [(None, body([part])) for part in parts[:-1]]
    events.append((None, body(parts[-1:], finishReason="STOP")))
    return ProviderAnswer(call, body(parts, finishReason="STOP"), events)


def _gemini_tool(asked: dict[str, Any]) -> str | None:
    declared = [one for tool in asked.get("tools") or () for one in tool.get("functionDeclarations", ())]
    if not declared or "functionResponse" in json.dumps(asked["contents"]):
        return None
    name: str = declared[0]["name"]
    return name


ANSWERS = {
    "chat/completions": _chat,
    "responses": _responses,
    "embeddings": _embeddings,
    "messages": _messages,
    "generateContent": _generate_content,
}
