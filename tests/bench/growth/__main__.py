"""`python -m tests.bench.growth` plots throughput, latency and memory while an installation grows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.acceptance.conftest import ROOT
from tests.bench.growth.axes import Axis, axes
from tests.bench.growth.plots import Plot, svg
from tests.bench.server.rounds import Figures, RoundOptions
from tests.bench.server.states import play
from tests.bench.server.table import table, write_json


def plotted(axis: Axis, figures: list[Figures]) -> str:
    """Plot throughput, processor time, latency and memory along one axis, each the median of its rounds."""
    labels = [point.label for point in axis.points]
    lines = {
        "accepted a second": [one.accepted_per_s for one in figures],
        "CPU µs a record": [one.cpu_us for one in figures],
        "p99 ms": [one.latencies_ms.get("p99", 0.0) for one in figures],
        "peak MiB": [one.peak_mib for one in figures],
    }
    return svg(
        axis.words, [Plot(title=title, labels=labels, values=values) for title, values in lines.items()]
    )


def middle(rounds: list[Figures]) -> Figures:
    """
    Return the round with the median processor time per record, which other load on the machine changes least.
    """
    return sorted(rounds, key=lambda one: one.cpu_us)[(len(rounds) - 1) // 2]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[AXIS]...")
@click.option("--seconds", default=4.0, show_default=True, help="How long the load lasts at each point.")
@click.option(
    "--rounds", default=1, show_default=True, help="Rounds of each point; the plots have the medians."
)
@click.option("--full", is_flag=True, help="Go further: 10 million records, 100,000 series and groups.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, resolve_path=True),
    default=ROOT / "build/bench",
    help="Default: build/bench.",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Where the SVG files go; default: in --out.",
)
def growth(
    names: tuple[str, ...], seconds: float, rounds: int, full: bool, out: Path, plots: Path | None
) -> None:
    """Measure along each AXIS (backlog, series, devices, keys, groups, age; default: all) and write the plots."""
    known = axes(full=full)
    if strangers := set(names) - {axis.name for axis in known}:
        raise click.UsageError(f"no such axis: {', '.join(sorted(strangers))}")
    options = RoundOptions(seconds=seconds)
    found: list[Figures] = []
    for folder in (out, plots or out):
        folder.mkdir(parents=True, exist_ok=True)
    for axis in known:
        if names and axis.name not in names:
            continue
        taken: dict[str, list[Figures]] = {}
        for _ in range(rounds):
            for point in axis.points:
                with tempfile.TemporaryDirectory(dir=out) as directory:
                    figures = play(point.scenario, "tollhouse", Path(directory), options, point.prepare)
                taken.setdefault(point.label, []).append(figures)
                found.append(figures)
                click.echo(f"{point.scenario.name}: {figures.accepted_per_s:,.0f}/s", err=True)
        text = plotted(axis, [middle(taken[point.label]) for point in axis.points])
        ((plots or out) / f"growth-{axis.name}.svg").write_text(text)
        write_json(found, out / "growth.json")
    click.echo(table(found))


if __name__ == "__main__":
    growth(prog_name="python -m tests.bench.growth")
