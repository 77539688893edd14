"""Counters and calls of one sender count once, in any order and across restarts."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.configuration.sections import Config
from gateway.intake import waiting_counters
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.reversals import CountedCounterGroup
from gateway.intake.shadows import CallReporter, CallReporters, ReportedCallers
from gateway.intake.waiting_counters import WaitingCounters
from gateway.normalise.outcome import ReadOutcome
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.identity import RecordIdentity, dedup_key_of_parts
from spool.ledger.sums import HourlySums
from spool.log.values import CounterPoint
from spool.record import AI_TELEMETRY, NS, Inference, UsageMetric
from spool.settings import SpoolSettings
from spool.sqlite import in_memory
from spool.sqlite.partial_reports import write_changes
from spool.sqlite.spool import SqliteSpool
from tests.gateway.intake.shared_reports import SharedHeard, SharedReports
from tests.moved_clock import MovedClock
from tests.rounds import examples

WAIT_S = 90.0
BEARER = AuthenticatedKey("tests", frozenset())
PRICES = PriceBook.load()


@dataclass(frozen=True)
class Family:
    """A kind of client, and how it identifies itself in its calls and in its counters."""

    call: dict[str, Any]
    counter: dict[str, Any]
    window: str | None = None  # the session that the resource attributes state
    cumulative: bool = False


FAMILIES = {
    "Claude Code": Family(
        {"source": "claude_code", "session": "s1", "user": "u1"}, {"source": "claude_code", "session": "s1"}
    ),
    "Codex": Family({"source": "codex", "session": "s1", "user": "u1"}, {"source": "codex"}),
    "Gemini CLI": Family(
        {"source": "gemini_cli", "session": "s1"}, {"source": "gemini_cli", "session": "s1"}, cumulative=True
    ),
    "Copilot Chat": Family(
        {"source": "copilot", "session": "chat"},
        {"source": "copilot", "session": "window"},
        window="window",
        cumulative=True,
    ),
    "Spring AI": Family({"source": "spring_ai"}, {"source": "spring_ai"}, cumulative=True),
    "Envoy": Family({"source": "openinference"}, {"source": "envoy_ai_gateway"}, cumulative=True),
    "OpenLLMetry": Family({"source": "openllmetry"}, {"source": "otel"}, cumulative=True),
}


@dataclass
class Running:
    """
    An intake over a log in memory.

    A restart forgets everything except what is stored. `nodes` processes share the log and accept requests in
    turn. The first one releases waiting counters.
    """

    nodes: int = 1
    clock: MovedClock = field(default_factory=MovedClock)
    limits: dict[str, Any] = field(default_factory=dict)
    hold_s: float = 0

    async def open(self) -> None:
        self.spool: SqliteSpool = await in_memory.open_spool(
            settings=SpoolSettings(hold=self.hold_s), clock=self.clock
        )
        if self.nodes > 1:
            heard = SharedHeard(self.spool.database, self.clock, max_senders=1000)
            self.spool = replace(self.spool, partial_reports=SharedReports(self.spool.database), heard=heard)
        await self.restart()

    async def restart(self) -> None:
        self._intakes = [await self._started() for _ in range(self.nodes)]
        self.counters, self.intake = self._intakes[0]

    async def _started(self) -> tuple[WaitingCounters, PayloadIntake]:
        await self.spool.heard.open()
        shadows = ReportedCallers(self.clock, heard=self.spool.heard)
        await shadows.restore_missing_callers(self.spool.log)
        limits = {"max_items": 1000, "max_bytes": 1 << 20, **self.limits}
        counters = WaitingCounters(self.spool.log, shadows, self.clock, wait_s=WAIT_S, **limits)
        await counters.load_waiting_counters(self.spool.partial_reports, record_hold_s=self.hold_s)
        return counters, PayloadIntake(
            self.spool.log,
            attributor=RecordAttributor(Config()),
            prices=PRICES,
            shadows=shadows,
            counters=counters,
        )

    async def take(self, outcome: ReadOutcome, bearer: AuthenticatedKey = BEARER) -> None:
        """Let the next process accept the payload."""
        self._intakes.append(self._intakes.pop(0))
        await self._intakes[0][1].store_outcome(outcome, bearer)

    async def records(self) -> list[Inference | UsageMetric]:
        log = self.spool.log
        entries = await log.read(AI_TELEMETRY, 1, log.lowest_open_number(AI_TELEMETRY) - 1)
        records = [record for entry in entries for record in entry.records]
        return [record for record in records if isinstance(record, Inference | UsageMetric)]

    async def sums(self) -> list[int]:
        """Return calls, input tokens and output tokens as the ledger counts them."""
        log = self.spool.log
        sums = HourlySums()
        sums.add_entries(await log.read(AI_TELEMETRY, 1, log.lowest_open_number(AI_TELEMETRY) - 1))
        assert 0 == sums.absurd
        rows = [measures for _, _, measures in sums.hourly_rows()]
        return [sum(row[place] for row in rows) for place in range(3)]

    async def archived(self, token_type: str) -> int:
        """Sum tokens as a reader of the record file would, without duplicates kept for reference."""
        total = 0
        for record in await self.records():
            if isinstance(record, Inference):
                total += getattr(record, f"{token_type}_tokens") or 0
            elif not record.shadow and record.token_type == token_type:
                total += int(record.value)
        return total

    async def pending(self) -> int:
        books = await self.spool.log.books()
        assert () == tuple(books.imbalances)
        assert () == tuple((await self.spool.log.verify()).imbalances)
        return books.topics.get(AI_TELEMETRY, {}).get("pending", 0)


def call(family: Family, number: int, at_s: float) -> ReadOutcome:
    outcome = ReadOutcome(received=1)
    record = Inference(
        id=b"",
        start_time=int(at_s * NS),
        input_tokens=100,
        output_tokens=10,
        tags={"service": "svc"},
        **family.call,
    )
    outcome.add_record(record, RecordIdentity(dedup_key_of_parts(5, family.call["source"], str(number))))
    if family.window is not None:
        outcome.note_resource_session(record, family.window)
    return outcome


def counters(family: Family, number: int, at_s: float) -> ReadOutcome:
    """Create the counters of a client after `number` calls, as an increase or a cumulative value."""
    outcome = ReadOutcome(received=2)
    for token_type, tokens in (("input", 100), ("output", 10)):
        metric = UsageMetric(
            id=b"", name="tokens", token_type=token_type, tags={"service": "svc"}, **family.counter
        )
        series, time = dedup_key_of_parts(9, repr(family), token_type), int(at_s * NS) + number
        if family.cumulative:
            outcome.add_point(CounterPoint(series, int(at_s * NS), time, tokens * number, metric))
        else:
            metric.value, metric.end_time = tokens, time
            outcome.add_record(metric, RecordIdentity(dedup_key_of_parts(7, series.hex(), number)))
    return outcome


def merged(outcomes: Sequence[ReadOutcome]) -> ReadOutcome:
    """Combine several payloads into one request."""
    together = ReadOutcome()
    for outcome in outcomes:
        together.received += outcome.received
        together.records += outcome.records
        together.identities += outcome.identities
        together.points += outcome.points
        together.sessions |= outcome.sessions
    return together


def run(test: Callable[[Running], Coroutine[Any, Any, None]], running: Running | None = None) -> None:
    async def opened() -> None:
        made = running or Running()
        await made.open()
        await test(made)

    asyncio.run(opened())


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=examples(60), deadline=None, print_blob=True)
@given(
    order=st.permutations(["call 1", "call 2", "counters 1", "counters 2"]),
    joins=st.lists(st.booleans(), min_size=4, max_size=4),
    repeats=st.lists(st.booleans(), min_size=4, max_size=4),
    pauses=st.lists(st.sampled_from([0.0, 1.0, 20.0, 100.0, 1100.0]), min_size=4, max_size=4),
    restarts=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_every_order_gives_the_same_sums(
    name: str,
    order: Sequence[str],
    joins: Sequence[bool],
    repeats: Sequence[bool],
    pauses: Sequence[float],
    restarts: Sequence[bool],
) -> None:
    """
    A client makes two calls and sends their counters.

    Calls and counters arrive in any order within an hour, in one request or several, repeated, and with restarts
    in between. The sums contain the two calls once, whether the counters still waited or were already summed.
    """
    run(lambda running: _in_any_order(running, FAMILIES[name], order, joins, repeats, pauses, restarts))


@settings(max_examples=examples(60), deadline=None, print_blob=True)
@given(
    name=st.sampled_from(sorted(FAMILIES)),
    order=st.permutations(["call 1", "call 2", "counters 1", "counters 2"]),
    joins=st.lists(st.booleans(), min_size=4, max_size=4),
    repeats=st.lists(st.booleans(), min_size=4, max_size=4),
    pauses=st.lists(st.sampled_from([0.0, 1.0, 20.0, 100.0, 1100.0]), min_size=4, max_size=4),
    restarts=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_every_order_gives_the_same_sums_over_several_processes(
    name: str,
    order: Sequence[str],
    joins: Sequence[bool],
    repeats: Sequence[bool],
    pauses: Sequence[float],
    restarts: Sequence[bool],
) -> None:
    """The process that accepts the counters may not know the calls. No call is counted twice or lost."""
    run(
        lambda running: _in_any_order(running, FAMILIES[name], order, joins, repeats, pauses, restarts),
        Running(nodes=3),
    )


async def _in_any_order(
    running: Running,
    family: Family,
    order: Sequence[str],
    joins: Sequence[bool],
    repeats: Sequence[bool],
    pauses: Sequence[float],
    restarts: Sequence[bool],
) -> None:
    began = running.clock.now()
    batch: list[str] = []
    for item, joined, repeated, pause, restarted in zip(order, joins, repeats, pauses, restarts, strict=True):
        batch.append(item)
        if joined and item != order[-1]:
            continue
        for _ in range(1 + repeated):
            made = []
            for one in batch:
                kind, number = one.split()
                make = call if kind == "call" else counters
                made.append(make(family, int(number), began))
            await running.take(merged(made))
        batch = []
        running.clock.move(pause)
        if restarted:
            await running.restart()
        await running.counters.record_due_and_reverse_repeated_counters()
    running.clock.move(WAIT_S)
    await running.counters.record_due_and_reverse_repeated_counters()
    assert [2, 200, 20] == await running.sums()
    assert [200, 20] == [await running.archived("input"), await running.archived("output")]
    assert 0 == await running.pending()
    assert 0 == len(running.counters)


@pytest.mark.parametrize("name", FAMILIES)
def test_sender_that_never_reports_calls_counts_by_counters(name: str) -> None:
    """
    If a sender never reports calls, its counters wait for the waiting time, even across a restart. Until then
    they are pending, and afterwards they are summed.
    """
    family = FAMILIES[name]

    async def test(running: Running) -> None:
        began = running.clock.now()
        for number in (1, 2, 3):
            await running.take(counters(family, number, began))
        running.clock.move(WAIT_S - 1)
        await running.restart()
        await running.counters.record_due_and_reverse_repeated_counters()
        assert [] == await running.records()
        assert 6 == await running.pending() == len(running.counters)
        running.clock.move(1)
        await running.counters.record_due_and_reverse_repeated_counters()
        assert [0, 300, 30] == await running.sums()
        assert 0 == await running.pending()
        await running.restart()
        assert 0 == len(running.counters)

    run(test)


RUN = Family(
    {"source": "claude_code", "session": "s1", "trace_id": "t1"}, {"source": "claude_code", "session": "s1"}
)


def agent(began: float, **fields: Any) -> ReadOutcome:
    """Create the OpenInference span of the Claude Agent SDK, which sums up what Claude Code reports."""
    outcome = ReadOutcome(received=1)
    record = Inference(
        id=b"",
        start_time=int(began * NS),
        input_tokens=200,
        output_tokens=20,
        tags={"service": "app"},
        source="openinference",
        operation="invoke_agent",
        **{"session": "s1", "trace_id": "t1", **fields},
    )
    outcome.add_record(record, RecordIdentity(dedup_key_of_parts(4, "t1", "agent")))
    return outcome


@settings(max_examples=examples(100), deadline=None, print_blob=True)
@given(
    order=st.permutations(["call 1", "call 2", "counters 1", "counters 2", "agent"]),
    told=st.sets(st.sampled_from(["call", "counters"]), min_size=1),
    known_by=st.sampled_from([{}, {"session": "of the application"}, {"trace_id": "another"}]),
    pauses=st.lists(st.sampled_from([0.0, 1.0, 20.0]), min_size=5, max_size=5),
    restarts=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_agents_sum_never_counts_in_addition_to_its_calls(
    order: Sequence[str],
    told: set[str],
    known_by: dict[str, Any],
    pauses: Sequence[float],
    restarts: Sequence[bool],
) -> None:
    """
    A sum that an agent reports never counts in addition to the calls that it contains. The session or the
    trace identifies them. Calls and counters arrive in any order, with restarts, and counters name no trace.
    """
    if "call" not in told:
        known_by = {}

    async def test(running: Running) -> None:
        began = running.clock.now()
        for item, pause, restarted in zip(order, pauses, restarts, strict=True):
            kind, _, number = item.partition(" ")
            if kind == "agent":
                await running.take(agent(began, **known_by))
            elif kind in told:
                make = call if kind == "call" else counters
                await running.take(make(RUN, int(number), began))
            running.clock.move(pause)
            if restarted:
                await running.restart()
            await running.counters.record_due_and_reverse_repeated_counters()
        running.clock.move(WAIT_S)
        await running.counters.record_due_and_reverse_repeated_counters()
        assert [2 * ("call" in told), 200, 20] == await running.sums()
        assert [True] == [
            record.shadow for record in await running.records() if record.source == "openinference"
        ]
        assert 0 == await running.pending()

    run(test)


@pytest.mark.parametrize("restarted", [False, True])
def test_sum_of_an_agent_with_unreported_calls_counts_once(restarted: bool) -> None:
    """
    If no source reports the calls of an agent, its sum counts once after the waiting time, although it is
    sent twice. Calls of other sessions and agents do not match it.
    """

    async def test(running: Running) -> None:
        began = running.clock.now()
        other = Family({"source": "claude_code", "session": "s2", "trace_id": "t2"}, {})
        await running.take(call(other, 1, began))
        await running.take(
            call(Family({"source": "openinference", "session": "s1", "trace_id": "t1"}, {}), 2, began)
        )
        for _ in range(2):
            await running.take(agent(began))
        running.clock.move(WAIT_S - 1)
        if restarted:
            await running.restart()
        await running.counters.record_due_and_reverse_repeated_counters()
        assert 2 == await running.pending()
        running.clock.move(1)
        await running.counters.record_due_and_reverse_repeated_counters()
        assert [3, 400, 40] == await running.sums()
        assert 0 == await running.pending()

    run(test)


def test_counter_of_known_calls_does_not_wait() -> None:
    """
    If the calls of a counter are already known, the counter does not wait. It is kept for reference at once.
    """

    async def test(running: Running) -> None:
        family, began = FAMILIES["Claude Code"], running.clock.now()
        await running.take(call(family, 1, began))
        await running.take(counters(family, 1, began))
        assert [False, True, True] == [record.shadow for record in await running.records()]
        assert 0 == await running.pending()

    run(test)


def test_forwarded_counters_stay_as_another_tollhouse_decided() -> None:
    """Forwarded counters neither wait nor become duplicates kept for reference, even next to their calls."""

    async def test(running: Running) -> None:
        family, began = FAMILIES["Claude Code"], running.clock.now()
        for outcome in (call(family, 1, began), counters(family, 1, began)):
            outcome.forwarded = set(range(len(outcome.records)))
            await running.take(outcome)
        assert [False, False, False] == [record.shadow for record in await running.records()]

    run(test)


def test_calls_that_were_open_at_a_restart_are_known() -> None:
    """
    The senders of open calls are stored with the calls. So after a restart, the counters that waited for
    these calls are decided.
    """

    async def test(running: Running) -> None:
        family, began = FAMILIES["Claude Code"], running.clock.now()
        await running.take(counters(family, 1, began))
        running.clock.move(WAIT_S)
        await running.take(call(family, 1, began))
        await running.restart()
        await running.counters.record_due_and_reverse_repeated_counters()
        assert 0 == await running.pending()
        running.clock.move(11)
        assert [1, 100, 10] == await running.sums()

    run(test, Running(hold_s=10))


@pytest.mark.parametrize("limits", [{"max_items": 4}, {"max_bytes": 300}])
def test_too_many_are_decided_early(limits: dict[str, int]) -> None:
    """
    If more counters wait than the limit allows, the oldest are decided by the calls that are known at that time.
    """

    async def test(running: Running) -> None:
        began = running.clock.now()
        families = [Family({}, {"source": "codex", "session": f"s{number}"}) for number in range(5)]
        for family in families:
            await running.take(counters(family, 1, began))
        left = [record.session for record in await running.records()]
        assert left == sorted(left, key=str)
        assert "s0" in left
        assert "s4" not in left
        assert 10 - len(left) == await running.pending() == len(running.counters)
        assert {BEARER.name: len(running.counters)} == running.counters.waiting_by_key.items

    run(test, Running(limits=limits))


@pytest.mark.proves("tables that one key fills")
@pytest.mark.parametrize("limits", [{"max_items": 8}, {"max_bytes": 1200}])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("name", ["codex", "gemini_cli"])
def test_a_key_that_sends_too_many_pushes_out_its_own(limits: dict[str, int], nodes: int, name: str) -> None:
    """
    If a key sends too many counters, its own are decided early. Counters of another key still wait for their
    calls, although they are older, even after a restart.
    """

    async def test(running: Running) -> None:
        began, is_cumulative = running.clock.now(), name == "gemini_cli"
        theirs = Family({}, {"source": name, "session": "theirs"}, cumulative=is_cumulative)
        await running.take(counters(theirs, 1, began), AuthenticatedKey("other", frozenset()))
        for number in range(10):
            running.clock.move(1)
            own = Family({}, {"source": name, "session": f"s{number}"}, cumulative=is_cumulative)
            await running.take(counters(own, 1, began))
            if number == 5:
                await running.restart()
            await running.counters.record_due_and_reverse_repeated_counters()
        left = [record.session for record in await running.records()]
        assert "theirs" not in left
        assert "s0" in left
        await running.counters.record_due_and_reverse_repeated_counters(releases_all=True)
        assert 22 == len(await running.records())

    run(test, Running(limits=limits, nodes=nodes))


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("name", ["codex", "gemini_cli"])
def test_full_limit_of_one_key_leaves_another_keys_counters_reversible(
    nodes: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    One key fills the limit of counted counters that can still be subtracted. If calls of another key arrive
    late, also after a restart, that key's counters are still subtracted.
    """
    monkeypatch.setattr(waiting_counters, "MOST_AT_ONCE", 4)

    async def test(running: Running) -> None:
        began, is_cumulative = running.clock.now(), name == "gemini_cli"
        theirs = Family(
            {"source": name, "session": "theirs"},
            {"source": name, "session": "theirs"},
            cumulative=is_cumulative,
        )
        for number in range(7):
            own = Family({}, {"source": name, "session": f"s{number}"}, cumulative=is_cumulative)
            await running.take(counters(own, 1, began))
            if number == 2:
                await running.take(counters(theirs, 1, began), AuthenticatedKey("other", frozenset()))
            await running.counters.record_due_and_reverse_repeated_counters(releases_all=True)
            running.clock.move(1)
        await running.restart()
        await running.take(call(theirs, 1, began), AuthenticatedKey("other", frozenset()))
        await running.counters.record_due_and_reverse_repeated_counters()
        assert [
            1,
            800,
            80,
        ] == await running.sums()  # the sums are the counters of seven senders plus one call

    run(test, Running(limits={"max_items": 8}, nodes=nodes))


