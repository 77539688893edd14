"""`tollhouse billed`: provider invoices, and closed months of provider bills."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.cli.output import JsonObject, as_json, show_json, show_table
from spool.printable import replace_unprintable

INVOICE_COLUMNS = (
    "id",
    "provider",
    "month",
    "number",
    "account",
    "issued",
    "total",
    "tax",
    "currency",
    "lines",
)
CLOSED_COLUMNS = (
    "provider",
    "month",
    "billed",
    "invoiced",
    "rounding",
    "difference",
    "counted",
    "error",
    "closed_at",
    "closed_by",
)


@click.group()
def billed() -> None:
    """
    Record invoices, and close months of provider bills.

    A closed month no longer changes.
    """


@billed.group()
def invoices() -> None:
    """List, create and delete provider invoices. The bills of a month are checked against its invoices."""


list_command(
    invoices,
    "list",
    root="billed_invoices",
    columns=INVOICE_COLUMNS,
    filters={"provider": "Filter by provider.", "month": "Filter by month, such as 2026-10."},
    help="List the invoices.",
)


list_command(
    billed,
    "list",
    root="closed_months",
    columns=CLOSED_COLUMNS,
    filters={"provider": "Filter by provider.", "month": "Filter by month, such as 2026-10."},
    help="List the closed months.",
)


def _show_month_closing(payload: JsonObject) -> None:
    closing = payload["month_closing"]
    click.echo(
        f"{replace_unprintable(closing['provider'])}, {closing['month']}: billed ${closing['billed']}, "
        f"invoiced ${closing['invoiced']} ({len(closing['invoices'])} invoices), tax ${closing['tax']}, "
        f"rounding ${closing['rounding']}, difference ${closing['difference']}"
    )
    if closing["sentence"]:
        click.echo(
            f"{replace_unprintable(closing['sentence'])}; {closing['error_percent'] or 0} % unexplained; coverage "
            f"{closing['token_coverage'] or 0} % of tokens and {closing['money_coverage'] or 0} % of money; "
            f"{closing['failed_calls']:,} failed, {closing['aborted_calls']:,} aborted and "
            f"{closing['unpriced_calls']:,} unpriced calls"
        )
    charges = [{"charge": name, "amount": amount} for name, amount in closing["by_charge"].items()]
    show_table(charges, ("charge", "amount"))
    reasons = [{"unallocated": name, "amount": amount} for name, amount in closing["by_reason"].items()]
    if reasons:
        show_table(reasons, ("unallocated", "amount"))
    if closing["largest_unallocated"]:
        show_table(closing["largest_unallocated"], ("charge", "model", "api_key", "region", "amount"))
    if closing["restated"]:
        restated = [{"corrects": day, "amount": amount} for day, amount in closing["restated"].items()]
        show_table(restated, ("corrects", "amount"))
    for problem in closing["problems"]:
        click.echo(problem, err=True)


_PROVIDER = click.option(
    "--provider", required=True, metavar="NAME", help="Provider that sent the bill, such as openai."
)
_MONTH = click.option("--month", required=True, metavar="MONTH", help="Month of the bill, such as 2026-10.")

add_commands(
    invoices,
    request_command("create", "POST /billed-invoices", "Record an invoice of a provider.", _PROVIDER, _MONTH,
            click.option("--number", required=True, metavar="TEXT", help="Invoice number."),
            click.option("--total", required=True, metavar="AMOUNT",
                         help="Total, including tax."),
            click.option("--currency", metavar="CODE", help="Currency of the total and the tax; default: USD."),
            click.option("--tax", metavar="AMOUNT", help="Tax within the total that no imported bill contains."),
            click.option("--account", metavar="TEXT", help="Account of the invoice, if you have several."),
            click.option("--issued", metavar="DATE", help="Issue date, such as 2026-11-03."),
            click.option("--lines", type=click.IntRange(1),
                         help="Number of invoice lines that were rounded to cents; default: 1."),
            show_response="invoice {billed_invoice[id]} created"),
    request_command("delete ID", "DELETE /billed-invoices/{id}", "Delete an invoice of a month that is not closed.",
            show_response="invoice {id} deleted"),
)  # fmt: skip

add_commands(
    billed,
    request_command("preview", "GET /month-closing", "Show the result of closing a month, and close nothing.",
            _PROVIDER, _MONTH, show_response=_show_month_closing),
    request_command("reopen", "DELETE /closed-months/{provider}/{month}",
            "Reopen a closed month. Later corrections then change the month itself.",
            _PROVIDER, _MONTH, show_response="{month} of {provider} is open again"),
)  # fmt: skip


@billed.command("close")
@_PROVIDER
@_MONTH
@click.option(
    "--accept", is_flag=True, help="Close the month even with a difference, or with days that are not final."
)
@as_json
@with_client
def close_billing_month(
    client: OperatorClient, provider: str, month: str, accept: bool, as_json: bool
) -> None:
    """
    Close a month of a provider's bills.

    Its costs no longer change. Later changes by the provider become separate entries.
    """
    if not as_json:
        _show_month_closing(
            client.request("GET", "/month-closing", query=[("provider", provider), ("month", month)])
        )
    body = {"provider": provider, "month": month, "accept": accept}
    payload = client.request("POST", "/closed-months", body=body)
    show_json(payload) if as_json else click.echo(f"closed {month} of {replace_unprintable(provider)}")
