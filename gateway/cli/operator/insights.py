"""`tollhouse insights`: what the detectors found about AI spend, and its status."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.output import JsonObject, as_json, show_json
from spool.printable import printable
from spool.registry.insights import EFFORTS, STATUSES

COLUMNS = ("id", "status", "severity", "cost_impact", "effort", "category", "title")


@click.group()
def insights() -> None:
    """Findings of the detectors about AI spend. Spikes, missing prices, doubled calls, unused keys."""


list_command(
    insights,
    "list",
    root="insights",
    columns=COLUMNS,
    filters={
        "status": f"{', '.join(STATUSES)}; may repeat.",
        "about": "money, or operation: what is about Tollhouse and its senders.",
        "hide_resolved": "true leaves out those that are addressed or ignored.",
    },
    help="List the insights, new ones first.",
)


@insights.command()
@click.argument("id")
@as_json
@with_client
def show(client: OperatorClient, id: str, as_json: bool) -> None:
    """Show one insight. What was seen, what to do, and what people said."""
    payload = client.request("GET", f"/insights/{part(id)}")
    if as_json:
        show_json(payload)
        return
    insight = payload["insight"]
    click.echo(printable(insight["title"]))
    click.echo(
        f"{insight['status']}, effort {insight['effort']}, impact ${Decimal(insight['cost_impact']):,}, "
        f"since {_time(insight['created'])}\n"
    )
    if insight["gone"]:
        click.echo("Tollhouse no longer finds this: the cause is gone.\n")
    click.echo("\n".join(printable(line) for line in insight["description"].splitlines()))
    for comment in payload["comments"]:
        author = printable(comment["author"])
        text = printable(comment["message"])
        click.echo(f"\n{comment['id']} {_time(comment['created'])} {author}: {text}")


@insights.command("set")
@click.argument("id")
@click.option("--status", type=click.Choice(STATUSES))
@click.option("--effort", type=click.Choice(EFFORTS))
@as_json
@with_client
def set_insight(
    client: OperatorClient, id: str, status: str | None, effort: str | None, as_json: bool
) -> None:
    """Say what became of an insight. An addressed one is new again when it returns."""
    given = {name: value for name, value in (("status", status), ("effort", effort)) if value is not None}
    if not given:
        raise click.UsageError("give --status or --effort")
    payload = client.request("PATCH", f"/insights/{part(id)}", body=given)
    insight = payload["insight"]
    _show_result(payload, as_json, f"{id} is {insight['status']}, effort {insight['effort']}")


@insights.command()
@click.argument("id")
@click.argument("message")
@as_json
@with_client
def comment(client: OperatorClient, id: str, message: str, as_json: bool) -> None:
    """Leave a comment on an insight."""
    payload = client.request("POST", f"/insights/{part(id)}/comments", body={"message": message})
    _show_result(payload, as_json, f"comment {payload['comment']['id']}")


@insights.command("delete-comment")
@click.argument("id")
@click.argument("number")
@as_json
@with_client
def delete_comment(client: OperatorClient, id: str, number: str, as_json: bool) -> None:
    """Delete a comment on an insight. `tollhouse insights show ID` has its number."""
    payload = client.request("DELETE", f"/insights/{part(id)}/comments/{part(number)}")
    _show_result(payload, as_json, f"comment {number} deleted")


@insights.command()
@as_json
@with_client
def run(client: OperatorClient, as_json: bool) -> None:
    """Check now, with every detector; a server checks every ten minutes."""
    payload = client.request("POST", "/insights/run", body={})
    done = payload["inspection"]
    words = f"{done['new']} new, {done['again']} found again, {done['reopened']} opened again, {done['gone']} gone"
    _show_result(payload, as_json, words)
    if done["left_out"]:
        click.echo(
            f"no room for {done['left_out']} more: delete some that are addressed or ignored", err=True
        )
    if done["failed"]:
        click.echo(f"detectors that failed, see the log: {', '.join(done['failed'])}", err=True)


def _show_result(payload: JsonObject, as_json: bool, words: str) -> None:
    show_json(payload) if as_json else click.echo(words)


def _time(seconds: str) -> str:
    return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M UTC")
