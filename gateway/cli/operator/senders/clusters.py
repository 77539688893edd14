"""`tollhouse clusters`: the clusters that report here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.output import as_json, show_fields, show_json
from gateway.cli.parameters import Choice, Label

COLUMNS = (
    "id", "name", "account", "region", "state", "silent", "enabled", "agent_version", "k8s_version", "last_seen",
)  # fmt: skip


@click.group()
def clusters() -> None:
    """List, name, configure and forget clusters."""


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
    "--cluster-config", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file with a JSON object that replaces its configuration.",
)  # fmt: skip
@as_json
@with_client
def edit(
    client: OperatorClient,
    id: str,
    display_name: str | None,
    labels: tuple[tuple[str, str], ...],
    enabled: bool | None,
    file: Path | None,
    as_json: bool,
) -> None:
    """Name, label, enable, disable or configure a cluster."""
    changes = {
        "display_name": display_name,
        "labels": {name: text or None for name, text in labels} or None,
        "enabled": enabled,
        "config": _object(file) if file else None,
    }
    body = {name: value for name, value in changes.items() if value is not None}
    if not body:
        fail("nothing to change was given", 2)
    _show(client.request("PATCH", f"/clusters/{part(id)}", body=body), as_json)


@clusters.command()
@click.argument("id")
@click.option(
    "--format", "form", type=Choice(("json", "configmap")), default="json", show_default=True,
    help="configmap: a Kubernetes object that holds it, for GitOps.",
)  # fmt: skip
@with_client
def config(client: OperatorClient, id: str, form: str) -> None:
    """Print what was set for the agent of a cluster. It reads the same at /v1/container-metrics/config."""
    cluster = client.request("GET", f"/clusters/{part(id)}")["cluster"]
    given = {"version": cluster["config_version"], "config": cluster["config"]}
    show_json(given if form == "json" else _config_map(cluster, given))


@clusters.command()
@click.argument("id")
@click.option("--confirm", required=True, metavar="ID", help="The exact id of the cluster, once more.")
@as_json
@with_client
def delete(client: OperatorClient, id: str, confirm: str, as_json: bool) -> None:
    """Forget a cluster, until it reports again."""
    payload = client.request("DELETE", f"/clusters/{part(id)}", query=[("confirm", confirm)])
    show_json(payload) if as_json else click.echo(f"cluster {id} deleted")


def _config_map(cluster: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """JSON is YAML, too: kubectl and GitOps tools read it."""
    namespace = {"namespace": cluster["namespace"]} if cluster["namespace"] else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "tollhouse-agent-config",
            **namespace,
            "annotations": {"tollhouse/config-version": given["version"] or ""},
        },
        "data": {"config.json": json.dumps(given["config"], sort_keys=True)},
    }


def _object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        fail(f"{file}: {error}", 2)
    if not isinstance(found, dict):
        fail(f"{file} does not hold a JSON object", 2)
    return found


def _show(payload: dict[str, Any], as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["cluster"])
