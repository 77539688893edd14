"""What a channel is (a kind declares it, the sending task calls it), and the words of a message for people."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import orjson

from exporters.errors import Misconfigured, Rejected, Retryable
from exporters.http.answers import HttpAnswer, refuse_page, words
from exporters.http.reach import problems_of_reach
from exporters.problems import url
from exporters.secret_source import SecretSource
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.printable import printable
from spool.registry.notices import REPORT, Notice

if TYPE_CHECKING:
    from exporters.probe import Probe

TIMEOUT_S = 10.0
_GONE = (403, 404, 410)
_MARKS = str.maketrans(
    {
        "@": "@\u200b",  # a name must not call people: @channel, @everyone
        "*": "\u2217",  # nor end the bold title
        "[": "(",  # nor hide an address behind other words
        "]": ")",
        "`": "\u02cb",  # nor be set as code or struck out
        "~": "\u223c",
        "<": "<\u200b",  # nor call people in a chat that is told by what we tell
        "{": "{\u200b",  # nor be filled in
    }
)
# Nor be emphasis at a word's edge, nor an address that a click opens.
_EDGES = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_ADDRESSES = re.compile(r":(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    Notices that leave together, at least one. `reached` are the recipients that have it from an earlier try.

    The same notices make the same `id` at every try, so that receivers recognise a repeat.
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
    def people(self) -> tuple[str, ...]:
        """Return the only people to write to, if any are stated."""
        return tuple(dict.fromkeys(notice.to for notice in self.notices if notice.to))


class ReachedSome(Retryable):
    """Some recipients have it, others may have it later. `reached` names all that have it."""

    def __init__(self, message: str, *, reached: tuple[str, ...]) -> None:
        super().__init__(message)
        self.reached = reached


class Channel(Protocol):
    """Raises an error of exporters.errors when a message did not arrive."""

    async def send(self, message: Message) -> str:
        """
        Send a message; return what is worth keeping of the answer, such as recipients that were refused for
        good; usually nothing.
        """
        ...

    def stamp(self) -> object:
        """Changes whenever a file with a secret does."""
        ...

    def check_secret(self) -> None:
        """SendError where its secret cannot be read or used. Asks nobody."""
        ...

    async def probe(self) -> Probe:
        """Find out what would become of a message, and leave nothing behind."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ChannelType:
    """`groups`: a message may hold several notices, because people read it. `takes_reports`: not only alerts."""

    name: str
    build: Callable[[NotifySettings, Clock], Channel]
    problems: Callable[[str, NotifySettings], Iterator[str]]
    groups: bool
    takes_reports: bool = True


@dataclass(frozen=True, kw_only=True)
class KeptSettings(NotifySettings):
    """Of a channel that was made in the console: its secret is in no file, and "" if it has none."""

    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class StatedSecret:
    """A secret that never changes while its channel is the same."""

    _value: str = field(repr=False)

    def value(self) -> str:
        return self._value

    def stamp(self) -> object:
        return None


def secret_of(settings: NotifySettings) -> SecretSource | StatedSecret | None:
    """The secret of a channel whose address is none; None without one."""
    if isinstance(settings, KeptSettings):
        return StatedSecret(settings.secret) if settings.secret else None
    return (
        SecretSource(f"notify {settings.name}", file=settings.secret_file) if settings.secret_file else None
    )


def has_secret(settings: NotifySettings) -> bool:
    return bool(settings.secret) if isinstance(settings, KeptSettings) else settings.secret_file is not None


class SecretAddress:
    """The address that a channel posts to, where it is a secret itself: stated, or in a file."""

    def __init__(self, settings: NotifySettings) -> None:
        self._url = settings.secret if isinstance(settings, KeptSettings) else settings.url
        self._file = (
            SecretSource(f"notify {settings.name}", file=settings.url_file) if settings.url_file else None
        )

    def value(self) -> str:
        if self._file is None:
            return self._url
        address = self._file.value()
        if list(url("", address)):  # said without its words, which may be a secret
            raise Misconfigured(f"{self._file.name}: url_file holds no address", answered=False)
        return address

    def stamp(self) -> object:
        return self._file and self._file.stamp()

    @staticmethod
    def problems(shown: str, settings: NotifySettings) -> Iterator[str]:
        if isinstance(settings, KeptSettings):
            if not settings.secret or settings.url:
                yield f"{shown}.secret is the address of a channel of type {settings.type!r}; leave url out"
            yield from address_problems(f"{shown}.secret", settings.secret)
            return
        if bool(settings.url) == bool(settings.url_file):
            yield f"{shown} needs url or url_file for type {settings.type!r}, and not both"
        yield from url(f"{shown}.url", settings.url)


def address_problems(name: str, address: str) -> Iterator[str]:
    """What is wrong with an address that an account chose."""
    found = list(url(name, address))
    yield from found or (problems_of_reach(name, address) if address else ())


def check_answer(answer: HttpAnswer) -> None:
    """
    Raise an error of exporters.errors if the body of a 2xx says that the message did not arrive: a web page, a denial
    such as `{"ok": false}`, or the text of a service that could not deliver.
    """
    refuse_page(answer)
    said = f"{answer.status}, but it says: {words(answer)}"
    if b"delivery failed" in answer.body:
        raise Retryable(said, status=answer.status)
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError:  # "ok", or nothing
        return
    if isinstance(document, dict) and (
        document.get("ok") is False
        or document.get("success") is False
        or document.get("status") in ("error", "invalid event")
    ):
        raise Rejected(said, status=answer.status)


def as_misconfigured(error: Rejected) -> Rejected | Misconfigured:
    """A hook that was removed is for the operator to change, whatever was sent."""
    return Misconfigured(str(error), status=error.status) if error.status in _GONE else error


def subject(notices: Sequence[Notice]) -> str:
    title = notices[0].title
    return title if len(notices) == 1 else f"{len(notices)} notices: {title} and more"


def plain(notice: Notice) -> str:
    """Without the title: the text, the fields on lines of their own, and the link."""
    named = {} if notice.kind == REPORT else notice.fields  # its text has them, in better words
    fields = "\n".join(f"{name}: {value}" for name, value in named.items())
    return "\n\n".join(part for part in (notice.text, fields, notice.link) if part)


def in_header(text: str) -> str:
    """
    A text in a header of a mail: one printable line, of which no program makes an encoded word, whose decoded line
    breaks would begin headers of their own.
    """
    return printable(text).replace("=?", "=\u200b?")


def letter_by_letter(text: str) -> str:
    """A text with names that others chose, so that chats show it as it is: no mention, markup or link."""
    text = _EDGES.sub("\u02cd", text.translate(_MARKS))
    return _ADDRESSES.sub(lambda found: f"{found[0]}\u200b", text)
