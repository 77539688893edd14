"""`tollhouse billed`: invoices of providers, and months of their bills that are closed."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
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

provider_option = click.option("--provider", required=True, metavar="NAME", help="Who sent the bill.")
month_option = click.option("--month", required=True, metavar="MONTH", help="Such as 2026-10.")


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


@invoice.command("add")
@provider_option
@month_option
@click.option("--number", required=True, metavar="TEXT", help="The number of the invoice.")
@click.option("--total", required=True, metavar="AMOUNT", help="What it comes to in dollars, tax included.")
@click.option("--tax", metavar="AMOUNT", help="What of the total is tax that no statement tells.")
@click.option("--account", metavar="TEXT", help="Whose invoice it is, if there are several.")
@click.option("--issued", metavar="DATE", help="When it was issued, such as 2026-11-03.")
@click.option("--lines", type=click.IntRange(1), help="Lines of it that were rounded to cents; default: 1.")
@as_json
@with_client
def add_invoice(client: OperatorClient, as_json: bool, **given: Any) -> None:
    """Add an invoice of a provider."""
    payload = client.request("POST", "/billed-invoices", body=given)
    added = payload["billed_invoice"]
    show_json(payload) if as_json else click.echo(f"added invoice {added['id']}")


@invoice.command("delete")
@click.argument("id")
@as_json
@with_client
def delete_invoice(client: OperatorClient, id: str, as_json: bool) -> None:
    """Forget an invoice of a month that is not closed."""
    payload = client.request("DELETE", f"/billed-invoices/{part(id)}")
    show_json(payload) if as_json else click.echo(f"invoice {id} deleted")


@billed.command("preview")
@provider_option
@month_option
@as_json
@with_client
def preview(client: OperatorClient, provider: str, month: str, as_json: bool) -> None:
    """Show what closing a month would find, and close nothing."""
    payload = _found(client, provider, month)
    show_json(payload) if as_json else _show(payload["month_closing"])


@billed.command("close")
@provider_option
@month_option
@click.option("--accept", is_flag=True, help="Close it with a difference, or with days that are not final.")
@as_json
@with_client
def close(client: OperatorClient, provider: str, month: str, accept: bool, as_json: bool) -> None:
    """Close a month of a provider's bills: what it comes to stays, and later changes are entries of their own."""
    if not as_json:
        _show(_found(client, provider, month)["month_closing"])
    given = {"provider": provider, "month": month, "accept": accept}
    payload = client.request("POST", "/closed-months", body=given)
    show_json(payload) if as_json else click.echo(f"closed {month} of {printable(provider)}")


list_command(
    billed,
    "list",
    root="closed_months",
    columns=CLOSED_COLUMNS,
    filters={"provider": "Who sent the bill.", "month": "Such as 2026-10."},
    help="List the months that are closed.",
)


@billed.command("reopen")
@provider_option
@month_option
@as_json
@with_client
def reopen(client: OperatorClient, provider: str, month: str, as_json: bool) -> None:
    """Let a closed month change again; what was restated of it since goes into the month itself."""
    payload = client.request("DELETE", f"/closed-months/{part(provider)}/{part(month)}")
    show_json(payload) if as_json else click.echo(f"{month} of {printable(provider)} is open again")


def _found(client: OperatorClient, provider: str, month: str) -> Any:
    query = [("provider", provider), ("month", month)]
    return client.request("GET", "/month-closing", query=query)


def _show(found: JsonObject) -> None:
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
