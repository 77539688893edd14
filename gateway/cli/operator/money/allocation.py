"""The command `tollhouse allocation`: define dimensions in YAML."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import list_command, request_command
from gateway.cli.operator.money.report import warn_about_incomplete_totals
from gateway.cli.operator.resources import add_resource_commands, add_resource_options
from gateway.cli.output import JsonObject, as_json, show_json, show_table
from gateway.money.allocation.declared import STATES, NewNamespace
from spool.printable import replace_unprintable

_MOST_SHOWN = 20  # maximum elements that the command shows per dimension
_VERSION_COLUMNS = ("namespace", "version", "is_in_force", "dimensions", "last_updated", "last_updated_by")
_JOB_COLUMNS = ("id", "namespace", "state", "base_version", "version", "submitted", "submitted_by", "error")
_NAMESPACE_COLUMNS = ("id", "name", "version", "dimensions", "broken", "last_updated")


@click.group()
def allocation() -> None:
    """Define your own dimensions by rules."""


@allocation.command("diff")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--month", metavar="YYYY-MM", default="", help="Month in UTC; default: the current month.")
@click.option(
    "--namespace", metavar="NAME", default="", help="Namespace of FILE; default: the default namespace."
)
@as_json
@with_client
def compare_definition(client: OperatorClient, file: Path, month: str, namespace: str, as_json: bool) -> None:
    """
    Compare a month under the definition in FILE with the current state. Nothing is published, and totals
    stay the same.
    """
    body = {"definition": read_definition(file), "month": month, "namespace": namespace}
    payload = send_definition_or_exit(client, "POST", "/allocation/diff", body)
    if as_json:
        show_json(payload)
        return
    warn_about_incomplete_totals(payload["diff"]["whole_since"])
    _show_range_of_totals(payload["diff"]["border"])
    for dimension in payload["dimensions"]:
        _show_cost_change_of_dimension(dimension, payload["total"])


_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_namespace = click.option(
    "--namespace",
    metavar="ID",
    default="",
    help="Namespace of the definition; default: the default namespace.",
)


@allocation.command("validate")
@_file
@_namespace
@as_json
@with_client
def validate_definition(client: OperatorClient, file: Path, namespace: str, as_json: bool) -> None:
    """
    Check the definition in FILE. Lists every fault, or the version that it would become. Nothing is stored.
    """
    body = {"definition": read_definition(file), "namespace": namespace}
    payload = send_definition_or_exit(client, "POST", "/allocation/validate", body)
    if as_json:
        show_json(payload)
        return
    version = payload["version"]
    _show_range_of_totals(version["border"])
    click.echo(
        f"{file} is valid: {_dimension_count_text(version)}. It would become version {version['version']}."
    )


@allocation.command("publish")
@_file
@_namespace
@click.option(
    "--base",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="Version that FILE was made from, 0 for none. If another version is in force, nothing is published.",
)
@as_json
@with_client
def publish_definition(
    client: OperatorClient, file: Path, namespace: str, base: int | None, as_json: bool
) -> None:
    """Publish the definition in FILE. It applies at once to all stored totals."""
    body = {"definition": read_definition(file), "namespace": namespace, "base": base}
    payload = send_definition_or_exit(client, "POST", "/allocation/publish", body)
    if as_json:
        show_json(payload)
        return
    version = payload["version"]
    _show_range_of_totals(payload["publish_job"]["border"])
    click.echo(f"version {version['version']} is in force: {_dimension_count_text(version)}")


_of_namespaces = click.option(
    "--namespace",
    multiple=True,
    metavar="ID",
    help="Only this namespace; may repeat. An empty ID is the default namespace.",
)


@allocation.group()
def versions() -> None:
    """List and show the stored versions of definitions."""


@allocation.group()
def jobs() -> None:
    """List and cancel publishing runs."""


list_command(
    versions,
    "list",
    _of_namespaces,
    click.option(
        "--is-in-force",
        multiple=True,
        help="Only versions in force (true), or only versions not in force (false).",
    ),
    click.option(
        "--last-updated-by",
        multiple=True,
        metavar="NAME",
        help="Only versions that this person or key published; may repeat.",
    ),
    root="versions",
    path="/allocation/versions",
    columns=_VERSION_COLUMNS,
    help="List the stored versions of definitions.",
)

list_command(
    jobs,
    "list",
    click.option("--state", multiple=True, help=f"{', '.join(STATES)}."),
    _of_namespaces,
    click.option("--submitted-by", multiple=True, metavar="NAME", help="May repeat."),
    root="publish_jobs",
    path="/allocation/jobs",
    columns=_JOB_COLUMNS,
    help="List publishing runs, the newest first.",
)


def _show_definition_text(payload: JsonObject) -> None:
    click.echo(payload["version"]["definition"].rstrip("\n"))


versions.add_command(
    request_command("show", "GET /allocation/versions/{version}",
            "Print the definition of VERSION as it was published; default: the version in force.",
            click.argument("version", default="latest"), _namespace, show_response=_show_definition_text)
)  # fmt: skip
jobs.add_command(
    request_command("cancel JOB", "POST /allocation/jobs/{job}/cancel",
            "Cancel a publishing run that is queued or being validated.", show_response="job {job} cancelled")
)  # fmt: skip


@allocation.group()
def namespaces() -> None:
    """Manage namespaces. Each namespace has its own definition with its own dimensions."""


list_command(
    namespaces,
    "list",
    click.option("--id", multiple=True, metavar="ID", help="May repeat."),
    click.option("--name", multiple=True, metavar="NAME", help="May repeat."),
    root="namespaces",
    path="/allocation/namespaces",
    columns=_NAMESPACE_COLUMNS,
    help="List the namespaces, without the default namespace.",
)

namespaces.add_command(
    request_command(
        "create ID",
        "POST /allocation/namespaces",
        "Create a namespace. ID has lowercase letters, digits, _ and -.",
        add_resource_options(NewNamespace),
    )
)


add_resource_commands(
    namespaces,
    NewNamespace,
    noun="namespace",
    path="/allocation/namespaces",
    help={
        "edit": "Change the name or the description of a namespace.",
        "delete": "Delete a namespace and its versions. Its definition must have no dimensions.",
    },
)


def _dimension_count_text(version: JsonObject) -> str:
    names = version["dimensions"]
    return f"{len(names)} {'dimension' if len(names) == 1 else 'dimensions'}"


def read_definition(file: Path) -> str:
    """Read a definition's text. The command ends with an error if the file cannot be read."""
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        exit_with_message(f"{file} is not UTF-8 text", 2)
    except OSError as error:
        exit_with_message(f"{file}: {error.strerror}")


