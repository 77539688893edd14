"""
Notifications from an insight to the receiver, as operators see them: API, commands, metrics and a reload.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio
from click.testing import CliRunner, Result
from yarl import URL

from gateway.cli import main
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.core.paths import OPERATOR_API
from gateway.service.app import TollhouseApp
from spool.registry.insights import Finding, InsightDraft
from spool.registry.notices import SENT
from tests.exporters.notifications.examples import SECRET, notice, settings
from tests.exporters.upstream import FakeUpstream, Reply
from tests.integration.exporters.notifications.receivers import verified
from tests.waiting import until

ADA = "ada@example.com"


class Console:
    """A client that calls a running server like the console and the command line."""

    def __init__(self, app: TollhouseApp, receiver: FakeUpstream, config: Config) -> None:
        self.app = app
        self.receiver = receiver
        self.config = config  # a reload reads this configuration

    async def ask(self, method: str, path: str, body: object = None, **query: str) -> Any:
        socket = aiohttp.UnixConnector(str(self.app.config.data_dir / "operator.sock"))
        url = URL(f"http://tollhouse{OPERATOR_API}{path}", encoded=True).with_query(query)
        async with (
            aiohttp.ClientSession(connector=socket) as client,
            client.request(method, url, json=body, headers={"X-Tollhouse-As": ADA}) as answer,
        ):
            return {"http": answer.status, **await answer.json()}

    async def run(self, *words: str, code: int = 0) -> Result:
        data = ["--data", str(self.app.config.data_dir)]
        result = await asyncio.to_thread(CliRunner().invoke, main, ["notifications", *words, *data])
        assert code == result.exit_code, (result.output, result.exception)
        return result

    async def parked(self) -> dict[str, Any]:
        """Wait until the channel is parked; return it."""

        async def parked() -> list[dict[str, Any]]:
            answer = await self.ask("GET", "/notification-channels", state="parked")
            channels: list[dict[str, Any]] = answer["notification_channels"]
            return channels

        channels: list[dict[str, Any]] = await until(parked, "a parked channel")
        return channels[0]

    async def until(self, id: str, state: str) -> dict[str, Any]:
        async def reached() -> dict[str, Any]:
            found: dict[str, Any] = (await self.ask("GET", f"/notifications/{id}"))["notification"]
            return found if found["state"] == state else {}

        return await until(reached, f"{id} is {state}")


@pytest_asyncio.fixture
async def console(tmp_path: Path) -> AsyncIterator[Console]:
    """Start a server with one channel that accepts insights of every severity."""
    (tmp_path / "secret").write_text(SECRET)
    async with FakeUpstream() as receiver:
        channel = settings(url=f"{receiver.url}/hook", secret_file=tmp_path / "secret", insights="info")
        server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
        config = Config(data_dir=tmp_path / "data", server=server, notify=(channel,))
        app = TollhouseApp(config, version="0", reread=lambda: served.config)
        served = Console(app, receiver, config)
        await app.start()
        yield served
        await app.stop()


async def test_an_insight_reaches_the_receiver(console: Console) -> None:
    """An insight is sent once and signed. The list and the metrics show it as sent."""
    registry = console.app.services.operators.installation.require_registry()
    finding = Finding(key="x:1", draft=InsightDraft(title="a route is parked", category="delivery"))
    for _ in range(2):
        await registry.insights.merge_findings([finding], looked_for=["x"])
    await console.receiver.until(lambda: len(console.receiver.accepted) == 1)
    body = verified(console.receiver.accepted[0])
    assert body["type"] == "insight.opened"
    assert body["data"]["title"] == "a route is parked"
    assert body["data"]["severity"] == "critical"
    shown = await console.until(f"one:{body['data']['id']}", SENT)
    assert shown["channel"] == "one"
    assert shown["attempts"] == 1
    assert shown["error"] is None
    async with aiohttp.ClientSession() as client, client.get(f"{console.app.operator_url}/metrics") as answer:
        metrics = await answer.text()
    for line in (
        'tollhouse_notifications_total{channel="one",state="sent"} 1.0',
        'tollhouse_notifications_waiting{channel="one"} 0.0',
        'tollhouse_notification_channel_state{channel="one",state="running"} 1.0',
    ):
        assert line in metrics


async def test_failed_test_message_pauses_channel_until_its_address_is_corrected(console: Console) -> None:
    """
    After a failed test message, the channel is parked with the receiver's answer. With a corrected address,
    the test message arrives.
    """
    console.receiver.judge = lambda request: (
        Reply(404, b"gone", "text/plain") if request.path == "/hook" else None
    )
    answer = await console.ask("POST", "/notification-channels/one/test", {})
    assert answer["http"] == 201
    assert answer["notification"]["state"] == "waiting"
    assert answer["notification"]["kind"] == "test"
    channel = await console.parked()
    assert {
        "name": "one",
        "type": "webhook",
        "state": "parked",
        "reason": "404 gone",
        "waiting": 1,
        "sent": 0,
    } == {name: channel[name] for name in ("name", "type", "state", "reason", "waiting", "sent")}
    [before] = console.config.notify
    console.config = replace(console.config, notify=(replace(before, url=f"{console.receiver.url}/new"),))
    reloaded = await console.ask("POST", "/reload", {})
    assert ["notify"] == reloaded["reload"]["changed"]
    assert 2 == (await console.until(answer["notification"]["id"], SENT))["attempts"]
    assert 404 == (await console.ask("POST", "/notification-channels/nobody/test", {}))["http"]


async def test_failed_ones_are_listed_retried_and_discarded(console: Console) -> None:
    """Failed notifications are chosen by id, by channel, or all. An invalid choice changes nothing."""
    registry = console.app.services.operators.installation.require_registry()
    console.receiver.judge = lambda request: Reply(422, b"no", "text/plain")
    await registry.notices.add([notice(id) for id in "abc"], ["one"])
    await console.until("one:c", "failed")
    listed = await console.ask("GET", "/notifications", state="failed", sort_key="attempts")
    assert {each["id"] for each in listed["notifications"]} == {"one:a", "one:b", "one:c"}
    assert listed["pagination"]["total_count"] == 3
    for body in ({}, {"all": True, "channel": "one"}, {"ids": ["one:a"], "all": True}):
        assert 400 == (await console.ask("POST", "/notifications/retry", body))["http"]
    assert 404 == (await console.ask("POST", "/notifications/discard", {"ids": ["one:a", "one:x"]}))["http"]
    assert 1 == (await console.ask("POST", "/notifications/discard", {"ids": ["one:a"]}))["discarded"]
    console.receiver.judge = lambda request: None
    assert 0 == (await console.ask("POST", "/notifications/retry", {"channel": "other"}))["retried"]
    assert 2 == (await console.ask("POST", "/notifications/retry", {"channel": "one"}))["retried"]
    await console.until("one:c", SENT)
    assert ["b", "c"] == [request.headers["webhook-id"] for request in console.receiver.accepted]
    assert 400 == (await console.ask("GET", "/notifications", state="lost"))["http"]


async def test_the_command_says_the_same(console: Console) -> None:
    """Every API call has a command. Tables show the receiver's answer."""
    console.receiver.judge = lambda request: Reply(422, b"not_today", "text/plain")
    made = json.loads((await console.run("channels", "test", "one", "--json")).stdout)["notification"]
    await console.until(made["id"], "failed")
    table = (await console.run("list", "--state", "failed")).stdout
    assert made["id"] in table and "not_today" in table
    assert "one" in (await console.run("channels", "list")).stdout
    assert "Nothing has happened" in (await console.run("show", made["id"])).stdout
    console.receiver.judge = lambda request: None
    assert "1 will be sent again" in (await console.run("retry", made["id"])).stdout
    await console.until(made["id"], SENT)
    assert "0 discarded" in (await console.run("discard", "--all")).stdout
    assert "0 discarded" in (await console.run("discard", "--channel", "one")).stdout
    await console.run("retry", code=2)
    await console.run("show", "one:nobody", code=2)


def test_without_a_server_a_test_waits_for_it(tmp_path: Path) -> None:
    """Commands also work without a server. A message that they add is sent when a server runs."""
    (tmp_path / "tollhouse-data").mkdir()
    (tmp_path / "tollhouse.toml").write_text(
        '[[notify]]\nname = "am"\ntype = "alertmanager"\nurl = "http://127.0.0.1:1"\n'
    )

    def run(*words: str) -> Any:
        path = str(tmp_path / "tollhouse.toml")
        result = CliRunner().invoke(main, ["notifications", *words, "--config", path, "--json"])
        assert 0 == result.exit_code, result.output
        return json.loads(result.stdout)

    assert "waiting" == run("channels", "test", "am")["notification"]["state"]
    [channel] = run("channels", "list")["notification_channels"]
    assert channel["name"] == "am"
    assert channel["state"] == "running"
    assert channel["waiting"] == 1
