"""The `tollhouse plans` commands."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any, BinaryIO, TextIO

import click
import msgspec

from gateway.bills.plans.declared import NewPlan, Seat
from gateway.bills.plans.seat_lists import (
    ListedSeat,
    merge_seat_list,
    parse_seat_list,
    parse_user_names,
    read_bounded,
    seats_of_tier,
)
from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import add_resource_commands, request_body
from gateway.cli.output import (
    JsonObject,
    OutputForm,
    add_output_form_options,
    as_json,
    show_fields,
    show_json,
    show_list,
    show_table,
)
from spool.errors import Invalid
from spool.money import unconverted_amounts_sentence
from spool.printable import replace_unprintable
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
        help="A seat, such as ann@example.com,2026-11-01; may repeat.",
    ),
    click.option(
        "--seats",
        type=click.File(encoding="utf-8-sig"),
        metavar="FILE",
        help="A CSV file of seats with the columns user, since, until and team; - reads standard input.",
    ),
)


@click.group()
def plans() -> None:
    """Manage plans of assistants, and show their costs."""


list_command(
    plans,
    "list",
    root="plans",
    columns=COLUMNS,
    filters={"name": "Only the plan with this exact name.", "view": "Only plans with this view id."},
    shown=lambda row: {**row, "seats": len(row["seats"])},
    help="List plans in order of precedence. If two plans cover a call, the first one applies.",
)


def _plan_request_body(*, seat: Sequence[str], seats: TextIO | None, **given: Any) -> JsonObject:
    body = request_body(NewPlan, given)
    if seat and seats is not None:
        exit_with_message("use either --seat or --seats, not both", 2)
    if seat:
        body["seats"] = [_parse_seat(row) for row in csv.reader(seat)]
    if seats is not None:
        body["seats"] = list(_parse_seat_file(csv.reader(seats)))
    return body


def _parse_seat_file(rows: Iterable[list[str]]) -> Iterable[dict[str, str]]:
    for row_index, row in enumerate(rows):
        is_head = not row_index and row[:2] == list(_FIELDS[:2])
        if row and not is_head:
            yield _parse_seat(row)


def _parse_seat(row: list[str]) -> dict[str, str]:
    cells = [cell.strip() for cell in row]
    if not 2 <= len(cells) <= len(_FIELDS):
        exit_with_message(f"{','.join(row)} is not a seat: write USER,SINCE[,UNTIL[,TEAM]]", 2)
    return dict(zip(_FIELDS, cells, strict=False))


def _row_with_seat_text(plan: JsonObject) -> JsonObject:
    return {**plan, "seats": ", ".join(f"{seat['user']} since {seat['since']}" for seat in plan["seats"])}


add_resource_commands(
    plans,
    NewPlan,
    noun="plan",
    path="/plans",
    help={
        "create": "Create a plan of an assistant: its fee, what it includes, and its seats.",
        "show": "Show a plan, by id or name.",
        "edit": "Change a plan. Given options replace the current values; --seat and --seats replace all seats.",
        "delete": "Delete a plan. Its calls count as pay-as-you-go again.",
    },
    shown=_row_with_seat_text,
    options=_OPTIONS,
    body=_plan_request_body,
)


@plans.command("seats")
@click.argument("plan")
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@click.option("--tier", default="", help="Only seats of this tier, such as business.")
@click.option(
    "--names",
    type=click.File("rb"),
    metavar="FILE",
    help="A CSV file with two columns: the name in the list, and the user name in telemetry.",
)
@click.option("--day", metavar="DAY", help="The day of the list; default: today (UTC).")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@as_json
@with_client
def update_seats_from_list(
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
    Update the seats of a plan from a vendor's list.

    FILES are all pages of GitHub's /orgs/ORG/copilot/billing/seats, Cursor's /teams/members or /teams/spend,
    Claude's /v1/organizations/users, or Google's licensed users. A CSV table with a column of users or
    addresses works as well. New people get a seat from the day that the list states, or from today. The seats
    of people who are no longer in the list end today.
    """
    today = _parse_day_or_today(day)
    before = client.request("GET", f"/plans/{quote_segment(plan)}")["plan"]
    seats = tuple(Seat(**seat) for seat in before["seats"])
    try:
        listed = list(chain.from_iterable(_read_seat_lists(files)))
        known = None if names is None else parse_user_names(names.name, read_bounded(names, names.name))
        changes = merge_seat_list(
            seats, seats_of_tier(listed, tier=tier, telemetry_user_by_listed_user=known), today
        )
    except Invalid as error:
        exit_with_message(str(error), 2)
    _warn_about_other_cycle_day(listed, before["cycle_day"])
    if changes.repeats:
        click.echo(changes.repeats, err=True)
    for word, users in (("new", changes.added), ("ended", changes.ended)):
        for user in users:
            click.echo(f"{word}: {replace_unprintable(user)}", err=True)
    if dry_run:
        return
    body = {"seats": [msgspec.to_builtins(seat) for seat in changes.seats], "version": before["version"]}
    changed = client.request("PATCH", f"/plans/{quote_segment(plan)}", body=body)
    show_json(changed) if as_json else show_fields(_row_with_seat_text(changed["plan"]))


