"""A network between a sender and Tollhouse on which every answer takes its time."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler

import urllib3

from tests.clients.loopback import Loopback


class Relay(Loopback):
    """Passes each POST on to `target` at once, and its answer back after `delay_s`."""

    def __init__(self, target: str, *, delay_s: float) -> None:
        super().__init__(_handler(target, delay_s))


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
