"""
A report within an hour after its call closed corrects the call, despite folds, retention and restarts.
Reports that can no longer be compared are counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import spool.sqlite.spool
from spool.errors import SpoolFull
from spool.log import duplicates
from spool.record import Correction, Record, record_to_json
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener, Spool, open_node
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import Observed, add, assert_books_balance, call, everything, topic_terms
from tests.spool.contract.log.test_retention import wide
from tests.spool.ledger.engines import POSTGRES, schemas_of

HOUR_S = 3600.0
HOLD_S = 10.0
NOTHING: dict[str, Any] = {"input_tokens": None, "output_tokens": None}
BRINGS: dict[str, dict[str, Any]] = {
    "cost": {"cost": "0.5", "cost_source": "reported"},
    "tokens": {"output_tokens": 10},
    "meters": {"meters": {"web_searches": 2}},
    "tier": {"tags": {"service_tier": "flex"}, "cost": "0.5", "cost_source": "reported"},
}


def first(number: int = 1) -> tuple[Record, Any]:
    return call(number, **NOTHING)


def late(number: int = 1, **fields: Any) -> tuple[Record, Any]:
    fields = fields or {"cost": "0.5", "cost_source": "reported"}
    return call(number, source="kong", **{**NOTHING, **fields})


async def corrected(log: Any) -> list[Correction]:
    return [record for record in await everything(log) if isinstance(record, Correction)]


async def close_and_fold(spool: Spool, clock: MovedClock) -> None:
    """Close a call and fold its id into a run, while retention deletes a call that is an hour older."""
    await add(spool.log, call(900))
    clock.move(HOUR_S + HOLD_S)
    await add(spool.log, first())
    clock.move(HOLD_S + 1)
    await spool.log.run_retention()


@pytest.mark.one_engine
@pytest.mark.parametrize("brings", BRINGS)
async def test_a_late_report_after_retention_is_applied(
    open_spool: Opener, clock: MovedClock, observed: Observed, brings: str
) -> None:
    """
    Two late reports are still applied after retention: one arrives five seconds after the call closed, and
    one just before the hour ends.
    """
    spool = await open_spool(hold=HOLD_S, retention=120)
    await close_and_fold(spool, clock)
    clock.move(5)
    await add(spool.log, late(**BRINGS[brings]))
    clock.move(HOUR_S - 10)
    await spool.log.run_retention()
    await add(spool.log, late(input_tokens=7))
    await add(spool.log, late(input_tokens=7))
    clock.move(HOLD_S + 1)

    assert 2 == len(await corrected(spool.log))
    assert 2 == observed.terms["corrected", "kong"]
    assert 0 == observed.terms["uncompared", "kong"] + observed.terms["amended_late", "kong"]
    await assert_books_balance(spool.log)


async def test_what_changes_no_figure_is_counted_after_a_fold(
    open_spool: Opener, clock: MovedClock, observed: Observed
) -> None:
    """A late user, team or device is counted as late. A different count is also a conflict."""
    spool = await open_spool(hold=HOLD_S, retention=120)
    await add(spool.log, call(900))
    clock.move(HOUR_S + HOLD_S)
    await add(spool.log, call(1))
    clock.move(HOLD_S + 1)
    await spool.log.run_retention()
    fields: list[dict[str, Any]] = [{"user": "ada"}, {"team": "search"}, {"device": "laptop"}]
    for each in fields:
        await add(spool.log, call(1, source="kong", **each))
    await add(spool.log, call(1, source="kong", input_tokens=90))

    terms = await topic_terms(spool.log)
    assert (3, 1, 4) == tuple(terms.get(name, 0) for name in ("amended_late", "conflict", "duplicates"))
    assert 3 == observed.terms["amended_late", "kong"]
    await assert_books_balance(spool.log)


@pytest.mark.rule
async def test_a_late_report_after_many_folds_is_applied(
    open_spool: Opener, clock: MovedClock, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordinary folds move the oldest ids into runs, and late reports still apply."""
    monkeypatch.setattr(duplicates, "BATCH", 4)
    log = (await open_spool(hold=HOLD_S)).log
    for number in range(1, 41):
        await add(log, first(number))
        clock.move(HOLD_S + 1)
    for number in range(1, 41):
        await add(log, late(number))
    clock.move(HOLD_S + 1)
    assert 40 == len(await corrected(log)) == observed.terms["corrected", "kong"]
    await assert_books_balance(log)


async def test_a_report_of_a_removed_record_is_counted(
    open_spool: Opener, clock: MovedClock, observed: Observed
) -> None:
    """
    Nobody knows whether a report of a deleted record would have added something, so such reports have
    their own count.
    """
    spool = await open_spool(hold=HOLD_S, retention=120)
    await add(spool.log, first())
    clock.move(2 * HOUR_S)
    await add(spool.log, call(2))
    assert 1 == await spool.log.run_retention()
    await add(spool.log, late())
    assert 1 == observed.terms["uncompared", "kong"]
    assert 1 == (await topic_terms(spool.log))["duplicates"]
    await assert_books_balance(spool.log)


