"""A network between a sender and Tollhouse on which every answer takes its time."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import urllib3


class Relay:
    """Passes each POST on to `target` at once, and its answer back after `delay_s`; serves until closed."""

    def __init__(self, target: str, *, delay_s: float) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(target, delay_s))
        self._thread = threading.Thread(target=self._server.serve_forever, name="relay", daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(target: str, delay_s: float) -> type[BaseHTTPRequestHandler]:
    http = urllib3.PoolManager(retries=False, timeout=30.0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name: self.headers[name] for name in ("Authorization", "Content-Type")}
            answer = http.request("POST", target + self.path, body=body, headers=headers)
            time.sleep(delay_s)
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.data)))
            self.end_headers()
            self.wfile.write(answer.data)

        def log_message(self, *_: object) -> None:
            """Quiet: the archive says it all."""

    return Handler
