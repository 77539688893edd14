"""Repeats by clients or by Tollhouse, after a kill, an outage or a new secret, count once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.conftest import Sites
from tests.faults.scenarios import Trial
from tests.faults.site import FaultSite
from tests.faults.upstream import ACCEPT, TAKE_AND_CUT, hang, refuse, slow
from tests.rounds import IS_LONG
from tests.waiting import wait_until

OUTAGE_S = 120.0 if IS_LONG else 2.0
# During the outage the route tries some of the oldest deliveries in turn. The older half contains far more
# deliveries than the route tries.
HALF, BATCH = (20_000, 1000) if IS_LONG else (2000, 100)
MOST_MIB = 250  # memory limit of the server in MiB, for a backlog of any size


@pytest.mark.proves("One call, one record")
@pytest.mark.fault("F3")
def test_killed_between_the_answer_and_our_mark(trial: Trial, sites: Sites) -> None:
    """
    The upstream accepts a delivery, Tollhouse is killed before it notes that, and the repeat is refused once.
    The next repeat has the same key and counts once.
    """
    for rng in trial.rounds(short=1, full=20):
        site = sites(rng)
        url = site.start()
        site.upstream.behave(hang(20.0, takes=True))
        site.oracle.send_all(url, rng.choice((1, 40, 300)))
        site.until(lambda one: len(one.upstream.taken) > 0, "something is taken")
        time.sleep(rng.uniform(0, 0.2))
        site.kill()
        site.upstream.behave(ACCEPT)
        site.upstream.next(*[refuse(rng.choice((408, 429, 500, 503)))] * 2)
        began = time.monotonic()
        site.start()
        site.until(lambda one: not one.upstream.has_next, "both are turned away")
        site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F11")
def test_a_second_process_on_the_same_directory(trial: Trial, sites: Sites) -> None:
    """
    On a directory in use, a second process is refused with the pid of the first, which continues. The lock of
    a killed process blocks no start.
    """
    for rng in trial.rounds(short=1, full=5):
        site = sites(rng)
        url = site.start()
        with site.oracle.load(url, senders=2, pause_s=0.05):
            assert site.tollhouse.process is not None
            refused = site.tollhouse.attempt("serve")
            assert 1 == refused.returncode
            assert f"in use by process {site.tollhouse.process.pid}" in refused.stderr
            site.kill()
        began = time.monotonic()
        site.start()
        site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F12")
def test_an_outage_at_full_rate(trial: Trial, sites: Sites) -> None:
    """
    After an outage at full rate nothing is missing, and the oldest records are delivered first. Memory stays
    bounded, even over a restart.
    """
    for rng in trial.rounds(short=1, full=3):
        site = sites(rng, batch_records=BATCH)
        url = site.start()
        site.upstream.down()
        load_for_half(site, url)
        site.kill()
        url = site.start()
        load_for_half(site, url)
        acknowledged = list(site.oracle.acknowledged)
        began = time.monotonic()
        site.upstream.up()
        site.until(lambda one: one.queued == 0, "the backlog is gone")
        peak = site.resident_mib(peak=True)
        site.close(trial, since=began)
        first, oldest = site.upstream.order[:100], acknowledged[: len(acknowledged) // 2]
        assert set() == {name for name in first if name in site.oracle.acknowledged} - set(oldest)
        assert peak < MOST_MIB


def load_for_half(site: FaultSite, url: str) -> None:
    """Send load for half of the outage, or longer on a slow machine."""
    enough = len(site.oracle.acknowledged) + HALF
    with site.oracle.load(url, pause_s=0.0):
        time.sleep(OUTAGE_S / 2)
        wait_until(lambda: len(site.oracle.acknowledged) >= enough, "senders are answered")


@pytest.mark.proves("One call, one record")
@pytest.mark.fault("F19")
def test_a_storm_of_duplicates(trial: Trial, sites: Sites) -> None:
    """
    Clients repeat at once and later, the upstream's responses are lost, and the process is killed. Each call
    is one record.
    """
    for rng in trial.rounds(short=1, full=10):
        # The gateway waits long for a commit, because this client would not repeat a refused request.
        site = sites(rng, spool='commit_wait = "100s"')
        url = site.start()
        site.upstream.behave(ACCEPT, TAKE_AND_CUT, slow(0.2))
        requests = [site.oracle.make(rng.choice((1, 20, 100))) for _ in range(20)]
        for _ in range(2):
            with ThreadPoolExecutor(4) as senders:
                list(senders.map(site.oracle.send, [url] * 240, requests * 12))
            site.kill()
            site.start()
        site.close(trial)
        (topic,) = site.tollhouse.json("spool", "status")["topics"]
        calls = sum(len(sent.calls) for sent in requests)
        assert topic["accepted"] == calls + 1
        assert topic["duplicates"] == 23 * calls


@pytest.mark.proof
@pytest.mark.fault("F25")
def test_secrets_rotate_while_records_wait(trial: Trial, sites: Sites) -> None:
    """Each new secret takes effect when it is written, even while the old secret is refused."""
    for rng in trial.rounds(short=1, full=5):
        site = sites(rng)
        url = site.start()
        with site.oracle.load(url, senders=2, pause_s=0.02):
            for number in range(6):
                site.upstream.secrets = {f"secret-{number}"}
                time.sleep(rng.uniform(0, 0.7))
                site.secret.write_text(f"secret-{number}\n")
                time.sleep(rng.uniform(0, 0.7))
        site.close(trial)
