"""`tollhouse report --as-if model=MODEL`: what the same calls would have cost with another model."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import click

from gateway.cli.operator.client import OperatorClient
from gateway.cli.output import JsonObject, show_json, show_table
from gateway.cli.parameters import conditions

_MODEL = "model="


def show_what_if(
    client: OperatorClient,
    as_if: str,
    by: Sequence[str],
    where: Sequence[str],
    once: JsonObject,
    *,
    as_json: bool,
) -> None:
    """Print each group as it cost and as it would have, the largest change first."""
    model = as_if.removeprefix(_MODEL)
    if model == as_if or not model:
        raise click.UsageError("--as-if takes model=MODEL, such as --as-if model=gpt-4.1-mini")
    for _ in conditions(where):  # each is written as one
        pass
    query = [(name, str(value)) for name, value in once.items() if value is not None]
    query += [("model", model), *(("by", name) for name in by), *(("where", term) for term in where)]
    answer = client.request("GET", "/what-if", query=query)
    if as_json:
        show_json(answer)
        return
    names = answer["what_if"]["by"]
    rows = [*answer["rows"], answer["total"] | dict.fromkeys(names, "total")]
    lines = [
        {name: row[name] for name in names}
        | {
            "calls": f"{row['calls']:,}",
            "cost": _money(row["cost"]),
            "as_if": _money(row["as_if"]),
            "saves": _money(row["saves"]),
        }
        for row in rows
    ]
    show_table(lines, (*names, "calls", "cost", "as_if", "saves"))
    told = answer["what_if"]
    click.echo(
        f"{_money(told['saves_a_month'])} a month at this rate. {' '.join(told['assumptions'])}", err=True
    )
    if Decimal(answer["total"]["unchanged"]):
        click.echo(
            f"{_money(answer['total']['unchanged'])} has no list price now and stays as it is", err=True
        )
    if Decimal(told["left_out"]):
        click.echo(f"{_money(told['left_out'])} in small sums is left out", err=True)


def _money(text: str) -> str:
    amount = Decimal(text)
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"