@pytest.mark.parametrize("nodes", [1, 2])
def test_reversible_counters_are_known_per_key(nodes: int) -> None:
    """
    For each key, it is known how many counted counters can still be subtracted. If several processes share
    the storage, the process that releases counters learns the numbers in its next pass.
    """

    async def test(running: Running) -> None:
        began = running.clock.now()
        await running.take(counters(FAMILIES["Codex"], 1, began))
        await running.take(counters(FAMILIES["Spring AI"], 1, began), AuthenticatedKey("other", frozenset()))
        await running.counters.record_due_and_reverse_repeated_counters(releases_all=True)
        await running.counters.record_due_and_reverse_repeated_counters()
        assert {BEARER.name: 2, "other": 2} == running.counters.counted_by_key.items

    run(test, Running(nodes=nodes))


def test_what_makes_room_looks_at_the_oldest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a request exceeds the limit by one, only the oldest waiting counters are examined, not all."""
    asked = []
    real = ReportedCallers.has_any_reported_calls

    def have_heard(self: ReportedCallers, reporters: Any, at: float) -> bool:
        asked.append(reporters)
        return real(self, reporters, at)

    async def test(running: Running) -> None:
        families = [Family({}, {"source": "codex", "session": f"s{number}"}) for number in range(60)]
        for family in families[:-1]:
            await running.take(counters(family, 1, running.clock.now()))
        monkeypatch.setattr(ReportedCallers, "has_any_reported_calls", have_heard)
        await running.take(counters(families[-1], 1, running.clock.now()))
        assert len(asked) < len(families) / 2
        assert 100 >= len(running.counters) == await running.pending()

    run(test, Running(limits={"max_items": 100}))


def test_what_waits_is_looked_at_once_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass looks at each waiting group once, even if it needs many commits to record what is due."""
    monkeypatch.setattr(waiting_counters, "MOST_AT_ONCE", 4)
    asked = Counter[Any]()
    real = ReportedCallers.has_any_reported_calls

    def have_heard(self: ReportedCallers, reporters: Any, at: float) -> bool:
        if isinstance(reporters, CallReporters):
            asked[reporters] += 1
        return real(self, reporters, at)

    async def test(running: Running) -> None:
        families = [
            Family({}, {"source": "codex", "session": f"s{number}"}, cumulative=number % 2 == 0)
            for number in range(60)
        ]
        for family in families[:30]:
            await running.take(counters(family, 1, running.clock.now()))
        running.clock.move(WAIT_S)
        for family in families[30:]:
            await running.take(counters(family, 1, running.clock.now()))
        monkeypatch.setattr(ReportedCallers, "has_any_reported_calls", have_heard)
        assert 60 == await running.counters.record_due_and_reverse_repeated_counters()
        assert [1] * 60 == list(asked.values())
        assert 60 == await running.pending()

    run(test)


