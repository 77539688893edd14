"""
`tollhouse ledger`: shows, recounts and recalculates the totals. `tollhouse billing`: sends hourly totals
as billing files.
"""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import add_commands, request_command
from gateway.cli.output import JsonObject, show_fields


@click.group()
def ledger() -> None:
    """Show, recount or recalculate the totals behind reports."""


def _show_ledger_totals_state(payload: JsonObject) -> None:
    show_fields(payload["ledger"])
    for month, frozen in payload["frozen_rates"].items():
        click.echo(f"exchange rates of {month} were frozen at {frozen['frozen_at']} by {frozen['frozen_by']}")


def _show_recount(payload: JsonObject) -> None:
    result = payload["rebuild"]
    click.echo(f"counted {result['periods']} hours again, beginning with record {result['first']}")
    if result["kept"]:
        click.echo(
            f"{result['kept']} hours up to {result['border']} stay unchanged, because some of their "
            "records are deleted"
        )


def _show_new_estimates(payload: JsonObject) -> None:
    result = payload["reprice"]
    click.echo(
        f"recalculated {result['rows']} totals with {result['price_book']}: ${result['before']} became "
        f"${result['after']}"
    )
    if result["unpriced"]:
        click.echo(f"{result['unpriced']} totals have no price in this price book and stay unchanged")
    if result["kept_units"]:
        click.echo(
            f"{result['kept_units']} totals keep their cost: their calls are deleted and their units have meters"
        )
    if result["kept_sizes"]:
        click.echo(
            f"{result['kept_sizes']} totals keep their cost: their calls are deleted and their size class has two "
            "prices"
        )


def _show_divided_groups(payload: JsonObject) -> None:
    result = payload["divided"]
    click.echo(f"the part of the month from {result['day']} has {result['groups']} groups")


def _show_frozen_rates(payload: JsonObject) -> None:
    result = payload["frozen_rates"]
    click.echo(
        f"froze the exchange rates of {result['month']}: {', '.join(result['currencies']) or 'none are known'}"
    )


add_commands(
    ledger,
    request_command("status", "GET /ledger", ("Show how far the totals are counted, and which "
                         "records they could not count."), show_response=_show_ledger_totals_state),
    request_command("rebuild", "POST /ledger/rebuild",
            "Count the totals again. Hours with deleted records stay unchanged.", show_response=_show_recount),
    request_command("reprice", "POST /ledger/reprice",
            "Recalculate estimated costs with today's list prices. Reported costs stay unchanged.",
            click.option("--from", "since", required=True, metavar="DAY",
                         help="First day to recalculate. Earlier estimates stay unchanged."),
            show_response=_show_new_estimates),
    request_command("freeze-rates MONTH", "POST /ledger/rates",
            "Freeze the exchange rates of a past month, such as 2026-10, so that new rates no longer "
            "change its totals.", show_response=_show_frozen_rates),
    request_command("divide-groups DAY", "POST /ledger/groups",
            "Divide the part of a month that begins on DAY into groups of people again, because its groups "
            "were made from wrong totals.", show_response=_show_divided_groups),
)  # fmt: skip


@ledger.command("thaw-rates")
@click.argument("month")
@with_client
def thaw_rates(client: OperatorClient, month: str) -> None:
    """Unfreeze the exchange rates of a month, so that configured rates apply again."""
    client.request("DELETE", f"/ledger/rates/{quote_segment(month)}")
    click.echo(f"the exchange rates of {month} are no longer frozen")


_since = click.option("--from", "from", required=True, metavar="DAY", help="First day, or a time.")
_until = click.option("--to", "to", required=True, metavar="DAY", help="Last day (inclusive), or a time.")


@click.group()
def billing() -> None:
    """
    Preview and send AI costs as billing files.

    A server with upstream.connection_id sends them automatically.
    """


def _billing_push_body(*, dry_run: bool, **span: str) -> JsonObject:
    return {"since": span["from"], "until": span["to"], "dry_run": dry_run}


def _show_billing_push(payload: JsonObject) -> None:
    plan = payload["billing"]
    size = f"{plan['hours']} hours, {plan['rows']} rows, {plan['bytes']} bytes in {plan['drops']} files"
    click.echo(f"{size}: ${plan['cost']}")
    if plan["sent"]:
        click.echo(f"{plan['sent']} hours were accepted")


add_commands(
    billing,
    request_command("preview", "GET /billing",
            "Show the hours, rows, bytes, files and cost of a period, and send nothing.",
            _since, _until, show_response=_show_billing_push),
    request_command("push", "POST /billing/push",
            "Send every hour of a period again. It replaces what the connection has for these hours.", _since, _until,
            click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing."),
            request_body=_billing_push_body, show_response=_show_billing_push),
)  # fmt: skip
