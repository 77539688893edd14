"""While totals are counted again, no operation, tool or background task reads partial sums."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from gateway.configuration.sections import Config, McpSettings, UnitCostPublication
from gateway.core.paths import socket_path
from gateway.intake.attribution import RecordAttributor
from gateway.intake.deposits import NonTelemetryIntake
from gateway.intake.publisher import UnitCostPublisher
from gateway.mcp.resources import CONTEXT_URI
from gateway.mcp.tools.list import TOOLS
from gateway.monitoring.spend import SpendSeries
from gateway.operations.money.costs.scheduled_reports import make_report_sender
from gateway.operations.money.insights import make_insight_updater
from spool.clock import SystemClock
from spool.errors import TotalsIncomplete
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.registry.scopes import AI_HUB
from spool.settings import SpoolSettings
from spool.streams import KnownStreams
from tests.answers.largest_questions import BUDGET, VIEW, questions
from tests.answers.many_sums import fill
from tests.integration.conftest import Serve, Serving
from tests.integration.operations.test_every_answer import Asker
from tests.spool.ledger.rebuilding import rebuild_without_end

T = TypeVar("T")
# rows that a rebuild does not empty: state, dimensions and names, rules of counting, bills
WITHOUT_SUMS = {
    "state_values", "values", "value_combinations", "dimensions_by_number", "tag_values_in_calls_and_billing_rows",
    "work_unit_names_containing", "ids_merged_into_other", "rename_dimensions", "count_rows",
    "periods_frozen_for_rebuild", "recalculations", "tag_lists", "valid_rollup_keys",
    "billed_days", "billed_sums", "colours",
}  # fmt: skip
# readers that answered with partial sums, or stored something made from them
READERS = {
    "report", "what_if", "focus", "compare_costs", "forecast", "overview", "group_costs", "read_costs", "search",
    "costs_of_contracts", "diff_definition",
}  # fmt: skip


class _WatchedRows:
    """The rows of a store. It notes methods that may read sums."""

    def __init__(self, rows: LedgerRows, read_sums: set[str]) -> None:
        self._rows = rows
        self._read_sums = read_sums

    def __getattr__(self, name: str) -> Any:
        if name not in WITHOUT_SUMS:
            self._read_sums.add(name)
        return getattr(self._rows, name)


@pytest.fixture
def read_sums(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Note the methods by which any ledger reads sums, except for a comparison with the log."""
    found: set[str] = set()
    read = Ledger._read_rows

    async def watched(ledger: Ledger, work: Callable[[LedgerRows], T]) -> T:
        def watch_rows(rows: LedgerRows) -> T:
            watched: Any = _WatchedRows(rows, found)
            return work(watched)

        return await read(ledger, watch_rows)

    async def is_never_due(ledger: Ledger, now: float) -> bool:
        return False

    monkeypatch.setattr(Ledger, "_read_rows", watched)
    # a comparison with the log ends without a result if a rebuild begins meanwhile
    monkeypatch.setattr(Ledger, "is_comparison_due", is_never_due)
    return found


async def filled(serve: Serve) -> Serving:
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0), mcp=McpSettings(calls_per_minute=0))
    serving = await serve(config=config)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin = int((today - timedelta(days=1)).timestamp())
    await fill(serving.app.services.storage.ledger, combinations=4, hours=24, begin=begin)
    return serving


def refusal_of(status: int, body: bytes) -> str:
    """Return the type of a refusal, also of one in the result of a tool, or "" without one."""
    if b"totals are counted again, and 0 % is done" not in body:
        return ""
    return "of a tool" if status == 200 else str(json.loads(body)["error"]["type"])


async def test_every_operation_and_tool_refuses(serve: Serve, tmp_path: Path, read_sums: set[str]) -> None:
    """
    Every operation and tool either needs no totals, or is refused with the share that is done. An operation is found
    in the table of addresses, so a new one is tried as well.
    """
    serving = await filled(serve)
    day = datetime.now(UTC).date()
    since = day - timedelta(days=1)
    refused: dict[str, str] = {}
    tools = set()
    wrong = []
    connector = aiohttp.UnixConnector(str(socket_path(tmp_path / "data-0")))
    async with aiohttp.ClientSession(connector=connector) as socket:
        asker = Asker(serving, socket)
        _, made = await asker.operate("POST", "/views", VIEW)
        view = json.loads(made)["view"]["id"]
        _, made = await asker.operate("POST", "/budgets", {**BUDGET, "view": {"id": view}})
        ids = {"views": view, "budgets": json.loads(made)["budget"]["id"]}
        async with rebuild_without_end(serving.app.services.storage.ledger):
            for question in questions(f"{since}", f"{day}", ids):
                read_sums.clear()
                status, body = await asker.ask(question)
                told = f"{status} {question.method} {question.path[:120]} {str(question.body)[:120]}"
                if read_sums:
                    wrong.append(f"read {read_sums}: {told}")
                if status >= 500 and status != 503:
                    wrong.append(f"failed: {told}: {body[:200]!r}")
                if refusal_of(status, body):
                    refused[question.name] = refusal_of(status, body)
                if question.name == "ask_mcp" and refusal_of(status, body):
                    tools.add(question.body["params"]["name"])
    assert [] == wrong
    assert READERS - refused.keys() == set()
    assert {"totals_incomplete", "of a tool"} == set(refused.values())
    reading_tools = {name for name, tool in TOOLS.items() if not tool.writes}
    # these refuse the empty arguments of the question
    assert {"get_reference_info", "get_telemetry_data"} == reading_tools - tools


async def test_an_mcp_resource_refuses(serve: Serve) -> None:
    serving = await filled(serve)
    key = await serving.make_key("assistant", scopes=[AI_HUB])
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": CONTEXT_URI}}
    async with rebuild_without_end(serving.app.services.storage.ledger):
        answer = await serving.send("/mcp", json.dumps(message).encode(), key=key)
    assert "0 % is done" in json.loads(answer.body)["error"]["message"]


async def test_background_tasks_skip_their_turn(serve: Serve, read_sums: set[str]) -> None:
    """Each background task that uses totals waits, and stores and sends nothing."""
    serving = await filled(serve)
    services = serving.app.services
    money, storage = services.operators.money, services.storage
    publisher = UnitCostPublisher(
        [rule := UnitCostPublication(stream="users", by="user")],
        ledger=storage.ledger,
        intake=NonTelemetryIntake(storage.log, RecordAttributor(Config())),
        streams=storage.streams,
        known_streams=KnownStreams([]),
        clock=SystemClock(),
    )
    await storage.ledger.catch_up(storage.log)
    assert money.budgets is not None

    async def refuses(work: Awaitable[object]) -> None:
        with pytest.raises(TotalsIncomplete):
            await work

    async with rebuild_without_end(storage.ledger):
        read_sums.clear()
        await refuses(make_insight_updater(services.operators).find_and_store_insights())
        await refuses(money.require_adviser().find_and_store_savings())
        await refuses(SpendSeries(storage.ledger, SystemClock(), top=20).read_totals())
        await refuses(publisher.publish_changed_costs(rule))
        assert (await money.budgets().evaluate_all()).waits
        assert 0 == await make_report_sender(services.operators).send_due()
        if money.biller is not None:
            await money.biller().recalculate_changed_months()
        assert set() == read_sums
