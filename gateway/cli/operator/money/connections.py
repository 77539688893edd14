"""`tollhouse connections`: billing connections and the files uploaded to them."""

from __future__ import annotations

from typing import Any

import click

from gateway.bills.connections.declared import NewConnection
from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import PageRequest, fetch_and_show_page, list_command, with_page_options
from gateway.cli.operator.resources import add_resource_options, request_body
from gateway.cli.output import JsonObject, as_json, show_fields, show_json

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


@connections.command("create")
@add_resource_options(NewConnection, required=("name", "cloud_provider"))
@click.option("--id", "given_id", help="Id that programs already send with; default: a new id.")
@bucket
@as_json
@with_client
def create_connection(client: OperatorClient, given_id: str | None, as_json: bool, **given: Any) -> None:
    """Create a billing connection."""
    body = _connection_request_body(**given)
    if given_id is not None:
        body["connection_id"] = given_id
    _show_connection(client.request("POST", "/connections", body=body), as_json)


@connections.command("show")
@click.argument("id")
@as_json
@with_client
def show_connection(client: OperatorClient, id: str, as_json: bool) -> None:
    """Show one billing connection."""
    _show_connection(client.request("GET", f"/connections/{quote_segment(id)}"), as_json)


@connections.command("edit")
@click.argument("id")
@add_resource_options(NewConnection)
@bucket
@as_json
@with_client
def edit_connection(client: OperatorClient, id: str, as_json: bool, **given: Any) -> None:
    """Change a billing connection. A new id at your cost service also applies to files that are still waiting."""
    body = _connection_request_body(**given)
    if not body:
        exit_with_message("nothing to change; `tollhouse connections edit --help` lists the options", 2)
    _show_connection(client.request("PATCH", f"/connections/{quote_segment(id)}", body=body), as_json)


@connections.command("enable")
@click.argument("id")
@as_json
@with_client
def enable_connection(client: OperatorClient, id: str, as_json: bool) -> None:
    """Enable a disabled connection, so that it accepts files again."""
    _show_connection(
        client.request("PATCH", f"/connections/{quote_segment(id)}", body={"is_enabled": True}), as_json
    )


@connections.command("disable")
@click.argument("id")
@as_json
@with_client
def disable_connection(client: OperatorClient, id: str, as_json: bool) -> None:
    """Disable a connection, so that it refuses files. Files accepted earlier are kept and sent."""
    _show_connection(
        client.request("PATCH", f"/connections/{quote_segment(id)}", body={"is_enabled": False}), as_json
    )


@connections.command("delete")
@click.argument("id")
@click.option("--confirm", required=True, metavar="ID", help="The connection's id again, to confirm.")
@as_json
@with_client
def delete_connection(client: OperatorClient, id: str, confirm: str, as_json: bool) -> None:
    """Delete a connection and its stored rows. Waiting files are still sent."""
    payload = client.request("DELETE", f"/connections/{quote_segment(id)}", query=[("confirm", confirm)])
    show_json(payload) if as_json else click.echo(f"connection {id} deleted")


@connections.command("drops")
@click.argument("id")
@click.option("--month", multiple=True, metavar="YYYY-MM", help="Filter by month; may repeat.")
@with_page_options
@with_client
def list_uploaded_files(client: OperatorClient, page: PageRequest, id: str, month: tuple[str, ...]) -> None:
    """List a connection's uploaded files that still have rows."""
    path = f"/connections/{quote_segment(id)}/drops"
    fetch_and_show_page(client, page, "billing_drops", DROP_COLUMNS, {"month": month}, path=path)


@connections.command("month")
@click.argument("id")
@click.argument("month", metavar="YYYY-MM")
@with_client
def print_month_rows(client: OperatorClient, id: str, month: str) -> None:
    """Print the rows of a month as JSON, after applying all uploaded files in order."""
    show_json(client.request("GET", f"/connections/{quote_segment(id)}/drops/{quote_segment(month)}"))


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


def _show_connection(payload: JsonObject, as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["connection"])
