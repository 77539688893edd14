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
from functools import partial
from importlib.resources import files
from typing import Any

from spool import deliveries as rules
from spool.clock import Clock
from spool.deliveries import TERMS
from spool.errors import NotAllowed, NotThere
from spool.log import DeadLetter, Delivery, Log, PartialRefusal, RouteSpec, RouteState, Settlement
from spool.record import Record, pack
from spool.sqlite import delivery_queries as queries
from spool.sqlite import delivery_rows as rows
from spool.sqlite.database import Database
from spool.sqlite.delivery_books import needed_from, route_states, route_terms, skip_below
from spool.sqlite.entries import accepted, oldest

__all__ = ["SCHEMA", "SqliteDeliveries", "needed_from", "route_terms", "skip_below"]

SCHEMA = files(__package__).joinpath("deliveries.sql").read_text("utf-8")


class SqliteDeliveries:
    def __init__(self, database: Database, *, log: Log, clock: Clock) -> None:
        self._database = database
        self._log = log
        self._clock = clock
        self._in_hand: defaultdict[str, set[int]] = defaultdict(set)
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # two workers, two deliveries

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

    async def due(self, route: str, *, now: float, max_records: int) -> Delivery | None:
        async with self._choosing[route]:
            where = self._where(route, now=now)
            closed = self._closed_below(route)

            def work(connection: sqlite3.Connection) -> Delivery | None:
                return (
                    rows.delivery(connection, queries.DUE, {**where, "replay": False})
                    or _cut(connection, where, closed=closed, max_records=max_records)
                    or rows.delivery(connection, queries.DUE, {**where, "replay": True})
                )

            return self._take(await self._database.transaction(work))

    async def probe(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        async with self._choosing[route]:
            where = self._where(route, now=now)
            closed = self._closed_below(route)

            def work(connection: sqlite3.Connection) -> Delivery | None:
                suspects = connection.execute(queries.SUSPECTS, (route,)).fetchone()[0]
                fresh = _fresh_single(connection, where, closed) if suspects < max_suspects else None
                return fresh or rows.delivery(connection, queries.SUSPECT, where)

            return self._take(await self._database.transaction(work))

    async def next_due_at(self, route: str) -> float | None:
        in_hand = json.dumps(list(self._in_hand[route]))

        def work(connection: sqlite3.Connection) -> float | None:
            at: float | None = connection.execute(queries.NEXT_DUE_AT, (route, in_hand)).fetchone()[0]
            return at

        return await self._database.read(work)

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
                _add(
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
            delivery, lambda connection: _split(connection, delivery.id, second, reason=reason, refused=refused)
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
                _add(connection, delivery.route, dead=1)

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
                _add(connection, delivery.route, unknown=delivery.count)

        await self._finish(delivery, work)

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

        return await self._database.transaction(work)

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
            return sum(_dig_up(connection, letter) for letter in ids)

        return await self._database.transaction(work)

    async def dead_discard(self, ids: Sequence[int]) -> int:
        def work(connection: sqlite3.Connection) -> int:
            discarded = 0
            for letter in ids:
                for route, _, _, _, replay in connection.execute(queries.UNBURY, (letter,)).fetchall():
                    discarded += 1
                    if not replay:
                        _add(connection, route, dead=-1, discarded=1)
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
                        _insert(connection, route, chunk, passed=acceptances, replay=True)
            return sum(map(rules.count, spans))

        return await self._database.transaction(work)

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


def _topic(route: str) -> str:
    return route.rpartition("/")[2]


def _next(connection: sqlite3.Connection, route: str) -> tuple[int, int]:
    """The lowest number that no delivery was cut for, and how many deliveries were accepted so far."""
    row = connection.execute(queries.NEXT, (route,)).fetchone()
    if row is None:
        raise NotThere(f"there is no route {route}")
    return row[0], row[1]


def _cut(connection: sqlite3.Connection, where: dict[str, Any], *, closed: int, max_records: int) -> Delivery | None:
    """A new delivery from the lowest number that none was cut for; None when there is none, or too many wait."""
    route = where["route"]
    first, acceptances = _next(connection, route)
    if first >= closed or connection.execute(queries.WAITING_BATCHES, where).fetchone()[0] >= rules.MAX_WAITING:
        return None
    last = min(first + max_records, closed) - 1
    connection.execute(queries.MOVE_NEXT, (last + 1, route))
    return _insert(connection, route, (first, last), passed=acceptances)


def _fresh_single(connection: sqlite3.Connection, where: dict[str, Any], closed: int) -> Delivery | None:
    single = rows.delivery(connection, queries.FRESH_SINGLE, where)
    if single is not None:
        return single
    batch = rows.delivery(connection, queries.NEWEST_BATCH, where)
    if batch is None:
        return _cut(connection, where, closed=closed, max_records=1)
    second = _split(connection, batch.id, batch.last, reason=batch.last_error, refused=False)
    return None if second is None else rows.one(connection, batch.route, second)


def _split(
    connection: sqlite3.Connection, delivery_id: int, second: int, *, reason: str | None, refused: bool
) -> int | None:
    """The id of the second child; None when the parent was skipped meanwhile."""
    row = connection.execute(queries.REMOVE, (delivery_id,)).fetchone()
    if row is None:
        return None
    route, first, last, replay, proof = row
    _, acceptances = _next(connection, route)
    insert = partial(
        _insert,
        connection,
        route,
        passed=acceptances,
        proof=acceptances if refused else proof,
        last_error=reason,
        replay=bool(replay),
    )
    insert((first, second - 1))
    return insert((second, last)).id


def _insert(
    connection: sqlite3.Connection,
    route: str,
    span: rules.Range,
    *,
    passed: int,
    proof: int | None = None,
    last_error: str | None = None,
    replay: bool = False,
    kept_at: float | None = None,
    kept: bytes | None = None,
) -> Delivery:
    values = {
        "route": route,
        "first": span[0],
        "last": span[1],
        "key": rules.new_key(),
        "passed": passed,
        "proof": proof,
        "last_error": last_error,
        "replay": replay,
        "kept_at": kept_at,
        "kept": kept,
    }
    inserted = connection.execute(queries.INSERT, values).lastrowid
    assert inserted is not None
    return rows.one(connection, route, inserted)


def _dig_up(connection: sqlite3.Connection, letter: int) -> int:
    """A dead letter becomes a delivery again, with its record beside it; the number of letters that were there."""
    row = connection.execute(queries.UNBURY, (letter,)).fetchone()
    if row is None:
        return 0
    route, number, committed_at, record, replay = row
    try:
        _, acceptances = _next(connection, route)
    except NotThere as error:
        raise NotAllowed(f"{error} any more: its dead letters can only be discarded") from error
    _insert(
        connection, route, (number, number), passed=acceptances, replay=bool(replay), kept_at=committed_at, kept=record
    )
    if not replay:
        _add(connection, route, dead=-1)
    return 1


def _add(connection: sqlite3.Connection, route: str, **terms: int) -> None:
    changed = {term: n for term, n in terms.items() if n}
    assert changed.keys() <= set(TERMS)
    if changed:
        connection.execute(queries.add(list(changed)), (*changed.values(), route))
