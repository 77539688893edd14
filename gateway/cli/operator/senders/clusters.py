"""`tollhouse clusters`: the clusters that report here."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.operator.senders.cluster_config import config, config_of_version, versions
from gateway.cli.operator.senders.config_job import apply
from gateway.cli.output import JsonObject, as_json, show_fields, show_json
from gateway.cli.parameters import Label

COLUMNS = (
    "id",
    "name",
    "account",
    "region",
    "state",
    "silent",
    "enabled",
    "agent_version",
    "k8s_version",
    "last_seen",
)


@click.group()
def clusters() -> None:
    """List, name, configure and forget clusters."""


clusters.add_command(config)
clusters.add_command(versions)
clusters.add_command(apply)

list_command(
    clusters,
    "list",
    root="clusters",
    columns=COLUMNS,
    filters={
        "state": "As the agent said it last: init_ok, pod_started, unknown and others.",
        "silent": "true or false.",
        "config_state": "Whether the agent runs the configuration: none, pending, applied, drifted, failed.",
        "account": "",
        "region": "",
        "agent_version": "",
    },
    help="List the clusters. Silent: no report for three of clusters.report_interval.",
)


@clusters.command()
@click.argument("id")
@as_json
@with_client
def show(client: OperatorClient, id: str, as_json: bool) -> None:
    """Show one cluster, with the checks of its agent."""
    _show(client.request("GET", f"/clusters/{part(id)}"), as_json)


@clusters.command()
@click.argument("id")
@click.option("--display-name", help="How it is called here.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=Label(),
    metavar="NAME=VALUE",
    help="May repeat; NAME= takes it away.",
)
@click.option("--enable/--disable", "enabled", default=None, help="Whether it may send container metrics.")
@click.option(
    "--cluster-config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file with a JSON object that replaces its configuration.",
)
@click.option("--config-version", help="Set what was set before: a version of `clusters versions`, or none.")
@as_json
@with_client
def edit(
    client: OperatorClient,
    id: str,
    display_name: str | None,
    labels: tuple[tuple[str, str], ...],
    enabled: bool | None,
    file: Path | None,
    config_version: str | None,
    as_json: bool,
) -> None:
    """Name, label, enable, disable or configure a cluster."""
    if file and config_version:
        fail("--cluster-config and --config-version are two configurations", 2)
    changes: dict[str, object] = {
        "display_name": display_name,
        "labels": {name: text or None for name, text in labels} or None,
        "enabled": enabled,
        "config": _object(file) if file else None,
    }
    if config_version:
        changes["config"] = config_of_version(client, id, config_version)
    body = {name: value for name, value in changes.items() if value is not None}
    if not body:
        fail("nothing to change was given", 2)
    _show(client.request("PATCH", f"/clusters/{part(id)}", body=body), as_json)


@clusters.command()
@click.argument("id")
@click.option("--confirm", required=True, metavar="ID", help="The exact id of the cluster, once more.")
@as_json
@with_client
def delete(client: OperatorClient, id: str, confirm: str, as_json: bool) -> None:
    """Forget a cluster, until it reports again."""
    payload = client.request("DELETE", f"/clusters/{part(id)}", query=[("confirm", confirm)])
    show_json(payload) if as_json else click.echo(f"cluster {id} deleted")


def _object(file: Path) -> JsonObject:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        fail(f"{file}: {error}", 2)
    if not isinstance(found, dict):
        fail(f"{file} does not hold a JSON object", 2)
    return found


def _show(payload: JsonObject, as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["cluster"])
