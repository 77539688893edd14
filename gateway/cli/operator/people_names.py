"""`tollhouse people-names`: names behind hashed people, for who may see them."""

from __future__ import annotations

import csv
from typing import IO

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.lists import list_command

COLUMNS = ("user", "name", "origin")
_AT_ONCE = 5000


@click.group("people-names")
def people_names() -> None:
    """
    Name the people whose e-mail addresses are kept as hashes (privacy.emails). Records keep the hash; the console
    shows names to who may see them.
    """


list_command(
    people_names,
    "list",
    root="people_names",
    columns=COLUMNS,
    filters={
        "user": "An e-mail address, or its hash.",
        "origin": "given, or account: the address of an account.",
    },
    help="List the names that are known.",
)


@people_names.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8-sig"))
@with_client
def import_names(client: OperatorClient, file: IO[str]) -> None:
    """Read names from a CSV file, - for standard input: an e-mail address or a hash, and a name, a line each."""
    rows = [row for row in csv.reader(file) if row and row[0].strip()]
    # a head is not a name
    rows = [row for row in rows if "@" in row[0] or row[0].strip().startswith("email:")]
    if not rows:
        fail("there is no line with an e-mail address or a hash in the first column", 2)
    names = [{"user": user.strip(), "name": "".join(rest[:1]).strip()} for user, *rest in rows]
    kept = 0
    for begin in range(0, len(names), _AT_ONCE):
        answer = client.request("POST", "/people-names", body={"names": names[begin : begin + _AT_ONCE]})
        kept += answer["people_names"]["kept"]
    click.echo(f"{kept} names kept")
    if kept < len(names):
        click.echo(f"{len(names) - kept} lines name somebody again: the last line counts", err=True)


@people_names.command("set")
@click.argument("user")
@click.argument("name", default="")
@with_client
def set_name(client: OperatorClient, user: str, name: str) -> None:
    """Name one person, by the e-mail address or its hash."""
    client.request("POST", "/people-names", body={"names": [{"user": user, "name": name}]})
    click.echo("1 name kept")


@people_names.command()
@click.argument("users", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that were given.")
@with_client
def forget(client: OperatorClient, users: tuple[str, ...], every: bool) -> None:
    """Forget the names of these e-mail addresses or hashes."""
    body = {"all": True} if every else {"users": list(users)}
    payload = client.request("POST", "/people-names/forget", body=body)
    click.echo(f"{payload['people_names']['forgotten']} names forgotten")
