"""
The job that applies a cluster's configuration, run as in deploy/kubernetes with its rights there, between a
real Tollhouse and a fake API server.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click.testing
import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.cli.operator.clusters import clusters
from gateway.cli.operator.config_job import JsonApiClient
from gateway.clusters.agent_config import hash_config
from gateway.clusters.config_job import JobProblem
from spool.container_files.values import ClusterIdentity
from tests.integration import container_agent as agent
from tests.integration.certificates import Certificates
from tests.integration.clusters.kubernetes_api import NAMESPACE, TOKEN, KubernetesApi, kubernetes_api
from tests.integration.conftest import Serve, Serving
from tests.integration.container_agent import CLUSTER
from tests.integration.receivers.test_container_metrics import made

CHART = Path(__file__).parents[3] / "deploy/kubernetes/helm"
CONFIG_MAP, WORKLOAD = "tollhouse-agent-config", "metrics-agent-server"
ANNOTATION = "tollhouse/config-version"
SLOW = {"scrape_interval": "120s", "labels": {"pods": ["^team$"]}, "x_owner": "platform"}
QUICK = {"scrape_interval": "30s"}


def document(kind: str) -> dict[str, Any]:
    """
    Return an object of the chart's job, with values filled in as helm does (tests/deploy/test_agent_config.py).
    """
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    values["agentConfig"] |= {"cluster": "production", "account": "123456789012", "region": "us-east-1"}

    def value(place: re.Match[str]) -> str:
        found = values
        for name in place[1].split("."):
            found = found[name]
        return str(found)

    text = (CHART / "templates/agent-config.yaml").read_text()
    text = re.sub(r".*(\{\{-|--restore).*\n", "", text)
    text = re.sub(r"\{\{ \.Values\.([\w.]+)[^}]*\}\}", value, text)
    [found] = [one for one in yaml.safe_load_all(text) if one["kind"] == kind]
    return dict(found)


def arguments() -> list[str]:
    """Return the command's arguments from the job."""
    job = document("CronJob")
    [container] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    words: list[str] = container["args"]
    assert ["clusters", "apply"] == words[:2]
    return words[1:]


