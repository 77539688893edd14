"""
Twice the expected rate with random faults, for any duration: nothing grows and nothing slows down.

`make proofs`. The test compares the last third with the first third of the same process. A long run
warms up first, because caches (newest ids, recently read entries, file pages) grow to their bounds.
"""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from statistics import median

import pytest

from gateway.service.assembly.background import RETAIN_EVERY_S
from tests.faults.conftest import Sites
from tests.faults.oracle import CALLS_A_REQUEST
from tests.faults.scenarios import Trial
from tests.faults.site import FaultSite
from tests.faults.upstream import ACCEPT, CUT, RESET_MID_BODY, TAKE_AND_CUT, refuse, slow
from tests.rounds import IS_LONG

MINUTES = 30.0 if IS_LONG else 0.3
EXPECTED_CALLS_PER_S = 150
SENDERS = 4
WARM_UP_S = 150.0 if MINUTES >= 5 else 0.0
THIRD_S = (MINUTES * 60.0 - WARM_UP_S) / 3
PAUSE_S = SENDERS * sum(CALLS_A_REQUEST) / len(CALLS_A_REQUEST) / (2 * EXPECTED_CALLS_PER_S)
# Ids and delivered entries expire as early as possible, so that any growth is a leak.
SPOOL = """
retention = "10s"
late_window = "0s"
duplicate_ids = 50_000
"""
MORE_MEMORY, MORE_MIB = (1.08, 0.0) if WARM_UP_S else (1.2, 16.0)
MORE_BYTES, MORE_FILE = 1.2, 4 << 20
# Allowed slowdown, as a factor and in seconds. A short run allows more, because other tests start
# and stop meanwhile.
SLOWER, SLOWER_S = (1.5, 0.02) if WARM_UP_S else (3.0, 0.25)
LEAST_ANSWERS = 20  # minimum number of responses per third, even on a busy machine
FAILURES = (
    refuse(429, retry_after=1),
    refuse(500),
    refuse(502),
    refuse(503),
    CUT,
    TAKE_AND_CUT,
    RESET_MID_BODY,
    slow(1),
)


@dataclass(frozen=True)
class Third:
    """Measurements of one third of a soak run."""

    memory_mib: float
    file_bytes: int  # size in bytes of all database files after everything was delivered
    latency_s: (
        float  # latency at the first quartile, in seconds; a busy machine determines the higher quantiles
    )


@pytest.mark.proof
@pytest.mark.fault("F28")
@pytest.mark.timeout(MINUTES * 60 * 2 + 900)
def test_soak(trial: Trial, sites: Sites) -> None:
    """
    Memory, files and latency stay flat, the accounting is exact, and no record is lost or duplicated, even by
    a kill at the end.
    """
    for rng in trial.rounds(short=1, full=1):
        site = sites(rng, spool=SPOOL, linger="250ms")
        site.start()
        if WARM_UP_S:
            _run(site, rng, WARM_UP_S)
        first, _, last = (_run(site, rng, THIRD_S) for _ in range(3))
        print(f"first third: {first}\nlast third:  {last}")
        site.kill()
        began = time.monotonic()
        site.start()
        site.close(trial, since=began)
        assert last.memory_mib < first.memory_mib * MORE_MEMORY + MORE_MIB
        assert last.file_bytes < first.file_bytes * MORE_BYTES + MORE_FILE
        assert last.latency_s < first.latency_s * SLOWER + SLOWER_S


def _run(site: FaultSite, rng: random.Random, seconds: float) -> Third:
    """Run some time under load and faults, then end the faults and wait until everything is delivered."""
    site.oracle.latencies_s.clear()
    memory = []
    end = time.monotonic() + seconds
    with site.oracle.load(site.url, senders=SENDERS, pause_s=PAUSE_S):
        while time.monotonic() < end or len(site.oracle.latencies_s) < LEAST_ANSWERS:
            _break_something(site, rng)
            for _ in range(rng.randint(1, 5)):
                time.sleep(0.5)
                memory.append(site.resident_mib())
            site.upstream.behave(ACCEPT)
        latencies = sorted(site.oracle.latencies_s)
    site.until(lambda one: not any(route["queued"] for route in one.route_states()), "all is delivered")
    if seconds > RETAIN_EVERY_S:  # the run is longer than the interval at which delivered entries are deleted
        time.sleep(RETAIN_EVERY_S + 15)
    files = site.tollhouse.directory.glob("tollhouse-data/*.sqlite")
    return Third(median(memory), sum(file.stat().st_size for file in files), latencies[len(latencies) // 4])


def _break_something(site: FaultSite, rng: random.Random) -> None:
    fault = rng.choice(("nothing", "answers", "answers", "gone", "secret", "reload"))
    if fault == "answers":
        site.upstream.behave(ACCEPT, rng.choice(FAILURES), rng.choice(FAILURES))
    elif fault == "gone":
        site.upstream.down()
        time.sleep(rng.uniform(0.1, 2))
        site.upstream.up()
    elif fault == "secret":
        secret = f"secret-{rng.getrandbits(32)}"
        site.upstream.secrets = {secret}
        time.sleep(rng.uniform(0, 1))
        site.secret.write_text(secret + "\n")
    elif fault == "reload":
        assert site.tollhouse.process is not None
        site.tollhouse.process.send_signal(signal.SIGHUP)
