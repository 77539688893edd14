"""`python -m tests.bench` measures the whole server under load."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.acceptance.conftest import ROOT
from tests.bench.server import scenarios
from tests.bench.server.rounds import Figures, RoundOptions
from tests.bench.server.states import play
from tests.bench.server.table import machine, table, write_json

TARGETS = ("tollhouse", "yardstick", "unflushed")


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Main scenarios: {', '.join(scenarios.MAIN)}.",
)
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option("--list", "show", is_flag=True, help="List the scenarios, and measure nothing.")
@click.option("--seconds", default=8.0, show_default=True, help="How long each load lasts.")
@click.option(
    "--rounds", default=1, show_default=True, help="Rounds of every scenario; the table has the medians."
)
@click.option(
    "--target",
    "wanted",
    multiple=True,
    type=click.Choice(TARGETS),
    help="Who is measured; several times. Default: tollhouse and, for spans, the yardstick.",
)
@click.option(
    "--server-cores", default=1, show_default=True, help="Cores for the server; the load gets the others."
)
@click.option(
    "--profile", is_flag=True, help="Write a flame graph of each round beside the JSON (slows it a little)."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, resolve_path=True),
    default=ROOT / "build/bench",
    help="Default: build/bench.",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Where the installations are made; default: in --out.",
)
def bench(
    names: tuple[str, ...],
    show: bool,
    seconds: float,
    rounds: int,
    wanted: tuple[str, ...],
    server_cores: int,
    profile: bool,
    out: Path,
    work: Path | None,
) -> None:
    """
    Measure a whole server. The server, the load and the upstream are separate processes on separate cores.

    A SCENARIO is a name ([KIND-]ITEMSxCLIENTS[-json|-grpc][-gzip|-zstd][@RECORDS a second][+BACKLOG],
    drain-BACKLOG, start-BACKLOG or idle), a pattern such as '100x*', or the word main or matrix. KIND is
    litellm, events, heartbeats or counters. Without a KIND, the load sends spans.
    """
    if show:
        click.echo("\n".join(scenarios.listed()))
        return
    try:
        chosen = scenarios.chosen(list(names))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    options = RoundOptions(seconds=seconds, server_cores=server_cores, profile=out if profile else None)
    found: list[Figures] = []
    out.mkdir(parents=True, exist_ok=True)
    for number in range(rounds):
        for scenario in chosen:
            for target in wanted or ("tollhouse", *(["yardstick"] if scenario.has_yardstick else [])):
                if target == "yardstick" and not scenario.has_yardstick:
                    continue
                with tempfile.TemporaryDirectory(dir=work or out) as directory:
                    figures = play(scenario, target, Path(directory), options)
                click.echo(
                    f"round {number + 1}, {scenario.name}, {target}: {figures.accepted_per_s:,.0f}/s, "
                    f"{figures.cpu_us:.1f} us a record",
                    err=True,
                )
                found.append(figures)
                write_json(found, out / "server.json")
    click.echo(" ".join(f"{name} {value}," for name, value in machine().items()).rstrip(","))
    click.echo(table(found))


if __name__ == "__main__":
    bench(prog_name="python -m tests.bench")
