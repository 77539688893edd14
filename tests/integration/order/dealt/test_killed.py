"""
Several senders send conversations to a real server, which is killed with `kill -9` during their requests.
Unanswered requests are sent again. The archive, the totals and the accounting must equal the truth.
"""

from __future__ import annotations

import gzip
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import urllib3

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.conftest import installations as installations
from tests.acceptance.payloads import post
from tests.integration.order.dealt.conversation import request_of
from tests.integration.order.dealt.families import IN_ANY_TIME
from tests.integration.order.dealt.plan import Plan, Step, dealt
from tests.integration.order.dealt.test_dealt import compared, expected, kept
from tests.integration.order.running import SEED
from tests.rounds import IS_LONG
from tests.waiting import wait_until

ROUNDS = 60 if IS_LONG else 1
KILLS = 3
SENDERS = 4
OF_EACH = 6  # maximum number of conversations per family
PAUSE_S = 0.3  # maximum pause before a request; longer than the times in SHORT
GZIP = {"Content-Encoding": "gzip"}
# No record closes and no counter is decided while requests are sent. The last start uses SHORT.
LONG = {"TOLLHOUSE_SPOOL__HOLD": "1h", "TOLLHOUSE_SPOOL__COUNTER_WAIT": "1h"}
SHORT = {"TOLLHOUSE_SPOOL__HOLD": "100ms", "TOLLHOUSE_SPOOL__COUNTER_WAIT": "100ms"}


class Senders:
    """
    Senders that take the steps of a plan in turn. An unanswered step is sent again after the next start.
    """

    def __init__(self, plan: Plan, key: str, pauses: Sequence[float]) -> None:
        self._left = list(zip(plan.steps, pauses, strict=True))[::-1]
        self._key = key
        self._lock = threading.Lock()
        self.wrong: list[str] = []

    @property
    def are_done(self) -> bool:
        return not self._left

    def send(self, url: str) -> None:
        while told := self._next():
            step, pause_s = told
            try:
                time.sleep(pause_s)
                answer = self._post(url, step)
                is_taken = 200 <= answer.status < 300
                if not is_taken and answer.status != 503:
                    self.wrong.append(f"{step.items[0].format}: {answer.data.decode()}")
            except urllib3.exceptions.HTTPError:  # the server was killed
                is_taken = False
            if not is_taken:
                with self._lock:
                    self._left.append(told)
                return

    def _next(self) -> tuple[Step, float] | None:
        with self._lock:
            return self._left.pop() if self._left else None

    def _post(self, url: str, step: Step) -> urllib3.BaseHTTPResponse:
        request = request_of(step.items, as_protobuf=step.as_protobuf)
        kind = "application/json" if request.body[:1] in b"[{" else "application/x-protobuf"
        otlp = request.format.startswith("otlp/")
        path = f"/v1/{request.format.removeprefix('otlp/')}" if otlp else f"/v1/ai-telemetry/{request.format}"
        headers = {"Content-Type": kind}
        if step.as_gzip:
            return post(url, gzip.compress(request.body), self._key, path, **headers, **GZIP)
        return post(url, request.body, self._key, path, **headers)


@pytest.mark.proof
@pytest.mark.parametrize("closes", [False, True])
def test_a_killed_server_keeps_what_is_true(installations: Any, closes: bool) -> None:
    """
    With `closes`, records close between the reports of a call, and counters are decided. Then only families
    whose sums do not depend on that are sent.
    """
    for number in range(ROUNDS):
        chance = random.Random(f"{SEED} killed {closes} {number}")
        print(f"TOLLHOUSE_ORDER_SEED={SEED}, killed, closes {closes}, plan {number}")
        if closes:
            plan = replace(dealt(chance, most=OF_EACH, families=IN_ANY_TIME), all_open=False)
        else:
            plan = dealt(chance, most=OF_EACH, is_open=True)
        pauses = [chance.uniform(0, PAUSE_S) if closes else 0.0 for _ in plan.steps]
        tollhouse = installations(f"killed-{number}")
        senders = Senders(plan, tollhouse.key("dealt"), pauses)
        for kill in range(KILLS + 1):
            url = tollhouse.start(SHORT if closes else LONG)
            with ThreadPoolExecutor(SENDERS) as threads:
                sending = [threads.submit(senders.send, url) for _ in range(SENDERS)]
                if kill < KILLS:
                    time.sleep(chance.uniform(0.02, 3 * PAUSE_S if closes else PAUSE_S))
                    tollhouse.kill()
                for one in sending:
                    one.result()
        assert [] == senders.wrong
        assert senders.are_done
        tollhouse.stop()
        judge(plan, tollhouse)
        tollhouse.stop()


def judge(plan: Plan, tollhouse: Tollhouse) -> None:
    """Compare the result with the truth, once all counters are decided and all records are delivered."""
    tollhouse.start(SHORT)

    def is_decided() -> bool:
        topics = {topic["topic"]: topic for topic in tollhouse.asked("/status")["topics"]}
        return not topics["ai-telemetry"]["pending"]

    wait_until(is_decided, "counters and reports that wait")
    truth = expected(plan)

    def is_true() -> bool:
        tollhouse.wait_until_drained()
        rows = [{"kind": "inference", **row} for row in tollhouse.records()]
        return compared(truth, plan) == compared(kept(rows), plan)

    wait_until(is_true, f"{compared(truth, plan)}, also once counters are taken back")
    true = [
        sum(one.calls for one in truth.values()),
        sum(one.input_tokens + one.counted for one in truth.values()),
        sum(one.output_tokens for one in truth.values()),
    ]

    def ledger() -> list[int]:
        names = ("calls", "input_tokens", "output_tokens")
        found = tollhouse.json("report", "--from", "2020-01-01", "--show", ",".join(names))["rows"]
        return [sum(row[name] for row in found) for name in names]

    wait_until(lambda: true == ledger(), f"{true} in the ledger")
    assert tollhouse.json("spool", "verify")["balanced"]
