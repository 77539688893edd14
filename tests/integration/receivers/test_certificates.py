"""TLS certificates on every public listener, and their renewal while the server runs."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterable
from pathlib import Path

import grpc
import pytest
from aiohttp import ClientError, ClientSession, DummyCookieJar

from gateway.configuration.certificates import read_certificate_expiries
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.configuration.values import ConfigError
from gateway.core.paths import OPERATOR_API
from gateway.http.listening.tls import Certificate
from spool.registry.operators import ADMIN, Actor
from tests.gateway.http import raw
from tests.integration.certificates import Certificates
from tests.integration.conftest import ACTOR, Serve


def placed(directory: Path, certificates: Certificates, name: str) -> dict[str, Path]:
    """Copy a server certificate into its own directory, where a test can replace it; return the settings."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    put(certificates.path(f"{name}.pem"), cert)
    put(certificates.path(f"{name}.key"), key)
    return {"tls_cert_file": cert, "tls_key_file": key}


def put(source: Path, place: Path) -> None:
    """Replace a file by a new one. Otherwise a file of equal size and time would look unchanged."""
    shutil.copy(source, beside := place.with_suffix(".new"))
    beside.replace(place)


async def names_shown(addresses: Iterable[str], certificates: Certificates) -> list[object]:
    """Return the names in the certificates that new connections show."""
    return [await asyncio.to_thread(_name_shown, address, certificates) for address in addresses]


def _name_shown(address: str, certificates: Certificates) -> object:
    host, _, port = address.rpartition("//")[2].rpartition(":")
    context = certificates.anonymous()
    with (
        socket.create_connection(("127.0.0.1", int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        found = secure.getpeercert()
    assert found is not None, host
    return dict(pair for part in found["subject"] for pair in part)["commonName"]  # type: ignore[misc]


async def test_plain_http_on_a_port_with_tls_is_a_log_line(
    serve: Serve, certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serving = await serve(
        listen="0.0.0.0:0", operator_listen="127.0.0.1:0", **placed(tmp_path, certificates, "server")
    )
    await raw.talk(serving.port, raw.post("/v1/traces", b"{}"))
    assert "plain_http_on_tls_port" in [getattr(record, "action", None) for record in caplog.records]
    assert "send to https://" in caplog.text


@pytest.mark.proves("Somebody reads the traffic")
async def test_the_public_operator_side_has_tls(
    serve: Serve, certificates: Certificates, tmp_path: Path
) -> None:
    """
    Sign-in, cookie and metrics work under TLS. The cookie is only for TLS, and a plain request gets no HTTP answer.
    """
    serving = await serve(operator_listen="0.0.0.0:0", **placed(tmp_path, certificates, "server"))
    url = serving.app.operator_url.replace("0.0.0.0", "127.0.0.1")
    assert url.startswith("https://")
    registry = serving.app.services.storage.registry
    assert registry is not None
    link = await registry.operators.create_sign_in_link(role=ADMIN, actor=Actor("root", "local"))
    async with ClientSession(cookie_jar=DummyCookieJar()) as client:
        answer = await client.post(
            url + OPERATOR_API + "/sessions", json={"link": link}, ssl=certificates.anonymous()
        )
        cookie = answer.cookies["__Secure-tollhouse"]
        assert answer.status == 201
        assert cookie["secure"] is True
        assert cookie["httponly"] is True
        with pytest.raises(ClientError):
            await client.get(url.replace("https", "http") + "/metrics")


async def test_operators_on_this_machine_need_none(
    serve: Serve, certificates: Certificates, tmp_path: Path
) -> None:
    """A scraper on the same machine reads /metrics without trusting the certificate."""
    serving = await serve(operator_listen="127.0.0.1:0", **placed(tmp_path, certificates, "server"))
    async with serving.client.get(serving.app.operator_url + "/metrics") as answer:
        assert serving.app.operator_url.partition(":")[0] == "http"
        assert answer.status == 200


async def test_a_renewed_certificate_is_shown_to_new_connections(
    serve: Serve, certificates: Certificates, tmp_path: Path
) -> None:
    """
    After a reload, HTTP and gRPC show the new certificate. A certificate and key that do not match change nothing.
    """
    files = placed(tmp_path, certificates, "server")
    serving = await serve(grpc_listen="127.0.0.1:0", **files)
    addresses = (serving.url, serving.app.grpc_address)
    assert ["server", "server"] == await names_shown(addresses, certificates)
    put(certificates.path("client.pem"), files["tls_cert_file"])
    with pytest.raises(ConfigError, match="tls_cert_file"):
        await serving.app.reload(ACTOR)
    assert ["server", "server"] == await names_shown(addresses, certificates)
    put(certificates.path("client.key"), files["tls_key_file"])
    await serving.app.reload(ACTOR)
    assert ["client", "client"] == await names_shown(addresses, certificates)
    root = grpc.ssl_channel_credentials(certificates.path("ca.pem").read_bytes())  # type: ignore[no-untyped-call]
    async with grpc.aio.secure_channel(serving.app.grpc_address, root) as channel:
        await channel.channel_ready()


async def test_unchanged_files_are_not_read_again(certificates: Certificates, tmp_path: Path) -> None:
    files = placed(tmp_path, certificates, "server")
    certificate = Certificate(files["tls_cert_file"], files["tls_key_file"], None)
    assert not certificate.reload_if_changed()
    placed(tmp_path, certificates, "client")
    assert certificate.reload_if_changed() and not certificate.reload_if_changed()


async def test_files_that_do_not_belong_together_start_nothing(certificates: Certificates) -> None:
    """The server does not start with a certificate and the key of another."""
    with pytest.raises(ssl.SSLError):
        Certificate(certificates.path("server.pem"), certificates.path("client.key"), None)


async def test_the_end_of_the_certificate_is_known(tmp_path: Path, certificates: Certificates) -> None:
    """
    The metrics state how many seconds the certificate is still valid, for an alert before the expiry. The value
    agrees with the openssl command.
    """
    settings = placed(tmp_path, certificates, "server")
    command = ("openssl", "x509", "-enddate", "-noout", "-in", str(settings["tls_cert_file"]))
    said = (
        subprocess.run(command, check=True, capture_output=True, text=True)
        .stdout.strip()
        .removeprefix("notAfter=")
    )
    certificate = Certificate(settings["tls_cert_file"], settings["tls_key_file"], None)
    config = Config(server=ServerSettings(tls_cert_file=tmp_path / "moved", tls_key_file=tmp_path / "moved"))
    [end] = read_certificate_expiries(config, certificate.loaded_pem_by_setting)
    assert ssl.cert_time_to_seconds(said) == end.ends_at
