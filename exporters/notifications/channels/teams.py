"""
A channel of type teams: a workflow of Microsoft Teams ("When a Teams webhook request is received").

A message is one Adaptive Card of version 1.2. Teams accepts 28 KB, so blocks beyond MAX_BYTES are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from exporters.notifications.channel import ChannelType, NotificationMessage, SecretAddress, escape_for_chat
from exporters.notifications.http_channel import AddressChannel
from spool.registry.notices import CRITICAL, INFO, REPORT, WARNING, Notice

MAX_BYTES = 24_000  # maximum bytes of a card's blocks
_COLORS = {INFO: "Default", WARNING: "Warning", CRITICAL: "Attention"}
_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"


class TeamsWebhook(AddressChannel):
    def _body(self, message: NotificationMessage) -> bytes:
        return orjson.dumps(adaptive_card(message))


def adaptive_card(message: NotificationMessage) -> dict[str, object]:
    blocks: list[dict[str, object]] = []
    size = 0
    for block in (block for notice in message.notices for block in _card_blocks(notice)):
        size += len(orjson.dumps(block))
        if size > MAX_BYTES:
            blocks.append(_text_block("The rest is in the console."))
            break
        blocks.append(block)
    content = {"$schema": _SCHEMA, "type": "AdaptiveCard", "version": "1.2", "body": blocks}
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": {**content, "msteams": {"width": "Full"}},
    }
    return {"type": "message", "attachments": [attachment]}


def _card_blocks(notice: Notice) -> Iterator[dict[str, object]]:
    yield {
        **_text_block(notice.title),
        "weight": "Bolder",
        "size": "Medium",
        "color": _COLORS[notice.severity],
        "spacing": "Medium",
    }
    for line in notice.text.splitlines():
        yield _text_block(line) if line else _text_block("\N{NO-BREAK SPACE}")
    if notice.fields and notice.kind != REPORT:
        facts = [
            {"title": escape_for_chat(name), "value": escape_for_chat(value)}
            for name, value in notice.fields.items()
        ]
        yield {"type": "FactSet", "facts": facts}
    if notice.link:
        action = {"type": "Action.OpenUrl", "title": "Open in Tollhouse", "url": notice.link}
        yield {"type": "ActionSet", "actions": [action]}


def _text_block(text: str) -> dict[str, object]:
    """Return a text block of one line, because a card joins the lines of a block."""
    return {"type": "TextBlock", "text": escape_for_chat(text), "wrap": True, "spacing": "None"}


TYPE = ChannelType(name="teams", build=TeamsWebhook, problems=SecretAddress.settings_problems, groups=True)
