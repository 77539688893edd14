"""
Bills compared with counted costs, over the operator API and as a command, with the insight and the
metrics about differences.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace as change
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from click.testing import CliRunner
from msgspec.structs import replace

from gateway.bills.reconciliation.reconciler import reconciliation_gauges
from gateway.cli import main
from gateway.operations.money.insights import make_insight_updater
from spool import identity
from spool.registry.operators import Actor
from spool.statements import Statement, StatementRow
from tests.csv_reading import HOSTILE, assert_harmless
from tests.gateway.bills.reconciliation.simulator import (
    ANTHROPIC,
    BEDROCK,
    DAYS,
    FREE,
    KEYS,
    OPENAI,
    PROVIDERS,
    book,
    month,
    record,
    statements,
)
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add

DAY_S = 86400
MARCH, NOW = "2026-03", datetime(2026, 4, 2, 12, tzinfo=UTC)
CALLS = month(a_day=2)
PARTS = ("volume", "rate", "other", "own")


async def put(server: OperatorServer, rows: list[StatementRow]) -> None:
    """Store the rows as statements of their sources for the whole month."""
    for source in sorted({row.source for row in rows}):
        await server.registry.statements.import_statement(
            Statement(
                source=source,
                account="",
                start=DAYS[0],
                end=DAYS[-1] + 2 * DAY_S,
                rows=tuple(row for row in rows if row.source == source),
                read_at=NOW.timestamp(),
                settled_until=NOW.timestamp(),
                name=f"{source}.json",
            ),
            actor=Actor("ada@example.com", "command"),
        )


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    """Start a server whose totals lack the calls of one key, with the bills for all calls."""
    clock, prices = MovedClock(NOW.timestamp()), book()
    async with operator_server(tmp_path, clock=clock, prices=lambda: prices) as server:
        records = [record(call) for call in CALLS if call.key != KEYS[1]]
        for each in records:
            prices.price_record(each)
        known = [
            identity.call_identity(each, response_id=f"chatcmpl-{n:032d}") for n, each in enumerate(records)
        ]
        await add(server.services.spool.log, *zip(records, known, strict=True))
        yield server


async def reconciled(server: OperatorServer, **query: str) -> Any:
    answer = await server.ask("GET", f"/reconciliation?{urlencode(query)}")
    assert 200 == answer.status, answer.payload
    return answer.payload


def sums_up(row: Any) -> bool:
    billed, counted, explained, unexplained, *parts = (
        Decimal(row[name]) for name in ("billed", "counted", "explained", "unexplained", *PARTS)
    )
    return billed == counted + sum(parts, Decimal(0)) == counted + explained + unexplained


async def test_a_month(server: OperatorServer) -> None:
    """In a reconciled month, every row and the total add up. The key that does not report is the first cause."""
    await put(server, statements(CALLS))
    for by in ("day", "model", "key"):
        payload = await reconciled(server, month=MARCH, by=by)
        assert sorted(PROVIDERS) == [found["provider"] for found in payload["providers"]]
        assert [] == payload["without_statement"]
        for found in payload["providers"]:
            for row in (found["total"], *found["rows"]):
                assert sums_up(row)
                assert Decimal(row["explained"]) == sum(map(Decimal, row["causes"].values()))
            assert found["rows"] or by == "key"
            if found["rows"]:
                for name in ("billed", "counted", "unexplained"):
                    total = sum((Decimal(row[name]) for row in found["rows"]), Decimal(0))
                    assert total == Decimal(found["total"][name])
    for provider in (OPENAI, ANTHROPIC):
        [found] = (await reconciled(server, month=MARCH, provider=provider))["providers"]
        missing = sum(
            (call.cost() for call in CALLS if (call.provider, call.key) == (provider, KEYS[1])), Decimal(0)
        )
        assert "unreported_traffic" == found["causes"][0]["cause"]
        assert abs(Decimal(found["causes"][0]["amount"]) - missing) <= missing / 50
        assert {"explained", "agrees"} >= {row["state"] for row in found["rows"]}


async def told(server: OperatorServer, **asked: object) -> Any:
    """Return the assistants' answer about the month."""
    params = {"name": "get_reconciliation", "arguments": {"month": MARCH, **asked}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    answer = await server.ask("POST", "/mcp", {"line": line})
    assert 200 == answer.status, answer.payload
    return json.loads(answer.payload["line"])["result"]


async def test_assistant_gets_the_same_reconciliation(server: OperatorServer) -> None:
    """
    An assistant gets the same reconciliation: rows and the rest add up to the report's total, however many rows are
    cut. The error about a wrong query says what to write.
    """
    await put(server, statements(CALLS))
    for by in ("day", "model", "key"):
        expected = {
            each["provider"]: each for each in (await reconciled(server, month=MARCH, by=by))["providers"]
        }
        result = await told(server, by=by, limit=1)
        found = result["structuredContent"]
        assert set(expected) == {each["provider"] for each in found["providers"]}
        for each in found["providers"]:
            total = expected[each["provider"]]["total"]
            lines = [*each["rows"], *([each["rest"]] if each["rest"] else [])]
            for name in ("billed", "counted", "difference", "unexplained", *PARTS):
                assert Decimal(total[name]) == Decimal(each["total"][name])
                assert not lines or Decimal(total[name]) == sum(Decimal(line[name]) for line in lines), (
                    by,
                    name,
                )
            assert sums_up(each["total"]) and len(each["rows"]) <= 1
        assert "unreported_traffic" in result["content"][0]["text"]
    near = await told(server, provider="opemai")
    assert near["isError"] and "did you mean openai" in near["content"][0]["text"]
    wrong = await told(server, month="March")
    assert wrong["isError"] and "such as 2026-10" in wrong["content"][0]["text"]


async def test_without_a_statement(server: OperatorServer) -> None:
    """Counted costs of a provider without a bill are listed separately."""
    await put(server, [row for row in statements(CALLS) if row.provider == BEDROCK])
    payload = await reconciled(server, month=MARCH)
    assert [BEDROCK] == [found["provider"] for found in payload["providers"]]
    assert [ANTHROPIC, OPENAI] == [each["provider"] for each in payload["without_statement"]]
    assert [] == (await reconciled(server))["providers"]


async def test_a_wrong_question(server: OperatorServer) -> None:
    """A wrong query gets an error that says what to write instead."""
    month = "month must be written as a year and a month, such as 2026-10"
    wrong = {
        "month=March": month,
        "month=9999-12": month,
        "month=2026-3": month,
        "by=team": "by must be one of day, model, key",
        "format=xml": "format must be one of json, csv",
    }
    for query, words in wrong.items():
        answer = await server.ask("GET", f"/reconciliation?{query}")
        assert 400 == answer.status
        assert words in answer.error[2]


async def test_the_command(server: OperatorServer, tmp_path: Path) -> None:
    """
    The command prints a sentence about the difference, a table and every cause. JSON and CSV have the exact digits.
    """
    await put(server, statements(CALLS))

    async def run(*arguments: str) -> str:
        command = ["reconcile", "report", "--data", str(tmp_path), "--month", MARCH, *arguments]
        result = await asyncio.to_thread(CliRunner().invoke, main, command)
        assert 0 == result.exit_code, result.output
        return result.stdout

    table = await run("--provider", OPENAI, "--by", "model")
    assert table.startswith("openai, 2026-03: billed $")
    assert "unreported_traffic" in table
    assert "gpt-4o" in table
    payload = json.loads(await run("--format", "json"))
    assert payload == await reconciled(server, month=MARCH)
    rows = list(csv.DictReader(io.StringIO(await run("--format", "csv"))))
    for found in payload["providers"]:
        [total] = [row for row in rows if row["provider"] == found["provider"] and row["name"] == "total"]
        assert found["total"]["billed"] == total["billed"]
        assert all(sums_up(row) for row in rows)
    sentence = re.sub(r"[$,]", "", table.splitlines()[0])
    billed, counted, difference, *causes = map(Decimal, re.findall(r"-?[0-9]+[.][0-9]{4}", sentence))
    assert billed - counted == difference == sum(causes)


async def test_a_row_is_one_line_for_every_reader(server: OperatorServer, tmp_path: Path) -> None:
    """Model names come from senders and bills. None breaks a row or becomes a formula."""
    billed = next(row for row in statements(CALLS) if row.provider == OPENAI)
    await put(server, [replace(billed, model=name) for name in HOSTILE])
    [found] = (await reconciled(server, month=MARCH, by="model"))["providers"]
    assert len(found["rows"]) > 10
    command = [
        "reconcile",
        "report",
        "--data",
        str(tmp_path),
        "--month",
        MARCH,
        "--by",
        "model",
        "--format",
        "csv",
    ]
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert_harmless(result.stdout, rows=len(found["rows"]) + 1)


async def test_insight_and_metric(server: OperatorServer) -> None:
    """
    Each provider whose final days differ has one insight with the first cause. The metrics show the ratio of
    counted to billed.
    """
    await put(server, statements(CALLS))
    await make_insight_updater(server.services).find_and_store_insights()
    found = (await server.ask("GET", "/insights?limit=100")).payload["insights"]
    about = [each for each in found if "was counted, on" in each["title"]]
    assert sorted(PROVIDERS) == sorted(each["title"].split(" ")[0] for each in about)
    assert all("2026-03" in each["title"] for each in about)
    assert 2 <= sum("unreported traffic" in each["description"] for each in about)
    newest = server.services.money.require_reconciler().newest
    ratios = {(each.provider, each.measure): each.ratio for each in reconciliation_gauges(newest.values())}
    assert {(provider, measure) for provider in PROVIDERS for measure in ("tokens", "money")} == set(ratios)
    assert all(0 < ratio < 1 for ratio in ratios.values())


@pytest.mark.proof
async def test_failed_calls_that_nobody_bills(tmp_path: Path) -> None:
    """
    A gateway reports failed calls with tokens at the cost 0. They are no difference, and their hours do not hide that
    the days of the bill begin at eight o'clock.
    """
    clock, prices = MovedClock(NOW.timestamp()), book()
    calls = [
        change(call, failed=FREE * (number % 20 == 7))
        for number, call in enumerate(month(a_day=12, providers=(OPENAI,)))
    ]
    billed = [call for call in calls if not call.failed]
    pacific = [change(call, time=call.time - 8 * 3600) for call in billed if call.time >= DAYS[0] + 8 * 3600]
    async with operator_server(tmp_path, clock=clock, prices=lambda: prices) as server:
        records = [record(call) for call in calls]
        for each in records:
            prices.price_record(each)
        known = [
            identity.call_identity(each, response_id=f"chatcmpl-{n:032d}") for n, each in enumerate(records)
        ]
        await add(server.services.spool.log, *zip(records, known, strict=True))
        for rows, causes in ((statements(billed), set()), (statements(pacific), {"time_edge"})):
            await put(server, rows)
            [found] = (await reconciled(server, month=MARCH, provider=OPENAI))["providers"]
            assert sums_up(found["total"])
            assert causes == {claim["cause"] for claim in found["causes"]}
            assert [] == found["hints"]


async def test_a_claim_of_a_discount(tmp_path: Path) -> None:
    """
    A claim is written for batches that were billed as standard calls. Its lines add up to the claimed amount, and
    hostile names from the bill are harmless in it.
    """
    clock, prices = MovedClock(NOW.timestamp()), book()
    key, shown = KEYS[0], f"={KEYS[0]}"
    calls = [change(call, batch=True) if call.key == key else call for call in CALLS]
    billed = [change(call, batch=False) if call.key == key else call for call in calls]
    renamed = {key: shown}
    async with operator_server(tmp_path, clock=clock, prices=lambda: prices) as server:
        records = [record(call, key=renamed.get(call.key)) for call in calls]
        for each in records:
            prices.price_record(each)
        known = [
            identity.call_identity(each, response_id=f"chatcmpl-{n:032d}") for n, each in enumerate(records)
        ]
        await add(server.services.spool.log, *zip(records, known, strict=True))
        await put(
            server, [replace(row, key=renamed.get(row.key or "", row.key)) for row in statements(billed)]
        )
        [found] = (await reconciled(server, month=MARCH, provider=OPENAI))["providers"]
        [cause] = [each for each in found["causes"] if each["cause"] == "tier_not_given"]
        discount = sum(
            (call.cost() for call in calls if (call.provider, call.key) == (OPENAI, key)), Decimal(0)
        )
        extra = sum(
            (call.cost() for call in billed if (call.provider, call.key) == (OPENAI, key)), Decimal(0)
        )
        assert extra - discount == Decimal(cause["amount"]) == Decimal(found["owed"])
        written = {}
        for form in ("text", "csv"):
            command = [
                "reconcile",
                "claim",
                OPENAI,
                "--data",
                str(tmp_path),
                "--month",
                MARCH,
                "--format",
                form,
            ]
            result = await asyncio.to_thread(CliRunner().invoke, main, command)
            assert 0 == result.exit_code, result.output
            written[form] = result.stdout
        rows = list(csv.DictReader(io.StringIO(written["csv"])))
        assert_harmless(written["csv"], rows=len(rows))
        assert Decimal(cause["amount"]) == sum((Decimal(row["owed"]) for row in rows), Decimal(0))
        assert all(Decimal(row["billed"]) - Decimal(row["due"]) == Decimal(row["owed"]) for row in rows)
        assert {("batch", "standard")} == {(row["reported"], row["billed_as"]) for row in rows}
        assert f"owed {cause['amount']}\n" in written["text"]
        assert f"Period: {MARCH}-01 to {MARCH}-31 (UTC)" in written["text"]
        assert len(rows) == written["text"].count("billed as standard")
        answer = await server.ask("GET", f"/reconciliation/claim?{urlencode({'provider': 'mistral'})}")
        assert answer.status == 400
        answer = await server.ask("GET", "/reconciliation/claim")
        assert answer.status == 400
