"""
Langfuse's partial reports in a running gateway: two requests, a restart, a refusal, and the end of the window.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.merge_window import ReportMergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.normalise.formats.engine.declaration import NormalisedBody
from gateway.normalise.formats.langfuse.batch import read_langfuse_batch
from gateway.normalise.formats.langfuse.generations import GENERATION
from gateway.normalise.formats.langfuse.merger import ReportMerger, WaitingReport
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload.body_limits import BodyReadLimits
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.errors import SpoolUnavailable
from spool.log.partial_reports import PendingChange
from spool.log.values import Receipt
from spool.record import AI_TELEMETRY, Inference
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from spool.shares import KeyShare
from spool.sqlite.spool import SqliteSpool, open_spool
from tests.gateway.normalise.formats.langfuse.events import batch, create, trace, update
from tests.integration.conftest import Serve, Serving
from tests.moved_clock import MovedClock
from tests.rounds import part

ALICE = AuthenticatedKey("alice", frozenset(), {"team": "search"})
INGESTION = "/api/public/ingestion"


class RunningGateway:
    """A queue with a merge window and an intake."""

    def __init__(self, spool: SqliteSpool, clock: MovedClock, hold_s: float, max_reports: int) -> None:
        self.spool = spool
        self.clock = clock
        config = Config()
        self.intake = PayloadIntake(
            spool.log,
            attributor=RecordAttributor(config),
            prices=PriceBook.load(),
            shadows=ReportedCallers(clock),
        )
        merger = ReportMerger(window_s=600.0, hold_s=hold_s, max_reports=max_reports, max_bytes=2**24)
        self.window = ReportMergeWindow(spool.partial_reports, self.intake, clock, merger)

    @classmethod
    async def open(
        cls, directory: Path, clock: MovedClock, *, hold_s: float = 0, max_reports: int = 20_000
    ) -> RunningGateway:
        spool = await open_spool(directory, settings=SpoolSettings(hold=hold_s), clock=clock)
        server = cls(spool, clock, hold_s, max_reports)
        await server.window.load_stored_reports()
        return server

    async def take(self, body: bytes) -> Receipt:
        outcome, reports = finished(read_langfuse_batch(body, ReadOptions(), BodyReadLimits()))
        return await self.window.store_outcome(outcome, ALICE, reports)

    async def records(self) -> list[Inference]:
        log = self.spool.log
        entries = await log.read(AI_TELEMETRY, 1, log.lowest_open_number(AI_TELEMETRY) - 1)
        return [record for entry in entries for record in entry.records if isinstance(record, Inference)]

    async def partial_reports_on_disk(self) -> int:
        kept = [
            msgspec.msgpack.decode(report.body, type=WaitingReport)
            for report in await self.spool.partial_reports.load()
        ]
        return sum(report.kind == GENERATION for report in kept)

    async def assert_sound(self, pending: int) -> None:
        """Check that the accounting balances and counts exactly the partial reports on disk."""
        books = await self.spool.log.verify()
        assert list(books.imbalances) == []
        assert books.topics[AI_TELEMETRY].get("pending", 0) == pending


def finished(steps: Generator[None, None, NormalisedBody]) -> NormalisedBody:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            normalised: NormalisedBody = stop.value
            return normalised


async def test_two_requests_are_one_call(serving: Serving) -> None:
    """
    Two partial reports in two requests are one call: each request gets its 207, and one record has the model of the
    first and the tokens of the second.
    """
    for body in (batch(create()), batch(trace(), update())):
        assert 207 == (await serving.send(INGESTION, body)).status
    (record,) = await serving.records()
    assert isinstance(record, Inference)
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens == 10
    assert record.user == "u-1"


async def test_the_key_whose_reports_nearly_fill_the_window_is_named(serve: Serve) -> None:
    """
    The operator is warned before the key's oldest reports are stored early. The same holds for waiting counters.
    """
    limits = SpoolSettings(hold=0, pending_items=10, counter_wait=3600)
    serving = await serve(config=Config(spool=limits))
    shares = serving.app.services.operators.senders.shares
    keys = {name: await serving.make_key(name, scopes=[INGEST]) for name in ("chatty", "quiet")}

    async def send(name: str, number: int) -> None:
        answer = await serving.send(INGESTION, batch(create(f"{name}-{number}")), key=keys[name])
        assert 207 == answer.status, answer.body

    await send("quiet", 0)
    for number in range(6):
        await send("chatty", number)
    assert [] == list(await shares())
    await send("chatty", 6)
    assert [KeyShare("spool.pending_items", "chatty", 7, 9, gives_way=True)] == list(await shares())
    shown = (await serving.app.services.single.exposition.current_text()).decode()
    assert 'tollhouse_limit_held_by_key{key="chatty",name="spool.pending_items"} 7.0' in shown


async def test_a_restart_between_partial_reports_loses_nothing(tmp_path: Path) -> None:
    """The first partial report is on disk before its 2xx, so a restart loses nothing."""
    clock = MovedClock()
    server = await RunningGateway.open(tmp_path, clock)
    await server.take(batch(trace(), create()))
    await server.assert_sound(pending=1)
    await server.spool.close()
    server = await RunningGateway.open(tmp_path, clock)
    await server.take(batch(update()))
    (record,) = await server.records()
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens == 10
    assert record.user == "u-1"
    assert record.team == "search"
    await server.assert_sound(pending=0)
    await server.spool.close()


@pytest.mark.parametrize(
    ("kept", "repeated"),
    part(
        [
            *((0, numbers) for numbers in ([0, 1], [1, 0], [2], [0, 0, 1], [1, 1, 0], [1, 2, 0])),
            *((1, numbers) for numbers in ([1], [0, 1], [1, 0], [1, 1], [2], [2, 1, 0])),
            *((2, numbers) for numbers in ([], [0], [1], [0, 1], [1, 0], [2])),
        ],
        every=3,
    ),
)
async def test_disk_and_accounting_agree_on_waiting_reports_after_a_crash(
    tmp_path: Path, kept: int, repeated: list[int]
) -> None:
    """
    A partial report and its accounting are stored in one commit, so they agree after a crash. Whatever is repeated,
    there is one record with its tokens.
    """
    requests = [batch(create()), batch(update()), batch(trace(), create(), update())]
    clock = MovedClock()
    before = await RunningGateway.open(tmp_path / "before", clock)
    await before.take(batch(trace("another")))
    for body in requests[:kept]:
        await before.take(body)
    # the new copy of a note may be renamed while the files are copied, so it is left out
    is_written = shutil.ignore_patterns("*.new")
    # copy the files as a kill would leave them
    shutil.copytree(tmp_path / "before", tmp_path / "after", ignore=is_written)
    await before.spool.close()
    server = await RunningGateway.open(tmp_path / "after", clock)
    await server.assert_sound(pending=kept % 2)
    for number in repeated:
        await server.take(requests[number])
        await server.assert_sound(pending=await server.partial_reports_on_disk())
    clock.move(600)
    await server.window.release_due_reports()
    assert [10] == [record.input_tokens for record in await server.records()]
    await server.assert_sound(pending=0)
    assert [] == list(await server.spool.partial_reports.load())
    await server.spool.close()


async def test_requests_that_arrive_together_are_one_call(tmp_path: Path) -> None:
    """
    Partial reports, repeats and the trace arrive at once, and some are refused and repeated. One record
    results, and nothing waits.
    """
    clock = MovedClock()
    server = await RunningGateway.open(tmp_path, clock, hold_s=10)
    take, refusals = server.intake.store_outcome, iter((True, False, True, False, True))

    async def falter(
        outcome: ReadOutcome, bearer: AuthenticatedKey, pending: PendingChange | None = None
    ) -> Receipt:
        await asyncio.sleep(0)
        if next(refusals, False):
            raise SpoolUnavailable("no")
        return await take(outcome, bearer, pending)

    server.intake.store_outcome = falter  # type: ignore[method-assign]
    requests = [
        batch(create()),
        batch(update()),
        batch(trace(), create()),
        batch(trace()),
        batch(update()),
    ] * 3
    answers = await asyncio.gather(*map(server.take, requests), return_exceptions=True)
    assert 3 == sum(isinstance(answer, SpoolUnavailable) for answer in answers)
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, SpoolUnavailable):
            await server.take(request)
    clock.move(10)
    assert [("gpt-4o-mini", 10, "u-1")] == [
        (one.request_model, one.input_tokens, one.user) for one in await server.records()
    ]
    await server.assert_sound(pending=0)
    await server.spool.close()


async def test_while_the_record_is_open_later_requests_add_to_it(tmp_path: Path) -> None:
    """
    While the record of a call is open, later requests add to it: here the end, the usage and the user arrive in
    separate requests.
    """
    clock = MovedClock()
    server = await RunningGateway.open(tmp_path, clock, hold_s=10)
    for events in ([create()], [update(usageDetails=None)], [update()], [trace()]):
        await server.take(batch(*events))
        clock.move(2)
    clock.move(10)
    (record,) = await server.records()
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens == 10
    assert record.output_tokens == 4
    assert record.user == "u-1"
    assert record.tags == {"env": "prod"}
    assert record.estimated_cost is not None
    await server.assert_sound(pending=0)
    await server.spool.close()


async def test_incomplete_call_is_stored_when_the_window_ends(tmp_path: Path) -> None:
    """
    When the window ends, the incomplete call is stored once, with the labels of the key that sent the report.
    """
    clock = MovedClock()
    server = await RunningGateway.open(tmp_path, clock)
    await server.take(batch(trace(), create()))
    assert 0 == await server.window.release_due_reports()
    clock.move(600)
    assert (
        2 == await server.window.release_due_reports()
    )  # two parts are released: the generation, and the data of its trace
    (record,) = await server.records()
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens is None
    assert record.user == "u-1"
    assert record.team == "search"
    await server.assert_sound(pending=0)
    assert [] == list(await server.spool.partial_reports.load())
    await server.spool.close()


async def test_a_refused_request_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the log refuses the request, a repeat is accepted as if it were the first."""
    server = await RunningGateway.open(tmp_path, MovedClock())
    await server.take(batch(create()))

    async def refuse(
        outcome: ReadOutcome, bearer: AuthenticatedKey, pending: PendingChange | None = None
    ) -> Receipt:
        raise SpoolUnavailable("no")

    with monkeypatch.context() as broken:
        broken.setattr(server.intake, "store_outcome", refuse)
        with pytest.raises(SpoolUnavailable):
            await server.take(batch(update()))
        server.clock.move(600)
        with pytest.raises(SpoolUnavailable):
            await server.window.release_due_reports()
    await server.take(batch(update()))
    assert [10] == [record.input_tokens for record in await server.records()]
    await server.assert_sound(pending=0)
    await server.spool.close()