def send_definition_or_exit(client: OperatorClient, method: str, path: str, body: object) -> JsonObject:
    """
    Send a request with a definition. If the definition has faults, print each fault with its place and
    end the command.
    """
    status, payload = asyncio.run(client.send_request(method, path, body=body))
    faults = payload.get("errors")
    if faults:
        for fault in faults:
            path_text = ".".join(map(str, fault["path"]))
            shown = f" ({fault['value']})" if fault["value"] else ""
            click.echo(replace_unprintable(f"{path_text or 'definition'}: {fault['error']}{shown}"), err=True)
        exit_with_message(f"the definition has {len(faults)} {'fault' if len(faults) == 1 else 'faults'}", 2)
    if status >= 400:
        exit_with_message(payload["error"]["message"], 2 if status in (400, 404, 409, 413, 422) else 1)
    return payload


def _show_range_of_totals(recount_range: JsonObject) -> None:
    if recount_range["kept_since"] is None:
        click.echo("there are no totals yet", err=True)
        return
    click.echo(f"totals are stored since {recount_range['kept_since']}", err=True)
    for tag, since in recount_range["tags"].items():
        known = f"known since {since}" if since else "not known for any call yet"
        click.echo(f"{tag} is {known}", err=True)


def _show_cost_change_of_dimension(dimension: JsonObject, total: JsonObject) -> None:
    click.echo(f"\n{dimension['name']} ({dimension['id']}): {dimension['state']}")
    rows = [
        (element["element"], _spend_cost(element["before"]), _spend_cost(element["after"]))
        for element in dimension["elements"]
    ]
    rest = rows[_MOST_SHOWN:]
    if rest:
        sum_before = _sum_known_costs(row[1] for row in rest)
        now = _sum_known_costs(row[2] for row in rest)
        rows = [*rows[:_MOST_SHOWN], (f"({len(rest)} more)", sum_before, now)]
    whole = Decimal(total["cost"])
    state = dimension["state"]
    rows.append(("total", None if state == "new" else whole, None if state == "gone" else whole))
    lines = [
        {
            "element": name,
            "before": _format_cost(before),
            "after": _format_cost(now),
            "change": _format_change(before, now),
        }
        for name, before, now in rows
    ]
    show_table(lines, ("element", "before", "after", "change"))


def _spend_cost(spend: JsonObject | None) -> Decimal | None:
    return None if spend is None else Decimal(spend["cost"])


def _sum_known_costs(costs: Iterable[Decimal | None]) -> Decimal | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal()) if known else None


def _format_cost(cost: Decimal | None) -> str | None:
    return None if cost is None else f"{cost:,.4f}"


def _format_change(before: Decimal | None, now: Decimal | None) -> str | None:
    return None if before is None or now is None else f"{now - before:+,.4f}"
