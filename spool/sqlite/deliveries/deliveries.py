"""
The routes' side of the log on SQLite: numbered requests, stored before they are first sent.

Every verb is one transaction. Which deliveries are in hand belongs to the process alone: after a crash they are due.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.resources import files
from math import inf
from typing import Any

from spool.clock import Clock
from spool.deliveries import rules
from spool.deliveries.values import (
    DeadLetter,
    Delivery,
    PartialRefusal,
    RouteSpec,
    RouteState,
    Settlement,
    UnknownDelivery,
)
from spool.errors import NotAllowed, NotThere
from spool.log.protocols import Log
from spool.record import Record, pack
from spool.sqlite.database import Database
from spool.sqlite.deliveries import queries, rows, steps
from spool.sqlite.deliveries.books import needed_from, route_states, route_terms, skip_below
from spool.sqlite.log.entries import accepted, oldest

__all__ = ["SCHEMA", "SqliteDeliveries", "needed_from", "route_terms", "skip_below"]

SCHEMA = files(__package__).joinpath("deliveries.sql").read_text("utf-8")


class SqliteDeliveries:
    def __init__(self, database: Database, *, log: Log, clock: Clock) -> None:
        self._database = database
        self._log = log
        self._clock = clock
        self._in_hand: defaultdict[str, set[int]] = defaultdict(set)
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # two workers, two deliveries
        # Routes that had nothing due: the end of the log then, and until when that holds unless something changes. Idle
        # workers ask often, and the thread that they would ask is the one that commits.
        self._quiet: dict[str, tuple[int, float]] = {}
        self._changes = 0

    async def declare(self, routes: Sequence[RouteSpec]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            known = {name for (name,) in connection.execute(queries.DECLARED)}
            for spec in routes:
                if spec.name in known:
                    connection.execute(queries.REDECLARE, (spec.required, spec.name))
                else:
                    now = spec.start == "now"
                    first = accepted(connection, spec.topic) + 1 if now else oldest(connection, spec.topic)
                    connection.execute(queries.DECLARE, (spec.name, spec.topic, spec.required, first, first - 1))
            connection.execute(queries.TRY_AT_ONCE)
            connection.executemany(queries.ORPHAN, [(name,) for name in known - {spec.name for spec in routes}])

        await self._database.transaction(work)
        self._in_hand.clear()
        self._changed()

    async def due(self, route: str, *, now: float, max_records: int) -> Delivery | None:
        async with self._choosing[route]:
            where = self._where(route, now=now)
            closed = self._closed_below(route)
            quiet_at, quiet_until = self._quiet.get(route, (0, 0.0))
            if quiet_at == closed and now < quiet_until:
                return None

            def work(connection: sqlite3.Connection) -> tuple[Delivery | None, float | None]:
                delivery = (
                    rows.delivery(connection, queries.DUE, {**where, "replay": False})
                    or steps.cut(connection, where, closed=closed, max_records=max_records)
                    or rows.delivery(connection, queries.DUE, {**where, "replay": True})
                )
                return delivery, None if delivery else steps.next_due_at(connection, where)

            changes = self._changes
            delivery, next_at = await self._database.transaction(work)
            if delivery is None and changes == self._changes:
                self._quiet[route] = closed, inf if next_at is None else next_at
            return self._take(delivery)

    async def probe(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        async with self._choosing[route]:
            where = self._where(route, now=now)
            closed = self._closed_below(route)

            def work(connection: sqlite3.Connection) -> Delivery | None:
                suspects = connection.execute(queries.SUSPECTS, (route,)).fetchone()[0]
                fresh = steps.fresh_single(connection, where, closed) if suspects < max_suspects else None
                return fresh or rows.delivery(connection, queries.SUSPECT, where)

            try:
                return self._take(await self._database.transaction(work))
            finally:
                self._changed()  # it may have split a delivery

    async def next_due_at(self, route: str) -> float | None:
        where = self._where(route, now=0.0)
        return await self._database.read(lambda connection: steps.next_due_at(connection, where))

    async def mark(self, delivery: Delivery, mark: str) -> None:
        await self._execute(queries.MARK, mark, delivery.id)

    async def settle(self, delivery: Delivery, settlement: Settlement) -> None:
        said = settlement
        if said.delivered + said.refused + said.shadow + said.damaged != delivery.count:
            raise ValueError(f"the settlement of {delivery.count} numbers does not add up: {settlement}")
        at = self._clock.now()

        def work(connection: sqlite3.Connection) -> None:
            row = connection.execute(queries.REMOVE, (delivery.id,)).fetchone()
            if row is None:
                return
            if said.delivered:
                connection.execute(queries.ACCEPTED, (delivery.route,))
            if said.refused:
                span = (delivery.route, delivery.first, delivery.last)
                connection.execute(queries.REFUSED, (*span, said.refused, said.words, at))
                kept = {"route": delivery.route, "kept": rules.KEPT_REFUSALS}
                connection.execute(queries.PRUNE_REFUSALS, kept)
            if delivery.replay:
                connection.execute(queries.REPLAYED, (said.delivered, delivery.route))
            else:
                steps.add(
                    connection,
                    delivery.route,
                    delivered=said.delivered,
                    refused_upstream=said.refused,
                    shadow=said.shadow,
                    damaged=said.damaged,
                )

        await self._finish(delivery, work)

    async def split(self, delivery: Delivery, *, reason: str, at: int | None = None, refused: bool = False) -> None:
        second = delivery.first + delivery.count // 2 if at is None else at
        if not delivery.first < second <= delivery.last:
            raise ValueError(f"{delivery.first} to {delivery.last} cannot be split at {second}")
        await self._finish(
            delivery, lambda connection: steps.split(connection, delivery.id, second, reason=reason, refused=refused)
        )

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        committed_at, record = await self._single(delivery)
        if record is None:  # nothing is left to keep
            await self.settle(delivery, Settlement(delivered=0, damaged=1))
            return
        at = self._clock.now()

        def work(connection: sqlite3.Connection) -> None:
            row = connection.execute(queries.REMOVE, (delivery.id,)).fetchone()
            if row is None:
                return
            letter = (delivery.route, _topic(delivery.route), delivery.first, committed_at, pack([record]))
            connection.execute(queries.BURY, (*letter, error, status, at, delivery.replay))
            if not delivery.replay:
                steps.add(connection, delivery.route, dead=1)

        await self._finish(delivery, work)

    async def retry(
        self,
        delivery: Delivery,
        *,
        reason: str,
        not_before: float,
        new_key: bool,
        refused_at: float | None = None,
        server_error: bool = False,
    ) -> None:
        values = {
            "id": delivery.id,
            "reason": reason,
            "not_before": not_before,
            "new_key": rules.new_key() if new_key else None,
            "refused_at": refused_at,
            "server_error": server_error,
        }
        await self._finish(delivery, lambda connection: connection.execute(queries.RETRY, values))

    async def unknown(self, delivery: Delivery, *, reason: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if connection.execute(queries.UNKNOWN, (reason, delivery.id)).rowcount and not delivery.replay:
                steps.add(connection, delivery.route, unknown=delivery.count)

        await self._finish(delivery, work)

    async def unknowns(self) -> Sequence[UnknownDelivery]:
        return await self._database.read(
            lambda connection: [rows.unknown(row) for row in connection.execute(queries.UNKNOWNS, (None,))]
        )

    async def resolve(self, id: int, *, sent: bool) -> UnknownDelivery:
        def work(connection: sqlite3.Connection) -> UnknownDelivery:
            row = connection.execute(queries.UNKNOWNS, (id,)).fetchone()
            if row is None:
                raise NotThere("there is no delivery with this id that waits to be settled by hand")
            found, replay = rows.unknown(row), bool(row[-1])
            count = found.last - found.first + 1
            if sent:
                connection.execute(queries.REMOVE_UNKNOWN, (id,))
            else:
                connection.execute(queries.REOPEN, (rules.new_key(), id))
            if not replay:
                steps.add(connection, found.route, unknown=-count, delivered=count if sent else 0)
            elif sent:
                connection.execute(queries.REPLAYED, (count, found.route))
            return found

        try:
            return await self._database.transaction(work)
        finally:
            self._changed()

    async def set_state(self, route: str, state: str, reason: str | None) -> None:
        await self._execute(queries.SET_STATE, state, reason, route)

    async def routes(self) -> Sequence[RouteState]:
        now = self._clock.now()
        return await self._database.read(lambda connection: route_states(connection, now))

    async def drop(self, route: str) -> int:
        def work(connection: sqlite3.Connection) -> int:
            row = connection.execute(queries.ORPHANED, (route,)).fetchone()
            if row is None:
                raise NotThere(f"there is no route {route}")
            if not row[0]:
                raise NotAllowed(f"{route} is in the configuration: remove its destination there first")
            queued = route_terms(connection)[route]["queued"]
            for statement in (queries.FORGET_DELIVERIES, queries.FORGET_REFUSALS, queries.FORGET):
                connection.execute(statement, (route,))
            return queued

        return await self._change(work)

    async def dead(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        return await self._database.read(
            lambda connection: [rows.dead_letter(row) for row in connection.execute(queries.DEAD, (route,))]
        )

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        return await self._database.read(
            lambda connection: [rows.partial_refusal(row) for row in connection.execute(queries.REFUSALS, (route,))]
        )

    async def dead_retry(self, ids: Sequence[int]) -> int:
        def work(connection: sqlite3.Connection) -> int:
            return sum(steps.dig_up(connection, letter) for letter in ids)

        return await self._change(work)

    async def dead_discard(self, ids: Sequence[int]) -> int:
        def work(connection: sqlite3.Connection) -> int:
            discarded = 0
            for letter in ids:
                for route, _, _, _, replay in connection.execute(queries.UNBURY, (letter,)).fetchall():
                    discarded += 1
                    if not replay:
                        steps.add(connection, route, dead=-1, discarded=1)
            return discarded

        return await self._database.transaction(work)

    async def replay(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        def work(connection: sqlite3.Connection) -> int:
            row = connection.execute(queries.BEGINS, (route,)).fetchone()
            if row is None:
                raise NotThere(f"there is no route {route}")
            topic, begin, end, acceptances = row
            committed = [
                (max(first, begin), min(last, end))
                for first, last in connection.execute(queries.COMMITTED, (topic, since, until))
                if first <= end and last >= begin
            ]
            unsettled = connection.execute(queries.UNSETTLED, {"route": route}).fetchall()
            spans = list(rules.joined(rules.without(committed, unsettled)))
            if not dry_run:
                for span in spans:
                    for chunk in rules.chunks(span, rules.REPLAY_RECORDS):
                        steps.insert(connection, route, chunk, passed=acceptances, replay=True)
            return sum(map(rules.count, spans))

        return await self._change(work)

    async def _single(self, delivery: Delivery) -> tuple[float, Record | None]:
        if delivery.kept is not None:
            return delivery.kept.committed_at, delivery.kept.records[0]
        for entry in await self._log.read(_topic(delivery.route), delivery.first, delivery.first):
            return entry.committed_at, entry.records[0]
        return 0.0, None

    async def _execute(self, statement: str, *values: object) -> None:
        await self._database.transaction(lambda connection: connection.execute(statement, values))

    def _closed_below(self, route: str) -> int:
        return self._log.closed_below(_topic(route))

    def _where(self, route: str, *, now: float) -> dict[str, Any]:
        return {"route": route, "now": now, "in_hand": json.dumps(list(self._in_hand[route]))}

    def _take(self, delivery: Delivery | None) -> Delivery | None:
        if delivery is not None:
            self._in_hand[delivery.route].add(delivery.id)
        return delivery

    async def _finish(self, delivery: Delivery, work: Callable[[sqlite3.Connection], object]) -> None:
        """Whatever becomes of the transaction, the delivery is out of hand: if its row is still there, it is due."""
        try:
            await self._database.transaction(work)
        finally:
            self._in_hand[delivery.route].discard(delivery.id)
            self._changed()

    async def _change(self, work: Callable[[sqlite3.Connection], int]) -> int:
        """A transaction that may make deliveries due."""
        try:
            return await self._database.transaction(work)
        finally:
            self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._quiet.clear()


def _topic(route: str) -> str:
    return route.rpartition("/")[2]
