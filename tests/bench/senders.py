"""
`python -m tests.bench.senders` measures the cost per span under many keys, and after many new conversations.

The same load runs under one key and under many. Before it, a flood sends either ten conversations, or one new
conversation per span. The ratios compare each case with one key and ten conversations of the same run.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import click

from tests.acceptance.conftest import ROOT
from tests.bench.server import meters, scenarios, targets
from tests.bench.server.rounds import Figures, RoundOptions, measure, sink

# Both floods have the same number of spans: the first in ten conversations, the second with one conversation
# per span. Both warm the server equally and leave the same backlog to count and to forward.
FLOODS = ("100x8", "conversations-100x8")


def costs(
    load: str, keys: int, spans: int, seconds: float, work: Path, *, warm_up_s: float = 1.0
) -> list[Figures]:
    """Measure the load under `keys` keys after each flood of `spans` spans."""
    server_cores, load_cores = meters.cores_for(1)
    options = RoundOptions(seconds=seconds, warm_up=warm_up_s, counts_commits=False)
    scenario = replace(scenarios.of_name(load), keys=keys)
    found = []
    with (
        sink(load_cores) as upstream,
        targets.tollhouse(work / "installation", upstream.url, cores=server_cores, keys=keys) as running,
    ):
        first = 0
        for name in FLOODS:
            sent = 0
            while sent < spans:
                flood = measure(scenarios.of_name(name), "tollhouse", running, upstream, work, options, first)
                sent += flood.records
                first += 1_000_000
            found.append(measure(scenario, "tollhouse", running, upstream, work, options, first))
            first += 1_000_000
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--load", default="real-10x32", show_default=True, help="The load that is measured.")
@click.option("--keys", "counts", multiple=True, type=int, default=(1, 200, 1000), show_default=True)
@click.option("--conversations", default=100_000, show_default=True, help="Spans of each flood.")
@click.option("--seconds", default=6.0, show_default=True, help="How long each load lasts.")
def bench(load: str, counts: tuple[int, ...], conversations: int, seconds: float) -> None:
    """Print the processor time per span under many keys, and after many new conversations."""
    out = ROOT / "build/bench"
    out.mkdir(parents=True, exist_ok=True)
    click.echo(
        "| keys | conversations before | us a span | ratio | p99 ms | ratio |\n|---|---|---|---|---|---|"
    )
    yardstick: Figures | None = None
    for keys in counts:
        with tempfile.TemporaryDirectory(dir=out) as directory:
            pair = costs(load, keys, conversations, seconds, Path(directory))
        for when, figures in zip(("ten", f"{conversations:,}"), pair, strict=True):
            yardstick = yardstick or figures
            p99, usual = figures.latencies_ms["p99"], yardstick.latencies_ms["p99"]
            cells = [str(keys), when, f"{figures.cpu_us:.1f}", f"{figures.cpu_us / yardstick.cpu_us:.2f}"]
            click.echo(f"| {' | '.join(cells)} | {p99:.1f} | {p99 / usual:.1f} |")


if __name__ == "__main__":
    bench(prog_name="python -m tests.bench.senders")
