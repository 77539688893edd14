"""Reports of one call with amounts in other currencies."""

from __future__ import annotations

from typing import Any

import pytest

from spool.record import Correction, Inference, Record, record_to_json
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import add, assert_books_balance, call, everything, topic_terms

pytestmark = pytest.mark.one_engine

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
    """A call never has two amounts, whatever their currencies."""
    log = (await open_spool(hold=10)).log
    await add(log, call(1, **first))
    await add(log, call(1, source="kong", **later))
    clock.move(11)
    [record] = await everything(log)
    assert kept == told(record)
    await assert_books_balance(log)


async def test_a_late_amount_is_a_correction(open_spool: Opener, clock: MovedClock) -> None:
    """
    A correction has the amounts before and after it, and no difference in dollars. A further amount is a conflict.
    """
    log = (await open_spool(hold=10)).log
    await add(log, call(1))
    clock.move(11)
    await add(log, call(1, **EUROS))
    await add(log, call(1, charges={"EUR": "2"}, cost_source="reported"))
    clock.move(11)
    _, correction = await everything(log)
    assert isinstance(correction, Correction)
    shown = record_to_json(correction)
    assert shown["cost"] == "0"
    assert shown["charges"] == {"EUR": "1.25"}
    assert shown["charges_before"] == {}
    assert 1 == (await topic_terms(log))["conflict"]
