"""One key floods while something is broken: another keeps a part of its rate, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.faults.conftest import Sites
from tests.faults.scenarios import LONG, Trial
from tests.faults.site import FaultSite
from tests.faults.test_load import ROOT, SOME, SteadySenders
from tests.faults.upstream import ACCEPT, refuse

# Of its rate, in the best of some tries on a machine that others keep busy. First come, first served left it
# a quarter to two fifths here. How much it is on a quiet one is what `python -m tests.bench.fairness`
# measures.
LEAST = 0.5
TRIES = 4

MANY = 1500  # calls

Fault = Callable[[FaultSite], None]


@contextmanager
def flood(url: str, key: str) -> Iterator[None]:
    """Of a client that takes no processor from those beside it."""
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
    """As before."""


# Without a fault, tests/bench/test_bench_fairness.py shows it in `make test`.
FAULTS = (upstream_away, killed, nothing) if LONG else (upstream_away, killed)


@pytest.mark.fault("F49")
def test_a_neighbour_of_a_flood_sends_on_beside_a_fault(trial: Trial, sites: Sites) -> None:
    """The upstream is away; the process is killed and starts again; both are well again."""
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
    """What the senders keep of their rate beside a flood and the fault, in the best of some tries."""
    best = 0.0
    for _ in range(TRIES):
        alone = senders.throughput()
        with flood(site.url, key):
            flooded(site)
            fault(site)
            flooded(site)  # a process that has started takes what it needs for the first calls then
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
