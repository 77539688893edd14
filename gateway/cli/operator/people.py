"""
Commands about people: accounts and sessions (`operators`), a link to sign in (`console`), and the names of
each person (`people`).
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.cli.output import JsonObject, as_json, show_json, show_table
from gateway.core.paths import CONSOLE, console_link
from spool.bounded_reading import BoundedLines
from spool.errors import Invalid
from spool.printable import replace_unprintable
from spool.registry.operators import ADMIN, NO_ROLE, ROLES
from spool.registry.roles import BASES, LIMITED

COLUMNS = ("email", "role", "status", "issuer", "created_by", "created", "last_modified")
SESSION_COLUMNS = ("id", "actor", "role", "account", "began_with", "address", "created", "last_seen", "ends")
PERSON_COLUMNS = ("user", "name", "names", "origin")
SECRET = console_link("", "")  # text between the address and the secret in a sign-in link
_AT_ONCE = 5000

# role as the API names it -> name that people see and type
ROLE_NAMES: Mapping[str, str] = {
    word: "Admin" if word == ADMIN else BASES[word].name if word in BASES else word for word in ROLES
}
KNOWN = f"{', '.join(name for word, name in ROLE_NAMES.items() if word != NO_ROLE)} or {NO_ROLE}"


class AccountRole(click.ParamType[str]):
    """The parameter type for the role of an account: its name in any case, or the name that the API uses."""

    name = "role"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        typed = str(value).casefold()
        role = next((word for word in ROLES if typed in _accepted_role_names(word)), None)
        if role is None:
            self.fail(f"{value!r} is not an account role; use {KNOWN}", param, ctx)
        return role


def _accepted_role_names(typed_name: str) -> set[str]:
    builtin = {BASES[typed_name].id, BASES[typed_name].name.casefold()} if typed_name in BASES else set()
    return {typed_name, ROLE_NAMES[typed_name].casefold(), *builtin}


def with_role_name(row: JsonObject) -> dict[str, Any]:
    return {**row, "role": ROLE_NAMES.get(row["role"], row["role"])}


@click.group()
def operators() -> None:
    """Manage operator accounts and their sessions."""


@operators.command("create")
@click.argument("email")
@click.option(
    "--role",
    type=AccountRole(),
    help=f"Role of the account: {KNOWN}; default: Member, or none if a role that limits access exists.",
)
@as_json
@with_client
def create_account(client: OperatorClient, email: str, role: str | None, as_json: bool) -> None:
    """Create an account. Prompts for a password, or reads it from standard input."""
    body = {"email": email, "role": role, "password": _prompt_password()}
    payload = client.request("POST", "/operators", body=body)
    show_json(payload) if as_json else _show_account(payload)
    _warn_if_account_sees_more(client, payload["operator"])


list_command(
    operators,
    "list",
    root="operators",
    columns=COLUMNS,
    filters={"role": f"Filter by role: {KNOWN}.", "status": "Filter by status: Enabled or Disabled."},
    types={"role": AccountRole()},
    shown=with_role_name,
    help="List the accounts.",
)


@operators.command("edit")
@click.argument("email")
@click.option("--role", required=True, type=AccountRole(), help=f"New role of the account: {KNOWN}.")
@as_json
@with_client
def edit_account_role(client: OperatorClient, email: str, role: str, as_json: bool) -> None:
    """
    Change the role of an account.

    The account's sessions end. With the role none, the account may do only what its roles from `tollhouse
    roles` allow.
    """
    payload = client.request("PATCH", f"/operators/{quote_segment(email)}", body={"role": role})
    show_json(payload) if as_json else _show_account(payload)
    _warn_if_account_sees_more(client, payload["operator"])


def _warn_if_account_sees_more(client: OperatorClient, account: JsonObject) -> None:
    if account["role"] != NO_ROLE:
        roles = client.request("GET", "/roles", query=[("member", account["email"])])["roles"]
        if any(role["data_access"] == LIMITED or role["cost_types"] for role in roles):
            warn_about_account_role(account)


def warn_about_account_role(account: JsonObject) -> None:
    email = account["email"]
    role = with_role_name(account)["role"]
    click.echo(
        f"{email} has the account role {role} and therefore sees everything. To limit it: tollhouse "
        f"operators edit {email} --role none",
        err=True,
    )


@operators.group()
def sessions() -> None:
    """List and delete the sessions of people who are signed in to the console."""


list_command(
    sessions,
    "list",
    root="sessions",
    columns=SESSION_COLUMNS,
    filters={
        "actor": "Filter by the name of the person; may repeat.",
        "role": f"Filter by role: {KNOWN}.",
        "began-with": "Filter by sign-in method: password, link or provider.",
    },
    types={"role": AccountRole()},
    shown=with_role_name,
    help="List the sessions.",
)


def _prompt_password() -> str:
    """Prompt for a password. An argument would stay in the shell's history and show in the process list."""
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    return sys.stdin.readline().rstrip("\r\n")


def _show_account(payload: JsonObject) -> None:
    show_table([with_role_name(payload["operator"])], COLUMNS)


add_commands(
    operators,
    request_command("delete EMAIL", "DELETE /operators/{email}", "Delete an account and end its sessions.",
            show_response="operator {email} deleted"),
    request_command("password EMAIL", "PATCH /operators/{email}",
            "Set a new password for an account, and end its sessions.",
            request_body=lambda: {"password": _prompt_password()}, show_response=_show_account),
    request_command("disable EMAIL", "PATCH /operators/{email}",
            "Disable an account: end its sessions and refuse every further sign-in.",
            request_body={"status": "Disabled"}, show_response=_show_account),
    request_command("enable EMAIL", "PATCH /operators/{email}", "Enable a disabled account.",
            request_body={"status": "Enabled"}, show_response=_show_account),
)  # fmt: skip

sessions.add_command(
    request_command(
        "delete ID",
        "DELETE /sessions/{id}",
        "Sign a person out: delete the session, which ends at once.",
        show_response="session {id} deleted",
    )
)


@click.group()
def console() -> None:
    """Sign in to the console."""


def _check_console_url(ctx: click.Context, param: click.Parameter, url: str | None) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # urlsplit raises ValueError if the port is not a number
        is_usable = False
    if not is_usable or parts.query or parts.fragment:
        raise click.BadParameter(f"{url!r} is not an address such as http://127.0.0.1:4319")
    return f"{url.rstrip('/').removesuffix(CONSOLE)}{CONSOLE}/"


@console.command("link")
@click.option(
    "--role",
    type=AccountRole(),
    default="Admin",
    show_default=True,
    help="Role of the session: Member, Operator or Admin.",
)
@click.option(
    "--public",
    metavar="URL",
    callback=_check_console_url,
    help=(
        "Address at which the browser reaches the console, such as a container's http://127.0.0.1:4319; "
        "default: the console's own address."
    ),
)
@as_json
@with_client
def print_sign_in_link(client: OperatorClient, role: str, public: str | None, as_json: bool) -> None:
    """Print a link that signs in to the console once, within ten minutes."""
    payload = client.request("POST", "/console-links", body={"role": role})
    if public is not None:
        _, _, secret = payload["link"].partition(SECRET)
        payload["link"] = console_link(public, secret)
    show_json(payload) if as_json else click.echo(payload["link"])


@click.group()
def people() -> None:
    """
    Link the names of a person, and assign names to show.

    Records keep each name as it was reported. Reports show one line for each person, under the first name.
    """


list_command(
    people,
    "list",
    root="people",
    columns=PERSON_COLUMNS,
    filters={
        "user": "Filter by a name in records, or an e-mail address.",
        "origin": "Filter by origin. given: you entered the person. account: the address of an account.",
    },
    shown=lambda row: {**row, "names": "; ".join(row["names"])},
    help="List the known people.",
)


list_command(
    people,
    "stated",
    root="stated_names",
    path="/people/stated",
    columns=("user", "address", "calls", "state", "reason"),
    filters={
        "user": "Filter by an account, or an e-mail address.",
        "state": "Filter by state: free, linked or conflict.",
    },
    help="List accounts with the addresses that their calls of the last 92 days state.",
)

list_command(
    people,
    "viewings",
    root="viewings",
    path="/people/viewings",
    columns=("day", "viewer", "user", "face", "page", "reason"),
    filters={
        "user": "Filter by a name of the person whose figures were seen.",
        "viewer": "Filter by the person or key who looked.",
        "day": "Filter by day, such as 2026-11-20.",
        "face": "Filter by command, console, api or mcp.",
    },
    help="List who saw figures of which person. Needs a role that grants answer_privacy_requests.",
)

list_command(
    people,
    "conflicts",
    root="name_conflicts",
    path="/people/conflicts",
    columns=("id", "kind", "sender", "names", "state", "reported"),
    filters={
        "user": "Filter by one of the names.",
        "sender": "Filter by the agent or gateway that reported it.",
        "kind": "Filter by kind: names or hash_key.",
        "state": "Filter by state: open or apart.",
    },
    shown=lambda row: {**row, "names": "; ".join(row["names"])},
    help="List what agents and gateways reported about names and you decide: two people as one, or a further key.",
)


def _one_person_body(name: str, names: tuple[str, ...] = (), user: str = "") -> JsonObject:
    return {"people": [{"users": list(names) or [user], "name": name}]}


def _show_leaving(payload: JsonObject) -> None:
    leaving = payload["leaving"]
    click.echo(replace_unprintable("; ".join(filter(None, [leaving["name"], *leaving["names"]]))))
    show_table(leaving["steps"], ("step", "name", "what", "state", "reason"))


add_commands(
    people,
    request_command("link", "POST /people",
            "Link names of one person: e-mail addresses, accounts and logins, as records have them. Reports show the "
            "first. If one of them is linked already, all names of that person are included.",
            click.argument("names", nargs=-1, required=True),
            click.option("--name", default="", help="Name to show in the console."),
            request_body=_one_person_body, show_response="1 person stored"),
    request_command("edit USER", "POST /people",
            "Assign the name to show to one person, by any name in records or e-mail address.",
            click.argument("name", default=""),
            request_body=_one_person_body, show_response="1 person stored"),
    request_command("decide", "POST /people/conflicts/decide",
            "Decide conflicts of `people conflicts`, by id. Linking two names may widen what people with roles see.",
            click.argument("ids", nargs=-1, required=True),
            click.option("--accept/--apart", "accept", required=True, default=None,
                    help="Link the two names, or allow the hash key; or keep them apart."),
            show_response="{people[decided]} conflicts decided"),
    request_command("delete", "POST /people/forget",
            "Delete people with their links and the names to show, by any name. Records and sums stay.",
            click.argument("users", nargs=-1),
            click.option("--all", "all", is_flag=True, help="Delete all people."),
            request_body=lambda users, all: {"all": True} if all else {"users": list(users)},
            show_response="{people[forgotten]} people deleted"),
    request_command("show USER", "POST /people/{user}/leave",
            "Show what a person has: seats, devices, keys, roles and accounts. USER is any name or e-mail address.",
            request_body={"dry_run": True}, show_response=_show_leaving),
    request_command("leave USER", "POST /people/{user}/leave",
            "End what a person has. Costs keep the name. A repeated command lists only what is left.",
            click.option("--on", metavar="DAY",
                    help="Last day of the seats (UTC), such as 2026-11-30; default: today."),
            click.option("--step", "steps", multiple=True, metavar="STEP",
                    help="Step to take: seats, devices, keys, roles or account; may repeat; default: all."),
            click.option("--dry-run", is_flag=True, help="List the steps and change nothing."),
            show_response=_show_leaving),
    request_command("split USER", "POST /people/split", "Take a name out of its person, to show it as one of its own.",
            show_response="{user} is a person of its own"),
    request_command("link-stated", "POST /people/link-stated",
            "Link each account with the address that its calls state, unless they are a conflict in `people stated`.",
            show_response="{people[kept]} pairs linked, {people[conflicts]} conflicts"),
)  # fmt: skip


@people.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8-sig"))
@with_client
def import_people(client: OperatorClient, file: IO[str]) -> None:
    """
    Import people from a CSV file, or from standard input with -.

    Each line has an e-mail address or its hash, and the name to show. Further columns are names of the same person.
    """
    stated = read_people(file)
    count = stored = 0
    try:
        while batch := list(islice(stated, _AT_ONCE)):
            answer = client.request("POST", "/people", body={"people": batch})
            count += len(batch)
            stored += answer["people"]["kept"]
    except (Invalid, csv.Error) as error:
        exit_with_message(f"{error}; {stored} people before this line were stored", 2)
    if not count:
        exit_with_message("no line has an e-mail address or a hash in its first column", 2)
    click.echo(f"{stored} people stored")
    if stored < count:
        click.echo(f"{count - stored} lines repeat a person; the last line of each person counts", err=True)


def read_people(file: IO[str]) -> Iterator[dict[str, object]]:
    """Yield the people of a file. Raises Invalid if a row is too long."""
    lines = BoundedLines(file.name, file)
    for row in csv.reader(lines):
        lines.start_counting_next_row()
        user = row[0].strip() if row else ""
        if "@" in user or user.startswith("email:"):  # other lines, such as a header, are skipped
            further = [name.strip() for name in row[2:] if name.strip()]
            yield {"users": [user, *further], "name": "".join(row[1:2]).strip()}


@people.command("erase")
@click.argument("person")
@click.option(
    "--devices",
    is_flag=True,
    help="Revoke the devices of the person, and delete user, hostname and serial number.",
)
@click.option(
    "--texts", is_flag=True, help="Replace the name in free texts, such as comments and descriptions."
)
@click.option("--dry-run", is_flag=True, help="List the places only.")
@click.option(
    "--confirm",
    default="",
    metavar="NAME",
    help="The name that the console shows, or else the name in records.",
)
@as_json
@with_client
def erase_person(
    client: OperatorClient,
    person: str,
    devices: bool,
    texts: bool,
    dry_run: bool,
    confirm: str,
    as_json: bool,
) -> None:
    """
    Erase PERSON: replace every name by a pseudonym. Reports show (erased), and no sum changes.

    PERSON is any name, e-mail address, or the name that the console shows. The receipt lists each place: done, pending,
    or whom to ask. Only people with a role that grants answer_privacy_requests may do this. It cannot be undone.
    """
    body = {"devices": devices, "texts": texts, "dry_run": dry_run, "confirm": confirm}
    receipt = client.request("POST", f"/people/{quote_segment(person)}/erase", body=body)["erasure"]
    if as_json:
        show_json(receipt)
        return
    show_table(receipt["places"], ("place", "state", "count", "until", "what"))
    for place in receipt["places"]:
        for name in place["listed"]:
            click.echo(replace_unprintable(f"{place['place']}: {name}"))
    if dry_run:
        click.echo(f"nothing was changed; {receipt['calls']} calls would be shown as (erased)")
    else:
        click.echo(
            f"erased: {receipt['calls']} calls are shown as (erased). "
            "Store the output of `tollhouse people erasures` with the backups"
        )


@people.command("erasures")
@with_client
def list_erasures(client: OperatorClient) -> None:
    """Print all erasures as JSON, for `tollhouse restore --erasures`. It has digests of names, and no name."""
    show_json(client.request("GET", "/erasures"))


people.add_command(
    request_command(
        "export PERSON",
        "POST /people/{person}/export",
        """
        Export what is stored about PERSON: names, stored calls, sums by month, devices, seats, roles and accounts.

        PERSON is any name, e-mail address, or the name that the console shows. The server writes the files person.json
        and calls.ndjson. Only people with a role that grants answer_privacy_requests may do this.
        """,
        click.option(
            "--out",
            required=True,
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="A directory that does not exist yet.",
        ),
        request_body=lambda *, out: {"directory": str(out.absolute())},
        show_response="exported to {export[directory]}: {export[calls]} calls, sums of {export[months]} months",
    )
)
