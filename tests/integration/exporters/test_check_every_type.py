"""
`tollhouse check` of every destination and channel type, where the remote side is missing, refuses everything,
or repeats what it got. Each check prints one line without a secret, and the other checks still run.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from exporters.check import check_channels, check_destinations
from exporters.destinations import webhook
from exporters.destinations.catalogue import TYPES as DESTINATIONS
from exporters.destinations.catalogue import destination_problems as destination_problems
from exporters.notifications.catalogue import TYPES as CHANNELS
from exporters.notifications.catalogue import all_channel_problems as channel_problems
from exporters.probe import OK, REFUSED, UNAVAILABLE, UNVERIFIED
from exporters.redaction import LONGEST_WORDS
from exporters.settings import DestinationSettings, NotifySettings
from spool.clock import SystemClock
from tests.rounds import part

CLOCK = SystemClock()
NOBODY, REFUSAL, ECHO = "nobody", "refusal", "echo"
FARS = (NOBODY, REFUSAL, ECHO)
KEY_ID, SECRET, IN_HEADER, IN_PATH = (
    "key-id-1",
    "s3cr3t-in-a-file",
    "s3cr3t-in-a-header",
    "s3cr3t-in-the-path",
)
SIGNING = "whsec_" + base64.b64encode(b"s3cr3t-that-signs-every-notice").decode()
INTEGRATION = "s3cr3tintegrationkeyofpagerduty1"
ACCOUNT_KEY = base64.b64encode(b"s3cr3t-of-a-storage-account").decode()
SECRETS = (SECRET, IN_HEADER, IN_PATH, SIGNING, SIGNING.removeprefix("whsec_"), INTEGRATION, ACCOUNT_KEY)


@dataclass(frozen=True)
class Far:
    """The address of a remote side, and a directory for destinations that write files."""

    address: str  # host and port, as HOST:PORT
    directory: Path
    broken: bool  # whether files cannot be written in this case

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def file(self) -> Path:
        parent = self.directory / "no-directory"
        parent.touch()
        return parent / "records" if self.broken else self.directory / "records"

    def secret(self, *lines: str) -> Path:
        file = self.directory / "secret"
        file.write_text("\n".join(lines))
        return file


def service_account(far: Far) -> Path:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"client_email": "a@example.com", "private_key": key.decode(), "private_key_id": SECRET}
    return far.secret(json.dumps({**account, "gcs_base_url": far.url, "token_uri": f"{far.url}/token"}))


HEADERS = {"X-Auth": IN_HEADER}
DESTINATION: dict[str, Callable[[Far], DestinationSettings]] = {
    "ndjson": lambda far: DestinationSettings(name="d", type="ndjson", path=far.file),
    "focus": lambda far: DestinationSettings(name="d", type="focus", path=far.file),
    "file": lambda far: DestinationSettings(name="d", type="file", path=far.file),
    "otlp": lambda far: DestinationSettings(
        name="d", type="otlp", url=far.url, headers=HEADERS, secret_file=far.secret(SECRET)
    ),
    "webhook": lambda far: DestinationSettings(
        name="d", type="webhook", url=f"{far.url}/{IN_PATH}", headers=HEADERS, secret_file=far.secret(SECRET)
    ),
    "s3": lambda far: DestinationSettings(
        name="d", type="s3", url="s3://lake/p", endpoint=far.url, secret_file=far.secret(KEY_ID, SECRET)
    ),
    "gcs": lambda far: DestinationSettings(
        name="d", type="gcs", url="gs://lake/p", endpoint=far.url, secret_file=service_account(far)
    ),
    "azure": lambda far: DestinationSettings(
        name="d", type="azure", url="az://lake/p", account="a", endpoint=far.url, secret_file=far.secret(ACCOUNT_KEY)
    ),
    "kafka": lambda far: DestinationSettings(
        name="d", type="kafka", url=far.address, tls=False, sasl="plain", secret_file=far.secret("user", SECRET)
    ),
    "clickhouse": lambda far: DestinationSettings(
        name="d", type="clickhouse", url=f"{far.url}/db", secret_file=far.secret("user", SECRET)
    ),
}  # fmt: skip
CHANNEL: dict[str, Callable[[Far], NotifySettings]] = {
    "webhook": lambda far: NotifySettings(
        name="c", type="webhook", url=f"{far.url}/{IN_PATH}", headers=HEADERS, secret_file=far.secret(SIGNING)
    ),
    "slack": lambda far: NotifySettings(name="c", type="slack", url=f"{far.url}/{IN_PATH}"),
    "teams": lambda far: NotifySettings(name="c", type="teams", url=f"{far.url}/{IN_PATH}"),
    "email": lambda far: NotifySettings(
        name="c", type="email", server=far.address, tls="none", sender="a@example.com", to=("b@example.com",)
    ),
    "pagerduty": lambda far: NotifySettings(
        name="c", type="pagerduty", url=far.url, secret_file=far.secret(INTEGRATION)
    ),
    "alertmanager": lambda far: NotifySettings(
        name="c", type="alertmanager", url=far.url, headers=HEADERS, secret_file=far.secret(SECRET)
    ),
}  # fmt: skip
MAILS = "email"  # in this protocol the server speaks first


async def _speak_first(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"554 no service here\r\n" if kind == REFUSAL else b"220 ready\r\n")
    while kind == ECHO and (line := await reader.readline()):
        writer.write(b"535 " + line)


async def _answer(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """
    Answer HTTP with 403 or with the received bytes. For other protocols, close the connection or echo the bytes.
    """
    beginning = await reader.read(4)
    if beginning not in (b"GET ", b"PUT ", b"POST", b"HEAD"):
        while kind == ECHO and beginning:
            writer.write(beginning)
            beginning = await reader.read(65_536)
        return
    while beginning:
        head = beginning + await reader.readuntil(b"\r\n\r\n")
        length = [
            int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
        ]
        said = head + (await reader.readexactly(length[0]) if length else b"")
        status = "403 Forbidden" if kind == REFUSAL else "200 OK"
        body = b"" if head.startswith(b"HEAD") else said
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(said)}\r\n\r\n".encode()
            + body
        )
        beginning = await reader.read(4)


@asynccontextmanager
async def far_side(kind: str, directory: Path, type: str) -> AsyncIterator[Far]:
    talk = _speak_first if type == MAILS else _answer

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(kind, reader, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closes the connection when it has its answer
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if kind == NOBODY:
        server.close()
        await server.wait_closed()
    try:
        yield Far(f"127.0.0.1:{port}", directory, broken=kind != ECHO)
    finally:
        server.close()


def judge(status: str, words: str | None, to: str, *, far: str) -> None:
    """
    Check that the result is one short line without a secret, and no success if the remote side is missing
    or refuses everything.
    """
    assert status in (
        (OK, UNVERIFIED, REFUSED, UNAVAILABLE) if far == ECHO else (REFUSED, UNAVAILABLE, UNVERIFIED)
    )
    assert far != NOBODY or status in (REFUSED, UNAVAILABLE)
    line = f"{words} {to}"
    assert "\n" not in line
    assert len(words or "") <= LONGEST_WORDS + 3
    assert (to and status in (OK, UNVERIFIED)) or words
    assert "://" != to
    assert not any(secret in line for secret in SECRETS)
    assert "fault:" not in line and "Traceback" not in line


@pytest.mark.parametrize("far", part([*FARS], every=2))
@pytest.mark.parametrize("type", sorted(DESTINATIONS))
async def test_every_destination(type: str, far: str, tmp_path: Path) -> None:
    """Every type has an entry, and its check prints one line. A new type without an entry fails here."""
    async with far_side(far, tmp_path, type) as there:
        settings = DESTINATION[type](there)
        assert [] == list(destination_problems([settings]))
        after = DestinationSettings(name="after", type="ndjson", path=tmp_path / "after.ndjson")
        found, last = await check_destinations([settings, after], clock=CLOCK)
    judge(found.status, found.words, found.to, far=far)
    assert OK == last.status


@pytest.mark.parametrize("far", FARS)
@pytest.mark.parametrize("type", sorted(CHANNELS))
async def test_every_channel(type: str, far: str, tmp_path: Path) -> None:
    """Every type has an entry, and its check prints one line. A new type without an entry fails here."""
    async with far_side(far, tmp_path, type) as there:
        settings = CHANNEL[type](there)
        assert [] == list(channel_problems([settings]))
        found, last = await check_channels([settings, settings], clock=CLOCK)
    judge(found.status, found.words, found.to, far=far)
    assert found.status == last.status


async def test_a_check_that_fails_inside_keeps_no_other_from_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    A TypeError in a library once ended the whole command. The line must name the type of the error but
    not its text.
    """

    async def fails(*_: object) -> None:
        raise TypeError(SECRET)

    monkeypatch.setattr(webhook, "probe_connection", fails)
    there = Far("127.0.0.1:9", tmp_path, broken=False)
    found = await check_destinations(
        [DESTINATION["webhook"](there), DESTINATION["ndjson"](there)], clock=CLOCK
    )
    assert [(UNAVAILABLE, "fault: TypeError"), (OK, None)] == [(each.status, each.words) for each in found]
