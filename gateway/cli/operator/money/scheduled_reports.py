"""The command `tollhouse scheduled-reports`: send the costs of a view by mail or chat, each week or month."""

from __future__ import annotations

import click

from gateway.cli.operator.commands import add_commands, request_command
from gateway.cli.operator.resources import build_resource_group
from gateway.cli.output import JsonObject
from gateway.operations.money.reports.declared import SCHEDULED_REPORT
from spool.printable import replace_unprintable

scheduled_reports = build_resource_group("scheduled-reports", SCHEDULED_REPORT)


def _show_preview(payload: JsonObject) -> None:
    shown = payload["preview"]
    for text in (shown["title"], "", *shown["text"].splitlines()):
        click.echo(replace_unprintable(text))


def _show_sent_report(payload: JsonObject) -> None:
    for id in payload["notifications"]:
        click.echo(f"sending; see the state with tollhouse notifications show {replace_unprintable(id)}")
    if payload["problem"]:
        click.echo(replace_unprintable(payload["problem"]), err=True)


add_commands(
    scheduled_reports,
    request_command(
        "preview SCHEDULED_REPORT",
        "GET /scheduled-reports/{scheduled_report}/preview",
        "Show the report of the last whole period. Nothing is sent.",
        show_response=_show_preview,
    ),
    request_command(
        "send SCHEDULED_REPORT",
        "POST /scheduled-reports/{scheduled_report}/send",
        "Send the report of the last whole period to all recipients now. The schedule does not change.",
        show_response=_show_sent_report,
    ),
)
