"""
A server in front of Tollhouse for clients that cannot send a key. It adds the key and changes nothing else.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

import urllib3

from tests.clients.loopback import Loopback, body_of

_OF_A_CONNECTION = ("connection", "content-length", "transfer-encoding", "accept-encoding")


class KeyAdder(Loopback):
    """A server that adds a key and forwards `Host` and `Origin` unchanged, because Tollhouse checks them."""

    def __init__(self, target: str, key: str) -> None:
        super().__init__(_handler(target, key))


def _handler(target: str, key: str) -> type[BaseHTTPRequestHandler]:
    http = urllib3.PoolManager(retries=False, timeout=30.0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            passed = {
                name: value for name, value in self.headers.items() if name.lower() not in _OF_A_CONNECTION
            }
            passed["Authorization"] = key
            answer = http.request(self.command, target + self.path, body=body_of(self), headers=passed)
            self.send_response(answer.status)
            if "Content-Type" in answer.headers:
                self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(answer.data)))
            self.end_headers()
            self.wfile.write(answer.data)

        do_GET = do_DELETE = do_POST

        def log_message(self, *_: object) -> None:
            """Log nothing, because the responses show the result."""

    return Handler
