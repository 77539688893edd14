"""
A data lake without a configured secret: the store library queries the identity services of the machine or
pod, which are simulated here.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporters.destinations.catalogue import destination_secret
from exporters.errors import Misconfigured, Retryable
from exporters.lake.destination import open_store
from exporters.settings import DestinationSettings
from tests.integration.certificates import Certificates
from tests.waiting import limited

AWS_TOKEN = "aws-session"
ROLE = "arn:aws:iam::123456789012:role/lake"


def _ends() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _keys(name: str) -> web.Response:
    keys = {"Code": "Success", "AccessKeyId": name, "SecretAccessKey": "secret", "Token": AWS_TOKEN}
    return web.json_response({**keys, "Expiration": _ends()})


def _assumed(name: str) -> web.Response:
    keys = (
        f"<AccessKeyId>{name}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
        f"<SessionToken>{AWS_TOKEN}</SessionToken><Expiration>{_ends()}</Expiration>"
    )
    result = f"<AssumeRoleWithWebIdentityResult><Credentials>{keys}</Credentials></AssumeRoleWithWebIdentityResult>"
    return web.Response(
        text=f"<AssumeRoleWithWebIdentityResponse>{result}</AssumeRoleWithWebIdentityResponse>"
    )


@dataclass
class Platform:
    """
    Fake identity services, with a store that records the writer's credentials. `refuses` maps a part of a path
    to the status with which it fails.
    """

    refuses: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    wrote: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        told = {**headers, **dict(request.query), **dict(parse_qsl((await request.read()).decode()))}
        for part, status in self.refuses.items():
            if part in path:
                return web.json_response({"error": "invalid_grant"}, status=status)
        answer = self._identity(path)
        if answer is not None:
            self.asked.append((path, told))
            return answer
        if request.method == "HEAD":
            return web.Response(status=404)
        self.wrote.append(headers)
        return web.Response(status=201, headers={"ETag": '"1"', "x-goog-generation": "1"})

    def _identity(self, path: str) -> web.Response | None:
        if path == "/latest/api/token":
            return web.Response(text="imds-session")
        if path.rstrip("/") == "/latest/meta-data/iam/security-credentials":
            return web.Response(text="lake-role")
        if path == "/latest/meta-data/iam/security-credentials/lake-role":
            return _keys("of-machine")
        if path == "/pod":
            return _keys("of-pod")
        if path == "/sts":
            return _assumed("of-role")
        if path.endswith("/service-accounts/default/token"):
            return web.json_response({"access_token": "of-machine", "expires_in": 3600})
        if path == "/google/token":
            return web.json_response({"access_token": "exchanged", "expires_in": 3600})
        if path == "/google/lake:generateAccessToken":
            return web.json_response({"accessToken": "of-account", "expireTime": _ends()})
        if path == "/msi":
            return web.json_response({"access_token": "of-machine", "expires_on": "4102444800"})
        if path.endswith("/oauth2/v2.0/token"):
            return web.json_response({"access_token": "of-pod", "expires_in": 3600})
        return None


@asynccontextmanager
async def served(platform: Platform, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", platform.answer)
    scheme = "http" if context is None else "https"
    async with TestServer(application, scheme=scheme) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def secured(platform: Platform, certificates: Certificates) -> AsyncIterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", platform.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_server(runner.server, "127.0.0.1", 0, ssl=context)
    closed = asyncio.create_task(server.wait_closed())
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await runner.cleanup()
        await closed  # a TLS connection closes only after the client has confirmed the end


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove environment variables with credentials."""
    for name in os.environ:
        if name.startswith(("AWS_", "GOOGLE_", "GCE_", "AZURE_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)


def lake(type: str, endpoint: str, **fields: Any) -> DestinationSettings:
    url = {"s3": "s3://acme/lake", "gcs": "gs://acme/lake", "azure": "az://acme/lake"}[type]
    account = "acme" if type == "azure" else ""
    return DestinationSettings(name="lake", type=type, url=url, endpoint=endpoint, account=account, **fields)


async def write(settings: DestinationSettings) -> None:
    assert await open_store(settings, destination_secret(settings)).create_object("one", b"1")


async def test_a_machine_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    On a machine of AWS, version 2 of the metadata service is used: first a token, then the keys of the machine's
    role, which include a session token.
    """
    platform = Platform()
    async with served(platform) as url:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", url)
        await write(lake("s3", url))
    (wrote,) = platform.wrote
    assert "Credential=of-machine/" in wrote["authorization"]
    assert AWS_TOKEN == wrote["x-amz-security-token"]
    assert (
        "imds-session"
        == dict(platform.asked)["/latest/meta-data/iam/security-credentials/lake-role"][
            "x-aws-ec2-metadata-token"
        ]
    )


async def test_a_pod_of_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod of AWS, the node's agent exchanges the pod's token for keys."""
    (tmp_path / "token").write_text("pod-token")
    platform = Platform()
    async with served(platform) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/pod")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        await write(lake("s3", url))
    assert "Credential=of-pod/" in platform.wrote[0]["authorization"]
    assert "pod-token" == dict(platform.asked)["/pod"]["authorization"]


async def test_a_role_of_aws(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a role of AWS is configured, a token of the cluster is exchanged for a session of this role."""
    (tmp_path / "token").write_text("web-token")
    platform = Platform()
    async with secured(platform, certificates) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"{url}/sts")
        settings = lake("s3", url, role=ROLE, identity_token_file=tmp_path / "token")
        await write(settings_with(settings, certificates))
    assert "Credential=of-role/" in platform.wrote[0]["authorization"]
    told = dict(platform.asked)["/sts"]
    assert told["RoleArn"] == ROLE
    assert told["WebIdentityToken"] == "web-token"
    assert told["RoleSessionName"] == "tollhouse"


def settings_with(settings: DestinationSettings, certificates: Certificates) -> DestinationSettings:

    return replace(settings, ca_file=certificates.path("ca.pem"))


async def test_a_machine_of_google(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of Google, the metadata service returns a token of the machine's service account."""
    platform = Platform()
    async with served(platform) as url:
        monkeypatch.setenv("GCE_METADATA_HOST", url.removeprefix("http://"))
        await write(lake("gcs", url))
    assert "Bearer of-machine" == platform.wrote[0]["authorization"]
    assert "Google" == platform.asked[0][1]["metadata-flavor"]


def account(directory: Path, url: str, **fields: Any) -> Path:
    """Write Google's credential file for an external identity, and its token; return the file."""
    (directory / "subject").write_text(json.dumps({"jwt": "subject-token"}))
    source = {
        "file": str(directory / "subject"),
        "format": {"type": "json", "subject_token_field_name": "jwt"},
    }
    content = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{url}/google/token",
        "credential_source": source,
        **fields,
    }
    path = directory / "account.json"
    path.write_text(json.dumps(content))
    return path


async def test_an_external_account_of_google(tmp_path: Path) -> None:
    """The token of an external account of Google is exchanged once, and requests use the resulting token."""
    platform = Platform()
    async with served(platform) as url:
        settings = lake("gcs", url, identity_token_file=account(tmp_path, url))
        store = open_store(settings, destination_secret(settings))
        for name in ("one", "two"):
            assert await store.create_object(name, b"1")
    assert ["Bearer exchanged"] * 2 == [wrote["authorization"] for wrote in platform.wrote]
    ((path, told),) = platform.asked
    assert path == "/google/token"
    assert told["subject_token"] == "subject-token"
    assert told["audience"].startswith("//iam.googleapis.com/") and told["scope"].endswith(
        "devstorage.read_write"
    )


async def test_an_external_account_may_be_a_service_account(tmp_path: Path) -> None:
    """
    An external account of Google may name a service account: the exchanged token allows impersonating it, and
    requests use that account's token.
    """
    platform = Platform()
    async with served(platform) as url:
        other = {"service_account_impersonation_url": f"{url}/google/lake:generateAccessToken"}
        await write(lake("gcs", url, identity_token_file=account(tmp_path, url, **other)))
    assert ["Bearer of-account"] == [wrote["authorization"] for wrote in platform.wrote]
    assert "Bearer exchanged" == dict(platform.asked)["/google/lake:generateAccessToken"]["authorization"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"type": "authorized_user"}, "its type is 'authorized_user' instead of 'external_account'"),
        ({"token_url": "http://sts.example.com/token"}, "does not begin with https://"),
        (
            {"credential_source": {"url": "http://169.254.169.254/token"}},
            "its credential_source names no file",
        ),
        ({"credential_source": {"file": "/nowhere/token"}}, "cannot read /nowhere/token"),
        ({"audience": None}, "it is not an external account file"),
    ],
)
async def test_a_wrong_external_account_parks(fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    """
    If the file of an external account is wrong, the operator has to change it. The route waits and says
    what is wrong.
    """
    async with served(Platform()) as url:
        settings = lake("gcs", url, identity_token_file=account(tmp_path, url, **fields))
        with pytest.raises(Misconfigured, match=words):
            await write(settings)


@pytest.mark.parametrize(("status", "error"), [(400, Misconfigured), (403, Misconfigured), (503, Retryable)])
async def test_refused_token_pauses_route_and_unreachable_identity_service_is_retried(
    status: int, error: type[Exception], tmp_path: Path
) -> None:
    """
    If an identity service refuses a token, the route is parked. If the service is unreachable, it is tried again.
    No message contains the token.
    """
    platform = Platform(refuses={"/google/token": status})
    async with served(platform) as url:
        settings = lake("gcs", url, identity_token_file=account(tmp_path, url))
        with pytest.raises(error, match=str(status)) as refused:
            await write(settings)
        assert "subject-token" not in str(refused.value)
        platform.refuses.clear()
        await write(settings)


async def test_a_machine_of_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of Azure, the metadata service returns a token of the managed identity."""
    platform = Platform()
    async with served(platform) as url:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{url}/msi")
        await write(lake("azure", url))
    assert "Bearer of-machine" == platform.wrote[0]["authorization"]
    assert "https://storage.azure.com" == platform.asked[0][1]["resource"]


async def test_a_pod_of_azure(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod of Azure, the cluster's token is exchanged for a token of the pod's application."""
    (tmp_path / "token").write_text("federated")
    platform = Platform()
    async with secured(platform, certificates) as url:
        monkeypatch.setenv("AZURE_CLIENT_ID", "client-1")
        monkeypatch.setenv("AZURE_TENANT_ID", "tenant-1")
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", url)
        settings = lake("azure", url, identity_token_file=tmp_path / "token")
        await write(settings_with(settings, certificates))
    assert "Bearer of-pod" == platform.wrote[0]["authorization"]
    told = dict(platform.asked)["/tenant-1/oauth2/v2.0/token"]
    assert told["client_id"] == "client-1"
    assert told["client_assertion"] == "federated"


async def test_a_machine_without_an_identity_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If the metadata service of a machine returns no identity, the records are not to blame, so they wait and the
    service is queried again.
    """
    platform = Platform(refuses={"/latest/": 404})
    async with served(platform) as url:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", url)
        with pytest.raises((Misconfigured, Retryable)):
            async with limited():
                await write(lake("s3", url))
    assert [] == platform.wrote
