"""The estimated cost of lost calls: whose slots give the cost, and planted fleets against their planted cost."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Any, NamedTuple, cast

import pytest

from gateway.money.lost_calls import LEAST_HEARD_SLOTS, RATES_KEPT_S, FleetLosses, LossEstimator
from spool.devices.use_days import HeardSlots, UseDay, UseDays
from spool.errors import TotalsIncomplete
from spool.ledger.queries import CostQuery
from tests.rounds import examples

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
TODAY = date(2026, 11, 30)
CODEX, CLAUDE = "codex", "claude-code"
SOURCES = {CODEX: "codex", CLAUDE: "claude_code"}


def ago(days: int) -> str:
    return (TODAY - timedelta(days=days)).isoformat()


class Row(NamedTuple):
    group: tuple[str | None, ...]
    cost: str


class Machine(NamedTuple):
    """A device with one assistant: what it heard since a day, what that cost, and what it lost."""

    device: str
    heard: int = 100
    cost: str = "50"
    lost: int = 0
    calls: int = 0
    team: str = "search"
    assistant: str = CODEX
    since: str = ago(20)
    user: str = ""


class Fleet:
    """The storage of a fleet, as the estimator reads it."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines
        self.is_incomplete = False
        self.now = NOW
        self.estimator = LossEstimator(
            cast(UseDays, self),
            cast(Any, self),
            cast(Any, self),
            users=lambda: {each.device: each.user for each in machines},
            now=lambda: self.now,
        )

    async def losses_between(self, first: str, last: str) -> Sequence[UseDay]:
        return [
            UseDay(
                day=last,
                device=each.device,
                assistant=each.assistant,
                team=each.team,
                used=each.lost,
                lost=each.lost,
                lost_calls=each.calls,
            )
            for each in self.machines
            if each.lost
        ]

    async def heard_slots_since(self, first: str) -> Sequence[HeardSlots]:
        assert first == ago(30)
        return [
            HeardSlots(
                device=each.device,
                assistant=each.assistant,
                team=each.team,
                since=each.since,
                heard=each.heard,
            )
            for each in self.machines
            if each.device and each.heard
        ]

    async def require_complete_totals(self, log: object) -> None:
        if self.is_incomplete:
            raise TotalsIncomplete("again")

    async def costs(self, query: CostQuery) -> Sequence[Row]:
        """Each device has its cost in the time of its heard slots, and a large one before."""
        if not query.group_by:
            return [Row((), str(sum(Decimal(each.cost) for each in self.machines)))]
        return [
            Row(
                (each.device, SOURCES[each.assistant]),
                each.cost if query.since.date().isoformat() >= each.since else "9999",
            )
            for each in self.machines
        ]

    async def losses(self) -> FleetLosses:
        return await self.estimator.losses_of_last_days()


async def test_lost_slots_cost_as_much_as_heard_slots_of_the_device() -> None:
    found = await Fleet(
        [
            Machine("d1", heard=100, cost="50", lost=10, calls=3, user="ada"),
            Machine("d1", heard=40, cost="4", lost=2, calls=1, user="ada", assistant=CLAUDE),
            Machine("d2", heard=100, cost="7", lost=0, team="ads"),
            Machine("d3", heard=100, cost="100", lost=1, calls=1, since=ago(3), team="ads"),
        ]
    ).losses()
    assert (ago(6), ago(0), 5, 13, 2, 2) == (
        found.first,
        found.last,
        found.calls,
        found.slots,
        found.people,
        found.machines,
    )
    assert Decimal("5") + Decimal("0.2") + Decimal("1") == found.estimated
    assert Decimal(161) == found.counted
    assert {"search": 4, "ads": 1} == found.calls_by_team
    assert Decimal("6.2") / Decimal("167.2") == found.lost_share


@pytest.mark.parametrize(
    ("heard", "cost", "estimated"),
    [
        (LEAST_HEARD_SLOTS, "40", "20"),
        (LEAST_HEARD_SLOTS - 1, "40", "5"),  # as its team
        (0, "0", "5"),
        (100, "0", "5"),  # heard slots without a cost have no price
    ],
)
async def test_a_device_with_few_heard_slots_costs_as_its_team(heard: int, cost: str, estimated: str) -> None:
    others = [Machine(f"d{n}", heard=100, cost=str(50 * n)) for n in range(3)]
    found = await Fleet([Machine("new", heard=heard, cost=cost, lost=10, calls=3), others[1]]).losses()
    assert Decimal(estimated) == found.estimated
    fleet = await Fleet(
        [Machine("new", 0, "0", 10, 3, team="ads"), *others, Machine("d3", 100, "900")]
    ).losses()
    assert Decimal(10) * median([Decimal("0.5"), Decimal(1), Decimal(9)]) == fleet.estimated


