"""Open records: a later report fills empty fields, and readers see one result."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from spool.record import AI_TELEMETRY
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import Observed, add, assert_books_balance, call, everything, topic_terms
from tests.waiting import awaited


async def test_an_open_record_is_hidden_until_it_closes(open_spool: Opener, clock: MovedClock) -> None:
    """A record becomes visible `hold` seconds after its commit."""
    log = (await open_spool(hold=10)).log
    await add(log, call(1))
    clock.move(9)
    await add(log, call(2))

    assert log.lowest_open_number(AI_TELEMETRY) == 1
    assert await everything(log) == []
    clock.move(2)
    assert log.lowest_open_number(AI_TELEMETRY) == 2
    assert [call(1)[0]] == await everything(log)
    clock.move(10)
    assert log.lowest_open_number(AI_TELEMETRY) == 3
    assert [call(1)[0], call(2)[0]] == await everything(log)


async def test_open_records_are_returned_with_later_additions(open_spool: Opener) -> None:
    """Open records are returned with everything that later reports added so far."""
    log = (await open_spool(hold=10)).log
    assert log.next_number(AI_TELEMETRY) == 1
    assert await log.read(AI_TELEMETRY, 1, 9, includes_open_records=True) == []
    await add(log, call(1), call(2))
    await add(log, call(1, user="ada"))

    [entry] = await log.read(AI_TELEMETRY, 1, 9, includes_open_records=True)
    assert log.next_number(AI_TELEMETRY) == 3
    assert entry.first == 1
    assert [call(1, user="ada")[0], call(2)[0]] == entry.records
    assert [] == await log.read(AI_TELEMETRY, 1, 9)


async def test_later_reports_fill_what_was_null(
    open_spool: Opener, clock: MovedClock, observed: Observed
) -> None:
    """A report fills only empty fields. It counts as a duplicate and as amended."""
    log = (await open_spool(hold=10)).log
    await add(log, call(1, source="otel", user="ada"), call(2))
    await add(log, call(1, source="litellm", user="bob", team="search", cost="0.5", cost_source="reported"))
    await add(
        log, call(1, source="kong", team="other", session="s-1", tags={"env": "prod"}, region="us-east-1")
    )
    await add(log, call(1, source="bedrock", region="global"))
    clock.move(11)

    expected, _ = call(
        1, source="otel", user="ada", team="search", cost="0.5", cost_source="reported", session="s-1",
        tags={"env": "prod"}, region="us-east-1",
    )  # fmt: skip
    assert [expected, call(2)[0]] == await everything(log)
    assert observed.terms["amended", "litellm"] + observed.terms["amended", "kong"] == 2
    assert 2 == 2
    terms = await topic_terms(log)
    assert terms["accepted"] == 2
    assert terms["duplicates"] == 3
    assert terms["amended"] == 2
    await assert_books_balance(log)


async def test_twins_in_one_group_amend_each_other(open_spool: Opener, clock: MovedClock) -> None:
    """Two reports in one commit become one record with the values of both. A third report adds to it."""
    log = (await open_spool(hold=10)).log
    first, second = call(1, user="ada"), call(1, team="search")

    await asyncio.gather(add(log, first), add(log, second))
    await add(log, call(1, session="s-1"))
    clock.move(11)

    assert [call(1, user="ada", team="search", session="s-1")[0]] == await everything(log)
    # The log does not change the caller's own records.
    assert first[0].team is None
    assert second[0].user is None


@pytest.mark.rule
async def test_added_model_and_tokens_add_their_estimate(open_spool: Opener, clock: MovedClock) -> None:
    """A report that adds model and tokens also adds its estimate. A later reported cost counts instead."""
    log = (await open_spool(hold=10)).log
    await add(log, call(1, input_tokens=None, output_tokens=None))
    await add(
        log, call(1, request_model="gpt-4o", estimated_cost="0.2", price_book="b1", cost_source="estimated")
    )
    await add(log, call(1, cost="0.25", cost_source="reported"))
    clock.move(11)

    (record,) = await everything(log)
    assert call(
        1, request_model="gpt-4o", estimated_cost="0.2", price_book="b1", cost="0.25", cost_source="reported"
    )[0] == record  # fmt: skip


@pytest.mark.one_engine
async def test_a_closed_record_never_changes(
    open_spool: Opener, clock: MovedClock, observed: Observed
) -> None:
    """A report that would have added something counts as late once the record is closed."""
    log = (await open_spool(hold=10)).log
    await add(log, call(1))
    clock.move(11)
    before = await everything(log)

    await add(log, call(1, source="kong", user="ada"))
    await add(log, call(1, source="kong"))  # this repeated report adds nothing

    assert before == await everything(log)
    assert 1 == observed.terms["amended_late", "kong"]
    terms = await topic_terms(log)
    assert terms["duplicates"] == 2
    assert terms.get("amended", 0) == 0
    assert terms["amended_late"] == 1
    await assert_books_balance(log)


async def test_without_a_hold_the_first_stays_as_it_is(open_spool: Opener) -> None:
    """`hold = 0` closes records at once, so a repeat is only a duplicate, even within one submission."""
    log = (await open_spool(hold=0)).log

    await add(log, call(1), call(1, user="ada"))
    await add(log, call(1, team="search"))

    assert [call(1)[0]] == await everything(log)
    terms = await topic_terms(log)
    assert terms["duplicates"] == 2
    assert terms.get("amended", 0) == 0
    assert terms["amended_late"] == 2


@pytest.mark.parametrize("later", [{"input_tokens": 101}, {"output_tokens": 0}, {"cost": "0.26"}])
async def test_reports_that_disagree_are_shown(
    open_spool: Opener, clock: MovedClock, observed: Observed, later: dict[str, Any]
) -> None:
    """
    If two reports disagree, the first one stays. The pair of their sources is counted, with the sums that
    each source states.
    """
    log = (await open_spool(hold=10)).log
    await add(log, call(1, cost="0.25", request_id="r-1"), call(2, cost="1"))
    for number in (1, 2):
        await add(log, call(number, **{"source": "litellm", "cost": "0.25" if number == 1 else "1", **later}))
    clock.move(11)

    assert [call(1, cost="0.25", request_id="r-1")[0], call(2, cost="1")[0]] == await everything(log)
    assert 2 == observed.terms["conflict", "otel/litellm"]
    (row,) = await log.list_conflicts()
    assert (AI_TELEMETRY, "otel", "litellm", 2, "r-1") == tuple(
        row[name] for name in ("topic", "first_source", "second_source", "count", "request_id")
    )
    assert {"input_tokens": 200, "output_tokens": 20, "cost": "1.25"} == row["first"]
    assert row["first"] != row["second"]
    assert 2 == (await topic_terms(log))["conflict"]


@pytest.mark.rule
async def test_sources_that_a_sender_makes_up_are_counted_together(
    open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Beyond a limit, the pairs with the fewest conflicts are merged. Invented sources displace only each other,
    a new pair always has a place, and every conflict counts.
    """
    monkeypatch.setattr("spool.log.conflicts.MAX_PAIRS", 2)
    log = (await open_spool(hold=10)).log
    await add(log, call(1))
    for source in ("a", "a", "b", "c", "d"):
        await add(log, call(1, source=source, input_tokens=7))
    await add(log, *[call(1, source=source, input_tokens=8) for source in ("e", "mine")])
    assert {("otel", "a"): 2, ("otel", "mine"): 1, ("other", "other"): 4} == {
        (row["first_source"], row["second_source"]): row["count"] for row in await log.list_conflicts()
    }
    assert 7 == (await topic_terms(log))["conflict"]


