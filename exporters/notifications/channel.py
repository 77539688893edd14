"""The interface of channels, and helpers for the text of messages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

import orjson

from exporters.errors import Misconfigured, Rejected, Retryable
from exporters.http.allowed_addresses import problems_of_forbidden_url
from exporters.http.answers import HttpAnswer, check_not_web_page, server_message
from exporters.problems import problems_of_url
from exporters.secret_source import SecretSource
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.printable import replace_unprintable
from spool.registry.notices import COST_IMPACT, REPORT, Notice

if TYPE_CHECKING:
    from exporters.probe import Probe

TIMEOUT_S = 10.0
_GONE = (403, 404, 410)
_MARKS = str.maketrans(
    {
        "@": "@\u200b",  # a name must not mention people, as @channel or @everyone would
        "*": "\u2217",  # a name must not end the bold title
        "[": "(",  # a name must not hide an address behind a link text
        "]": ")",
        "`": "\u02cb",  # a name must not become code or strikethrough
        "~": "\u223c",
        "<": "<\u200b",  # a name must not mention people in Slack's markup
        "{": "{\u200b",  # a name must not look like a placeholder
    }
)
# Underscores at the edge of a word would become italics or a link.
_EDGES = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_ADDRESSES = re.compile(r":(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationMessage:
    """
    One message with one or several notices. `reached`: recipients that have it from an earlier attempt.

    Every attempt has the same `id`, so that receivers can recognize a repeat.
    """

    notices: Sequence[Notice]
    reached: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        if len(self.notices) == 1:
            return self.notices[0].id
        ids = "\n".join(notice.id for notice in self.notices)
        return "group-" + hashlib.blake2b(ids.encode(), digest_size=16).hexdigest()

    @property
    def named_recipients(self) -> tuple[str, ...]:
        """
        Return the people that the message is only for, or none if it is for the channel's usual recipients.
        """
        return tuple(dict.fromkeys(notice.to for notice in self.notices if notice.to))


class PartlyDelivered(Retryable):
    """An error after which some recipients have the message (`reached`), and others may get it later."""

    def __init__(self, message: str, *, reached: tuple[str, ...]) -> None:
        super().__init__(message)
        self.reached = reached


class Channel(Protocol):
    """A notification channel. Methods raise an error of exporters.errors if a message was not accepted."""

    async def send(self, message: NotificationMessage) -> str:
        """Send a message. Return details to store, such as recipients that were rejected for good, or ""."""
        ...

    def secret_file_state(self) -> object: ...

    def check_secret(self) -> None:
        """Raise SendError if the secret cannot be read or used. Sends no request."""
        ...

    async def probe(self) -> Probe: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ChannelType:
    """
    A type of channel. `groups`: one message may contain several notifications. `takes_reports`: it accepts
    reports as well as alerts.
    """

    name: str
    build: Callable[[NotifySettings, Clock], Channel]
    problems: Callable[[str, NotifySettings], Iterator[str]]
    groups: bool
    takes_reports: bool = True


@dataclass(frozen=True, kw_only=True)
class StoredChannelSettings(NotifySettings):
    """
    Settings of a channel that a person created in the console.

    `secret` is the secret itself; "" means none.
    """

    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class FixedSecret:
    _value: str = field(repr=False)

    def value(self) -> str:
        return self._value

    def change_stamp(self) -> object:
        return None


def channel_secret(settings: NotifySettings) -> SecretSource | FixedSecret | None:
    """Return where the secret is, for channels with a secret besides the address."""
    if isinstance(settings, StoredChannelSettings):
        return FixedSecret(settings.secret) if settings.secret else None
    return (
        SecretSource(f"notify {settings.name}", file=settings.secret_file) if settings.secret_file else None
    )


def has_secret(settings: NotifySettings) -> bool:
    return (
        bool(settings.secret)
        if isinstance(settings, StoredChannelSettings)
        else settings.secret_file is not None
    )


class SecretAddress:
    """A channel's address that is itself a secret, from a setting or from a file."""

    def __init__(self, settings: NotifySettings) -> None:
        self._url = settings.secret if isinstance(settings, StoredChannelSettings) else settings.url
        self._file = (
            SecretSource(f"notify {settings.name}", file=settings.url_file) if settings.url_file else None
        )

    def value(self) -> str:
        if self._file is None:
            return self._url
        address = self._file.value()
        # the problem itself is not shown, because it may contain the secret
        if list(problems_of_url("", address)):
            raise Misconfigured(
                f"{self._file.name}: url_file does not contain a valid address", answered=False
            )
        return address

    def change_stamp(self) -> object:
        return self._file and self._file.change_stamp()

    @staticmethod
    def settings_problems(shown_name: str, settings: NotifySettings) -> Iterator[str]:
        if isinstance(settings, StoredChannelSettings):
            if not settings.secret or settings.url:
                yield (
                    f"{shown_name}.secret is the address of a channel of type {settings.type!r}, so leave url "
                    "empty"
                )
            yield from address_problems(f"{shown_name}.secret", settings.secret)
            return
        if bool(settings.url) == bool(settings.url_file):
            yield f"{shown_name} needs either url or url_file for type {settings.type!r}"
        yield from problems_of_url(f"{shown_name}.url", settings.url)


def address_problems(name: str, address: str) -> Iterator[str]:
    url_problems = list(problems_of_url(name, address))
    yield from url_problems or (problems_of_forbidden_url(name, address) if address else ())


def check_message_accepted(answer: HttpAnswer) -> None:
    """
    Raise an error of exporters.errors if the body of a 2xx states that the message was not delivered.

    Such a body is a web page, a failure like `{"ok": false}`, or the text of a service that could not deliver.
    """
    check_not_web_page(answer)
    message = f"{answer.status}, but the response says: {server_message(answer)}"
    if b"delivery failed" in answer.body:
        raise Retryable(message, status=answer.status)
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError:  # the body is "ok" or empty
        return
    if isinstance(document, dict) and (
        document.get("ok") is False
        or document.get("success") is False
        or document.get("status") in ("error", "invalid event")
    ):
        raise Rejected(message, status=answer.status)


def misconfigured_if_gone(error: Rejected) -> Rejected | Misconfigured:
    """
    Return Misconfigured if the error says that the webhook was removed, because only the operator can fix
    that. Otherwise return the error.
    """
    return Misconfigured(str(error), status=error.status) if error.status in _GONE else error


def message_subject(notices: Sequence[Notice]) -> str:
    title = notices[0].title
    return title if len(notices) == 1 else f"{len(notices)} notifications: {title} and more"


def plain_text(notice: Notice) -> str:
    # the text of a report already contains its fields
    shown_fields = {} if notice.kind == REPORT else notice.fields
    fields = "\n".join(_field_line(name, value) for name, value in shown_fields.items() if value)
    return "\n\n".join(part for part in (notice.text, fields, notice.link) if part)


def _field_line(name: str, value: str) -> str:
    if name == COST_IMPACT:
        value = f"${Decimal(value):,}" if Decimal(value) else "not stated"
    return f"{name.replace('_', ' ')}: {value}"


def escape_for_header(text: str) -> str:
    """
    Return a text for a mail header without line breaks, because one in an encoded word could begin another
    header.
    """
    return replace_unprintable(text).replace("=?", "=\u200b?")


def escape_for_chat(text: str) -> str:
    """
    Escape a text that contains names chosen by users or senders, so that chats show it literally, without
    mentions, markup or links.
    """
    text = _EDGES.sub("\u02cd", text.translate(_MARKS))
    return _ADDRESSES.sub(lambda match: f"{match[0]}\u200b", text)
