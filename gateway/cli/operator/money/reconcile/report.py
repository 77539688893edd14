"""
`tollhouse reconcile report`: what providers billed, what was counted, the difference to the last digit, and why.
"""

from __future__ import annotations

import sys
from decimal import Decimal

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.money.report import warn_of_lacking
from gateway.cli.output import JsonObject, show_json, show_table
from gateway.cli.parameters import Choice
from gateway.mounts import WHOLE_SINCE
from gateway.reconciliation.choices import DAY, FORMATS, LEVELS, PARTS
from spool.printable import printable

TABLE = "table"
_SHOWN = ("billed", "counted", "difference", *PARTS, "unexplained", "billed_tokens", "counted_tokens")
_CAUSES = ("cause", "amount", "tokens", "sure", "evidence")


@click.command()
@click.option("--provider", help="One provider alone, such as openai; default: all with a statement.")
@click.option("--month", metavar="YYYY-MM", help="A month of UTC; default: the running one.")
@click.option("--by", type=Choice(LEVELS), default=DAY, show_default=True, help="What a row is.")
@click.option("--format", "form", type=Choice((TABLE, *FORMATS)), default=TABLE, show_default=True)
@with_client
def report(client: OperatorClient, provider: str | None, month: str | None, by: str, form: str) -> None:
    """
    Compare what was billed with what was counted. Only settled days are compared.

    Every row adds up: billed = counted + volume + rate + other + own. Volume is tokens that one side alone
    has, rate a price that differs, other what is not a token, own where the ledger's cost is not its tokens
    at list prices.
    """
    given = {"provider": provider, "month": month, "by": by}
    query = [(name, value) for name, value in given.items() if value is not None]
    if form == "csv":
        told = client.copy("/reconciliation", [*query, ("format", form)], to=sys.stdout.buffer)
        warn_of_lacking(told.get(WHOLE_SINCE))
        return
    payload = client.request("GET", "/reconciliation", query=query)
    if form == "json":
        show_json(payload)
        return
    warn_of_lacking(payload["reconciliation"]["whole_since"])
    for found in payload["providers"]:
        _show(found, payload["reconciliation"]["month"], by)
    for other in payload["without_statement"]:
        name = other["provider"] or "no known provider"
        click.echo(
            f"{printable(name)}: {_dollars(other['counted'])} was counted, and there is no statement",
            err=True,
        )
    if not payload["providers"]:
        click.echo("there is no statement of this month: tollhouse reconcile import FILE", err=True)


def _show(found: JsonObject, month: str, by: str) -> None:
    total = found["total"]
    causes = " + ".join(f"{cause} {_dollars(amount)}" for cause, amount in total["causes"].items())
    explained = f" = {causes} + unexplained {_dollars(total['unexplained'])}" if causes else ""
    click.echo(
        f"{printable(found['provider'])}, {month}: billed {_dollars(total['billed'])}, "
        f"counted {_dollars(total['counted'])}, difference {_dollars(total['difference'])}{explained}"
    )
    if not found["has_money"]:
        click.echo("no statement has money: the billed tokens count at our prices", err=True)
    if found["set_aside"]:
        sources = printable(", ".join(found["set_aside"]))
        click.echo(f"not added, because they tell of the same days: {sources}", err=True)
    columns = (by, *(("state",) if by == DAY else ()), *_SHOWN)
    rows = [_row(row, by) for row in found["rows"]]
    show_table([*rows, _row(total, by) | {by: "total", "state": None}], columns)
    if found["causes"]:
        click.echo()
        show_table([each | {"amount": _dollars(each["amount"])} for each in found["causes"]], _CAUSES)
        for advice in dict.fromkeys(each["advice"] for each in found["causes"]):
            click.echo(f"- {printable(advice)}")
    for suggested in found["suggestions"]:
        lines = "\n".join(printable(line) for line in suggested["toml"].splitlines())
        click.echo(f"\nIf that is right, put it into the configuration:\n\n{lines}")
    click.echo()


def _row(row: JsonObject, by: str) -> JsonObject:
    line = {by: row["name"], "state": row["state"]}
    for name in _SHOWN:
        line[name] = f"{row[name]:,}" if isinstance(row[name], int) else _dollars(row[name])
    return line


def _dollars(text: str) -> str:
    """Format dollars to a hundredth of a cent: a table must stay readable, and JSON has every digit."""
    amount = Decimal(text)
    return f"{'-' if amount < 0 else ''}${abs(amount):,.4f}"
