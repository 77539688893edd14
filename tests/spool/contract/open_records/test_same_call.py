"""
A report that matches closed records makes them one call: corrections take the later records back.

Whatever the order and the time of the reports, the totals are those of one call.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import spool.sqlite.in_memory
from spool.identity import RecordIdentity
from spool.ledger.sums import COUNTS, HourlySums
from spool.ledger.verdicts import counted_amounts
from spool.log import duplicates
from spool.log.planning.corrections import MOST
from spool.record import Correction, Inference, Record, record_to_json
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG, examples
from tests.spool.contract.conftest import Opener, open_node
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
from tests.spool.contract.open_records.test_bridging import report
from tests.spool.contract.open_records.test_names_told_later import KilledSpool
from tests.spool.ledger.engines import POSTGRES, schemas_of

HOLD_S = 10.0
MSG, REQ, SPAN = b"msg_ of a call..", b"req_ of a call..", b"span of a call.."
NO_TOKENS: dict[str, Any] = {"input_tokens": None, "output_tokens": None}


def told(number: int, *names: bytes, status: str = "ok", **fields: Any) -> tuple[Record, RecordIdentity]:
    """Return a report whose identity does not depend on its status."""
    record, known_as = report(number, *names, **fields)
    assert isinstance(record, Inference)
    record.status = status
    return record, known_as


class Totals(NamedTuple):
    """What the totals show of all records, without the dimensions of owners."""

    calls: dict[str, int]  # by status
    counts: list[int]  # token counts, then reported and estimated cost
    meters: dict[str, int]


async def totals(log: Any) -> Totals:
    added = HourlySums()
    added.add_entries(await entries(log))
    calls: dict[str, int] = {}
    counts = [0] * (len(COUNTS) + 1)
    meters: dict[str, int] = {}
    for _, key, row in added.hourly_rows():
        calls[key.status] = calls.get(key.status, 0) + row[0]
        counts = [one + other for one, other in zip(counts, row[1 : len(COUNTS) + 2], strict=True)]
    for _, _, found in added.meter_rows():
        for name, units in found.items():
            meters[name] = meters.get(name, 0) + units
    of_records = [counted_amounts(record) for record in await everything(log) if record is not None]
    assert sum(calls.values()) == sum(verdict.calls for verdict in of_records if verdict.counted)
    return Totals(
        {status: n for status, n in calls.items() if n}, counts, {name: n for name, n in meters.items() if n}
    )


def corrections(records: Sequence[Record | None]) -> list[Correction]:
    return [record for record in records if isinstance(record, Correction)]


async def owners(log: Any) -> dict[tuple[str, str], int]:
    """Return the calls by user and source."""
    added = HourlySums()
    added.add_entries(await entries(log))
    calls: dict[tuple[str, str], int] = {}
    for _, key, row in added.hourly_rows():
        calls[key.user, key.source] = calls.get((key.user, key.source), 0) + row[0]
    return {owner: n for owner, n in calls.items() if n}


@pytest.mark.one_engine
async def test_later_of_two_closed_records_is_reversed(
    open_spool: Opener, clock: MovedClock, observed: Observed
) -> None:
    """
    Two closed records of one call become one: the first gets the facts of the second, and a correction reverses
    the second. Repeats change nothing.
    """
    log = (await open_spool(hold=HOLD_S)).log
    await add(log, report(1, REQ, user="ada", status="error", source="claude_code", **NO_TOKENS))
    clock.move(HOLD_S + 1)
    priced: dict[str, Any] = {"cost": "0.5", "cost_source": "reported", "meters": {"web_searches": 2}}
    await add(log, report(2, MSG, team="search", status="error", source="strands", **priced))
    clock.move(HOLD_S + 1)
    assert {"error": 2} == (await totals(log)).calls
    both = report(3, MSG, REQ, source="claude_platform", status="error", region="us", **NO_TOKENS)
    for _ in range(3):
        await add(log, both)
        clock.move(HOLD_S + 1)
    for repeat in (report(2, MSG, team="search", status="error", **priced), report(4, MSG), report(5, REQ)):
        await add(log, repeat)
    clock.move(HOLD_S + 1)

    first, second, gained, reversed_ = await everything(log)
    assert isinstance(first, Inference)
    assert isinstance(second, Inference)
    assert isinstance(gained, Correction)
    assert isinstance(reversed_, Correction)
    shown = record_to_json(reversed_)
    assert ("same_call", "claude_platform", second.id.hex(), first.id.hex(), "-0.5", -100, -10) == tuple(
        shown[name]
        for name in ("reason", "source", "corrects", "counted_by", "cost", "input_tokens", "output_tokens")
    )
    assert {} == shown["meters"]
    assert {"web_searches": 2} == shown["meters_before"]
    assert ("late_usage", "strands", first.id, "search") == (
        gained.reason,
        gained.source,
        gained.corrects,
        gained.after.team,
    )
    found = await totals(log)
    assert {"error": 1} == found.calls
    assert [100, 10] == found.counts[:2]
    assert {"web_searches": 2 * 10**6} == found.meters
    assert {("ada", "claude_code"): 1} == await owners(log)
    terms = await topic_terms(log)
    assert (8, 2, 4, 1, 0) == tuple(
        terms.get(name, 0) for name in ("received", "split", "accepted", "bridged", "bridged_late")
    )
    assert 1 == observed.terms["corrected", "claude_platform"] == observed.terms["corrected", "strands"]
    await assert_books_balance(log)


@pytest.mark.one_engine
async def test_an_open_record_becomes_the_shadow_of_a_closed_one(
    open_spool: Opener, clock: MovedClock
) -> None:
    """
    If a report shows that an open and a closed record are one call, the open record becomes a shadow. No reader has
    seen it, so only the facts that it adds become a correction.
    """
    log = (await open_spool(hold=HOLD_S)).log
    await add(log, report(1, REQ, **NO_TOKENS))
    clock.move(6)
    await add(log, report(2, MSG, team="search"))
    clock.move(5)  # now the first record is closed and the second one is open
    await add(log, report(3, REQ, MSG))
    clock.move(HOLD_S + 1)
    first, second, gained = await everything(log)
    assert isinstance(first, Inference)
    assert isinstance(second, Inference)
    assert (True, first.id) == (second.shadow, second.counted_by)
    assert isinstance(gained, Correction)
    assert (first.id, "search", 100) == (gained.corrects, gained.after.team, gained.after.input_tokens)
    assert {"ok": 1} == (await totals(log)).calls
    await assert_books_balance(log)


@pytest.mark.one_engine
async def test_a_chain_of_closed_records_is_one_call(open_spool: Opener, clock: MovedClock) -> None:
    """
    A chain of closed records is one call: records that were joined in pairs are joined again, also through records
    that were taken back.
    """
    log = (await open_spool(hold=HOLD_S)).log
    names = [bytes([number]) * 16 for number in range(5)]
    for number, name in enumerate(names):
        await add(log, report(number, name, **({} if number else NO_TOKENS)))
        clock.move(HOLD_S + 1)
    for number, pair in enumerate([(3, 4), (1, 2), (2, 4), (0, 3)], start=10):
        await add(log, report(number, *[names[each] for each in pair]))
        clock.move(HOLD_S + 1)
    assert (1, [100, 10]) == (sum((await totals(log)).calls.values()), (await totals(log)).counts[:2])
    assert 4 == (await topic_terms(log))["bridged"]
    # this lookup follows the chain to the record that counts
    await add(log, report(20, names[4], reasoning_tokens=5))
    clock.move(HOLD_S + 1)
    assert 5 == (await totals(log)).counts[4]
    await add(log, report(21, *names))
    await assert_books_balance(log)
    assert 4 == (await topic_terms(log))["bridged"]


@pytest.mark.one_engine
async def test_a_record_at_its_limit_of_corrections_is_not_joined(
    open_spool: Opener, clock: MovedClock, observed: Observed
) -> None:
    """
    If a record has the maximum number of corrections, no further correction can take it back or give it facts. So
    it is not joined with another record: both count, as the accounting says.
    """
    log = (await open_spool(hold=HOLD_S)).log
    await add(log, report(1, REQ), report(2, MSG, cost="0", cost_source="reported"))
    clock.move(HOLD_S + 1)
    for cost in range(1, MOST + 1):
        record, identity = call(2, cost=str(cost), cost_source="reported")
        await add(log, (record, identity._replace(is_final=True)))
    await add(log, report(3, REQ, MSG, source="claude_platform"))
    clock.move(HOLD_S + 1)
    assert {"ok": 2} == (await totals(log)).calls
    assert MOST == len(corrections(await everything(log)))
    assert 1 == observed.terms["bridged_late", "claude_platform"]
    await assert_books_balance(log)


@pytest.mark.parametrize("later", [False, True])
async def test_a_record_that_is_too_old_to_be_read_is_not_joined(
    open_spool: Opener, clock: MovedClock, observed: Observed, later: bool
) -> None:
    """
    If one of two closed records is too old to be read, they are not joined. Both count, and the accounting says so.
    """
    log = (await open_spool(hold=HOLD_S, retention=120, late_window=0)).log
    await add(log, report(1, REQ))
    clock.move(2 * 86_400.0)
    await add(log, report(2, MSG))
    clock.move(HOLD_S + 1)
    await log.run_retention()
    await add(
        log,
        report(2, MSG, REQ, source="claude_platform")
        if later
        else report(3, MSG, REQ, source="claude_platform"),
    )
    clock.move(HOLD_S + 1)
    assert [] == corrections(await everything(log))
    assert 1 == observed.terms["bridged_late", "claude_platform"]
    await assert_books_balance(log)


@pytest.mark.one_engine
async def test_a_late_error_is_an_error(open_spool: Opener, clock: MovedClock) -> None:
    """A late report of a failure, or of an answer from a cache, corrects the status of a closed record."""
    log = (await open_spool(hold=HOLD_S)).log
    known: dict[str, Any] = {"cost": "0.5", "cost_source": "reported"}
    await add(log, call(1, **known), call(2, **known))
    clock.move(HOLD_S + 1)
    await add(log, told(1, status="error"), told(2, status="cached"), told(2, status="cached"))
    clock.move(HOLD_S + 1)
    assert {"error": 1, "cached": 1} == (await totals(log)).calls
    assert ["0", "-0.5"] == [record_to_json(each)["cost"] for each in corrections(await everything(log))]
    await assert_books_balance(log)


# -- any order, at any time ----------------------------------------------------------------------------------

NAMES = (MSG, REQ, SPAN, b"trace of a call.")
Told = tuple[dict[str, Any], tuple[bytes, ...]]


@st.composite
def reporters(draw: st.DrawFn) -> list[Told]:
    """Draw 3 to 5 reports of one call. Each knows some names and states some facts, and all are linked."""
    outcome = draw(st.sampled_from(["ok", "error", "cached"]))
    reports: list[Told] = []
    for number in range(draw(st.integers(3, 5))):
        names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
        fields: dict[str, Any] = {"source": f"reporter {number}", **NO_TOKENS}
        fields["status"] = draw(st.sampled_from(["ok", outcome]))
        if draw(st.booleans()):
            fields |= {"input_tokens": 100, "output_tokens": 10}
        if draw(st.booleans()):
            fields |= {"cost": "0.5", "cost_source": "reported"}
        fields["cache_read_tokens"] = draw(st.sampled_from([None, 0, 40]))
        fields["meters"] = draw(st.sampled_from([{}, {"web_searches": 2}]))
        fields["user"] = draw(st.sampled_from([None, "ada"]))
        reports.append((fields, tuple(names)))
    assume(_are_linked([set(names) for _, names in reports]))
    return reports


def _are_linked(groups: Sequence[set[bytes]]) -> bool:
    known, *rest = groups
    known = set(known)
    for _ in rest:
        for group in rest:
            if known & group:
                known |= group
    return all(known & group for group in rest)


pauses = st.lists(st.sampled_from([0.0, 4.0, 11.0, 300.0]), min_size=5, max_size=5)


@given(reporters(), pauses, st.randoms(use_true_random=False))
@settings(max_examples=300 if IS_LONG else 10, deadline=None)
def test_any_order_at_any_time_is_one_call(reports: list[Told], waits: list[float], random: Any) -> None:
    """
    In any order and at any time, reports of one call are one call that counts once. The totals equal those of a log
    that waited for all of them.
    """
    shuffled = list(enumerate(reports))
    random.shuffle(shuffled)

    async def totals_with(hold: float) -> Totals:
        clock = MovedClock(NOON)
        one = await spool.sqlite.in_memory.open_spool(settings=SpoolSettings(hold=hold), clock=clock)
        try:
            for (number, (fields, names)), wait in zip(shuffled, waits, strict=False):
                await add(one.log, told(number, *names, **fields))
                clock.move(wait)
            for number, (fields, names) in shuffled:
                await add(one.log, told(number, *names, **fields))
            clock.move(hold + 1)
            await assert_books_balance(one.log)
            return await totals(one.log)
        finally:
            await one.close()

    late, in_time, at_once = (asyncio.run(totals_with(hold)) for hold in (HOLD_S, 10_000.0, 0.0))
    assert 1 == sum(in_time.calls.values())
    assert in_time == late == at_once


@given(reporters(), pauses, st.lists(st.sampled_from(["", "kill", "stop"]), min_size=5, max_size=5))
@settings(max_examples=examples(60), deadline=None)
def test_stops_and_kills_between_reports_change_nothing(
    reports: list[Told], waits: list[float], stops: list[str]
) -> None:
    async def run() -> None:
        clock = MovedClock(NOON)
        with tempfile.TemporaryDirectory() as directory:
            killed = KilledSpool(Path(directory) / "data", clock)
            await killed.start()
            try:
                for number, ((fields, names), wait, stop) in enumerate(
                    zip(reports, waits, stops, strict=False)
                ):
                    await killed.tell(told(number, *names, **fields))
                    clock.move(wait)
                    if stop:
                        await getattr(killed, stop)()
                    await killed.tell(told(number, *names, **fields))
                clock.move(HOLD_S + 1)
                log = killed.opened[-1].log
                assert 1 == sum((await totals(log)).calls.values())
                await assert_books_balance(log)
            finally:
                for opened in killed.opened:
                    await opened.close()

    asyncio.run(run())


async def test_gateways_that_share_a_database_count_one_call(
    request: pytest.FixtureRequest, clock: MovedClock, observed: Observed
) -> None:
    """
    Gateways that share a database count a call once: each report arrives at another gateway, with a fold in
    between, and either gateway joins the records.
    """
    schema = schemas_of(POSTGRES, request)()
    spool_settings = SpoolSettings(hold=HOLD_S, retention=120)
    async with AsyncExitStack() as stack:
        nodes = [await open_node(stack, schema, spool_settings, clock, observed) for _ in range(2)]
        turns = 0
        for number, order in enumerate(permutations([(REQ,), (MSG,), (MSG, REQ)])):
            for place, names in enumerate(order):
                own = [bytes([number]) + name[1:] for name in names]
                node = nodes[turns % 2]
                await add(node.log, report(10 * number + place, *own, **({} if place else NO_TOKENS)))
                clock.move(HOLD_S + 1)
                await nodes[turns // 2 % 2].log.run_retention()
                turns += 1
        for node in nodes:
            found = await totals(node.log)
            assert {"ok": 6} == found.calls
            assert [600, 60] == found.counts[:2]
            await assert_books_balance(node.log)


@pytest.mark.one_engine
async def test_a_fold_between_two_reports_changes_nothing(
    open_spool: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the ids of two records have moved into runs between two reports, the log still joins the records."""
    monkeypatch.setattr(duplicates, "BATCH", 4)
    log = (await open_spool(hold=HOLD_S)).log
    await add(log, report(1, REQ))
    await add(log, report(2, MSG, status="error"))
    for number in range(10, 22):
        clock.move(HOLD_S + 1)
        await add(log, call(number))
    for _ in range(2):
        await add(log, report(3, REQ, MSG))
        clock.move(HOLD_S + 1)
    assert {"ok": 12, "error": 1} == (await totals(log)).calls
    await assert_books_balance(log)
