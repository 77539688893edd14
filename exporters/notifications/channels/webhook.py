"""
A channel of type webhook: one POST per notification, signed by the Standard Webhooks specification 1.0.

The body is `{"type", "timestamp", "data"}`. `webhook-id` is the notification's id, the same in every attempt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator

import orjson

from exporters.errors import Misconfigured
from exporters.notifications.channel import (
    ChannelType,
    FixedSecret,
    NotificationMessage,
    channel_secret,
    has_secret,
)
from exporters.notifications.http_channel import HttpChannel
from exporters.problems import problems_of_headers, problems_of_url
from exporters.redaction import secrets_in_query
from exporters.secret_source import SecretSource
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.record import utc_iso
from spool.registry.notices import Notice

PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64


class WebhookChannel(HttpChannel[SecretSource | FixedSecret]):
    def __init__(self, settings: NotifySettings, clock: Clock) -> None:
        super().__init__(settings, clock, channel_secret(settings) or SecretSource(f"notify {settings.name}"))

    def _checked_url(self) -> str:
        secret_bytes(self._secret.value())
        return self._settings.url

    async def _request(self, message: NotificationMessage) -> None:
        [notice] = message.notices
        body = orjson.dumps(event_document(notice))
        at = str(int(self._clock.now()))
        signed = {
            "webhook-id": notice.id,
            "webhook-timestamp": at,
            "webhook-signature": sign_body(secret_bytes(self._secret.value()), notice.id, at, body),
        }
        sent = {**self._settings.headers, **signed}
        url = self._settings.url
        await self._client.send(
            url,
            body,
            content_type="application/json",
            headers=sent,
            secrets=[*sent.values(), *secrets_in_query(url)],
        )


def event_document(notice: Notice) -> dict[str, object]:
    return {
        "type": notice.kind,
        "timestamp": utc_iso(notice.at),
        "data": {
            "id": notice.id,
            "title": notice.title,
            "text": notice.text,
            "fields": dict(notice.fields),
            "severity": notice.severity,
            "link": notice.link,
            "thread": notice.thread,
            **({"csv": notice.csv} if notice.csv else {}),
        },
    }


def sign_body(secret: bytes, id: str, timestamp: str, body: bytes) -> str:
    digest = hmac.new(secret, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def secret_bytes(secret: str) -> bytes:
    """
    Decode a secret. Raises Misconfigured if it does not have the form of the Standard Webhooks specification.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not (secret.startswith(PREFIX) and LEAST_BYTES <= len(key) <= MOST_BYTES):
        message = (
            f"the signing secret must be {PREFIX} followed by {LEAST_BYTES} to {MOST_BYTES} bytes in base64"
        )
        raise Misconfigured(message, answered=False)
    return key


def settings_problems(shown_name: str, settings: NotifySettings) -> Iterator[str]:
    if not settings.url:
        yield f"{shown_name}.url is required for type 'webhook'"
    if not has_secret(settings):
        yield f"{shown_name}.secret_file is required for type 'webhook': it holds the secret for signatures"
    yield from problems_of_url(f"{shown_name}.url", settings.url)
    yield from problems_of_headers(f"{shown_name}.headers", settings.headers)


TYPE = ChannelType(name="webhook", build=WebhookChannel, problems=settings_problems, groups=False)
