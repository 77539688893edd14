"""`tollhouse enforcers`: limits that others enforce, compared with the totals."""

from __future__ import annotations

import sys

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.output import OutputForm, add_output_form_options, show_list

COLUMNS = (
    "enforcer",
    "kind",
    "name",
    "window",
    "limit",
    "spent",
    "ours_at_least",
    "ours_at_most",
    "state",
    "reason",
)
READ_COLUMNS = ("name", "type", "limits", "last_success", "next_at", "reason")


@click.group()
def enforcers() -> None:
    """Compare limits of gateways and providers with counted costs."""


list_command(
    enforcers,
    "list",
    root="enforcer_limits",
    columns=COLUMNS,
    filters={
        "enforcer": "Filter by the name of an enforcer.",
        "kind": "Filter by kind: key, team, user, organization or project.",
        "state": "Filter by state: agrees, differs or not_compared.",
    },
    help="List the limits of enforcers with their counters and our sums.",
)


@enforcers.command("read")
@click.option("--name", metavar="NAME", help="Name of one of [[enforcers]]; default: all of them.")
@add_output_form_options
@with_client
def read_enforcer_limits(client: OperatorClient, name: str | None, form: OutputForm | None) -> None:
    """Read the limits of the enforcers now. Exit code 1 if one cannot be read."""
    payload = client.request("POST", "/enforcers/read", body={"name": name})
    show_list(form, payload, payload["enforcers"], READ_COLUMNS)
    if any(enforcer["reason"] for enforcer in payload["enforcers"]):
        sys.exit(1)
