"""
A fake model provider on loopback for OpenAI's, Anthropic's and Gemini's protocols, with a journal of every
call it served.

Every call has different figures, so that no two calls are confused. The provider calls offered tools once,
and streams if `stream` is set. A stored response of OpenAI can be read, and in background mode only the read
states its usage. With `/fail-STATUS` or `/flaky-STATUS` before the version, the base address
fails always or every other time.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.clients.answers import ANSWERS, ARGUMENTS, Figures, ProviderAnswer
from tests.clients.journal import Call, Journal
from tests.clients.loopback import Loopback, body_of

_PATH = re.compile(r"(?:/(fail|flaky)-(\d{3}))?/v1/(chat/completions|responses|embeddings|messages)")
_GEMINI = re.compile(
    r"(?:/(fail|flaky)-(\d{3}))?/v1beta/models/([^:/]+):(generateContent|streamGenerateContent)"
)
_STORED = re.compile(r"/v1/responses/([\w-]+)(?:/(cancel|input_items))?")
# the provider of each endpoint; all other endpoints are OpenAI's
_PROVIDERS = {"messages": "anthropic", "generateContent": "gcp.gen_ai"}
_DEEPER = "look one level deeper"  # occurs as often in the prompt of an agent as there are agents above it
# arguments of the tools with which Claude Code, Copilot CLI, opencode and Qwen Code start an agent and wait for it
_STARTS: dict[str, dict[str, Any]] = {
    "": {},
    "Agent": {"subagent_type": "general-purpose", "run_in_background": False},
    "task": {"agent_type": "general-purpose", "name": "look", "mode": "sync", "subagent_type": "general"},
    "agent": {"subagent_type": "general-purpose"},
}
_OPERATIONS = {"embeddings": "embeddings", "generateContent": "generate_content"}


class Provider(Loopback):
    """A running provider. `url` has no version; clients append `/v1`."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._lock = threading.Lock()
        self._count = 0
        self._failed: set[tuple[str, str]] = set()
        self.stored: dict[str, dict[str, Any]] = {}  # the bodies of OpenAI's responses by their ids
        self.tool = ""  # suffix of the tool to call; empty for the first offered tool
        self.turns: list[Any] = []  # the conversation in each request; collected while `tool` is set
        # name of the tool with which an agent starts another one, for agents that are nested two levels deep
        self.starts_agents = ""
        super().__init__(_handler(self))

    def figures(self) -> Figures:
        """Return the figures of the next call."""
        with self._lock:
            self._count += 1
            n = self._count
        return Figures(3000 + 11 * n, 700 + 5 * n, 1000 + 3 * n, 400 + n, 250 + 2 * n)

    def delegated(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a request whose agent starts another agent, unless it is one of the second level."""
        level = json.dumps([request.get("messages"), request.get("input")]).count(_DEEPER)
        tools = [
            tool for tool in request.get("tools") or () if _name(tool) == self.starts_agents and level < 2
        ]
        prompt = {"description": "look closer", "prompt": " ".join([_DEEPER] * (level + 1))}
        return {**request, "tools": tools, ARGUMENTS: json.dumps({**prompt, **_STARTS[self.starts_agents]})}

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
            request_body = json.loads(body_of(self))
            path = self.path.partition("?")[0]
            if path.endswith("/cancel"):
                self.do_GET()
                return
            if found := _PATH.fullmatch(path):
                how, status, door = found.groups()
            elif found := _GEMINI.fullmatch(path):
                how, status, request_body["model"], door = found.groups()
                request_body["stream"] = door == "streamGenerateContent"
                door = "generateContent"
            else:
                self._send(404, {"error": {"message": "no such path", "type": "not_found"}})
                return
            if provider.fails(how, path, request_body["model"]):
                provider.journal.note(_failure(door, request_body))
                self._send(int(status), _failure_body(door, int(status)))
                return
            if provider.tool:
                provider.turns.append(request_body.get("messages") or request_body.get("input"))
                offered = _offered(request_body.get("tools") or ())
                request_body["tools"] = [each for each in offered if _name(each).endswith(provider.tool)]
            if provider.starts_agents:
                request_body = provider.delegated(request_body)
            answer = ANSWERS[door](request_body, provider.figures())
            provider.journal.note(
                answer.call
            )  # note the call before sending, because a client that has the response may read the journal at once
            if door == "responses":
                provider.stored[answer.body["id"]] = answer.body
            if request_body.get("background"):
                self._send(200, {**answer.body, "status": "queued", "output": [], "usage": None})
            elif request_body.get("stream"):
                self._stream(answer)
            else:
                self._send(200, answer.body)

        def do_GET(self) -> None:
            found = _STORED.fullmatch(self.path.partition("?")[0])
            stored = None if found is None else provider.stored.get(found[1])
            if found is None or stored is None:
                self._send(404, {"error": {"message": "no such response", "type": "not_found"}})
            elif self.command == "DELETE":
                self._send(200, {"id": found[1], "object": "response", "deleted": True})
            elif found[2] == "input_items":
                self._send(200, {"object": "list", "data": [], "has_more": False})
            else:
                self._send(200, stored)

        do_DELETE = do_GET

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self._name_request()
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, answer: ProviderAnswer) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self._name_request()
            self.end_headers()
            for name, data in answer.events:
                line = f"event: {name}\n" if name else ""
                self.wfile.write(f"{line}data: {json.dumps(data)}\n\n".encode())
                self.wfile.flush()
            if answer.ends_with_done:
                self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def _name_request(self) -> None:
            """Send the request id under OpenAI's and Anthropic's header names."""
            request_id = f"req_{secrets.token_hex(12)}"
            self.send_header("x-request-id", request_id)
            self.send_header("request-id", request_id)

        def log_message(self, *_: object) -> None:
            """Log nothing, because the journal shows the calls."""

    return Handler


def _offered(tools: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each tool. Codex offers the tools of an MCP server in a namespace."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from ({**each, "namespace": tool["name"]} for each in tool["tools"])
        else:
            yield tool


def _name(tool: dict[str, Any]) -> str:
    return str(tool.get("function", tool).get("name", ""))


def _failure(door: str, asked: dict[str, Any]) -> Call:
    return Call(
        operation=_OPERATIONS.get(door, "chat"),
        status="error",
        provider=_PROVIDERS.get(door, "openai"),
        request_model=asked["model"],
    )


def _failure_body(door: str, status: int) -> dict[str, Any]:
    kind = "rate_limit_error" if status == 429 else "api_error"
    error: dict[str, Any] = {"type": kind, "message": "the provider failed as it was told to"}
    if door == "generateContent":
        return {"error": {"code": status, "message": error["message"], "status": "INTERNAL"}}
    return {"type": "error", "error": error} if door == "messages" else {"error": {**error, "code": kind}}