def test_calls_that_arrive_during_a_look_let_no_counter_overtake_an_older_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Calls arrive after the first group of their counters was looked at and before the second. The second group
    waits for the first, because points of a series are lost if a later point comes first.
    """
    monkeypatch.setattr(waiting_counters, "LOOKED_AT", 2)
    family = FAMILIES["Gemini CLI"]

    async def test(running: Running) -> None:
        began = running.clock.now()
        for number in (1, 2, 3):
            await running.take(counters(family, number, began))
        calls = [call(family, 1, began)]

        async def pause() -> None:
            if calls:
                await running.take(calls.pop())

        monkeypatch.setattr(waiting_counters, "pause_for_others", pause)
        await running.counters.record_due_and_reverse_repeated_counters()
        await running.counters.record_due_and_reverse_repeated_counters()
        assert 0 == await running.pending()
        assert [1, 100, 10] == await running.sums()
        assert 6 == sum(
            isinstance(record, UsageMetric) and record.shadow for record in await running.records()
        )

    run(test)


def test_a_request_above_the_limit_does_not_wait_for_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that exceeds the limit is answered while a pass looks at the waiting counters."""
    monkeypatch.setattr(waiting_counters, "LOOKED_AT", 2)
    looking, may_go_on = asyncio.Event(), asyncio.Event()

    async def test(running: Running) -> None:
        def family(number: int) -> Family:
            return Family({}, {"source": "gemini_cli", "session": f"s{number}"}, cumulative=True)

        began = running.clock.now()
        for number in range(5):
            await running.take(counters(family(number), 1, began))
        running.clock.move(WAIT_S)

        async def pause() -> None:
            looking.set()
            await may_go_on.wait()

        with monkeypatch.context() as patched:
            patched.setattr(waiting_counters, "pause_for_others", pause)
            releasing = asyncio.ensure_future(running.counters.record_due_and_reverse_repeated_counters())
            await looking.wait()
            patched.undo()
        await running.take(counters(family(5), 1, running.clock.now()))
        assert ["s0", "s0"] == [record.session for record in await running.records()]
        may_go_on.set()
        assert 8 == await releasing
        assert {f"s{number}": 2 for number in range(5)} == Counter(
            record.session for record in await running.records()
        )
        assert 2 == await running.pending()

    run(test, Running(limits={"max_items": 10}))


