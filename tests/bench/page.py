"""
`python -m tests.bench.page` measures Tollhouse beside an OpenTelemetry Collector, and writes the page of benchmarks.

A run appends one line to docs/develop/benchmarks.ndjson, and makes docs/develop/benchmarks.md and its plot again.
Runs of different machines are compared only by the ratio of processor times within a run.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.growth.plots import Plot, svg
from tests.bench.peers.available import PEERS
from tests.bench.peers.comparison import under_load
from tests.bench.server import scenarios
from tests.bench.server.meters import busy_seconds
from tests.bench.server.rounds import Figures, RoundOptions
from tests.bench.server.table import machine
from tests.processes.copied import ROOT

LINES, PAGE = ROOT / "docs/develop/benchmarks.ndjson", ROOT / "docs/develop/benchmarks.md"
PLOT = ROOT / "docs/images/benchmarks.svg"
# the load shape by the number of calls in a request
SHAPES = {"100": "real-100x8", "10": "real-10x32", "1": "real-1x64"}
TOLLHOUSE, COLLECTOR = "tollhouse", "collector, fsync"
COMPARED = {
    TOLLHOUSE: "Tollhouse",
    "tollhouse, module": "Tollhouse with the compiled module",
    COLLECTOR: "OpenTelemetry Collector with fsync",
}
ROUNDS, EARLIER = 3, 5
BUSY_CORES = 0.1
WORSE = 1.1
HEAD = """# Benchmarks

This page compares Tollhouse with an OpenTelemetry Collector under the load of an organization. It is for engineers who
size installations or change the code. Machines differ, so do not compare the figures of two runs. Compare the ratios.

`python -m tests.bench.page` makes this page. It sends requests with 20 models in turn, 200 services, 12 teams, 5,000
users and a new conversation each. One core is for the server. Figures are medians of three rounds in turns, and
processor time is per call until it is delivered. A busy machine is refused. A run fails if a ratio is 10 % worse than
the median of the five runs before.

The collector stores and forwards. It does not normalise, price, count or detect repeats.
"""


class Busy(Exception):
    """Raised if other processes use the machine during a measurement."""


def check_quiet(seconds: float = 3.0) -> float:
    """Return the cores that other processes use. Raises Busy if they are more than a tenth of one."""
    before, began = busy_seconds(), time.monotonic()
    time.sleep(seconds)
    cores = (busy_seconds() - before) / (time.monotonic() - began)
    if cores > BUSY_CORES:
        raise Busy(f"other processes use {cores:.2f} cores; measure on a machine with nothing else to do")
    return cores


def measure() -> Mapping[str, Any]:
    found: dict[tuple[str, str], list[Figures]] = {}
    quiet = check_quiet()
    for _ in range(ROUNDS):
        for shape, scenario in SHAPES.items():
            for peer in COMPARED:
                with tempfile.TemporaryDirectory() as place:
                    load = scenarios.of_name(scenario)
                    one = under_load(peer, PEERS[peer], load, Path(place), RoundOptions(seconds=8.0))
                found.setdefault((shape, peer), []).append(one)
    figures = {shape: {peer: medians(found[shape, peer]) for peer in COMPARED} for shape in SHAPES}
    about = machine()
    return {
        "time": str(about["time"])[:10],
        "commit": about["commit"],
        "machine": f"{about['cores']} cores ({about['processor']}), Python {about['python']}",
        "other_cores": round(quiet, 2),
        "figures": figures,
    }


def medians(rounds: Sequence[Figures]) -> Mapping[str, float]:
    return {
        "accepted_per_s": round(statistics.median(one.accepted_per_s for one in rounds)),
        "cpu_us": round(statistics.median(one.cpu_us for one in rounds), 1),
        "p99_ms": round(statistics.median(one.latencies_ms["p99"] for one in rounds)),
    }


def ratio(line: Mapping[str, Any], shape: str) -> float:
    """Return the processor time of Tollhouse as a multiple of the collector's."""
    figures = line["figures"][shape]
    return float(figures[TOLLHOUSE]["cpu_us"] / figures[COLLECTOR]["cpu_us"])


def worse(lines: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """Return the shapes whose last ratio is 10 % above the median of the five runs before."""
    *earlier, last = lines
    before = earlier[-EARLIER:]
    return [
        f"{shape} calls a request: {ratio(last, shape):.2f} times the collector's processor time, before {median:.2f}"
        for shape in SHAPES
        if before
        and ratio(last, shape) > WORSE * (median := statistics.median(ratio(line, shape) for line in before))
    ]


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    last = lines[-1]
    text = HEAD + f"\n## The last run\n\n{last['time']}, commit `{last['commit']}`, {last['machine']}.\n\n"
    text += "| calls a request | | calls a second | µs a call | p99, ms |\n|---|---|---|---|---|\n"
    for shape, peers in last["figures"].items():
        for peer, title in COMPARED.items():
            one = peers[peer]
            text += f"| {shape} | {title} | {one['accepted_per_s']:,} | {one['cpu_us']} | {one['p99_ms']} |\n"
    text += "\n## All runs\n\nProcessor time of Tollhouse as a multiple of the collector's:\n\n"
    text += f"![Ratios of processor time, by calls a request](../images/{PLOT.name})\n\n"
    text += (
        "| date | commit | machine | other processes, cores | 100 | 10 | 1 |\n|---|---|---|---|---|---|---|\n"
    )
    for line in lines:
        ratios = " | ".join(f"{ratio(line, shape):.2f}" for shape in SHAPES)
        others = "not recorded" if line["other_cores"] is None else line["other_cores"]
        text += f"| {line['time']} | `{line['commit']}` | {line['machine']} | {others} | {ratios} |\n"
    return text


def plot(lines: Sequence[Mapping[str, Any]]) -> str:
    labels = [line["time"][5:] for line in lines]
    plots = [
        Plot(title=f"{shape} a request", labels=labels, values=[ratio(line, shape) for line in lines])
        for shape in SHAPES
    ]
    return svg("Processor time of Tollhouse as a multiple of the collector's", plots)


def read() -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in LINES.read_text().splitlines()]


def main() -> None:
    try:
        line = measure()
    except Busy as busy:
        sys.exit(str(busy))
    with LINES.open("a") as file:
        file.write(json.dumps(line) + "\n")
    lines = read()
    PAGE.write_text(page(lines))
    PLOT.write_text(plot(lines))
    if found := worse(lines):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
