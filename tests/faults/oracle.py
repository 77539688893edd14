"""A client that sends calls, repeats unanswered requests, and writes down acknowledged calls."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import urllib3

from tests.acceptance.payloads import KEEP_ALIVE, request, span
from tests.rounds import IS_LONG
from tests.waiting import wait_until

# in a short round other tests run at the same time, so requests are smaller and pauses longer
CALLS_A_REQUEST = (1, 1, 5, 50) if IS_LONG else (1, 1, 5, 20)
RETRIED = (429, 503)
PATIENCE_S = 120.0  # limit in seconds, generous for a busy machine
PAUSE_S = 0.0 if IS_LONG else 0.05
REFUSED_S = 0.02 if IS_LONG else 0.05  # pause before a refused request is sent again

T = TypeVar("T")


class SentCall(NamedTuple):
    """The values of a call that the ledger adds up."""

    user: str
    tokens: int


@dataclass(frozen=True)
class SentRequest:
    """A request body and its calls by response id, with the hashes of their content."""

    body: bytes
    calls: dict[str, str]


class Oracle:
    """Sent and acknowledged calls, in memory and in a flushed file with lines `RESPONSE_ID HASH`."""

    def __init__(self, path: Path, rng: random.Random, key: str) -> None:
        self.sent: dict[str, str] = {}
        self.calls: dict[str, SentCall] = {}  # the calls that were sent, by response id
        self.acknowledged: dict[str, str] = {}
        # responses other than a success and a request to retry, which no test expects
        self.unexpected: list[str] = []
        self.latencies_s: list[float] = []
        self.place: Callable[[], int] = lambda: 0  # returns the current position in a trace of disk writes
        self.refusals: list[
            int
            # number of refusals per sender; when it grows, all earlier acknowledgements of the sender are in the file
        ] = []
        # for each call, the position in the trace of disk writes at the acknowledgement
        self.places: dict[str, int] = {}
        self.key = key
        self._rng = rng
        self._lock = threading.Lock()
        self._list = path.open("a", buffering=1)
        self._in_flight: list[
            SentRequest | None
        ] = []  # for each sender, the last request that a kill left without an answer

    def make(self, count: int, *, user_digits: int = 0) -> SentRequest:
        """
        Make a request of new calls with different tokens and users. Each user digit takes half a byte
        on the disk.
        """
        with self._lock:
            calls = [
                (
                    f"chatcmpl-{self._rng.getrandbits(96):024x}",
                    self._rng.randrange(1, 10**6),
                    f"user-{self._rng.randrange(50)}" + self._digits(user_digits),
                )
                for _ in range(count)
            ]
            made = {name: content_hash(name, tokens, user) for name, tokens, user in calls}
            self.sent.update(made)
            self.calls.update({name: SentCall(user, tokens) for name, tokens, user in calls})
        spans = [span(name, tokens=tokens, user__id=user) for name, tokens, user in calls]
        return SentRequest(request(spans), made)

    def send(self, url: str, sent: SentRequest, patience_s: float = PATIENCE_S) -> bool:
        """
        Send a request; return whether it was acknowledged. Raises urllib3.exceptions.HTTPError without a response.
        """
        began = time.monotonic()
        answer = self.post(url, sent, patience_s)
        if answer.status == 200:
            with self._lock:
                self.latencies_s.append(time.monotonic() - began)
                self.acknowledged.update(sent.calls)
                place = self.place()
                for name in sent.calls:
                    self.places.setdefault(name, place)
                self._list.writelines(f"{name} {content}\n" for name, content in sent.calls.items())
        elif answer.status not in RETRIED:
            self.unexpected.append(f"{answer.status} {answer.data[:200]!r}")
        return answer.status == 200

    def post(self, url: str, sent: SentRequest, patience_s: float) -> urllib3.BaseHTTPResponse:
        headers = {"Content-Type": "application/json", "Authorization": self.key}
        return KEEP_ALIVE.request(
            "POST", f"{url}/v1/traces", body=sent.body, headers=headers, timeout=patience_s
        )

    def send_all(self, url: str, count: int, *, at_once: int = 50) -> None:
        """Send new calls until all are acknowledged, one request after the other."""
        for first in range(0, count, at_once):
            sent = self.make(min(at_once, count - first))
            wait_until(
                partial(self.send, url, sent), lambda: f"all calls are acknowledged: {self.unexpected}"
            )

    @contextmanager
    def load(self, url: str, *, senders: int = 4, pause_s: float = PAUSE_S) -> Iterator[None]:
        """
        Send all the time. Each sender first resends what the last load left unanswered, as clients do
        after a kill.

        Senders stop with the server or with the block. Some acknowledged requests are sent a second time.
        """
        stop = threading.Event()
        self._in_flight += [None] * (senders - len(self._in_flight))
        self.refusals += [0] * (senders - len(self.refusals))
        threads = [threading.Thread(target=self._run, args=(n, url, pause_s, stop)) for n in range(senders)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def wait_until_taken(self, calls: int = 20) -> None:
        """
        Wait until more than `calls` further calls are acknowledged, so that a fault meets work on a slow
        machine as well.
        """
        enough = len(self.acknowledged) + calls
        wait_until(lambda: len(self.acknowledged) > enough, "senders are answered")

    def wait_until_refused(self) -> None:
        """Wait until every sender was refused. By then all its earlier acknowledgements are in the file."""
        before = list(self.refusals)
        wait_until(lambda: all(map(int.__gt__, self.refusals, before)), "every sender is refused")

    def close(self) -> None:
        self._list.close()

    def _run(self, place: int, url: str, pause_s: float, stop: threading.Event) -> None:
        while not stop.is_set():
            sent = self._in_flight[place] or self.make(self._choose(CALLS_A_REQUEST))
            self._in_flight[place] = sent
            try:
                done = self.send(url, sent)
                if done and self._choose((False, False, True)):
                    self.send(url, sent)
            except urllib3.exceptions.HTTPError:
                return  # the server was killed meanwhile
            if done:
                self._in_flight[place] = None
            else:
                self.refusals[place] += 1
            stop.wait(pause_s if done else REFUSED_S)

    def _digits(self, count: int) -> str:
        return f"-{self._rng.getrandbits(4 * count):0{count}x}" if count else ""

    def _choose(self, among: tuple[T, ...]) -> T:
        with self._lock:
            return self._rng.choice(among)


def content_hash(response_id: str, input_tokens: object, user: object) -> str:
    """Hash the content of a call. The request, the upstream and the record file give the same hash."""
    return hashlib.sha256(f"{response_id} {input_tokens} {user}".encode()).hexdigest()[:16]
