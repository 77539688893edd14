"""`tollhouse connections`: billing connections and the files uploaded to them."""

from __future__ import annotations

from typing import Any

import click

from gateway.bills.connections.declared import NewConnection
from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import add_commands, confirm_option, list_command, request_command
from gateway.cli.operator.resources import add_resource_options, request_body
from gateway.cli.output import JsonObject, show_json

COLUMNS = ("id", "name", "cloud_provider", "state", "upstream_connection_id", "created", "last_updated")
DROP_COLUMNS = ("drop_id", "month", "row_count")

bucket = click.option(
    "--s3-bucket",
    metavar="ACCOUNT/BUCKET/PATH",
    help="Bucket in which the provider stores its files. For display only.",
)


@click.group()
def connections() -> None:
    """
    Manage billing connections and their files.

    Programs upload billing files to a connection. Files for an unknown connection are refused.
    """


list_command(
    connections,
    "list",
    root="connections",
    columns=COLUMNS,
    filters={
        "cloud_provider": "",
        "is_enabled": "true: only enabled connections. false: only disabled connections.",
        "state": "Filter by state: Disabled, Pending Data (no file yet) or Receiving Data.",
    },
    help="List the billing connections.",
)


def _new_connection_request_body(*, given_id: str | None, **given: Any) -> JsonObject:
    id_fields = {} if given_id is None else {"connection_id": given_id}
    return {**_connection_request_body(**given), **id_fields}


def _changed_connection_request_body(**given: Any) -> JsonObject:
    body = _connection_request_body(**given)
    if not body:
        exit_with_message("nothing to change; `tollhouse connections edit --help` lists the options", 2)
    return body


def _connection_request_body(*, s3_bucket: str | None, **given: Any) -> JsonObject:
    body = request_body(NewConnection, given)
    if s3_bucket is not None:
        account, _, rest = s3_bucket.partition("/")
        bucket_name, _, path = rest.partition("/")
        body["s3_bucket_info"] = {
            "cloud_account_id": account,
            "bucket_name": bucket_name,
            "bucket_path": path,
        }
    return body


add_commands(
    connections,
    request_command(
        "create",
        "POST /connections",
        "Create a billing connection.",
        add_resource_options(NewConnection, required=("name", "cloud_provider")),
        click.option("--id", "given_id", help="Id that programs already send with; default: a new id."),
        bucket,
        request_body=_new_connection_request_body,
    ),
    request_command("show ID", "GET /connections/{id}", "Show one billing connection."),
    request_command(
        "edit ID",
        "PATCH /connections/{id}",
        "Change a billing connection. A new id at your cost service also applies to files that are still waiting.",
        add_resource_options(NewConnection),
        bucket,
        request_body=_changed_connection_request_body,
    ),
    request_command(
        "enable ID",
        "PATCH /connections/{id}",
        "Enable a disabled connection, so that it accepts files again.",
        request_body={"is_enabled": True},
    ),
    request_command(
        "disable ID",
        "PATCH /connections/{id}",
        "Disable a connection, so that it refuses files. Files accepted earlier are kept and sent.",
        request_body={"is_enabled": False},
    ),
    request_command(
        "delete ID",
        "DELETE /connections/{id}",
        "Delete a connection and its stored rows. Waiting files are still sent.",
        confirm_option("ID", "The connection's id again, to confirm."),
        show_response="connection {id} deleted",
    ),
)

list_command(
    connections,
    "drops ID",
    click.option("--month", multiple=True, metavar="YYYY-MM", help="Filter by month; may repeat."),
    root="billing_drops",
    path="/connections/{id}/drops",
    columns=DROP_COLUMNS,
    help="List a connection's uploaded files that still have rows.",
)


@connections.command("month")
@click.argument("id")
@click.argument("month", metavar="YYYY-MM")
@with_client
def print_month_rows(client: OperatorClient, id: str, month: str) -> None:
    """Print the rows of a month as JSON, after applying all uploaded files in order."""
    show_json(client.request("GET", f"/connections/{quote_segment(id)}/drops/{quote_segment(month)}"))
