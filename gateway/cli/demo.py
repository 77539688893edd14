"""`tollhouse demo`: a data directory with a month of synthetic traffic."""

from __future__ import annotations

import asyncio
import shlex
from datetime import UTC, datetime
from pathlib import Path

import click

from gateway.cli import exit_because_of, exit_with_message, load_config_or_exit
from gateway.cli.serve import program_name, serve_until_stopped
from gateway.service.demo.planted_problems import (
    EXAMPLES,
    PLANTS,
    least_demo_days_and_records,
    unmet_size_requirements,
)
from spool.clock import SystemClock
from spool.errors import SpoolError

USUAL_RECORDS = 30_000
WORDS = (*PLANTS, EXAMPLES)
PLANTED = (
    "Each insight about a planted problem has a comment that says so. Names of planted keys, devices and "
    "destinations begin with 'planted'."
)
NEXT_STEPS = """\
Next steps:
    {command} serve --data {data}            start the gateway and print a link to the console
    {command} report --data {data}           show what the calls cost
    {command} insights list --data {data}    list the problems that Tollhouse found"""


def _parse_problem_names(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    plants = WORDS if value == "all" else tuple(word for word in value.split(",") if word)
    for word in plants:
        if word not in WORDS:
            raise click.BadParameter(f"{word!r} is not known; use all, or some of {', '.join(WORDS)}")
    return plants


@click.command()
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory to fill, empty or new.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed of the random data. The same seed and --until give the same month.",
)
@click.option(
    "--days", type=click.IntRange(1, 400), default=30, show_default=True, help="Number of days to generate."
)
@click.option(
    "--records",
    type=click.IntRange(1, 10_000_000),
    help="Approximate number of records; default: 30000, or more if --plant needs more.",
)
@click.option(
    "--serve",
    "serves",
    is_flag=True,
    help="Then run the gateway until Ctrl-C, and print a link to the console.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:4318",
    show_default=True,
    help="Address for HTTP with --serve.",
)
@click.option("--until", type=click.DateTime(), help="End of the generated period (UTC); default: now.")
@click.option(
    "--plant",
    "plants",
    default="",
    callback=_parse_problem_names,
    metavar="WORDS",
    help="Findings to create: all, or a comma-separated list of "
    + ", ".join(PLANTS)
    + f". {EXAMPLES} creates budgets, a channel, a scheduled report, a price, a contract, an event type and a billing "
    "connection.",
)
def demo(
    data: Path,
    seed: int,
    days: int,
    records: int | None,
    until: datetime | None,
    plants: tuple[str, ...],
    serves: bool,
    listen: str,
) -> None:
    """
    Fill a data directory with a month of generated calls.

    The data also has bills of two providers. --plant adds situations that Tollhouse's detectors report. If
    the month is too small for a planted finding, the command states the size that it needs and exits with
    code 2. If a planted finding is not detected, the command names it and, without --serve, exits with code 1.
    """
    if records is None:
        records = max(USUAL_RECORDS, least_demo_days_and_records(plants, days=days)[1])
    problems = unmet_size_requirements(plants, days=days, records=records)
    if problems:
        exit_with_message("; ".join(problems), 2)
    settings = load_config_or_exit(
        None, {"data_dir": str(data.absolute()), "server.listen": listen, "server.grpc_listen": ""}
    )
    # imported late, so that the help and wrong use do not load the server
    from gateway.service.demo.filling import fill_directory
    from gateway.service.demo.month import Period
    from gateway.service.demo.samples import SetClock

    # data of a month that ended earlier is checked as of the end of that month, because detectors look at
    # recent days
    clock = SystemClock() if until is None else SetClock(until.replace(tzinfo=UTC).timestamp())
    end = int(clock.now())
    period = Period(end=end, days=days, records=records)
    try:
        with click.progressbar(length=records, label="Generating calls") as bar:
            filled = asyncio.run(
                fill_directory(
                    data,
                    period,
                    seed=seed,
                    plants=plants,
                    clock=clock,
                    progress=lambda sent: bar.update(sent - bar.pos),
                )
            )
    except (SpoolError, OSError) as error:
        exit_because_of(error)
    click.echo(
        f"{filled.records} records, including {filled.duplicates} duplicates; "
        f"{filled.inspected.merged.new} insights, {filled.look.merged.new} recommendations"
    )
    problem = f"these planted findings were not detected: {', '.join(filled.missed)}"
    if filled.missed and not serves:
        exit_with_message(problem)
    if filled.missed:  # the demo month is complete even if a planted finding was not detected
        click.echo(f"tollhouse: {problem}", err=True)
    if plants:
        click.echo(PLANTED)
    if serves:
        serve_until_stopped(settings, embedded=False, shows_link=True)
    click.echo(NEXT_STEPS.format(command=program_name(), data=shlex.quote(str(data))))
