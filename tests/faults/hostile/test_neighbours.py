"""
While one key floods and something is broken, another key retains a part of its rate, and nothing is lost.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.faults.conftest import Sites
from tests.faults.scenarios import Trial
from tests.faults.site import FaultSite
from tests.faults.test_load import ROOT, SOME, SteadySenders
from tests.faults.upstream import ACCEPT, refuse
from tests.rounds import IS_LONG

# A key must retain this share of its rate in the best of several tries on a busy machine. Without fair turns
# it retained a quarter to two fifths. `python -m tests.bench.fairness` measures the share on a quiet machine.
LEAST = 0.5
TRIES = 4

MANY = 1500  # number of calls that the test sends

Fault = Callable[[FaultSite], None]


@contextmanager
def flood(url: str, key: str) -> Iterator[None]:
    """Flood from a low-priority process, so that it takes no processor time from other clients."""
    words = ["nice", "-n", "19", sys.executable, "-m", "tests.faults.misbehaving", "calls", url, key]
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def upstream_away(site: FaultSite) -> None:
    site.upstream.behave(refuse(503))


def killed(site: FaultSite) -> None:
    site.kill()
    site.start()


def nothing(site: FaultSite) -> None:
    """The fault of a round in which nothing breaks."""


# `make test` covers the case without a fault in tests/bench/test_bench_fairness.py
FAULTS = (upstream_away, killed, nothing) if IS_LONG else (upstream_away, killed)


@pytest.mark.proof
@pytest.mark.fault("F49")
def test_neighbour_of_a_flood_continues_sending_during_a_fault(trial: Trial, sites: Sites) -> None:
    """The fault is an upstream that is down, or a kill and a restart."""
    for rng in trial.rounds(short=1, full=20):
        site = sites(rng, batch_records=1000)
        key = site.tollhouse.key("flood")
        site.start()
        kept = {}
        with SteadySenders(site.oracle, site.url) as senders:
            senders.go_on(20)
            for fault in FAULTS:
                kept[fault.__name__] = beside(site, key, senders, fault)
                site.upstream.behave(ACCEPT)
        print("rate kept:", {name: round(share, 2) for name, share in kept.items()})
        site.close(trial)
        assert all(share >= LEAST for share in kept.values()), kept


def beside(site: FaultSite, key: str, senders: SteadySenders, fault: Fault) -> float:
    """Return the best share of its rate that the senders retain next to a flood and the fault."""
    best = 0.0
    for _ in range(TRIES):
        alone = senders.throughput()
        with flood(site.url, key):
            flooded(site)
            fault(site)
            flooded(site)  # warm up, because a new process takes longer for its first calls
            senders.go_on(SOME)
            best = max(best, senders.throughput() / alone)
        if best >= LEAST:
            break
    return best


def flooded(site: FaultSite) -> None:
    before = accepted(site)
    site.until(lambda one: accepted(one) > before + MANY, "the flood is there")


def accepted(site: FaultSite) -> int:
    (topic,) = (one for one in site.tollhouse.asked("/status")["topics"] if one["topic"] == "ai-telemetry")
    return int(topic["accepted"])
