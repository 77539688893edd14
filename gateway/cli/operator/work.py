"""`tollhouse work`: links of sessions, branches and commits to pull requests and tickets."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import body_of, described_by
from gateway.cli.output import as_json, show_fields, show_json
from gateway.money.work_links.declared import NewWorkLink

COLUMNS = (
    "id",
    "session",
    "branch",
    "repository",
    "commit",
    "since",
    "until",
    "pull_request",
    "ticket",
    "author",
)


@click.group()
def work() -> None:
    """Assign the cost of sessions, branches and commits to pull requests and tickets."""


@work.command()
@described_by(NewWorkLink)
@as_json
@with_client
def link(client: OperatorClient, as_json: bool, **given: Any) -> None:
    """
    Link a session, a branch or a commit to a pull request or a ticket.

    The link acts on past and later calls that state no pull request (or ticket) themselves.
    """
    payload = client.request("POST", "/work/links", body=body_of(NewWorkLink, given))
    show_json(payload) if as_json else show_fields(payload["work_link"])


@work.command()
@click.argument("link")
@as_json
@with_client
def unlink(client: OperatorClient, link: str, as_json: bool) -> None:
    """Delete a link by its id. Its calls count as before the link."""
    payload = client.request("DELETE", f"/work/links/{part(link)}")
    show_json(payload) if as_json else click.echo(f"link {link} deleted")


list_command(
    work,
    "links",
    root="work_links",
    path="/work/links",
    columns=COLUMNS,
    filters={
        "session": "Only this session, by the digest that costs show.",
        "branch": "",
        "repository": "",
        "commit": "",
        "pull_request": "",
        "ticket": "",
        "author": "",
    },
    help="List the links, the newest first.",
)
