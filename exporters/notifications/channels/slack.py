"""
The `slack` channel: incoming webhooks of Slack, and of what takes the same: Mattermost, Rocket.Chat, Discord
(the address with `/slack` at its end) and Google Chat.

`text` alone is sent, because it is what all of them take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import orjson

from exporters.errors import Misconfigured, Rejected, SendError
from exporters.http.client import Client
from exporters.notifications.channel import ChannelType, Message, as_misconfigured
from exporters.notifications.channels.webhook import client_settings
from exporters.notifications.words import plain
from exporters.probe import Probe, failed, try_connection
from exporters.problems import url
from exporters.secret_source import SecretSource
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.registry.notices import CRITICAL, INFO, WARNING

MAX_TEXT = 3_900  # Discord and Google Chat take some 4,000 characters
_SIGNS = {
    INFO: "\N{INFORMATION SOURCE}",
    WARNING: "\N{WARNING SIGN}",
    CRITICAL: "\N{POLICE CARS REVOLVING LIGHT}",
}
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ESCAPES = _ENTITIES | str.maketrans({
    "@": "@\u200b",  # a name must not call people: @channel, @everyone
    "*": "\u2217",  # nor end the bold title
    "[": "(",  # nor hide an address behind other words, which Mattermost would show
    "]": ")",
    "`": "\u02cb",  # nor be set as code or struck out
    "~": "\u223c",
})  # fmt: skip
# Nor be emphasis at a word's edge, nor an address that a click opens.
_EDGES = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_ADDRESSES = re.compile(r":(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)


class SlackWebhook:
    def __init__(self, settings: NotifySettings, clock: Clock) -> None:
        self._url = settings.url
        self._file = (
            SecretSource(f"notify {settings.name}", file=settings.url_file) if settings.url_file else None
        )
        self._client = Client(client_settings(settings), clock=clock)

    async def send(self, message: Message) -> str:
        body = orjson.dumps({"text": text(message)})
        try:
            await self._client.send(self._address(), body, content_type="application/json")
        except Rejected as error:
            raise as_misconfigured(error) from error
        return ""

    def stamp(self) -> object:
        return self._file and self._file.stamp()

    def check_secret(self) -> None:
        self._address()

    async def probe(self) -> Probe:
        try:
            return await try_connection(self._client, self._address())
        except SendError as error:
            return failed(error)

    async def close(self) -> None:
        await self._client.close()

    def _address(self) -> str:
        if self._file is None:
            return self._url
        address = self._file.value()
        if list(url("", address)):  # said without its words, which may be a secret
            raise Misconfigured(f"{self._file.name}: url_file holds no address", answered=False)
        return address


def _as_text(text: str) -> str:
    """A text with names that others chose, as these channels show it letter by letter."""
    text = _EDGES.sub("\u02cd", text.translate(_ESCAPES))
    return _ADDRESSES.sub(lambda found: f"{found[0]}\u200b", text)


def text(message: Message) -> str:
    """Each notice with its title in bold; what is too long is cut at the end."""
    parts = []
    for notice in message.notices:
        title = f"{_SIGNS[notice.severity]} *{_as_text(notice.title)}*"
        body = (_as_text(plain(replace(notice, link=""))), notice.link.translate(_ENTITIES))
        parts.append("\n".join(filter(None, (title, "\n\n".join(filter(None, body))))))
    whole = "\n\n".join(parts)
    return whole if len(whole) <= MAX_TEXT else f"{whole[:MAX_TEXT]}..."


def problems(shown: str, settings: NotifySettings) -> Iterator[str]:
    if bool(settings.url) == bool(settings.url_file):
        yield f"{shown} needs url or url_file for type 'slack', and not both"
    yield from url(f"{shown}.url", settings.url)


TYPE = ChannelType(name="slack", build=SlackWebhook, problems=problems, groups=True)
