"""`tollhouse export`: totals in formats that other tools read."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO

import click
import orjson

from exporters.focus.charges import ACCOUNT, VERSION, VERSIONS
from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.files import (
    NOT_VALID,
    expected_secret_files,
    problems_on_empty_installation,
    write_settings_files,
)
from gateway.cli.operator.money.report import warn_about_incomplete_totals
from gateway.core.paths import WARNINGS, WHOLE_SINCE
from spool.money import unconverted_amounts_sentence
from spool.printable import replace_unprintable
from spool.record import CURRENCY


@click.group()
def export() -> None:
    """Export cost and usage in formats that other tools read, and settings as files."""


@export.command("config")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@with_client
def export_settings(client: OperatorClient, directory: Path) -> None:
    """
    Export all settings as files that `tollhouse apply` reads.

    Secrets are not exported. DIR must be empty, or have only the files of an earlier export.

    At the end, the written files are compared with an installation that has no objects. Exits with 2 if such an
    installation would refuse them, and prints each object with the reason. The files stay.
    """
    with client.client_for_many_requests() as opened:
        answer = opened.request("GET", "/files")
        files = answer["files"]
        write_settings_files(directory, files)
        problems = problems_on_empty_installation(opened, directory)
    for note in answer["notes"]:
        click.echo(note, err=True)
    if paths := expected_secret_files(files):
        click.echo(
            f"secrets are not exported; an apply to another installation needs these files below {directory}, or below "
            f"--secrets DIR: {', '.join(paths)}",
            err=True,
        )
    if problems:
        exit_with_message(
            "\n".join([f"another installation would refuse {directory}:", *problems]), NOT_VALID
        )


@export.command("focus")
@click.option("--from", "since", required=True, metavar="DAY", help="First day to export (UTC).")
@click.option("--to", "until", required=True, metavar="DAY", help="Last day to export (UTC, inclusive).")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; default: standard output.",
)
@click.option(
    "--account", default=ACCOUNT, show_default=True, help="Value of the column BillingAccountId in every row."
)
@click.option(
    "--focus-version",
    "version",
    type=click.Choice(tuple(VERSIONS)),
    default=VERSION,
    show_default=True,
    help="FOCUS version that defines the columns. 1.5 is a draft with the columns of 1.4.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="DIMENSION",
    help=(
        "Additional dimension to write into each row's tags, such as tag:service or User:Defined:Team. "
        "May repeat."
    ),
)
@click.option(
    "--plans",
    is_flag=True,
    help=(
        "Also export plan seats and contracts as purchases, and covered calls with a billed cost of 0. Needs whole "
        "months."
    ),
)
@click.option(
    "--lines",
    type=click.Choice(("meters",)),
    help=(
        "Split estimated costs into one row per price line, such as input audio, instead of one row for "
        "all lines."
    ),
)
@click.option(
    "--billed",
    is_flag=True,
    help="Export what providers billed, by day, instead of counted costs. Only final bills are exported.",
)
@with_client
def export_focus_rows(
    client: OperatorClient,
    since: str,
    until: str,
    output: Path | None,
    account: str,
    version: str,
    tags: tuple[str, ...],
    plans: bool,
    lines: str | None,
    billed: bool,
) -> None:
    """
    Export cost and usage as FOCUS rows (CSV), by hour.

    Rows are by day with --billed, and for days whose hours are no longer stored (after 62 days).
    """
    flags = {"plans": plans, "billed": billed}
    query = [("from", since), ("to", until), ("account", account), ("version", version)]
    query += [("tag", tag) for tag in tags] + [(name, "true") for name, is_set in flags.items() if is_set]
    query += [("lines", lines)] if lines else []
    # a temporary file, so that after an error no part of the export is written
    with TemporaryFile() as whole:
        headers = client.copy_response("/focus", query, target_file=whole)
        whole.seek(0)
        _write_output(output, whole)
    warn_about_incomplete_totals(headers.get(WHOLE_SINCE))
    for warning in orjson.loads(headers.get(WARNINGS, "[]")):
        click.echo(replace_unprintable(warning), err=True)


@export.command("seat-fees")
@click.option("--month", required=True, metavar="YYYY-MM", help="Calendar month (UTC), such as 2026-10.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; default: standard output.",
)
@click.option(
    "--operation",
    type=click.Choice(("replace_drop", "sum")),
    default="replace_drop",
    show_default=True,
    help="How the billing connection treats rows that it already has for the month.",
)
@with_client
def export_seat_fees(client: OperatorClient, month: str, output: Path | None, operation: str) -> None:
    """
    Export the plan seats' fees of a month as a billing file (JSON).

    Each fee is a row of type Purchase. Nothing is sent: upload the file to a separate billing connection.
    Calls that plans cover are not included.
    """
    from exporters.service.cbf import (
        MAX_BYTES,  # imported here, because only exports of billing files need it
        encode_seat_drop,
    )

    answer = client.request("GET", "/plan-costs", query=[("month", month)])
    if answer["plan_costs"]["truncated"]:
        exit_with_message(
            f"{month} has {answer['plan_costs']['row_count']} seats, which is too many; raise the setting "
            "answers.max_rows"
        )
    lacking = answer["total"]["unconverted"]
    if lacking:
        click.echo(unconverted_amounts_sentence(lacking, CURRENCY), err=True)
    drop = encode_seat_drop(answer["plan_costs"], answer["rows"], operation)
    if not drop:
        exit_with_message(f"no seat has a fee in {month}")
    if len(drop) > MAX_BYTES:
        exit_with_message(
            f"the file has {len(drop)} bytes, but a connection accepts at most {MAX_BYTES} at once"
        )
    _write_output(output, BytesIO(drop))


def _write_output(output: Path | None, content: IO[bytes]) -> None:
    try:
        if output is None:
            copyfileobj(content, sys.stdout.buffer)
        else:
            with output.open("wb") as file:
                copyfileobj(content, file)
    except OSError as error:
        exit_with_message(f"{output or 'standard output'}: {error.strerror}")
