"""The Helm chart and the plain Kustomize files: rendered by the tools, equal, and valid by the published schemas."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from gateway.configuration.reader import load
from tests.acceptance.conftest import ROOT
from tests.deploy.test_container import variables
from tests.tools import without

KUBERNETES = ROOT / "deploy/kubernetes"
TOOLS = ROOT / ".venv-kubernetes"
SCHEMAS = TOOLS / "schemas"
VERSION = "1.34.0"
MONITORED = ("--set", "monitoring.enabled=true")
SHARED = ("--set", "storage.engine=postgres", "--set", "storage.maxBytes=60GiB", "--set", "replicas=3")
WORKLOADS = ("StatefulSet", "Deployment")

Objects = dict[tuple[str, str], Any]


def tool(name: str, *words: str) -> str:
    path = TOOLS / "bin" / name
    if not path.exists():
        without(name, TOOLS / "missing", "make kubernetes-tools")
    done = subprocess.run([str(path), *words], capture_output=True, text=True, timeout=60)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def helm(*words: str) -> str:
    chart = str(KUBERNETES / "helm")
    return tool(
        "helm", "template", "tollhouse", chart, "--namespace", "tollhouse", "--kube-version", VERSION, *words
    )


def kustomize(place: Path, *components: str) -> str:
    """The base with these components, as an overlay of one's own lists them."""
    shutil.copytree(KUBERNETES / "kustomize", place, dirs_exist_ok=True)
    overlay = {"resources": ["base"], "components": list(components)}
    (place / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return tool("kustomize", "build", str(place))


def sidecar() -> str:
    return tool("kustomize", "build", str(KUBERNETES / "kustomize/sidecar"))


def objects(text: str) -> Objects:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


def comparable(text: str) -> str:
    """
    Without what is Helm's own: its labels, and the checksum by which changed settings restart a pod.
    Kustomize has the checksum in the name of the settings.
    """
    text = re.sub(r"\btollhouse-[0-9a-z]{10}\b", "tollhouse", text)
    listed = list(yaml.safe_load_all(text))
    for one in listed:
        for name in ("app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"):
            one["metadata"]["labels"].pop(name, None)
    for one in (one for one in listed if one["kind"] in WORKLOADS):
        pod = one["spec"]["template"]
        pod["metadata"].pop("annotations", None)
        (container,) = pod["spec"]["containers"]
        container.pop("imagePullPolicy", None)
        for named in (container["env"], container["ports"]):
            named.sort(key=lambda each: str(each["name"]))
        for named in (container["volumeMounts"], pod["spec"]["volumes"]):
            named.sort(key=lambda each: str(each["name"]))
        for claim in one["spec"].get("volumeClaimTemplates", ()):
            claim["metadata"].pop("labels", None)
    for one in (one for one in listed if one["kind"] == "Service"):
        one["spec"]["ports"].sort(key=lambda each: str(each["name"]))
    return yaml.safe_dump(sorted(listed, key=lambda one: (str(one["kind"]), str(one["metadata"]["name"]))))


@pytest.mark.parametrize(
    ("values", "components"),
    [
        ((), ()),
        (MONITORED, ("monitoring",)),
        (SHARED, ("postgres",)),
        ((*SHARED, *MONITORED), ("postgres", "monitoring")),
    ],
)
def test_helm_and_kustomize_agree(
    values: tuple[str, ...], components: tuple[str, ...], tmp_path: Path
) -> None:
    """Both render the same objects, with monitoring and without, for files and for a PostgreSQL."""
    assert comparable(helm(*values)) == comparable(kustomize(tmp_path, *components))


def problems(text: str) -> list[str]:
    """
    What the published schemas say against each object: Kubernetes' own, strictly, and the Prometheus Operator's.
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


def test_the_published_schemas_accept_what_is_rendered(tmp_path: Path) -> None:
    """No field is unknown or of a wrong type; a field that is, is found."""
    assert (
        [] == problems(helm(*MONITORED)) == problems(kustomize(tmp_path, "monitoring")) == problems(sidecar())
    )
    assert [] == problems(helm(*SHARED, *MONITORED))
    (found,) = problems(helm().replace("startupProbe:", "startProbe:"))
    assert "startProbe" in found


def test_alerts_come_from_one_file(tmp_path: Path) -> None:
    """Both carry the rules of deploy/prometheus as they are; `make kubernetes-rules` writes those of Kustomize."""
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())
    written = (KUBERNETES / "kustomize/monitoring/prometheusrule.yaml").read_text()
    assert rules == yaml.safe_load(written)["spec"], "make kubernetes-rules"
    for text in (helm(*MONITORED), kustomize(tmp_path, "monitoring")):
        assert rules == objects(text)["PrometheusRule", "tollhouse"]["spec"]


def test_helm_lints_and_names_a_wrong_value() -> None:
    """The chart is clean, and a value that it does not know is an error that names it."""
    assert "0 chart(s) failed" in tool("helm", "lint", "--strict", str(KUBERNETES / "helm"))
    with pytest.raises(AssertionError, match="replica"):
        helm("--set", "replica=2")
    with pytest.raises(AssertionError, match="engine"):
        helm("--set", "storage.engine=mysql")


def test_settings_in_pods_load(tmp_path: Path) -> None:
    """The settings of gateway and sidecar have no problem, also with the example of an upstream switched on."""
    rendered = objects(kustomize(tmp_path, "monitoring"))
    (text,) = (one["data"]["tollhouse.toml"] for (kind, _), one in rendered.items() if kind == "ConfigMap")
    gateway = rendered["StatefulSet", "tollhouse"]["spec"]["template"]["spec"]["containers"][0]
    path = tmp_path / "tollhouse.toml"
    for variant in (text, re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE)):
        path.write_text(variant)
        config = load(path, env=variables() | environment(gateway))
    assert ["/etc/tollhouse/keys/upstream"] == [str(key.secret_file) for key in config.upstream.keys]
    ports = {each["name"]: each["containerPort"] for each in gateway["ports"]}
    server = config.server
    told = {"http": server.listen, "grpc": server.grpc_listen, "metrics": server.metrics_listen}
    assert ports == {name: int(address.rpartition(":")[2]) for name, address in told.items()}
    assert config.data_dir.is_relative_to(gateway["volumeMounts"][0]["mountPath"])

    pod = objects(sidecar())["StatefulSet", "litellm"]["spec"]["template"]["spec"]
    agent = load(env=variables() | environment(pod["initContainers"][0]))
    assert ("127.0.0.1:4318", "http://tollhouse.tollhouse.svc:4318") == (
        agent.server.listen,
        agent.agent.gateway,
    )
    assert agent.server.listen in environment(pod["containers"][0])["GENERIC_LOGGER_ENDPOINT"]


def test_gateways_on_one_postgresql_keep_nothing_in_their_pods(tmp_path: Path) -> None:
    """A Deployment without volumes of its own, spread over machines; its settings name the files of the secret."""
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
    config = load(env=variables() | told | inside)
    storage = config.storage
    assert 60 << 30 == config.spool.max_bytes
    assert ("postgres", secrets / "dsn") == (storage.engine, storage.dsn_file)
    assert secrets / "installation.secret" == storage.secret_file
    ports = [
        each["port"]
        for rule in rendered["NetworkPolicy", "tollhouse"]["spec"]["egress"]
        for each in rule["ports"]
    ]
    assert 5432 in ports


def test_the_versions_are_that_of_the_project() -> None:
    """Chart, image tags and the files that the pages name carry the version of pyproject.toml."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((KUBERNETES / "helm/Chart.yaml").read_text())
    tags = [
        yaml.safe_load((KUBERNETES / "kustomize" / name / "kustomization.yaml").read_text())["images"][0][
            "newTag"
        ]
        for name in ("base", "sidecar", "postgres", "agent-config")
    ]
    pages = "".join(path.read_text() for path in sorted((ROOT / "docs/install").glob("*.md")))
    named = re.findall(r"(?:tollhouse[-_]|newTag: )(\d+\.\d+\.\d+)", pages)
    assert {version} == {chart["version"], chart["appVersion"], *tags, *named}


def test_one_set_of_litellms_settings() -> None:
    """The sidecar's LiteLLM and that of Compose have the same settings."""
    sidecars = (KUBERNETES / "kustomize/sidecar/config.yaml").read_text()
    assert (ROOT / "deploy/compose/litellm.yaml").read_text() == sidecars


def environment(container: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}
