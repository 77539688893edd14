"""
Durable ingest against a bare handler: the server alone on one core, the load on another, both in the same run.

Three ratios of the design: 100-span requests, single-span requests at 64 clients, and the price of the flush.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.bench.load import LoadFigures, drive

FULL = os.environ.get("TOLLHOUSE_BENCH") == "full"
SECONDS = 8.0 if FULL else 1.0
ROUNDS = 3 if FULL else 1
CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "500ms"
[upstream]
base_url = "{sink}"
[[upstream.keys]]
name = "telemetry"
secret_env = "SINK_KEY"
use_cases = ["Send AI Telemetry"]
"""

UNFLUSHED = (sys.executable, "-m", "tests.bench.unflushed")

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]


def alone(process: subprocess.Popen[str]) -> None:
    """The server on the first core; this process, the load, on the rest."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(process.pid, cores[:1])


@pytest.fixture(autouse=True)
def load_keeps_off_the_first_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, sorted(cores)[1:])
    yield
    os.sched_setaffinity(0, cores)


@contextmanager
def bare(*words: str, pinned: bool = True) -> Iterator[str]:
    """The yardstick or the sink as a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.yardstick", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        preexec_fn=lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1)),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if pinned:
            alone(process)
        yield line.removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def tollhouse(directory: Path, sink: str, *command: str) -> Iterator[tuple[str, str]]:
    tollhouse = Tollhouse(directory, CONFIG.format(sink=sink))
    key = tollhouse.key("load")
    try:
        url = tollhouse.start({"SINK_KEY": "sink"}, command or (str(COMMAND),))
        assert tollhouse.process is not None
        alone(tollhouse.process)
        yield url, key
    finally:
        tollhouse.stop(code=None)


def compare(
    tmp_path: Path, measure: Callable[[str, str, int], LoadFigures]
) -> tuple[list[LoadFigures], list[LoadFigures]]:
    """Tollhouse and the bare handler in turn, several rounds."""
    ours, theirs = [], []
    with bare("sink", pinned=False) as sink:
        for number in range(ROUNDS):
            with tollhouse(tmp_path / str(number), sink) as (url, key):
                ours.append(measure(url, key, number))
            with bare() as url:
                theirs.append(measure(url, "none", number))
    for figures in ours + theirs:
        assert 0 == figures.refused
    return ours, theirs


def test_hundred_span_requests(tmp_path: Path) -> None:
    """Durable acknowledged spans/s at 100 spans a request, as a share of the bare handler's."""

    def measure(url: str, key: str, run: int) -> LoadFigures:
        return asyncio.run(drive(url, key, spans=100, connections=8, seconds=SECONDS, run=run))

    ours, theirs = compare(tmp_path, measure)
    ratio = statistics.median(a.spans_per_s / b.spans_per_s for a, b in zip(ours, theirs, strict=True))
    rate = statistics.median(figures.spans_per_s for figures in ours)
    print(f"\n100 spans a request: {ratio:.1%} of the bare handler ({rate:,.0f} spans/s, target 45 %)")


def test_single_span_requests(tmp_path: Path) -> None:
    """Durable single-span requests/s at 64 clients, as a share of the bare handler's, and the slowest hundredth."""

    def measure(url: str, key: str, run: int) -> LoadFigures:
        return asyncio.run(drive(url, key, spans=1, connections=64, seconds=SECONDS, run=run))

    ours, theirs = compare(tmp_path, measure)
    ratio = statistics.median(a.spans_per_s / b.spans_per_s for a, b in zip(ours, theirs, strict=True))
    p99 = statistics.median(figures.p99_ms for figures in ours)
    print(f"\nsingle spans, 64 clients: {ratio:.1%} of the bare handler (target 40 %), p99 {p99:.1f} ms (target 25)")


def test_the_price_of_the_flush(tmp_path: Path) -> None:
    """synchronous=FULL against OFF at 100 spans a request: what fsync before yes costs."""

    def measure(url: str, key: str, run: int) -> LoadFigures:
        return asyncio.run(drive(url, key, spans=100, connections=8, seconds=SECONDS, run=run))

    full, off = [], []
    with bare("sink", pinned=False) as sink:
        for number in range(ROUNDS):
            with tollhouse(tmp_path / f"full{number}", sink) as (url, key):
                full.append(measure(url, key, number))
            with tollhouse(tmp_path / f"off{number}", sink, *UNFLUSHED) as (url, key):
                off.append(measure(url, key, number))
    cost = 1 - statistics.median(a.spans_per_s / b.spans_per_s for a, b in zip(full, off, strict=True))
    assert 0 == sum(figures.refused for figures in full + off)
    print(f"\nflush before yes costs {cost:.1%} (target at most 25 %)")
