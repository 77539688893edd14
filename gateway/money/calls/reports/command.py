"""`tollhouse scheduled-reports`: the costs of a view by mail or chat, each week or month."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import resource_commands
from gateway.cli.output import as_json, show_json
from gateway.money.calls.reports.declared import NewScheduledReport
from spool.printable import printable

COLUMNS = ("name", "view_name", "every", "day", "at", "time_zone", "channels", "people", "next", "problem")


@click.group("scheduled-reports")
def scheduled_reports() -> None:
    """Send the costs of a view by mail or chat, each week or month. Each reader gets the calls that he may see."""


list_command(
    scheduled_reports,
    "list",
    root="scheduled_reports",
    columns=COLUMNS,
    filters={"every": "week or month.", "view": "The id of a view."},
    help="List the scheduled reports.",
)

resource_commands(
    scheduled_reports,
    NewScheduledReport,
    noun="scheduled_report",
    path="/scheduled-reports",
    help={
        "create": "Have a report sent: every Monday at 08:00, unless you say otherwise.",
        "show": "Show a scheduled report, by its id or its name.",
        "edit": "Change a scheduled report. What is given replaces what was there.",
        "delete": "Send it no more.",
    },
)


@scheduled_reports.command()
@click.argument("scheduled_report")
@as_json
@with_client
def preview(client: OperatorClient, scheduled_report: str, as_json: bool) -> None:
    """Show what it says of the last whole period. Nothing is sent."""
    payload = client.request("GET", f"/scheduled-reports/{part(scheduled_report)}/preview")
    if as_json:
        show_json(payload)
        return
    shown = payload["preview"]
    for text in (shown["title"], "", *shown["text"].splitlines()):
        click.echo(printable(text))


@scheduled_reports.command()
@click.argument("scheduled_report")
@as_json
@with_client
def send(client: OperatorClient, scheduled_report: str, as_json: bool) -> None:
    """Send it now to everybody who gets it. The schedule stays as it is."""
    payload = client.request("POST", f"/scheduled-reports/{part(scheduled_report)}/send", body={})
    if as_json:
        show_json(payload)
        return
    for id in payload["notifications"]:
        click.echo(f"on its way: tollhouse notifications show {printable(id)}")
    if payload["problem"]:
        click.echo(printable(payload["problem"]), err=True)
