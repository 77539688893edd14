"""The command `tollhouse scheduled-reports`: send the costs of a view by mail or chat, each week or month."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.resources import build_resource_group
from gateway.cli.output import as_json, show_json
from gateway.operations.money.reports.declared import SCHEDULED_REPORT
from spool.printable import replace_unprintable

scheduled_reports = build_resource_group("scheduled-reports", SCHEDULED_REPORT)


@scheduled_reports.command("preview")
@click.argument("scheduled_report")
@as_json
@with_client
def preview_scheduled_report(client: OperatorClient, scheduled_report: str, as_json: bool) -> None:
    """Show the report of the last whole period. Nothing is sent."""
    payload = client.request("GET", f"/scheduled-reports/{quote_segment(scheduled_report)}/preview")
    if as_json:
        show_json(payload)
        return
    shown = payload["preview"]
    for text in (shown["title"], "", *shown["text"].splitlines()):
        click.echo(replace_unprintable(text))


@scheduled_reports.command("send")
@click.argument("scheduled_report")
@as_json
@with_client
def send_scheduled_report(client: OperatorClient, scheduled_report: str, as_json: bool) -> None:
    """Send the report of the last whole period to all recipients now. The schedule does not change."""
    payload = client.request("POST", f"/scheduled-reports/{quote_segment(scheduled_report)}/send", body={})
    if as_json:
        show_json(payload)
        return
    for id in payload["notifications"]:
        click.echo(f"sending; see the state with tollhouse notifications show {replace_unprintable(id)}")
    if payload["problem"]:
        click.echo(replace_unprintable(payload["problem"]), err=True)
