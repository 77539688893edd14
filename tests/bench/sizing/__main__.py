"""
`python -m tests.bench.sizing [server.json]`: compute the tables of docs/sizing.md from docs/sizing-figures.json.

With the JSON of a benchmark the constants that it measured are taken over first.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import click

from tests.acceptance.conftest import ROOT
from tests.bench.sizing.computing import SizingFigures, carried, figures_of, limits, needs
from tests.bench.sizing.shared import SharedFigures, shared_figures_of, shared_limits, shared_needs

FIGURES = ROOT / "docs/sizing-figures.json"
DOCUMENT = ROOT / "docs/sizing.md"
SCENARIOS = {"100x8": "100", "10x32": "10", "1x64": "1"}
TABLES = {"limits": limits, "carried": carried, "needs": needs}
SHARED_TABLES = {"shared limits": shared_limits, "shared needs": shared_needs}


def taken_over(document: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The constants with what a benchmark says of a server on one core."""
    cpu_us = dict(document["cpu_us"])
    for scenario, spans in SCENARIOS.items():
        found = [
            one["cpu_us"] for one in measured["rounds"] if one["scenario"] == scenario and one["target"] == "tollhouse"
        ]
        if found:
            cpu_us[spans] = round(statistics.median(found), 1)
    about = measured["machine"]
    machine = f"{about['cores']} cores ({about['processor']}), Python {about['python']}"
    return document | {
        "cpu_us": cpu_us, "machine": machine, "time": about["time"][:10], "commit": about["commit"]
    }  # fmt: skip


def computed(text: str, figures: SizingFigures, shared: SharedFigures) -> str:
    """The document with its tables as the constants say."""
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
@click.argument("measured", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
def sizing(measured: Path | None) -> None:
    """Compute the tables of docs/sizing.md; MEASURED is the JSON of `python -m tests.bench`."""
    document = json.loads(FIGURES.read_text())
    if measured is not None:
        document = taken_over(document, json.loads(measured.read_text()))
        FIGURES.write_text(json.dumps(document, indent=1) + "\n")
    DOCUMENT.write_text(computed(DOCUMENT.read_text(), figures_of(document), shared_figures_of(document)))


if __name__ == "__main__":
    sizing()
