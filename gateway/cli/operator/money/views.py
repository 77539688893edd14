"""`tollhouse views`: saved filters for reports, budgets and the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import list_command, request_command
from gateway.cli.operator.resources import (
    add_options,
    add_resource_commands,
    add_resource_options,
    request_body,
)
from gateway.cli.output import JsonObject, as_json, show_fields, show_json
from gateway.cli.parameters import parse_conditions
from spool.registry.views import EXCLUDES, NewView

COLUMNS = ("id", "name", "filter", "principal_dimension", "broken", "last_updated")

_OPTIONS = (
    click.option(
        "--where",
        multiple=True,
        metavar="NAME=VALUE",
        help=(
            "Calls in the view, such as team=search, or team!=search for all other calls. NAME= means "
            "calls without a value. May repeat."
        ),
    ),
    click.option(
        "--notify",
        multiple=True,
        metavar="CHANNEL",
        help="Channel that receives notifications about the view; may repeat.",
    ),
    click.option(
        "--anomalies/--no-anomalies", default=None, help="Report days with unusually high costs, or not."
    ),
    click.option(
        "--growth",
        type=click.IntRange(min=1),
        metavar="PERCENT",
        help=(
            "Report a day whose cost exceeds the day before by this percentage; default: determined "
            "automatically."
        ),
    ),
)


@click.group()
def views() -> None:
    """Manage views, which are saved filters over AI costs."""


list_command(
    views,
    "list",
    root="views",
    columns=COLUMNS,
    filters={
        "name": "Filter by the exact name.",
        "principal_dimension": "",
        "is_broken": "true: only views that cannot be evaluated. false: all others.",
    },
    help="List the views.",
)


views.add_command(
    request_command(
        "create",
        "POST /views",
        "Create a view. Without --where it contains all calls.",
        add_resource_options(NewView, required=("name", "principal_dimension")),
        add_options(_OPTIONS),
        request_body=lambda **given: {"filter": {}, **_view_request_body(**given)},
    )
)


add_resource_commands(
    views,
    NewView,
    noun="view",
    path="/views",
    help={"show": "Show a view by its id or name.", "delete": "Delete a view that no budget or plan uses."},
)


@views.command("edit")
@click.argument("view")
@click.option("--everything", is_flag=True, help="Remove the filter, so that the view contains all calls.")
@add_resource_options(NewView)
@add_options(_OPTIONS)
@as_json
@with_client
def edit_view(client: OperatorClient, view: str, as_json: bool, everything: bool, **given: Any) -> None:
    """Change a view. A new filter or grouping replaces the old one."""
    body = _view_request_body(**given)
    if everything:
        if "filter" in body:
            exit_with_message("use either --where or --everything, not both", 2)
        body["filter"] = {}
    if not body:
        exit_with_message("nothing to change; `tollhouse views edit --help` lists the options", 2)
    _show_view(client.request("PATCH", f"/views/{quote_segment(view)}", body=body), as_json)


def _view_request_body(
    *, where: Sequence[str], notify: Sequence[str], anomalies: bool | None, growth: int | None, **given: Any
) -> JsonObject:
    body = request_body(NewView, given)
    if where:
        body["filter"] = _filter_by_dimension(where)
    if notify:
        body["connections"] = {"notify": list(notify)}
    if growth is not None:
        body["anomalies"] = {
            "threshold_type": "Percent",
            "threshold_value": growth,
            "enabled": anomalies is not False,
        }
    elif anomalies is not None:
        body["anomalies"] = {"enabled": anomalies}
    return body


def _filter_by_dimension(terms: Sequence[str]) -> dict[str, list[str | None]]:
    filters: dict[str, list[str | None]] = {}
    for name, is_excluded, value in parse_conditions(terms):
        filters.setdefault(EXCLUDES + name if is_excluded else name, []).append(value)
    return filters


def _show_view(payload: JsonObject, as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["view"])
