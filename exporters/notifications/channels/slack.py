"""
A channel of type slack: incoming webhooks of Slack, Mattermost, Rocket.Chat, Discord and Google Chat.

A Discord address needs `/slack` at its end. Only `text` is sent, because all these services accept it.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from exporters.notifications.channel import (
    ChannelType,
    NotificationMessage,
    SecretAddress,
    escape_for_chat,
    plain_text,
)
from exporters.notifications.http_channel import AddressChannel
from spool.registry.notices import CRITICAL, INFO, WARNING

MAX_TEXT = 3_900  # maximum characters; Discord and Google Chat accept about 4,000
_SIGNS = {
    INFO: "\N{INFORMATION SOURCE}",
    WARNING: "\N{WARNING SIGN}",
    CRITICAL: "\N{POLICE CARS REVOLVING LIGHT}",
}
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class SlackWebhook(AddressChannel):
    def _body(self, message: NotificationMessage) -> bytes:
        return orjson.dumps({"text": message_text(message)})


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
