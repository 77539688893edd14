"""A relay between a sender and Tollhouse that records requests and can delay responses."""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import urllib3

from tests.clients.capture import SentRequest
from tests.clients.loopback import Loopback, body_of

# Only headers that are needed to read a body are recorded. The key and the connection headers are not.
KEPT_HEADERS = ("content-type", "x-langfuse-ingestion-version")
_OF_A_CONNECTION = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding")
_INFLATE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


class Relay(Loopback):
    """Forwards each request to `target` at once, and its response after `delay_s`."""

    def __init__(self, target: str, *, delay_s: float = 0.0) -> None:
        self.target = target
        self._lock = threading.Lock()
        self._sent: list[SentRequest] = []
        super().__init__(_handler(self, delay_s))

    def store_hours(self, request: SentRequest) -> None:
        with self._lock:
            self._sent.append(request)

    def sent_hours(self) -> list[SentRequest]:
        """Return every POST in order of arrival."""
        with self._lock:
            return list(self._sent)


def _handler(relay: Relay, delay_s: float) -> type[BaseHTTPRequestHandler]:
    http = urllib3.PoolManager(retries=False, timeout=30.0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = body_of(self)
            headers = {name.lower(): value for name, value in self.headers.items()}
            inflate = _INFLATE.get(headers.get("content-encoding", ""), bytes)
            how = {name: headers[name] for name in KEPT_HEADERS if name in headers}
            relay.store_hours(SentRequest(time.monotonic(), self.path, how, inflate(body)))
            passed = {name: value for name, value in headers.items() if name not in _OF_A_CONNECTION}
            self._answer(http.request("POST", relay.target + self.path, body=body, headers=passed))

        def do_GET(self) -> None:
            passed = (
                {"Authorization": self.headers["Authorization"]} if "Authorization" in self.headers else {}
            )
            self._answer(http.request("GET", relay.target + self.path, headers=passed))

        def _answer(self, answer: urllib3.BaseHTTPResponse) -> None:
            time.sleep(delay_s)
            self.send_response(answer.status)
            if "Content-Type" in answer.headers:
                self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(answer.data)))
            self.end_headers()
            self.wfile.write(answer.data)

        def log_message(self, *_: object) -> None:
            """Log nothing, because the archive shows the result."""

    return Handler
