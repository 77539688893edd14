"""
The upstream fails in every way: no record is lost, and an upstream that honours idempotency keys counts none twice.
"""

from __future__ import annotations

import random
import time

import pytest

from spool.deliveries.values import PARKED
from tests.faults.conftest import Sites
from tests.faults.scenarios import Trial
from tests.faults.upstream import (
    ACCEPT,
    CUT,
    RESET_MID_BODY,
    TAKE_AND_CUT,
    Attempt,
    Behaviour,
    ScriptedUpstream,
    hang,
    partly,
    refuse,
    slow,
)
from tests.rounds import as_proof

# limit after the upstream works again: the longest backoff and the wait of a paused route are shorter
FAILURES = (
    refuse(408),
    refuse(429),
    refuse(429, retry_after=1),
    refuse(500),
    refuse(500, remembered=True),
    refuse(502),
    refuse(503),
    refuse(503, retry_after=1),
    refuse(504),
    refuse(413),
    CUT,
    TAKE_AND_CUT,
    RESET_MID_BODY,
    slow(0.5),
    slow(3.0),
    hang(3.0, takes=True),
    hang(3.0, takes=False),
)


@pytest.mark.proves("Nothing is dropped silently")
@pytest.mark.fault("F13")
def test_any_failure_in_any_order(trial: Trial, sites: Sites) -> None:
    """Half of the responses are random failures. Every record arrives once."""
    for rng in trial.rounds(short=1, full=20):
        site = sites(rng)
        url = site.start()
        site.upstream.is_consistent = True
        site.upstream.behave(*FAILURES, *[ACCEPT] * len(FAILURES))
        with site.oracle.load(url, senders=2, pause_s=0.05):
            time.sleep(rng.uniform(4, 8))
        site.close(trial)


@pytest.mark.parametrize("between", [502, 500], ids=str)
def test_the_upstream_of_these_tests_counts_answers_as_the_rule_for_keys_does(between: int) -> None:
    """
    The scripted upstream does not refuse an accepted request three times with the same status, because the
    gateway would then take it for rejected. Other failures in between do not reset the count.
    """
    upstream = ScriptedUpstream(random.Random(0))
    upstream.down()
    upstream.is_consistent = True
    attempt = Attempt(path="/v1/traces", authorization="", key="one", body=b"", calls={"call": "hash"})
    assert TAKE_AND_CUT == upstream.receive(attempt, TAKE_AND_CUT)
    drawn = (503, between, 503, 504, 503)
    assert [503, between, 503, 504, 200] == [
        upstream.receive(attempt, refuse(status)).status for status in drawn
    ]
    assert {"call": 1} == upstream.taken


@pytest.mark.fault("F13")
@pytest.mark.parametrize("then", [*map(as_proof, (401, 408, 409)), *map(as_proof, (429, 500)), 503], ids=str)
def test_accepted_request_with_lost_response_and_refused_repeat_counts_once(
    trial: Trial, sites: Sites, then: int
) -> None:
    """The response to an accepted request is lost, and a proxy refuses its repeat. The record counts once."""
    for rng in trial.rounds(short=1, full=3):
        site = sites(rng)
        url = site.start()
        site.upstream.next(TAKE_AND_CUT, refuse(then))
        site.oracle.send_all(url, 40, at_once=40)
        site.until(lambda one: not one.upstream.has_next, "both answers")
        if then == 401:
            site.until(lambda one: one.state == PARKED, "it is parked")
            site.secret.write_text("another-secret\n")
        site.close(trial)


@pytest.mark.proof
@pytest.mark.fault("F16")
def test_partial_success(trial: Trial, sites: Sites) -> None:
    """Records that a partial success rejects count as refused, the rest as delivered. None is sent again."""
    for rng in trial.rounds(short=1, full=10):
        site = sites(rng)
        url = site.start()
        site.upstream.behave(partly(1), partly(2), ACCEPT)
        site.upstream.next(partly(2))
        site.oracle.send_all(url, 500)
        site.until(lambda one: one.queued == 0, "the queue is empty")
        site.close(trial)
        assert site.upstream.rejected
        assert not site.upstream.rejected & site.upstream.taken.keys()
        assert {1} == {len(keys) for keys in site.upstream.keys_of.values()}


@pytest.mark.proof
@pytest.mark.fault("F15")
@pytest.mark.parametrize("status", [400, 422], ids=str)
def test_one_poison_record(trial: Trial, sites: Sites, status: int) -> None:
    """One record makes any batch fail. The other records arrive, and only that record is set aside."""
    for rng in trial.rounds(short=1, full=5):
        site = sites(rng, batch_records=200)
        url = site.start()
        poison = site.oracle.make(200)
        chosen = rng.choice(sorted(poison.calls))
        site.upstream.poison.add(chosen)
        site.upstream.poison_answer = refuse(status)
        assert site.oracle.send(url, poison)
        with site.oracle.load(url, senders=1, pause_s=0.3):
            site.until(lambda one: one.dead == 1, "it is set aside")
        site.close(trial)
        assert {chosen} == poison.calls.keys() - site.upstream.taken.keys()


@pytest.mark.proves("Least privilege")
@pytest.mark.fault("F14")
@pytest.mark.parametrize("status", [as_proof(401), 403], ids=str)
def test_refused_key_pauses_the_route_until_it_is_replaced(trial: Trial, sites: Sites, status: int) -> None:
    """
    If the upstream refuses the key, the route pauses with a reason and drops nothing. With a new key it
    continues at once, without a restart.
    """
    for rng in trial.rounds(short=1, full=5):
        site = sites(rng)
        url = site.start()
        site.upstream.behave(Behaviour(status=status, takes=False))
        with site.oracle.load(url, senders=2, pause_s=0.02):
            site.until(lambda one: one.state == PARKED, "it is parked")
            time.sleep(1 + rng.random())
        site.upstream.behave(ACCEPT)
        site.secret.write_text("another-secret\n")
        site.close(trial)
