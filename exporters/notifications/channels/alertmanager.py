"""
A channel of type alertmanager: alerts for Prometheus Alertmanager, with its API version 2.

Labels identify an alert, so they contain no amount. A notification of the same thread, kind and severity
renews the alert. Otherwise the alert ends after LASTS_S.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

from exporters.errors import SendError
from exporters.notifications.channel import (
    ChannelType,
    FixedSecret,
    NotificationMessage,
    channel_secret,
    check_message_accepted,
    escape_for_chat,
)
from exporters.notifications.http_channel import HttpChannel
from exporters.probe import OK, Probe, error_probe
from exporters.problems import problems_of_headers, problems_of_url
from exporters.secret_source import SecretSource
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.record import utc_iso
from spool.registry.notices import Notice

LASTS_S = 4 * 3600.0
_NO_NAME = re.compile(r"\W", re.ASCII)
ALERTS, STATUS = "/api/v2/alerts", "/api/v2/status"


class AlertmanagerChannel(HttpChannel[SecretSource | FixedSecret | None]):
    def __init__(self, settings: NotifySettings, clock: Clock) -> None:
        super().__init__(settings, clock, channel_secret(settings))
        self._base = settings.url.rstrip("/")

    def _checked_url(self) -> str:
        if self._secret:
            self._secret.value()
        return self._base

    async def _request(self, message: NotificationMessage) -> None:
        alerts = [encode_alert(notice, now=self._clock.now()) for notice in message.notices]
        await self._send_and_check("POST", ALERTS, orjson.dumps(alerts))

    async def probe(self) -> Probe:
        try:
            await self._send_and_check("GET", STATUS, b"")
        except SendError as error:
            return error_probe(error)
        return Probe(status=OK)

    async def _send_and_check(self, method: str, path: str, body: bytes) -> None:
        answer = await self._client.send(
            self._base + path,
            body,
            method=method,
            content_type="application/json",
            authorization=f"Bearer {self._secret.value()}" if self._secret else None,
            headers=self._settings.headers,
        )
        check_message_accepted(answer)


def encode_alert(notice: Notice, *, now: float) -> dict[str, object]:
    """Encode an alert. It ends some time after `now`, because Alertmanager drops alerts that have ended."""
    fields = {_annotation_name(name): escape_for_chat(value) for name, value in notice.fields.items()}
    alert_name = "".join(word.capitalize() for word in notice.kind.replace(".", "_").split("_"))
    known_by = {"thread": notice.thread} if notice.thread else {"notice": notice.id}
    shown: dict[str, object] = {
        "labels": {
            "alertname": f"Tollhouse{alert_name}",
            "kind": notice.kind,
            "severity": notice.severity,
            **known_by,
        },
        "annotations": {
            **fields,
            "summary": escape_for_chat(notice.title),
            "description": escape_for_chat(notice.text),
        },
        "startsAt": utc_iso(notice.at),
        "endsAt": utc_iso(max(now, notice.at) + LASTS_S),
    }
    return {**shown, "generatorURL": notice.link} if notice.link else shown


def _annotation_name(name: str) -> str:
    """Return a valid name of an Alertmanager annotation, which must not begin with a digit."""
    cleaned = _NO_NAME.sub("_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned or "_"


def settings_problems(shown_name: str, settings: NotifySettings) -> Iterator[str]:
    if not settings.url:
        yield f"{shown_name}.url is required for type 'alertmanager'"
    yield from problems_of_url(f"{shown_name}.url", settings.url)
    yield from problems_of_headers(f"{shown_name}.headers", settings.headers)


TYPE = ChannelType(
    name="alertmanager",
    build=AlertmanagerChannel,
    problems=settings_problems,
    groups=False,
    takes_reports=False,
)
