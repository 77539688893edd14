"""
`tollhouse ledger`: how far the sums reach; rebuild and reprice them. `tollhouse billing`: the sums by the hour as
billing drops, previewed or sent now.
"""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.commands import add_commands, command
from gateway.cli.output import JsonObject, show_fields


@click.group()
def ledger() -> None:
    """Show, rebuild or reprice the sums. Reports are made from them."""


def _show(payload: JsonObject) -> None:
    show_fields(payload["ledger"])
    for month, each in payload["frozen_rates"].items():
        click.echo(f"rates of {month} frozen at {each['frozen_at']} by {each['frozen_by']}")


def _show_rebuilt(payload: JsonObject) -> None:
    done = payload["rebuild"]
    click.echo(f"counted {done['periods']} hours anew, from record {done['first']} on")
    if done["kept"]:
        click.echo(
            f"{done['kept']} stay as they are, the last ends {done['border']}: some of their records are gone"
        )


def _show_repriced(payload: JsonObject) -> None:
    done = payload["reprice"]
    click.echo(
        f"priced {done['rows']} sums again with {done['price_book']}: ${done['before']} became ${done['after']}"
    )
    if done["unpriced"]:
        click.echo(f"{done['unpriced']} sums have no price in it and stay as they were")


def _show_frozen(payload: JsonObject) -> None:
    done = payload["frozen_rates"]
    click.echo(f"froze the rates of {done['month']}: {', '.join(done['currencies']) or 'none are known'}")


add_commands(
    ledger,
    command("status", "GET /ledger", "Show how far the sums reach, and what they could not count.", shows=_show),
    command("rebuild", "POST /ledger/rebuild",
            "Count anew every hour whose records are all kept. The rest stays as it is.", shows=_show_rebuilt),
    command("reprice", "POST /ledger/reprice",
            "Price estimated and unpriced sums again. List prices are today's; reported costs stay.",
            click.option("--from", "since", required=True, metavar="DAY",
                         help="What happened before it keeps its estimates."),
            shows=_show_repriced),
    command("freeze-rates MONTH", "POST /ledger/rates",
            "Keep the rates of currencies of a month that is over, such as 2026-10: "
            "no file changes its sums any more.", shows=_show_frozen),
)  # fmt: skip


@ledger.command("thaw-rates")
@click.argument("month")
@with_client
def thaw_rates(client: OperatorClient, month: str) -> None:
    """Take back that the rates of a month are frozen: the configuration and its file decide again."""
    client.request("DELETE", f"/ledger/rates/{part(month)}")
    click.echo(f"the rates of {month} are no longer frozen")


_since = click.option("--from", "from", required=True, metavar="DAY", help="First day, or a time.")
_until = click.option(
    "--to", "to", required=True, metavar="DAY", help="Last day, which is part of it, or a time."
)


@click.group()
def billing() -> None:
    """AI cost as billing drops. A server with upstream.connection_id sends them by itself."""


def _push(*, dry_run: bool, **span: str) -> JsonObject:
    return {"since": span["from"], "until": span["to"], "dry_run": dry_run}


def _show_plan(payload: JsonObject) -> None:
    plan = payload["billing"]
    size = f"{plan['hours']} hours, {plan['rows']} rows, {plan['bytes']} bytes in {plan['drops']} drops"
    click.echo(f"{size}: ${plan['cost']}")
    if plan["sent"]:
        click.echo(f"{plan['sent']} hours were accepted")


add_commands(
    billing,
    command("preview", "GET /billing", "Show what a span comes to: hours, rows, bytes, requests and cost.",
            _since, _until, shows=_show_plan),
    command("push", "POST /billing/push",
            "Send every hour of a span again. What the connection has of them is replaced.", _since, _until,
            click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing."),
            sends=_push, shows=_show_plan),
)  # fmt: skip
