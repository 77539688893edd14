"""
A model provider on loopback that speaks OpenAI's and Anthropic's protocols and keeps a journal of every call it served.

Every call has figures of its own, so that no two can be mistaken for each other. A request is answered by what it asks:
tools that were not used yet are called, `stream` is a stream, and a base address with `/fail-STATUS` or `/flaky-STATUS`
before the version fails always, or every other time.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.clients.journal import Call, Journal

SNAPSHOTS = {
    "gpt-4o": "gpt-4o-2024-08-06",
    "gpt-4o-mini": "gpt-4o-mini-2024-07-18",
    "gpt-5": "gpt-5-2025-08-07",
    "claude-sonnet-4-5": "claude-sonnet-4-5-20250929",
}
_PATH = re.compile(r"(?:/(fail|flaky)-(\d{3}))?/v1/(chat/completions|responses|embeddings|messages)")
_WORDS = ("The toll ", "is one ", "penny.")
_ARGUMENTS = '{"city": "Bath"}'

Event = tuple[str | None, dict[str, Any]]  # name and data of one server-sent event


class Figures(NamedTuple):
    """Token counts as the records have them: the cache inside the input, the reasoning inside the output."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class Answer(NamedTuple):
    """`call` is what the journal says of it."""

    call: Call
    body: dict[str, Any]
    events: list[Event]  # the same answer as a stream
    ends_with_done: bool = False


