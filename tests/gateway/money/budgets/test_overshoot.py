"""
The figure `lets_through`: if the crossings of the last seven days are replayed, never more than this amount passes
a limit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from decimal import Decimal

import msgspec
import pytest

from gateway.money.budgets import verdicts
from gateway.money.budgets.verdicts import ALL, BudgetVerdicts
from spool.record import NS
from spool.registry.views import NewView
from tests.gateway.money.budgets.house import ADA, KNOWN, House
from tests.rounds import part
from tests.spool.ledger_log import BEGIN, HOUR

HOLD_S = 10.0


@dataclass(frozen=True)
class Sent:
    begun: float
    ended: float
    stored: float
    dollars: Decimal


def week(chance: random.Random) -> list[Sent]:
    """Return the calls of seven days: quiet hours, and bursts, some over the end of an hour."""
    begins = [chance.uniform(0, 7 * 24 * HOUR) for _ in range(300)]
    for _ in range(12):
        burst = chance.randrange(7 * 24) * HOUR + chance.choice([-9, 0, 1800])
        begins += [max(0.0, burst + chance.uniform(0, 40)) for _ in range(40)]
    calls = []
    for begun in begins:
        ended = BEGIN + begun + chance.uniform(0.1, 3)
        stored = ended + chance.uniform(0, 20)
        calls.append(Sent(BEGIN + begun, ended, stored, Decimal(chance.randrange(1, 10**6)) / 1000))
    return sorted(calls, key=lambda call: call.stored)


def let_through(calls: list[Sent], limit: Decimal) -> tuple[Decimal, float]:
    """
    Return the spend that passes after the spend reached a limit and before a reader that waits knows it, and the
    seconds of this time.
    """
    reached = stored = Decimal(0)
    over_at = known_at = 0.0
    for call in sorted(calls, key=lambda call: call.ended):
        reached += call.dollars
        if reached >= limit:
            over_at = call.ended
            break
    for call in calls:
        stored += call.dollars
        if stored >= limit:
            known_at = call.stored + HOLD_S + verdicts.REFRESH_S + verdicts.LOOK_S
            break
    passed = [call.dollars for call in calls if over_at < call.begun <= known_at]
    return sum(passed, Decimal(0)), known_at - over_at


@pytest.mark.parametrize("seed", part(range(4), every=4))
async def test_replayed_crossings_stay_within_it(seed: int) -> None:
    """
    Every limit that the week crosses is replayed. Without the part of `lets_through` for bursts, a replay would
    exceed it.
    """
    chance = random.Random(seed)
    house = await House(at=BEGIN).start()
    house.evaluator.verdicts._hold_s = lambda: HOLD_S
    calls = week(chance)
    await house.budget(await house.view(), default_amount="1", granularity="yearly")
    for call in calls:
        house.clock.at = call.stored
        house.spend(str(call.dollars), at=call.begun, end_time=int(call.ended * NS))
    house.clock.at = max(call.stored for call in calls)
    [row] = msgspec.json.decode(
        (await house.evaluator.verdicts.current_signed_table(ALL)).body, type=BudgetVerdicts
    ).rows
    most = Decimal(row.lets_through or "")
    assert 20 + HOLD_S <= row.delay_s <= 20 + HOLD_S + verdicts.REFRESH_S + verdicts.LOOK_S + 1
    total = sum((call.dollars for call in calls), Decimal(0))
    assert str(total) == str(Decimal(row.spent or "").quantize(total))
    replayed = [let_through(calls, total * part / 1000) for part in range(1, 1000)]
    assert max(passed for passed, _ in replayed) <= most < total / 4
    assert max(passed for passed, _ in replayed) > most / 100


async def test_each_owner_and_source_has_its_own() -> None:
    """
    `lets_through` uses the delay of the sources that count, and the largest burst of the owner. Longer delays span
    more hours.
    """
    house = await House(at=BEGIN + 100 * HOUR).start()
    now = house.clock.at
    draft = NewView(name="kong", principal_dimension="model", filter={"source": ("kong",)})
    view = await house.registry.views.create(
        draft, known_dimensions=("source", *KNOWN), max_rows=9, actor=ADA
    )
    per_team = await house.budget(view, per="team", default_amount="1", name="Teams")
    slow = await house.budget(await house.view(name="all"), default_amount="1", name="All")
    for hours_ago, dollars in ((2, "8"), (3, "4"), (5, "2"), (90, "16"), (200, "64")):
        house.spend(dollars, at=now - hours_ago * HOUR, source="kong", team="search", end_time=int(now * NS))
    house.spend("0.5", source="kong", team="ads", end_time=int(now * NS))
    house.spend("1", source="batches", team="ads", end_time=int((now - 2 * HOUR) * NS))
    table = msgspec.json.decode(
        (await house.evaluator.verdicts.current_signed_table(ALL)).body, type=BudgetVerdicts
    )
    shown = {(row.budget, row.owner): (row.delay_s, row.lets_through) for row in table.rows}
    wait_s = int(verdicts.REFRESH_S + verdicts.LOOK_S)
    assert {
        (per_team.id, "search"): (wait_s, "16"),
        (per_team.id, "ads"): (wait_s, "0.5"),
        (slow.id, None): (2 * HOUR + wait_s, "16"),
    } == shown
