"""`tollhouse top`: what comes in, what waits and what leaves, at a glance."""

from __future__ import annotations

import contextlib
import sys
import time
from datetime import UTC, datetime

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import JsonObject, show_table
from gateway.cli.parameters import Seconds
from spool.printable import printable
from spool.settings import MIB

LEAST_EVERY_S = 0.5
SHOWN_SOURCES = 15  # on a screen, the busiest


@click.command()
@click.option("--once", is_flag=True, help="Print one state and end.")
@click.option("--every", type=Seconds(), default="2s", show_default=True, help="How often to look.")
@with_client
def top(client: OperatorClient, once: bool, every: float) -> None:
    """Show the rate of each source, how far behind the ledger is, and every route; until Ctrl-C."""
    if every < LEAST_EVERY_S:
        raise click.BadParameter(f"at least {LEAST_EVERY_S} s", param_hint="--every")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            status, rates, ledger = (client.request("GET", path) for path in ("/status", "/rates", "/ledger"))
            if not once and sys.stdout.isatty():
                click.clear()
            _show(status, rates["rates"], ledger["ledger"], most=None if once else SHOWN_SOURCES)
            if once:
                return
            time.sleep(every)


def _show(status: JsonObject, rates: JsonObject, ledger: JsonObject, *, most: int | None) -> None:
    space = status["space"]
    seconds = rates["seconds"]
    now = datetime.now(UTC).strftime("%H:%M:%S UTC")
    state = (
        "taking records"
        if space["writable"]
        else f"not taking records: {space['last_error'] or 'see /readyz'}"
    )
    click.echo(printable(f"{now}  {state}"))
    click.echo(
        f"{rates['records']} records in {seconds:.0f} s ({rates['records'] / seconds:.1f}/s), "
        f"ledger behind by {ledger['behind']}, "
        f"spool {space['bytes'] / MIB:.1f} of {space['max_bytes'] / MIB:.0f} MiB"
    )
    click.echo()
    show_table(rates["sources"][:most], ("source", "topic", "records", "per_s"))
    click.echo()
    show_table(status["routes"], ("route", "state", "queued", "oldest_age_s", "reason"))
