"""
The demo month next to real data: separate, readable with the rights for the real data, and removable
without a trace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.core.paths import OPERATOR_API
from gateway.operations.holders import demo_month
from gateway.service.app import TollhouseApp
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import operator_server


@pytest_asyncio.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TollhouseApp]:
    monkeypatch.setattr(demo_month, "RECORDS", 300)
    monkeypatch.setattr(demo_month, "DAYS", 3)
    server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    app = TollhouseApp(Config(data_dir=tmp_path / "data", server=server), version="0")
    await app.start()
    yield app
    await app.stop()


async def ask(app: TollhouseApp, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Send a request over the operator socket."""
    socket = aiohttp.UnixConnector(str(app.config.data_dir / "operator.sock"))
    headers = {"X-Tollhouse-As": quote("ada@example.com")}
    async with (
        aiohttp.ClientSession(connector=socket) as client,
        client.request(method, f"http://x{OPERATOR_API}{path}", json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


def state(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["demo"]["state"]


async def test_demo_month_is_separate_and_leaves_no_trace(app: TollhouseApp) -> None:
    """
    The demo month is readable only below /demo, survives a restart, and disappears with its folder. It never
    mixes with real calls.
    """
    data = app.config.data_dir
    assert (200, "none") == state(await ask(app, "GET", "/demo"))
    assert (201, "loaded") == state(await ask(app, "POST", "/demo", {}))
    _, shown = await ask(app, "GET", "/demo/report?by=team")
    _, real = await ask(app, "GET", "/report?by=team")
    assert shown["rows"] and not real["rows"]
    assert (403, "demo") == error(await ask(app, "POST", "/demo/views", {"name": "mine"}))
    await app.stop()

    (data / "demo.unfinished").mkdir()  # a killed process would leave this folder
    again = TollhouseApp(app.config, version="0")
    await again.start()
    try:
        _, kept = await ask(again, "GET", "/demo/report?by=team")
        assert shown["rows"] == kept["rows"]
        assert (200, "none") == state(await ask(again, "DELETE", "/demo"))
        assert (404, "no_demo") == error(await ask(again, "GET", "/demo/report"))
        assert [] == list(data.glob("demo*"))
        _, audit = await ask(again, "GET", "/audit")
        assert ["demo.remove", "demo.load"] == [row["action"] for row in audit["audit"]][:2]
    finally:
        await again.stop()


def error(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["type"]


async def test_a_demo_month_that_cannot_be_made_leaves_nothing(
    app: TollhouseApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a demo month cannot be created, the answer reports the failure, and another attempt is possible."""
    monkeypatch.setattr(demo_month, "RECORDS", "none")
    assert (503, "demo_failed") == error(await ask(app, "POST", "/demo", {}))
    assert [] == list(app.config.data_dir.glob("demo*"))
    assert (200, "none") == state(await ask(app, "GET", "/demo"))


async def test_who_may_not_read_the_real_data_reads_no_demo(tmp_path: Path) -> None:
    """
    The demo needs the same rights as the real data, so strangers and people without a role see nothing of it.
    """
    async with operator_server(tmp_path) as server:
        stranger = await server.over_http("GET", "/demo/report")
        assert (401, "signed_out") == stranger.error[:2]
        nobody = await signed_in(server, "none", "nobody@example.com")
        for path in ("/demo", "/demo/report", "/demo/records"):
            answer = await server.over_http("GET", path, headers=nobody)
            assert (403, "permission_set") == answer.error[:2], path
        viewer = await signed_in(server, "viewer", "viewer@example.com")
        assert (404, "no_demo") == (await server.over_http("GET", "/demo/report", headers=viewer)).error[:2]


def test_the_filling_process_gets_no_secret() -> None:
    """The process that fills a demo month gets only variables for finding modules and reading text."""
    given = {
        "PATH": "/bin",
        "PYTHONPATH": "x",
        "UPSTREAM_KEY": "secret",
        "TOLLHOUSE_DATA": "/data",
        "TZ": "UTC",
    }
    assert {"PATH": "/bin", "PYTHONPATH": "x", "TZ": "UTC"} == demo_month.environment_of_demo_filling_process(
        given
    )
