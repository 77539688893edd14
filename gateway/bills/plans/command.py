"""`tollhouse plans`: seats of assistants, what they include, and what they came to."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any, BinaryIO, TextIO

import click

from gateway.bills.plans.declared import NewPlan, Seat
from gateway.bills.plans.seat_lists import ListedSeat, chosen, merged, read_bounded, read_list, read_names
from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import body_of, described_by, resource_commands, with_options
from gateway.cli.output import JsonObject, as_json, show_fields, show_json, show_table
from spool.errors import Invalid
from spool.ledger.money import unconverted_words
from spool.printable import printable
from spool.record import CURRENCY

COLUMNS = (
    "id",
    "name",
    "view_name",
    "fee",
    "currency",
    "included",
    "unit",
    "is_pooled",
    "cycle_day",
    "overage_price",
    "seats",
)
_SUMS = ("paid", "fees", "overage", "included_value")
_QUANTITIES = ("used", "beyond")
_DIFFERENCES = ("provider", "cause", "billed", "counted", "difference", "billed_seats", "counted_seats")
_IDLE = ("plan", "user", "team", "fee", "first_day", "last_day")
_FIELDS = ("user", "since", "until", "team")
_OPTIONS = (
    click.option(
        "--seat",
        multiple=True,
        metavar="USER,SINCE[,UNTIL[,TEAM]]",
        help="Who has a seat since when, such as ann@example.com,2026-11-01; may repeat.",
    ),
    click.option(
        "--seats",
        type=click.File(encoding="utf-8-sig"),
        metavar="FILE",
        help="A CSV file of seats, with the columns user, since, until and team; - is standard input.",
    ),
)


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


@plans.command()
@described_by(NewPlan, required=("name", "view"))
@with_options(_OPTIONS)
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
@with_options(_OPTIONS)
@as_json
@with_client
def edit(client: OperatorClient, plan: str, as_json: bool, **given: Any) -> None:
    """Change a plan. What is given replaces what was there: --seat and --seats all of its seats."""
    body = _fields(**given)
    if not body:
        fail("say what to change; tollhouse plans edit --help lists what can be", 2)
    _show(client.request("PATCH", f"/plans/{part(plan)}", body=body), as_json)


@plans.command("seats")
@click.argument("plan")
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@click.option("--tier", default="", help="Only the seats of this tier, such as business.")
@click.option(
    "--names",
    type=click.File("rb"),
    metavar="FILE",
    help="A CSV file of names of the list and of what telemetry calls these people.",
)
@click.option("--day", metavar="DAY", help="The day of which the list is; default: today (UTC).")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@as_json
@with_client
def fill(
    client: OperatorClient,
    plan: str,
    files: Sequence[BinaryIO],
    tier: str,
    names: BinaryIO | None,
    day: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """
    Take the seats of a plan from a list of its vendor.

    FILES are all pages of GitHub's /orgs/ORG/copilot/billing/seats, of Cursor's /teams/members or
    /teams/spend, of Claude's /v1/organizations/users, of Google's licensed users, or a table (CSV) with a
    column of users or addresses. Who is new in the list has a seat since the day that it states, else since
    today; who is not in it any more had one until today.
    """
    today = _today(day)
    before = client.request("GET", f"/plans/{part(plan)}")["plan"]
    seats = tuple(Seat(**seat) for seat in before["seats"])
    try:
        listed = list(chain.from_iterable(_lists(files)))
        known = None if names is None else read_names(names.name, read_bounded(names, names.name))
        changes = merged(seats, chosen(listed, tier=tier, names=known), today)
    except Invalid as error:
        fail(str(error), 2)
    _tell_cycle(listed, before["cycle_day"])
    if changes.repeats:
        click.echo(changes.repeats, err=True)
    for word, users in (("new", changes.added), ("ended", changes.ended)):
        for user in users:
            click.echo(f"{word}: {printable(user)}", err=True)
    if dry_run:
        return
    body = {"seats": [asdict(seat) for seat in changes.seats], "version": before["version"]}
    _show(client.request("PATCH", f"/plans/{part(plan)}", body=body), as_json)


def _tell_cycle(listed: Sequence[ListedSeat], cycle_day: int) -> None:
    """Say so if the list has a billing cycle that begins on another day than the plan's."""
    for start in sorted({seat.cycle_start for seat in listed} - {""}):
        day = date.fromisoformat(start).day
        if day != cycle_day:
            words = (
                f"the list has a billing cycle since {start}, and those of the plan begin on day {cycle_day}"
            )
            click.echo(f"{words}: tollhouse plans edit --cycle-day {day}", err=True)


