"""
Pulls that a running server starts: at its start, when due, and after a restart from where the last one stopped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.bills.statements import puller
from gateway.bills.statements.puller import PullState, StatementPuller
from gateway.configuration.sections import Config, ReconciliationSettings, StatementPullSettings
from gateway.configuration.server import ServerSettings
from gateway.service.app import TollhouseApp
from spool.settings import SpoolSettings
from spool.statements import DAY_S, day_start
from tests.integration.statements.providers import ACCOUNT, KEY, PROVIDERS, VALUE, Provider, expected
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.waiting import limited, until

DAYS, EVERY_S = 3, 6 * 3600
SOURCES = ("openai_costs", "anthropic_analytics_costs", "github_copilot", "litellm_spend_logs")

Restart = Callable[[], Awaitable[TollhouseApp]]


def puller_of(app: TollhouseApp) -> StatementPuller:
    found = app.services.operators.money.statement_puller
    assert found is not None
    return found()


class Installation:
    """A server with a pull from each source, and the providers."""

    def __init__(self, clock: MovedClock, providers: dict[str, Provider], start: Restart) -> None:
        self.clock, self.providers, self.start = clock, providers, start

    async def until(self, app: TollhouseApp, holds: Callable[[PullState], bool], *names: str) -> None:
        """Wait until the condition holds for the named pulls, or for all."""

        async def hold() -> bool:
            return set(names or SOURCES) <= {
                each.name for each in await puller_of(app).pull_states() if holds(each)
            }

        await until(hold)

    async def until_done(self, app: TollhouseApp, *names: str) -> None:
        await self.until(app, lambda state: state.last_success == self.clock.now(), *names)

    def asked(self) -> dict[str, int]:
        return {source: len(provider.asked) for source, provider in self.providers.items()}

    async def kept(self, app: TollhouseApp, source: str) -> dict[int, Decimal]:
        registry = app.services.storage.registry
        assert registry is not None
        found: dict[int, Decimal] = {}
        for row in await registry.statements.statement_rows(provider=None, start=0, end=2**40):
            if (row.source, row.unit) == (source, self.providers[source].unit):
                found[row.start] = found.get(row.start, Decimal(0)) + row.amount
        return found


@pytest_asyncio.fixture
async def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Installation]:
    monkeypatch.setattr(puller, "LOOK_EVERY_S", 0.02)
    clock, providers, pulls = MovedClock(), {}, []
    key = tmp_path / "key"
    key.write_text(KEY)
    async with AsyncExitStack() as stack:
        for source in SOURCES:
            providers[source] = provider = PROVIDERS[source]()
            provider.today = day_start(int(clock.now()))
            server = TestServer(provider.application())
            await server.start_server()
            stack.push_async_callback(server.close)
            pulls.append(
                StatementPullSettings(
                    name=source, source=source, key_file=key, base_url=str(server.make_url("/")), account=ACCOUNT,
                    days=DAYS, every=EVERY_S,
                )
            )  # fmt: skip
        config = Config(
            data_dir=tmp_path / "data",
            server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
            spool=SpoolSettings(hold=0, counter_wait=0),
            reconciliation=ReconciliationSettings(pull=tuple(pulls)),
        )

        async def start() -> TollhouseApp:
            app = TollhouseApp(replace(config), version="0", clock=clock)
            await app.start()
            stack.push_async_callback(app.stop)
            return app

        yield Installation(clock, providers, start)


async def test_a_server_pulls_by_itself(installation: Installation) -> None:
    """Pulls run at the start and after each `every`. Restated days are replaced, and new days are added."""
    clock, providers = installation.clock, installation.providers
    app = await installation.start()
    await installation.until_done(app)
    asked, today = installation.asked(), day_start(int(clock.now()))
    clock.move(EVERY_S - 1)
    await puller_of(app).pull_due()
    assert asked == installation.asked()
    for source, provider in providers.items():
        assert expected(DAYS, clock.now()) == await installation.kept(app, source)
        provider.amounts = {today - DAY_S: VALUE + 1}
        provider.today += DAY_S
    clock.move(DAY_S)
    await installation.until_done(app)
    for source, provider in providers.items():
        wanted = expected(DAYS, clock.now(), provider.amounts)
        assert today in wanted
        assert wanted.items() <= (await installation.kept(app, source)).items()


@pytest.mark.parametrize("source", part([*SOURCES], every=4))
async def test_a_server_that_ends_within_a_pull(installation: Installation, source: str) -> None:
    """
    After a restart the pull continues from where it stopped. A provider that requires a wait delays no other pull.
    """
    provider = installation.providers[source]
    provider.hang_at = 2 + provider.requests_a_day
    app = await installation.start()
    async with limited():
        await provider.hung.wait()
    await app.stop()
    provider.faults = {provider.hang_at + 1: web.Response(status=429, headers={"Retry-After": "4000"})}
    app = await installation.start()
    await installation.until(app, lambda state: state.state == "failed", source)
    await installation.until_done(app, *(each for each in SOURCES if each != source))
    installation.clock.move(4000)
    await installation.until_done(app, source)
    assert 1 == provider.asked.count(provider.asked[0])
    assert expected(DAYS, installation.clock.now()) == await installation.kept(app, source)
