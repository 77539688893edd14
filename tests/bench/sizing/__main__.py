"""
`python -m tests.bench.sizing [server.json] [appends.json]` computes the tables of docs/operations/sizing.md.

The tables come from docs/operations/sizing-figures.json. With the JSON of benchmarks, the command first copies the
constants measured there into that file.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import click

from spool.engines import POSTGRES
from tests.acceptance.conftest import ROOT
from tests.bench.appends.measuring import AppendFigures, medians, of
from tests.bench.sizing.computing import SizingFigures, figures_of, limits, needs
from tests.bench.sizing.shared import SharedFigures, shared_figures_of, shared_limits, shared_needs

FIGURES = ROOT / "docs/operations/sizing-figures.json"
DOCUMENT = ROOT / "docs/operations/sizing.md"
SCENARIOS = {"unfamiliar-100x8": "100", "unfamiliar-10x32": "10", "unfamiliar-1x64": "1"}
TABLES = {"limits": limits, "needs": needs}
SHARED_TABLES = {"shared limits": shared_limits, "shared needs": shared_needs}


def taken_over(document: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """Update the constants from a benchmark of a server on one core."""
    cpu_us = dict(document["cpu_us"])
    for scenario, spans in SCENARIOS.items():
        found = [
            one["cpu_us"]
            for one in measured.get("rounds") or measured["loads"]
            if one["scenario"].partition("-seed")[0] == scenario and one["target"] == "tollhouse"
        ]
        if found:
            cpu_us[spans] = round(statistics.median(found), 1)
    return document | {"cpu_us": cpu_us} | _measured_on(measured["machine"])


def appends_taken_over(document: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """
    Update the constants from a benchmark of the log on PostgreSQL: the costs of one writer, and bytes on disk.
    """
    figures = [AppendFigures(**one) for one in measured["rounds"]]
    by_group = {
        str(group): medians(of(figures, POSTGRES, 1, group))
        for group in dict.fromkeys(one.group for one in figures)
    }
    constants = {
        constant: {group: round(found[column], 2) for group, found in by_group.items()}
        for constant, column in (
            ("append_us", "writer_us"),
            ("primary_us", "primary_us"),
            ("standby_us", "standby_us"),
        )
    }
    follow_us = max(round(found["follow_us"], 2) for found in by_group.values())
    postgres = document["postgres"] | constants | {"follow_us": follow_us} | measured["disk"]
    return document | {"postgres": postgres | _measured_on(measured["machine"])}


def _measured_on(about: dict[str, Any]) -> dict[str, Any]:
    machine = f"{about['cores']} cores ({about['processor']}), Python {about['python']}"
    return {"machine": machine, "time": about["time"][:10], "commit": about["commit"]}


def computed(text: str, figures: SizingFigures, shared: SharedFigures) -> str:
    """Return the document with its tables computed from the constants."""
    tables = {name: table(figures) for name, table in TABLES.items()}
    tables |= {name: table(figures, shared) for name, table in SHARED_TABLES.items()}
    for name, table in tables.items():
        begin, end = f"<!-- computed: {name} -->\n", f"<!-- end: {name} -->"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise click.ClickException(
                f"{DOCUMENT.name} has no place for the table {name!r}: {begin.strip()} ... {end}"
            )
        text = f"{before}{begin}\n{table}\n\n{end}{after}"
    return text


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("measured", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1)
def sizing(measured: tuple[Path, ...]) -> None:
    """
    Compute the tables of docs/operations/sizing.md. MEASURED is the JSON of `python -m tests.bench`,
    `tests.bench.peers` or `tests.bench.appends`.
    """
    document = json.loads(FIGURES.read_text())
    for one in measured:
        found = json.loads(one.read_text())
        document = (appends_taken_over if "disk" in found else taken_over)(document, found)
        FIGURES.write_text(json.dumps(document, indent=1) + "\n")
    DOCUMENT.write_text(computed(DOCUMENT.read_text(), figures_of(document), shared_figures_of(document)))


if __name__ == "__main__":
    sizing()
