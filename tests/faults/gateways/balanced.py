"""A client of several gateways, which sends a request to another gateway if one does not answer."""

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

# Timeout after which the client tries another gateway. It doubles each time a request times out, because a
# busy machine may need that long for every response.
PATIENCE_S = 3.0
MOST_PATIENCE_S = 180.0


class BalancedOracle(Oracle):
    """
    An oracle that behaves like a load balancer and its clients: it sends to any gateway, and to another
    without a response.

    Every second request is reported to two gateways one after the other, as by an application and the AI
    gateway that it calls.
    """

    def __init__(self, path: Path, rng: random.Random, key: str, urls: Callable[[], Sequence[str]]) -> None:
        super().__init__(path, rng, key)
        self._urls = urls
        self.patience_s = PATIENCE_S
        self._given_up: Counter[bytes] = Counter()  # number of timeouts per request body
        self.twice = 0  # number of requests that two gateways acknowledged
        self.answers: Counter[str] = Counter()  # number of responses to senders, by HTTP status

    def post(self, url: str, sent: SentRequest, patience_s: float) -> urllib3.BaseHTTPResponse:
        answer = super().post(url, sent, patience_s)
        self.answers[str(answer.status)] += 1
        return answer

    @contextmanager
    def balanced(self, *, senders: int = 6, pause_s: float = PAUSE_S) -> Iterator[None]:
        """Send to the running gateways until the block ends. Each sender pauses before each request."""
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
        """
        Send until a gateway acknowledges the request; return its URL. Return "" if the block ended first.
        """
        while not stop.is_set():
            urls = [url for url in self._urls() if url != but]
            if urls and self.is_taken(url := self._choose(tuple(urls)), sent):
                return url
            self.refusals[place] += 1
            stop.wait(REFUSED_S)
        return ""

    def is_taken(self, url: str, sent: SentRequest) -> bool:
        """
        Return whether the gateway acknowledged the request within the timeout, which grows from `patience_s`.
        """
        doubled = 2 ** self._given_up[sent.body]
        patience_s = max(self.patience_s, min(self.patience_s * doubled, MOST_PATIENCE_S))
        began = time.monotonic()
        try:
            return self.send(url, sent, patience_s)
        except urllib3.exceptions.HTTPError:
            self.answers["none"] += 1
            if (
                time.monotonic() - began >= patience_s
            ):  # a timeout means that the gateway may still answer; otherwise, the connection broke
                with self._lock:
                    self._given_up[sent.body] += 1
            return False
