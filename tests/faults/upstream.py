"""
A cost service with scripted misbehaviour: a real HTTP server in its own threads, which remembers idempotency keys.

    upstream.behave(refuse(503), ACCEPT)         # one of these for each request, at random
    upstream.next(TAKE_AND_CUT, refuse(503))     # for the next requests, in this order, before anything else
    upstream.poison.add(RESPONSE_ID)             # a batch with this call is refused with `poison_answer`

If a request with an idempotency key was accepted, a repeat gets the first response again and counts nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import random
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.faults.oracle import content_hash

# statuses with which a proxy states that the server gave no response; they do not interrupt a series of equal
# failures
NO_ANSWERS = 502, 504
_RESET = struct.pack("ii", 1, 0)  # closing a socket with this SO_LINGER value sends RST
_PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True)
class Behaviour:
    """Handling of one request. `cut` resets the connection within the `body` or before the `answer`."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    takes: bool = (
        # whether the upstream counts the records of this response: if its status is 2xx, or if no response is
        # sent
        True
    )
    cut: str = ""
    delay_s: float = 0.0
    drips: bool = False  # whether to send the response byte by byte over `delay_s`
    # number of records, counted from the first, that the partial success of this response rejects
    rejects: int = 0
    remembered: bool = (
        False  # whether the service itself returns this error, and returns it again for the same key
    )


ACCEPT = Behaviour()
TAKE_AND_CUT = Behaviour(cut="answer")
CUT = Behaviour(cut="answer", takes=False)
RESET_MID_BODY = Behaviour(cut="body", takes=False)


def refuse(status: int, *, retry_after: int | None = None, remembered: bool = False) -> Behaviour:
    """Return a proxy's response or, if `remembered`, the service's final response for this key."""
    headers = () if retry_after is None else (("Retry-After", str(retry_after)),)
    return Behaviour(status=status, headers=headers, takes=False, remembered=remembered)


def slow(delay_s: float, *, takes: bool = True) -> Behaviour:
    """
    Return a success that is sent byte by byte. If it takes longer than `upstream.timeout`, the client gives up.
    """
    return Behaviour(delay_s=delay_s, drips=True, takes=takes)


def hang(delay_s: float, *, takes: bool) -> Behaviour:
    """
    Return a behaviour that sends no response and resets the connection after `delay_s`. `takes` says whether
    the records count.
    """
    return Behaviour(delay_s=delay_s, cut="answer", takes=takes)


def partly(rejects: int) -> Behaviour:
    return Behaviour(rejects=rejects)


@dataclass(frozen=True)
class Attempt:
    """One request that the simulated upstream received."""

    path: str
    authorization: str
    key: str
    body: bytes  # the body of the request after decompression
    calls: dict[str, str]  # the response id of each call, with a hash of its content


@dataclass(frozen=True)
class _Remembered:
    behaviour: Behaviour
    body_hash: bytes