@pytest.mark.rule
async def test_what_a_source_never_said_has_no_sum(open_spool: Opener) -> None:
    """A report that disagrees on tokens without a cost does not state a cost of zero."""
    log = (await open_spool(hold=10)).log
    for number, cost in ((1, "0.25"), (2, None), (3, "0.5")):
        await add(log, call(number, cost=cost, cache_read_tokens=1))
        await add(log, call(number, source="sdk", input_tokens=None, cache_read_tokens=2))
    (row,) = await log.list_conflicts()
    assert {"input_tokens": 300, "output_tokens": 30, "cost": "0.75"} == row["first"]
    assert {"input_tokens": None, "output_tokens": 30, "cost": None} == row["second"]


@pytest.mark.rule
@pytest.mark.parametrize("cost", ["0.2500000000000001", "0.250", None])
async def test_rounding_is_no_conflict(open_spool: Opener, observed: Observed, cost: str | None) -> None:
    """
    Differences by rounding are no conflict: sources that round money differently, or state none, do not disagree.
    """
    log = (await open_spool(hold=10)).log
    await add(log, call(1, cost="0.25"))
    await add(log, call(1, source="kong", cost=cost))
    assert 0 == observed.terms["conflict", "otel/kong"]


async def test_readers_are_woken_when_records_close(open_spool: Opener, clock: MovedClock) -> None:
    """
    Readers are woken when records close: `changes` yields the closed number now, and again when the hold of the
    oldest open commit ends.
    """
    log = (await open_spool(hold=10)).log
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def watch() -> None:
        async with aclosing(log.watermark_changes(AI_TELEMETRY)) as changes:  # type: ignore[type-var]
            async for closed in changes:
                seen.put_nowait(closed)

    watcher = asyncio.create_task(watch())
    assert 1 == await seen.get()
    await add(log, call(1), call(2))
    await add(log, call(3))
    assert seen.empty()
    clock.move(11)
    assert 4 == await awaited(seen.get())
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)


async def test_many_readers_wait_without_a_hold(open_spool: Opener) -> None:
    log = (await open_spool(hold=0)).log

    async def until(number: int) -> int:
        async for closed in log.watermark_changes(AI_TELEMETRY):
            if closed > number:
                return closed
        raise AssertionError("changes never ends")

    readers = [asyncio.create_task(until(3)) for _ in range(5)]
    for number in range(3):
        await add(log, call(number))
    assert [4] * 5 == await awaited(asyncio.gather(*readers))
