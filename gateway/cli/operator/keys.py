"""`tollhouse keys`: create, list, change and delete API keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.commands import add_commands, confirm_option, list_command, request_command
from gateway.cli.output import JsonObject, show_fields
from gateway.cli.parameters import Label, Seconds
from spool.registry.scopes import USE_CASES

COLUMNS = (
    "name",
    "state",
    "scope_count",
    "labels",
    "created_by",
    "updated_by",
    "last_modified",
    "last_accessed",
    "last_test",
    "last_record",
    "expires_at",
    "refused_since_expiry",
)
DETAILS = (
    "name",
    "description",
    "status",
    "state",
    "scopes",
    "use_cases",
    "scope_count",
    "labels",
    "created_by",
    "updated_by",
    "last_modified",
    "last_accessed",
    "last_test",
    "last_record",
    "expires_at",
    "refused_since_expiry",
    "last_refused",
    "allowed_addresses",
)

scope = click.option(
    "--scope", "scopes", multiple=True, help="Scope to grant, written GROUP:OPERATION; may repeat."
)
use_case = click.option(
    "--use-case",
    "use_cases",
    multiple=True,
    help=f"Use case to grant, which stands for a set of scopes; may repeat. {', '.join(USE_CASES)}.",
)
label = click.option(
    "--label",
    "labels",
    multiple=True,
    type=Label(),
    metavar="NAME=VALUE",
    help="Default label for records that this key sends, such as team=search; may repeat.",
)


expires_at = click.option(
    "--expires-at",
    metavar="TIME",
    help="Time of expiry: a day, which is included, or an RFC 3339 time (UTC).",
)
expires_in = click.option(
    "--expires-in", type=Seconds(), help="Time until expiry, such as 90d, instead of --expires-at."
)


@click.group()
def keys() -> None:
    """Create, list, change and delete API keys."""


list_command(
    keys,
    "scopes",
    root="scopes",
    columns=("scope", "category", "use_case", "opens"),
    filters={
        "scope": "",
        "category": "",
        "opens_nothing": "yes: only scopes that no operation requires. no: all other scopes.",
    },
    help="List all scopes that a key can have, and the operations that they allow.",
)


list_command(
    keys,
    "list",
    root="keys",
    columns=COLUMNS,
    filters={
        "name": "",
        "status": "Filter by status: Enabled or Disabled.",
        "state": "Filter by state: Enabled, Disabled or Expired.",
        "scope": "Filter by a scope that the key grants.",
        "use_case": "Filter by a use case of the key.",
        "created_by": "",
        "updated_by": "",
        "unused_for": "Only keys without use for at least this time, such as 12h or 30d.",
    },
    help="List the keys. Their secrets are never shown again.",
)


def _new_key_request_body(
    *,
    name: str,
    scopes: tuple[str, ...],
    use_cases: tuple[str, ...],
    description: str,
    labels: tuple[tuple[str, str], ...],
    expires_at: str | None,
    expires_in: float | None,
) -> JsonObject:
    body: JsonObject = {
        "name": name,
        "scopes": scopes,
        "use_cases": use_cases,
        "description": description,
        "labels": dict(labels),
    }
    expiry = _expiry_time_text(expires_at, expires_in)
    return body if expiry is None else {**body, "expires_at": expiry}


def _key_change_request_body(
    *,
    new_name: str | None,
    description: str | None,
    scopes: tuple[str, ...],
    use_cases: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    no_labels: bool,
    expires_at: str | None,
    expires_in: float | None,
    no_expiry: bool,
) -> JsonObject:
    if labels and no_labels:
        exit_with_message("use either --label or --no-labels, not both", 2)
    expiry = _expiry_time_text(expires_at, expires_in)
    if expiry is not None and no_expiry:
        exit_with_message("use either --no-expiry, or --expires-at or --expires-in, not both", 2)
    changes = {
        "name": new_name,
        "description": description,
        "scopes": scopes or None,
        "use_cases": use_cases or None,
        "labels": {} if no_labels else dict(labels) or None,
        "expires_at": expiry,
    }
    body: JsonObject = {field: value for field, value in changes.items() if value is not None}
    if no_expiry:
        body["expires_at"] = None
    if not body:
        exit_with_message(
            "nothing to change: give --name, --description, --scope, --use-case, --label, "
            "--no-labels, --expires-at, --expires-in or --no-expiry",
            2,
        )
    return body


def _expiry_time_text(at: str | None, in_s: float | None) -> str | None:
    if at is not None and in_s is not None:
        exit_with_message("use either --expires-at or --expires-in, not both", 2)
    return at if in_s is None else (datetime.now(UTC) + timedelta(seconds=in_s)).isoformat()


def _show_key_fields(key: JsonObject) -> None:
    show_fields({name: key[name] for name in DETAILS if name in key})


def _show_key_and_old_secret(payload: JsonObject) -> None:
    _show_key_fields(payload["key"])
    if payload["previous_secret_until"]:
        click.echo(
            f"the secret from before the last rotation is valid until {payload['previous_secret_until']}"
        )


def _show_changed_key(payload: JsonObject) -> None:
    _show_key_fields(payload["key"])
    _warn_about_useless_scopes(payload)


def _show_key_with_secret(payload: JsonObject) -> None:
    _show_key_fields(payload["key"])
    click.echo(f"\nThe key's secret, shown only now:\n\n    {payload['secret']}\n")
    _warn_about_useless_scopes(payload)


def _show_rotated_secret(payload: JsonObject) -> None:
    _show_key_with_secret(payload)
    if payload["previous_secret_until"]:
        click.echo(f"the old secret is valid until {payload['previous_secret_until']}")


def _warn_about_useless_scopes(payload: JsonObject) -> None:
    for scope in payload.get("opens_nothing", ()):
        click.echo(f"the scope {scope} allows no operation; see tollhouse keys scopes", err=True)


add_commands(
    keys,
    request_command("create", "POST /keys", "Create a key and print its secret. The secret is shown only once.",
            click.option("--name", required=True, help="At least 3 characters, unique."), scope, use_case,
            click.option("--description", default="", help="Purpose of the key."), label, expires_at, expires_in,
            request_body=_new_key_request_body, show_response=_show_key_with_secret),
    request_command("show NAME", "GET /keys/{name}", "Show one key.", show_response=_show_key_and_old_secret),
    request_command("edit NAME", "PATCH /keys/{name}",
            "Change a key. New scopes, use cases or labels replace all the old ones.",
            click.option("--name", "new_name", help="New name."),
            click.option("--description", help="New purpose of the key."),
            scope, use_case, label, click.option("--no-labels", is_flag=True, help="Remove all labels."),
            expires_at, expires_in,
            click.option("--no-expiry", is_flag=True, help=("Remove the expiry, so that the key is valid "
                         "until it is disabled or deleted.")),
            request_body=_key_change_request_body, show_response=_show_changed_key),
    request_command("enable NAME", "POST /keys/{name}/enable", "Enable a disabled key.",
            show_response=_show_changed_key),
    request_command("disable NAME", "POST /keys/{name}/disable",
            "Disable a key at once, until it is enabled again.", show_response=_show_changed_key),
    request_command("rotate NAME", "POST /keys/{name}/rotate",
            "Give a key a new secret. The old secret stays valid for the overlap.",
            click.option("--overlap", "overlap_s", type=Seconds(), default="24h", show_default=True,
                         help="How long the old secret stays valid; 0 ends it at once."),
            show_response=_show_rotated_secret),
    request_command("adopt", "POST /keys/adopt",
            "Accept the key in `server.api_key_file` again. Needed if the file has a new secret for "
            "a deleted key.",
            show_response="the key of server.api_key_file is valid again"),
    request_command("delete NAME", "DELETE /keys/{name}",
            "Delete a key. Access with it ends at once and cannot be restored.",
            confirm_option("NAME", "The key's name again, to confirm."), show_response="key {name} deleted"),
)  # fmt: skip