class Order:
    """Records which requests reach the intake, and holds each one until the test lets it continue."""

    def __init__(self, server: RunningGateway) -> None:
        self._begun: asyncio.Queue[int] = asyncio.Queue()
        self._ends = asyncio.Semaphore(0)
        self._take = server.intake.store_outcome
        server.intake.store_outcome = self._wait  # type: ignore[method-assign]

    async def _wait(
        self, outcome: ReadOutcome, bearer: AuthenticatedKey, pending: PendingChange | None = None
    ) -> Receipt:
        self._begun.put_nowait(outcome.received)
        await self._ends.acquire()
        return await self._take(outcome, bearer, pending)

    async def assert_only(self, received: int) -> None:
        """Check that the next request to reach the intake has `received` events and is the only one."""
        assert received == await self._begun.get()
        await self.assert_nobody()

    async def assert_nobody(self) -> None:
        for _ in range(20):  # enough turns of the loop for any request that could begin
            await asyncio.sleep(0)
        assert self._begun.empty()

    def end_one(self) -> None:
        self._ends.release()


async def test_a_request_of_many_reports_is_not_overtaken(tmp_path: Path) -> None:
    """
    Later requests wait for an earlier request with many reports, even while that request itself waits for
    another because of a single call.
    """
    server = await RunningGateway.open(tmp_path, MovedClock())
    order = Order(server)
    bodies = [batch(create("a")), batch(update("a"), create("b"), trace()), batch(update("b"), trace("t-2"))]
    async with asyncio.TaskGroup() as requests:
        for body in bodies:
            requests.create_task(server.take(body))
        for received in (1, 3, 2):
            await order.assert_only(received)
            order.end_one()
    assert [("a", 10), ("b", 10)] == [
        (record.request_id, record.input_tokens) for record in await server.records()
    ]
    await server.spool.close()