class Provider:
    """Serves until closed; `url` has no version, clients put `/v1` behind it."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._lock = threading.Lock()
        self._count = 0
        self._failed: set[tuple[str, str]] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="provider", daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def figures(self) -> Figures:
        """The next call's."""
        with self._lock:
            self._count += 1
            n = self._count
        return Figures(3000 + 11 * n, 700 + 5 * n, 1000 + 3 * n, 400 + n, 250 + 2 * n)

    def fails(self, how: str | None, path: str, model: str) -> bool:
        if how != "flaky":
            return how == "fail"
        with self._lock:
            self._failed ^= {(path, model)}
            return (path, model) in self._failed


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            found = _PATH.fullmatch(path)
            if found is None:
                self._send(404, {"error": {"message": "no such path", "type": "not_found"}})
                return
            how, status, door = found.groups()
            if provider.fails(how, path, asked["model"]):
                provider.journal.note(_failure(door, asked))
                self._send(int(status), _failure_body(door, int(status)))
                return
            answer = _ANSWERS[door](asked, provider.figures())
            provider.journal.note(answer.call)  # first: whoever read the answer may look into the journal at once
            if asked.get("stream"):
                self._stream(answer)
            else:
                self._send(200, answer.body)

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("x-request-id", f"req_{secrets.token_hex(12)}")
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, answer: Answer) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for name, data in answer.events:
                line = f"event: {name}\n" if name else ""
                self.wfile.write(f"{line}data: {json.dumps(data)}\n\n".encode())
                self.wfile.flush()
            if answer.ends_with_done:
                self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Quiet: the journal says it all."""

    return Handler


def _failure(door: str, asked: dict[str, Any]) -> Call:
    return Call(
        operation="embeddings" if door == "embeddings" else "chat",
        status="error",
        provider="anthropic" if door == "messages" else "openai",
        request_model=asked["model"],
    )


def _failure_body(door: str, status: int) -> dict[str, Any]:
    kind = "rate_limit_error" if status == 429 else "api_error"
    error = {"type": kind, "message": "the provider failed as it was told to"}
    return {"type": "error", "error": error} if door == "messages" else {"error": {**error, "code": kind}}


def _call(asked: dict[str, Any], request_id: str | None, **more: Any) -> Call:
    model = asked["model"]
    said = {"operation": "chat", "status": "ok", "provider": "openai", "response_model": SNAPSHOTS.get(model, model)}
    return Call(**{**said, **more}, request_model=model, request_id=request_id)


def _wants_tool(asked: dict[str, Any], turns: list[Any]) -> str | None:
    """The tool to call: the first one offered, as long as no result of it came back."""
    if not asked.get("tools") or "tool_result" in json.dumps(turns) or "function_call_output" in json.dumps(turns):
        return None
    if any(isinstance(turn, dict) and turn.get("role") == "tool" for turn in turns):
        return None
    tool = asked["tools"][0]
    name: str = tool["function"]["name"] if "function" in tool else tool["name"]
    return name


def _chat(asked: dict[str, Any], figures: Figures) -> Answer:
    usage = {
        "prompt_tokens": figures.input,
        "completion_tokens": figures.output,
        "total_tokens": figures.input + figures.output,
        "prompt_tokens_details": {"cached_tokens": figures.cache_read, "cache_write_tokens": figures.cache_write},
        "completion_tokens_details": {"reasoning_tokens": figures.reasoning},
    }
    said_usage = not asked.get("stream") or (asked.get("stream_options") or {}).get("include_usage", False)
    call = _call(asked, f"chatcmpl-{secrets.token_hex(14)}", **(_openai_tokens(figures) if said_usage else {}))
    shared = {"id": call.request_id, "created": int(time.time()), "model": call.response_model}
    tool = _wants_tool(asked, asked["messages"])
    called = {"id": f"call_{secrets.token_hex(12)}", "type": "function"}
    function = {"name": tool, "arguments": _ARGUMENTS}
    message: dict[str, Any] = {"role": "assistant", "content": None if tool else "".join(_WORDS), "refusal": None}
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
    return Answer(call, body, events, ends_with_done=True)


def _openai_tokens(figures: Figures) -> dict[str, int]:
    return {
        "input_tokens": figures.input,
        "output_tokens": figures.output,
        "cache_read_tokens": figures.cache_read,
        "cache_write_tokens": figures.cache_write,
        "reasoning_tokens": figures.reasoning,
    }


def _responses(asked: dict[str, Any], figures: Figures) -> Answer:
    call = _call(asked, f"resp_{secrets.token_hex(24)}", **_openai_tokens(figures))
    turns = asked["input"] if isinstance(asked["input"], list) else []
    item = _responses_item(_wants_tool(asked, turns))
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
            "input_tokens_details": {"cached_tokens": figures.cache_read, "cache_write_tokens": figures.cache_write},
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
    return Answer(call, body, numbered)


def _responses_item(tool: str | None) -> dict[str, Any]:
    if tool is not None:
        called = {"call_id": f"call_{secrets.token_hex(12)}", "name": tool, "arguments": _ARGUMENTS}
        return {"type": "function_call", "id": f"fc_{secrets.token_hex(12)}", "status": "completed", **called}
    part = {"type": "output_text", "text": "".join(_WORDS), "annotations": [], "logprobs": []}
    shared = {"id": f"msg_{secrets.token_hex(12)}", "status": "completed", "role": "assistant"}
    return {"type": "message", **shared, "content": [part]}


def _responses_item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"output_index": 0, "item_id": item["id"]}
    if item["type"] == "function_call":
        begun = {**item, "status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": _ARGUMENTS}
        done = {"name": item["name"], "arguments": _ARGUMENTS}
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


def _embeddings(asked: dict[str, Any], figures: Figures) -> Answer:
    """OpenAI gives embeddings no id."""
    call = _call(asked, None, operation="embeddings", input_tokens=figures.input)
    texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    body = {
        "object": "list",
        "model": call.response_model,
        "data": [{"object": "embedding", "index": n, "embedding": [0.25, -0.5]} for n, _ in enumerate(texts)],
        "usage": {"prompt_tokens": figures.input, "total_tokens": figures.input},
    }
    return Answer(call, body, [])


def _messages(asked: dict[str, Any], figures: Figures) -> Answer:
    """Anthropic's input leaves the cache out, and a stream says the output twice: 1 at first, all at last."""
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
        block["input"] = json.loads(_ARGUMENTS)
    ended = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    shared = {"id": call.request_id, "type": "message", "role": "assistant", "model": call.response_model}
    begun = {**shared, "content": [], "stop_reason": None, "stop_sequence": None}
    deltas = [{"type": "text_delta", "text": word} for word in _WORDS]
    if tool:
        deltas = [{"type": "input_json_delta", "partial_json": _ARGUMENTS}]
    empty = {**block, "input": {}} if tool else {**block, "text": ""}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**begun, "usage": {**usage, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": figures.output}},
        {"type": "message_stop"},
    ]
    body = {**shared, "content": [block], **ended, "usage": usage}
    return Answer(call, body, [(event["type"], event) for event in events])


_ANSWERS = {"chat/completions": _chat, "responses": _responses, "embeddings": _embeddings, "messages": _messages}
