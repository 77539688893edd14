"""
A channel of type email: text and HTML over SMTP.

`Message-ID` is derived from the message's id, so that a repeat can be recognized. All notifications of a
thread refer to the same message, so that mail programs show one conversation. If a server rejects a recipient
for good, the recipient is left out.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate

from exporters.errors import Misconfigured, Rejected, Retryable, SendError
from exporters.http.allowed_addresses import check_address_allowed, connect_to_checked_address
from exporters.notifications.channel import (
    TIMEOUT_S,
    ChannelType,
    NotificationMessage,
    PartlyDelivered,
    StoredChannelSettings,
    channel_secret,
    escape_for_header,
    has_secret,
    message_subject,
    plain_text,
)
from exporters.notifications.mail_html import mail_html
from exporters.probe import OK, Probe, error_probe
from exporters.redaction import redact_secrets
from exporters.settings import NotifySettings
from spool.clock import Clock

MAX_RECIPIENTS = 50
NO_TLS = "none"
_ADDRESS = re.compile(r"(?!.*=\?)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+")
_SERVER = re.compile(r"[^\s/@]+:\d{1,5}")

RefusedRecipients = Mapping[str, tuple[int, bytes]]


class EmailChannel:
    def __init__(self, settings: NotifySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._password = channel_secret(settings)

    async def send(self, message: NotificationMessage) -> str:
        mail = build_mail(message, self._settings, now=self._clock.now())
        recipients = message.named_recipients or self._settings.to
        odd = {
            address: (553, b"not an e-mail address")
            for address in recipients
            if not _is_email_address(address)
        }
        remaining = [address for address in recipients if address not in {*message.reached, *odd}]
        refused = dict(odd)
        if remaining:
            refused |= await self._run_session(
                lambda smtp: _send_mail(smtp, mail, self._settings.sender, remaining)
            )
        message_text = "; ".join(
            f"{address}: {code} {redact_secrets(_decode_text(text), self._password_texts_to_redact())}"
            for address, (code, text) in refused.items()
        )
        reached = (*message.reached, *(address for address in remaining if address not in refused))
        if any(code < 500 for code, _ in refused.values()):
            raise PartlyDelivered(message_text, reached=reached)
        if not reached:
            raise Rejected(message_text)
        return message_text

    def secret_file_state(self) -> object:
        return self._password and self._password.change_stamp()

    def check_secret(self) -> None:
        if self._password:
            self._password.value()

    async def probe(self) -> Probe:
        """Test the server by signing in, without sending a mail."""
        try:
            await self._run_session(lambda smtp: smtp.noop())
        except SendError as error:
            return error_probe(error)
        return Probe(status=OK)

    async def close(self) -> None:
        """Do nothing, because each message has its own connection."""

    def _password_texts_to_redact(self) -> list[str]:
        password = self._password.value() if self._password else ""
        if not password:
            return []
        signs_in = (password, f"\0{self._settings.username}\0{password}")
        return [password, *(base64.b64encode(text.encode()).decode() for text in signs_in)]

    async def _run_session(
        self, command: Callable[[smtplib.SMTP], RefusedRecipients | object]
    ) -> RefusedRecipients:
        """
        Connect, sign in, call `command` and quit. Return the refused recipients.

        This runs in a thread, which a cancellation interrupts.
        """
        password = self._password.value() if self._password else ""
        connections: list[smtplib.SMTP] = []

        def run_smtp_session() -> RefusedRecipients:
            with _connect(self._settings) as smtp:
                connections.append(smtp)
                if self._settings.username:
                    smtp.login(self._settings.username, password)
                answer = command(smtp)
            return answer if isinstance(answer, dict) else {}

        try:
            return await asyncio.to_thread(run_smtp_session)
        except (OSError, smtplib.SMTPException) as error:
            raise _send_error(error, self._password_texts_to_redact()) from error
        except asyncio.CancelledError:
            for smtp in connections:
                if smtp.sock is not None:
                    with suppress(OSError):  # the connection may be closed already
                        smtp.sock.shutdown(socket.SHUT_RDWR)
            raise


def build_mail(message: NotificationMessage, settings: NotifySettings, *, now: float) -> EmailMessage:
    headers = {
        "From": settings.sender,
        "To": ", ".join(message.named_recipients or settings.to),
        "Subject": f"[Tollhouse] {message_subject(message.notices)}",
        "Date": formatdate(now),
        "Message-ID": _message_id(message.id, settings),
        "Auto-Submitted": "auto-generated",
    }
    threads = {notice.thread for notice in message.notices if notice.thread}
    for thread in sorted(threads)[:1] if len(threads) == 1 else ():
        headers["In-Reply-To"] = headers["References"] = _message_id(f"thread {thread}", settings)
    mail = EmailMessage()
    for name, text in headers.items():
        mail[name] = escape_for_header(text)
    parts = ["\n\n".join(filter(None, (notice.title, plain_text(notice)))) for notice in message.notices]
    mail.set_content("\n\n----\n\n".join(parts) + "\n")
    html = mail_html(message.notices)
    if html is not None:
        mail.add_alternative(html, subtype="html")
    for notice in message.notices:
        if notice.csv:
            mail.add_attachment(notice.csv, subtype="csv", filename=f"{notice.id}.csv")
    return mail


def _message_id(id: str, settings: NotifySettings) -> str:
    digest = hashlib.blake2b(f"{settings.name} {id}".encode(), digest_size=16).hexdigest()
    return f"<{digest}@{settings.sender.rpartition('@')[2]}>"


class _CheckedSmtp(smtplib.SMTP):
    """An SMTP client that only connects to allowed addresses, for a server that an account chose."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return connect_to_checked_address(host, port, timeout, check_address_allowed)


