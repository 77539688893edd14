"""Client certificates for ClickHouse: valid, missing, of another authority, and replaced."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from exporters.destinations.catalogue import TYPES, destination_problems, destination_secret
from exporters.probe import OK, REFUSED, UNAVAILABLE, Probe
from exporters.settings import DestinationSettings
from spool.clock import SystemClock
from spool.deliveries.values import PARKED
from tests.exporters.clickhouse.server import Table, served
from tests.exporters.spools import calls
from tests.integration.certificates import Certificates
from tests.integration.lake.lakes import opened


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of an authority that the ClickHouse server does not know."""
    return Certificates(tmp_path_factory.mktemp("others"))


def asking(certificates: Certificates) -> ssl.SSLContext:
    """Return a server-side TLS context that requires a client certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.path("ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    return context


def settings(url: str, own: Certificates, **changes: Any) -> dict[str, Any]:
    usual = {
        "type": "clickhouse",
        "url": url,
        "ca_file": own.path("ca.pem"),
        "tls_cert_file": own.path("client.pem"),
        "tls_key_file": own.path("client.key"),
    }
    return {**usual, **changes}


async def checked(given: dict[str, Any]) -> Probe:
    made = DestinationSettings(name="lake", **given)
    return await TYPES["clickhouse"].probe(made, destination_secret(made), SystemClock())


@pytest.mark.parametrize(
    ("secret", "signed"),
    [("writer", (None, "on")), ("writer\nhunter2", ("hunter2", None)), ("", (None, None))],
)
async def test_a_certificate_signs_in_a_user_without_a_password(
    own: Certificates, tmp_path: Path, secret: str, signed: tuple[str | None, str | None]
) -> None:
    """
    A certificate can sign in a user without a password. With a password, the server checks both. Without a
    user, the certificate only opens the connection.
    """
    table, file = Table(), tmp_path / "secret"
    file.write_text(secret)
    async with served(table, tls=asking(own)) as url:
        found = await checked(settings(url, own, secret_file=file if secret else None))
    assert OK == found.status, found
    assert table.signed == {signed}
    assert {secret.partition("\n")[0] or None} == table.users


async def test_one_that_is_refused_is_named(own: Certificates, others: Certificates, tmp_path: Path) -> None:
    """
    The error names the reason: the certificate is missing, the server does not know its authority, the client
    does not know the server's authority, or a file holds no certificate.
    """
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    wrong: dict[str, dict[str, Any]] = {
        "alert": {"tls_cert_file": None, "tls_key_file": None},
        "unknown ca": {"tls_cert_file": others.path("client.pem"), "tls_key_file": others.path("client.key")},
        "certificate verify failed": {"ca_file": others.path("ca.pem")},
        "broken.pem and": {"tls_cert_file": broken},
        "ca_file": {"ca_file": broken},
        "missing.pem and": {"tls_cert_file": tmp_path / "missing.pem"},
    }
    async with served(Table(), tls=asking(own)) as url:
        for words, changes in wrong.items():
            found = await checked(settings(url, own, **changes))
            # If the connection was cut during a write, the server's message is lost. In that case, try again.
            while found.status == UNAVAILABLE:
                found = await checked(settings(url, own, **changes))
            said = (found.words or "").lower().replace("_", " ")
            assert found.status == REFUSED, (words, found)
            assert words.replace("_", " ") in said, (words, found)


async def test_one_that_is_exchanged_wakes_the_route(
    own: Certificates, others: Certificates, tmp_path: Path
) -> None:
    """
    A certificate of another authority parks the route without loss. The right one is accepted without a restart.
    """
    table, cert, key = Table(), tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(others.path("client.pem"), cert)
    shutil.copy(others.path("client.key"), key)
    async with served(table, tls=asking(own)) as url, opened(tmp_path / "data") as house:
        await house.add(calls(1, 10))
        async with house.forwarding(**settings(url, own, tls_cert_file=cert, tls_key_file=key)):
            await house.until(state=PARKED)
            shutil.copy(own.path("client.key"), key)
            shutil.copy(own.path("client.pem"), cert)
            await house.until(queued=0)
    assert [*range(1, 11)] == sorted(row["number"] for row in table.rows)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tls_cert_file": Path("cert.pem")}, "set both tls_cert_file and tls_key_file"),
        (
            {"url": "http://127.0.0.1:8123/costs", "tls_cert_file": Path("c"), "tls_key_file": Path("k")},
            "needs an https",
        ),
    ],
)
async def test_check_reports_unusable_certificate_settings(changes: dict[str, Any], words: str) -> None:
    """
    The check reports a certificate without its key or a key without its certificate, and a certificate for a
    connection without TLS.
    """
    given = {"type": "clickhouse", "url": "https://house.example:8443/costs", **changes}
    [found] = destination_problems([DestinationSettings(name="lake", **given)])
    assert words in found
