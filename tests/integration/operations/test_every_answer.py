"""
Every operation returns its largest answer. Each answer is bounded, and no encoder call on the event
loop is large.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest

from gateway.configuration.sections import Config, McpSettings, UnitCostPublication
from gateway.configuration.server import AnswerSettings
from gateway.core.paths import AS, OPERATOR_API, socket_path
from gateway.http.answers import SLICE_BYTES
from gateway.intake.attribution import RecordAttributor
from gateway.intake.deposits import NonTelemetryIntake
from gateway.intake.publisher import UnitCostPublisher
from gateway.money.costs.reader import CostReader
from gateway.monitoring.spend import SpendSeries
from gateway.operations.money.insights import make_insight_updater
from gateway.operations.money.reports.declared import ScheduledReport
from gateway.operations.money.reports.sender import read_figures
from spool.clock import SystemClock
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.registry.views import Anomalies, NewView
from spool.settings import SpoolSettings
from spool.streams import KnownStreams
from spool.turns.fair_turns import BackgroundWork, current_work
from spool.turns.question_limit import limit_of_running_query
from tests.answers.largest_questions import BUDGET, VIEW, Question, plans_of, questions
from tests.answers.many_sums import fill
from tests.answers.rows_on_loop import watch_rows
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.rounds import IS_LONG

MAX_ROWS, MAX_SUMMED_ROWS, USERS = (500, 6000, 400) if IS_LONG else (50, 600, 40)
ANSWERS = AnswerSettings(max_rows=MAX_ROWS, max_summed_rows=MAX_SUMMED_ROWS)
HOURS = 30
# limit for the largest answers under the settings of proofs, which are pages of 6,000 rows and their CSV
MOST_BYTES = 1024 * 1024


class Asker:
    """A client with a key for each scope, and an operator on the socket."""

    def __init__(self, serving: Serving, socket: aiohttp.ClientSession) -> None:
        self._serving = serving
        self._socket = socket
        self._keys: dict[str, str] = {}

    async def ask(self, question: Question) -> tuple[int, bytes]:
        if question.scope is None:
            return await self.operate(
                question.method, question.path.removeprefix(OPERATOR_API), question.body
            )
        if question.scope not in self._keys:
            self._keys[question.scope] = await self._serving.make_key(question.scope, scopes=[question.scope])
        body = b"" if question.body is None else json.dumps(question.body).encode()
        answer = await self._serving.send(
            question.path, body, method=question.method, key=self._keys[question.scope]
        )
        return answer.status, answer.body

    async def operate(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        url = f"http://tollhouse{OPERATOR_API}{path}"
        async with self._socket.request(method, url, json=body, headers={AS: "ada@example.com"}) as response:
            return response.status, await response.read()


@pytest.fixture
def encoded_on_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of bytes of each encoder call on the event loop."""
    sizes: list[int] = []
    loop = threading.current_thread()

    def noted(encode: Any) -> Any:
        def encoding(*given: Any, **options: Any) -> bytes:
            text: bytes = encode(*given, **options)
            if threading.current_thread() is loop:
                sizes.append(len(text))
            return text

        return encoding

    monkeypatch.setattr(orjson, "dumps", noted(orjson.dumps))
    monkeypatch.setattr(msgspec.json, "encode", noted(msgspec.json.encode))
    return sizes


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> list[CostQuery]:
    """Record ledger queries without a limit, except those of background tasks."""
    asked: list[CostQuery] = []
    costs = Ledger.costs

    async def noted(ledger: Ledger, query: CostQuery) -> Sequence[CostRow]:
        if limit_of_running_query() is None and not isinstance(current_work(), BackgroundWork):
            asked.append(query)
        return await costs(ledger, query)

    monkeypatch.setattr(Ledger, "costs", noted)
    return asked


