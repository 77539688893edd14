"""
Estimates after recalculations. Pure.

The newest recalculation decides that has a higher number than the call, begins before it, and has a price. Each call is
priced as on arrival: by its own time, size, tier, mode and meters. A later state of a call follows the same rule, so
the order of reports and recalculations does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from spool import money
from spool.cost_kinds import ESTIMATED, REPORTED, call_cost_source
from spool.ledger.files.row import CALL, NO_AMOUNT, Fact, amount_of_text, units_of_amount
from spool.ledger.sums import MAX_MONEY
from spool.meters import quantity_from_millionths
from spool.record import NS, Inference


class Prices(Protocol):
    def estimate_record(self, record: Inference) -> str | None:
        """Return the cost as decimal text, or None if any part of it has no price."""
        ...


# opens a price list and what overrides it, see `spool.record.RecalculationEntry`
OpenPrices = Callable[[bytes, bytes], Prices]


class NewPrices(NamedTuple):
    """The prices of the recalculation with a record number, from a time on."""

    number: int
    since: int
    prices: Prices


def recalculated(fact: Fact, meters: Mapping[str, int | None], made: Iterable[NewPrices]) -> Fact:
    """
    Return a row after recalculations in the order of their numbers. One that gives the same estimate changes nothing.
    """
    if fact.kind == CALL and fact.calls:
        for each in made:
            if fact.number < each.number and fact.start >= each.since:
                fact = _recalculated(fact, meters, each)
    return fact


def _recalculated(fact: Fact, meters: Mapping[str, int | None], made: NewPrices) -> Fact:
    call = Inference(
        id=b"",
        source="",
        start_time=fact.start * NS,
        provider=fact.provider,
        request_model=fact.request_model,
        response_model=fact.model,
        input_tokens=fact.input_tokens,
        output_tokens=fact.output_tokens,
        cache_read_tokens=fact.cache_read_tokens,
        cache_write_tokens=fact.cache_write_tokens,
        reasoning_tokens=fact.reasoning_tokens,
        cache_write_1h_tokens=fact.cache_write_1h_tokens,
        cost=money.units_to_text(units_of_amount((fact.reported_nano, fact.reported_rest))),
        status=fact.status or "ok",
        tags={"service_tier": fact.mode} if fact.mode else {},
        meters={name: quantity_from_millionths(units) for name, units in meters.items() if units is not None},
    )
    call.estimated_cost = made.prices.estimate_record(call)
    estimated = amount_of_text(call.estimated_cost)
    # an estimate that no call may have is none, because it would take the call out of the totals
    if call.estimated_cost is None or units_of_amount(estimated) > MAX_MONEY:
        return fact
    call.cost_source = ESTIMATED
    source = REPORTED if fact.cost_source == REPORTED else call_cost_source(call)
    cost = (fact.cost_nano, fact.cost_rest) if source == REPORTED else NO_AMOUNT
    if source == ESTIMATED:
        cost, estimated = estimated, NO_AMOUNT
    new = fact._replace(
        cost_source=source,
        cost_nano=cost[0],
        cost_rest=cost[1],
        estimated_nano=estimated[0],
        estimated_rest=estimated[1],
    )
    return fact if new == fact else new._replace(priced=made.number)
