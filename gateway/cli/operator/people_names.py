"""`tollhouse people-names`: names behind hashed people, for who may see them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from typing import IO

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.lists import list_command
from spool.bounded_reading import BoundedLines
from spool.errors import Invalid

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
    names = names_of(file)
    count = kept = 0
    try:
        while some := list(islice(names, _AT_ONCE)):
            answer = client.request("POST", "/people-names", body={"names": some})
            count += len(some)
            kept += answer["people_names"]["kept"]
    except (Invalid, csv.Error) as error:
        fail(f"{error}; {kept} names before were kept", 2)
    if not count:
        fail("there is no line with an e-mail address or a hash in the first column", 2)
    click.echo(f"{kept} names kept")
    if kept < count:
        click.echo(f"{count - kept} lines name somebody again: the last line counts", err=True)


def names_of(file: IO[str]) -> Iterator[dict[str, str]]:
    """Yield the names of a file. Invalid where a row is longer than a row may be."""
    lines = BoundedLines(file.name, file)
    for row in csv.reader(lines):
        lines.end_row()
        user = row[0].strip() if row else ""
        if "@" in user or user.startswith("email:"):  # a head is not a name
            yield {"user": user, "name": "".join(row[1:2]).strip()}


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
