"""`tollhouse plans`: seats of assistants, what they include, and what they came to."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, TextIO

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.operator.resources import body_of, described_by, resource_commands
from gateway.cli.output import as_json, show_fields, show_json, show_table
from gateway.resources.plans import NewPlan

COLUMNS = ("id", "name", "view_name", "fee", "included", "unit", "is_pooled", "overage_price", "seats")
_SUMS = ("paid", "fees", "overage", "included_value")
_QUANTITIES = ("used", "beyond")
_ADVICE = ("kind", "plan", "user", "team", "instead", "saves", "formula")
_FIELDS = ("user", "since", "until", "team")
_OPTIONS = (
    click.option("--seat", multiple=True, metavar="USER,SINCE[,UNTIL[,TEAM]]",
                 help="Who has a seat since when, such as ann@example.com,2026-11-01; may repeat."),
    click.option("--seats", type=click.File(encoding="utf-8-sig"), metavar="FILE",
                 help="A CSV file of seats, with the columns user, since, until and team; - is standard input."),
)  # fmt: skip


@click.group()
def plans() -> None:
    """Create, list, change and delete plans of assistants, and see what they came to."""


list_command(
    plans,
    "list",
    root="plans",
    columns=COLUMNS,
    filters={"name": "The exact name.", "view": "The id of a view."},
    shown=lambda row: {**row, "seats": len(row["seats"])},
    help="List the plans in their order: of two that cover a call, the first does.",
)


def _described(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options that are written in a way of their own."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@plans.command()
@described_by(NewPlan, required=("name", "view"))
@_described
@as_json
@with_client
def create(client: OperatorClient, as_json: bool, **given: Any) -> None:
    """Create a plan of an assistant: what a seat costs and includes, and who has one."""
    _show(client.request("POST", "/plans", body=_fields(**given)), as_json)


resource_commands(
    plans,
    NewPlan,
    noun="plan",
    path="/plans",
    help={
        "show": "Show a plan, by its id or its name.",
        "delete": "Delete a plan: its calls count as metered.",
    },
)


@plans.command()
@click.argument("plan")
@described_by(NewPlan)
@_described
@as_json
@with_client
def edit(client: OperatorClient, plan: str, as_json: bool, **given: Any) -> None:
    """Change a plan. What is given replaces what was there: --seat and --seats all of its seats."""
    body = _fields(**given)
    if not body:
        fail("say what to change; tollhouse plans edit --help lists what can be", 2)
    _show(client.request("PATCH", f"/plans/{part(plan)}", body=body), as_json)


@plans.command()
@click.option(
    "--month", metavar="YYYY-MM", help="A calendar month (UTC), such as 2026-10; default: the running one."
)
@click.option("--by-seat", is_flag=True, help="A line for each seat.")
@click.option(
    "--advice", is_flag=True, help="Seats that nobody used, and those that another plan serves for less."
)
@as_json
@with_client
def costs(client: OperatorClient, month: str | None, by_seat: bool, advice: bool, as_json: bool) -> None:
    """
    Show what plans came to in a month: paid, and beside it the value of what they include.

    Paid are the fees of seats, what was used beyond, and the calls that no plan covers. The value of what a plan
    includes is at list prices: nobody paid it.
    """
    answer = client.request("GET", "/plan-costs", query=[("month", month)] if month else [])
    if as_json:
        show_json(answer)
        return
    if advice:
        show_table(answer["advice"], _ADVICE)
        return
    total = answer["total"]
    names = ("plan", "user", "team") if by_seat else ("name", "seats")
    rows = [_readable(row) for row in answer["rows" if by_seat else "plans"]]
    rows.append(_readable({names[0]: "no plan", "paid": total["metered"]}))
    rows.append(_readable({names[0]: "total", **total}))
    show_table(rows, (*names, *_SUMS, "unit", *_QUANTITIES))
    if by_seat and answer["plan_costs"]["truncated"]:
        click.echo(
            f"{answer['plan_costs']['row_count']} seats; these are the first, the total is of all", err=True
        )


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """Money with two decimals, quantities with at most two."""
    sums = {name: f"${Decimal(row[name]):,.2f}" for name in _SUMS if name in row}
    quantities = {name: f"{Decimal(row[name]):,.2f}" for name in _QUANTITIES if name in row}
    return {**row, **sums, **quantities}


def _fields(*, seat: Sequence[str], seats: TextIO | None, **given: Any) -> dict[str, Any]:
    """The body of a request: what was given."""
    body = body_of(NewPlan, given)
    if seat and seats is not None:
        fail("give either --seat or --seats", 2)
    if seat:
        body["seats"] = [_seat(row) for row in csv.reader(seat)]
    if seats is not None:
        body["seats"] = list(_seats_of(csv.reader(seats)))
    return body


def _seats_of(rows: Iterable[list[str]]) -> Iterable[dict[str, str]]:
    """The seats of a file, whose first line may name the columns."""
    for place, row in enumerate(rows):
        is_head = not place and row[:2] == list(_FIELDS[:2])
        if row and not is_head:
            yield _seat(row)


def _seat(row: list[str]) -> dict[str, str]:
    cells = [cell.strip() for cell in row]
    if not 2 <= len(cells) <= len(_FIELDS):
        fail(f"{','.join(row)} is no seat: write USER,SINCE[,UNTIL[,TEAM]]", 2)
    return dict(zip(_FIELDS, cells, strict=False))


def _show(payload: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(payload)
        return
    plan = payload["plan"]
    show_fields(
        {**plan, "seats": ", ".join(f"{seat['user']} since {seat['since']}" for seat in plan["seats"])}
    )
