"""The job that brings a cluster's configuration into the cluster: rendered, valid, with no right too many."""

from __future__ import annotations

from typing import Any

from tests.deploy.test_kubernetes import KUBERNETES, objects, problems, tool

NAME = "tollhouse-agent-config"


def rendered() -> str:
    return tool("kustomize", "build", str(KUBERNETES / "kustomize/agent-config"))


def test_the_published_schemas_accept_it() -> None:
    """No field is unknown or of a wrong type."""
    assert [] == problems(rendered())


def test_it_may_do_what_it_does_and_nothing_else() -> None:
    """One ConfigMap and one workload by name, read and changed; all objects are in the agent's namespace."""
    found = objects(rendered())
    pod = found["CronJob", NAME]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    words = dict(word.split("=", 1) for word in pod["containers"][0]["args"] if "=" in word)
    kind, _, workload = words["--workload"].partition("/")
    wanted = [("configmaps", words["--config-map"]), (kind, workload)]
    rules: list[dict[str, Any]] = found["Role", NAME]["rules"]
    assert wanted == [
        (one, name) for rule in rules for one in rule["resources"] for name in rule["resourceNames"]
    ]
    assert [["get", "patch"]] * 2 == [rule["verbs"] for rule in rules]
    assert ("ConfigMap", words["--config-map"]) in found
    assert pod["serviceAccountName"] == found["RoleBinding", NAME]["subjects"][0]["name"]
    assert 1 == len({one["metadata"]["namespace"] for one in found.values()})
    [volume] = pod["volumes"]
    [mount] = pod["containers"][0]["volumeMounts"]
    assert words["--key-file"].startswith(f"{mount['mountPath']}/") and volume["name"] == mount["name"]
