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
LOADS = ("unfamiliar", "familiar", "captured")
# by the number of calls in a request: the scenario of each load
SHAPES: Mapping[str, Mapping[str, str]] = {
    "100": {"unfamiliar": "unfamiliar-100x8", "familiar": "real-100x8"},
    "10": {"unfamiliar": "unfamiliar-10x32", "familiar": "real-10x32"},
    "1": {"unfamiliar": "unfamiliar-1x64", "familiar": "real-1x64"},
    "24": {"captured": "mixed-24x8"},
}
SCENARIOS = {
    shapes[load]: f"{load}, {calls}" for load in LOADS for calls, shapes in SHAPES.items() if load in shapes
}
TOLLHOUSE, MODULE, COLLECTOR = "tollhouse", "tollhouse, module", "collector, fsync"
COMPARED = {
    TOLLHOUSE: "Tollhouse",
    MODULE: "Tollhouse with the compiled module",
    COLLECTOR: "OpenTelemetry Collector with fsync",
}
ROUNDS, EARLIER = 3, 5
BUSY_CORES = 0.1
WORSE = 1.1
HEAD = """# Benchmarks

This page compares Tollhouse with an OpenTelemetry Collector under three loads. It is for engineers who size
installations or change the code. Machines differ, so do not compare the figures of two runs. Compare the ratios.

- **Unfamiliar:** each span has its own set of attributes, drawn by the seed of the run, and up to 8 names that never
  recur. One in ten spans has a conversation.
- **Familiar:** 20 models in turn, 200 services, 12 teams, 5,000 users and a new conversation for each request.
- **Captured:** requests of real clients. Each counts as 24 calls.

`python -m tests.bench.page` makes this page. One core is for the server. Figures are medians of three rounds in turns,
and processor time is per call until it is delivered. A busy machine is refused. A run fails if a ratio is 10 % worse
than the median of the five runs before.

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
        for scenario in SCENARIOS:
            for peer in COMPARED:
                with tempfile.TemporaryDirectory() as place:
                    load = scenarios.of_name(scenario)
                    one = under_load(peer, PEERS[peer], load, Path(place), RoundOptions(seconds=8.0))
                found.setdefault((scenario, peer), []).append(one)
    about = machine()
    return {
        "time": str(about["time"])[:10],
        "commit": about["commit"],
        "machine": f"{about['cores']} cores ({about['processor']}), Python {about['python']}",
        "other_cores": round(quiet, 2),
        "seed": scenarios.SEED,
        "figures": {each: {peer: medians(found[each, peer]) for peer in COMPARED} for each in SCENARIOS},
    }


def medians(rounds: Sequence[Figures]) -> Mapping[str, float]:
    return {
        "accepted_per_s": round(statistics.median(one.accepted_per_s for one in rounds)),
        "cpu_us": round(statistics.median(one.cpu_us for one in rounds), 1),
        "p99_ms": round(statistics.median(one.latencies_ms["p99"] for one in rounds)),
    }


def ratio(line: Mapping[str, Any], scenario: str, peer: str) -> float | None:
    """Return the processor time as a multiple of the collector's, or None if the run did not have the scenario."""
    figures = line["figures"].get(scenario)
    return figures and float(figures[peer]["cpu_us"] / figures[COLLECTOR]["cpu_us"])


def ratios(lines: Sequence[Mapping[str, Any]], scenario: str, peer: str) -> Sequence[float]:
    return [found for line in lines if (found := ratio(line, scenario, peer)) is not None]


def worse(lines: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """Return the loads whose last ratio is 10 % above the median of the five runs before."""
    *earlier, last = lines
    return [
        f"{title} calls a request, {peer}: {now:.2f} times the collector's processor time, before {median:.2f}"
        for scenario, title in SCENARIOS.items()
        for peer in (TOLLHOUSE, MODULE)
        if (now := ratio(last, scenario, peer)) is not None
        and (before := ratios(earlier, scenario, peer)[-EARLIER:])
        and now > WORSE * (median := statistics.median(before))
    ]


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    last = lines[-1]
    seed = "" if last["seed"] is None else f", seed {last['seed']}"
    text = (
        HEAD + f"\n## The last run\n\n{last['time']}, commit `{last['commit']}`, {last['machine']}{seed}.\n\n"
    )
    text += "Processor time of a call, calls a second, and the longest answer but for 1 %:\n\n"
    text += f"| calls a request | | {' | '.join(LOADS)} |\n|---|---|{'---|' * len(LOADS)}\n"
    for calls, shapes in SHAPES.items():
        for peer, title in COMPARED.items():
            cells = [cell(last["figures"].get(shapes.get(load)), peer) for load in LOADS]
            text += f"| {calls} | {title} | {' | '.join(cells)} |\n"
    text += "\n## All runs\n\nProcessor time as a multiple of the collector's, without / with the compiled module:\n\n"
    text += f"![Ratios of processor time without the module](../images/{PLOT.name})\n\n"
    heads = ("date", "commit", "machine", "other processes, cores", "seed", *SCENARIOS.values())
    text += f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|\n"
    for line in lines:
        others = "not recorded" if line["other_cores"] is None else line["other_cores"]
        about = [line["time"], f"`{line['commit']}`", line["machine"], others, line["seed"] or "–"]
        found = [[ratio(line, scenario, peer) for peer in (TOLLHOUSE, MODULE)] for scenario in SCENARIOS]
        cells = ["–" if one is None or other is None else f"{one:.2f} / {other:.2f}" for one, other in found]
        text += f"| {' | '.join(map(str, about + cells))} |\n"
    return text


def cell(peers: Mapping[str, Any] | None, peer: str) -> str:
    if peers is None:
        return "–"
    one = peers[peer]
    return f"{one['cpu_us']} µs, {one['accepted_per_s']:,}/s, {one['p99_ms']} ms"


def plot(lines: Sequence[Mapping[str, Any]]) -> str:
    plots = []
    for scenario, title in SCENARIOS.items():
        shown = [line for line in lines if scenario in line["figures"]]
        labels, values = [line["time"][5:] for line in shown], ratios(shown, scenario, TOLLHOUSE)
        if values:
            plots.append(Plot(title=f"{title} a request", labels=labels, values=values))
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
