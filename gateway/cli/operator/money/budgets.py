"""The command `tollhouse budgets`: manage budgets, and show their spend and alerts."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import add_commands, confirm_option, list_command, request_command
from gateway.cli.operator.resources import add_options, add_resource_options, request_body
from gateway.cli.output import JsonObject, as_json, show_fields, show_json, show_table
from gateway.money.budgets.declared import EXPANSIONS, GRANULARITIES, KINDS, STATES, NewBudget
from spool.registry.notices import PARKED

COLUMNS = (
    "id",
    "name",
    "granularity",
    "measure",
    "per_label",
    "default_amount",
    "currency",
    "percent",
    "state",
    "problem",
)
OWNER_COLUMNS = ("owner", "actual", "planned", "percent", "forecast", "unpriced_calls", "fired")
ALERT_COLUMNS = ("period", "owner", "kind", "percent", "state", "value", "planned", "told", "fired_at")
USUAL_ALERTS = (80, 100)  # alert thresholds in percent that the console suggests as well

_OPTIONS = (
    click.option("--view", metavar="VIEW", help="View whose calls count, by id or name."),
    click.option(
        "--plan",
        multiple=True,
        metavar="DAY=AMOUNT",
        help="Amount of the period that begins on this day; may repeat.",
    ),
    click.option(
        "--alert",
        multiple=True,
        type=int,
        metavar="PERCENT",
        help="Alert threshold for actual spend, in percent of the amount; may repeat. A new budget without "
        "thresholds has 80 and 100.",
    ),
    click.option(
        "--forecast-alert",
        multiple=True,
        type=int,
        metavar="PERCENT",
        help="Alert threshold for the forecast of the period, in percent of the amount; may repeat.",
    ),
    click.option(
        "--silent-until",
        metavar="DAY",
        help="Day (UTC) until which no notices are sent. Crossings are only shown.",
    ),
    click.option("--silence-reason", default="", help="Reason for the silence."),
)


@click.group()
def budgets() -> None:
    """Create, list, change and delete budgets. Budgets warn; they never block a call."""


list_command(
    budgets,
    "list",
    click.option("--view", multiple=True, metavar="ID", help="Only budgets of this view; may repeat."),
    click.option("--granularity", multiple=True, type=click.Choice(GRANULARITIES)),
    click.option(
        "--measure",
        multiple=True,
        help="Only budgets of cost, tokens, calls, or a meter such as web_searches.",
    ),
    click.option("--expand", multiple=True, type=click.Choice(("current", "forecast")), help="With --json."),
    root="budgets",
    columns=COLUMNS,
    help="List the budgets. `percent` is from the last evaluation, for the owner with the highest percentage.",
)


@budgets.command("create")
@add_resource_options(NewBudget)
@add_options(_OPTIONS)
@as_json
@with_client
def create_budget(client: OperatorClient, as_json: bool, **given: Any) -> None:
    """Create a budget. Thresholds that are already crossed are listed and cause no alert."""
    if not given["name"] or not given["view"]:
        exit_with_message("a budget needs --name and --view", 2)
    if not given["alert"] and not given["forecast_alert"]:
        given["alert"] = USUAL_ALERTS
        click.echo("no --alert given: the budget alerts at 80 % and 100 %", err=True)
    _show_saved_budget(client.request("POST", "/budgets", body=_budget_request_body(client, given)), as_json)
    warn_about_channels(client)


@budgets.command("show")
@click.argument("id")
@click.option(
    "--expand",
    multiple=True,
    type=click.Choice(EXPANSIONS),
    help="Additional sections, such as history or forecast; default: current.",
)
@as_json
@with_client
def show_budget(client: OperatorClient, id: str, expand: tuple[str, ...], as_json: bool) -> None:
    """Show a budget and its spend."""
    query = [("expand", expansion) for expansion in expand or ("current",)]
    payload = client.request("GET", f"/budgets/{quote_segment(id)}", query=query)
    if as_json:
        show_json(payload)
        return
    fields = dict(payload["budget"])
    parts = {name: fields.pop(name) for name in EXPANSIONS if name in fields}
    show_fields(fields)
    for name in (name for name in parts if parts[name] is not None):
        click.echo(f"\n{name}")
        _show_budget_section(name, parts[name])


@budgets.command("edit")
@click.argument("id")
@add_resource_options(NewBudget)
@add_options(_OPTIONS)
@as_json
@with_client
def edit_budget(client: OperatorClient, id: str, as_json: bool, **given: Any) -> None:
    """Change a budget. Changing the amount, view, zone or thresholds evaluates the current period again."""
    body = _budget_request_body(client, given)
    if not body:
        exit_with_message("no change given; use at least one option, such as --amount", 2)
    _show_saved_budget(client.request("PATCH", f"/budgets/{quote_segment(id)}", body=body), as_json)
    warn_about_channels(client)


add_commands(
    budgets,
    request_command(
        "delete ID",
        "DELETE /budgets/{id}",
        "Delete a budget and its alerts. Waiting notices are still sent.",
        confirm_option("NAME", "Exact name of the budget, as confirmation."),
        show_response="budget {id} deleted",
    ),
)


list_command(
    budgets,
    "owners ID",
    click.option("--owner", multiple=True, help="May repeat."),
    click.option(
        "--is-past",
        multiple=True,
        type=click.Choice(("true", "false")),
        help="Only owners that crossed a threshold (true), or only owners that did not (false).",
    ),
    root="owners",
    path="/budgets/{id}/owners",
    columns=OWNER_COLUMNS,
    help="List the spend of each owner in the current period.",
)


list_command(
    budgets,
    "alerts ID",
    click.option("--state", multiple=True, type=click.Choice(STATES), help="May repeat."),
    click.option("--kind", multiple=True, type=click.Choice(KINDS), help="May repeat."),
    click.option(
        "--period", multiple=True, metavar="DAY", help="Only periods that begin on this day; may repeat."
    ),
    click.option("--owner", multiple=True, help="May repeat."),
    root="alerts",
    path="/budgets/{id}/alerts",
    columns=ALERT_COLUMNS,
    help="List the alerts of a budget with their states: pending, fired, corrected or cleared.",
)


def _show_evaluation(payload: JsonObject) -> None:
    done = payload["evaluation"]
    if done["waits"]:
        click.echo(f"not evaluated: {done['waits']}", err=True)
        return
    click.echo(f"evaluated {done['evaluated']}, alerts sent: {done['told']}")
    if done["broken"]:
        click.echo(
            f"{done['broken']} budgets cannot be evaluated; see the reasons with tollhouse budgets list",
            err=True,
        )


budgets.add_command(
    request_command(
        "evaluate",
        "POST /budgets/evaluate",
        "Evaluate all budgets now. A running server does so every ten minutes.",
        show_response=_show_evaluation,
    )
)


@budgets.command("verdict-key")
@click.option("--bundle", is_flag=True, help="Show the key of the bundle for Open Policy Agent instead.")
@as_json
@with_client
def show_verdict_key(client: OperatorClient, bundle: bool, as_json: bool) -> None:
    """Show the public key that checks the signature of GET /v2/budgets/verdicts, or of its bundle."""
    payload = client.request("GET", "/budgets/verdict-key")
    if as_json:
        show_json(payload)
    else:
        click.echo(payload["bundle_key" if bundle else "public_key"], nl=False)


def warn_about_channels(client: OperatorClient) -> None:
    """Warn on stderr about channels that send nothing, and if there is no channel, because alerts then reach nobody."""
    channels = client.request("GET", "/channel-names")["channel_names"]
    for channel in channels:
        if channel["state"] == PARKED:
            click.echo(
                f"the channel {channel['name']} is paused, so it sends nothing; see why with "
                "tollhouse notifications channels list",
                err=True,
            )
    if not channels:
        click.echo(
            "nobody will be notified: there is no channel. Add Slack, Teams or mail with "
            "tollhouse notifications channels create",
            err=True,
        )


def _budget_request_body(client: OperatorClient, options: JsonObject) -> JsonObject:
    view = options["view"] and client.request("GET", f"/views/{quote_segment(options['view'])}")["view"]["id"]
    plain = {name: value for name, value in options.items() if name != "view"}
    body: dict[str, Any] = {
        **request_body(NewBudget, plain),
        "view": view and {"id": view},
        "planned_limits": _parse_planned_limits(options["plan"], options["granularity"] or "monthly"),
        "alerts": {str(percent): "Y" for percent in options["alert"]} or None,
        "forecast_alerts": {str(percent): "Y" for percent in options["forecast_alert"]} or None,
        "silence": options["silent_until"]
        and {"until": options["silent_until"], "reason": options["silence_reason"]},
    }
    return {field: value for field, value in body.items() if value is not None}


def _parse_planned_limits(plan: tuple[str, ...], every: str) -> JsonObject | None:
    if not plan:
        return None
    amounts = {}
    for entry in plan:
        day, mark, amount = entry.partition("=")
        if not mark:
            exit_with_message(f"--plan must be DAY=AMOUNT, such as 2026-11-01=1000, but is {entry}", 2)
        amounts[day] = {"amount": amount}
    return {every: amounts}


def _show_saved_budget(payload: JsonObject, as_json: bool) -> None:
    if as_json:
        show_json(payload)
        return
    show_fields(payload["budget"])
    if payload["already_past"]:
        crossed_percents = ", ".join(f"{percent} %" for percent in payload["already_past"])
        click.echo(f"already crossed, so no alert is sent: {crossed_percents}", err=True)


def _show_budget_section(name: str, expansion: JsonObject) -> None:
    if name in ("current", "forecast"):
        show_fields(expansion)
        return
    for granularity, periods in expansion.items():
        rows = [{granularity: day, **values} for day, values in periods.items()]
        show_table(rows, (granularity, "actual", "planned"))
