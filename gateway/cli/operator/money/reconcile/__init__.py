"""`tollhouse reconcile`: what providers billed, and how it compares with what was counted."""

from __future__ import annotations

import click

from gateway.cli.operator.lists import list_command
from gateway.cli.operator.money.reconcile.report import report
from gateway.cli.operator.money.reconcile.statements import (
    COLUMNS,
    PULL_COLUMNS,
    delete_statement,
    import_statements,
    pull_statements,
)


@click.group()
def reconcile() -> None:
    """Bills of providers, compared with what was counted. Every difference has its cause."""


reconcile.add_command(import_statements)
list_command(
    reconcile,
    "statements",
    root="statements",
    columns=COLUMNS,
    filters={"source": "The kind of report.", "account": "", "month": "Such as 2026-10.", "provider": ""},
    help="List what was imported, a line for each month.",
)
reconcile.add_command(delete_statement)
reconcile.add_command(pull_statements)
list_command(
    reconcile,
    "pulls",
    root="statement_pulls",
    columns=PULL_COLUMNS,
    filters={"source": "The kind of report.", "state": "never, running, done or failed."},
    help="List the reports that are pulled, how far they are, and what went wrong.",
)
reconcile.add_command(report)
