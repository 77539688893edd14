"""`tollhouse query`: asks the files of a lake in SQL."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli import config_option, fail
from gateway.cli.lake.choice import DAY, chosen_lake, date_text, destination_option, opened_store
from gateway.cli.lake.recounts import result_of
from gateway.cli.output import JsonObject, show_json, show_table
from gateway.cli.parameters import Seconds

if TYPE_CHECKING:
    from exporters.lake.query.question import QueryAnswer

MIB = 1 << 20
_LIBRARY = "duckdb"


@dataclass
class _Shown:
    """Names of columns, and rows below them."""

    form: str
    names: Sequence[str] = ()
    rows: list[Sequence[Any]] = field(default_factory=list)

    def add(self, line: Sequence[Any]) -> None:
        if not self.names:
            self.names = line
            self._write_csv(line)
        elif self.form == "csv":
            self._write_csv(line)
        else:
            self.rows.append(line)

    def _write_csv(self, line: Sequence[Any]) -> None:
        from spool.csv_cells import csv_lines

        if self.form == "csv":
            click.echo(csv_lines([line]), nl=False)

    def end(self, answer: QueryAnswer) -> None:
        if self.form == "json":
            show_json({**answer._asdict(), "columns": self.names, "rows": self.rows})
        elif self.form == "table":
            places = [str(place) for place in range(len(self.names))]
            titles = dict(zip(places, self.names, strict=True))
            show_table([_numbered(row) for row in self.rows], places, titles)


def _numbered(row: Sequence[Any]) -> JsonObject:
    return {str(place): value for place, value in enumerate(row)}


@click.command()
@click.argument("text", metavar="SQL")
@config_option
@destination_option
@click.option("--from", "since", type=DAY, metavar="DAY", help="First date of the files that are read (UTC).")
@click.option("--to", "until", type=DAY, metavar="DAY", help="Last date, which is part of it.")
@click.option(
    "--max-rows", type=click.IntRange(1), default=10_000, show_default=True, help="Rows that are shown."
)
@click.option(
    "--max-download",
    type=click.IntRange(1),
    default=4096,
    show_default=True,
    metavar="MIB",
    help="What may be copied from a store, to the directory of TMPDIR.",
)
@click.option(
    "--memory",
    type=click.IntRange(64),
    default=512,
    show_default=True,
    metavar="MIB",
    help="Memory of the process that answers; what does not fit goes to the disk.",
)
@click.option(
    "--max-disk",
    type=click.IntRange(1),
    default=4096,
    show_default=True,
    metavar="MIB",
    help="What may go there.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(),
    default="5m",
    show_default=True,
    help="How long the answer may take, once the files are there.",
)
@click.option("--csv", "form", flag_value="csv", help="Print it as CSV.")
@click.option("--json", "form", flag_value="json", help="Print it as JSON.")
def query(
    text: str,
    config: Path | None,
    name: str | None,
    since: datetime | None,
    until: datetime | None,
    max_rows: int,
    max_download: int,
    memory: int,
    max_disk: int,
    timeout_s: float,
    form: str | None,
) -> None:
    """
    Ask the files of a lake in SQL, as DuckDB has it: one SELECT, or "-" to read it from standard input.

    The views are those of `tollhouse lake sql`: lake, once, spend, calls, daily, by_owner, late and focus; other
    topics are tables of their names, such as usage_events. It runs in a process that can read the files of the
    lake and nothing else, changes nothing and loads nothing from a network. All data is shown: it is for whoever
    may read the store.
    """
    from exporters.lake.query.question import LakeQuestion
    from exporters.lake.verification import Dates

    if find_spec(_LIBRARY) is None:
        fail("a question in SQL needs DuckDB: pip install 'tollhouse[query]'", 2)
    settings = chosen_lake(config, name)
    question = LakeQuestion(
        store=opened_store(settings),
        settings=settings,
        text=sys.stdin.read() if text == "-" else text,
        dates=Dates(date_text(since), date_text(until)),
        most_bytes=max_download * MIB,
        most_rows=max_rows,
        memory_mib=memory,
        scratch_mib=max_disk,
        timeout_s=timeout_s,
    )
    shown = _Shown(form or "table")
    answer = result_of(question.ask(shown.add))
    shown.end(answer)
    if form != "json":
        more = ", and there are more: see --max-rows" if answer.more else ""
        size = f"{answer.files} files of {answer.bytes / MIB:.1f} MiB"
        click.echo(f"{answer.rows} rows of {size}{more}", err=True)
