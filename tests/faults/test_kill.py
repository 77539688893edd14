"""kill -9 at random moments: acknowledged records are delivered, and none exists twice."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post
from tests.faults.conftest import Sites
from tests.faults.scenarios import Trial
from tests.faults.upstream import slow
from tests.gateway.normalise.formats.langfuse.events import batch, create, trace, update
from tests.rounds import IS_LONG, as_proof
from tests.waiting import wait_until

HALVES_ROUNDS = 100 if IS_LONG else 5
SENDERS = 4
KILLS = 5  # number of times that the server of each installation is killed
MUTANT_ROUNDS = 20  # number of tries within which the test must detect the planted defect
pytestmark = pytest.mark.fault("F1")
CLAUDE_CODE = Path(__file__).parents[1] / "cases/otlp/claude_code"


@pytest.mark.proves("A 2xx means the record is on disk")
def test_kill_under_load(trial: Trial, sites: Sites) -> None:
    """
    After rounds of SIGKILL, acknowledged records are in the upstream and in the record file exactly once, and the
    accounting balances.
    """
    for rng in trial.rounds(short=1, full=40):
        site = sites(rng)
        for _ in range(KILLS):
            site.start()
            with site.oracle.load(site.url, senders=SENDERS, pause_s=0.0):
                time.sleep(rng.uniform(0.05, 0.8))
                site.kill()
        began = time.monotonic()
        site.start()
        site.close(trial, since=began)


class Halves:
    """Sends calls in two halves, and repeats unanswered halves, like Langfuse's SDKs."""

    def __init__(self, own_ids: list[str]) -> None:
        self._left = [
            body
            for own_id in own_ids
            for body in (batch(create(own_id, traceId=own_id)), batch(trace(own_id), update(own_id)))
        ][::-1]

    def send(self, url: str, key: str) -> None:
        while self._left:
            try:
                answer = post(url, self._left[-1], key, "/api/public/ingestion")
            except urllib3.exceptions.HTTPError:
                return  # the server was killed meanwhile
            assert answer.status in (207, 503)
            if answer.status == 207:
                self._left.pop()


@pytest.mark.proof
def test_kill_between_halves(installations: Any) -> None:
    """
    After any number of kills, every call is one record with its tokens and user, and no partial report waits.
    """
    tollhouse = installations(hold="50ms")
    key = tollhouse.key("halves")
    own_ids = [[f"g-{sender}-{number}" for number in range(200)] for sender in range(SENDERS)]
    senders = [Halves(ids) for ids in own_ids]
    for round in range(HALVES_ROUNDS + 1):
        url = tollhouse.start(env={"TOLLHOUSE_SPOOL__PENDING_WINDOW": "1h"})
        with ThreadPoolExecutor() as threads:
            sending = [threads.submit(sender.send, url, key) for sender in senders]
            if round < HALVES_ROUNDS:
                time.sleep(random.uniform(0.05, 0.4))
                tollhouse.kill()
            for one in sending:
                one.result()
    tollhouse.stop()
    # repeated reports wait until this window ends
    tollhouse.start(env={"TOLLHOUSE_SPOOL__PENDING_WINDOW": "1s"})
    wait_until(lambda: _pending(tollhouse) == {"ai-telemetry": 0}, "the end of the window")
    tollhouse.wait_until_drained()
    written = [
        (record["request_id"], record["input_tokens"], record["user"]) for record in tollhouse.records()
    ]
    assert sorted((own_id, 10, "u-1") for ids in own_ids for own_id in ids) == sorted(written)
    tollhouse.json("spool", "verify")
    tollhouse.stop()


def _pending(tollhouse: Tollhouse) -> dict[str, int]:
    return {row["topic"]: row["pending"] for row in tollhouse.json("spool", "status")["topics"]}


