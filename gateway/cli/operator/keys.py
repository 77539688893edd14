"""`tollhouse keys`: create, list, change and delete API keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from gateway.cli import fail
from gateway.cli.operator.commands import add_commands, command, confirmed, list_command
from gateway.cli.output import JsonObject, show_fields
from gateway.cli.parameters import Label, Seconds
from spool.registry.scopes import USE_CASES

COLUMNS = (
    "name",
    "status",
    "scope_count",
    "labels",
    "created_by",
    "updated_by",
    "last_modified",
    "last_accessed",
    "expires_at",
)
DETAILS = (
    "name",
    "description",
    "status",
    "scopes",
    "use_cases",
    "scope_count",
    "labels",
    "created_by",
    "updated_by",
    "last_modified",
    "last_accessed",
    "expires_at",
)

scope = click.option("--scope", "scopes", multiple=True, help="A fixed scope, GROUP:OPERATION; may repeat.")
use_case = click.option(
    "--use-case", "use_cases", multiple=True, help=f"A managed use case; may repeat. {', '.join(USE_CASES)}."
)
label = click.option(
    "--label",
    "labels",
    multiple=True,
    type=Label(),
    metavar="NAME=VALUE",
    help="Fills what reports under the key leave out; may repeat.",
)


expires_at = click.option(
    "--expires-at",
    metavar="TIME",
    help="When it expires: a day, whose end is meant, or an RFC 3339 time (UTC).",
)
expires_in = click.option(
    "--expires-in", type=Seconds(), help="The same as a duration from now, such as 90d."
)


@click.group()
def keys() -> None:
    """Create, list, change and delete API keys."""


list_command(
    keys,
    "scopes",
    root="scopes",
    columns=("scope", "category", "use_case", "opens"),
    filters={"scope": "", "category": "", "opens_nothing": "yes or no: whether no operation asks for it."},
    help="List every scope that a key can have, with what it opens.",
)


list_command(
    keys,
    "list",
    root="keys",
    columns=COLUMNS,
    filters={
        "name": "",
        "status": "Enabled or Disabled.",
        "scope": "Keys that grant this scope.",
        "use_case": "Keys with this managed use case.",
        "created_by": "",
        "updated_by": "",
    },
    help="List the keys; secrets are never shown again.",
)


def _new_key(
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
    expiry = _expiry(expires_at, expires_in)
    return body if expiry is None else {**body, "expires_at": expiry}


def _changes(
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
        fail("--label or --no-labels, not both", 2)
    expiry = _expiry(expires_at, expires_in)
    if expiry is not None and no_expiry:
        fail("use either an expiry or --no-expiry, not both", 2)
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
        fail(
            "say what to change: --name, --description, --scope, --use-case, --label, --no-labels, --expires-at, "
            "--expires-in or --no-expiry",
            2,
        )
    return body


def _expiry(at: str | None, in_s: float | None) -> str | None:
    """Return the time at which a key is to expire, as the operator API takes it."""
    if at is not None and in_s is not None:
        fail("use either --expires-at or --expires-in, not both", 2)
    return at if in_s is None else (datetime.now(UTC) + timedelta(seconds=in_s)).isoformat()


def _show_details(key: JsonObject) -> None:
    show_fields({name: key[name] for name in DETAILS if name in key})


def _show(payload: JsonObject) -> None:
    _show_details(payload["key"])
    if payload["previous_secret_until"]:
        click.echo(f"the secret before the last rotation opens until {payload['previous_secret_until']}")


def _show_changed(payload: JsonObject) -> None:
    _show_details(payload["key"])
    _name_empty_scopes(payload)


def _show_secret(payload: JsonObject) -> None:
    _show_details(payload["key"])
    click.echo(f"\nIts secret, shown this once:\n\n    {payload['secret']}\n")
    _name_empty_scopes(payload)


def _show_rotated(payload: JsonObject) -> None:
    _show_secret(payload)
    if payload["previous_secret_until"]:
        click.echo(f"the old secret opens until {payload['previous_secret_until']}")


def _name_empty_scopes(payload: JsonObject) -> None:
    for scope in payload.get("opens_nothing", ()):
        click.echo(f"the scope {scope} opens nothing: see tollhouse keys scopes", err=True)


add_commands(
    keys,
    command("create", "POST /keys", "Create a key and print its secret, this once.",
            click.option("--name", required=True, help="At least 3 characters, unique."), scope, use_case,
            click.option("--description", default="", help="What the key is for."), label, expires_at, expires_in,
            sends=_new_key, shows=_show_secret),
    command("show NAME", "GET /keys/{name}", "Show one key.", shows=_show),
    command("edit NAME", "PATCH /keys/{name}",
            "Change a key. Scopes, use cases and labels that are given take the place of the old ones.",
            click.option("--name", "new_name", help="The new name."), click.option("--description"),
            scope, use_case, label, click.option("--no-labels", is_flag=True, help="Take all labels away."),
            expires_at, expires_in,
            click.option("--no-expiry", is_flag=True, help="Let the key open until it is disabled or deleted."),
            sends=_changes, shows=_show_changed),
    command("enable NAME", "POST /keys/{name}/enable", "Let a disabled key in again.", shows=_show_changed),
    command("disable NAME", "POST /keys/{name}/disable",
            "Refuse a key until it is enabled again; it acts at once.", shows=_show_changed),
    command("rotate NAME", "POST /keys/{name}/rotate",
            "Give a key a new secret. The old one opens until the overlap ends (0: it ends at once).",
            click.option("--overlap", "overlap_s", type=Seconds(), default="24h", show_default=True,
                         help="How long the old secret opens still."),
            shows=_show_rotated),
    command("adopt", "POST /keys/adopt",
            "Let the key of `server.api_key_file` open again. "
            "For a new secret in the file of a key that was deleted.",
            shows="the key of server.api_key_file opens"),
    command("delete NAME", "DELETE /keys/{name}", "Delete a key for ever; access with it ends at once.",
            confirmed("NAME", "The exact name of the key, once more."), shows="key {name} deleted"),
)  # fmt: skip