def test_a_look_at_what_waits_has_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop gets a turn after every few hundred waiting counters."""
    monkeypatch.setattr("gateway.intake.waiting_counters.LOOKED_AT", 2)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def test(running: Running) -> None:
        for number in range(20):
            await running.take(counters(FAMILIES["Codex"], number, running.clock.now()))
        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
        before = turns
        assert 0 == await running.counters.record_due_and_reverse_repeated_counters()
        assert turns - before >= 10
        counting.cancel()

    run(test)


def test_the_garbage_collector_does_not_go_through_what_waits() -> None:
    """
    Garbage collections do not visit waiting counters. With tens of thousands of them, such a collection would
    block every request for 25 ms.
    """

    async def test(running: Running) -> None:
        gc.collect()
        gc.disable()  # the first collection stops tracking the tuples, so later collections skip them
        try:
            for number in range(20):
                await running.take(counters(FAMILIES["Gemini CLI"], number, running.clock.now()))
            assert len(running.counters) == 40
            objects = gc.get_objects()
        finally:
            gc.enable()
        visited = Counter(type(each).__name__ for each in objects)
        assert visited["_Waiting"] == 0
        assert visited["CounterPoint"] == 0
        assert not [each for each in objects if type(each) is tuple and each[:1] == ("gemini_cli",)]

    run(test)


def test_who_reported_is_stored_as_before() -> None:
    """The stored form of a sender is unchanged, so that a gateway of another release can read it."""
    counted = CountedCounterGroup(
        after=7, reporters={CallReporter("codex", None, "session", "s1")}, key="team-a"
    )
    stored = msgspec.msgpack.encode(counted)
    assert msgspec.msgpack.decode(stored) == [7, [["codex", None, "session", "s1"]], [], [], 0, "team-a"]
    assert msgspec.msgpack.decode(stored, type=CountedCounterGroup) == counted


def test_cancelled_request_is_stored_whole() -> None:
    """A cancelled request is still stored, so memory and disk agree."""

    async def test(running: Running) -> None:
        taking = asyncio.ensure_future(running.take(counters(FAMILIES["Codex"], 1, running.clock.now())))
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait([taking])
        await asyncio.sleep(0)
        assert await running.pending() == len(running.counters)

    run(test)


def test_sessions_of_windows_are_stored_for_an_hour() -> None:
    """
    Sessions of windows are stored for an hour. If a window was silent for longer, its counters wait again.
    """

    async def test(running: Running) -> None:
        for number, window in enumerate(["w1", "w2", "w1", "w3"]):
            family = Family({"source": "copilot", "session": "chat"}, {}, window=window)
            await running.take(call(family, number, running.clock.now()))
            running.clock.move(2000)
            await running.restart()
        for number, window in enumerate(["w1", "w2", "w3"]):
            family = Family({}, {"source": "copilot", "session": window})
            await running.take(counters(family, number, running.clock.now()))
        shown = {record.session for record in await running.records() if isinstance(record, UsageMetric)}
        assert {"w3"} == shown
        assert 4 == await running.pending()

    run(test)


def test_however_many_wait_where_several_processes_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    More counters wait than one read returns. One pass releases all that waited long enough and leaves the rest.
    """
    monkeypatch.setattr(waiting_counters, "MOST_AT_ONCE", 2)

    async def test(running: Running) -> None:
        began = running.clock.now()
        for number in range(1, 6):
            await running.take(counters(FAMILIES["Codex"], number, began))
        running.clock.move(WAIT_S)
        await running.take(counters(FAMILIES["Codex"], 6, began))
        await running.counters.record_due_and_reverse_repeated_counters()
        assert 10 == len(await running.records())
        assert 2 == await running.pending()

    run(test, Running(nodes=2))


def test_damaged_ones_do_not_stop_a_start(caplog: pytest.LogCaptureFixture) -> None:
    """
    Damaged groups of waiting counters do not stop a start. The log states their number, and the other
    groups are released.
    """

    async def test(running: Running) -> None:
        began = running.clock.now()
        for name in ("Codex", "Spring AI"):
            await running.take(counters(FAMILIES[name], 1, began))
        first, *_ = await running.spool.partial_reports.load()
        changed = {first.key: first._replace(body=b"\x93")}
        await running.spool.database.transaction(lambda connection: write_changes(connection, changed))
        await running.restart()
        running.clock.move(WAIT_S)
        await running.counters.record_due_and_reverse_repeated_counters()
        assert {"spring_ai"} == {record.source for record in await running.records()}
        assert "1 groups of waiting counters cannot be read" in caplog.text

    run(test)
