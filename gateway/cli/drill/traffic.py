"""Made-up calls, sent as a client sends them: what was not acknowledged comes again, unchanged."""

from __future__ import annotations

import http.client
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.cli.drill.server import DrillServer

CALLS_A_REQUEST = 10
SENDERS = 4
PAUSE_S = 0.02
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Calls:
    """A request of calls by their response ids."""

    names: tuple[str, ...]
    body: bytes


def make(count: int = CALLS_A_REQUEST) -> Calls:
    names = tuple(f"chatcmpl-{secrets.token_hex(12)}" for _ in range(count))
    now = time.time_ns()
    spans = [_span(name, now) for name in names]
    return Calls(names, json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode())


class Traffic:
    """`acknowledged` is what the server has answered 2xx for."""

    def __init__(self, server: DrillServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._waiting: list[Calls] = []  # sent without an acknowledgement, by a sender that ended
        self.acknowledged: set[str] = set()
        self.refused = 0

    def send(self, calls: Calls) -> bool:
        """Send the calls; True if they were acknowledged. OSError or HTTPException if no answer came."""
        parts = urlsplit(self._server.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
        try:
            headers = {"Authorization": self._server.key, "Content-Type": "application/json"}
            connection.request("POST", "/v1/traces", calls.body, headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        with self._lock:
            if status == 200:
                self.acknowledged.update(calls.names)
            else:
                self.refused += 1
        return status == 200

    def until_acknowledged(self, calls: Calls, timeout_s: float = 60.0) -> float:
        """Send until it is acknowledged; the seconds that took. TimeoutError after `timeout_s`."""
        began = time.monotonic()
        while time.monotonic() - began < timeout_s:
            try:
                if self.send(calls):
                    return time.monotonic() - began
            except (OSError, http.client.HTTPException):
                pass  # it is down, or starts
            time.sleep(PAUSE_S)
        raise TimeoutError(f"nothing was acknowledged for {timeout_s:.0f} s")

    @contextmanager
    def load(self) -> Iterator[None]:
        """Send all the time with several senders; at first what the last load left without an answer."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._run, args=(stop,), daemon=True) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def finish(self) -> None:
        """Send again what was left without an answer, as a client does."""
        while self._waiting:
            self.until_acknowledged(self._waiting.pop())

    def _run(self, stop: threading.Event) -> None:
        calls = None
        while not stop.is_set():
            if calls is None:
                with self._lock:
                    calls = self._waiting.pop() if self._waiting else make()
            try:
                if self.send(calls):
                    calls = None
            except (OSError, http.client.HTTPException):
                break  # killed
            stop.wait(PAUSE_S)
        if calls is not None:
            with self._lock:
                self._waiting.append(calls)


def _span(name: str, now: int) -> dict[str, object]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.id": name,
    }
    counts = {"gen_ai.usage.input_tokens": "1200", "gen_ai.usage.output_tokens": "300"}
    return {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": "chat gpt-4o",
        "kind": 3,
        "startTimeUnixNano": str(now - 10**9),
        "endTimeUnixNano": str(now),
        "attributes": [
            *({"key": key, "value": {"stringValue": value}} for key, value in attributes.items()),
            *({"key": key, "value": {"intValue": value}} for key, value in counts.items()),
        ],
    }
