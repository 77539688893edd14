"""
Names from senders in the messages of every channel: parsed as the receiver would parse them, they are only
text. A channel without a parser here fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import orjson
import pytest

from exporters.errors import Rejected
from exporters.notifications.catalogue import TYPES, build_channel
from exporters.notifications.channel import NotificationMessage
from spool.registry.notices import Notice, check_notice
from tests.exporters.notifications.examples import NOW, SECRET, notice, settings
from tests.exporters.upstream import FakeUpstream
from tests.hostile_names import HOSTILE_NAMES, UNPRINTABLE
from tests.integration.exporters.notifications.receivers import Mailbox, mail_server
from tests.moved_clock import MovedClock

CLOCK = MovedClock(NOW)
LINK = "https://tollhouse.example/#/insights"
HEADERS = [
    "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "In-Reply-To", "References",
    "Content-Type", "MIME-Version",
]  # fmt: skip
MARKUP = re.compile(
    r"<[!@#a-z/]|@(?!\u200b)|[\[\]*`~]|(?<![^\W_])_|_(?![^\W_])|\{\{|://|\bwww\.", re.IGNORECASE
)


def named(name: str) -> Notice:
    """Return a notification with the name in every field that can have one."""
    return check_notice(
        notice(
            title=f"new model {name}", text=f"{name}\n{name}", fields={name: name, "model": name}, link=LINK
        )
    )


def no_markup(*texts: str) -> None:
    for text in texts:
        assert not UNPRINTABLE.search(text.replace("\n", "")), text
        assert not MARKUP.search(text), text


def read_slack(body: Any) -> None:
    assert {"text"} == set(body)
    text = body["text"]
    if text.endswith("..."):  # if the text was cut, the link was cut as well
        text = text.removesuffix("...")
    else:
        assert text.endswith(f"\n\n{LINK}")
        text = text.removesuffix(LINK)
    title, _, rest = text.partition("\n")
    bold = re.fullmatch(r"\N{WARNING SIGN} \*(.*)\*", title)
    assert bold
    no_markup(bold[1], rest)
    assert "<" not in text and ">" not in text
    assert not re.search("&(?!amp;|lt;|gt;)", text)


def read_teams(body: Any) -> None:
    [attachment] = body["attachments"]
    blocks = attachment["content"]["body"]
    for block in blocks:
        if block["type"] == "TextBlock":
            no_markup(block["text"])
            assert "\n" not in block["text"]
        elif block["type"] == "FactSet":
            no_markup(*(fact[each] for fact in block["facts"] for each in ("title", "value")))
        else:
            assert [LINK] == [action["url"] for action in block["actions"]]


def read_pagerduty(body: Any) -> None:
    assert {"routing_key", "event_action", "dedup_key", "client", "payload", "client_url", "links"} == set(
        body
    )
    assert [LINK] == [link["href"] for link in body["links"]]
    payload = body["payload"]
    assert payload["source"] == "tollhouse"
    assert payload["severity"] == "warning"
    no_markup(payload["summary"], *payload["custom_details"], *payload["custom_details"].values())


def read_alertmanager(body: Any) -> None:
    [alert] = body
    assert {"alertname", "kind", "severity", "notice"} == set(alert["labels"])
    assert LINK == alert["generatorURL"]
    no_markup(*alert["annotations"].values())
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", each) for each in alert["annotations"])


def read_webhook(body: Any) -> None:
    """Check a webhook's body. A program reads it, so names are unchanged except for invisible characters."""
    assert {"type", "timestamp", "data"} == set(body)
    data = body["data"]
    assert LINK == data["link"]
    for text in (data["title"], *data["text"].split("\n"), *data["fields"], *data["fields"].values()):
        assert not UNPRINTABLE.search(text)


READERS: Mapping[str, Callable[[Any], None]] = {
    "slack": read_slack,
    "teams": read_teams,
    "pagerduty": read_pagerduty,
    "alertmanager": read_alertmanager,
    "webhook": read_webhook,
}