def _warn_about_other_cycle_day(listed: Sequence[ListedSeat], cycle_day: int) -> None:
    for start in sorted({seat.cycle_start for seat in listed} - {""}):
        day = date.fromisoformat(start).day
        if day != cycle_day:
            message = (
                f"the billing cycle of the list began on {start}, but cycles of the plan begin on day "
                f"{cycle_day}"
            )
            click.echo(f"{message}; to change the plan, use tollhouse plans edit --cycle-day {day}", err=True)


def _read_seat_lists(files: Sequence[BinaryIO]) -> Iterator[Sequence[ListedSeat]]:
    contents = [(file.name, read_bounded(file, file.name)) for file in files]
    if all(content.lstrip()[:1] in (b"{", b"[") for _, content in contents):
        pages = b",".join(content.strip().removeprefix(b"[").removesuffix(b"]") for _, content in contents)
        yield parse_seat_list(", ".join(name for name, _ in contents), b"[" + pages + b"]")
        return
    for name, content in contents:
        yield parse_seat_list(name, content)


def _parse_day_or_today(day: str | None) -> str:
    try:
        return (datetime.now(UTC).date() if day is None else date.fromisoformat(day)).isoformat()
    except ValueError:
        exit_with_message("--day must be a day such as 2026-11-20", 2)


@plans.command("costs")
@click.option(
    "--month", metavar="YYYY-MM", help="A calendar month (UTC), such as 2026-10; default: the current month."
)
@click.option("--by-seat", is_flag=True, help="Show one line per seat.")
@click.option(
    "--idle", is_flag=True, help="Show seats without calls in a billing cycle that ended in the month."
)
@click.option(
    "--differences",
    is_flag=True,
    help="Show differences between the plans and the provider's bills for the month.",
)
@click.option("--currency", metavar="CODE", help="The currency of amounts, such as EUR; default: USD.")
@add_output_form_options
@with_client
def show_plan_costs(
    client: OperatorClient,
    month: str | None,
    by_seat: bool,
    idle: bool,
    differences: bool,
    currency: str | None,
    form: OutputForm | None,
) -> None:
    """
    Show the costs of plans in a month, next to the value of their included usage.

    "paid" is seat fees, overage, calls that no plan covers, and contracts. "included usage" is the covered usage
    at list prices. It was not paid separately.
    """
    parameters = (("month", month), ("currency", currency))
    query = [(name, value) for name, value in parameters if value]
    answer = client.request("GET", "/plan-costs", query=query)
    if idle:
        show_list(form, answer, answer["idle_seats"], _IDLE)
        return
    if differences:
        show_list(form, answer, answer["differences"], _DIFFERENCES)
        return
    names = ("plan", "user", "team") if by_seat else ("name", "seats")
    columns = (*names, *_SUMS, "unit", *_QUANTITIES)
    shown = answer["rows" if by_seat else "plans"]
    if form is not None:
        show_list(form, answer, shown, columns)
        return
    code = answer["plan_costs"]["currency"]
    total = answer["total"]
    rows = [_format_cost_row(row, code) for row in shown]
    rows.append(_format_cost_row({names[0]: "no plan", "paid": total["metered"]}, code))
    if Decimal(total["contracts"]):
        rows.append(_format_cost_row({names[0]: "contracts", "paid": total["contracts"]}, code))
    rows.append(_format_cost_row({names[0]: "total", **total}, code))
    show_table(rows, columns)
    if by_seat and answer["plan_costs"]["truncated"]:
        click.echo(
            f"showing only the first of {answer['plan_costs']['row_count']} seats; the total includes "
            "all of them",
            err=True,
        )
    _warn_about_missing_rates(total, code)
    for plan in answer["plans"]:
        if plan["unmet"]:
            click.echo(f"{replace_unprintable(plan['name'])}: {replace_unprintable(plan['unmet'])}", err=True)


def _warn_about_missing_rates(total: JsonObject, currency: str) -> None:
    for lacking in (total["unconverted"], total["included_unconverted"]):
        if lacking:
            click.echo(unconverted_amounts_sentence(lacking, currency), err=True)


def _format_cost_row(row: JsonObject, currency: str) -> JsonObject:
    before, behind = ("$", "") if currency == CURRENCY else ("", f" {currency}")
    names = (*_SUMS, "metered")
    sums = {name: f"{before}{Decimal(row[name]):,.2f}{behind}" for name in names if name in row}
    quantities = {name: f"{Decimal(row[name]):,.2f}" for name in _QUANTITIES if name in row}
    return {**row, **sums, **quantities}
