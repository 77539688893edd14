"""
Several reports state the cost of a call. In any order, also if records become one later, the same cost counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from itertools import permutations
from random import Random
from typing import Any

import pytest

from spool.identity import RecordIdentity
from spool.record import (
    Correction,
    Inference,
    charge_differences,
    charge_unless_cached,
    cost_difference,
    counted_cost,
)
from tests.moved_clock import MovedClock
from tests.rounds import some
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import add, assert_books_balance, call, everything
from tests.spool.contract.open_records.test_bridging import Report, calls

REQ, MSG, SPAN = b"req_", b"msg_", b"span"
KNOWN: dict[str, Any] = {"source": "reporter", "input_tokens": 100, "output_tokens": 10}


class Call:
    """One call. Its reports have names of their own, so that every order is another call."""

    def __init__(self, number: int) -> None:
        self._number, self._reports = number, 0

    def report(self, *names: bytes, **fields: Any) -> Report:
        self._reports += 1
        record, _ = call(1, **{"cost": None, "charges": {}, "sender_key": "fleet"} | KNOWN | fields)
        assert isinstance(record, Inference)
        id = f"{self._number:012}{self._reports:04}".encode()
        record.id = id
        if record.cost is not None or record.charges:
            record.cost_source = "reported"
        return record, RecordIdentity(id, also=tuple(name + f"{self._number:012}".encode() for name in names))

    def guess(self, *names: bytes, **fields: Any) -> Report:
        record, identity = self.report(*names, **{"cost": "7", "sender_key": "assistant"} | fields)
        return record, identity._replace(is_of_assistant=True)

    def final(self, *names: bytes, **fields: Any) -> Report:
        record, identity = self.report(*names, **{"cost": "3", "sender_key": "gateway"} | fields)
        return record, identity._replace(is_final=True)


Amounts = dict[str, Decimal]


async def costs(log: Any) -> list[Amounts]:
    """Return the amounts of each call that has one, by currency, with corrections."""
    found: defaultdict[bytes, Amounts] = defaultdict(dict)
    for record in await everything(log):
        if isinstance(record, Correction):
            id, added = record.corrects, {"USD": cost_difference(record), **charge_differences(record)}
        elif isinstance(record, Inference) and not record.shadow:
            id, added = record.id, {"USD": counted_cost(record)}
            added |= {name: charge_unless_cached(record, name) for name in record.charges}
        else:
            continue
        for currency, amount in added.items():
            found[id][currency] = found[id].get(currency, Decimal(0)) + amount
    each = [{currency: amount for currency, amount in one.items() if amount} for one in found.values()]
    return [one for one in each if one]


async def sent(log: Any, clock: MovedClock, reports: Sequence[Report], waits: Sequence[float]) -> None:
    for report, wait_s in zip(reports, waits, strict=True):
        await add(log, report)
        clock.move(wait_s)


def every_set(number: int) -> list[list[Report]]:
    """Return sets of reports of one call. In each set, the same cost of 3 should count."""
    one = Call(number)
    both = one.report(REQ, MSG)
    return [
        [one.guess(REQ), one.final(MSG), both],
        [one.guess(REQ), one.report(MSG, cost="3", sender_key="gateway"), both],
        [one.guess(REQ), one.report(MSG), one.final(MSG, SPAN), both],
        [one.guess(REQ), one.guess(SPAN), one.final(MSG), one.report(REQ, MSG, SPAN)],
        [one.report(REQ, cost="5", sender_key="gateway"), one.final(MSG), both],
        [one.report(SPAN), one.report(SPAN, REQ, cost="5", sender_key="gateway"), one.final(MSG), both],
        # all reports are from one key
        [one.guess(REQ, sender_key="fleet"), one.final(MSG, sender_key="fleet"), both],
        [one.report(REQ, cost="5"), one.final(MSG, sender_key="fleet"), both],
        [one.guess(REQ), one.report(REQ, cost="5", sender_key="gateway"), one.final(MSG), both],
    ]


@pytest.mark.rule
@pytest.mark.parametrize("kind", range(len(every_set(0))))
@pytest.mark.parametrize("seed", [1, 2])
async def test_the_final_cost_counts_in_every_order(
    open_spool: Opener, clock: MovedClock, kind: int, seed: int
) -> None:
    """An assistant's guess gives way to any other cost, also if a later report joins closed records."""
    log = (await open_spool(hold=10)).log
    dice = Random(seed)
    orders = some(list(permutations(range(len(every_set(0)[kind])))), every=2)
    for number, order in enumerate(orders):
        reports = every_set(number)[kind]
        waits = [dice.choice([0, 11, 60]) for _ in order]
        before = await calls(log), len(await costs(log))
        await sent(log, clock, [reports[each] for each in order], waits)
        clock.move(60)
        assert before[0] + 1 == await calls(log), (order, waits)
        found = await costs(log)
        assert [{"USD": 3}] == found[before[1] :], (order, waits)
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("wait_s", [0, 11])
async def test_a_guess_gives_way_to_an_amount_in_another_currency(
    open_spool: Opener, clock: MovedClock, wait_s: float
) -> None:
    log = (await open_spool(hold=10)).log
    for number, order in enumerate(permutations(range(3))):
        one = Call(number)
        charged = one.report(MSG, charges={"EUR": "2"}, sender_key="gateway")
        reports = [one.guess(REQ), charged, one.report(REQ, MSG)]
        await sent(log, clock, [reports[each] for each in order], [wait_s] * 3)
    clock.move(60)
    assert [{"EUR": 2}] * 6 == await costs(log)
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("wait_s", [0, 11])
@pytest.mark.parametrize("amount", ["7", "3"])  # the same amount as the guess is known as well
async def test_a_cost_that_replaced_a_guess_is_replaced_by_no_other_key(
    open_spool: Opener, clock: MovedClock, wait_s: float, amount: str
) -> None:
    """Whoever knows the ids of a call cannot rewrite its cost once its gateway has reported it."""
    log = (await open_spool(hold=10)).log
    dice = Random(wait_s)
    for number in range(20):
        one = Call(number)
        first = [one.guess(REQ), one.final(MSG, cost=amount), one.report(REQ, MSG)]
        if dice.random() < 0.5:
            first[1] = one.report(MSG, cost=amount, sender_key="gateway")
        dice.shuffle(first)
        last = [one.final(name, cost="0.01", sender_key="other") for name in (REQ, MSG)]
        await sent(log, clock, [*first, *last], [wait_s] * 5)
    clock.move(60)
    assert [{"USD": int(amount)}] * 20 == await costs(log)
    await assert_books_balance(log)


@pytest.mark.one_engine
@pytest.mark.parametrize("wait_s", [0, 11])
async def test_merged_records_keep_the_cost_of_another_key(
    open_spool: Opener, clock: MovedClock, wait_s: float
) -> None:
    """
    If a report joins records of two keys, a final cost under one key does not replace the cost under the other.
    """
    log = (await open_spool(hold=10)).log
    one = Call(1)
    victim = one.report(REQ, cost="5", sender_key="gateway")
    reports = [
        victim,
        one.final(MSG, cost="0.01", sender_key="other"),
        one.report(REQ, MSG, sender_key="other"),
    ]
    await sent(log, clock, reports, [wait_s] * 3)
    clock.move(60)
    assert [{"USD": 5}] == await costs(log)
