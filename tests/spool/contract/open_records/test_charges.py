"""Reports of one call with amounts in other currencies, and storages that a gateway of an earlier release has, too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spool.errors import OlderReader
from spool.log.values import Receipt
from spool.memory.log import MemoryLog
from spool.postgres.log.store import PostgresPlanReader
from spool.record import Correction, Inference, Record, UsageMetric, as_json
from spool.sqlite.log.store import SqlitePlanReader
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import (
    NOON,
    add,
    assert_books_balance,
    call,
    everything,
    point,
    topic_terms,
)

pytestmark = pytest.mark.asyncio

EUROS: dict[str, Any] = {"charges": {"EUR": "1.25"}, "cost_source": "reported"}
DOLLARS: dict[str, Any] = {"cost": "1.5", "cost_source": "reported"}


def told(record: Record | None) -> tuple[str | None, dict[str, str], str]:
    assert isinstance(record, Inference)
    return record.cost, record.charges, record.cost_source


@pytest.mark.parametrize(
    ("first", "later", "kept"),
    [
        ({}, EUROS, (None, {"EUR": "1.25"}, "reported")),
        (EUROS, {}, (None, {"EUR": "1.25"}, "reported")),
        (EUROS, DOLLARS, (None, {"EUR": "1.25"}, "reported")),
        (DOLLARS, EUROS, ("1.5", {}, "reported")),
    ],
)
async def test_the_first_amount_of_a_call_holds(
    open_spool: Opener,
    clock: MovedClock,
    first: dict[str, Any],
    later: dict[str, Any],
    kept: tuple[object, ...],
) -> None:
    """In whatever currency it is: a call never has two amounts."""
    log = (await open_spool(hold=10)).log
    await add(log, call(1, **first))
    await add(log, call(1, source="kong", **later))
    clock.move(11)
    [record] = await everything(log)
    assert kept == told(record)
    await assert_books_balance(log)


async def test_a_late_amount_is_a_correction(open_spool: Opener, clock: MovedClock) -> None:
    """It leaves with the amounts before and after it, and no difference in dollars. Another one is a conflict."""
    log = (await open_spool(hold=10)).log
    await add(log, call(1))
    clock.move(11)
    await add(log, call(1, **EUROS))
    await add(log, call(1, charges={"EUR": "2"}, cost_source="reported"))
    clock.move(11)
    _, correction = await everything(log)
    assert isinstance(correction, Correction)
    shown = as_json(correction)
    assert ("0", {"EUR": "1.25"}, {}) == (shown["cost"], shown["charges"], shown["charges_before"])
    assert 1 == (await topic_terms(log))["conflict"]


async def test_they_wait_for_older_gateways(open_spool: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A request with one is refused in words and nothing of it is kept; those beside it in one commit are kept. It is
    taken when it comes again, once the older gateway has gone.
    """
    for reader in (MemoryLog, SqlitePlanReader, PostgresPlanReader):
        monkeypatch.setattr(reader, "may_charge", lambda _: False)
    log = (await open_spool()).log
    counter = point("2.5", at=NOON + 5, unit="EUR", since=NOON)
    answers = await asyncio.gather(
        add(log, call(1, **EUROS), call(2)),
        add(log, call(3)),
        add(log, points=[counter]),
        return_exceptions=True,
    )
    assert [OlderReader, Receipt, OlderReader] == [type(one) for one in answers]
    assert "earlier release" in str(answers[0])
    assert 1 == len(await everything(log))
    monkeypatch.undo()
    await add(log, call(1, **EUROS), call(2))
    await add(log, points=[counter])
    units = [one.unit for one in await everything(log) if isinstance(one, UsageMetric)]
    assert (4, ["EUR"]) == (len(await everything(log)), units)
    await assert_books_balance(log)
