"""`tollhouse operators`: who may sign in to the console."""

from __future__ import annotations

import sys

import click

from gateway.cli.account_roles import KNOWN, AccountRole, role_named
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.output import JsonObject, as_json, show_json, show_table
from spool.registry.operators import NO_ROLE
from spool.registry.roles import LIMITED

COLUMNS = ("email", "role", "status", "issuer", "created_by", "created", "last_modified")


@click.group()
def operators() -> None:
    """Add, list and remove operator accounts and their sessions."""


@operators.command()
@click.argument("email")
@click.option(
    "--role",
    type=AccountRole(),
    help=f"{KNOWN}; default: Member, and none as soon as there is a limited role.",
)
@as_json
@with_client
def add(client: OperatorClient, email: str, role: str | None, as_json: bool) -> None:
    """Add an account. The password is asked for, or read from standard input."""
    body = {"email": email, "role": role, "password": _password()}
    payload = client.request("POST", "/operators", body=body)
    _show(payload, as_json)
    _warn_if_wider(client, payload["operator"])


list_command(
    operators,
    "list",
    root="operators",
    columns=COLUMNS,
    filters={"role": KNOWN, "status": "Enabled or Disabled"},
    types={"role": AccountRole()},
    shown=role_named,
    help="List the accounts.",
)


@operators.command()
@click.argument("email")
@as_json
@with_client
def remove(client: OperatorClient, email: str, as_json: bool) -> None:
    """Remove an account and end its sessions."""
    payload = client.request("DELETE", f"/operators/{part(email)}")
    show_json(payload) if as_json else click.echo(f"operator {email} removed")


@operators.command()
@click.argument("email")
@as_json
@with_client
def password(client: OperatorClient, email: str, as_json: bool) -> None:
    """Set a new password and end the account's sessions."""
    payload = client.request("PATCH", f"/operators/{part(email)}", body={"password": _password()})
    _show(payload, as_json)


@operators.command()
@click.argument("email")
@click.argument("role", type=AccountRole())
@as_json
@with_client
def role(client: OperatorClient, email: str, role: str, as_json: bool) -> None:
    """
    Give an account another role: Member, Operator, Organizer or none. Its sessions end.

    With none it may do what `tollhouse roles` give it, and nothing else.
    """
    payload = client.request("PATCH", f"/operators/{part(email)}", body={"role": role})
    _show(payload, as_json)
    _warn_if_wider(client, payload["operator"])


def _warn_if_wider(client: OperatorClient, account: JsonObject) -> None:
    """Says so if a role is to limit what an account sees, and its own role shows everything."""
    if account["role"] != NO_ROLE:
        given = client.request("GET", "/roles", query=[("member", account["email"])])["roles"]
        if any(role["data_access"] == LIMITED or role["cost_types"] for role in given):
            warn_of_account(account)


def warn_of_account(account: JsonObject) -> None:
    email = account["email"]
    role = role_named(account)["role"]
    click.echo(
        f"{email} has the account role {role} and sees everything. "
        f"Set it to none: tollhouse operators role {email} none",
        err=True,
    )


@operators.command()
@click.argument("email")
@as_json
@with_client
def disable(client: OperatorClient, email: str, as_json: bool) -> None:
    """Let an operator sign in no more, in whatever way, and end the operator's sessions."""
    _show(client.request("PATCH", f"/operators/{part(email)}", body={"status": "Disabled"}), as_json)


@operators.command()
@click.argument("email")
@as_json
@with_client
def enable(client: OperatorClient, email: str, as_json: bool) -> None:
    """Let a disabled operator sign in again."""
    _show(client.request("PATCH", f"/operators/{part(email)}", body={"status": "Enabled"}), as_json)


list_command(
    operators,
    "sessions",
    root="sessions",
    columns=("id", "actor", "role", "account", "began_with", "address", "created", "last_seen", "ends"),
    filters={
        "actor": "NAME",
        "role": KNOWN,
        "began-with": "password, link or provider",
    },
    types={"role": AccountRole()},
    shown=role_named,
    help="List who is signed in to the console.",
)


@operators.command()
@click.argument("id")
@as_json
@with_client
def end_session(client: OperatorClient, id: str, as_json: bool) -> None:
    """End a session that `tollhouse operators sessions` lists."""
    payload = client.request("DELETE", f"/sessions/{part(id)}")
    show_json(payload) if as_json else click.echo(f"session {id} ended")


def _password() -> str:
    """Never an argument: those stand in the shell's history and in the process list."""
    if sys.stdin.isatty():
        asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    return sys.stdin.readline().rstrip("\r\n")


def _show(payload: JsonObject, as_json: bool) -> None:
    show_json(payload) if as_json else show_table([role_named(payload["operator"])], COLUMNS)
