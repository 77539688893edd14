"""
Each call has one kind: priced, free, unpriced or without usage. On every engine, the totals count the kinds as a count
by hand does, whatever the order of reports and corrections, and after prices changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from spool.cost_kinds import FREE, KIND_OF_SOURCE, KINDS, PRICED, UNPRICED, WITHOUT_USAGE, call_pricing_status
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.token_sums import TokenSum
from spool.record import NS, Correction, Inference
from tests.rounds import part
from tests.spool.contract.test_ledger import DAY, at
from tests.spool.ledger.engines import Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeLog, FakePrices, call

NOTHING: Mapping[str, Any] = {
    "input_tokens": None, "output_tokens": None, "estimated_cost": None, "cost_source": "none",
}  # fmt: skip
# A sum has one price, so calls that no price can fit are of another model.
PARTIAL: Mapping[str, Any] = {**NOTHING, "request_model": "unknown"}
NO_PRICE: Mapping[str, Any] = {"estimated_cost": None, "cost_source": "none"}
REPORTED: Mapping[str, Any] = {"cost_source": "reported", "estimated_cost": None}


@dataclass(frozen=True)
class State:
    """The fields of a call with its kind, and its kind after Flat priced the model."""

    fields: Mapping[str, Any]
    kind: str
    repriced: str = ""


STATES = (
    State({}, PRICED),
    State({"cost": "0.5", **REPORTED}, PRICED),
    State({"cost": "0.5", **NOTHING, "cost_source": "reported"}, PRICED),
    State({"cost": "0", **NOTHING, "cost_source": "reported"}, PRICED),  # an image of a free model
    State({**NOTHING, "charges": {"EUR": "0.2"}, "cost_source": "reported"}, PRICED),
    State({"status": "error"}, PRICED),
    State({"status": "error", "cost": "0.1", **NOTHING, "cost_source": "reported"}, PRICED),
    State({"status": "cached"}, FREE),
    State({"status": "cached", **NO_PRICE}, FREE),
    State({"status": "cached", **NOTHING}, FREE),
    State({"status": "error", **NOTHING}, FREE),
    State({"status": "error", "cost": "0", **NOTHING, "cost_source": "reported"}, FREE),
    State({"status": "error", **NO_PRICE, "input_tokens": 0, "output_tokens": 0}, FREE),
    State(NO_PRICE, UNPRICED, PRICED),
    State({"status": "error", **NO_PRICE}, UNPRICED, PRICED),
    State({**NO_PRICE, "input_tokens": 7, "output_tokens": None}, UNPRICED, PRICED),
    State({**PARTIAL, "output_tokens": 7}, UNPRICED),
    State({**PARTIAL, "cache_read_tokens": 7}, UNPRICED),
    State({**PARTIAL, "reasoning_tokens": 7}, UNPRICED),
    State({**NOTHING, "meters": {"audio_seconds": "0.5"}}, UNPRICED, PRICED),
    State({"status": "error", **NOTHING, "meters": {"images": 1}}, UNPRICED, PRICED),
    State(NOTHING, WITHOUT_USAGE),
    State({**NO_PRICE, "input_tokens": 0, "output_tokens": 0}, WITHOUT_USAGE),
    State({**NOTHING, "meters": {"images": 0}}, WITHOUT_USAGE),
    State({**NOTHING, "estimated_cost": "0", "cost_source": "estimated"}, WITHOUT_USAGE),
)  # fmt: skip


DAYS = at(BEGIN - 3 * DAY), at(BEGIN + DAY)


class Flat(FakePrices):
    """A pricer of one model."""

    def estimate_sum(self, total: TokenSum) -> str | None:
        if total.request_model == "unknown":
            return None
        used = total.input_tokens + (total.output_tokens or 0) + sum(total.meters.values())
        return f"{Decimal(used).scaleb(-9):f}"


def made(state: State, **more: Any) -> Inference:
    return call(**{**state.fields, **more})


@pytest.mark.parametrize("state", STATES)
def test_the_kind_of_a_call(state: State) -> None:
    assert state.kind == call_pricing_status(made(state))


async def kinds(ledger: Ledger, granularity: str = "total", **fields: Any) -> Counter[str]:
    """Return the calls by kind, after a check that they add up to all calls, however the totals are read."""
    query = CostQuery(since=DAYS[0], until=DAYS[1], granularity=granularity, **fields)
    found: Counter[str] = Counter()
    for row in await ledger.costs(query):
        of_row = {kind: getattr(row, kind) for kind in KINDS}
        assert row.calls == sum(of_row.values())
        found.update(of_row)
    return +found


async def assert_kinds(ledger: Ledger, states: Sequence[State], *, repriced: bool = False) -> None:
    expected = Counter((state.repriced if repriced else "") or state.kind for state in states)
    assert expected == await kinds(ledger)
    assert expected == await kinds(ledger, "hourly", group_by=("model", "status"))
    by_source = CostQuery(since=DAYS[0], until=DAYS[1], granularity="total", group_by=("cost_source",))
    for row in await ledger.costs(by_source):
        [source] = row.group
        assert row.calls == getattr(row, KIND_OF_SOURCE[source or ""])


@pytest.mark.parametrize("seed", part(range(3), every=3))
async def test_kinds_of_random_corrections(ledgers: Ledgers, seed: int) -> None:
    """
    Late prices, late usage and calls that were taken back move calls between kinds. A rebuild counts the same, and
    a recalculation prices exactly the calls that used something.
    """
    await _round(await ledgers.open(), Random(seed))


async def _round(ledger: Ledger, chance: Random) -> None:
    log = FakeLog()
    last: list[State] = []
    records: list[list[Inference | Correction]] = []
    for number in range(200):
        states = chance.choices(STATES, k=chance.choice([1, 1, 2, 3]))
        start = (BEGIN - chance.randrange(2 * DAY) // HOUR * HOUR) * NS
        calls = [made(state, id=number.to_bytes(16, "big"), start_time=start) for state in states]
        records.append([calls[0], *map(_correction, calls, calls[1:])])
        if chance.random() < 0.1:
            gone = made(states[-1], id=calls[0].id, start_time=start, shadow=True)
            records[-1].append(_correction(calls[-1], gone))
        else:
            last.append(states[-1])
    # a correction follows the record that it corrects
    places = [place for place, of_call in enumerate(records) for _ in of_call]
    chance.shuffle(places)
    mixed = [records[place].pop(0) for place in places]
    while mixed:
        size = chance.randint(1, 200)
        log.add(mixed[:size])
        del mixed[:size]
        await ledger.catch_up(log)
    await assert_kinds(ledger, last)
    await ledger.rebuild(log)
    await ledger.catch_up(log)
    await assert_kinds(ledger, last)
    await ledger.reprice(log, Flat(), since=at(BEGIN - 3 * DAY))
    await assert_kinds(ledger, last, repriced=True)
    assert 0 == (await ledger.reprice(log, Flat(), since=at(BEGIN - 3 * DAY))).rows


def _correction(before: Inference, after: Inference) -> Correction:
    return Correction(
        id=b"c" * 16, source="otel", corrects=before.id, reason="late_usage", known_at=BEGIN * NS,
        start_time=before.start_time or 0, before=before, after=after,
    )  # fmt: skip
