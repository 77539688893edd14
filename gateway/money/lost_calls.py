"""
The calls of coding assistants that laptops lost, and their estimated cost.

Laptops count lost slots of five minutes, and the least number of lost calls. Lost slots cost about as much as the heard
slots of the same device and assistant. An estimate is never part of a cost or a bill.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import NamedTuple

from gateway.normalise.assistants import ASSISTANTS_BY_SOURCE
from spool.devices.use_days import OWN_ROWS_DAYS, SUMMED, HeardSlots, UseDay, UseDays
from spool.errors import TotalsIncomplete
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, next_full_hour
from spool.log.protocols import RecordLog

SHOWN_DAYS = 7  # days with today that faces without a choice show
LEAST_HEARD_SLOTS = 20  # heard slots from which the cost of a slot is known
RATES_KEPT_S = 600.0

_Pair = tuple[str, str]  # a device or a team, and an assistant


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLosses:
    """
    The losses of some UTC days, from `first` to `last`. `calls` is a lower bound. `people` are the users of the
    machines, and a machine without a user counts as a person.

    `estimated` is the cost of the lost calls, or None if no lost slot has a known cost or the totals are counted again.
    `counted` is the cost of all calls of assistants in these days. `calls_by_team` has teams with losses.
    """

    first: str
    last: str
    calls: int = 0
    slots: int = 0
    people: int = 0
    machines: int = 0
    estimated: Decimal | None = None
    counted: Decimal | None = None
    calls_by_team: Mapping[str, int]

    @property
    def lost_share(self) -> Decimal | None:
        """Return the estimated part of all costs of assistants, from 0 to 1, or None if nothing is estimated."""
        if self.estimated is None or self.counted is None or not self.estimated:
            return None
        return self.estimated / (self.counted + self.estimated)

    def without_costs(self) -> FleetLosses:
        """Return only the numbers, which are shown although `privacy.min_group` hides the costs of few people."""
        return replace(self, estimated=None, counted=None)


class _Rates(NamedTuple):
    """The cost of a heard slot, by device and assistant, by team and assistant, and by assistant."""

    of_devices: Mapping[_Pair, Decimal]
    of_teams: Mapping[_Pair, Decimal]
    of_fleet: Mapping[str, Decimal]

    def cost_of_slot(self, loss: UseDay) -> Decimal | None:
        for rates, name in ((self.of_devices, loss.device), (self.of_teams, loss.team)):
            if (rate := rates.get((name, loss.assistant))) is not None:
                return rate
        return self.of_fleet.get(loss.assistant)


class LossEstimator:
    """`users` returns the users of machines by device id, and `now` epoch seconds."""

    def __init__(
        self,
        table: UseDays,
        ledger: Ledger,
        log: RecordLog,
        *,
        users: Callable[[], Mapping[str, str]],
        now: Callable[[], float],
    ) -> None:
        self._table = table
        self._ledger = ledger
        self._log = log
        self._users = users
        self._now = now
        self._rates: tuple[float, _Rates] | None = None

    async def losses_of_last_days(self) -> FleetLosses:
        today = datetime.fromtimestamp(self._now(), UTC).date()
        return await self.losses_between(today - timedelta(days=SHOWN_DAYS - 1), today)

    async def losses_between(self, first: date, last: date) -> FleetLosses:
        rows = await self._table.losses_between(first.isoformat(), last.isoformat())
        teams = Counter[str]()
        for row in rows:
            teams[row.team] += row.lost_calls
        users = self._users() if rows else {}
        devices = {row.device for row in rows} - {SUMMED}
        estimated = counted = None
        if rows:
            try:
                await self._ledger.require_complete_totals(self._log)
                estimated = _estimated_cost(rows, await self._current_rates())
                counted = await self._counted_cost(first, last)
            except TotalsIncomplete:
                pass  # the counts do not depend on the totals
        return FleetLosses(
            first=first.isoformat(),
            last=last.isoformat(),
            calls=teams.total(),
            slots=sum(row.lost for row in rows),
            people=len({users.get(device) or device for device in devices}),
            machines=len(devices),
            estimated=estimated,
            counted=counted,
            calls_by_team=teams,
        )

    async def _counted_cost(self, first: date, last: date) -> Decimal:
        query = CostQuery(
            since=_midnight(first),
            until=min(_midnight(last + timedelta(days=1)), next_full_hour(self._now())),
            granularity=TOTAL,
            include={"source": tuple(ASSISTANTS_BY_SOURCE)},
            measures=("cost",),
        )
        return sum((Decimal(row.cost) for row in await self._ledger.costs(query)), Decimal(0))

    async def _current_rates(self) -> _Rates:
        now = self._now()
        if self._rates is None or not 0 <= now - self._rates[0] < RATES_KEPT_S:
            first = datetime.fromtimestamp(now, UTC).date() - timedelta(days=OWN_ROWS_DAYS)
            heard = await self._table.heard_slots_since(first.isoformat())
            self._rates = now, _slot_rates(heard, await self._costs_of_devices(heard, now))
        return self._rates[1]

    async def _costs_of_devices(self, heard: Sequence[HeardSlots], now: float) -> Mapping[_Pair, Decimal]:
        """Return the costs of devices and assistants on the days of their heard slots."""
        costs: dict[_Pair, Decimal] = defaultdict(Decimal)
        since_of = {(each.device, each.assistant): each.since for each in heard}
        for since in sorted(set(since_of.values())):
            query = CostQuery(
                since=_midnight(date.fromisoformat(since)),
                until=next_full_hour(now),
                granularity=TOTAL,
                group_by=("device", "source"),
                include={"source": tuple(ASSISTANTS_BY_SOURCE)},
                measures=("cost",),
            )
            for row in await self._ledger.costs(query):
                device, source = row.group
                pair = device or "", ASSISTANTS_BY_SOURCE.get(source or "", "")
                if since_of.get(pair) == since:
                    costs[pair] += Decimal(row.cost)
        return costs


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _slot_rates(heard: Sequence[HeardSlots], costs: Mapping[_Pair, Decimal]) -> _Rates:
    """
    Return the cost of a heard slot. That of a team and of the fleet is the median of its devices, so that a device with
    invented counts changes no other device's estimate by much.
    """
    devices, teams, fleet = {}, defaultdict(list), defaultdict(list)
    for each in heard:
        pair = each.device, each.assistant
        cost = costs.get(pair, Decimal(0))
        if each.heard >= LEAST_HEARD_SLOTS and cost > 0:
            devices[pair] = cost / each.heard
            teams[each.team, each.assistant].append(devices[pair])
            fleet[each.assistant].append(devices[pair])
    return _Rates(
        devices,
        {name: median(rates) for name, rates in teams.items()},
        {name: median(rates) for name, rates in fleet.items()},
    )


def _estimated_cost(losses: Sequence[UseDay], rates: _Rates) -> Decimal | None:
    costs = [rate * loss.lost for loss in losses if (rate := rates.cost_of_slot(loss)) is not None]
    return sum(costs, Decimal(0)) if costs else None
