"""`tollhouse billing`: AI cost by the hour as billing drops, previewed or sent now."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import JsonObject, as_json, show_json


@click.group()
def billing() -> None:
    """AI cost as billing drops. A server with upstream.connection_id sends them by itself."""


@billing.command()
@click.option("--from", "since", required=True, metavar="DAY", help="First day, or a time.")
@click.option("--to", "until", required=True, metavar="DAY", help="Last day, which is part of it, or a time.")
@as_json
@with_client
def preview(client: OperatorClient, since: str, until: str, as_json: bool) -> None:
    """Show what a span comes to: hours, rows, bytes, requests and cost."""
    payload = client.request("GET", "/billing", query=[("from", since), ("to", until)])
    show_json(payload) if as_json else _show(payload["billing"])


@billing.command()
@click.option("--from", "since", required=True, metavar="DAY", help="First day, or a time.")
@click.option("--to", "until", required=True, metavar="DAY", help="Last day, which is part of it, or a time.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@as_json
@with_client
def push(client: OperatorClient, since: str, until: str, dry_run: bool, as_json: bool) -> None:
    """Send every hour of a span again. What the connection has of them is replaced."""
    body = {"since": since, "until": until, "dry_run": dry_run}
    payload = client.request("POST", "/billing/push", body=body)
    show_json(payload) if as_json else _show(payload["billing"])


def _show(plan: JsonObject) -> None:
    size = f"{plan['hours']} hours, {plan['rows']} rows, {plan['bytes']} bytes in {plan['drops']} drops"
    click.echo(f"{size}: ${plan['cost']}")
    if plan["sent"]:
        click.echo(f"{plan['sent']} hours were accepted")
