"""A client of several gateways: what one of them does not answer goes to the next."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import urllib3

from tests.faults.oracle import CALLS_A_REQUEST, PAUSE_S, REFUSED_S, Oracle, SentRequest

# A gateway that stands still is given up then, where another one may take the request; each time that a request was
# given up it has twice as long, because a busy machine may need that for every answer.
PATIENCE_S = 3.0
MOST_PATIENCE_S = 180.0


class BalancedOracle(Oracle):
    """
    Sends as a load balancer and its clients do together: to any gateway, and again to another without an answer.

    Every second request is reported to two gateways at once or one after the other, as an application and the
    gateway that it calls would.
    """

    def __init__(self, path: Path, rng: random.Random, key: str, urls: Callable[[], Sequence[str]]) -> None:
        super().__init__(path, rng, key)
        self._urls = urls
        self.patience_s = PATIENCE_S
        self._given_up: Counter[bytes] = Counter()  # how often, by the body
        self.twice = 0  # requests that two gateways acknowledged
        self.answers: Counter[str] = Counter()  # what senders saw, by status

    def post(self, url: str, sent: SentRequest, patience_s: float) -> urllib3.BaseHTTPResponse:
        answer = super().post(url, sent, patience_s)
        self.answers[str(answer.status)] += 1
        return answer

    @contextmanager
    def balanced(self, *, senders: int = 6, pause_s: float = PAUSE_S) -> Iterator[None]:
        """Load on whatever gateways there are, until the block ends; each sender pauses before each request."""
        stop = threading.Event()
        self.refusals = [0] * senders
        threads = [threading.Thread(target=self._send_on, args=(n, stop, pause_s)) for n in range(senders)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _send_on(self, place: int, stop: threading.Event, pause_s: float) -> None:
        while not stop.wait(pause_s):
            sent = self.make(self._choose(CALLS_A_REQUEST))
            first = self._keep_sending(place, sent, stop, but="")
            is_repeated = len(self._urls()) > 1 and self._choose((True, False))
            if first and is_repeated and self._keep_sending(place, sent, stop, but=first):
                self.twice += 1

    def _keep_sending(self, place: int, sent: SentRequest, stop: threading.Event, *, but: str) -> str:
        """The gateway that acknowledged it; "" where the block ended before."""
        while not stop.is_set():
            urls = [url for url in self._urls() if url != but]
            if urls and self.is_taken(url := self._choose(tuple(urls)), sent):
                return url
            self.refusals[place] += 1
            stop.wait(REFUSED_S)
        return ""

    def is_taken(self, url: str, sent: SentRequest) -> bool:
        """Whether that gateway acknowledged it; no answer within `patience_s`, or what it grew to, is none."""
        doubled = 2 ** self._given_up[sent.body]
        patience_s = max(self.patience_s, min(self.patience_s * doubled, MOST_PATIENCE_S))
        began = time.monotonic()
        try:
            return self.send(url, sent, patience_s)
        except urllib3.exceptions.HTTPError:
            self.answers["none"] += 1
            if time.monotonic() - began >= patience_s:  # not cut off
                with self._lock:
                    self._given_up[sent.body] += 1
            return False