async def test_a_request_that_gives_up_lets_nobody_in_before_the_one_ahead(tmp_path: Path) -> None:
    """
    A cancelled request keeps its turn until the requests before it are done, so no later one overtakes them.
    """
    server = await RunningGateway.open(tmp_path, MovedClock())
    order = Order(server)
    first = asyncio.create_task(server.take(batch(create())))
    await order.assert_only(1)
    second = asyncio.create_task(server.take(batch(trace(), update())))
    third = asyncio.create_task(server.take(batch(trace(), trace("t-2"), update())))
    await order.assert_nobody()
    second.cancel()
    await order.assert_nobody()
    order.end_one()
    await order.assert_only(3)
    order.end_one()
    await asyncio.gather(first, third)
    assert second.cancelled()
    assert [10] == [record.input_tokens for record in await server.records()]
    await server.assert_sound(pending=0)
    await server.spool.close()


async def test_what_is_durable_is_acknowledged_though_older_reports_cannot_make_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The disk fills up after the request was stored, before the older report that it displaces is released. The
    request is still acknowledged.
    """
    server = await RunningGateway.open(tmp_path, MovedClock(), max_reports=1)
    await server.take(batch(create("a")))
    take = server.intake.store_outcome

    async def refuse_older_ones(
        outcome: ReadOutcome, bearer: AuthenticatedKey, pending: PendingChange | None = None
    ) -> Receipt:
        if outcome.received:
            return await take(outcome, bearer, pending)
        raise SpoolUnavailable("no")

    server.intake.store_outcome = refuse_older_ones  # type: ignore[method-assign]
    await server.take(batch(create("b")))
    assert ["release_put_off"] == [getattr(line, "action", None) for line in caplog.records]
    await server.assert_sound(pending=2)
    server.intake.store_outcome = take  # type: ignore[method-assign]
    assert 1 == await server.window.release_due_reports()
    assert ["a"] == [record.request_id for record in await server.records()]
    await server.spool.close()
