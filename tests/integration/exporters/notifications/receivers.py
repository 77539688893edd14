"""Receivers of notifications: a webhook that verifies signatures, and a mail server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any

import orjson
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from tests.exporters.notifications.examples import SECRET
from tests.exporters.upstream import Received


def verified(request: Received, secret: str = SECRET) -> dict[str, Any]:
    """
    Return the body of a webhook after verifying the signature of the received bytes, as the specification says.
    """
    id, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{id}.{at}.".encode() + request.raw, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    assert hmac.compare_digest(expected, request.headers["webhook-signature"])
    body: dict[str, Any] = orjson.loads(request.raw)
    return body


class Mailbox:
    """The mails of a server, and its answers: `refuse` maps a recipient to an answer other than 250."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.refuse: dict[str, str] = {}
        self.answer = ""  # the answer to the message data; an empty string means that the message is accepted
        self.port = 0

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answer:
            return self.answer
        assert isinstance(envelope.content, bytes)
        mail = BytesParser(_class=EmailMessage, policy=default).parsebytes(envelope.content)
        self.mails.append((list(envelope.rcpt_tos), mail))
        return "250 OK"


@asynccontextmanager
async def mail_server(
    mailbox: Mailbox, *, tls: ssl.SSLContext | None = None, password: str = "", port: int = 0
) -> AsyncIterator[Mailbox]:
    """
    Start a mail server on loopback. With a certificate it requires STARTTLS. With a password it requires a
    sign-in as `tollhouse`.
    """

    def sign_in(
        server: object, session: object, envelope: object, mechanism: object, given: Any
    ) -> AuthResult:
        is_right = (given.login, given.password) == (b"tollhouse", password.encode())
        return AuthResult(success=is_right, handled=False)

    def protocol() -> SMTP:
        wanted = {"auth_required": True, "authenticator": sign_in} if password else {}
        secured = {"tls_context": tls, "require_starttls": True} if tls else {}
        return SMTP(mailbox, hostname="127.0.0.1", **wanted, **secured)  # type: ignore[arg-type]

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port)
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        server.close()
