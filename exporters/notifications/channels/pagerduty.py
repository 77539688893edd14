"""
A channel of type pagerduty: alerts for PagerDuty, with its Events API version 2.

PagerDuty joins events with the same `dedup_key` into one alert while it is open. The key is derived from thread,
kind and severity, and contains no amount. So neither a repeat nor a further notification about the same subject
pages anybody again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import orjson

from exporters.errors import Misconfigured
from exporters.notifications.channel import (
    ChannelType,
    FixedSecret,
    NotificationMessage,
    channel_secret,
    check_message_accepted,
    escape_for_chat,
    has_secret,
)
from exporters.notifications.http_channel import HttpChannel
from exporters.problems import problems_of_url
from exporters.secret_source import SecretSource
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.record import utc_iso
from spool.registry.notices import Notice

EVENTS = "https://events.pagerduty.com/v2/enqueue"  # in the European region: events.eu.pagerduty.com
_KEY = re.compile(r"[A-Za-z0-9]{32}")


class PagerDutyChannel(HttpChannel[SecretSource | FixedSecret]):
    def __init__(self, settings: NotifySettings, clock: Clock) -> None:
        super().__init__(settings, clock, channel_secret(settings) or SecretSource(f"notify {settings.name}"))
        self._events_url = settings.url or EVENTS

    def _checked_url(self) -> str:
        self._integration_key()
        return self._events_url

    async def _request(self, message: NotificationMessage) -> None:
        [notice] = message.notices
        key = self._integration_key()
        body = orjson.dumps(trigger_event(notice, key=key))
        check_message_accepted(
            await self._client.send(self._events_url, body, content_type="application/json", secrets=[key])
        )

    def _integration_key(self) -> str:
        """
        Return the integration key. Raises Misconfigured if it is malformed, because PagerDuty's 400 does not
        state this cause.
        """
        key = self._secret.value()
        if not _KEY.fullmatch(key):
            raise Misconfigured("the integration key must have 32 letters and digits", answered=False)
        return key


def trigger_event(notice: Notice, *, key: str) -> dict[str, object]:
    about = "\n".join((notice.thread or notice.id, notice.kind, notice.severity))
    details = {**notice.fields, "text": notice.text} if notice.text else dict(notice.fields)
    payload = {
        "summary": escape_for_chat(notice.title),
        "source": "tollhouse",
        "severity": notice.severity,
        "timestamp": utc_iso(notice.at),
        "class": notice.kind,
        "custom_details": {escape_for_chat(name): escape_for_chat(text) for name, text in details.items()},
    }
    trigger: dict[str, object] = {
        "routing_key": key,
        "event_action": "trigger",
        "dedup_key": "tollhouse-" + hashlib.blake2b(about.encode(), digest_size=16).hexdigest(),
        "client": "Tollhouse",
        "payload": payload,
    }
    if not notice.link:
        return trigger
    return {
        **trigger,
        "client_url": notice.link,
        "links": [{"href": notice.link, "text": "Open in Tollhouse"}],
    }


def settings_problems(shown_name: str, settings: NotifySettings) -> Iterator[str]:
    if not has_secret(settings):
        yield f"{shown_name}.secret_file is required for type 'pagerduty': it holds the integration key"
    yield from problems_of_url(f"{shown_name}.url", settings.url)


TYPE = ChannelType(
    name="pagerduty", build=PagerDutyChannel, problems=settings_problems, groups=False, takes_reports=False
)
