"""Partial reports of one call that reach different processes make one record, in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.merge_window import SharedMergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.errors import Stale
from spool.log.partial_reports import PARTS, TOLD, TOLD_OF, PartialReport
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, Inference
from spool.settings import SpoolSettings
from spool.sqlite import in_memory
from spool.sqlite.spool import SqliteSpool
from tests.gateway.intake.shared_reports import SharedReports
from tests.gateway.normalise.formats.langfuse.events import batch, create, trace, update
from tests.gateway.normalise.formats.payloads import read_batch
from tests.moved_clock import MovedClock

ALICE = AuthenticatedKey("alice", frozenset(), {"team": "search"})
BOB = AuthenticatedKey("bob", frozenset())
PRICES = PriceBook.load()
WINDOW_S = 600.0


@dataclass
class Processes:
    """Two merge windows over one log in memory."""

    clock: MovedClock = field(default_factory=MovedClock)
    max_reports: int = 1000
    max_bytes: int = 2**24

    async def open(self, *, hold_s: float = 0) -> Processes:
        self.spool: SqliteSpool = await in_memory.open_spool(
            settings=SpoolSettings(hold=hold_s), clock=self.clock
        )
        self.log = self.spool.log
        self.reports = SharedReports(self.spool.database)
        self.a, self.b = [self._window(hold_s) for _ in range(2)]
        return self

    def _window(self, hold_s: float) -> SharedMergeWindow:
        shadows = ReportedCallers(self.clock, heard=self.spool.heard)
        intake = PayloadIntake(
            self.log, attributor=RecordAttributor(Config()), prices=PRICES, shadows=shadows
        )
        return SharedMergeWindow(
            self.reports,
            self.log,
            intake,
            self.clock,
            window_s=WINDOW_S,
            hold_s=hold_s,
            max_reports=self.max_reports,
            max_bytes=self.max_bytes,
        )

    async def records(self) -> list[Inference]:
        entries = await self.log.read(AI_TELEMETRY, 1, self.log.lowest_open_number(AI_TELEMETRY) - 1)
        return [record for entry in entries for record in entry.records if isinstance(record, Inference)]

    async def assert_sound(self, pending: int = 0) -> None:
        books = await self.log.verify()
        assert list(books.imbalances) == []
        assert books.topics[AI_TELEMETRY].get("pending", 0) == pending


async def take(window: SharedMergeWindow, *events: object, bearer: AuthenticatedKey = ALICE) -> None:
    outcome, reports = read_batch("langfuse", batch(*events))
    await window.store_outcome(outcome, bearer, reports)


async def test_the_parts_of_a_call_come_to_two_processes() -> None:
    """
    One process receives the model, the other the tokens, and a trace names the user. The record has all three.
    """
    both = await Processes().open()
    await take(both.a, trace(), create())
    assert [] == await both.records()
    await take(both.b, update())
    (record,) = await both.records()
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens == 10
    assert record.user == "u-1"
    await both.assert_sound()


async def test_what_changes_meanwhile_is_merged_again() -> None:
    """
    If two processes both read before either writes, the second to write merges again with the first one's result.
    """
    both = await Processes().open()
    both.reports.meanwhile = lambda: take(both.b, create())
    await take(both.a, update())
    (record,) = await both.records()
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens == 10
    await both.assert_sound()


async def test_a_request_that_is_always_too_late_is_repeated_by_its_sender() -> None:
    """After several attempts the sender gets 503, and nothing of the request is stored."""
    both = await Processes().open()

    async def change() -> None:
        both.clock.move(1)
        await take(both.b, create())
        both.reports.meanwhile = change

    both.reports.meanwhile = change
    with pytest.raises(Stale):
        await take(both.a, update())
    assert [] == await both.records()
    await both.assert_sound(pending=1)


async def test_a_trace_amends_what_another_process_recorded() -> None:
    """
    A trace is added to an open record that another process stored. A repeated report is a duplicate of the record.
    """
    both = await Processes().open(hold_s=10)
    await take(both.a, create(), update())
    await take(both.b, trace())
    await take(both.b, update())
    both.clock.move(11)
    (record,) = await both.records()
    assert record.user == "u-1"
    assert record.input_tokens == 10
    await both.assert_sound()


async def test_a_trace_amends_what_is_recorded_at_this_moment() -> None:
    """
    A trace and a call arrive at two processes at the same moment. Although neither has seen the other's
    report, the trace is added to the record.
    """
    both = await Processes().open(hold_s=10)
    both.reports.meanwhile = lambda: take(both.b, create(), update())
    await take(both.a, trace())
    both.clock.move(11)
    (record,) = await both.records()
    assert record.user == "u-1"
    assert record.input_tokens == 10
    await both.assert_sound()


async def test_trace_stays_stored_while_its_calls_arrive() -> None:
    """A trace is reported only once. It stays stored as long as its calls arrive, even beyond the window."""
    both = await Processes().open()
    await take(both.a, trace())
    both.clock.move(WINDOW_S - 1)
    await take(both.b, create("g-1"), update("g-1"))
    both.clock.move(WINDOW_S - 1)
    assert 0 == await both.a.release_due_reports()
    await take(both.a, create("g-2"), update("g-2"))
    assert ["u-1", "u-1"] == [record.user for record in await both.records()]
    both.clock.move(WINDOW_S)
    assert 1 == await both.a.release_due_reports()
    assert (0, 0) == await both.reports.count_reports_and_bytes(PARTS)
    await both.assert_sound()


async def test_what_waited_in_vain_is_released_once() -> None:
    """
    Whichever process releases a waiting report first, the other finds nothing to release. Facts about
    recorded calls are deleted.
    """
    both = await Processes().open()
    await take(both.a, trace(), create())
    await take(both.a, create("g-2"), bearer=BOB)
    await take(both.b, create("g-3"), update("g-3"))
    both.clock.move(WINDOW_S)
    assert 3 == await both.b.release_due_reports()
    assert 0 == await both.a.release_due_reports()
    assert {("u-1", "search"), (None, None), ("u-1", "search")} == {
        (one.user, one.team) for one in await both.records()
    }
    assert 3 == len(await both.records())
    assert (0, 0) == await both.reports.count_reports_and_bytes(PARTS)
    both.clock.move(WINDOW_S)
    await both.a.release_due_reports()
    assert await both.reports.count_reports_and_bytes(TOLD) == (0, 0)
    assert await both.reports.count_reports_and_bytes(TOLD_OF) == (0, 0)
    await both.assert_sound()


async def test_too_many_make_room() -> None:
    """If too many partial reports wait, the oldest are released first, before the window ends."""
    both = await Processes(max_reports=2).open()
    for number in range(5):
        await take(both.a, create(f"g-{number}", traceId=None))
        both.clock.move(1)
    assert 3 == await both.b.release_due_reports()
    assert 2 == both.b.waiting_count
    assert 3 == len(await both.records())
    await both.assert_sound(pending=2)


@pytest.mark.parametrize(("max_reports", "max_bytes"), [(4, 2**24), (1000, 700)])
async def test_a_key_that_sends_too_many_pushes_out_its_own(max_reports: int, max_bytes: int) -> None:
    """
    If a key sends too many partial reports, it loses its own. A report of another key stays, although it is
    older and still waits for its other half.
    """
    both = await Processes(max_reports=max_reports, max_bytes=max_bytes).open()
    await take(both.a, create("g-bob", traceId=None), bearer=BOB)
    for number in range(6):
        both.clock.move(1)
        await take(both.a, create(f"g-{number}", traceId=None))
    assert 0 < await both.b.release_due_reports() < 6
    held = both.b.held
    assert held.items["bob"] == 1
    assert both.b.waiting_count - 1 == held.items["alice"]
    assert held.items.keys() == held.bytes.keys()
    await take(both.b, update("g-bob", traceId=None), bearer=BOB)
    whole = [record for record in await both.records() if record.input_tokens]
    assert [("gpt-4o-mini", 10)] == [(record.request_model, record.input_tokens) for record in whole]


async def test_no_more_calls_on_record_are_known_than_reports_may_wait() -> None:
    """
    The number of remembered recorded calls is limited like that of waiting reports. The oldest are forgotten
    early, together with the index of their traces.
    """
    both = await Processes(max_reports=2).open()
    for number in range(5):
        await take(both.a, create(f"g-{number}"), update(f"g-{number}"))
        both.clock.move(1)
    assert 5 == (await both.reports.count_reports_and_bytes(TOLD))[0]
    await both.b.release_due_reports()
    assert [2, 2] == [(await both.reports.count_reports_and_bytes(kind))[0] for kind in (TOLD, TOLD_OF)]
    assert 5 == len(await both.records())
    await both.assert_sound()


async def test_a_report_that_cannot_be_read_holds_up_no_other() -> None:
    """A damaged partial report is dropped, and the operator is informed. Other reports are not affected."""
    both = await Processes().open()
    damaged = PartialReport(b"x" * 16, both.clock.now() - 1, b"\xc1")
    await both.log.append_submission(Submission(topic=AI_TELEMETRY, received=0, keep=[damaged]))
    await take(both.a, create())
    both.clock.move(WINDOW_S)
    assert 2 == await both.a.release_due_reports()
    assert 1 == len(await both.records())
    await both.assert_sound()
