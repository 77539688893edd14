"""`tollhouse reconcile`: what providers billed, and how it compares with what was counted."""

from __future__ import annotations

import click

from gateway.cli.operator.money.reconcile.report import report


@click.group()
def reconcile() -> None:
    """What providers billed, beside what was counted. Every difference has its cause."""


reconcile.add_command(report)