class _CheckedSmtpSsl(smtplib.SMTP_SSL):
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self.context.wrap_socket(
            connect_to_checked_address(host, port, timeout, check_address_allowed), server_hostname=host
        )


def _connect(settings: NotifySettings) -> smtplib.SMTP:
    host, _, port = settings.server.rpartition(":")
    host = host.strip("[]")
    is_kept = isinstance(settings, StoredChannelSettings)
    if settings.tls == "implicit":
        implicit = _CheckedSmtpSsl if is_kept else smtplib.SMTP_SSL
        return implicit(host, int(port), timeout=TIMEOUT_S, context=_build_tls_context(settings))
    smtp = (_CheckedSmtp if is_kept else smtplib.SMTP)(host, int(port), timeout=TIMEOUT_S)
    if settings.tls != NO_TLS:
        try:
            smtp.starttls(context=_build_tls_context(settings))
        except BaseException:
            smtp.close()
            raise
    return smtp


def _build_tls_context(settings: NotifySettings) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=settings.ca_file)


def _send_mail(
    smtp: smtplib.SMTP, mail: EmailMessage, sender: str, recipients: list[str]
) -> RefusedRecipients:
    try:
        return smtp.send_message(mail, sender, recipients)
    except smtplib.SMTPRecipientsRefused as error:
        return error.recipients


def _send_error(error: OSError, secrets: Sequence[str]) -> SendError:
    if not isinstance(error, smtplib.SMTPException):  # TimeoutError is a subclass of OSError
        return Retryable(redact_secrets(f"no answer: {error}", secrets), answered=False, ambiguous=True)
    if not isinstance(error, smtplib.SMTPResponseException):
        message = redact_secrets(str(error), secrets)
        if isinstance(error, smtplib.SMTPServerDisconnected):
            return Retryable(message, answered=False, ambiguous=True)
        return Misconfigured(message)  # the server has no TLS, or no supported way to sign in
    message = redact_secrets(f"{error.smtp_code} {_decode_text(error.smtp_error)}", secrets)
    if error.smtp_code < 500:
        return Retryable(message)
    return Rejected(message) if isinstance(error, smtplib.SMTPDataError) else Misconfigured(message)


def _decode_text(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def settings_problems(shown_name: str, settings: NotifySettings) -> Iterator[str]:
    port = settings.server.rpartition(":")[2]
    if not (_SERVER.fullmatch(settings.server) and 0 < int(port) < 65536):
        yield f"{shown_name}.server must be HOST:PORT for type 'email', such as \"smtp.example.com:587\""
    if not _is_email_address(settings.sender):
        yield f"{shown_name}.sender must be an email address for type 'email'"
    if not 1 <= len(settings.to) <= MAX_RECIPIENTS or len(set(settings.to)) != len(settings.to):
        yield f"{shown_name}.to must be 1 to {MAX_RECIPIENTS} different email addresses for type 'email'"
    for address in settings.to:
        if not _is_email_address(address):
            yield f"{shown_name}.to: {address!r} is not an email address"
    if bool(settings.username) != has_secret(settings):
        yield f"{shown_name}: set both username and secret_file for type 'email', or neither"
    if settings.username and settings.tls == NO_TLS:
        yield f"{shown_name}.tls = 'none' would send the password unencrypted"


def _is_email_address(text: str) -> bool:
    return text.isascii() and text.isprintable() and _ADDRESS.fullmatch(text) is not None


TYPE = ChannelType(name="email", build=EmailChannel, problems=settings_problems, groups=True)
