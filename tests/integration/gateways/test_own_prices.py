"""A price that an operator sets applies to new calls on every gateway, and on gateways that start later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from gateway.cli import main
from gateway.operations.money.own_prices import NewPrice, PriceTable
from spool.record import AI_TELEMETRY, Inference
from spool.registry.operators import Actor
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema
from tests.waiting import until

ADA = Actor("ada@example.com", "127.0.0.1")
MODEL = "acme-huge-1"
DRAFT = NewPrice(model="acme-huge*", input="2.00", output="8.00")
COST = "0.00048"  # the cost of 120 tokens of input and 30 of output


async def estimate(serving: Serving) -> tuple[str | None, str]:
    """Send a call to this gateway, and return its estimated cost and the price list."""
    now = time.time_ns()
    span = json_span(MODEL, startTimeUnixNano=str(now - 10**9), endTimeUnixNano=str(now))
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status
    log = serving.app.services.storage.log
    last = log.next_number(AI_TELEMETRY) - 1
    [entry] = await log.read(AI_TELEMETRY, last, last, includes_open_records=True)
    record = entry.records[-1]
    assert isinstance(record, Inference)
    return record.estimated_cost, record.price_book or ""


async def until_priced(serving: Serving, expected: str | None) -> None:
    """Send calls until one has this cost: the change reaches a gateway shortly after it was stored."""

    async def is_priced() -> bool:
        return (await estimate(serving))[0] == expected

    await until(is_priced, f"a call for {expected}")


def table(serving: Serving) -> PriceTable:
    return serving.app.services.operators.installation.require_registry().declared_table(PriceTable)


async def test_a_price_by_command_applies_until_it_is_deleted(serving: Serving, tmp_path: Path) -> None:
    """
    A price that is set by command is used by the running server for the next calls, until it is deleted. `prices
    show` shows it, and `ledger reprice` uses it.
    """

    async def run(*words: str, code: int = 0) -> str:
        data = ["--data", str(tmp_path / "data-0")]
        done = await asyncio.to_thread(CliRunner().invoke, main, [*words, *data])
        assert code == done.exit_code, done.output
        return done.output

    assert (None, "") == await estimate(serving)
    await run("prices", "create", "--model", "acme-huge*", "--input", "2.00", "--output", "8.00")
    await until_priced(serving, COST)
    assert "+overrides-" in (await estimate(serving))[1]
    assert "with own prices" in await run("prices", "show", MODEL)
    repriced = await run("ledger", "reprice", "--from", time.strftime("%Y-%m-01", time.gmtime()))
    assert "+overrides-" in repriced
    assert "is required" in await run("prices", "create", "--model", MODEL, code=2)
    [row] = table(serving).all()
    await run("prices", "delete", row.id)
    await until_priced(serving, None)


async def test_a_contract_by_command_applies_until_it_is_deleted(serving: Serving, tmp_path: Path) -> None:
    """
    A contract that is set by command is used by the running server to price the next calls, until it is deleted.
    `ledger reprice` uses it as well.
    """

    async def run(*words: str) -> str:
        data = ["--data", str(tmp_path / "data-0")]
        done = await asyncio.to_thread(CliRunner().invoke, main, [*words, *data])
        assert 0 == done.exit_code, done.output
        return done.output

    assert (None, "") == await estimate(serving)
    create = ["contracts", "create", "--name", "Deal", "--provider", "openai", "--since", "2026-01-01"]
    await run(*create, "--term", f"capacity models={MODEL} unit=ptu number=1 price=1 per=hour")
    await until_priced(serving, "0")
    assert (await estimate(serving))[1].endswith("+contract:Deal")
    repriced = await run("ledger", "reprice", "--from", time.strftime("%Y-%m-01", time.gmtime()))
    assert "+contracts-" in repriced
    await run("contracts", "delete", "Deal")
    await until_priced(serving, None)


async def test_a_price_applies_on_every_gateway(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path
) -> None:
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=config)
    other = await serve(config=config, key_name="other sender")
    assert (None, "") == await estimate(other)
    await table(one).create(DRAFT, max_rows=9, actor=ADA)
    await until_priced(one, COST)
    await until_priced(other, COST)
    late = await serve(config=config, key_name="late sender")
    assert (await estimate(late))[0] == COST
