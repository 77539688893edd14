"""Notification channels that people create: they send at once, and no answer ever contains their secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from gateway.configuration.sections import ChannelLimits, Config
from gateway.configuration.server import ServerSettings
from gateway.service.app import TollhouseApp
from spool.registry.notices import SENT
from tests.exporters.notifications.examples import SECRET, settings
from tests.exporters.upstream import FakeUpstream
from tests.integration.exporters.notifications.receivers import verified
from tests.integration.operations.money.test_notifications import Console
from tests.stored_files import contents_of

CHANNELS = "/notification-channels"


@pytest_asyncio.fixture
async def console(tmp_path: Path) -> AsyncIterator[Console]:
    """Start a server with one configured channel, named `one`."""
    (tmp_path / "secret").write_text(SECRET)
    async with FakeUpstream() as receiver:
        stated = settings(url=f"{receiver.url}/stated", secret_file=tmp_path / "secret")
        server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
        limits = ChannelLimits(max=2)
        config = Config(data_dir=tmp_path / "data", server=server, notify=(stated,), channels=limits)
        app = TollhouseApp(config, version="0", reread=lambda: served.config)
        served = Console(app, receiver, config)
        await app.start()
        yield served
        await served.app.stop()


async def add(console: Console, **fields: Any) -> Any:
    body = {
        "name": "mine",
        "type": "webhook",
        "url": f"{console.receiver.url}/hook",
        "secret": SECRET,
        **fields,
    }
    return await console.ask("POST", CHANNELS, body)


async def test_one_that_was_made_sends_also_after_a_restart(console: Console, tmp_path: Path) -> None:
    """
    Messages are signed with the channel's secret. The secret is in no answer, no audit row, and in no file
    as plain text.
    """
    made = await add(console)
    assert 201 == made["http"]
    tested = await console.ask("POST", f"{CHANNELS}/mine/test", {})
    await console.until(tested["notification"]["id"], SENT)
    assert "test" == verified(console.receiver.accepted[0])["type"]
    await console.app.stop()
    console.app = TollhouseApp(console.config, version="0")
    await console.app.start()
    tested = await console.ask("POST", f"{CHANNELS}/mine/test", {})
    await console.until(tested["notification"]["id"], SENT)
    verified(console.receiver.accepted[1])
    listed = await console.ask("GET", CHANNELS)
    origins = {row["name"]: row["origin"] for row in listed["notification_channels"]}
    assert {"one": "configuration", "mine": "console"} == origins
    told = [made, listed, await console.ask("GET", f"{CHANNELS}/mine"), await console.ask("GET", "/audit")]
    assert SECRET.removeprefix("whsec_") not in str(told)
    kept = b"".join(contents_of(tmp_path / "data").values())
    assert SECRET.removeprefix("whsec_").encode() not in kept


async def test_channel_secret_is_sent_to_no_other_address(console: Console) -> None:
    """A change of a channel's address requires the secret again. Other changes keep the secret."""
    await add(console)
    moved = await console.ask("PATCH", f"{CHANNELS}/mine", {"url": f"{console.receiver.url}/elsewhere"})
    assert moved["http"] == 400
    assert moved["error"]["message"] == "secret: enter it again, because the address changed"
    quiet = await console.ask("PATCH", f"{CHANNELS}/mine", {"insights": "critical"})
    assert quiet["http"] == 200
    assert quiet["notification_channel"]["insights"] == "critical"
    moved = await console.ask(
        "PATCH", f"{CHANNELS}/mine", {"url": f"{console.receiver.url}/elsewhere", "secret": SECRET}
    )
    assert 200 == moved["http"]
    tested = await console.ask("POST", f"{CHANNELS}/mine/test", {})
    await console.until(tested["notification"]["id"], SENT)
    assert ["/elsewhere"] == [request.path for request in console.receiver.accepted]


async def test_what_cannot_work_is_refused(console: Console) -> None:
    """
    A channel that cannot work is refused by the same rules as in the configuration. Configured channels
    cannot be changed here.
    """
    for fields, message in (
        ({"secret": "short"}, "secret: the signing secret must be whsec_ followed by 24 to 64 bytes in base64"),
        ({"secret": None}, "secret_file is required for type 'webhook': it holds the secret for signatures"),
        ({"url": "ftp://x"}, "url must begin with http:// or https://"),
        ({"type": "pigeon"}, "type: 'pigeon' is not known; one of"),
        ({"type": "slack", "url": "", "secret": "x"}, "secret must begin with http:// or https://"),
        ({"type": "pagerduty", "url": "", "secret": "x"},
         "secret: the integration key must have 32 letters and digits"),
    ):  # fmt: skip
        refused = await add(console, **fields)
        assert 400 == refused["http"] and refused["error"]["message"].startswith(message), refused
    taken = await add(console, name="one")
    assert taken["http"] == 409
    assert taken["error"]["message"] == "a channel named 'one' already exists"
    changed = await console.ask("PATCH", f"{CHANNELS}/one", {"insights": "none"})
    assert (
        "one is a channel of the configuration; change it there, then reload" == changed["error"]["message"]
    )
    for name in ("first", "second"):
        assert 201 == (await add(console, name=name))["http"]
    most = await add(console, name="third")
    assert 409 == most["http"] and "channels.max" in most["error"]["message"]


async def test_commands_make_and_delete_one(console: Console, tmp_path: Path) -> None:
    """
    The command that creates a channel reads the secret from a file, so the secret never appears in a process list.
    """

    (tmp_path / "address").write_text(f"{console.receiver.url}/chat\n")
    await console.run("channels", "create", "chat", "teams", "--secret-file", str(tmp_path / "address"))
    await console.run("channels", "test", "chat")
    await console.receiver.until(lambda: len(console.receiver.accepted) == 1)
    assert "/chat" == console.receiver.accepted[0].path
    assert "console" in (await console.run("channels", "list")).output
    await console.run("channels", "delete", "chat")
    assert "chat" not in (await console.run("channels", "list")).output
