"""
The Helm chart as helm renders it, and the sidecar: valid by the published schemas, with settings that load.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from gateway.configuration.reader import load_config
from tests.acceptance.conftest import ARCHIVE, ROOT, Tollhouse
from tests.deploy.test_container import variables
from tests.documents import blocks
from tests.tools import without

KUBERNETES = ROOT / "deploy/kubernetes"
PAGE = ROOT / "docs/install/kubernetes.md"
TOOLS = ROOT / ".venv-kubernetes"
SCHEMAS = TOOLS / "schemas"
VERSION = "1.34.0"
MONITORED = ("--set", "monitoring.enabled=true")
SHARED = ("--set", "storage.engine=postgres", "--set", "storage.maxBytes=60GiB", "--set", "replicas=3")
WORKLOADS = ("StatefulSet", "Deployment")

Objects = dict[tuple[str, str], Any]


def run_helm(*words: str) -> str:
    path = TOOLS / "bin/helm"
    if not path.exists():
        without("helm", TOOLS / "missing", "make kubernetes-tools")
    done = subprocess.run([str(path), *words], capture_output=True, text=True, timeout=60)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def helm(*words: str) -> str:
    chart = str(KUBERNETES / "helm")
    return run_helm("template", "tollhouse", chart, "-n", "tollhouse", "--kube-version", VERSION, *words)


def sidecar() -> str:
    return (KUBERNETES / "sidecar.yaml").read_text()


def objects(text: str) -> Objects:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


def problems(text: str) -> list[str]:
    """
    Return the errors of each object by the published schemas: Kubernetes' own, strict, and
    the Prometheus Operator's.
    """
    definitions = Resource.from_contents(schema("kubernetes/_definitions"), default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource(
        "https://kubernetes.io/api/_definitions.json", definitions
    )
    found = []
    for (kind, name), one in objects(text).items():
        group, _, version = one["apiVersion"].rpartition("/")
        if group == "monitoring.coreos.com":
            path = f"crds/{kind.lower()}"
        else:
            path = f"kubernetes/{'-'.join(part for part in (kind.lower(), group.partition('.')[0], version) if part)}"
        errors = Draft202012Validator(schema(path), registry=registry).iter_errors(one)
        found += [f"{kind} {name}: {error.json_path}: {error.message}" for error in errors]
    return found


def schema(path: str) -> Any:
    return json.loads((SCHEMAS / f"{path}.json").read_text())


@pytest.mark.proof
@pytest.mark.parametrize("values", [(), MONITORED, SHARED, (*SHARED, *MONITORED)])
def test_the_published_schemas_accept_what_is_rendered(values: tuple[str, ...]) -> None:
    assert [] == problems(helm(*values))


@pytest.mark.proof
def test_the_published_schemas_accept_the_sidecar() -> None:
    """The sidecar's manifest is valid by the published schemas, and the check finds an unknown field."""
    assert [] == problems(sidecar())
    (found,) = problems(helm().replace("startupProbe:", "startProbe:"))
    assert "startProbe" in found


@pytest.mark.proof
def test_alerts_come_from_one_file() -> None:
    """The chart contains an unchanged copy of the rules of deploy/prometheus."""
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())
    assert rules == objects(helm(*MONITORED))["PrometheusRule", "tollhouse"]["spec"], "make kubernetes-rules"


