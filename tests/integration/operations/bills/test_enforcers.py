"""
Enforcers in a running server: their limits are read over HTTP with the key of a file, listed with our sums, and their
faults become insights.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.cli.check import enforcer_problems
from gateway.configuration.problems import config_problems
from gateway.configuration.sections import Config, EnforcerSettings
from tests.integration.conftest import Serve

KEY = "sk-admin-canary"


class LiteLLM:
    """A server with the lists of LiteLLM. It accepts one key."""

    def __init__(self) -> None:
        self.methods: set[str] = set()
        self.rows: list[dict[str, Any]] = []

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        self.methods.add(request.method)
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"error": f"bad key {request.headers.get('Authorization')}"}, status=401)
        roots = {"/key/list": "keys", "/v2/team/list": "teams", "/user/list": "users"}
        root = roots[request.path]
        return web.json_response({root: self.rows if root == "keys" else [], "total_pages": 1})


@pytest.fixture
async def litellm() -> AsyncIterator[tuple[LiteLLM, str]]:
    made = LiteLLM()
    server = TestServer(made.application())
    await server.start_server()
    yield made, str(server.make_url("/"))
    await server.close()


def config(place: Path, url: str, key: str = KEY) -> Config:
    file = place / "key"
    file.write_text(key)
    return Config(enforcers=(EnforcerSettings(name="eu", type="litellm", base_url=url, key_file=file),))


async def test_limits_are_read_and_listed(serve: Serve, litellm: tuple[LiteLLM, str], tmp_path: Path) -> None:
    """
    The limits of an enforcer are read only with GET requests. A limit that cannot be compared is listed with the
    reason.
    """
    enforcer, url = litellm
    resets_at = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    enforcer.rows = [
        {"token": "88", "key_alias": "ci", "spend": 3.5, "max_budget": 2, "budget_duration": "1d",
         "budget_reset_at": resets_at.isoformat()}
    ]  # fmt: skip
    serving = await serve(config=config(tmp_path, url))
    money = serving.app.services.operators.money
    assert money.enforcer_reader is not None
    assert money.enforcer_auditor is not None
    await money.enforcer_reader().read_enforcer("eu")
    [status] = await money.enforcer_reader().statuses()
    assert ("", 1) == (status.state.reason, status.limits)
    assert {"GET"} == enforcer.methods
    [audit] = await money.enforcer_auditor().audit_limits()
    assert ("ci", "2", "3.5", "day") == (
        audit.limit.name, audit.limit.limit, audit.limit.spent, audit.limit.window,
    )  # fmt: skip
    assert audit.reason
    assert () == tuple(audit.faults)


async def test_a_refused_key_is_no_secret_of_the_state(
    serve: Serve, litellm: tuple[LiteLLM, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If an enforcer refuses the key, the state and the log say so. They have neither the key nor an echo of it."""
    _, url = litellm
    settings = config(tmp_path, url, key="sk-wrong-canary")
    serving = await serve(config=settings)
    money = serving.app.services.operators.money
    assert money.enforcer_reader is not None
    await money.enforcer_reader().read_enforcer("eu")
    [status] = await money.enforcer_reader().statuses()
    tried = await enforcer_problems(settings)
    for text in (status.state.reason, tried["eu"], caplog.text):
        assert "401" in text
        assert "canary" not in text
    assert {"eu": ""} == await enforcer_problems(config(tmp_path, url))


@pytest.mark.parametrize(
    ("enforcer", "problem"),
    [
        (EnforcerSettings(name="", type="openai", key_file=Path("k")), "enforcers[0].name is required"),
        (EnforcerSettings(name="a", type="other", key_file=Path("k")), "enforcers[0].type"),
        (EnforcerSettings(name="a", type="openai"), "enforcers[0].key_file is required"),
        (EnforcerSettings(name="a", type="litellm", key_file=Path("k")), "enforcers[0].base_url is required"),
        (
            EnforcerSettings(name="a", type="openai", key_file=Path("k"), base_url="https://x/?key=1"),
            "without a query",
        ),
    ],
)
def test_problems_of_settings(enforcer: EnforcerSettings, problem: str) -> None:
    assert any(problem in text for text in config_problems(Config(enforcers=(enforcer,))))


def test_names_are_unique() -> None:
    one = EnforcerSettings(name="a", type="openai", key_file=Path("k"))
    assert any("'a' is used twice" in text for text in config_problems(Config(enforcers=(one, one))))
