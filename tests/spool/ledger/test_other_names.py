"""`(other)` stands for values that are no longer kept apart. A sender that states this text as a name states none."""

from __future__ import annotations

from typing import Any

import pytest

from spool.ledger.dimensions import DIMENSIONS, TOTAL
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.work import OTHER, TAGS, WorkLimits
from spool.record import CALL_UNIT, NS, Record, UsageMetric
from spool.registry.roles import EXCEPT, LedgerSlice, RoleFilter
from tests.rounds import part
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.test_work import EVER
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

TEXTS = {
    "source": OTHER,
    "team": OTHER,
    "user": OTHER,
    "device": OTHER,
    "api_key": OTHER,
    "sender_key": OTHER,
    "tags": dict.fromkeys(("service", *TAGS), OTHER),
}
STATED = {"status", "cost_source"}  # the values of these dimensions are no texts of senders


def query(by: str) -> CostQuery:
    return CostQuery(**EVER, granularity=TOTAL, group_by=(by,))


def records_named_other() -> list[Record]:
    fields: dict[str, Any] = {**TEXTS, "start_time": BEGIN * NS}
    model = {"request_model": OTHER, "response_model": OTHER, "provider": OTHER, "region": OTHER}
    metric = UsageMetric(id=b"m" * 16, name="calls", unit=CALL_UNIT, value=2, model=OTHER, **fields)
    return [call(**fields, **model, session=OTHER, run=OTHER), metric]


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_no_text_of_a_sender_is_the_name_of_all_others(ledgers: Ledgers) -> None:
    """
    If a sender states the text `(other)` as a name, such a call has no value, in each dimension, tag and unit. It
    is no joint sum, so a limited person sees it.
    """
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR)), FakeLog()
    log.add(records_named_other())
    await ledger.catch_up(log)
    assert not await ledger.has_values_merged_into_other()
    named = RoleFilter(dimension="team", mode=EXCEPT, values=("ads",))
    for reader in (ledger, SlicedLedger(ledger, LedgerSlice(parts=((named,),)))):
        for name in (*DIMENSIONS, "tag:service", *TAGS):
            rows = await reader.costs(query(name))
            if name not in STATED:
                assert [((None,), 3)] == [(row.group, row.calls) for row in rows], name


async def test_it_adds_nothing_to_the_units_that_are_not_listed(ledgers: Ledgers) -> None:
    ledger = await ledgers.open(clock=FakeClock(BEGIN + HOUR), work=WorkLimits(ids_per_month=2))
    log, commits = FakeLog(), ["a", "b", "c", "d", OTHER]
    log.add(
        [
            call(id=number.to_bytes(16, "big"), tags={"commit": commit}, estimated_cost=str(2**number))
            for number, commit in enumerate(commits)
        ]
    )
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    rows = await ledger.costs(query("commit"))
    assert {"d": "8", OTHER: "7", None: "16"} == {row.group[0]: row.cost for row in rows}
