"""kill -9 at random moments under load: what was acknowledged is delivered or queued, and nothing is there twice."""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from typing import Any

import urllib3

from tests.acceptance.payloads import post, request, span

ROUNDS = int(os.environ.get("TOLLHOUSE_KILL_ROUNDS", "10"))
SENDERS = 4


class Oracle:
    """Remembers every response id whose request was answered with a 2xx, and every one that was sent."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.sent: set[str] = set()
        self.unexpected: list[str] = []
        self._lock = threading.Lock()

    def load(self, url: str, key: str, stop: threading.Event) -> None:
        """One sender: small and large requests, the last one repeated now and then as a client does."""
        while not stop.is_set():
            ids = ["chatcmpl-" + secrets.token_hex(12) for _ in range(random.choice((1, 1, 5, 50)))]
            body = request([span(response_id) for response_id in ids])
            with self._lock:
                self.sent.update(ids)
            for _ in range(random.choice((1, 1, 1, 2))):
                try:
                    answer = post(url, body, key)
                except urllib3.exceptions.HTTPError:
                    return  # killed
                if answer.status == 200:
                    with self._lock:
                        self.acknowledged.update(ids)
                elif answer.status != 503:
                    self.unexpected.append(f"{answer.status} {answer.data[:200]!r}")


def test_kill_under_load(installations: Any) -> None:
    """Rounds of SIGKILL: acknowledged = delivered + queued, no line twice in the record file, the books balance."""
    house = installations(hold="50ms")
    key = house.key("load")
    oracle = Oracle()
    for _ in range(ROUNDS):
        url = house.start()
        stop = threading.Event()
        senders = [threading.Thread(target=oracle.load, args=(url, key, stop)) for _ in range(SENDERS)]
        for sender in senders:
            sender.start()
        time.sleep(random.uniform(0.05, 0.8))
        house.kill()
        stop.set()
        for sender in senders:
            sender.join()
    house.start()
    house.wait_until_drained()
    written = [record["request_id"] for record in house.records()]
    assert [] == oracle.unexpected
    assert oracle.acknowledged, "the load never got through"
    assert len(written) == len(set(written)), "a line stands twice in the record file"
    assert set() == oracle.acknowledged - set(written), "acknowledged and lost"
    assert set() == set(written) - oracle.sent, "nobody sent these"
    house.json("spool", "verify")
    house.stop()
