"""A late report of a closed record becomes a correction, and sums equal those of a report in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spool.sqlite.in_memory
from spool.identity import with_span_above
from spool.ledger.sums import Dimensions, HourlySums
from spool.log import duplicates
from spool.log.pending_spans import RUN
from spool.log.planning.corrections import MOST
from spool.postgres.log.store import PostgresCommitPlanReader
from spool.record import AI_TELEMETRY, Correction, Record, counted_cost, record_to_json
from spool.settings import SpoolSettings
from spool.sqlite.log.store import SqliteCommitPlanReader
from tests.moved_clock import MovedClock
from tests.rounds import examples
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import (
    NOON,
    Observed,
    add,
    assert_books_balance,
    call,
    entries,
    everything,
    topic_terms,
)
from tests.spool.contract.open_records.test_names_told_later import KilledSpool

NOTHING: dict[str, Any] = {"input_tokens": None, "output_tokens": None}
Report = dict[str, Any]


async def sums(log: Any) -> dict[tuple[int, Dimensions], tuple[list[int], dict[str, int]]]:
    """Return every non-zero sum of the closed records."""
    added = HourlySums()
    added.add_entries(await entries(log))
    meters = {
        (hour, key): {name: n for name, n in found.items() if n} for hour, key, found in added.meter_rows()
    }
    found = {(hour, key): (row, meters.get((hour, key), {})) for hour, key, row in added.hourly_rows()}
    return {place: sum for place, sum in found.items() if any(sum[0]) or sum[1]}


def corrections(records: Sequence[Record | None]) -> list[Correction]:
    return [record for record in records if isinstance(record, Correction)]


async def test_late_usage_counts(open_spool: Opener, clock: MovedClock, observed: Observed) -> None:
    """
    Counts and a cost that a closed record lacks become a correction with the difference. The record is
    unchanged, a repeat adds nothing, and the accounting balances.
    """
    log = (await open_spool(hold=10)).log
    first = call(1, team="search", **NOTHING)
    await add(log, first)
    clock.move(11)
    late = call(1, source="kong", cost="0.5", cost_source="reported", meters={"web_searches": 2})
    await add(log, late)
    await add(log, late)
    clock.move(11)

    record, correction = await everything(log)
    assert first[0] == record
    assert isinstance(correction, Correction)
    shown = record_to_json(correction)
    assert ("correction", record.id.hex(), "kong", "late_usage") == tuple(
        shown[name] for name in ("kind", "corrects", "source", "reason")
    )
    assert ("0.5", 100, 10, 0) == tuple(
        shown[name] for name in ("cost", "input_tokens", "output_tokens", "reasoning_tokens")
    )
    assert shown["team"] == "search"
    assert shown["meters"] == {"web_searches": 2}
    assert shown["meters_before"] == {}
    terms = await topic_terms(log)
    assert (3, 2, 1, 0) == tuple(
        terms.get(name, 0) for name in ("received", "accepted", "duplicates", "amended_late")
    )
    assert 1 == observed.terms["corrected", "kong"]
    await assert_books_balance(log)


# With 0 other calls, the id is among the newest ids. With 12, it has moved into a run.
@pytest.mark.one_engine
@pytest.mark.parametrize("others", [0, 12])
async def test_a_correction_that_cannot_be_read_is_not_made_again(
    open_spool: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """
    A correction that cannot be read has already counted, so it is not made again. A further report of the call is
    only late, and its id is known once.
    """
    monkeypatch.setattr(duplicates, "BATCH", 4)
    log = (await open_spool(hold=10)).log
    await add(log, call(1, **NOTHING))
    clock.move(11)
    await add(log, call(1, cost="0.5", cost_source="reported"))
    for number in range(others):
        clock.move(11)
        await add(log, call(number + 2))
    clock.move(11)
    known = (await log.stats()).duplicate_ids
    for reader in (SqliteCommitPlanReader, PostgresCommitPlanReader):
        read = reader.read_record

        def without_corrections(self: Any, topic: str, number: int, read: Any = read) -> Record | None:
            found: Record | None = read(self, topic, number)
            return None if isinstance(found, Correction) else found

        monkeypatch.setattr(reader, "read_record", without_corrections)
    await add(log, call(1, cost="0.7", cost_source="reported"))
    assert known == (await log.stats()).duplicate_ids
    assert 1 == len(corrections(await everything(log)))
    assert 1 == (await topic_terms(log))["amended_late"]
    await assert_books_balance(log)


async def test_corrections_of_several_sources_compose(open_spool: Opener, clock: MovedClock) -> None:
    """
    Each correction adds values that the earlier ones lack. If a value was already reported, it stays, and the
    new one is a conflict.
    """
    log = (await open_spool(hold=10)).log
    estimated: Report = {"estimated_cost": "0.2", "cost_source": "estimated", "price_book": "b"}
    await add(log, call(1, output_tokens=None))
    for late in (call(1, **estimated), call(1, cost="0.25", cost_source="reported"), call(1, cost="0.3")):
        clock.move(11)
        await add(log, late)
    clock.move(11)

    found = corrections(await everything(log))
    assert ["0.2", "0.05"] == [record_to_json(one)["cost"] for one in found]
    assert [(None, 10), (10, 10)] == [(one.before.output_tokens, one.after.output_tokens) for one in found]
    assert 1 == (await topic_terms(log))["conflict"]
    await assert_books_balance(log)


async def test_a_final_cost_holds(open_spool: Opener, clock: MovedClock) -> None:
    """A final cost replaces a known cost, in an open and in a closed record."""
    log = (await open_spool(hold=10)).log

    def final(number: int, cost: str) -> tuple[Record, Any]:
        record, identity = call(number, cost=cost, cost_source="reported", **NOTHING)
        return record, identity._replace(is_final=True)

    known: dict[str, Any] = {"cost": "0.5", "cost_source": "reported"}
    await add(log, call(1, **known), call(2, **known), call(3, **known))
    await add(log, final(1, "0.4"))
    clock.move(11)
    for report in (final(2, "0.7"), final(3, "0"), final(3, "0")):
        await add(log, report)
    clock.move(11)

    opened, _, _, *late = await everything(log)
    assert "0.4" == opened.cost  # type: ignore[union-attr]
    found = corrections(late)
    assert [("0.2", "final_cost"), ("-0.5", "not_billed")] == [
        (record_to_json(one)["cost"], one.reason) for one in found
    ]
    assert 0 == (await topic_terms(log)).get("conflict", 0)
    await assert_books_balance(log)


@pytest.mark.one_engine
async def test_what_changes_no_figure_is_late(open_spool: Opener, clock: MovedClock) -> None:
    """
    Some late reports change nothing: a report that only adds an owner, a report about a shadow, and a report
    of a record that already has MOST corrections.
    """
    log = (await open_spool(hold=10)).log
    await add(log, call(1), call(2, shadow=True, **NOTHING), call(3, cost="0", cost_source="reported"))
    clock.move(11)
    await add(log, call(1, user="ada"), call(2))
    for cost in range(1, MOST + 3):
        record, identity = call(3, cost=str(cost), cost_source="reported")
        await add(log, (record, identity._replace(is_final=True)))
    clock.move(11)
    found = corrections(await everything(log))
    assert len(found) == MOST
    assert str(MOST) == found[-1].after.cost
    assert 4 == (await topic_terms(log))["amended_late"]
    await assert_books_balance(log)


# With 0 other calls, the id is among the newest ids. With 12, it has moved into a run. After a day, the position of
# its record is forgotten.
@pytest.mark.parametrize("others", [0, 12])
async def test_a_log_that_was_killed_or_stopped_knows_its_corrections(
    tmp_path: Path, clock: MovedClock, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """
    After a restart, a repeated correction is a duplicate, and the next one corrects its result. Each states the number
    of the record that it corrects. If that is forgotten, there is no correction.
    """
    monkeypatch.setattr(duplicates, "BATCH", 4)
    killed = KilledSpool(tmp_path / "data", clock)
    await killed.start()
    try:
        await killed.tell(call(50))
        await killed.tell(call(1, **NOTHING))
        for number in range(others):
            clock.move(11)
            await killed.tell(call(number + 2))
        clock.move(11)
        await killed.kill()
        await killed.tell(call(1))
        for restart in (killed.kill, killed.stop):
            await restart()
            await killed.tell(call(1))
        await killed.tell(call(1, cost="0.5", cost_source="reported"))
        clock.move(11)
        found = corrections(await everything(killed.opened[-1].log))
        assert [(2, None, 100), (2, 100, 100)] == [
            (one.corrects_number, one.before.input_tokens, one.after.input_tokens) for one in found
        ]
        clock.move(2 * 86_400)
        for number in (60, 61, 62):
            await killed.tell(call(number))
        await killed.kill()
        await killed.tell(call(1, cost="0.7", cost_source="reported"))
        clock.move(11)
        assert found == corrections(await everything(killed.opened[-1].log))
        await assert_books_balance(killed.opened[-1].log)
    finally:
        for opened in killed.opened:
            await opened.close()


counts = st.sampled_from([None, 0, 3, 7])
costs = st.sampled_from([None, "0", "0.1", "0.25"])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, Report, float]]:
    """Draw reports of a few calls, with the time that passes after each."""
    found = []
    for _ in range(draw(st.integers(1, 8))):
        cost, estimated = draw(costs), draw(costs)
        fields: Report = {
            "input_tokens": draw(counts),
            "output_tokens": draw(counts),
            "cache_read_tokens": draw(counts),
            "cost": cost,
            "estimated_cost": estimated,
            "cost_source": "none"
            if cost is estimated is None
            else "estimated"
            if cost is None
            else "reported",
            "meters": draw(st.sampled_from([{}, {"web_searches": 2}, {"audio_seconds": "1.5"}])),
        }
        found.append((draw(st.integers(1, 2)), fields, draw(st.sampled_from([0.0, 4.0, 11.0]))))
    return found


@given(histories())
@settings(max_examples=examples(60), deadline=None)
def test_late_and_in_time_are_the_same_sums(history: list[tuple[int, Report, float]]) -> None:
    """
    Reports may be late, repeated or in any order. The sums equal those of a log that waited for all of them.
    """

    async def told(hold: float) -> tuple[Any, Any]:
        clock = MovedClock(NOON)
        one = await spool.sqlite.in_memory.open_spool(settings=SpoolSettings(hold=hold), clock=clock)
        try:
            for number, fields, pause in _twice(history):
                await add(one.log, call(number, **fields))
                clock.move(pause)
            clock.move(hold + 1)
            await assert_books_balance(one.log)
            return await sums(one.log), await _costs(one.log)
        finally:
            await one.close()

    assert asyncio.run(told(600)) == asyncio.run(told(10)) == asyncio.run(told(0))


def _twice(history: Sequence[tuple[int, Report, float]]) -> Iterator[tuple[int, Report, float]]:
    for place, (number, fields, pause) in enumerate(history):
        yield number, dict(fields), pause
        if place % 2:
            yield number, dict(fields), pause


async def _costs(log: Any) -> Any:
    """Return the cost of each call by its newest record or correction."""
    newest: dict[bytes, Any] = {}
    for record in await everything(log):
        assert record is not None
        found = record.after if isinstance(record, Correction) else record
        newest[found.id] = counted_cost(found)  # type: ignore[arg-type]
    return newest, log.next_number(AI_TELEMETRY) > 1


@pytest.mark.one_engine
@pytest.mark.parametrize("hold", [0, 10])
async def test_a_late_span_of_an_agent_gives_its_run_to_a_closed_call(
    open_spool: Opener, clock: MovedClock, hold: int
) -> None:
    """
    If a late span names the run of the agent above a closed call, a correction with no other change adds the run. A
    repeat adds nothing.
    """
    log = (await open_spool(hold=hold)).log
    trace, agent = f"{1:032x}", f"{2:016x}"
    record, known_as = call(1, trace_id=trace, span_id=f"{3:016x}")
    await add(log, (record, with_span_above(known_as, agent)), heard_by="key")
    clock.move(hold + 1)
    for _ in range(2):
        await add(log, heard_by="key", steps=[(trace, agent, None, RUN, None)])
        clock.move(hold + 1)

    _, correction = await everything(log)
    assert isinstance(correction, Correction)
    assert ("late_run", record.id, agent) == (correction.reason, correction.corrects, correction.after.run)
    await assert_books_balance(log)