def read_mail(mail: EmailMessage, told: Notice) -> None:
    """Check a mail: it has only Tollhouse's headers, the subject is the title, and the body is the text."""
    assert sorted(HEADERS) == sorted(mail.keys())
    assert not mail.defects and not [each for value in mail.values() for each in value.defects]
    assert mail["From"] == "tollhouse@example.com"
    assert mail["To"] == "ada@example.com"
    assert visible(f"[Tollhouse] {told.title}") == visible(mail["Subject"])
    part = mail.get_body(("plain",))
    assert part is not None
    fields = "\n".join(f"{name}: {value}" for name, value in told.fields.items())
    expected = "\n\n".join((told.title, told.text, fields, LINK))
    assert expected == part.get_content().replace("\r\n", "\n").removesuffix("\n")


def visible(text: str) -> str:
    """
    Return the text without blanks, which folding may move, and without the mark that breaks an encoded word.
    """
    return "".join(text.replace("\u200b", "").split())


def settings_of(type: str, url: str, directory: Path) -> dict[str, Any]:
    file = directory / "secret"
    file.write_text(SECRET if type == "webhook" else "0123456789abcdefABCDEF0123456789")
    address = {} if type in ("slack", "teams", "alertmanager") else {"secret_file": file}
    return {"url": url, **address}


async def test_every_channel_has_a_reader() -> None:
    assert set(TYPES) == {*READERS, "email"}


@pytest.mark.proves(
    "A team's or a model's name adds mail headers, mentions people in a chat, or controls a terminal"
)
@pytest.mark.parametrize("type", sorted(READERS))
async def test_a_name_is_a_name_in_every_message(type: str, tmp_path: Path) -> None:
    """In the messages of every channel, a hostile name creates no mention, markup, link or extra field."""
    async with FakeUpstream() as receiver:
        channel = build_channel(settings(type, **settings_of(type, receiver.url, tmp_path)), CLOCK)
        for name in HOSTILE_NAMES:
            await channel.send(NotificationMessage(notices=[named(name)]))
            READERS[type](orjson.loads(receiver.requests[-1].raw))
        await channel.close()
    assert len(HOSTILE_NAMES) == len(receiver.requests)


@pytest.mark.proves(
    "A team's or a model's name adds mail headers, mentions people in a chat, or controls a terminal"
)
async def test_a_name_writes_no_header_and_no_body_of_a_mail() -> None:
    """
    A hostile name writes neither a header nor a part of a mail's body. An encoded word once wrote a header. Python
    3.13 raised an error instead, which parked the channel. Every mail must be sent.
    """
    async with mail_server(Mailbox()) as mailbox:
        to = settings(
            "email",
            server=f"127.0.0.1:{mailbox.port}",
            tls="none",
            sender="tollhouse@example.com",
            to=("ada@example.com",),
        )
        for name in HOSTILE_NAMES:
            told = check_notice(
                notice(title=f"new model {name}", text=name, fields={"model": name}, link=LINK, thread="t")
            )
            await build_channel(to, CLOCK).send(NotificationMessage(notices=[told]))
            recipients, mail = mailbox.mails[-1]
            assert ["ada@example.com"] == recipients
            read_mail(mail, told)
    assert len(HOSTILE_NAMES) == len(mailbox.mails)


@pytest.mark.parametrize(
    "address",
    [
        "=?utf-8?q?a=0Ab?=@example.com",
        "ünï@example.com",
        "a,b@example.com",
        "g:a@example.com",
        "a(b)@example.com",
    ],
)
async def test_a_person_with_an_odd_address_keeps_no_mail_from_others(address: str) -> None:
    """If a person's address is odd, only the mail to that person fails. The channel continues."""
    async with mail_server(Mailbox()) as mailbox:
        to = settings(
            "email",
            server=f"127.0.0.1:{mailbox.port}",
            tls="none",
            sender="tollhouse@example.com",
            to=("ada@example.com",),
        )
        with pytest.raises(Rejected, match="not an e-mail address"):
            await build_channel(to, CLOCK).send(NotificationMessage(notices=[notice(to=address)]))
        await build_channel(to, CLOCK).send(NotificationMessage(notices=[notice("b")]))
    assert [["ada@example.com"]] == [recipients for recipients, _ in mailbox.mails]
