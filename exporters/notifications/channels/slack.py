"""
A channel of type slack: incoming webhooks of Slack, Mattermost, Rocket.Chat, Discord and Google Chat.

A Discord address needs `/slack` at its end. Only `text` is sent, because all these services accept it.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from exporters.errors import Rejected, SendError
from exporters.http.client import HttpClient
from exporters.notifications.channel import (
    ChannelType,
    NotificationMessage,
    SecretAddress,
    check_message_accepted,
    escape_for_chat,
    misconfigured_if_gone,
    plain_text,
)
from exporters.notifications.channels.webhook import client_settings
from exporters.probe import Probe, error_probe, probe_connection
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.registry.notices import CRITICAL, INFO, WARNING

MAX_TEXT = 3_900  # maximum characters; Discord and Google Chat accept about 4,000
_SIGNS = {
    INFO: "\N{INFORMATION SOURCE}",
    WARNING: "\N{WARNING SIGN}",
    CRITICAL: "\N{POLICE CARS REVOLVING LIGHT}",
}
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class SlackWebhook:
    def __init__(self, settings: NotifySettings, clock: Clock) -> None:
        self._address = SecretAddress(settings)
        self._client = HttpClient(client_settings(settings), clock=clock)

    async def send(self, message: NotificationMessage) -> str:
        address = self._address.value()
        body = orjson.dumps({"text": message_text(message)})
        try:
            check_message_accepted(
                await self._client.send(address, body, content_type="application/json", secrets=[address])
            )
        except Rejected as error:
            raise misconfigured_if_gone(error) from error
        return ""

    def secret_file_state(self) -> object:
        return self._address.change_stamp()

    def check_secret(self) -> None:
        self._address.value()

    async def probe(self) -> Probe:
        try:
            return await probe_connection(self._client, self._address.value())
        except SendError as error:
            return error_probe(error)

    async def close(self) -> None:
        await self._client.close()


def _escape_slack_text(text: str) -> str:
    return escape_for_chat(text.translate(_ENTITIES))


def message_text(message: NotificationMessage) -> str:
    parts = []
    for notice in message.notices:
        title = f"{_SIGNS[notice.severity]} *{_escape_slack_text(notice.title)}*"
        body = (_escape_slack_text(plain_text(replace(notice, link=""))), notice.link.translate(_ENTITIES))
        parts.append("\n".join(filter(None, (title, "\n\n".join(filter(None, body))))))
    whole = "\n\n".join(parts)
    return whole if len(whole) <= MAX_TEXT else f"{whole[:MAX_TEXT]}..."


TYPE = ChannelType(name="slack", build=SlackWebhook, problems=SecretAddress.settings_problems, groups=True)