async def test_without_a_known_slot_nothing_is_estimated() -> None:
    alone = await Fleet([Machine("d1", heard=19, lost=10, calls=3)]).losses()
    assert (3, None, None) == (alone.calls, alone.estimated, alone.lost_share)
    other = await Fleet([Machine("d1", 0, lost=10, calls=3), Machine("d2", assistant=CLAUDE)]).losses()
    assert other.estimated is None
    none = await Fleet([Machine("d1")]).losses()
    assert (0, None, None) == (none.calls, none.estimated, none.counted)
    summed = await Fleet([Machine("", lost=4, calls=1), Machine("d1")]).losses()
    assert (1, 0, Decimal(2)) == (summed.calls, summed.people, summed.estimated)


async def test_counts_need_no_totals_and_rates_are_kept_for_ten_minutes() -> None:
    machine = Machine("d1", lost=10, calls=3)
    fleet = Fleet([machine])
    fleet.is_incomplete = True
    assert (3, None) == ((found := await fleet.losses()).calls, found.estimated)
    fleet.is_incomplete = False
    assert Decimal(5) == (await fleet.losses()).estimated
    fleet.machines = [machine._replace(cost="100")]
    fleet.now += RATES_KEPT_S - 1
    assert Decimal(5) == (await fleet.losses()).estimated
    fleet.now += 1
    assert Decimal(10) == (await fleet.losses()).estimated


def planted_fleet(dice: random.Random) -> tuple[list[Machine], Decimal]:
    """
    Return machines with the cost of their lost calls. The cost of a slot differs between people, and between the slots
    of a person. Some machines lose all, some a part, and some have no heard slot.
    """
    machines, planted = [], Decimal(0)
    habit = dice.uniform(0.3, 0.9)
    for number in range(dice.choice((5, 20, 60))):
        price = dice.lognormvariate(-1, habit)
        used = dice.randrange(5, 500)
        chance = dice.choice((0.0, 0.0, 0.0, 0.05, 0.3, 0.9, 1.0))
        costs = [(dice.random() < chance, dice.lognormvariate(0, 1) * price) for _ in range(used)]
        lost = [cost for is_lost, cost in costs if is_lost]
        heard = [cost for is_lost, cost in costs if not is_lost]
        planted += Decimal(sum(lost))
        cost = str(round(sum(heard), 6))
        team = f"t{number % 3}"
        machines.append(Machine(f"d{number}", len(heard), cost, len(lost), -(-len(lost) // 4), team))
    return machines, planted


async def test_estimates_of_planted_fleets_are_near_their_planted_cost() -> None:
    """The median fleet misses its planted cost by at most 30 %."""
    misses = []
    for number in range(examples(400)):
        machines, planted = planted_fleet(random.Random(f"planted {number}"))
        found = await Fleet(machines).losses()
        if planted and found.estimated is not None:
            misses.append(abs(found.estimated - planted) / planted)
    assert len(misses) > examples(400) // 2
    assert median(misses) <= Decimal("0.3"), median(misses)


async def test_invented_counts_change_the_estimates_of_no_other_device_by_much() -> None:
    """Devices with their own cost do not change at all, and those that cost as their team change little."""
    for number in range(examples(100)):
        dice = random.Random(f"invented {number}")
        machines, _ = planted_fleet(dice)
        invented = Machine("liar", dice.choice((20, 100_000)), dice.choice(("0", "0.01", "9999")), 0, 0, "t1")
        apart: dict[str, list[Decimal]] = defaultdict(list)
        for fleet in (machines, [*machines, invented]):
            for each in machines:
                alone: Mapping[str, int] = {each.device: each.lost}
                rows = [row._replace(lost=alone.get(row.device, 0)) for row in fleet]
                found = await Fleet(rows).losses()
                assert found.calls == sum(row.calls for row in rows if row.lost)
                if each.heard >= LEAST_HEARD_SLOTS and found.estimated is not None:
                    apart[each.device].append(found.estimated)
        assert all(before == after for before, after in apart.values())
