"""E-mail through a real mail server: encryption, sign-in, repeats, refusals and interruptions."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from exporters.check import check_channels
from exporters.errors import Misconfigured, Rejected, Retryable, SendError
from exporters.notifications.catalogue import build_channel
from exporters.notifications.channel import NotificationMessage, PartlyDelivered
from exporters.probe import OK, REFUSED, UNAVAILABLE
from exporters.settings import NotifySettings
from tests.exporters.notifications.examples import NOW, notice, settings
from tests.integration.certificates import Certificates
from tests.integration.exporters.notifications.receivers import Mailbox, mail_server
from tests.moved_clock import MovedClock
from tests.waiting import limited

CLOCK = MovedClock(NOW)
ADA, BOB = "ada@example.com", "bob@example.com"


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with mail_server(Mailbox()) as mailbox:
        yield mailbox


def to(mailbox: Mailbox, **fields: Any) -> NotifySettings:
    given = {
        "server": f"127.0.0.1:{mailbox.port}",
        "tls": "none",
        "sender": "tollhouse@example.com",
        "to": (ADA, BOB),
    }
    return settings("email", **{**given, **fields})


async def send(settings: NotifySettings, message: NotificationMessage | None = None) -> str:
    channel = build_channel(settings, CLOCK)
    return await channel.send(message or NotificationMessage(notices=[notice("a", thread="t", text="Grüße")]))


async def test_a_mail_arrives_once_for_all(mailbox: Mailbox) -> None:
    """All recipients get one mail, as text and as HTML. Names cannot add lines to the subject."""
    await send(
        to(mailbox), NotificationMessage(notices=[notice(title="team Ünï: 80 %", text="Grüße\n.\nend")])
    )
    [(recipients, mail)] = mailbox.mails
    assert recipients == [ADA, BOB]
    assert mail["Subject"] == "[Tollhouse] team Ünï: 80 %"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "multipart/alternative" == mail.get_content_type()
    text, html = (part.get_content().replace("\r\n", "\n") for part in mail.iter_parts())
    assert "team Ünï: 80 %\n\nGrüße\n.\nend\n" == text
    assert "team Ünï: 80 %</h1><p>Grüße<br>.<br>end</p>" in html


async def test_it_encrypts_and_signs_in(tmp_path: Path) -> None:
    """
    The mail uses STARTTLS with a verified certificate, and a password from a file. No message repeats the password.
    """
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    password = tmp_path / "password"
    password.write_text("c0rrect-horse\n")
    async with mail_server(Mailbox(), tls=context, password="c0rrect-horse") as mailbox:
        secured = to(mailbox, tls="starttls", username="tollhouse", secret_file=password)
        trusting = to(
            mailbox,
            tls="starttls",
            username="tollhouse",
            secret_file=password,
            ca_file=certificates.path("ca.pem"),
        )
        with pytest.raises(Retryable, match="certificate"):
            await send(secured)
        await send(trusting)
        assert 1 == len(mailbox.mails)
        password.write_text("wr0ng-horse\n")
        with pytest.raises(Misconfigured, match="535") as refused:
            await send(trusting)
        assert "horse" not in str(refused.value)


@pytest.mark.proves("A mail password is sent unencrypted")
async def test_a_server_without_encryption_parks_a_channel_that_wants_it(mailbox: Mailbox) -> None:
    """
    If the mail server does not encrypt, the channel is paused. Neither the password nor the mail is
    ever sent unencrypted.
    """
    with pytest.raises(Misconfigured, match="STARTTLS"):
        await send(to(mailbox, tls="starttls"))
    assert [] == mailbox.mails


@pytest.mark.parametrize(
    ("refuse", "error"),
    [
        ({ADA: "550 no such user", BOB: "553 no"}, Rejected),
        ({ADA: "450 later", BOB: "450 later"}, PartlyDelivered),
    ],
)
async def test_when_nobody_is_accepted(
    mailbox: Mailbox, refuse: dict[str, str], error: type[SendError]
) -> None:
    """
    If the server refuses all recipients for good, the mail fails. If it refuses them temporarily, the mail
    is sent again.
    """
    mailbox.refuse = refuse
    with pytest.raises(error, match=ADA):
        await send(to(mailbox))
    assert [] == mailbox.mails


async def test_who_has_a_mail_does_not_get_it_again(mailbox: Mailbox) -> None:
    """
    One recipient is refused temporarily, another permanently. The mail is sent again only to the first. The
    error names the second.
    """
    carl = "carl@example.com"
    everyone = to(mailbox, to=(ADA, BOB, carl))
    mailbox.refuse = {BOB: "450 greylisted", carl: "550 no such user"}
    with pytest.raises(PartlyDelivered) as error:
        await send(everyone)
    assert (ADA,) == error.value.reached
    del mailbox.refuse[BOB]
    words = await send(
        everyone, NotificationMessage(notices=[notice("a", thread="t")], reached=error.value.reached)
    )
    assert [[ADA], [BOB]] == [recipients for recipients, _ in mailbox.mails]
    assert f"{carl}: 550 no such user" == words
    first, second = (mail for _, mail in mailbox.mails)
    assert first["Message-ID"] == second["Message-ID"]


@pytest.mark.parametrize(("answer", "error"), [("451 full", Retryable), ("554 spam", Rejected)])
async def test_what_the_server_says_of_the_mail(
    mailbox: Mailbox, answer: str, error: type[SendError]
) -> None:
    mailbox.answer = answer
    with pytest.raises(error, match=answer):
        await send(to(mailbox))


async def test_a_server_that_is_down_is_tried_again(mailbox: Mailbox) -> None:
    with pytest.raises(Retryable, match="no answer"):
        await send(to(mailbox, server="127.0.0.1:1"))


async def test_a_stop_does_not_wait_for_a_server_that_does_not_answer() -> None:
    """A stop closes the connection to a mail server that does not answer, so the waiting thread ends."""
    heard, ended = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        await reader.readline()
        heard.set()
        await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    mailbox = Mailbox()
    mailbox.port = server.sockets[0].getsockname()[1]
    task = asyncio.create_task(send(to(mailbox)))
    async with limited():
        await heard.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await ended.wait()
    server.close()


async def test_check_signs_in_and_sends_nothing(mailbox: Mailbox) -> None:
    """A server that accepts the sign-in is ok. A server that is down, or cannot encrypt, is reported."""
    channels = [to(mailbox), to(mailbox, server="127.0.0.1:1"), to(mailbox, tls="starttls")]
    found = await check_channels(channels, clock=CLOCK)
    assert [OK, UNAVAILABLE, REFUSED] == [each.status for each in found]
    assert [] == mailbox.mails
