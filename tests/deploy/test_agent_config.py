"""
The chart's job that writes a cluster's agent configuration into the cluster is valid and has minimal rights.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.test_kubernetes import helm, objects, problems

pytestmark = pytest.mark.proof  # needs Helm, which takes minutes to build

NAME = "tollhouse-agent-config"
CLUSTER = "agentConfig.cluster=production,agentConfig.region=us-east-1,agentConfig.account=123456789012"
ALONE = ("--set", "gateway.enabled=false")


def rendered(*values: str) -> str:
    return helm("--set", "agentConfig.enabled=true", "--set-string", CLUSTER, *values)


def test_the_published_schemas_accept_it() -> None:
    assert [] == problems(rendered())


def test_it_may_do_what_it_does_and_nothing_else() -> None:
    """
    The job may read and change one ConfigMap and one workload by name. All objects are in the agent's namespace.
    """
    found = objects(rendered(*ALONE, "--set", "agentConfig.workload.resource=daemonsets"))
    pod = found["CronJob", NAME]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    words = dict(word.split("=", 1) for word in pod["containers"][0]["args"] if "=" in word)
    assert words["--cluster"] == "production"
    assert words["--account"] == "123456789012"
    assert words["--region"] == "us-east-1"
    kind, _, workload = words["--workload"].partition("/")
    wanted = [("configmaps", words["--config-map"]), (kind, workload)]
    assert "daemonsets" == kind
    rules: list[dict[str, Any]] = found["Role", NAME]["rules"]
    assert wanted == [
        (one, name) for rule in rules for one in rule["resources"] for name in rule["resourceNames"]
    ]
    assert [["get", "patch"]] * 2 == [rule["verbs"] for rule in rules]
    assert ("ConfigMap", words["--config-map"]) in found
    assert pod["serviceAccountName"] == found["RoleBinding", NAME]["subjects"][0]["name"]
    assert {"metrics-agent"} == {one["metadata"]["namespace"] for one in found.values()}
    [volume] = pod["volumes"]
    [mount] = pod["containers"][0]["volumeMounts"]
    assert words["--key-file"].startswith(f"{mount['mountPath']}/") and volume["name"] == mount["name"]


def test_a_cluster_of_agents_needs_no_gateway() -> None:
    """The chart can install the job without the gateway. By default it installs only the gateway."""
    alone, both, gateway = (set(objects(text)) for text in (rendered(*ALONE), rendered(), helm()))
    assert {name for _, name in alone} == {NAME}
    assert both == alone | gateway and not alone & gateway


def test_job_reverts_manual_changes_only_if_configured() -> None:
    assert "--restore" not in rendered()
    assert "- --restore" in rendered("--set", "agentConfig.restore=true")


def test_a_job_without_its_cluster_is_refused() -> None:
    """If the job's cluster is missing, the chart's error names the missing value."""
    with pytest.raises(AssertionError, match="agentConfig/cluster"):
        helm("--set", "agentConfig.enabled=true")
