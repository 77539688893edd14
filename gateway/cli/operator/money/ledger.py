"""`tollhouse ledger`: how far the sums reach; rebuild and reprice them."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.output import as_json, show_fields, show_json


@click.group()
def ledger() -> None:
    """Show, rebuild or reprice the sums. Reports are made from them."""


@ledger.command()
@as_json
@with_client
def status(client: OperatorClient, as_json: bool) -> None:
    """Show how far the sums reach, and what they could not count."""
    payload = client.request("GET", "/ledger")
    if as_json:
        show_json(payload)
        return
    show_fields(payload["ledger"])
    for month, each in payload["frozen_rates"].items():
        click.echo(f"rates of {month} frozen at {each['frozen_at']} by {each['frozen_by']}")


@ledger.command()
@as_json
@with_client
def rebuild(client: OperatorClient, as_json: bool) -> None:
    """Count anew every hour whose records are all kept. The rest stays as it is."""
    payload = client.request("POST", "/ledger/rebuild", body={})
    if as_json:
        show_json(payload)
        return
    done = payload["rebuild"]
    click.echo(f"counted {done['periods']} hours anew, from record {done['first']} on")
    if done["kept"]:
        click.echo(
            f"{done['kept']} stay as they are, the last ends {done['border']}: some of their records are gone"
        )


@ledger.command()
@click.option(
    "--from", "since", required=True, metavar="DAY", help="What happened before it keeps its estimates."
)
@as_json
@with_client
def reprice(client: OperatorClient, since: str, as_json: bool) -> None:
    """Price estimated and unpriced sums again. List prices are today's; reported costs stay."""
    payload = client.request("POST", "/ledger/reprice", body={"since": since})
    if as_json:
        show_json(payload)
        return
    done = payload["reprice"]
    click.echo(
        f"priced {done['rows']} sums again with {done['price_book']}: ${done['before']} became "
        f"${done['after']}"
    )
    if done["unpriced"]:
        click.echo(f"{done['unpriced']} sums have no price in it and stay as they were")


@ledger.command("freeze-rates")
@click.argument("month")
@as_json
@with_client
def freeze_rates(client: OperatorClient, month: str, as_json: bool) -> None:
    """Keep the rates of currencies of a month that is over, such as 2026-10: no file changes its sums any more."""
    payload = client.request("POST", "/ledger/rates", body={"month": month})
    if as_json:
        show_json(payload)
        return
    done = payload["frozen_rates"]
    click.echo(f"froze the rates of {done['month']}: {', '.join(done['currencies']) or 'none are known'}")


@ledger.command("thaw-rates")
@click.argument("month")
@with_client
def thaw_rates(client: OperatorClient, month: str) -> None:
    """Take back that the rates of a month are frozen: the configuration and its file decide again."""
    client.request("DELETE", f"/ledger/rates/{part(month)}")
    click.echo(f"the rates of {month} are no longer frozen")
