"""`tollhouse billed`: invoices of providers, and months of their bills that are closed."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import add_commands, command, list_command
from gateway.cli.output import JsonObject, as_json, show_json, show_table
from spool.printable import printable

INVOICE_COLUMNS = ("id", "provider", "month", "number", "account", "issued", "total", "tax", "lines")
CLOSED_COLUMNS = (
    "provider",
    "month",
    "billed",
    "invoiced",
    "rounding",
    "difference",
    "closed_at",
    "closed_by",
)


@click.group()
def billed() -> None:
    """Invoices of providers, and months of their bills that are closed: nothing in these moves any more."""


@billed.group()
def invoice() -> None:
    """Invoices: what a month of bills must come to, to the cent."""


list_command(
    invoice,
    "list",
    root="billed_invoices",
    columns=INVOICE_COLUMNS,
    filters={"provider": "Who sent it.", "month": "Such as 2026-10."},
    help="List the invoices.",
)


list_command(
    billed,
    "list",
    root="closed_months",
    columns=CLOSED_COLUMNS,
    filters={"provider": "Who sent the bill.", "month": "Such as 2026-10."},
    help="List the months that are closed.",
)


def _show(payload: JsonObject) -> None:
    found = payload["month_closing"]
    click.echo(
        f"{printable(found['provider'])}, {found['month']}: billed ${found['billed']}, invoiced ${found['invoiced']}"
        f" ({len(found['invoices'])} invoices), tax ${found['tax']}, rounding ${found['rounding']}, difference"
        f" ${found['difference']}"
    )
    charges = [{"charge": name, "amount": amount} for name, amount in found["by_charge"].items()]
    show_table(charges, ("charge", "amount"))
    reasons = [{"unallocated": name, "amount": amount} for name, amount in found["by_reason"].items()]
    if reasons:
        show_table(reasons, ("unallocated", "amount"))
    if found["largest_unallocated"]:
        show_table(found["largest_unallocated"], ("charge", "model", "api_key", "region", "amount"))
    if found["restated"]:
        restated = [{"corrects": day, "amount": amount} for day, amount in found["restated"].items()]
        show_table(restated, ("corrects", "amount"))
    for problem in found["problems"]:
        click.echo(problem, err=True)


_PROVIDER = click.option("--provider", required=True, metavar="NAME", help="Who sent the bill.")
_MONTH = click.option("--month", required=True, metavar="MONTH", help="Such as 2026-10.")

add_commands(
    invoice,
    command("add", "POST /billed-invoices", "Add an invoice of a provider.", _PROVIDER, _MONTH,
            click.option("--number", required=True, metavar="TEXT", help="The number of the invoice."),
            click.option("--total", required=True, metavar="AMOUNT",
                         help="What it comes to in dollars, tax included."),
            click.option("--tax", metavar="AMOUNT", help="What of the total is tax that no statement tells."),
            click.option("--account", metavar="TEXT", help="Whose invoice it is, if there are several."),
            click.option("--issued", metavar="DATE", help="When it was issued, such as 2026-11-03."),
            click.option("--lines", type=click.IntRange(1),
                         help="Lines of it that were rounded to cents; default: 1."),
            shows="added invoice {billed_invoice[id]}"),
    command("delete ID", "DELETE /billed-invoices/{id}", "Forget an invoice of a month that is not closed.",
            shows="invoice {id} deleted"),
)  # fmt: skip

add_commands(
    billed,
    command("preview", "GET /month-closing", "Show what closing a month would find, and close nothing.",
            _PROVIDER, _MONTH, shows=_show),
    command("reopen", "DELETE /closed-months/{provider}/{month}",
            "Let a closed month change again; what was restated of it since goes into the month itself.",
            _PROVIDER, _MONTH, shows="{month} of {provider} is open again"),
)  # fmt: skip


@billed.command("close")
@_PROVIDER
@_MONTH
@click.option("--accept", is_flag=True, help="Close it with a difference, or with days that are not final.")
@as_json
@with_client
def close(client: OperatorClient, provider: str, month: str, accept: bool, as_json: bool) -> None:
    """Close a month of a provider's bills: what it comes to stays, and later changes are entries of their own."""
    if not as_json:
        _show(client.request("GET", "/month-closing", query=[("provider", provider), ("month", month)]))
    given = {"provider": provider, "month": month, "accept": accept}
    payload = client.request("POST", "/closed-months", body=given)
    show_json(payload) if as_json else click.echo(f"closed {month} of {printable(provider)}")
