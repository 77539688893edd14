"""`tollhouse fleet`: how many machines report, why others do not, and the inventory of expected machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import add_commands, filter_help, list_command, request_command
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
from gateway.cli.parameters import Choice

COLUMNS = ("id", "state", "why", "user", "team", "os", "last_seen", "last_call")
MISSING_COLUMNS = ("id", "hostname", "user", "team", "os", "inventory_last_seen")
CAUSE_COLUMNS = ("state", "cause", "devices", "assistants", "repair")
SOURCES = ("jamf", "intune", "kandji", "csv")
_STATES = (
    "revoked, left, pending, copied, missing, losing, agent_stopped, unknown, at_risk, unseen, delayed, reporting or "
    "unused"
)
_FILTERS = {
    "id": "",
    "cause": "Filter by cause: STATE.CAUSE or ASSISTANT.STATE.CAUSE, such as codex.overridden.other_endpoint.",
    "assistant": "Filter by installed assistant, such as codex; may repeat.",
    "link": "Filter by link: online, offline or unknown; may repeat.",
    "covered": "true or false: only machines that count as covered, or that do not.",
    "away": "true: only machines of which nothing was heard for devices.coverage_days. false: only the others.",
    "team": "",
    "system": "Filter by system: macos, windows, linux; may repeat.",
    "user": "",
    "no_report_for": "Only machines without a report for at least this time, such as 12h or 3d.",
    "no_call_for": "Only machines without a call for this time, such as 12h or 3d.",
    "expected": "true: only machines of the inventory. false: only devices that are not in it.",
}


@click.group()
def fleet() -> None:
    """Show which machines and assistants report, and why others do not."""


def _row_with_cause_text(row: JsonObject) -> JsonObject:
    why = ", ".join(filter(None, (_format_cause(each) for each in row["causes"])))
    return {**row, "why": why}


def _format_cause(cause: JsonObject) -> str:
    return f"{cause['state']} ({cause['cause']})" if cause["cause"] else str(cause["state"])


list_command(
    fleet,
    "devices",
    root="devices",
    path="/fleet/devices",
    columns=COLUMNS,
    filters={"state": f"Filter by state: {_STATES}; may repeat.", **_FILTERS},
    shown=_row_with_cause_text,
    help="List the machines of the fleet with the causes why they do not report.",
)


@fleet.command("missing")
@click.option("--team", multiple=True, help=filter_help("team"))
@click.option("--system", multiple=True, help=_FILTERS["system"])
@add_output_form_options
@with_client
def list_missing_machines(client: OperatorClient, form: OutputForm | None, **filters: Sequence[str]) -> None:
    """List all machines of the inventory that never reported."""
    query = [("state", "missing"), *((name, value) for name, values in filters.items() for value in values)]
    rows: list[JsonObject] = []
    with client.client_for_many_requests() as opened:
        while True:
            payload = opened.request("GET", "/fleet/devices", query=[*query, ("limit", "1000")])
            rows += payload["devices"]
            cursor = payload["pagination"]["cursor"]["next_cursor"]
            if cursor is None:
                break
            query = [("cursor", cursor)]
    payload["pagination"] |= {"page_count": 1, "item_count": len(rows)}
    show_list(form, {**payload, "devices": rows}, rows, MISSING_COLUMNS)


@fleet.command("coverage")
@click.option("--since", help="First UTC day of lost calls, such as 2026-11-24.  [default: 7 days]")
@click.option("--until", help="Last UTC day of lost calls, which is included.  [default: today]")
@as_json
@with_client
def show_coverage(client: OperatorClient, as_json: bool, **days: str | None) -> None:
    """Show how many machines report, by state, team and system, and how many calls were lost."""
    query = [(name, day) for name, day in days.items() if day is not None]
    payload = client.request("GET", "/fleet/coverage", query=query)
    if as_json:
        show_json(payload)
        return
    inventory, people = payload["inventory"], payload["people"]
    show_fields(
        {
            "inventory": "none: all devices count"
            if inventory is None
            else f"{inventory['source']}, imported {inventory['imported']}",
            "machines": payload["machines"],
            "covered": f"{payload['covered']} ({_covered_percent_text(payload)})",
            **payload["states"],
            "away": payload["away"],
            "offline": payload["offline"],
            "unexpected": payload["unexpected"],
            "people with a seat but no machine": people["without_machine"],
            "lost calls": _lost_calls_text(payload["losses"]),
        }
    )
    for name in ("team", "system"):
        parts = payload[f"{name}s"]
        if len(parts) > 1:
            click.echo()
            show_table(
                [{**row, "covered": f"{row['covered']} ({_covered_percent_text(row)})"} for row in parts],
                (name, "machines", "covered", *(("lost_calls",) if name == "team" else ())),
            )


def _lost_calls_text(losses: JsonObject) -> str:
    days = f"{losses['since']} to {losses['until']}"
    if not losses["calls"]:
        return f"none known ({days})"
    people, cost = losses["people"], losses["estimated_cost"]
    whose = f" of {people} {'person' if people == 1 else 'people'}" if people else ""
    about = "" if cost is None else f", about {cost} USD"
    return f"at least {losses['calls']}{whose}{about} ({days})"


def _covered_percent_text(part: JsonObject) -> str:
    return "-" if part["covered_percent"] is None else f"{part['covered_percent']} %"


@fleet.command("causes")
@add_output_form_options
@with_client
def show_causes(client: OperatorClient, form: OutputForm | None) -> None:
    """Show why machines do not report: by cause, the machines and their assistants."""
    payload = client.request("GET", "/fleet/coverage")
    show_list(form, payload, payload["causes"], CAUSE_COLUMNS)


@fleet.group()
def inventory() -> None:
    """Import and show the inventory of expected machines."""


@inventory.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--source", type=Choice(SOURCES), required=True, help="The MDM that exported the list, or csv.")
@click.option(
    "--confirm", is_flag=True, help="Import even if the list lacks more than a third of the machines."
)
@click.option("--admit", is_flag=True, help="Also enrol each serial number, for machines without an agent.")
@as_json
@with_client
def import_inventory(client: OperatorClient, file: BinaryIO, as_json: bool, **options: Any) -> None:
    """
    Replace the inventory by the CSV list of an MDM.

    FILE has a column of serial numbers or hostnames, and may have user, e-mail, team, OS and last check-in.
    A list with an unreadable line changes nothing.
    """
    flags = [(name, "true") for name in ("confirm", "admit") if options[name]]
    payload = client.request(
        "PUT", "/fleet/inventory", body=file.read(), query=[("source", options["source"]), *flags]
    )
    if as_json:
        show_json(payload)
        return
    show_fields(
        {
            "machines": payload["inventory"]["machines"],
            **{name: payload[name] for name in payload if name != "inventory"},
        }
    )


add_commands(
    inventory,
    request_command(
        "show",
        "GET /fleet/inventory",
        "Show from where and when the inventory was imported.",
        show_response=lambda payload: _show_inventory(payload),
    ),
)


def _show_inventory(payload: JsonObject) -> None:
    if payload["inventory"] is None:
        click.echo("no inventory is imported: tollhouse fleet inventory import --help")
    else:
        show_fields(payload["inventory"])