@pytest.mark.proof
@pytest.mark.parametrize("values", [(), SHARED])
def test_monitoring_opens_one_port_to_one_namespace(values: tuple[str, ...]) -> None:
    """
    Without monitoring there is no metrics port. With it the pod, its Service, the monitor and the policy
    name one port.
    """
    assert "metrics" not in helm(*values)
    rendered = objects(helm(*values, *MONITORED))
    [workload] = [one for (kind, _), one in rendered.items() if kind in WORKLOADS]
    [container] = workload["spec"]["template"]["spec"]["containers"]
    assert {"name": "metrics", "containerPort": 4320} in container["ports"]
    assert "0.0.0.0:4320" == environment(container)["TOLLHOUSE_SERVER__METRICS_LISTEN"]
    pods = rendered["Service", "tollhouse-pods"]["spec"]
    assert {"name": "metrics", "port": 4320, "targetPort": "metrics"} in pods["ports"]
    monitor = rendered["ServiceMonitor", "tollhouse"]["spec"]
    assert ["metrics"] == [each["port"] for each in monitor["endpoints"]]
    assert workload["spec"]["selector"] == monitor["selector"]
    [rule] = [
        each
        for each in rendered["NetworkPolicy", "tollhouse"]["spec"]["ingress"]
        if each["ports"] == [{"port": "metrics"}]
    ]
    names = {"kubernetes.io/metadata.name": "monitoring"}
    assert [{"namespaceSelector": {"matchLabels": names}}] == rule["from"]


@pytest.mark.proof
def test_helm_lints_and_names_a_wrong_value() -> None:
    """The chart passes lint, and an unknown value is an error with its name."""
    assert "0 chart(s) failed" in run_helm("lint", "--strict", str(KUBERNETES / "helm"))
    with pytest.raises(AssertionError, match="replica"):
        helm("--set", "replica=2")
    with pytest.raises(AssertionError, match="engine"):
        helm("--set", "storage.engine=mysql")


@pytest.mark.proof
def test_settings_in_pods_load(tmp_path: Path) -> None:
    """The settings of gateway and sidecar load, even with the example upstream enabled."""
    rendered = objects(helm(*MONITORED))
    (text,) = (one["data"]["tollhouse.toml"] for (kind, _), one in rendered.items() if kind == "ConfigMap")
    gateway = rendered["StatefulSet", "tollhouse"]["spec"]["template"]["spec"]["containers"][0]
    path = tmp_path / "tollhouse.toml"
    for variant in (text, re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE)):
        path.write_text(variant)
        config = load_config(path, env=variables() | environment(gateway))
    assert ["/etc/tollhouse/keys/upstream"] == [str(key.secret_file) for key in config.upstream.keys]
    ports = {each["name"]: each["containerPort"] for each in gateway["ports"]}
    server = config.server
    addresses = {"http": server.listen, "grpc": server.grpc_listen, "metrics": server.metrics_listen}
    assert ports == {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}
    assert config.data_dir.is_relative_to(gateway["volumeMounts"][0]["mountPath"])

    pod = objects(sidecar())["StatefulSet", "litellm"]["spec"]["template"]["spec"]
    agent = load_config(env=variables() | environment(pod["initContainers"][0]))
    assert agent.server.listen == "127.0.0.1:4318"
    assert agent.agent.gateway == "http://tollhouse.tollhouse.svc:4318"
    assert agent.server.listen in environment(pod["containers"][0])["GENERIC_LOGGER_ENDPOINT"]


@pytest.mark.proof
def test_gateways_on_one_postgresql_keep_nothing_in_their_pods(tmp_path: Path) -> None:
    """
    The Deployment has no volumes of its own and spreads over machines. Its settings name the files of the secret.
    """
    rendered = objects(helm(*SHARED))
    assert not [name for kind, name in rendered if kind == "StatefulSet"]
    spec = rendered["Deployment", "tollhouse"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert 3 == spec["replicas"]
    assert "persistentVolumeClaim" not in json.dumps(pod)
    assert pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert {"maxUnavailable": 0, "maxSurge": 1} == spec["strategy"]["rollingUpdate"]
    assert 1 == rendered["PodDisruptionBudget", "tollhouse"]["spec"]["maxUnavailable"]

    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "storage")
    assert "tollhouse-storage" == volumes["storage"]["secret"]["secretName"]
    secrets = tmp_path / "storage"
    secrets.mkdir()
    (secrets / "dsn").write_text(
        f"host=db dbname=tollhouse sslmode=verify-full sslrootcert={mount['mountPath']}/ca.crt"
    )
    told = environment(container)
    inside = {
        name: value.replace(mount["mountPath"], str(secrets))
        for name, value in told.items()
        if "STORAGE" in name
    }
    config = load_config(env=variables() | told | inside)
    storage = config.storage
    assert 60 << 30 == config.spool.max_bytes
    assert storage.engine == "postgres"
    assert storage.dsn_file == secrets / "dsn"
    assert secrets / "installation.secret" == storage.secret_file
    ports = [
        each["port"]
        for rule in rendered["NetworkPolicy", "tollhouse"]["spec"]["egress"]
        for each in rule["ports"]
    ]
    assert 5432 in ports


