"""Bills in a running server: the ratios in `/metrics`, and insights about overdue reports."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path

import pytest_asyncio
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from gateway.configuration.sections import Config, ReconciliationSettings, StatementPullSettings
from gateway.configuration.server import ServerSettings
from gateway.operations.money.insights import make_insight_updater
from gateway.service.app import TollhouseApp
from spool import identity
from spool.record import NS, Inference
from spool.registry.operators import Actor
from spool.settings import SpoolSettings
from spool.statements import DAY_S, Statement, StatementRow, day_start
from tests.integration.statements.providers import OpenAICosts
from tests.spool.contract.examples import add
from tests.spool.kept import kept_insights

ADA = Actor("ada@example.com", "command")


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[TollhouseApp]:
    """Start a server with a pull whose key the provider refuses."""
    key = tmp_path / "key"
    key.write_text("sk-no-admin")
    async with AsyncExitStack() as stack:
        provider = TestServer(OpenAICosts().application())
        await provider.start_server()
        stack.push_async_callback(provider.close)
        pull = StatementPullSettings(
            name="costs", source="openai_costs", key_file=key, base_url=str(provider.make_url("/"))
        )
        app = TollhouseApp(
            Config(
                data_dir=tmp_path / "data",
                server=ServerSettings(listen="127.0.0.1:0", grpc_listen="", operator_listen="127.0.0.1:0"),
                spool=SpoolSettings(hold=0, counter_wait=0),
                reconciliation=ReconciliationSettings(pull=(pull,)),
            ),
            version="0",
        )
        await app.start()
        stack.push_async_callback(app.stop)
        yield app


async def put(
    app: TollhouseApp, source: str, provider: str, days: Sequence[int], money: str | None, tokens: int
) -> None:
    """Import a bill with the same amounts for each day."""

    def row(day: int, unit: str, kind: str, amount: Decimal) -> StatementRow:
        return StatementRow(
            source=source, provider=provider, account=None, key=None, model="m-1", start=day, end=day + DAY_S,
            unit=unit, kind=kind, amount=amount, currency="USD" if unit == "usd" else None, tier=None, region=None,
            batch=None, settled=True,
        )  # fmt: skip

    rows = [row(day, "tokens", "input", Decimal(tokens)) for day in days]
    rows += [row(day, "usd", "cost", Decimal(money)) for day in days if money is not None]
    statement = Statement(
        source=source, account="", start=days[0], end=days[-1] + DAY_S, rows=tuple(rows), read_at=time.time(),
        settled_until=time.time(), name="report",
    )  # fmt: skip
    registry = app.services.storage.registry
    assert registry is not None
    await registry.statements.import_statement(statement, actor=ADA)


def call(provider: str, day: int, tokens: int, cost: str) -> Inference:
    return Inference(
        id=b"\0" * 16, source="litellm", provider=provider, request_model="m-1", response_model="m-1",
        start_time=(day + 3600) * NS, input_tokens=tokens, output_tokens=0, cost=cost, cost_source="reported",
    )  # fmt: skip


async def test_rates_of_bills_are_metrics(app: TollhouseApp) -> None:
    """Ratios are shown by provider for tokens and costs. If a bill has no costs, that ratio is missing."""
    day = day_start(int(time.time())) - 3 * DAY_S
    await put(app, "aws_cur", "aws.bedrock", [day], "4", 1000)
    await put(app, "anthropic_usage", "anthropic", [day], None, 800)
    calls = [call("aws.bedrock", day, 750, "3.2"), call("anthropic", day, 1000, "1")]
    known = [identity.call_identity(each, response_id=f"chatcmpl-{n:032d}") for n, each in enumerate(calls)]
    await add(app.services.storage.log, *zip(calls, known, strict=True))
    await app.services.operators.money.require_reconciler().reconcile_recent_months()
    lines = [
        line for line in (await metrics(app)).splitlines() if line.startswith("tollhouse_reconciled_ratio{")
    ]
    assert [
        'tollhouse_reconciled_ratio{measure="money",provider="aws.bedrock"} 0.8',
        'tollhouse_reconciled_ratio{measure="tokens",provider="anthropic"} 1.25',
        'tollhouse_reconciled_ratio{measure="tokens",provider="aws.bedrock"} 0.75',
    ] == sorted(sorted_labels(line) for line in lines)


async def metrics(app: TollhouseApp) -> str:
    async with ClientSession() as client, client.get(f"{app.operator_url}/metrics") as answer:
        assert 200 == answer.status
        return await answer.text()


def sorted_labels(line: str) -> str:
    name, _, rest = line.partition("{")
    labels, _, value = rest.partition("}")
    return f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}"


async def test_overdue_report_is_an_insight_until_it_arrives(app: TollhouseApp) -> None:
    """
    The insight about an overdue report quotes the provider's answer about the key, and ends when
    the report arrives.
    """
    services = app.services.operators
    assert services.money.statement_puller is not None and services.installation.registry is not None
    await services.money.statement_puller().pull_statements("costs")
    await make_insight_updater(services).find_and_store_insights()
    [found] = [
        each
        for each in await kept_insights(services.installation.registry)
        if "statement_stale" in str(each.finding)
    ]
    assert "401 no such key; check that it is an admin key" in found.description
    today = day_start(int(time.time()))
    await put(app, "openai_costs", "openai", range(today - 3 * DAY_S, today, DAY_S), "1", 10)
    report = await make_insight_updater(services).find_and_store_insights()
    assert report.merged.gone == 1
    assert tuple(report.failed) == ()
