"""
`python -m tests.bench.gateways` compares one, two and three gateways on one PostgreSQL with one gateway on files.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click

from tests.acceptance.conftest import ROOT
from tests.bench.gateways.shared import SharedFigures, gateways, join_s, measure
from tests.bench.server import scenarios
from tests.bench.server.rounds import sink
from tests.bench.server.table import machine
from tests.spool.postgres_cluster import Pair, folder

COLUMNS = (
    "accepted_per_s",
    "gateway_us",
    "primary_us",
    "standby_us",
    "p50_ms",
    "p99_ms",
    "commit_p50_ms",
    "commit_p99_ms",
)


def table(found: Sequence[SharedFigures]) -> str:
    """Format the medians per number of gateways as a Markdown table."""
    lines = ["| engine | gateways | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for name, count in dict.fromkeys((one.name, one.gateways) for one in found):
        group = [asdict(one) for one in found if (one.name, one.gateways) == (name, count)]
        cells = [
            f"{median(one[column] for one in group):,.1f}" if group[0][column] is not None else ""
            for column in COLUMNS
        ]
        lines.append(f"| {name} | {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", default="100x8", metavar="[SCENARIO]")
@click.option(
    "--gateways",
    "counts",
    multiple=True,
    type=int,
    default=(1, 2, 3),
    show_default=True,
    help="Several times.",
)
@click.option("--seconds", default=6.0, show_default=True, help="How long each load lasts.")
@click.option(
    "--rounds", default=1, show_default=True, help="Rounds, the numbers in turns; the table has the medians."
)
@click.option(
    "--ids", default=10_000_000, show_default=True, help="Known ids of the gateway that joins; 0: none joins."
)
@click.option("--out", type=click.Path(path_type=Path, resolve_path=True), default=ROOT / "build/bench")
def bench(name: str, counts: tuple[int, ...], seconds: float, rounds: int, ids: int, out: Path) -> None:
    """
    Load gateways on a PostgreSQL that waits for its standby. Each gateway gets the whole load of the
    SCENARIO of spans.

    All processes share the cores, so accepted/s depends on the rest of the machine. Processor time per record
    is more reliable.
    """
    (scenario,) = scenarios.chosen([name])
    out.mkdir(parents=True, exist_ok=True)
    found: list[SharedFigures] = []
    with folder() as place, tempfile.TemporaryDirectory() as work, sink(os.sched_getaffinity(0)) as upstream:
        pair = Pair(place)
        pair.start()
        try:
            for number in range(rounds):
                # a count of 0 means one gateway that stores in files instead of PostgreSQL
                for count in (0, *counts):
                    own = Path(work) / f"{number}-{count}"
                    own.mkdir()
                    on = pair if count else None
                    schema = f"bench_{number}_{count}"
                    with gateways(own, upstream.url, count=count or 1, pair=on, schema=schema) as running:
                        found.append(measure(scenario, running, upstream, own, on, seconds))
                    click.echo(f"round {number + 1}: {found[-1]}", err=True)
            joined = join_s(Path(work), upstream.url, pair, ids) if ids else None
        finally:
            pair.stop()
    (out / "gateways.json").write_text(
        json.dumps({"machine": machine(), "rounds": [asdict(one) for one in found]}, indent=1)
    )
    click.echo(" ".join(f"{key} {value}," for key, value in machine().items()).rstrip(","))
    click.echo(table(found))
    if joined:
        click.echo(
            f"a gateway joins with {ids:,} known ids: ready after {joined[0]:.1f} s, {joined[1]:.0f} MiB"
        )


if __name__ == "__main__":
    bench(prog_name="python -m tests.bench.gateways")