class ScriptedUpstream:
    def __init__(self, rng: random.Random | None = None) -> None:
        self.taken: Counter[str] = Counter()  # per call, the number of times that this upstream counted it
        self.contents: dict[str, str] = {}
        self.order: list[str] = []  # ids of the calls in the order of their first acceptance
        self.rejected: set[str] = set()  # ids of the records that partial successes rejected
        self.keys_of: dict[str, set[str]] = {}  # for each call, the idempotency keys under which it arrived
        self.attempts = 0
        self.place: Callable[[], int] = lambda: 0  # returns the current position in a trace of disk writes
        # descriptions of requests that used one idempotency key with two different bodies
        self.violations: list[str] = []
        # the accepted secrets; if this is set, all other secrets get 401
        self.secrets: set[str] | None = None
        self.poison: set[str] = set()
        self.poison_answer = refuse(400)
        # If responses are random, an acceptance replaces two responses that no service would give. One is a
        # 413 to an accepted request. The other is the third equal failure, which by the rule for keys means
        # that the request was not accepted. Failures of other kinds in between do not reset the count,
        # because the client may have timed out before it saw them.
        self.is_consistent = False
        # number of responses by idempotency key and status
        self._answers: Counter[tuple[str, int]] = Counter()
        self.port = 0
        self._rng = rng or random.Random()
        self._behaviours: tuple[Behaviour, ...] = (ACCEPT,)
        self._next: deque[Behaviour] = deque()
        self._history: list[tuple[int, Attempt, Behaviour]] = []
        self._remembered: dict[str, _Remembered] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._server: _Server | None = None
        self.up()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def behave(self, *behaviours: Behaviour) -> None:
        """Draw one of these for every request from now on, and discard the behaviours set by `next`."""
        with self._lock:
            self._behaviours = behaviours
            self._next.clear()

    def next(self, *behaviours: Behaviour) -> None:
        with self._lock:
            self._next.extend(behaviours)

    @property
    def has_next(self) -> bool:
        """Return whether a behaviour set by `next` is unused."""
        return bool(self._next)

    def up(self) -> None:
        """Listen at the same address as before."""
        self._ending.clear()
        self._server = _Server(("127.0.0.1", self.port), self)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections and reset open ones."""
        server, self._server = self._server, None
        if server is not None:
            self._ending.set()
            server.end()

    def choose(self) -> Behaviour:
        with self._lock:
            return self._next.popleft() if self._next else self._rng.choice(self._behaviours)

    def wait(self, seconds: float) -> None:
        self._ending.wait(seconds)

    def receive(self, attempt: Attempt, behaviour: Behaviour) -> Behaviour:
        """Process a request that was read. A remembered response has precedence."""
        with self._lock:
            self.attempts += 1
            for name in attempt.calls:
                self.keys_of.setdefault(name, set()).add(attempt.key)
            if self.secrets is not None and attempt.authorization not in self.secrets:
                return refuse(401)
            is_answer = not behaviour.cut and behaviour.status not in NO_ANSWERS
            if self.is_consistent and not behaviour.takes and is_answer:
                given = attempt.key, behaviour.status
                self._answers[given] += 1
                was_taken = attempt.key in self._remembered
                is_no_answer = self._answers[given] >= 3 or (was_taken and behaviour.status == 413)
                behaviour = ACCEPT if is_no_answer else behaviour
            if not (behaviour.takes or behaviour.remembered):
                return behaviour
            body_hash = hashlib.sha256(attempt.body).digest()
            if not attempt.key:  # a row of a sync has no idempotency key, and may be sent any number of times
                return behaviour
            known = self._remembered.get(attempt.key)
            if known is not None:
                if known.body_hash != body_hash:
                    self.violations.append(f"two bodies under the key {attempt.key}")
                return behaviour if behaviour.cut else known.behaviour
            if behaviour.takes and self.poison & attempt.calls.keys():
                return self.poison_answer
            if behaviour.takes:
                self._take(attempt, behaviour.rejects)
            answer = Behaviour(behaviour.status, behaviour.headers, rejects=behaviour.rejects)
            self._remembered[attempt.key] = _Remembered(answer, body_hash)
            self._history.append((self.place(), attempt, answer))
            return behaviour

    def rewind(self, place: int) -> None:
        """Forget everything after position `place` of the trace of disk writes."""
        with self._lock:
            for known in (self.taken, self.contents, self.rejected, self.keys_of, self._remembered):
                known.clear()
            self.order.clear()
            for at, attempt, answer in self._history:
                if at <= place:
                    self._take(attempt, answer.rejects)
                    body_hash = hashlib.sha256(attempt.body).digest()
                    self._remembered[attempt.key] = _Remembered(answer, body_hash)

    def _take(self, attempt: Attempt, rejects: int) -> None:
        for place, (name, content) in enumerate(attempt.calls.items()):
            if place < rejects:
                self.rejected.add(name)
                continue
            if name not in self.taken:
                self.order.append(name)
            self.taken[name] += 1
            self.contents[name] = content


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], upstream: ScriptedUpstream) -> None:
        super().__init__(address, _Handler)
        self.upstream = upstream
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore an error, because the peer was killed or the connection reset on purpose."""

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self._open):
            reset(connection)


def reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        upstream = self.server.upstream
        behaviour = upstream.choose()
        length = int(self.headers["Content-Length"])
        if behaviour.cut == "body":
            self.rfile.read(length // 2)
            self._cut()
            return
        attempt = self._attempt(self.rfile.read(length))
        behaviour = upstream.receive(attempt, behaviour)
        if behaviour.cut:
            upstream.wait(behaviour.delay_s)
            self._cut()
        else:
            self._answer(behaviour, upstream)

    def _attempt(self, raw: bytes) -> Attempt:
        body = gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw
        return Attempt(
            path=self.path,
            authorization=self.headers.get("Authorization", ""),
            key=self.headers.get("Idempotency-Key", ""),
            body=body,
            calls=_calls(body) if self.path.endswith("/v1/traces") else {},
        )

    def _answer(self, behaviour: Behaviour, upstream: ScriptedUpstream) -> None:
        body = b""
        if behaviour.rejects:
            answer = ExportTraceServiceResponse()
            answer.partial_success.rejected_spans = behaviour.rejects
            answer.partial_success.error_message = "not taken"
            body = answer.SerializeToString()
        headers = {"Content-Type": _PROTOBUF, "Content-Length": str(len(body)), **dict(behaviour.headers)}
        lines = [
            f"HTTP/1.1 {behaviour.status} x",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
            "",
        ]
        whole = "\r\n".join(lines).encode() + body
        if not behaviour.drips:
            self.wfile.write(whole)
            return
        for place in range(len(whole)):
            upstream.wait(behaviour.delay_s / len(whole))
            self.wfile.write(whole[place : place + 1])

    def _cut(self) -> None:
        self.close_connection = True
        reset(self.connection)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


def _calls(body: bytes) -> dict[str, str]:
    """Return the calls of a trace request with the hashes of their content."""
    calls = {}
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for one in scope.spans:
                said = {each.key: each.value for each in one.attributes}
                name = said["gen_ai.response.id"].string_value
                tokens = said["gen_ai.usage.input_tokens"].int_value
                calls[name] = content_hash(name, tokens, said["tollhouse.user"].string_value)
    return calls
