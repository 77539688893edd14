"""
`tollhouse clusters` and `tollhouse container`: Kubernetes clusters that report, their agents' configurations,
and container metrics that wait for your cost service.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import add_commands, confirm_option, list_command, request_command
from gateway.cli.operator.config_job import apply
from gateway.cli.output import (
    JsonObject,
    OutputForm,
    add_output_form_options,
    as_json,
    show_fields,
    show_json,
    show_list,
)
from gateway.cli.parameters import Choice, Label
from gateway.clusters.agent_config import chart_values, fields_without_value, hash_config

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
    """Manage the Kubernetes clusters that report here."""


clusters.add_command(apply)

list_command(
    clusters,
    "list",
    root="clusters",
    columns=COLUMNS,
    filters={
        "state": "Filter by the state that the agent last reported: init_ok, pod_started, unknown and others.",
        "silent": "true: only clusters without a report for three intervals.",
        "config_state": (
            "Filter by whether the agent uses its configuration: none, pending, applied, drifted or failed."
        ),
        "account": "",
        "region": "",
        "agent_version": "",
    },
    help="List the clusters. A cluster is offline after three report intervals without a report.",
)

add_commands(
    clusters,
    request_command("show ID", "GET /clusters/{id}", "Show one cluster and the checks of its agent."),
    request_command(
        "delete ID",
        "DELETE /clusters/{id}",
        "Delete a cluster from the list. It appears again when it reports.",
        confirm_option("ID", "The cluster's id again, to confirm."),
        show_response="cluster {id} deleted",
    ),
)


@clusters.command("edit")
@click.argument("id")
@click.option("--display-name", help="Name to show for the cluster.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=Label(),
    metavar="NAME=VALUE",
    help="Label to set, such as team=search; NAME= removes the label. May repeat.",
)
@click.option(
    "--enable/--disable", "enabled", default=None, help="Accept or refuse container metrics from the cluster."
)
@click.option(
    "--cluster-config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with a JSON object: the new configuration of the cluster's agent.",
)
@click.option(
    "--config-version",
    help="Earlier version to use again, from `tollhouse clusters versions ID`. `none` removes the configuration.",
)
@as_json
@with_client
def edit_cluster(
    client: OperatorClient,
    id: str,
    display_name: str | None,
    labels: tuple[tuple[str, str], ...],
    enabled: bool | None,
    file: Path | None,
    config_version: str | None,
    as_json: bool,
) -> None:
    """Change a cluster: its name, labels, configuration, or whether it may report."""
    if file and config_version:
        exit_with_message("use either --cluster-config or --config-version, not both", 2)
    changes: dict[str, object] = {
        "display_name": display_name,
        "labels": {name: text or None for name, text in labels} or None,
        "enabled": enabled,
        "config": _read_json_object(file) if file else None,
    }
    if config_version:
        changes["config"] = _fetch_config_version(client, id, config_version)
    body = {name: value for name, value in changes.items() if value is not None}
    if not body:
        exit_with_message("nothing to change: give an option such as --display-name or --label", 2)
    payload = client.request("PATCH", f"/clusters/{quote_segment(id)}", body=body)
    show_json(payload) if as_json else show_fields(payload["cluster"])


def _read_json_object(file: Path) -> JsonObject:
    try:
        parsed = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        exit_with_message(f"{file}: {error}", 2)
    if not isinstance(parsed, dict):
        exit_with_message(f"{file} must contain a JSON object", 2)
    return parsed


@clusters.command("config")
@click.argument("id")
@click.option(
    "--format",
    "form",
    type=Choice((JSON, CONFIG_MAP, VALUES)),
    default=JSON,
    show_default=True,
    help="Output format. configmap: a Kubernetes ConfigMap. values: values of the agent's Helm chart.",
)
@with_client
def print_agent_config(client: OperatorClient, id: str, form: str) -> None:
    """
    Print the configuration set for a cluster's agent.

    Agents read the same configuration at /v1/container-metrics/config. With --format values, a comment names
    the settings for which the chart has no value.
    """
    cluster = client.request("GET", f"/clusters/{quote_segment(id)}")["cluster"]
    if form == VALUES:
        click.echo(_helm_values(cluster))
        return
    config_document = {"version": cluster["config_version"], "config": cluster["config"]}
    show_json(config_document if form == JSON else _config_map(cluster, config_document))


@clusters.command("versions")
@click.argument("id")
@add_output_form_options
@with_client
def list_config_versions(client: OperatorClient, id: str, form: OutputForm | None) -> None:
    """List the configurations set for a cluster, newest first, and who set them."""
    rows = _fetch_config_versions(client, id)
    show_list(
        form,
        {"versions": rows},
        rows,
        ("version", "set", "by", "config"),
        lambda row: {**row, "config": json.dumps(row["config"], sort_keys=True)},
    )


def _fetch_config_version(client: OperatorClient, id: str, version: str) -> JsonObject:
    if version == "none":
        return {}
    config_by_version: dict[str, JsonObject] = {
        row["version"]: row["config"] for row in _fetch_config_versions(client, id)
    }
    if version not in config_by_version:
        exit_with_message(
            (
                f"this cluster never had version {version}; list its versions with `tollhouse clusters "
                f"versions {id}`"
            ),
            2,
        )
    return config_by_version[version]


def _fetch_config_versions(client: OperatorClient, id: str) -> list[JsonObject]:
    cluster = client.request("GET", f"/clusters/{quote_segment(id)}")["cluster"]
    query = {
        "action": "cluster.update",
        "target": f"{cluster['name']} ({cluster['id']})",
        "limit": MOST_CHANGES,
    }
    changes = client.request("GET", "/audit", query=[*query.items()])["audit"]
    return [
        {
            "version": hash_config(change["after"]["config"]),
            "set": change["at"],
            "by": change["actor"],
            "config": change["after"]["config"],
        }
        for change in changes
        if "config" in change["after"]
    ]


def _helm_values(cluster: JsonObject) -> str:
    lines = [f"# cluster {cluster['name']} ({cluster['id']}), version {cluster['config_version'] or 'none'}"]
    missing = fields_without_value(cluster["config"])
    if missing:
        lines.append(f"# the chart has no value for: {', '.join(missing)}")
    return "\n".join([*lines, json.dumps(chart_values(cluster["config"]), indent=2)])


def _config_map(cluster: JsonObject, config_document: JsonObject) -> JsonObject:
    """Make a ConfigMap. The output is JSON, which kubectl and GitOps tools read as YAML."""
    namespace = {"namespace": cluster["namespace"]} if cluster["namespace"] else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "tollhouse-agent-config",
            **namespace,
            "annotations": {"tollhouse/config-version": config_document["version"] or ""},
        },
        "data": {
            "config.json": json.dumps(config_document["config"], sort_keys=True),
            "values.yaml": json.dumps(chart_values(config_document["config"]), indent=2),
        },
    }


@click.group()
def container() -> None:
    """Show container metrics and their waiting files."""


@container.command("status")
@as_json
@with_client
def show_container_status(client: OperatorClient, as_json: bool) -> None:
    """
    Count the announced, uploaded and delivered container files, by kind and cluster. Exit code 1 if the
    counts do not balance.
    """
    payload = client.request("GET", "/container-metrics")
    metrics = payload["container_metrics"]
    if as_json:
        show_json(payload)
    else:
        show_fields({name: metrics[name] for name in NUMBERS})
        for kind, terms in metrics["kinds"].items():
            click.echo(f"{kind}: " + (", ".join(f"{n} {term}" for term, n in terms.items() if n) or "none"))
        for cluster in metrics["clusters"]:
            label = f"{cluster['account']} {cluster['region']} {cluster['cluster']}"
            click.echo(
                f"{label}: {cluster['waiting']} wait, {cluster['bytes']} bytes, newest {cluster['newest']}"
            )
        for sentence in metrics["imbalances"]:
            click.echo(sentence)
    if metrics["imbalances"]:
        raise SystemExit(1)


@container.group()
def files() -> None:
    """List and discard container files."""


list_command(
    files,
    "list",
    root="container_files",
    columns=FILE_COLUMNS,
    filters={
        "kind": "Filter by kind: file, remote-write or status.",
        "state": (
            "Filter by state: announced, unused, uploaded, delivered, abandoned, damaged, expired or "
            "discarded."
        ),
        "account": "",
        "region": "",
        "cluster": "",
    },
    help="List files, remote-write bodies and statuses. Those in the state `uploaded` wait for your cost service.",
)

files.add_command(
    request_command(
        "discard ID",
        "POST /container-files/{id}/discard",
        "Discard a file that waits for your cost service, and delete its content.",
        confirm_option("REFERENCE", "The file's reference again, to confirm."),
        show_response="{container_file[reference]} is discarded",
    )
)