def _lists(files: Sequence[BinaryIO]) -> Iterator[Sequence[ListedSeat]]:
    """Yield the seats of each file; pages of an API are one list."""
    contents = [(file.name, read_bounded(file, file.name)) for file in files]
    if all(content.lstrip()[:1] in (b"{", b"[") for _, content in contents):
        pages = b",".join(content.strip().removeprefix(b"[").removesuffix(b"]") for _, content in contents)
        yield read_list(", ".join(name for name, _ in contents), b"[" + pages + b"]")
        return
    for name, content in contents:
        yield read_list(name, content)


def _today(day: str | None) -> str:
    try:
        return (datetime.now(UTC).date() if day is None else date.fromisoformat(day)).isoformat()
    except ValueError:
        fail("--day must be a day such as 2026-11-20", 2)


@plans.command()
@click.option(
    "--month", metavar="YYYY-MM", help="A calendar month (UTC), such as 2026-10; default: the running one."
)
@click.option("--by-seat", is_flag=True, help="A line for each seat.")
@click.option("--idle", is_flag=True, help="Seats without a call in a billing cycle that ended in the month.")
@click.option(
    "--differences", is_flag=True, help="What statements of the whole month tell apart from the plans."
)
@click.option("--currency", metavar="CODE", help="Show money in this currency, such as EUR; default: USD.")
@as_json
@with_client
def costs(
    client: OperatorClient,
    month: str | None,
    by_seat: bool,
    idle: bool,
    differences: bool,
    currency: str | None,
    as_json: bool,
) -> None:
    """
    Show what plans came to in a month: paid, and beside it the value of what they include.

    Paid are the fees of seats, what was used beyond, and the calls that no plan covers. The value of what a plan
    includes is at list prices: nobody paid it.
    """
    given = (("month", month), ("currency", currency))
    query = [(name, value) for name, value in given if value]
    answer = client.request("GET", "/plan-costs", query=query)
    if as_json:
        show_json(answer)
        return
    if idle:
        show_table(answer["idle_seats"], _IDLE)
        return
    if differences:
        show_table(answer["differences"], _DIFFERENCES)
        return
    code = answer["plan_costs"]["currency"]
    total = answer["total"]
    names = ("plan", "user", "team") if by_seat else ("name", "seats")
    rows = [_readable(row, code) for row in answer["rows" if by_seat else "plans"]]
    rows.append(_readable({names[0]: "no plan", "paid": total["metered"]}, code))
    rows.append(_readable({names[0]: "total", **total}, code))
    show_table(rows, (*names, *_SUMS, "unit", *_QUANTITIES))
    if by_seat and answer["plan_costs"]["truncated"]:
        click.echo(
            f"{answer['plan_costs']['row_count']} seats; these are the first, the total is of all", err=True
        )
    _name_lacking(total, code)


def _name_lacking(total: JsonObject, currency: str) -> None:
    for lacking in (total["unconverted"], total["included_unconverted"]):
        if lacking:
            click.echo(unconverted_words(lacking, currency), err=True)


def _readable(row: JsonObject, currency: str) -> JsonObject:
    """Money with two decimals, quantities with at most two."""
    before, behind = ("$", "") if currency == CURRENCY else ("", f" {currency}")
    names = (*_SUMS, "metered")
    sums = {name: f"{before}{Decimal(row[name]):,.2f}{behind}" for name in names if name in row}
    quantities = {name: f"{Decimal(row[name]):,.2f}" for name in _QUANTITIES if name in row}
    return {**row, **sums, **quantities}


def _fields(*, seat: Sequence[str], seats: TextIO | None, **given: Any) -> JsonObject:
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


def _show(payload: JsonObject, as_json: bool) -> None:
    if as_json:
        show_json(payload)
        return
    plan = payload["plan"]
    show_fields(
        {**plan, "seats": ", ".join(f"{seat['user']} since {seat['since']}" for seat in plan["seats"])}
    )
