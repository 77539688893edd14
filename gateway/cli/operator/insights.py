"""`tollhouse insights`: findings of the detectors, and their status."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.cli.output import JsonObject, as_json, show_json
from spool.printable import replace_unprintable
from spool.registry.insights import EFFORTS, STATUSES
from spool.registry.notices import SEVERITIES

COLUMNS = ("id", "status", "severity", "cost_impact", "effort", "category", "title")


@click.group()
def insights() -> None:
    """List and handle findings about AI spend."""


def _impact_or_none(amount: str) -> str | None:
    """Return None for an impact of zero, which nobody stated."""
    return amount if re.search("[1-9]", amount) else None


list_command(
    insights,
    "list",
    root="insights",
    columns=COLUMNS,
    money=("cost_impact",),
    shown=lambda row: {**row, "cost_impact": _impact_or_none(row["cost_impact"])},
    filters={
        "status": f"Filter by status: {', '.join(STATUSES)}; may repeat.",
        "about": "Filter by subject. money: AI spend. operation: Tollhouse and the programs that send to it.",
        "severity": f"Filter by severity: {', '.join(SEVERITIES)}; may repeat.",
        "hide_resolved": "true: hide insights that are addressed or ignored.",
    },
    help="List the insights: the open ones first, by severity and then by cost impact.",
)


def _show_insight_fields(payload: JsonObject) -> None:
    insight = payload["insight"]
    click.echo(replace_unprintable(insight["title"]))
    impact = f"${Decimal(insight['cost_impact']):,}" if _impact_or_none(insight["cost_impact"]) else "-"
    click.echo(
        f"{insight['status']}, effort {insight['effort']}, impact {impact}, "
        f"since {_format_time(insight['created'])}\n"
    )
    if insight["gone"]:
        click.echo("Tollhouse no longer finds this, because the cause is gone.\n")
    click.echo("\n".join(replace_unprintable(line) for line in insight["description"].splitlines()))
    for comment in payload["comments"]:
        author = replace_unprintable(comment["author"])
        text = replace_unprintable(comment["message"])
        click.echo(f"\n{comment['id']} {_format_time(comment['created'])} {author}: {text}")


def _format_time(seconds: str) -> str:
    return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M UTC")


def _insight_change_body(**given: str | None) -> JsonObject:
    stated = {name: value for name, value in given.items() if value is not None}
    if not stated:
        raise click.UsageError("nothing to change: give --status or --effort")
    return stated


@insights.command("check")
@as_json
@with_client
def run_detectors(client: OperatorClient, as_json: bool) -> None:
    """Run all detectors now. A running server also runs them every ten minutes."""
    payload = client.request("POST", "/insights/run", body={})
    result = payload["inspection"]
    message = (
        f"{result['new']} new, {result['again']} found again, "
        f"{result['reopened']} reopened, {result['gone']} gone"
    )
    show_json(payload) if as_json else click.echo(message)
    if result["left_out"]:
        click.echo(
            f"{result['left_out']} more insights do not fit; delete some that are addressed or ignored",
            err=True,
        )
    if result["failed"]:
        click.echo(f"these detectors failed (see the log): {', '.join(result['failed'])}", err=True)


add_commands(
    insights,
    request_command("show ID", "GET /insights/{id}",
            "Show one insight: the evidence, the suggested action, and the comments.",
            show_response=_show_insight_fields),
    request_command("edit ID", "PATCH /insights/{id}",
            "Change the status or the effort of an insight. An addressed insight that recurs becomes new again.",
            click.option("--status", type=click.Choice(STATUSES), help="New status."),
            click.option("--effort", type=click.Choice(EFFORTS), help="Effort of the suggested action."),
            request_body=_insight_change_body, show_response="{id} is {insight[status]}, effort {insight[effort]}"),
)  # fmt: skip


@insights.group()
def comments() -> None:
    """Create and delete the comments on insights."""


add_commands(
    comments,
    request_command("create ID MESSAGE", "POST /insights/{id}/comments", "Comment on an insight.",
            show_response="comment {comment[id]}"),
    request_command("delete ID NUMBER", "DELETE /insights/{id}/comments/{number}",
            "Delete a comment. `tollhouse insights show ID` shows the comments' numbers.",
            show_response="comment {number} deleted"),
)  # fmt: skip
