"""The client of several gateways gives up a frozen gateway only if another can take the request."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.faults.gateways.balanced import BalancedOracle

PATIENCE_S = 0.2


class Standing(BaseHTTPRequestHandler):
    """A server that answers 200 only after a load balancer's timeout."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(PATIENCE_S * 3)
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Standing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_only_a_request_that_another_gateway_may_accept_times_out(url: str, tmp_path: Path) -> None:
    """A busy machine may take longer than the timeout, so a client with one gateway waits."""
    oracle = BalancedOracle(tmp_path / "acknowledged", random.Random(1), "key", lambda: [url])
    oracle.patience_s = PATIENCE_S
    assert not oracle.is_taken(url, oracle.make(1))
    oracle.send_all(url, 2)
    assert 2 == len(oracle.acknowledged)
    oracle.close()


def test_what_was_given_up_has_twice_as_long_the_next_time(url: str, tmp_path: Path) -> None:
    """
    After a timeout, the client waits twice as long the next time. So each request succeeds in the end, on a
    machine of any speed.
    """
    oracle = BalancedOracle(tmp_path / "acknowledged", random.Random(1), "key", lambda: [url])
    oracle.patience_s = PATIENCE_S
    sent = oracle.make(1)
    for _ in range(20):
        if oracle.is_taken(url, sent):
            break
    assert 1 == len(oracle.acknowledged)
    assert oracle.answers["none"] >= 1
    assert not oracle.unexpected
    oracle.close()
