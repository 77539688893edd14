"""`tollhouse doctor`: looks at everything, says what is wrong, and packs a bundle for bug reports."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from gateway.cli import config_option, configured, data_option, fail
from gateway.cli.data_directory import need_data
from gateway.cli.doctor.bundle import write_bundle
from gateway.cli.doctor.diagnosis import OK, PROBLEM, Diagnosis
from gateway.cli.doctor.installation import installation, read_state, receivers, shared_storage
from gateway.cli.doctor.machine import machine
from gateway.cli.output import show_json
from spool.printable import printable

MARKS = {OK: "ok", "note": "note", "warning": "WARNING", PROBLEM: "PROBLEM"}


@click.command()
@config_option
@data_option
@click.option(
    "--bundle", type=click.Path(path_type=Path, dir_okay=False), help="Pack what was found for a bug report."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(config: Path | None, data: Path | None, bundle: Path | None, as_json: bool) -> None:
    """
    Look at the machine, the data directory, the configuration, and where records go.

    It works beside a running server and without one. The bundle holds no secret, no header and
    no record. Exit code 1 when something does not work.
    """
    settings = configured(config, {"data_dir": str(data.absolute()) if data else None})
    if config is None:
        need_data(settings, config)
    diagnoses: list[Diagnosis] = list(machine(settings))  # first: opening the data directory makes it private
    state, trouble = read_state(settings)
    diagnoses += [*shared_storage(settings), *installation(settings, state, trouble), *receivers(settings)]
    problems = sum(one.status == PROBLEM for one in diagnoses)
    if as_json:
        show_json({"doctor": {"problems": problems, "found": [asdict(one) for one in diagnoses]}})
    else:
        for one in diagnoses:
            click.echo(f"{MARKS[one.status]:8} {one.about:24} {printable(one.words)}")
    if bundle is not None:
        try:
            write_bundle(bundle, settings, diagnoses, state)
        except OSError as error:
            fail(f"{bundle}: {error.strerror}")
        click.echo(f"wrote {bundle}", err=as_json)
    sys.exit(1 if problems else 0)
