"""`tollhouse recommendations`: possible savings, and the decisions that people made about them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import click
import orjson

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.cli.output import JsonObject, as_json, readable_value, show_fields, show_json, show_table
from spool.ledger.dimensions import DIMENSIONS
from spool.printable import replace_unprintable
from spool.registry.insights import STATUSES
from spool.registry.recommendations import CONFIDENCES

_CONFIDENCES = ", ".join(f"{name} ({readable_value('confidence', name)})" for name in CONFIDENCES)
COLUMNS = ("id", "type", "status", "open", "monthly_savings", "confidence", "effort", "title")
TYPE_COLUMNS = ("type", "enabled", "thresholds", "confidence", "effort", "title")
COMMENT_COLUMNS = ("id", "author", "created", "message")


@click.group()
def recommendations() -> None:
    """List and handle possible savings."""


list_command(
    recommendations,
    "list",
    root="recommendations",
    columns=COLUMNS,
    money=("monthly_savings",),
    filters={
        "type": "Filter by type; `tollhouse recommendations types list` lists them.",
        "status": f"Filter by status: {', '.join(STATUSES)}; may repeat.",
        "open": "true: only recommendations that the last check found again. false: only closed ones.",
        "confidence": f"Filter by confidence: {_CONFIDENCES}.",
        "assignee": "",
        **dict.fromkeys(DIMENSIONS, ""),
    },
    help="List the recommendations, largest savings first.",
)


@recommendations.group()
def comments() -> None:
    """List, create, change and delete the comments on recommendations."""


@recommendations.group()
def types() -> None:
    """List and show the types of recommendations, and change their minimum savings."""


list_command(
    comments,
    "list ID",
    root="comments",
    path="/recommendations/{id}/comments",
    columns=COMMENT_COLUMNS,
    help="List the comments on a recommendation.",
)

list_command(
    types,
    "list",
    root="recommendation_types",
    columns=TYPE_COLUMNS,
    filters={
        "enabled": "true: only enabled types. false: only disabled types.",
        "confidence": f"Filter by confidence: {_CONFIDENCES}; may repeat.",
    },
    help="List the types of recommendations with their minimum savings.",
)

list_command(
    recommendations,
    "dimensions",
    root="dimensions",
    path="/recommendation-dimensions",
    columns=("id", "values"),
    help="List the dimensions for --filter, with the values of open recommendations.",
)


@recommendations.command("edit")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--status", type=click.Choice(STATUSES), help="New status.")
@click.option("--assignee", help="Person who works on it; an empty text removes the person.")
@as_json
@with_client
def edit_recommendations(
    client: OperatorClient, ids: tuple[str, ...], status: str | None, assignee: str | None, as_json: bool
) -> None:
    """
    Change the status or the assignee of recommendations.

    Tollhouse measures what an addressed recommendation saves. If it is found again, it becomes new again.
    """
    changes = {
        name: value for name, value in (("status", status), ("assignee", assignee)) if value is not None
    }
    if not changes:
        raise click.UsageError("nothing to change: give --status or --assignee")
    payload = client.request("PATCH", "/recommendations", body={"ids": list(ids), **changes})
    rows = payload["recommendations"]
    show_json(payload) if as_json else show_table(rows, ("id", "status", "assignee", "error"))
    if any("error" in row for row in rows):
        raise SystemExit(1)


@types.command("edit")
@click.argument("name", metavar="TYPE")
@click.option(
    "--enable/--disable",
    "enabled",
    default=None,
    help="Enable the type, or disable it and close its recommendations.",
)
@click.option("--least-savings", help="Minimum savings in US dollars per month.")
@click.option("--least-share", help="Minimum savings in percent of all spending.")
@as_json
@with_client
def edit_type(
    client: OperatorClient,
    name: str,
    enabled: bool | None,
    least_savings: str | None,
    least_share: str | None,
    as_json: bool,
) -> None:
    """
    Change the minimum savings of a type of recommendations, or enable or disable the type.

    A recommendation must reach both --least-savings and --least-share.
    """
    pairs = (("least_savings", least_savings), ("least_share", least_share))
    thresholds = {field: value for field, value in pairs if value is not None}
    body: dict[str, Any] = {"thresholds": thresholds} if thresholds else {}
    if enabled is not None:
        body["enabled"] = enabled
    if not body:
        exit_with_message(
            "nothing to change; `tollhouse recommendations types edit --help` lists the options", 2
        )
    payload = client.request("PATCH", f"/recommendation-types/{quote_segment(name)}", body=body)
    show_json(payload) if as_json else show_fields(payload["recommendation_type"])


def _show_recommendation(payload: JsonObject) -> None:
    advice = payload["recommendation"]
    click.echo(replace_unprintable(advice["title"]))
    click.echo(
        f"{advice['type']}, {advice['status']}, {'open' if advice['open'] else 'closed'}, "
        f"{readable_value('confidence', advice['confidence'])}, "
        f"effort {advice['effort']}: ${Decimal(advice['monthly_savings']):,} of ${Decimal(advice['spent']):,} "
        f"from {advice['evidence']['first_day']} to {advice['evidence']['last_day']}\n"
    )
    click.echo("\n".join(replace_unprintable(line) for line in advice["description"].splitlines()))
    click.echo(
        f"\nCalculated as: {replace_unprintable(advice['formula'])} ({replace_unprintable(advice['price_book'])})"
    )
    for assumption in advice["assumptions"]:
        click.echo(f"Assumed: {replace_unprintable(assumption)}")
    realized = advice["realized_savings"]
    if realized is not None:
        click.echo(
            f"Saved: ${Decimal(realized['amount']):,} from {realized['since']} until {realized['until']}"
        )
    for comment in payload["comments"]:
        click.echo(
            f"\n{comment['id']} {replace_unprintable(comment['author'])}: {replace_unprintable(comment['message'])}"
        )


def _show_search_result(payload: JsonObject) -> None:
    result = payload["look"]
    click.echo(
        f"{result['new']} new, {result['again']} found again, {result['reopened']} reopened, {result['gone']} closed"
    )
    if result["left_out"]:
        click.echo(f"{result['left_out']} more recommendations do not fit", err=True)
    if result["failed"]:
        click.echo(f"these types failed (see the log): {', '.join(result['failed'])}", err=True)


def _filter_query_parameters(type: str | None, filters: tuple[str, ...]) -> JsonObject:
    values_by_dimension: dict[str, list[str]] = {}
    for filter_text in filters:
        name, equals, value = filter_text.partition("=")
        if not equals:
            raise click.UsageError(f"--filter must be DIMENSION=VALUE, not {filter_text!r}")
        values_by_dimension.setdefault(name, []).append(value)
    query = {"filter": orjson.dumps(values_by_dimension).decode()} if values_by_dimension else {}
    return {**query, "type": type} if type else query


def _show_savings_by_type(payload: JsonObject) -> None:
    result = payload["check"]
    show_table(result["types"], ("type", "count", "monthly_savings"))
    click.echo(
        f"{result['count']} found: ${Decimal(result['monthly_savings']):,} of ${Decimal(result['spent']):,}"
    )


add_commands(
    comments,
    request_command("create ID MESSAGE", "POST /recommendations/{id}/comments", "Comment on a recommendation.",
            show_response="comment {comments[0][id]}"),
    request_command("edit ID COMMENT MESSAGE", "PATCH /recommendations/{id}/comments/{comment}", "Change a comment.",
            show_response="comment {comment} changed"),
    request_command("delete ID COMMENT", "DELETE /recommendations/{id}/comments/{comment}",
            "Delete a comment.", show_response="comment {comment} deleted"),
)  # fmt: skip
types.add_command(
    request_command(
        "show TYPE", "GET /recommendation-types/{type}", "Show a type of recommendations with its formula."
    )
)
add_commands(
    recommendations,
    request_command("show ID", "GET /recommendations/{id}",
            "Show one recommendation: evidence, suggested action, calculation of the savings, and "
            "comments.", show_response=_show_recommendation),
    request_command("check", "POST /recommendations/run", ("Check for savings now. A running server "
                         "also checks every hour."), show_response=_show_search_result),
    request_command("preview", "GET /recommendation-check",
            "Check for savings in the last 30 days, and store nothing. Use --filter to check only "
            "some calls.",
            click.option("--type", help="Check only this type."),
            click.option("--filter", "filters", multiple=True, metavar="DIMENSION=VALUE",
                         help="Only calls with this value; ! before the value excludes it. May repeat."),
            request_body=_filter_query_parameters, show_response=_show_savings_by_type),
)  # fmt: skip