@dataclass
class Site:
    """A Tollhouse server and a cluster with its agent's key."""

    server: Serving
    api: KubernetesApi
    key: str
    manager: str
    home: Path

    async def run(self, *more: str, key: str = "") -> tuple[int, str]:
        """Run the job once; return its exit code and output."""
        (self.home / "key").write_text(f"{key or self.key}\n")
        given = {
            "--gateway": self.server.url, "--api": self.api.url, "--key-file": str(self.home / "key"),
            "--service-account": str(self.home), "--cluster": CLUSTER.name, "--account": CLUSTER.account,
            "--region": CLUSTER.region,
        }  # fmt: skip
        kept = [word for word in arguments() if word.partition("=")[0] not in given]
        words = [*kept, *(f"{name}={value}" for name, value in given.items()), *more]
        runner = click.testing.CliRunner()
        done = await asyncio.to_thread(runner.invoke, clusters, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    async def change(self, config: dict[str, Any]) -> str:
        body = json.dumps({"config": config}).encode()
        answer = await self.server.send(self.path, body, method="PATCH", key=self.manager)
        assert 200 == answer.status, answer.body
        return str(json.loads(answer.body)["cluster"]["config_version"])

    async def shown(self) -> dict[str, Any]:
        answer = await self.server.send(self.path, b"", method="GET", key=self.manager)
        found: dict[str, Any] = json.loads(answer.body)["cluster"]
        return found

    async def state(self) -> str:
        return str((await self.shown())["config_state"])

    @property
    def path(self) -> str:
        cluster = self.server.app.services.storage.clusters.find_by_name(
            CLUSTER.account, CLUSTER.region, CLUSTER.name
        )
        assert cluster is not None
        return f"/v2/container/clusters/{cluster.id}"

    def config_map(self) -> dict[str, Any]:
        return self.api.objects["configmaps", CONFIG_MAP]

    def kept(self) -> Any:
        return json.loads(self.config_map()["data"]["config.json"])

    def restarted_with(self) -> str:
        template = self.api.objects["deployments", WORKLOAD]["spec"]["template"]
        return str(template["metadata"]["annotations"][ANNOTATION])

    def edit(self, config: dict[str, Any]) -> None:
        """Change the configuration as a person with kubectl would."""
        self.api.put("configmaps", CONFIG_MAP, data={"config.json": json.dumps(config)})


@pytest_asyncio.fixture
async def site(serve: Serve, certificates: Certificates, tmp_path: Path) -> AsyncIterator[Site]:
    server, key = await made(serve)
    manager = await server.make_key("manager", scopes=["container:update-cluster", "container:get-clusters"])
    status = agent.status()
    await server.send(f"{agent.BASE}/status", status, content_type="application/x-protobuf", key=key)
    rules = document("Role")["rules"]
    home = tmp_path / "account"
    home.mkdir()
    (home / "token").write_text(TOKEN)
    (home / "namespace").write_text(NAMESPACE)
    shutil.copy(certificates.path("ca.pem"), home / "ca.crt")
    async with kubernetes_api(rules, certificates) as api:
        api.put("configmaps", CONFIG_MAP)
        api.put("deployments", WORKLOAD, spec={"template": {"metadata": {"labels": {"app": "agent"}}}})
        yield Site(server, api, key, manager, home)


async def test_a_change_is_applied_and_reported(site: Site) -> None:
    """
    The ConfigMap also gets the configuration as Helm values. The workload restarts once for each version.
    """
    assert (0, "unchanged: none\n") == await site.run()
    version = await site.change(SLOW)
    assert "pending" == await site.state()
    assert (0, f"applied: {version}\n") == await site.run()
    assert await site.state() == "applied"
    assert site.kept() == SLOW
    assert site.restarted_with() == version
    values = yaml.safe_load(site.config_map()["data"]["values.yaml"])
    assert "120s" == values["prometheusConfig"]["globalScrapeInterval"]
    assert ["^team$"] == values["insightsController"]["labels"]["patterns"]
    site.api.asked.clear()
    assert (0, f"unchanged: {version}\n") == await site.run()
    assert {"get"} == {each.split()[0] for each in site.api.asked}


async def test_manual_change_is_reported_and_reverted_only_with_restore(site: Site) -> None:
    """
    A manual change in the cluster stays until a new configuration is set or the job runs with `--restore`.
    """
    version = await site.change(SLOW)
    await site.run()
    site.edit(QUICK)
    code, said = await site.run()
    assert code == 0
    assert said.startswith("drifted")
    assert await site.state() == "drifted"
    assert site.kept() == QUICK
    assert hash_config(QUICK) == (await site.shown())["applied_version"]
    assert (0, f"applied: {version}\n") == await site.run("--restore")
    assert await site.state() == "applied"
    assert site.kept() == SLOW
    site.api.put("configmaps", CONFIG_MAP, data={"config.json": "scrape: ["})
    assert 0 == (await site.run())[0] and "drifted" == await site.state()
    newer = await site.change(QUICK)
    assert (0, f"applied: {newer}\n") == await site.run()
    assert await site.state() == "applied"
    assert site.kept() == QUICK


async def test_older_version_is_applied_and_empty_configuration_removes_everything(site: Site) -> None:
    """An older version is applied again. An empty configuration removes everything."""
    first = await site.change(SLOW)
    await site.run()
    await site.change(QUICK)
    await site.run()
    assert first == await site.change(SLOW)
    assert (0, f"applied: {first}\n") == await site.run()
    await site.change({})
    assert (0, "applied: none\n") == await site.run()
    assert await site.state() == "none"
    assert site.kept() == {}
    assert site.restarted_with() == ""
    assert (0, "unchanged: none\n") == await site.run()


async def test_refusal_by_the_cluster_is_printed_and_shown(site: Site) -> None:
    """
    The job prints the refusal on one line, and Tollhouse shows it. The next run tries again, even if only the
    restart is missing.
    """
    version = await site.change(SLOW)
    site.api.refuses = "patch"
    code, said = await site.run()
    assert code == 1
    assert "no changes today" in said
    shown = await site.shown()
    assert shown["config_state"] == "failed"
    assert "no changes today" in shown["config_problem"]
    site.api.refuses = ""
    site.api.put("deployments", WORKLOAD, spec={"template": {"metadata": {"annotations": None}}})
    kept = {"config.json": json.dumps(SLOW)}
    site.api.put("configmaps", CONFIG_MAP, data=kept, metadata={"annotations": {ANNOTATION: version}})
    assert (0, f"applied: {version}\n") == await site.run()
    assert await site.state() == "applied"
    assert site.restarted_with() == version


@pytest.mark.parametrize("body", ["{}", '{"error": "overloaded"}', "[1]", "<html>"])
async def test_an_error_without_a_message_has_only_its_status(body: str) -> None:
    """A proxy before the server may answer in another form than the server."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=502, text=body)

    application = web.Application()
    application.router.add_get("/", answer)
    async with TestServer(application) as proxy:
        server = JsonApiClient(name="the gateway", url=str(proxy.make_url("")), authorization="Bearer a")
        with pytest.raises(JobProblem, match=r"^the gateway answered 502 to GET: $"):
            await asyncio.to_thread(server.send_request, "GET", "/")


async def test_the_job_may_do_nothing_else(site: Site) -> None:
    """The job's rights cover one ConfigMap and one workload, and its key covers one cluster."""
    await site.change(SLOW)
    for more in (
        ["--config-map=others"],
        ["--workload=deployments/others"],
        ["--workload=daemonsets/metrics-agent-server"],
    ):
        code, said = await site.run(*more)
        assert code == 1, said
        assert "forbidden" in said, said
    other = await site.server.make_key("agent of B", scopes=agent.SCOPES)
    elsewhere = ClusterIdentity(CLUSTER.account, CLUSTER.region, "b")
    status = agent.status(cluster=elsewhere)
    await site.server.send(f"{agent.BASE}/status", status, content_type="application/x-protobuf", key=other)
    code, said = await site.run(key=other)
    assert code == 1, said
    assert "404" in said, said
    code, said = await site.run(f"--cluster={elsewhere.name}")
    assert code == 1, said
    assert "404" in said, said
    assert "data" not in site.config_map() and "pending" == await site.state()


async def test_a_change_in_between_is_not_written_over(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a person writes while the job runs, the API server refuses the job's write and the person's change stays.
    """
    await site.change(SLOW)
    answer = site.api.put
    read = site.server.app.services.storage.container_files.has_newest_status

    async def status_taken(*words: Any, **more: Any) -> bool:
        answer("configmaps", CONFIG_MAP, data={"config.json": json.dumps(QUICK)})
        return await read(*words, **more)

    monkeypatch.setattr(site.server.app.services.storage.container_files, "has_newest_status", status_taken)
    code, said = await site.run()
    assert code == 1
    assert "modified" in said
    assert site.kept() == QUICK


@pytest.mark.parametrize("missing", ["token", "namespace", "key"])
async def test_what_the_job_needs_is_named(site: Site, missing: str) -> None:
    """If a file that the job needs is missing, the error names it. No request is sent that would need it."""
    (site.home / missing).unlink(missing_ok=True)
    more = [f"--key-file={site.home}/gone"] if missing == "key" else []
    code, said = await site.run(*more)
    assert code == 1
    assert ("gone" if missing == "key" else missing) in said
