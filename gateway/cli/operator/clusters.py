"""
`tollhouse clusters` and `tollhouse container`: the clusters that report here, what is set for their agents, and
container metrics as they wait for the upstream.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.commands import add_commands, command, confirmed, list_command
from gateway.cli.operator.config_job import apply
from gateway.cli.output import JsonObject, as_json, show_fields, show_json, show_table
from gateway.cli.parameters import Choice, Label
from gateway.clusters.agent_config import values_of, version_of, without_value

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
FILE_COLUMNS = ("id", "kind", "reference", "state", "cluster", "size", "uploaded", "problem")
NUMBERS = ("bytes", "max_bytes", "files", "max_files", "balanced")
JSON, CONFIG_MAP, VALUES = "json", "configmap", "values"
MOST_CHANGES = "1000"


@click.group()
def clusters() -> None:
    """List, name, configure and forget clusters."""


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

add_commands(
    clusters,
    command("show ID", "GET /clusters/{id}", "Show one cluster, with the checks of its agent."),
    command(
        "delete ID",
        "DELETE /clusters/{id}",
        "Forget a cluster, until it reports again.",
        confirmed("ID", "The exact id of the cluster, once more."),
        shows="cluster {id} deleted",
    ),
)


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
        changes["config"] = _config_of_version(client, id, config_version)
    body = {name: value for name, value in changes.items() if value is not None}
    if not body:
        fail("nothing to change was given", 2)
    payload = client.request("PATCH", f"/clusters/{part(id)}", body=body)
    show_json(payload) if as_json else show_fields(payload["cluster"])


def _object(file: Path) -> JsonObject:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        fail(f"{file}: {error}", 2)
    if not isinstance(found, dict):
        fail(f"{file} does not hold a JSON object", 2)
    return found


@clusters.command()
@click.argument("id")
@click.option(
    "--format",
    "form",
    type=Choice((JSON, CONFIG_MAP, VALUES)),
    default=JSON,
    show_default=True,
    help="configmap: a Kubernetes object that holds it; values: values of the agent's Helm chart.",
)
@with_client
def config(client: OperatorClient, id: str, form: str) -> None:
    """
    Print what was set for the agent of a cluster. It reads the same at /v1/container-metrics/config.

    What the chart has no value for is named in a comment of the values.
    """
    cluster = client.request("GET", f"/clusters/{part(id)}")["cluster"]
    if form == VALUES:
        click.echo(_values(cluster))
        return
    given = {"version": cluster["config_version"], "config": cluster["config"]}
    show_json(given if form == JSON else _config_map(cluster, given))


@clusters.command()
@click.argument("id")
@as_json
@with_client
def versions(client: OperatorClient, id: str, as_json: bool) -> None:
    """List the configurations that were set for a cluster, the newest first, with who set each."""
    rows = _versions(client, id)
    if as_json:
        show_json({"versions": rows})
        return
    shown = [{**row, "config": json.dumps(row["config"], sort_keys=True)} for row in rows]
    show_table(shown, ("version", "set", "by", "config"))


def _config_of_version(client: OperatorClient, id: str, version: str) -> JsonObject:
    """A configuration that was set before; the command ends if there was none of this version."""
    if version == "none":
        return {}
    found: dict[str, JsonObject] = {row["version"]: row["config"] for row in _versions(client, id)}
    if version not in found:
        fail(f"no version {version} was set for this cluster; tollhouse clusters versions {id} lists them", 2)
    return found[version]


def _versions(client: OperatorClient, id: str) -> list[JsonObject]:
    """From the audit list, as far back as it goes."""
    cluster = client.request("GET", f"/clusters/{part(id)}")["cluster"]
    asked = {
        "action": "cluster.update",
        "target": f"{cluster['name']} ({cluster['id']})",
        "limit": MOST_CHANGES,
    }
    changes = client.request("GET", "/audit", query=[*asked.items()])["audit"]
    return [
        {
            "version": version_of(change["after"]["config"]),
            "set": change["at"],
            "by": change["actor"],
            "config": change["after"]["config"],
        }
        for change in changes
        if "config" in change["after"]
    ]


def _values(cluster: JsonObject) -> str:
    """JSON is YAML, too; a comment says what it is of."""
    lines = [f"# cluster {cluster['name']} ({cluster['id']}), version {cluster['config_version'] or 'none'}"]
    missing = without_value(cluster["config"])
    if missing:
        lines.append(f"# the chart has no value for: {', '.join(missing)}")
    return "\n".join([*lines, json.dumps(values_of(cluster["config"]), indent=2)])


def _config_map(cluster: JsonObject, given: JsonObject) -> JsonObject:
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
        "data": {
            "config.json": json.dumps(given["config"], sort_keys=True),
            "values.yaml": json.dumps(values_of(given["config"]), indent=2),
        },
    }


@click.group()
def container() -> None:
    """Show container metrics of clusters and what waits for the upstream; give a file up."""


@container.command()
@as_json
@with_client
def status(client: OperatorClient, as_json: bool) -> None:
    """Count what was named, uploaded and delivered, by kind and by cluster. Exits 1 if the books do not balance."""
    payload = client.request("GET", "/container-metrics")
    told = payload["container_metrics"]
    if as_json:
        show_json(payload)
    else:
        show_fields({name: told[name] for name in NUMBERS})
        for kind, terms in told["kinds"].items():
            click.echo(f"{kind}: " + (", ".join(f"{n} {term}" for term, n in terms.items() if n) or "none"))
        for one in told["clusters"]:
            place = f"{one['account']} {one['region']} {one['cluster']}"
            click.echo(f"{place}: {one['waiting']} wait, {one['bytes']} bytes, newest {one['newest']}")
        for sentence in told["imbalances"]:
            click.echo(sentence)
    if told["imbalances"]:
        raise SystemExit(1)


list_command(
    container,
    "files",
    root="container_files",
    columns=FILE_COLUMNS,
    filters={
        "kind": "file, remote-write or status.",
        "state": "announced, unused, uploaded, delivered, abandoned, damaged, expired or discarded.",
        "account": "",
        "region": "",
        "cluster": "",
    },
    help="List files, bodies of remote write and statuses. Those that are `uploaded` wait for the upstream.",
)

container.add_command(
    command(
        "discard ID",
        "POST /container-files/{id}/discard",
        "Give up a file that waits for the upstream; its bytes are removed.",
        confirmed("REFERENCE", "The reference of the file, once more."),
        shows="{container_file[reference]} is discarded",
    )
)