async def test_a_record_that_went_for_want_of_room_is_counted(
    open_spool: Opener, clock: MovedClock, observed: Observed
) -> None:
    """A lack of space deletes records within the hour. Reports of the remaining records still apply."""
    spool = await open_spool(hold=HOLD_S, max_bytes=1 << 20)
    number = 0
    with pytest.raises(SpoolFull):
        while True:
            batch = [wide(each) for each in range(number, number + 10)]
            for record, _ in batch:
                record.input_tokens = record.output_tokens = None
            await add(spool.log, *batch)
            number += 10
    clock.move(HOLD_S + 1)
    assert 0 < await spool.log.run_retention()
    for first in range(0, number, 10):
        await add(spool.log, *map(late, range(first, first + 10)))
    made, missed = observed.terms["corrected", "kong"], observed.terms["uncompared", "kong"]
    assert 0 < made
    assert 0 < missed
    assert number == made + missed
    await assert_books_balance(spool.log)


@pytest.mark.rule
async def test_places_are_bounded(
    open_spool: Opener, clock: MovedClock, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The log knows the record number of at most an eighth of the known ids. It forgets the oldest of these numbers
    first. Late reports of such records are only counted.
    """
    monkeypatch.setattr(duplicates, "BATCH", 4)
    log = (await open_spool(hold=HOLD_S, duplicate_ids=64)).log
    for number in range(1, 25):
        await add(log, first(number))
        clock.move(HOLD_S + 1)
    for number in range(1, 25):
        await add(log, late(number))
    made, missed = observed.terms["corrected", "kong"], observed.terms["uncompared", "kong"]
    assert 24 == made + missed
    assert 0 < made < 24
    await assert_books_balance(log)


Start = Callable[[], Awaitable[Spool]]


@pytest.fixture(params=["sqlite stopped", "sqlite killed", POSTGRES])
async def restarted(
    request: pytest.FixtureRequest, tmp_path: Path, clock: MovedClock, observed: Observed
) -> AsyncIterator[Start]:
    """
    Return a function that starts the spool again, and first stops the spool that it started before. Spools
    that share a database are closed when the test ends.
    """
    settings = SpoolSettings(hold=HOLD_S, retention=120)
    opened: list[Spool] = []
    async with AsyncExitStack() as stack:
        if request.param == POSTGRES:
            schema = schemas_of(POSTGRES, request)()

            async def start() -> Spool:
                return await open_node(stack, schema, settings, clock, observed)
        else:

            async def start() -> Spool:
                directory = tmp_path / "data"
                if opened and request.param == "sqlite stopped":
                    await opened.pop().close()
                elif opened:
                    directory = killed(tmp_path / "data", tmp_path / f"killed-{len(opened)}")
                one = await spool.sqlite.spool.open_spool(
                    directory, settings=settings, clock=clock, observer=observed
                )
                opened.append(one)
                return one

        yield start
        for one in opened:
            await one.close()


async def test_a_restart_knows_the_calls_of_the_last_hour(restarted: Start, clock: MovedClock) -> None:
    """
    After a fold and a stop or a kill, late reports still correct their calls. On PostgreSQL another gateway
    receives the report.
    """
    await close_and_fold(await restarted(), clock)
    log = (await restarted()).log
    clock.move(5)
    await add(log, late())
    await add(log, late())
    clock.move(HOLD_S + 1)
    [correction] = await corrected(log)
    assert "0.5" == record_to_json(correction)["cost"]
    await assert_books_balance(log)


async def test_gateways_that_fold_in_turns_know_the_calls_of_each_other(
    request: pytest.FixtureRequest, clock: MovedClock, observed: Observed
) -> None:
    """Both gateways correct a call of the last hour, whichever gateway stored or read the runs."""
    schema = schemas_of(POSTGRES, request)()
    settings = SpoolSettings(hold=HOLD_S, retention=120)
    async with AsyncExitStack() as stack:
        nodes = [await open_node(stack, schema, settings, clock, observed) for _ in range(2)]
        await add(nodes[0].log, call(900))
        clock.move(HOUR_S)
        for number in range(4):
            await add(nodes[number % 2].log, first(number))
            clock.move(HOLD_S + 1)
            await nodes[number // 2].log.run_retention()
        for number in range(4):
            await add(nodes[(number + 1) % 2].log, late(number))
        clock.move(HOLD_S + 1)
        assert 4 == len(await corrected(nodes[1].log)) == observed.terms["corrected", "kong"]
        await assert_books_balance(nodes[1].log)
