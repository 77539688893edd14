"""`tollhouse drill`: kills, a full disk, an outage and a poison record, beside the data directory and never in it."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click

from gateway.cli import config_option, configured, fail
from gateway.cli.data_directory import need_data
from gateway.cli.drill.faults import FAULTS, DrillResult, DrillSite
from gateway.cli.drill.receiver import DrillReceiver
from gateway.cli.drill.server import DrillFailed, DrillServer
from gateway.cli.drill.traffic import Traffic, make
from gateway.cli.drill.trial_config import MOST_HOLD_S
from gateway.cli.output import show_json, show_table
from spool.disks.mounts import nearest

COLUMNS = ("fault", "rounds", "acknowledged", "lost", "duplicates", "recovery_s", "note")


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def drill(config: Path | None, as_json: bool) -> None:
    """
    Break a copy of this installation on this disk, and measure what that costs.

    A server of its own runs in a new directory beside data_dir, with this configuration, made-up calls, and
    one destination on loopback in place of the upstream and all destinations. Real data and the real upstream
    are never touched; the directory is removed at the end. Takes a minute or two. Exit code 1 when a record
    was lost or counted twice.
    """
    settings = configured(config)
    if config is None:
        need_data(settings, config)
    beside = nearest(settings.data_dir.absolute().parent)
    began = time.monotonic()
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f"{settings.data_dir.name}-drill-", dir=beside))
    except OSError as error:
        fail(f"{beside}: {error.strerror}")
    receiver = DrillReceiver()
    server = DrillServer(config, scratch=scratch, receiver=receiver.url)
    site = DrillSite(
        config=config,
        scratch=scratch,
        server=server,
        receiver=receiver,
        traffic=Traffic(server),
        hold_s=min(settings.spool.hold, MOST_HOLD_S),
    )
    try:
        results = _run(site, shows_progress=not as_json)
    except (DrillFailed, TimeoutError) as error:
        fail(f"the drill failed: {error}")
    finally:
        server.kill()
        receiver.close()
        shutil.rmtree(scratch, ignore_errors=True)
    passed = all(result.passed for result in results)
    if as_json:
        show_json({"drill": {"passed": passed, "faults": [asdict(result) for result in results]}})
    else:
        show_table([asdict(result) for result in results], COLUMNS)
        click.echo(
            f"\n{'nothing was lost or counted twice' if passed else 'NOT PASSED'}; "
            f"{time.monotonic() - began:.0f} s"
        )
    sys.exit(0 if passed else 1)


def _run(site: DrillSite, *, shows_progress: bool) -> list[DrillResult]:
    site.server.start()
    site.traffic.until_acknowledged(make(1))
    results = []
    for place, fault in enumerate(FAULTS, 1):
        if shows_progress:
            click.echo(f"{place}/{len(FAULTS)} {fault.__name__.replace('_', ' ')} ...", err=True)
        results.append(fault(site))
    site.server.stop()
    return results
