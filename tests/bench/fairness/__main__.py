"""
`python -m tests.bench.fairness` measures which share of its rate a key retains while an abuser floods the server.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click

from tests.acceptance.conftest import ROOT
from tests.bench.fairness.abusers import ABUSERS, BY_NAME, MAIN
from tests.bench.fairness.rounds import Share, measure, postgres, stand
from tests.bench.server.table import machine

LEAST_RATE, MOST_P99 = 0.9, 2.0


def table(found: Sequence[Share]) -> str:
    """Format the medians per abuser as a Markdown table."""
    lines = [
        "| abuser | rate ratio | p99 ratio | of slices | requests | p50 alone ms | p50 beside ms | p99 alone ms "
        "| p99 beside ms | abuser/s |",
        "|---" * 10 + "|",
    ]
    for name in dict.fromkeys(one.abuser for one in found):
        own = [one for one in found if one.abuser == name]
        rate, p99 = median(one.rate for one in own), median(one.p99 for one in own)
        short = " **short**" if rate < LEAST_RATE or p99 > MOST_P99 else ""
        times = [
            median(getattr(one, side).latencies_ms.get(quantile, float("inf")) for one in own)
            for quantile in ("p50", "p99")
            for side in ("alone", "beside")
        ]
        spreads = [one.spread() for one in own]
        lowest, highest = min(low for low, _ in spreads), max(high for _, high in spreads)
        requests = sum(one.beside.accepted for one in own)
        cells = [f"{rate:.2f}", f"{p99:.1f}{short}", f"{lowest:.1f} to {highest:.1f}", str(requests)]
        cells += [f"{each:.1f}" for each in times]
        cells.append(f"{median(one.load.accepted / max(one.load.seconds, 1e-9) for one in own):,.1f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only", multiple=True, help="An abuser, 'main' or a beginning such as 'json-'; several times."
)
@click.option("--list", "show", is_flag=True, help="List the abusers, and measure nothing.")
@click.option(
    "--seconds", default=15.0, show_default=True, help="How long the victim sends, alone and beside."
)
@click.option(
    "--slices", default=3, show_default=True, help="Turns of alone and beside into which these are cut."
)
@click.option(
    "--rounds", default=1, show_default=True, help="Rounds of every abuser; the table has the medians."
)
@click.option("--engine", default="sqlite", show_default=True, type=click.Choice(["sqlite", "postgres"]))
@click.option("--out", type=click.Path(path_type=Path, resolve_path=True), default=ROOT / "build/bench")
def bench(
    only: tuple[str, ...], show: bool, seconds: float, slices: int, rounds: int, engine: str, out: Path
) -> None:
    """
    Measure which share of its rate one key retains, and how its p99 latency grows, while another key floods.

    The victim sends one span, waits 20 ms after the response, and sends the next, in turns without and with
    the abuser. A p99 covers all requests with, or all requests without, the abuser. 'of slices' lists the
    ratio of each slice with the abuser to all slices without.
    """
    if show:
        click.echo("\n".join(each.name for each in ABUSERS))
        return
    wanted = MAIN if only == ("main",) else only
    chosen = [each for each in ABUSERS if not wanted or any(_is_meant(each.name, word) for word in wanted)]
    if not chosen:
        raise click.UsageError(f"there is no such abuser; there are {', '.join(BY_NAME)}")
    out.mkdir(parents=True, exist_ok=True)
    found: list[Share] = []
    with postgres(engine) as database, tempfile.TemporaryDirectory(dir=out) as directory:
        for number in range(rounds):
            work = Path(directory) / str(number)
            with stand(work, database=database, schema=f"bench_{number}") as running:
                for abuser in chosen:
                    found.append(one := measure(running, abuser, seconds=seconds, slices=slices))
                    said = {**one.load.refused, **({"broken": one.load.broken} if one.load.broken else {})}
                    click.echo(
                        f"{one.abuser}: rate {one.rate:.2f}, p99 {one.p99:.1f}, abuser {said or 'taken'}",
                        err=True,
                    )
    written = {"machine": machine(), "engine": engine, "rounds": [asdict(one) for one in found]}
    (out / "fairness.json").write_text(json.dumps(written, indent=1))
    click.echo(" ".join(f"{key} {value}," for key, value in machine().items()).rstrip(","))
    click.echo(table(found))


def _is_meant(name: str, word: str) -> bool:
    return name == word or (word.endswith("-") and name.startswith(word))


if __name__ == "__main__":
    bench(prog_name="python -m tests.bench.fairness")
