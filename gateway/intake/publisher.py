"""
Publishing of totals as unit-cost streams (`[[publish]]`): tokens, calls or cost by a dimension, or as a
ratio.

An operation is created only for a value that differs from the stream's total, and the operation replaces the
total. So the stream becomes right even after late data, a recalculation or an interrupted run.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext

from gateway.configuration.sections import UnitCostPublication
from gateway.intake.deposits import NonTelemetryIntake
from spool.clock import Clock
from spool.identity import RecordIdentity
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow, next_full_hour
from spool.loops import FailedItems, repeat
from spool.record import NS, UnitCostOperation
from spool.streams import (
    ALLOCATION,
    DELETE,
    HOURLY,
    REPLACE,
    KnownStreams,
    StreamReader,
    merge_streams,
    operation_key,
    rounded_text,
    stream_of_operation,
)

PUBLISH_EVERY_S = 60.0
# Values of this period are published again, because late data may change them.
BACK = {"HOURLY": timedelta(days=7), "DAILY": timedelta(days=35)}
UNKNOWN = "(unknown)"
_EXACT = Context(prec=60)

_log = logging.getLogger(__name__)


class UnitCostPublisher:
    def __init__(
        self,
        rules: Sequence[UnitCostPublication],
        *,
        ledger: Ledger,
        intake: NonTelemetryIntake,
        streams: StreamReader,
        known_streams: KnownStreams,
        clock: Clock,
        failed_items: FailedItems | None = None,
    ) -> None:
        self._failed_items = failed_items or FailedItems(clock)
        self._rules = rules
        self._ledger = ledger
        self._deposits = intake
        self._streams = streams
        self._book = known_streams
        self._clock = clock

    def configure(self, rules: Sequence[UnitCostPublication]) -> None:
        self._rules = rules

    async def run(self) -> None:
        await repeat(
            self.publish_due,
            every_s=PUBLISH_EVERY_S,
            failed="unit costs cannot be published now",
            action="publishing_put_off",
        )

    async def publish_due(self) -> None:
        rules = {rule.stream: rule for rule in self._rules}
        await self._failed_items.work_on("published unit costs", rules, self.publish_changed_costs)

    async def publish_changed_costs(self, rule: UnitCostPublication) -> int:
        """
        Store unit-cost operations for the values of a publication rule that changed since they were last
        stored.
        """
        self._ledger.require_caught_up()
        complete_since = await self._ledger.start_of_complete_hours()
        sums = await self._read_costs_to_publish(rule)
        operations = await asyncio.to_thread(lambda: list(self._operations_from_sums(rule, sums)))
        totals = await self._streams.find_totals(
            [(rule.stream, operation_key(operation)) for operation in operations]
        )
        changed = []
        for operation in operations:
            total = totals.get((rule.stream, operation_key(operation)))
            if total is not None and (operation.start_time or 0) < complete_since * NS:
                # do not publish this value again, because the ledger no longer has all records that it summed
                # up
                continue
            if operation.operation == DELETE:
                if total is not None:
                    changed.append(operation)
            elif total is None or Decimal(total.value) != Decimal(operation.value or 0):
                changed.append(operation)
        await self._store_operations(changed)
        return len(changed)

    async def _read_costs_to_publish(self, publication: UnitCostPublication) -> Sequence[CostRow]:
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        since = (now - BACK[publication.granularity]).replace(hour=0, minute=0, second=0, microsecond=0)
        granularity = "daily"
        if publication.granularity == HOURLY:
            granularity, since = "hourly", await self._ledger.earliest_moment_with_hourly_sums(since)
        dimensions = tuple(dict.fromkeys((publication.by, *publication.dimensions.values())))
        until = next_full_hour(self._clock.now())
        query = CostQuery(
            since=since, until=until, granularity=granularity, group_by=dimensions, stated_names=True
        )
        return await self._ledger.costs(query)

    def _operations_from_sums(
        self, rule: UnitCostPublication, rows: Sequence[CostRow]
    ) -> Iterator[UnitCostOperation]:
        names = tuple(dict.fromkeys((rule.by, *rule.dimensions.values())))
        for row in rows:
            values = dict(zip(names, row.group, strict=True))
            dimensions = {name: [values[dimension] or UNKNOWN] for name, dimension in rule.dimensions.items()}
            value = _published_value(rule, row)
            yield UnitCostOperation(
                id=os.urandom(16),
                source="ledger",
                stream=rule.stream,
                stream_type=ALLOCATION,
                operation=REPLACE if value is not None else DELETE,
                start_time=int(row.start.timestamp()) * NS,
                granularity=rule.granularity,
                element_name=values[rule.by] or UNKNOWN,
                dimensions=dimensions,
                value=value,
            )

    async def _store_operations(self, operations: Sequence[UnitCostOperation]) -> None:
        if not operations:
            return
        first = stream_of_operation(operations[0])
        existing = self._book.find_stream(first.name)
        stream = merge_streams(existing, first)
        if (stream.type, stream.granularity, stream.keys) != (first.type, first.granularity, first.keys):
            message = "%s is already another stream: its type, granularity or dimensions differ"
            _log.error(message, first.name, extra={"action": "not_published", "stream": first.name})
            return
        with ExitStack() as claims:
            claims.enter_context(self._book.claim_stream(stream))
            identities = [RecordIdentity(operation.id, certain=False) for operation in operations]
            await self._deposits.store_operations(operations, identities)


def _published_value(rule: UnitCostPublication, row: CostRow) -> str | None:
    measures = _row_measures(row)
    with localcontext(_EXACT):
        value = measures[rule.measure]
        if rule.per:
            if not measures[rule.per]:
                return None
            value /= measures[rule.per]
        return rounded_text(value) if value > 0 else None


def _row_measures(row: CostRow) -> Mapping[str, Decimal]:
    return {
        "cost": Decimal(row.cost),
        "calls": Decimal(row.calls),
        "tokens": Decimal(row.input_tokens + row.output_tokens),
        "input_tokens": Decimal(row.input_tokens),
        "output_tokens": Decimal(row.output_tokens),
    }
