"""`tollhouse reconcile import`, `pull` and `delete`: reports of providers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.output import JsonObject, as_json, show_json, show_table
from spool.printable import printable

COLUMNS = ("id", "source", "account", "month", "days", "settled_days", "rows", "billed", "imported_at")
PULL_COLUMNS = ("name", "source", "state", "reason", "pulled_to", "last_success", "next_at")


@click.command("import")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True)
)
@click.option(
    "--source", metavar="SOURCE", help="What kind of report it is; default: recognised by what is in it."
)
@click.option(
    "--account", metavar="NAME", help="Whose report it is, if you have several; default: as the report says."
)
@click.option("--dry-run", is_flag=True, help="Say what would change, and keep nothing.")
@as_json
@with_client
def import_statements(
    client: OperatorClient,
    files: tuple[Path, ...],
    source: str | None,
    account: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """
    Import reports of what providers billed: JSON or CSV, also packed with gzip.

    A report replaces what was known of its days and leaves all others. Files of one export that is cut into
    parts go into one command.
    """
    body = {
        "files": [str(file.absolute()) for file in files],
        "source": source,
        "account": account,
        "dry_run": dry_run,
    }
    payload = client.request("POST", "/statements", body=body)
    if as_json:
        show_json(payload)
        return
    for each in payload["imports"]:
        _show_import(each, dry_run=dry_run)


@click.command("pull")
@click.option("--name", metavar="NAME", help="One of [[reconciliation.pull]]; default: all of them.")
@as_json
@with_client
def pull_statements(client: OperatorClient, name: str | None, as_json: bool) -> None:
    """Pull the reports of the configuration now."""
    payload = client.request("POST", "/statement-pulls", body={"name": name})
    show_json(payload) if as_json else show_table(payload["statement_pulls"], PULL_COLUMNS)
    if any(each["state"] != "done" for each in payload["statement_pulls"]):
        sys.exit(1)


@click.command("delete")
@click.argument("id")
@as_json
@with_client
def delete_statement(client: OperatorClient, id: str, as_json: bool) -> None:
    """Forget a month of a source. A pull or an import brings it back."""
    payload = client.request("DELETE", f"/statements/{part(id)}")
    show_json(payload) if as_json else click.echo(f"statement {id} deleted")


def _show_import(each: JsonObject, *, dry_run: bool) -> None:
    files = ", ".join(each["files"])
    if each["from"] is None:
        click.echo(f"{files}: {each['source']}, and nothing in it")
    else:
        verb = "would be" if dry_run else "are"
        change = (
            f"{each['days_new']} days {verb} new, {each['days_changed']} {verb} changed, of {each['days']}"
        )
        account = f" {printable(each['account'])}" if each["account"] else ""
        click.echo(
            f"{files}: {each['source']}{account}, {each['from']} to {each['to']}, {each['rows']} rows; "
            f"{change}"
        )
    for revision in each["revisions"]:
        money = f"${revision['billed_before']} -> ${revision['billed']}"
        click.echo(
            f"  {revision['day']}: {money}, {revision['tokens_before']} -> {revision['tokens']} tokens"
        )
    if each["damaged"]:
        click.echo(f"  {each['damaged']} rows cannot be read and are left out:", err=True)
        for row in each["damaged_rows"]:
            click.echo(f"    {printable(row)}", err=True)
    if each["repeated_rows"]:
        click.echo(f"  {each['repeated']} rows came again and are counted once:", err=True)
        for row in each["repeated_rows"]:
            click.echo(f"    {printable(row)}", err=True)
    if each["equal"]:
        click.echo(
            f"  {each['equal']} rows are equal to others, have no id, and are counted: look whether the "
            "export has "
            "them twice",
            err=True,
        )
