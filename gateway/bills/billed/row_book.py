"""
The background task that calculates billed costs from the rows of billing connections, with one transaction
per day. If a connection no longer counts in costs, its amounts are deleted.

Container usage that has a price but no billed row is stored in the same way, under a connection name of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.bills.billed.closing import day_digest
from gateway.bills.billed.connection_rows import (
    AmountsByDay,
    ChargeKey,
    ConnectionRowRules,
    add_json_rows,
    build_day_sums,
    unowned_and_accrued_amounts_by_reason,
)
from gateway.bills.billed.containers import (
    KUBERNETES,
    ClusterDay,
    Node,
    divide_among_workloads,
    price_cluster_day,
    price_unbilled_usage,
)
from gateway.bills.months import CalendarMonth
from gateway.clusters.usage.reader import ContainerUsageReader
from spool.billing import HourlyBillingFiles, HourRows
from spool.clock import Clock
from spool.ledger.billed import CLOSED, CONNECTION, PROVISIONAL, BilledDay
from spool.ledger.ledger import Ledger
from spool.ledger.sums import DAY_S, END_OF_TIME, Dimensions
from spool.loops import FailedItems, repeat
from spool.people import People
from spool.registry.connections import BillingConnection
from spool.statements import day_text

LOOK_S = 60.0
USAGE_S = 3600.0  # seconds between recalculations of container usage on a day that has not ended
SOURCE, METRICS = "billing_drops", "container_metrics"
PRICED = "(containers)"  # connection name that stands for priced container usage; no real connection can have this id

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RowSources:
    """
    The sources of billed rows. `drops`: uploaded hourly files. `connections` returns the connections that
    count in costs. `owner_tags` names the tags for teams and users. `usage` reads container usage, or is None
    if no container metrics are read.
    """

    ledger: Ledger
    drops: HourlyBillingFiles
    connections: Callable[[], Sequence[BillingConnection]]
    owner_tags: Callable[[], Mapping[str, str]]
    people: Callable[[], People]
    usage: ContainerUsageReader | None = None


class ConnectionCostUpdater:
    """Calculates billed costs of connections. `run` loops; `recalculate_changed_months` checks once."""

    def __init__(self, sources: RowSources, clock: Clock, failed_items: FailedItems | None = None) -> None:
        self._sources = sources
        self._clock = clock
        self._failed_items = failed_items or FailedItems(clock)
        # inputs of the last calculation, by connection and month, so that unchanged months are skipped
        self._marks: dict[tuple[str, str], object] = {}
        self._known: set[str] | None = None  # ids of connections whose rows may be in the ledger
        # by month and day: the nodes that billed rows describe
        self._covered: dict[tuple[str, int], set[Node]] = {}
        # days after the end of a month that billed rows of this month still cover, by connection and month
        self._beyond: dict[tuple[str, str], Sequence[int]] = {}
        # inputs of the last calculation for each day with container usage
        self._used: Mapping[int, object] = {}
        self._clusters: dict[int, Sequence[ClusterDay]] = {}

    async def run(self) -> None:
        await repeat(
            self.recalculate_changed_months,
            every_s=LOOK_S,
            failed="calculating costs of billing connections failed and will be retried",
            action="billed_waits",
        )

    async def recalculate_changed_months(self) -> int:
        """Recalculate months with changed rows or rules."""
        connections = self._sources.connections()
        names = {connection.id for connection in connections}
        changed = 0
        if await self._read_container_usage_if_priced():
            names.add(PRICED)
        if self._known is None or self._known - names:
            changed += await self._delete_other_connections(names)
        self._known = names

        months: dict[str, tuple[BillingConnection, str, float]] = {}

        async def read_months(connection: BillingConnection) -> None:
            for month, newest in (await self._sources.drops.last_drop_at_by_month(connection.id)).items():
                months[f"{connection.id} {month}"] = connection, month, newest

        async def recalculate(connection_month: tuple[BillingConnection, str, float]) -> None:
            nonlocal changed
            changed += await self._recalculate_month_if_changed(*connection_month)

        async def price_unbilled_day(day: int) -> None:
            nonlocal changed
            changed += await self._price_unbilled_day(day)

        by_id = {connection.id: connection for connection in connections}
        await self._failed_items.work_on("rows of billing connections", by_id, read_months)
        await self._failed_items.work_on("costs of billing connections", months, recalculate)
        days = {day_text(day): day for day in self._used}
        await self._failed_items.work_on("costs of container usage", days, price_unbilled_day)
        return changed

    async def _recalculate_month_if_changed(
        self, connection: BillingConnection, month: str, newest: float
    ) -> int:
        rules = self._row_rules(connection.id, connection.cloud_provider, month)
        size = await self._sources.drops.month_size(connection.id, month)
        month_key = connection.id, month
        mark = newest, size, rules, self._usage_inputs_fingerprint(month_key)
        if self._marks.get(month_key) == mark:
            return 0
        changed = await self._recalculate_month(rules, month, newest)
        self._marks[month_key] = newest, size, rules, self._usage_inputs_fingerprint(month_key)
        return changed

    async def _read_container_usage_if_priced(self) -> bool:
        """Read container usage. Return whether a price is set for it."""
        usage = self._sources.usage
        self._clusters = {}
        if usage is None or not usage.prices:
            self._used = {}
            return False
        await usage.read_new_files()
        now, prices = self._clock.now(), tuple(usage.prices)
        stamps: dict[int, list[object]] = defaultdict(list)
        for usage_day in await usage.days_with_usage():
            is_rest = now - usage_day.changed_at >= USAGE_S
            at = usage_day.changed_at if is_rest else int(now / USAGE_S)
            stamps[usage_day.day].append((usage_day.identity, at))
        self._used = {day: (tuple(day_stamps), prices) for day, day_stamps in stamps.items()}
        return True

    def _usage_inputs_fingerprint(self, month_key: tuple[str, str]) -> object:
        days = [*CalendarMonth.of(month_key[1]).days, *self._beyond.get(month_key, ())]
        return tuple(self._used.get(day) for day in days)

    async def _known_node_names(self, month: CalendarMonth) -> frozenset[str]:
        all_names: set[str] = set()
        for day in month.days:
            for cluster in await self._clusters_of_day(day):
                all_names |= cluster.names_in_bills
        return frozenset(all_names)

    async def _clusters_of_day(self, day: int) -> Sequence[ClusterDay]:
        usage = self._sources.usage
        if usage is None or day not in self._used:
            return ()
        if day not in self._clusters:
            days = [
                price_cluster_day(where, day_usage, usage.prices)
                for where, day_usage in (await usage.usage_by_cluster(day)).items()
            ]
            self._clusters = {day: [cluster for cluster in days if cluster is not None]}
        return self._clusters[day]

    async def _price_unbilled_day(self, day: int) -> int:
        """Recalculate a day if its usage, prices or bills changed. Return the number of changed days."""
        month = CalendarMonth.at(day).name
        rules = self._row_rules(PRICED, KUBERNETES, month)
        theirs = [nodes for (_, at), nodes in self._covered.items() if at == day]
        covered = frozenset[Node]().union(*theirs)
        mark = self._used[day], covered, rules
        if self._marks.get((PRICED, str(day))) == mark:
            return 0
        key = f"{KUBERNETES}{CONNECTION}{PRICED}:{month}"
        clusters = await self._clusters_of_day(day)
        amounts = await asyncio.to_thread(price_unbilled_usage, clusters, covered, rules)
        changed = await self._store_day(day, amounts, key, rules, source=METRICS, read_at=self._clock.now())
        self._marks[PRICED, str(day)] = mark
        return changed

    def _row_rules(self, connection: str, provider: str, month: str) -> ConnectionRowRules:
        return ConnectionRowRules(
            connection=connection,
            provider=provider,
            owner_tags=dict(self._sources.owner_tags()),
            tags=tuple(self._sources.ledger.builtin_and_tag_dimensions()),
            people=self._sources.people(),
            is_closed=CalendarMonth.of(month).end <= self._clock.now(),
        )

    async def _recalculate_month(self, rules: ConnectionRowRules, month: str, read_at: float) -> int:
        hours = await self._sources.drops.month_hours(rules.connection, month)
        key = f"{rules.provider}{CONNECTION}{rules.connection}:{month}"
        days = CalendarMonth.of(month)
        rules = replace(rules, nodes=await self._known_node_names(days))
        sums_by_day: AmountsByDay = {}
        written_days: set[int] = set()
        changed = 0
        self._covered = {node_key: nodes for node_key, nodes in self._covered.items() if node_key[0] != key}
        for hour in hours:
            # rows are sorted by hour, so no further rows of these days follow
            finished_days = sorted(day for day in sums_by_day if day + DAY_S <= hour.hour)
            for day in finished_days:
                changed += await self._divide_and_store_day(day, sums_by_day.pop(day), key, rules, read_at)
            written_days.update(finished_days)
            await asyncio.to_thread(_add_hour, sums_by_day, hour, rules)
        for day, amounts in sorted(sums_by_day.items()):
            changed += await self._divide_and_store_day(day, amounts, key, rules, read_at)
        written_days.update(sums_by_day)
        self._beyond[rules.connection, month] = sorted(day for day in written_days if day >= days.end)
        for stored in await self._stored_connection_days():
            if stored.provider == key and stored.day not in written_days:
                await self._sources.ledger.delete_billed_day(stored.day, key)
                changed += 1
        return changed

    async def _divide_and_store_day(
        self,
        day: int,
        amounts: Mapping[ChargeKey, int],
        provider_key: str,
        rules: ConnectionRowRules,
        read_at: float,
    ) -> int:
        """Store a day after all of its rows were read. Return 1 if it changed."""
        clusters = await self._clusters_of_day(day)
        if not clusters:
            return await self._store_day(day, amounts, provider_key, rules, source=SOURCE, read_at=read_at)
        divided_rows = await asyncio.to_thread(divide_among_workloads, amounts, clusters, rules)
        self._covered[provider_key, day] = divided_rows.covered
        return await self._store_day(
            day,
            divided_rows.amounts,
            provider_key,
            rules,
            source=SOURCE,
            read_at=read_at,
            divided_dimensions=divided_rows.places,
        )

    async def _store_day(
        self,
        day: int,
        amounts: Mapping[ChargeKey, int],
        provider_key: str,
        rules: ConnectionRowRules,
        *,
        source: str,
        read_at: float,
        divided_dimensions: Collection[Dimensions] = (),
    ) -> int:
        sums = await asyncio.to_thread(build_day_sums, amounts, divided_dimensions)
        reasons, accrued = unowned_and_accrued_amounts_by_reason(sums)
        state = CLOSED if rules.is_closed else PROVISIONAL
        billed_day = BilledDay(
            day=day,
            provider=provider_key,
            state=state,
            mark=day_digest(sums, state),
            source=source,
            read_at=read_at,
            made_at=self._clock.now(),
            reasons=reasons,
            accrued=accrued,
        )
        return await self._sources.ledger.store_billed_days([(billed_day, sums)])

    async def _delete_other_connections(self, names: Collection[str]) -> int:
        gone = [day for day in await self._stored_connection_days() if day.connection not in names]
        for day in gone:
            await self._sources.ledger.delete_billed_day(day.day, day.provider)
        self._marks = {month_key: mark for month_key, mark in self._marks.items() if month_key[0] in names}
        prefixes = tuple(f"{CONNECTION}{name}:" for name in names)
        self._covered = {
            node_key: nodes
            for node_key, nodes in self._covered.items()
            if any(name in node_key[0] for name in prefixes)
        }
        return len(gone)

    async def _stored_connection_days(self) -> list[BilledDay]:
        days = await self._sources.ledger.billed_days(0, END_OF_TIME)
        return [day for day in days if day.connection]


def _add_hour(sums_by_day: AmountsByDay, hour: HourRows, rules: ConnectionRowRules) -> None:
    add_json_rows(sums_by_day, hour.json_rows, rules)