@pytest.fixture
def read_on_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record places that read many ledger rows on the event loop."""
    return watch_rows(monkeypatch)


@pytest.mark.proves("answers without a limit")
async def test_every_answer_has_a_most(
    serve: Serve,
    tmp_path: Path,
    encoded_on_loop: list[int],
    unlimited: list[CostQuery],
    read_on_loop: list[str],
) -> None:
    """Rows, bytes, work on the event loop and ledger queries all stay within a limit."""
    config = Config(
        spool=SpoolSettings(hold=0, counter_wait=0), answers=ANSWERS, mcp=McpSettings(calls_per_minute=0)
    )
    serving = await serve(config=config)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    begin = hour - timedelta(hours=HOURS - 1)
    ledger = serving.app.services.storage.ledger
    await fill(ledger, combinations=USERS, hours=HOURS, begin=int(begin.timestamp()))
    statuses: dict[str, set[int]] = defaultdict(set)
    wrong: list[str] = []
    connector = aiohttp.UnixConnector(str(socket_path(tmp_path / "data-0")))
    async with aiohttp.ClientSession(connector=connector) as socket:
        asker = Asker(serving, socket)
        _, made = await asker.operate("POST", "/views", VIEW)
        view = json.loads(made)["view"]["id"]
        for plan in plans_of(view, USERS):
            status, said = await asker.operate("POST", "/plans", plan)
            assert status == 201
            assert (b"" if status == 201 else said) == b""
        _, made = await asker.operate("POST", "/budgets", {**BUDGET, "view": {"id": view}})
        ids = {"views": view, "budgets": json.loads(made)["budget"]["id"]}
        for question in questions(f"{begin:%Y-%m-%d}", f"{hour:%Y-%m-%d}", ids):
            encoded_on_loop.clear()
            unlimited.clear()
            read_on_loop.clear()
            status, body = await asker.ask(question)
            statuses[question.name].add(status)
            told = f"{status} {question.method} {question.path[:120]} {str(question.body)[:80]}"
            if status >= 500 and status != 503:
                wrong.append(f"failed: {told}: {body[:200]!r}")
            # a FOCUS export has one day or hour in memory at a time
            if len(body) > MOST_BYTES and question.name != "focus":
                wrong.append(f"{len(body)} bytes: {told}")
            if max(encoded_on_loop, default=0) > 2 * SLICE_BYTES:
                wrong.append(f"{max(encoded_on_loop)} bytes encoded at once on the loop: {told}")
            if read_on_loop:
                wrong.append(f"many rows read on the loop by {set(read_on_loop)}: {told}")
            if unlimited:
                wrong.append(f"{len(unlimited)} questions to the ledger without a limit: {told}")
    assert [] == wrong
    assert {200, 422} == statuses["report"] == statuses["read_costs"]
    assert {200} == statuses["diff_definition"] | statuses["comparison"] | statuses[
        "list_budgets"
    ] | statuses["ask_mcp"]


async def test_background_work_reads_no_rows_on_the_event_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Detectors, recommendations, publishing, a scheduled report and spend counters over many groups all read
    off the event loop.
    """
    serving = await serve(config=Config(spool=SpoolSettings(hold=0, counter_wait=0)))
    services = serving.app.services
    money, storage = services.operators.money, services.storage
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    await fill(storage.ledger, combinations=USERS, hours=HOURS, begin=int(begin.timestamp()))
    registry = storage.registry
    assert registry is not None
    clock = SystemClock()
    draft = NewView(name="users", filter={}, principal_dimension="user", anomalies=Anomalies(enabled=True))
    view = await registry.views.create(
        draft, known_dimensions=storage.ledger.dimensions(), max_rows=9, actor=ACTOR
    )
    read_on_loop = watch_rows(monkeypatch, few=10)
    done: list[str] = []

    async def do(name: str, work: Awaitable[object]) -> None:
        read_on_loop.clear()
        await work
        done.extend(f"{name}: {reader}" for reader in sorted(set(read_on_loop)))

    await do("insights", make_insight_updater(services.operators).find_and_store_insights())
    await do("recommendations", money.require_adviser().find_savings())
    await do("spend", SpendSeries(storage.ledger, clock, top=20).read_totals())
    deposits = NonTelemetryIntake(storage.log, RecordAttributor(Config()))
    rule = UnitCostPublication(stream="users", by="user")
    publisher = UnitCostPublisher(
        [rule],
        ledger=storage.ledger,
        intake=deposits,
        streams=storage.streams,
        known_streams=KnownStreams([]),
        clock=clock,
    )
    await do("published", publisher.publish_changed_costs(rule))
    reader = CostReader(whole=storage.ledger, require_registry=lambda: registry)
    report = ScheduledReport(
        id="1",
        owner="ada",
        created=0.0,
        last_updated=0.0,
        done=0.0,
        name="weekly",
        view=view.id,
        channels=("mail",),
    )
    await do("scheduled report", read_figures(money, report, view, reader, report.next_due_at(clock.now())))
    assert [] == done