def test_the_versions_are_that_of_the_project() -> None:
    """The chart, the sidecar's image and the files in the pages have the version of pyproject.toml."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((KUBERNETES / "helm/Chart.yaml").read_text())
    tags = re.findall(r"image: tollhouse:(.*)", sidecar())
    pages = "".join(path.read_text() for path in sorted((ROOT / "docs/install").glob("*.md")))
    named = re.findall(r"tollhouse[-_](\d+\.\d+\.\d+)", pages)
    assert [version] == tags
    assert {version} == {chart["version"], chart["appVersion"], *named}


def mount(one: Any, pod: Any, name: str, directory: Path) -> None:
    """Write the files of a ConfigMap as Kubernetes mounts them: each is a link into a hidden directory."""
    (volume,) = (each["configMap"] for each in pod["volumes"] if each["name"] == name)
    hidden = directory / "..2026_12_01"
    for item in volume["items"]:
        file = hidden / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(one["data"][item["key"]].replace("/etc/tollhouse", str(directory.parent)))
        link = directory / item["path"].partition("/")[0]
        if not link.exists():
            link.symlink_to(hidden / link.name)


@pytest.mark.proof
def test_a_sender_sends_with_the_settings_of_the_chart(tmp_path: Path) -> None:
    """
    With the values of the page, the chart creates a key, a view and a budget, which are applied at the start.
    Nobody signs in or runs a command.
    """
    (page,) = (block.text for block in blocks(PAGE.read_text()) if block.language == "yaml")
    values = yaml.safe_load(page)
    values["settings"]["allocation/default.yaml"] = "Dimensions: {}\n"
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    text = helm("--values", str(tmp_path / "values.yaml"))
    assert [] == problems(text)
    rendered = objects(text)
    pod = rendered["StatefulSet", "tollhouse"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert ["serve", "--config"] == container["args"][:2]
    etc = tmp_path / "etc"
    (etc / "keys").mkdir(parents=True)
    (etc / "keys/checkout").write_text("c" * 64)
    mount(rendered["ConfigMap", "tollhouse-settings"], pod, "files", etc / "settings")
    more = [word.replace("/etc/tollhouse", str(etc)) for word in container["args"][3:]]
    tollhouse = Tollhouse(tmp_path, ARCHIVE.format(server="", hold="1h", more=""))
    url = tollhouse.start(more=more)
    try:
        env = {**os.environ, "TOLLHOUSE_KEY": "c" * 64}
        sent = tollhouse.attempt("send", "--example", "litellm", "--to", url, config=False, env=env)
        (found,) = tollhouse.asked("/budgets")["budgets"]
        accepted = tollhouse.json("spool", "verify")["topics"]["ai-telemetry"]["accepted"]
    finally:
        tollhouse.stop()
    assert 0 == sent.returncode, sent.stderr
    assert "Monthly" == found["name"]
    assert accepted


def test_one_set_of_litellms_settings() -> None:
    """The sidecar's LiteLLM and Compose's have the same settings."""
    sidecars = objects(sidecar())["ConfigMap", "litellm"]["data"]["config.yaml"]
    assert (ROOT / "deploy/compose/litellm.yaml").read_text() == sidecars


def environment(container: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}