@pytest.mark.proof
def test_kill_while_counters_wait(installations: Any) -> None:
    """
    Counters that wait at a kill are decided after it. Later calls of the same work replace them. Without such
    calls, they count.
    """
    tollhouse = installations(hold="50ms")
    key = tollhouse.key("assistants")
    metrics, events = (
        (CLAUDE_CODE / "metrics_delta.json").read_bytes(),
        CLAUDE_CODE / "api_request_events.json",
    )
    url = tollhouse.start(env={"TOLLHOUSE_SPOOL__COUNTER_WAIT": "1h"})
    for session in (b"cc-sess-1", b"cc-sess-2"):
        body = metrics.replace(b"cc-sess-1", session)
        assert 200 == post(url, body, key, "/v1/metrics").status
    tollhouse.kill()
    url = tollhouse.start(env={"TOLLHOUSE_SPOOL__COUNTER_WAIT": "1h"})
    waiting = len(json.loads(events.with_name("metrics_delta.expected.json").read_text())["records"])
    assert {"ai-telemetry": 2 * waiting} == _pending(tollhouse)
    assert 200 == post(url, events.read_bytes(), key, "/v1/logs").status
    tollhouse.kill()
    tollhouse.start(env={"TOLLHOUSE_SPOOL__COUNTER_WAIT": "100ms"})
    wait_until(lambda: _pending(tollhouse) == {"ai-telemetry": 0}, "the end of the wait")
    tollhouse.wait_until_drained()
    counters = [record for record in tollhouse.records() if record["kind"] == "usage_metric"]
    assert {("cc-sess-1", True), ("cc-sess-2", False)} == {
        (one["session"], one["shadow"]) for one in counters
    }
    assert 2 * waiting == len(counters)
    tollhouse.json("spool", "verify")
    tollhouse.stop()


@pytest.mark.proof
def test_kill_between_counters_and_calls(installations: Any) -> None:
    """
    Counters summed before a kill are reversed once by later calls of the same work, even if the calls are repeated.
    """
    tollhouse = installations(hold="50ms")
    key = tollhouse.key("assistants")
    metrics, events = (
        (CLAUDE_CODE / "metrics_delta.json").read_bytes(),
        CLAUDE_CODE / "api_request_events.json",
    )
    soon = {"TOLLHOUSE_SPOOL__COUNTER_WAIT": "100ms"}
    url = tollhouse.start(env=soon)
    assert 200 == post(url, metrics, key, "/v1/metrics").status
    wait_until(lambda: _counted(tollhouse)[1] > 0, "the end of the wait")
    tollhouse.kill()
    for _ in range(2):
        url = tollhouse.start(env=soon)
        for path, body in (("/v1/logs", events.read_bytes()), ("/v1/metrics", metrics)):
            assert 200 == post(url, body, key, path).status
        wait_until(lambda: _counted(tollhouse)[1] == 0, "the correction")
        tollhouse.kill()
    tollhouse.start(env=soon)
    tollhouse.wait_until_drained()
    counters = len(json.loads(events.with_name("metrics_delta.expected.json").read_text())["records"])
    assert (2 * counters, Decimal(0)) == _counted(tollhouse)
    tollhouse.json("spool", "verify")
    tollhouse.stop()


def _counted(tollhouse: Tollhouse) -> tuple[int, Decimal]:
    """Return the number and sum of the counters in the record file that are not shadows."""
    whole_lines = (
        tollhouse.archive.read_text().rpartition("\n")[0].splitlines() if tollhouse.archive.exists() else []
    )
    records = [json.loads(line) for line in whole_lines]
    counters = [one for one in records if one["kind"] == "usage_metric" and not one["shadow"]]
    return len(counters), sum((Decimal(one["value"]) for one in counters), Decimal(0))


@pytest.mark.parametrize(
    "mutant", ["answer_before_commit", as_proof("settle_before_send"), as_proof("no_mark")]
)
def test_a_broken_promise_is_seen(sites: Sites, mutant: str) -> None:
    """
    Kills lose or duplicate records if Tollhouse answers or settles too early, or appends without a mark.
    """
    rng = random.Random(mutant)
    # if a line of the record file is cut off, the judge raises ValueError
    with pytest.raises((AssertionError, ValueError)):
        for _ in range(MUTANT_ROUNDS):
            site = sites(rng, batch_records=20)
            for _ in range(KILLS):
                site.start(mutant=mutant)
                site.upstream.behave(slow(0.3))
                with site.oracle.load(site.url, senders=SENDERS, pause_s=0.0):
                    site.oracle.wait_until_taken()
                    time.sleep(rng.uniform(0.0, 0.6))
                    site.kill()
            site.start()
            site.heal()
            site.judge(site.oracle.acknowledged).check()
            site.kill()
