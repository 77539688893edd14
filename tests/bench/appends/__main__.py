"""
`python -m tests.bench.appends` compares the cost of an append on PostgreSQL with one on files, and
with its targets.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from tests.acceptance.conftest import ROOT
from tests.bench.appends.measuring import (
    ALONE,
    LARGE,
    SMALL,
    AppendFigures,
    against,
    bytes_on_disk,
    medians,
    of,
    rounds,
    writers,
)
from tests.bench.server.table import machine
from tests.spool.postgres_cluster import Pair, folder

COLUMNS = ("records_per_s", "writer_us", "primary_us", "standby_us", "follow_us", "p50_ms", "p99_ms")
# Targets by records per append. RATIOS has the minimum rate of one PostgreSQL writer, relative to SQLite.
# TOGETHER has the minimum rate of three writers, relative to one writer. PRIMARY_US has the maximum processor
# time of the primary per record.
RATIOS = {LARGE: 0.7, SMALL: 0.5}
TOGETHER = {LARGE: 0.9, SMALL: 1.2}
PRIMARY_US = {LARGE: 1.0, SMALL: 6.0}
FOLLOW_US = 1.2
RECORD_B, ID_B = 140, 9


def table(figures: Sequence[AppendFigures]) -> str:
    """Format the medians as a Markdown table."""
    lines = ["| engine | writers | group | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 3) + "|"]
    for name, count, group in dict.fromkeys((one.name, one.writers, one.group) for one in figures):
        found = medians(of(figures, name, count, group))
        cells = [f"{found[column]:,.2f}" if found[column] else "" for column in COLUMNS]
        lines.append(f"| {name} | {count} | {group} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def targets(figures: Sequence[AppendFigures], record_b: float, id_b: float) -> Iterator[tuple[str, str, str]]:
    """Yield each target as its description, its required value and its measured value."""
    for group in dict.fromkeys(one.group for one in figures):
        files, alone, shared = (
            of(figures, *which, group) for which in (("files", 1), ("postgres", 1), ("postgres", 3))
        )
        yield (
            f"append at {group} a group, against SQLite's",
            f">= {RATIOS[group]}",
            f"{against(alone, files):.2f}",
        )
        yield f"3 writers against 1, at {group}", f">= {TOGETHER[group]}", f"{against(shared, alone):.2f}"
        us = medians(alone)
        yield f"primary at {group}, us a record", f"<= {PRIMARY_US[group]:g}", f"{us['primary_us']:.2f}"
        yield f"following a foreign record at {group}, us", f"<= {FOLLOW_US}", f"{us['follow_us']:.2f}"
    yield "disk, bytes a record", f"<= {RECORD_B}", f"{record_b:.0f}"
    yield "disk, bytes an id", f"<= {ID_B}", f"{id_b:.1f}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rounds", "count", default=5, show_default=True, help="Rounds, everything in turns; medians count."
)
@click.option("--seconds", default=3.0, show_default=True, help="How long each turn lasts.")
@click.option("--out", type=click.Path(path_type=Path, resolve_path=True), default=ROOT / "build/bench")
def bench(count: int, seconds: float, out: Path) -> None:
    """
    Append groups of records to a PostgreSQL log that waits for its standby, and to a SQLite log.

    All processes share the cores.
    """
    out.mkdir(parents=True, exist_ok=True)
    with folder() as place, tempfile.TemporaryDirectory() as work:
        pair = Pair(place)
        pair.start()
        try:
            with writers(Path(work), pair) as found:
                servers = pair.primary, pair.standby
                figures = rounds(found, servers, count=count, seconds=seconds, groups=(SMALL, LARGE))
                record_b, id_b = bytes_on_disk(found, pair.primary, ALONE)
        finally:
            pair.stop()
    (out / "appends.json").write_text(
        json.dumps(
            {
                "machine": machine(),
                "disk": {"record_bytes": round(record_b), "id_bytes": round(id_b, 1)},
                "rounds": [asdict(one) for one in figures],
            },
            indent=1,
        )
    )
    click.echo(" ".join(f"{key} {value}," for key, value in machine().items()).rstrip(","))
    click.echo(table(figures) + "\n")
    click.echo("| figure | target | seen |\n|---|---|---|")
    for row in targets(figures, record_b, id_b):
        click.echo(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    bench(prog_name="python -m tests.bench.appends")
