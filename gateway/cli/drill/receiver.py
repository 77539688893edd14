"""The upstream of a drill: a receiver of webhooks on loopback that can be down, or refuse one record."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class DrillReceiver:
    """Remembers what it took by idempotency key, as the cost service does: a repeat under one key counts once."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.is_down = False
        self.poison = ""
        self._keys: set[str] = set()
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.take(body, self.headers.get("Idempotency-Key", "")))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *values: object) -> None:
                """Say nothing: the table does."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def take(self, body: bytes, key: str) -> int:
        """The status for one delivery."""
        names = [record["request_id"] for record in json.loads(body)["records"]]
        with self._lock:
            if self.is_down:
                return 503
            if self.poison in names:
                return 400
            if key not in self._keys:
                self._keys.add(key)
                self.taken.update(names)
        return 200

    def doubled(self) -> set[str]:
        with self._lock:
            return {name for name, times in self.taken.items() if times > 1}

    def has(self, names: set[str]) -> bool:
        with self._lock:
            return names <= self.taken.keys()

    def missing(self, names: set[str]) -> set[str]:
        with self._lock:
            return names - self.taken.keys()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
