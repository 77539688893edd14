"""
Conversations dealt to a real server by several senders at once, with `kill -9` in the middle of their
requests: what was not answered is sent again. Its archive, its ledger and its books say what is true of the
calls.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3

from tests.acceptance.conftest import Tollhouse, wait_for
from tests.acceptance.conftest import installations as installations
from tests.acceptance.payloads import post
from tests.integration.order.dealt.conversation import request_of
from tests.integration.order.dealt.plan import Plan, Step, dealt
from tests.integration.order.dealt.test_dealt import compared, expected, kept
from tests.integration.order.running import SEED
from tests.rounds import IS_LONG

ROUNDS = 60 if IS_LONG else 1
KILLS = 3
SENDERS = 4
OF_EACH = 6  # conversations of a family, at most
# Nothing closes and no counter is decided while requests are sent; the last start ends it.
LONG = {"TOLLHOUSE_SPOOL__HOLD": "1h", "TOLLHOUSE_SPOOL__COUNTER_WAIT": "1h"}
SHORT = {"TOLLHOUSE_SPOOL__HOLD": "100ms", "TOLLHOUSE_SPOOL__COUNTER_WAIT": "100ms"}


class Senders:
    """Take the steps of a plan in turn; one that was not answered is sent again after the next start."""

    def __init__(self, plan: Plan, key: str) -> None:
        self._left = list(plan.steps)[::-1]
        self._key = key
        self._lock = threading.Lock()
        self.wrong: list[str] = []

    @property
    def are_done(self) -> bool:
        return not self._left

    def send(self, url: str) -> None:
        while step := self._next():
            try:
                answer = self._post(url, step)
                is_taken = 200 <= answer.status < 300
                if not is_taken and answer.status != 503:
                    self.wrong.append(f"{step.items[0].format}: {answer.data.decode()}")
            except urllib3.exceptions.HTTPError:  # killed
                is_taken = False
            if not is_taken:
                with self._lock:
                    self._left.append(step)
                return

    def _next(self) -> Step | None:
        with self._lock:
            return self._left.pop() if self._left else None

    def _post(self, url: str, step: Step) -> urllib3.BaseHTTPResponse:
        request = request_of(step.items, as_protobuf=step.as_protobuf)
        kind = "application/json" if request.body[:1] in b"[{" else "application/x-protobuf"
        otlp = request.format.startswith("otlp/")
        path = f"/v1/{request.format.removeprefix('otlp/')}" if otlp else f"/v1/ai-telemetry/{request.format}"
        return post(url, request.body, self._key, path, **{"Content-Type": kind})


def test_a_killed_server_keeps_what_is_true(installations: Any) -> None:
    """In one process, and with two workers on one log."""
    for number in range(ROUNDS):
        chance = random.Random(f"{SEED} killed {number}")
        print(f"TOLLHOUSE_ORDER_SEED={SEED}, killed, plan {number}")
        plan = dealt(chance, most=OF_EACH, is_open=True)
        tollhouse = installations(f"killed-{number}", server=f"workers = {chance.choice((1, 2))}")
        senders = Senders(plan, tollhouse.key("dealt"))
        for kill in range(KILLS + 1):
            url = tollhouse.start(LONG)
            with ThreadPoolExecutor(SENDERS) as threads:
                sending = [threads.submit(senders.send, url) for _ in range(SENDERS)]
                if kill < KILLS:
                    time.sleep(chance.uniform(0.02, 0.3))
                    tollhouse.kill()
                for one in sending:
                    one.result()
        assert [] == senders.wrong
        assert senders.are_done
        tollhouse.stop()
        judge(plan, tollhouse)
        tollhouse.stop()


def judge(plan: Plan, tollhouse: Tollhouse) -> None:
    """Once all is decided and has left."""
    tollhouse.start(SHORT)

    def is_decided() -> bool:
        topics = {topic["topic"]: topic for topic in tollhouse.asked("/status")["topics"]}
        return not topics["ai-telemetry"]["pending"]

    wait_for(is_decided, 120, "counters and reports that wait")
    tollhouse.wait_until_drained()
    truth = expected(plan)
    rows = [{"kind": "inference", **row} for row in tollhouse.records()]
    assert compared(truth, plan) == compared(kept(rows), plan)
    true = [
        sum(one.calls for one in truth.values()),
        sum(one.input_tokens + one.counted for one in truth.values()),
        sum(one.output_tokens for one in truth.values()),
    ]

    def ledger() -> list[int]:
        names = ("calls", "input_tokens", "output_tokens")
        found = tollhouse.json("report", "--from", "2020-01-01", "--show", ",".join(names))["rows"]
        return [sum(row[name] for row in found) for name in names]

    wait_for(lambda: ledger()[0] >= true[0], 60, "the ledger")
    assert true == ledger()
    assert tollhouse.json("spool", "verify")["balanced"]
