"""The requests of a cluster's agent: files of its shipper, its status, and remote write bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from gateway.normalise import cluster_reports
from spool.container_files.values import ClusterIdentity
from spool.registry.scopes import GROUPS
from tests.integration.conftest import Answer, Serving

CLUSTER = ClusterIdentity("123456789012", "us-east-1", "prod")
BASE = "/v1/container-metrics"
SCOPES = (*GROUPS["Container agent"], "insights:read_insights")
SHIPPER = "shipper-7"
HEADERS = {"X-CloudZero-Shipper-ID": SHIPPER, "X-CloudZero-Version": "1.2.12"}


def query(*, cluster: ClusterIdentity = CLUSTER, **more: object) -> str:
    words = {"cluster_name": cluster.name, "cloud_account_id": cluster.account, "region": cluster.region}
    return "?" + urlencode({**words, **more})


async def announce(
    server: Serving,
    files: Sequence[str | Mapping[str, object]],
    key: str,
    *,
    cluster: ClusterIdentity = CLUSTER,
) -> Answer:
    """
    Request an upload address for each file. A file is given by its reference, or as a mapping with further fields.
    """
    told = [{"reference_id": file} if isinstance(file, str) else file for file in files]
    body = json.dumps({"shipperId": SHIPPER, "files": told}).encode()
    words = query(cluster=cluster, count=len(files), shipper_id=SHIPPER, expiration=3600)
    return await server.send(f"{BASE}/upload{words}", body, key=key, headers=HEADERS)


async def put(server: Serving, url: str, body: bytes, **headers: str) -> Answer:
    """Upload like the shipper: with neither a key nor a media type."""
    path = "/" + url.partition("://")[2].partition("/")[2]
    return await server.send(path, body, method="PUT", key=None, content_type=None, headers=headers)


async def ship(server: Serving, files: Mapping[str, bytes], key: str) -> list[int]:
    """Announce and upload files; return the status of each upload."""
    urls = json.loads((await announce(server, list(files), key)).body)
    return [(await put(server, urls[reference], data)).status for reference, data in files.items()]


async def abandon(server: Serving, references: Sequence[str], key: str) -> Answer:
    body = json.dumps([{"reference_id": one, "reason": "not found"} for one in references]).encode()
    return await server.send(f"{BASE}/abandon{query()}", body, key=key, headers=HEADERS)


def status(state: int = 2, *, cluster: ClusterIdentity = CLUSTER) -> bytes:
    """Encode a ClusterStatus with one failed check."""
    place = {"account": cluster.account, "region": cluster.region, "name": cluster.name}
    message = cluster_reports.ClusterStatus(**place, state=state, chart_version="1.2.12", k8s_version="1.31")
    message.checks.add(name="api_key_valid", passing=False, error="401")
    return bytes(message.SerializeToString())


def config() -> bytes:
    place = {"account": CLUSTER.account, "region": CLUSTER.region, "name": CLUSTER.name}
    return bytes(cluster_reports.ClusterConfig(**place, release_name="cz-agent").SerializeToString())
