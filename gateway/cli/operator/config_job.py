"""
`tollhouse clusters apply`: a job in a cluster that writes the agent's configuration there.

It talks to the gateway and to the Kubernetes API, and does not use the data directory of a gateway.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import click

from gateway.cli import exit_with_message
from gateway.cli.output import JsonObject
from gateway.clusters.agent_config import chart_values
from gateway.clusters.config_job import DRIFT, SAME, FoundConfig, GivenConfig, JobProblem, apply_wanted_config

ANSWER_S = 30.0
MOST_BYTES = 4 * 1024 * 1024
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MERGE_PATCH = "application/merge-patch+json"
VERSION = "tollhouse/config-version"  # name of the annotation that has the version of the configuration
CONFIG, VALUES = "config.json", "values.yaml"
KINDS = ("deployments", "daemonsets", "statefulsets")


@dataclass(frozen=True, kw_only=True)
class JsonApiClient:
    """
    A client of a JSON API. Redirects are not followed, because the credential is only for this
    address.
    """

    name: str
    url: str
    authorization: str
    context: ssl.SSLContext | None = None

    def send_request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> JsonObject:
        """
        Send a request and return the response. Raises JobProblem for an error response, or without a response.
        """
        headers = {"Authorization": self.authorization, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        sent = None if body is None else json.dumps(body).encode()
        parts = urlsplit(self.url)
        connection = self._connect(parts.hostname or "", parts.port)
        try:
            connection.request(method, parts.path.rstrip("/") + path, body=sent, headers=headers)
            response = connection.getresponse()
            text = response.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise JobProblem(f"{self.name} does not respond: {error}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise JobProblem(f"{self.name} answered {response.status} to {method}: {_error_message(text)}")
        return _parse_json_object(text, self.name)

    def _connect(self, host: str, port: int | None) -> http.client.HTTPConnection:
        if self.url.startswith("https:"):
            return http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=self.context)
        return http.client.HTTPConnection(host, port, timeout=ANSWER_S)


@dataclass(frozen=True)
class GatewayConfigSource:
    """The gateway as a `ConfigSource`. `cluster` is the query that identifies the cluster."""

    server: JsonApiClient
    cluster: Mapping[str, str]

    def report_version_and_fetch_config(
        self, *, running_version: str, failure_reason: str = ""
    ) -> GivenConfig:
        parameters = {
            **self.cluster,
            "applied": running_version,
            **({"failed": failure_reason} if failure_reason else {}),
        }
        answer = self.server.send_request("GET", f"/v1/container-metrics/config?{urlencode(parameters)}")
        return GivenConfig(version=answer.get("version"), config=answer.get("config") or {})


class KubernetesConfigTarget:
    """The cluster as a `ConfigTarget`. `workload` is KIND/NAME, or None."""

    def __init__(self, server: JsonApiClient, namespace: str, config_map: str, workload: str | None) -> None:
        self._server = server
        namespace_path = f"namespaces/{quote(namespace, safe='')}"
        self._map = f"/api/v1/{namespace_path}/configmaps/{quote(config_map, safe='')}"
        kind, _, name = (workload or "").partition("/")
        self._workload = f"/apis/apps/v1/{namespace_path}/{kind}/{quote(name, safe='')}" if name else None
        self._read_at: str | None = None

    def read_config(self) -> FoundConfig:
        stored_map = self._server.send_request("GET", self._map)
        self._read_at = stored_map["metadata"].get("resourceVersion")
        started = None
        if self._workload is not None:
            template = self._server.send_request("GET", self._workload)["spec"]["template"]
            started = _config_version(template.get("metadata") or {})
        return FoundConfig(
            text=(stored_map.get("data") or {}).get(CONFIG, ""),
            written=_config_version(stored_map["metadata"]),
            started=started,
            has_workload=self._workload is not None,
        )

    def write_config(self, given: GivenConfig) -> None:
        """
        Replace the ConfigMap that `read` returned. If somebody changed the ConfigMap after `read`, the
        API server refuses.
        """
        config = json.dumps(given.config, sort_keys=True)
        values = json.dumps(chart_values(given.config), indent=2)
        annotations = {VERSION: given.version or ""}
        metadata = {"annotations": annotations, "resourceVersion": self._read_at}
        changed = {"metadata": metadata, "data": {CONFIG: config, VALUES: values}}
        self._server.send_request("PATCH", self._map, changed, MERGE_PATCH)

    def restart_workload(self, config_version: str | None) -> None:
        template = {"metadata": {"annotations": {VERSION: config_version or ""}}}
        self._server.send_request("PATCH", str(self._workload), {"spec": {"template": template}}, MERGE_PATCH)


@click.command()
@click.option(
    "--gateway", required=True, metavar="URL", help="Address of the gateway to which the agent reports."
)
@click.option(
    "--key-file", required=True, metavar="PATH", help="File with the key that the cluster's agent uses."
)
@click.option("--cluster", required=True, metavar="NAME", help="Cluster name, as the agent reports it.")
@click.option("--account", required=True, metavar="ID", help="Cloud account id, as the agent reports it.")
@click.option("--region", required=True, metavar="NAME", help="Region, as the agent reports it.")
@click.option(
    "--config-map",
    default="tollhouse-agent-config",
    show_default=True,
    metavar="NAME",
    help="ConfigMap to write.",
)
@click.option(
    "--workload", metavar="KIND/NAME", help=f"Workload to restart, of kind {', '.join(KINDS)}; default: none."
)
@click.option("--restore", is_flag=True, help="Overwrite changes that somebody else made to the ConfigMap.")
@click.option(
    "--api",
    default="https://kubernetes.default.svc",
    show_default=True,
    metavar="URL",
    help="Address of the Kubernetes API.",
)
@click.option(
    "--service-account",
    type=click.Path(path_type=Path),
    default=IN_POD,
    show_default=True,
    help="Directory with the files token, ca.crt and namespace.",
)
def apply(
    gateway: str,
    key_file: str,
    cluster: str,
    account: str,
    region: str,
    config_map: str,
    workload: str | None,
    restore: bool,
    api: str,
    service_account: Path,
) -> None:
    """
    Run as a job in a cluster: write the agent's configuration and report the result.

    Fetches the configuration from the gateway, and writes it to one ConfigMap as config.json and as
    values.yaml for the agent's Helm chart. Then restarts the workload. Exit code 1 if the gateway or the
    cluster refuses; `tollhouse clusters list` shows the reason.
    """
    kind, _, name = (workload or "").partition("/")
    if workload is not None and not (name and kind in KINDS):
        exit_with_message(f"--workload must be KIND/NAME, where KIND is one of {', '.join(KINDS)}", 2)
    cluster_query = {"cluster_name": cluster, "cloud_account_id": account, "region": region}
    try:
        source = JsonApiClient(name="the gateway", url=gateway, authorization=_read_text(Path(key_file)))
        target = KubernetesConfigTarget(
            _kubernetes_api_client(api, service_account),
            _read_text(service_account / "namespace"),
            config_map,
            workload,
        )
        outcome, version = apply_wanted_config(
            GatewayConfigSource(source, cluster_query), target, restores=restore
        )
    except JobProblem as problem:
        exit_with_message(str(problem))
    shown = version or "none"
    if outcome == DRIFT:
        click.echo(f"drifted: somebody else changed the ConfigMap ({shown}); overwrite it with --restore")
    else:
        click.echo(f"{'unchanged' if outcome == SAME else 'applied'}: {shown}")


def _kubernetes_api_client(url: str, account: Path) -> JsonApiClient:
    authority = account / "ca.crt"
    context = ssl.create_default_context(cafile=authority) if authority.exists() else None
    token = _read_text(account / "token")
    return JsonApiClient(name="the API server", url=url, authorization=f"Bearer {token}", context=context)


def _read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise JobProblem(f"{file}: {error}") from error


def _config_version(metadata: JsonObject) -> str | None:
    return (metadata.get("annotations") or {}).get(VERSION) or None


def _parse_json_object(text: bytes, name: str) -> JsonObject:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise JobProblem(f"{name} did not respond in JSON") from error
    if not isinstance(parsed, dict):
        raise JobProblem(f"{name} responded with JSON that is not an object")
    return parsed


def _error_message(text: bytes) -> str:
    try:
        parsed = json.loads(text)
    except ValueError:
        return ""
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else {}
    return str(error.get("message", ""))[:500] if isinstance(error, dict) else ""
