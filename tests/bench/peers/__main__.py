"""`python -m tests.bench.peers` compares Tollhouse with other servers that receive the same spans."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from tests.acceptance.conftest import ROOT
from tests.bench.peers.available import PEERS
from tests.bench.peers.comparison import Comparison, killed, survivals_table, under_load
from tests.bench.peers.peer import Unavailable
from tests.bench.server import scenarios
from tests.bench.server.rounds import RoundOptions
from tests.bench.server.table import machine, table

MAIN = ("100x8", "10x32", "1x64")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option(
    "--peer", "wanted", multiple=True, type=click.Choice(list(PEERS)), help="Who is compared. Default: all."
)
@click.option("--seconds", default=8.0, show_default=True, help="How long each load lasts.")
@click.option(
    "--rounds", default=1, show_default=True, help="Rounds, the peers in turn; the table has the medians."
)
@click.option("--kill/--no-kill", default=True, help="Also kill each in the middle of a load. Default: yes.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, resolve_path=True),
    default=ROOT / "build/bench",
    help="Default: build/bench.",
)
def peers(
    names: tuple[str, ...], wanted: tuple[str, ...], seconds: float, rounds: int, kill: bool, out: Path
) -> None:
    """
    Compare under each SCENARIO of spans (default: 100x8 10x32 1x64), then under SIGKILL.

    The benchmark builds an OpenTelemetry Collector with Go, and installs Arize Phoenix and MLflow into their
    own environments. If a peer is unavailable, the report names it and compares the rest.
    """
    options = RoundOptions(seconds=seconds)
    comparison = Comparison()
    out.mkdir(parents=True, exist_ok=True)

    def attempt(name: str, what: str) -> None:
        if name in comparison.absent:
            return
        with tempfile.TemporaryDirectory(dir=out) as directory:
            work = Path(directory)
            try:
                if what == "kill":
                    comparison.survivals.append(killed(name, PEERS[name], work, options))
                else:
                    load = scenarios.of_name(what)
                    comparison.loads.append(under_load(name, PEERS[name], load, work, options))
            except Unavailable as error:
                comparison.absent[name] = str(error)
        click.echo(f"{name}: {what}", err=True)
        (out / "peers.json").write_text(
            json.dumps(comparison.to_json() | {"machine": machine()}, indent=1) + "\n"
        )

    for _ in range(rounds):
        for scenario in names or MAIN:
            for name in wanted or PEERS:
                attempt(name, scenario)
        for name in (wanted or PEERS) if kill else ():
            attempt(name, "kill")
    if comparison.loads:
        click.echo(table(comparison.loads) + "\n")
    if comparison.survivals:
        click.echo(survivals_table(comparison.survivals))
    for name, reason in comparison.absent.items():
        click.echo(f"{name}: not compared, {reason}")


if __name__ == "__main__":
    peers(prog_name="python -m tests.bench.peers")
