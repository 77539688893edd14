"""`python -m tests.bench.peers` compares Tollhouse with other servers that receive the same spans."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from tests.acceptance.conftest import ROOT
from tests.bench.peers.available import PEERS, other_checkout
from tests.bench.peers.comparison import Comparison, killed, survivals_table, under_load
from tests.bench.peers.peer import Unavailable
from tests.bench.server import scenarios
from tests.bench.server.rounds import RoundOptions
from tests.bench.server.table import machine, table

MAIN = ("real-100x8", "real-10x32", "real-1x64")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option(
    "--peer", "wanted", multiple=True, type=click.Choice(list(PEERS)), help="Who is compared. Default: all."
)
@click.option(
    "--checkout",
    "checkouts",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path, resolve_path=True),
    help="Another checkout of Tollhouse with its environment in .venv, compared as well.",
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
    names: tuple[str, ...],
    wanted: tuple[str, ...],
    checkouts: tuple[Path, ...],
    seconds: float,
    rounds: int,
    kill: bool,
    out: Path,
) -> None:
    """
    Compare under each SCENARIO of spans (default: real-100x8 real-10x32 real-1x64), then under SIGKILL.

    The benchmark builds an OpenTelemetry Collector with Go, and installs Arize Phoenix and MLflow into their
    own environments. If a peer is unavailable, the report names it and compares the rest.
    """
    options = RoundOptions(seconds=seconds)
    others = {path.name: other_checkout(path) for path in checkouts}
    compared = {name: make for name, make in PEERS.items() if name in (wanted or PEERS)} | others
    comparison = Comparison()
    out.mkdir(parents=True, exist_ok=True)

    def attempt(name: str, what: str) -> None:
        if name in comparison.absent:
            return
        with tempfile.TemporaryDirectory(dir=out) as directory:
            work = Path(directory)
            try:
                if what == "kill":
                    comparison.survivals.append(killed(name, compared[name], work, options))
                else:
                    load = scenarios.of_name(what)
                    comparison.loads.append(under_load(name, compared[name], load, work, options))
            except Unavailable as error:
                comparison.absent[name] = str(error)
        click.echo(f"{name}: {what}", err=True)
        (out / "peers.json").write_text(
            json.dumps(comparison.to_json() | {"machine": machine()}, indent=1) + "\n"
        )

    for _ in range(rounds):
        for scenario in names or MAIN:
            for name in compared:
                attempt(name, scenario)
        for name in compared if kill else ():
            attempt(name, "kill")
    if comparison.loads:
        click.echo(table(comparison.loads) + "\n")
    if comparison.survivals:
        click.echo(survivals_table(comparison.survivals))
    for name, reason in comparison.absent.items():
        click.echo(f"{name}: not compared, {reason}")


if __name__ == "__main__":
    peers(prog_name="python -m tests.bench.peers")
