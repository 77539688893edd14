"""`tollhouse keys`: create, list, change and delete API keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.output import JsonObject, as_json, show_fields, show_json
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


@keys.command()
@click.option("--name", required=True, help="At least 3 characters, unique.")
@scope
@use_case
@click.option("--description", default="", help="What the key is for.")
@label
@expires_at
@expires_in
@as_json
@with_client
def create(
    client: OperatorClient,
    name: str,
    scopes: tuple[str, ...],
    use_cases: tuple[str, ...],
    description: str,
    labels: tuple[tuple[str, str], ...],
    expires_at: str | None,
    expires_in: float | None,
    as_json: bool,
) -> None:
    """Create a key and print its secret, this once."""
    body: dict[str, Any] = {
        "name": name,
        "scopes": scopes,
        "use_cases": use_cases,
        "description": description,
        "labels": dict(labels),
    }
    if (expiry := _expiry(expires_at, expires_in)) is not None:
        body["expires_at"] = expiry
    _show_secret(client.request("POST", "/keys", body=body), as_json)


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


@keys.command()
@click.argument("name")
@as_json
@with_client
def show(client: OperatorClient, name: str, as_json: bool) -> None:
    """Show one key."""
    payload = client.request("GET", f"/keys/{part(name)}")
    if as_json:
        show_json(payload)
        return
    _show_details(payload["key"])
    if payload["previous_secret_until"]:
        click.echo(f"the secret before the last rotation opens until {payload['previous_secret_until']}")


@keys.command()
@click.argument("name")
@click.option("--name", "new_name", help="The new name.")
@click.option("--description")
@scope
@use_case
@label
@click.option("--no-labels", is_flag=True, help="Take all labels away.")
@expires_at
@expires_in
@click.option("--no-expiry", is_flag=True, help="Let the key open until it is disabled or deleted.")
@as_json
@with_client
def edit(
    client: OperatorClient,
    name: str,
    new_name: str | None,
    description: str | None,
    scopes: tuple[str, ...],
    use_cases: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    no_labels: bool,
    expires_at: str | None,
    expires_in: float | None,
    no_expiry: bool,
    as_json: bool,
) -> None:
    """Change a key. Scopes, use cases and labels that are given take the place of the old ones."""
    if labels and no_labels:
        fail("--label or --no-labels, not both", 2)
    expiry = _expiry(expires_at, expires_in)
    if expiry is not None and no_expiry:
        fail("use either an expiry or --no-expiry, not both", 2)
    changes: dict[str, Any] = {"name": new_name, "description": description}
    changes["scopes"] = scopes or None
    changes["use_cases"] = use_cases or None
    changes["labels"] = {} if no_labels else dict(labels) or None
    changes["expires_at"] = expiry
    body = {field: value for field, value in changes.items() if value is not None}
    if no_expiry:
        body["expires_at"] = None
    if not body:
        fail(
            "say what to change: --name, --description, --scope, --use-case, --label, --no-labels, --expires-at, "
            "--expires-in or --no-expiry",
            2,
        )
    _show_key(client.request("PATCH", f"/keys/{part(name)}", body=body), as_json)


@keys.command()
@click.argument("name")
@as_json
@with_client
def enable(client: OperatorClient, name: str, as_json: bool) -> None:
    """Let a disabled key in again."""
    _show_key(client.request("POST", f"/keys/{part(name)}/enable"), as_json)


@keys.command()
@click.argument("name")
@as_json
@with_client
def disable(client: OperatorClient, name: str, as_json: bool) -> None:
    """Refuse a key until it is enabled again; it acts at once."""
    _show_key(client.request("POST", f"/keys/{part(name)}/disable"), as_json)


@keys.command()
@click.argument("name")
@click.option(
    "--overlap", type=Seconds(), default="24h", show_default=True, help="How long the old secret opens still."
)
@as_json
@with_client
def rotate(client: OperatorClient, name: str, overlap: float, as_json: bool) -> None:
    """Give a key a new secret. The old one opens until the overlap ends (0: it ends at once)."""
    payload = client.request("POST", f"/keys/{part(name)}/rotate", body={"overlap_s": overlap})
    _show_secret(payload, as_json)
    if payload["previous_secret_until"] and not as_json:
        click.echo(f"the old secret opens until {payload['previous_secret_until']}")


@keys.command()
@as_json
@with_client
def adopt(client: OperatorClient, as_json: bool) -> None:
    """Let the key of `server.api_key_file` open again. For a new secret in the file of a key that was deleted."""
    payload = client.request("POST", "/keys/adopt")
    show_json(payload) if as_json else click.echo("the key of server.api_key_file opens")


@keys.command()
@click.argument("name")
@click.option("--confirm", required=True, metavar="NAME", help="The exact name of the key, once more.")
@as_json
@with_client
def delete(client: OperatorClient, name: str, confirm: str, as_json: bool) -> None:
    """Delete a key for ever; access with it ends at once."""
    payload = client.request("DELETE", f"/keys/{part(name)}", query=[("confirm", confirm)])
    show_json(payload) if as_json else click.echo(f"key {name} deleted")


def _expiry(at: str | None, in_s: float | None) -> str | None:
    """The time at which a key is to expire, as the operator API takes it."""
    if at is not None and in_s is not None:
        fail("use either --expires-at or --expires-in, not both", 2)
    return at if in_s is None else (datetime.now(UTC) + timedelta(seconds=in_s)).isoformat()


def _show_secret(payload: JsonObject, as_json: bool) -> None:
    if as_json:
        show_json(payload)
        return
    _show_details(payload["key"])
    click.echo(f"\nIts secret, shown this once:\n\n    {payload['secret']}\n")
    _tell_of_empty(payload)


def _show_key(payload: JsonObject, as_json: bool) -> None:
    if as_json:
        show_json(payload)
        return
    _show_details(payload["key"])
    _tell_of_empty(payload)


def _tell_of_empty(payload: JsonObject) -> None:
    for scope in payload.get("opens_nothing", ()):
        click.echo(f"the scope {scope} opens nothing: see tollhouse keys scopes", err=True)


def _show_details(key: JsonObject) -> None:
    show_fields({name: key[name] for name in DETAILS if name in key})
