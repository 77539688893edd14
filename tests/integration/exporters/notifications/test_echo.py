"""A receiver repeats the request in its answer. No secret of the request is stored with that answer."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest

from exporters.errors import SendError
from exporters.http.client import ClientSettings, HttpClient
from exporters.notifications.catalogue import TYPES, build_channel
from exporters.notifications.channel import NotificationMessage
from exporters.otlp.telemetry import rejected_count_and_message
from tests.exporters.notifications.examples import NOW, SECRET, notice, settings
from tests.exporters.upstream import FakeUpstream, Received, Reply
from tests.integration.certificates import Certificates
from tests.integration.exporters.notifications.receivers import Mailbox, mail_server
from tests.moved_clock import MovedClock
from tests.rounds import part

CLOCK = MovedClock(NOW)
HOOK = "/services/T024BE7LD/B01ABCDEF/Qw3rtyUiopAsdf?sig=Zx%2BcvbnmLkjh"
INTEGRATION_KEY = "0123456789abcdefABCDEF0123456789"
TOKEN = "al3rt-manager-t0ken"
HEADERS = {"X-Team-Key": "t3am-header-value"}
PARTS = (
    "T024BE7LD",
    "B01ABCDEF",
    "Qw3rtyUiop",
    "vbnmLkjh",
    SECRET,
    INTEGRATION_KEY,
    TOKEN,
    HEADERS["X-Team-Key"],
)


def settings_of(type: str, url: str, directory: Path) -> dict[str, Any]:
    """Return settings of a type with every secret that it can have."""
    secret = {"webhook": SECRET, "pagerduty": INTEGRATION_KEY, "alertmanager": TOKEN}.get(type, "")
    file = directory / "secret"
    file.write_text(f"{secret}\n")
    known: dict[str, dict[str, Any]] = {
        "webhook": {"url": f"{url}/hook{HOOK[-22:]}", "secret_file": file, "headers": HEADERS},
        "slack": {"url": f"{url}{HOOK}"},
        "teams": {"url": f"{url}{HOOK}"},
        "pagerduty": {"url": url, "secret_file": file},
        "alertmanager": {"url": url, "secret_file": file, "headers": HEADERS},
    }
    return known[type]


def echo(request: Received) -> Reply:
    lines = [request.target, *(f"{name}: {value}" for name, value in request.headers.items())]
    return Reply(
        403, body="\n".join(lines).encode()[:400] + b"\n" + request.body[:60], content_type="text/plain"
    )


@pytest.mark.proves("A secret appears in a log, an answer or an upstream's error")
@pytest.mark.parametrize("type", sorted(set(TYPES) - {"email"}))
@pytest.mark.parametrize("status", part([400, 403, 503], every=3))
async def test_no_channel_repeats_a_secret(type: str, status: int, tmp_path: Path) -> None:
    """No stored answer contains the hook's address or a part of it, a key, a header or a signature."""
    async with FakeUpstream() as receiver:
        receiver.judge = lambda request: Reply(status, echo(request).body, "text/plain")
        channel = build_channel(settings(type, **settings_of(type, receiver.url, tmp_path)), CLOCK)
        with pytest.raises(SendError, match=str(status)) as refused:
            await channel.send(NotificationMessage(notices=[notice()]))
        shown = f"{refused.value} {await channel.probe()}"
        await channel.close()
        signature = receiver.requests[0].headers.get("webhook-signature", "v1,none")
    assert [] == [part for part in (*PARTS, signature) if part in shown]


async def test_no_mail_server_repeats_the_password(tmp_path: Path) -> None:
    """
    The password is removed as plain text, in its sign-in encoding, and from the answer about a refused recipient.
    """
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    password = "c0rrect-horse"
    encoded = [base64.b64encode(each).decode() for each in (b"\0tollhouse\0c0rrect-horse", b"c0rrect-horse")]
    file = tmp_path / "password"
    file.write_text(password)
    async with mail_server(Mailbox(), tls=context, password=password) as mailbox:
        mailbox.refuse = {"ada@example.com": f"550 {password} {' '.join(encoded)}"}
        to = settings(
            "email",
            server=f"127.0.0.1:{mailbox.port}",
            sender="tollhouse@example.com",
            to=("ada@example.com",),
            username="tollhouse",
            secret_file=file,
            ca_file=certificates.path("ca.pem"),
        )
        with pytest.raises(SendError, match="550") as refused:
            await build_channel(to, CLOCK).send(NotificationMessage(notices=[notice()]))
    assert [] == [each for each in (password, *encoded) if each in str(refused.value)]


async def test_a_partial_success_repeats_no_key() -> None:
    """
    A 2xx may have text about rejected records, which is stored for operators. It is cleaned like an error.
    """
    async with FakeUpstream() as upstream:
        body = b'{"partialSuccess": {"rejectedSpans": 3, "errorMessage": "key th_abcdef of x-y is old"}}'
        upstream.answers.append(Reply(200, body, "application/json"))
        async with HttpClient(ClientSettings(), clock=CLOCK) as client:
            answer = await client.send(
                f"{upstream.url}/v1/traces", b"", content_type="application/json", authorization="th_abcdef"
            )
    assert (3, "key [key] of x-y is old") == rejected_count_and_message(answer, "traces")
