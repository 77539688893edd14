"""What is set for the agent of a cluster: printed for GitOps, and the versions that were set before."""

from __future__ import annotations

import json

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.output import JsonObject, as_json, show_json, show_table
from gateway.cli.parameters import Choice
from gateway.devices.agent_config import version_of
from gateway.devices.agent_values import values_of, without_value

JSON, CONFIG_MAP, VALUES = "json", "configmap", "values"
MOST_CHANGES = "1000"


@click.command()
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


@click.command()
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


def config_of_version(client: OperatorClient, id: str, version: str) -> JsonObject:
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
