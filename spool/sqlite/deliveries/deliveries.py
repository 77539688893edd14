"""
The deliveries on SQLite: numbered requests, stored before they are first sent.

Every method is one transaction. Which deliveries are being sent is only known in memory, so after a crash all
deliveries are due.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from math import inf
from typing import Any, TypeVar

from spool.clock import Clock
from spool.deliveries import ranges, routes, transitions
from spool.deliveries.settling import SentDeliveries, Transition
from spool.deliveries.stored import StoredDeadLetter, StoredDelivery
from spool.deliveries.values import (
    OPEN,
    UNKNOWN,
    DeadLetter,
    Delivery,
    PartialRefusal,
    RouteSpec,
    RouteState,
    UnknownDelivery,
    UnsettledDelivery,
)
from spool.errors import NotThere, SpoolUnavailable
from spool.log.accounting import route_topic
from spool.record import Record
from spool.sql import lake
from spool.sqlite.database import Database, SqliteConnection
from spool.sqlite.deliveries import delivery_rows, queries
from spool.sqlite.deliveries.delivery_rows import accounting_counts_by_route, route_states
from spool.sqlite.log.entries import highest_accepted_number, lowest_stored_number
from spool.sqlite.log.log import SqliteLog

T = TypeVar("T")


class SqliteDeliveries(SentDeliveries):
    def __init__(self, database: Database, *, log: SqliteLog, clock: Clock) -> None:
        super().__init__(log, clock)
        self._noted = log.note_settled_deliveries
        self._database = database
        # deliveries that are being sent: id -> fence
        self._in_hand: defaultdict[str, dict[int, int]] = defaultdict(dict)
        # Workers of a route choose one after the other, so that two workers never get the same delivery.
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Routes without a due delivery: the watermark at the last check, and the time when the next delivery
        # is due. Without this, queries of idle workers would often occupy the thread that commits.
        self._quiet: dict[str, tuple[int, float]] = {}
        self._changes = 0

    # -- choosing what to send -------------------------------------------------------------------------------

    async def set_routes(self, specs: Sequence[RouteSpec], *, at_start: bool = True) -> None:
        def declare_routes(connection: sqlite3.Connection) -> None:
            known = {name for (name,) in connection.execute(queries.NAMES)}
            for spec in specs:
                if spec.name in known:
                    connection.execute(queries.REDECLARE, (spec.required, spec.name))
                else:
                    highest = highest_accepted_number(connection, spec.topic)
                    lowest = lowest_stored_number(connection, spec.topic)
                    delivery_rows.add_route(
                        connection, routes.new_route(spec, accepted=highest, oldest=lowest)
                    )
            orphaned = known - {spec.name for spec in specs}
            connection.executemany(queries.ORPHAN, [(name,) for name in orphaned])
            if at_start:
                for delivery in list(delivery_rows.read_deliveries(connection, queries.INTERRUPTED)):
                    delivery_rows.write_change(connection, transitions.reopen_interrupted(delivery))
                connection.execute(queries.TRY_AT_ONCE)

        await self._run_write(declare_routes)
        if at_start:
            self._in_hand.clear()
        self._note_change()

    async def take_due_delivery(
        self, route: str, *, now: float, max_records: int, below_number: int | None = None
    ) -> Delivery | None:
        async with self._choosing[route]:
            in_hand = frozenset(self._in_hand[route])
            closed = self._closed_below(route)
            closed = closed if below_number is None else min(closed, below_number)
            quiet_at, quiet_until = self._quiet.get(route, (0, 0.0))
            if quiet_at == closed and now < quiet_until:
                return None

            def take_or_make_delivery(
                connection: sqlite3.Connection,
            ) -> tuple[StoredDelivery | None, float | None]:
                delivery = _take_due_or_make(
                    connection, route, in_hand, now=now, lowest_open_number=closed, max_records=max_records
                )
                next_at = None
                if delivery is None:
                    where = _statement_parameters(route, in_hand, now=now)
                    delivery = delivery_rows.mark_sending(
                        connection, delivery_rows.read_delivery(connection, queries.DUE_REPLAY, where)
                    )
                    next_at = None if delivery else _read_next_due_at(connection, where)
                return delivery, next_at

            changes = self._changes
            delivery, next_at = await self._run_write(take_or_make_delivery)
            if delivery is None and changes == self._changes:
                self._quiet[route] = closed, inf if next_at is None else next_at
            return self._note_as_being_sent(delivery)

    async def take_test_delivery(
        self, route: str, *, now: float, max_rejected_records: int
    ) -> Delivery | None:
        async with self._choosing[route]:
            in_hand = frozenset(self._in_hand[route])
            where = _statement_parameters(route, in_hand, now=now)
            closed = self._closed_below(route)

            def take_suspect_delivery(connection: sqlite3.Connection) -> StoredDelivery | None:
                (suspects,) = connection.execute(queries.SUSPECTS, (route,)).fetchone()
                fresh = (
                    _take_single_record_not_rejected_alone(connection, where, in_hand, closed)
                    if suspects < max_rejected_records
                    else None
                )
                return fresh or delivery_rows.mark_sending(
                    connection, delivery_rows.read_delivery(connection, queries.SUSPECT, where)
                )

            # choosing may split a delivery, so the change is noted
            return self._note_as_being_sent(await self._write_and_note_change(take_suspect_delivery))

    async def next_due_at(self, route: str) -> float | None:
        if route in self._quiet:
            _, quiet_until = self._quiet[route]
            return None if quiet_until == inf else quiet_until
        where = _statement_parameters(route, self._in_hand[route].keys(), now=0.0)
        return await self._run_read(lambda connection: _read_next_due_at(connection, where))

    # -- results of sending ----------------------------------------------------------------------------------

    async def store_delivery_mark(self, delivery: Delivery, mark: str) -> None:
        values = (mark, delivery.id, delivery.fence)
        if not await self._run_write(lambda connection: connection.execute(queries.MARK, values).rowcount):
            if self._in_hand[delivery.route].get(delivery.id) == delivery.fence:
                del self._in_hand[delivery.route][delivery.id]
            raise self._count_and_log_takeover(delivery)

    async def reopen_after_restore(self, *, unknown_outcome_reason: str | None) -> None:
        def reopen_all_deliveries(connection: sqlite3.Connection) -> None:
            for delivery in list(delivery_rows.read_deliveries(connection, queries.EVERY_OPEN)):
                delivery_rows.write_change(
                    connection,
                    transitions.reopen_after_restore(delivery, unknown_outcome_reason=unknown_outcome_reason),
                )
            for row in (
                connection.execute(queries.EVERY_ROUTE).fetchall()
                if unknown_outcome_reason is not None
                else ()
            ):
                route = delivery_rows.read_route_row(row)
                highest = highest_accepted_number(connection, route.topic)
                delivery_rows.write_change(
                    connection,
                    transitions.hold_unassigned_records(
                        route, accepted=highest, reason=unknown_outcome_reason or ""
                    ),
                )

        await self._write_and_note_change(reopen_all_deliveries)

    async def deliveries_with_unknown_outcome(self) -> Sequence[UnknownDelivery]:
        def read_deliveries_with_unknown_outcome(connection: sqlite3.Connection) -> list[StoredDelivery]:
            return list(delivery_rows.read_deliveries(connection, queries.UNKNOWNS))

        deliveries = await self._run_read(read_deliveries_with_unknown_outcome)
        return [
            transitions.unknown_delivery(delivery, route_topic(delivery.route)) for delivery in deliveries
        ]

    async def settle_unknown(self, id: int, *, sent: bool) -> UnknownDelivery:
        def store_delivery_resolution(connection: sqlite3.Connection) -> StoredDelivery:
            delivery = delivery_rows.read_delivery(connection, queries.ONE, (id, UNKNOWN))
            if delivery is None:
                raise NotThere("no delivery with this id waits to be settled by hand")
            delivery_rows.write_change(connection, transitions.resolve_unknown(delivery, sent=sent))
            return delivery

        delivery = await self._write_and_note_change(store_delivery_resolution)
        return transitions.unknown_delivery(delivery, route_topic(delivery.route))

    async def unsettled_deliveries(self) -> Sequence[UnsettledDelivery]:
        def read_unsettled_deliveries(connection: sqlite3.Connection) -> list[UnsettledDelivery]:
            return [
                delivery_rows.read_unsettled_row(row) for row in connection.execute(queries.EVERY_UNSETTLED)
            ]

        return await self._run_read(read_unsettled_deliveries)

    # -- routes ----------------------------------------------------------------------------------------------

    async def set_route_state(self, route: str, state: str, reason: str | None) -> None:
        values = {"route": route, "state": state, "reason": reason, "now": self._clock.now()}
        await self._run_write(lambda connection: connection.execute(queries.SET_STATE, values))

    async def route_states(self) -> Sequence[RouteState]:
        now = self._clock.now()
        return await self._run_read(lambda connection: route_states(connection, now))

    async def delete_route_and_count_discarded(self, route: str) -> int:
        def drop_route(connection: sqlite3.Connection) -> int:
            routes.require_unconfigured_route(delivery_rows.read_route(connection, route))
            queued = accounting_counts_by_route(connection)[route]["queued"]
            lake.delete_lake_deliveries(SqliteConnection(connection), route)
            for statement in (queries.FORGET_DELIVERIES, queries.FORGET_REFUSALS, queries.FORGET_ROUTE):
                connection.execute(statement, (route,))
            return queued

        return await self._write_and_note_change(drop_route)

    async def replay_records(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        def store_replayed_range(connection: sqlite3.Connection) -> int:
            known = delivery_rows.read_route(connection, route)
            change = transitions.replay_settled_ranges(
                known,
                committed_ranges=connection.execute(queries.COMMITTED, (known.topic, since, until)),
                unsettled_ranges=connection.execute(queries.UNSETTLED, {"route": route}),
                is_data_lake=lake.is_lake_route(SqliteConnection(connection), route),
            )
            if not dry_run:
                delivery_rows.write_change(connection, change)
            return sum(ranges.count_numbers(delivery.span) for delivery in change.added)

        return await self._write_and_note_change(store_replayed_range)

    # -- rejected records ------------------------------------------------------------------------------------

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        def read_partial_refusals(connection: sqlite3.Connection) -> list[PartialRefusal]:
            return [
                delivery_rows.read_refusal_row(row) for row in connection.execute(queries.REFUSALS, (route,))
            ]

        return await self._run_read(read_partial_refusals)

    async def dead_letters(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        def read_dead_letters(connection: sqlite3.Connection) -> list[StoredDeadLetter]:
            return [
                delivery_rows.read_dead_letter_row(row) for row in connection.execute(queries.DEAD, (route,))
            ]

        return await self._run_read(read_dead_letters)

    async def retry_dead_letters(self, ids: Sequence[int]) -> int:
        def retry_dead_letters(connection: sqlite3.Connection) -> int:
            letters = _read_dead_letters(connection, ids)
            for letter in letters:
                known = delivery_rows.find_route(connection, letter.route)
                delivery_rows.write_change(connection, transitions.retry_dead_letter(letter, known))
            return len(letters)

        retried = await self._write_and_note_change(retry_dead_letters)
        self.dead_version += 1
        return retried

    async def edit_and_retry_dead_letter(self, id: int, record: Record) -> None:
        def edit_and_retry_dead_letter(connection: sqlite3.Connection) -> None:
            letter = transitions.edit_first_dead_letter(_read_dead_letters(connection, [id]), record)
            delivery_rows.write_change(
                connection,
                transitions.retry_dead_letter(letter, delivery_rows.find_route(connection, letter.route)),
            )

        await self._write_and_note_change(edit_and_retry_dead_letter)
        self.dead_version += 1

    async def discard_dead_letters(self, ids: Sequence[int]) -> int:
        def discard_dead_letters(connection: sqlite3.Connection) -> int:
            letters = _read_dead_letters(connection, ids)
            for letter in letters:
                delivery_rows.write_change(connection, transitions.discard_dead_letter(letter))
            return len(letters)

        discarded = await self._run_write(discard_dead_letters)
        self.dead_version += 1
        return discarded

    # -- helpers ---------------------------------------------------------------------------------------------

    async def _run_write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction. Raises SpoolUnavailable if the file cannot be written now."""
        try:
            result = await self._database.transaction(work)
            self.version += 1
            return result
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"the deliveries cannot be written: {error}") from error

    async def _run_read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._database.read(work)
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"the deliveries cannot be read: {error}") from error

    def _closed_below(self, route: str) -> int:
        return self._log.lowest_open_number(route_topic(route))

    def _note_as_being_sent(self, delivery: StoredDelivery | None) -> Delivery | None:
        if delivery is not None:
            self._in_hand[delivery.route][delivery.id] = delivery.fence
        return delivery

    async def _apply_transition(self, delivery: Delivery, transition: Transition) -> None:
        def write_delivery_transition(connection: sqlite3.Connection) -> bool:
            stored = delivery_rows.read_delivery(connection, queries.ONE, (delivery.id, OPEN))
            if stored is not None and stored.fence != delivery.fence:
                return False
            if stored is not None:
                delivery_rows.write_change(connection, transition(stored))
            return True

        in_hand = self._in_hand[delivery.route]
        try:
            if not await self._run_write(write_delivery_transition):
                self._count_and_log_takeover(delivery)
            self._noted()
        finally:
            if in_hand.get(delivery.id) == delivery.fence:
                del in_hand[delivery.id]
            self._changes += 1
            self._quiet.pop(delivery.route, None)

    async def _write_and_note_change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._run_write(work)
        finally:
            self._note_change()

    def _note_change(self) -> None:
        self._changes += 1
        self._quiet.clear()


def _statement_parameters(route: str, ids_being_sent: Set[int], *, now: float) -> dict[str, Any]:
    return {"route": route, "now": now, "in_hand": json.dumps(list(ids_being_sent))}


def _read_next_due_at(connection: sqlite3.Connection, query_parameters: dict[str, Any]) -> float | None:
    at: float | None = connection.execute(queries.NEXT_DUE_AT, query_parameters).fetchone()[0]
    return at


def _take_due_or_make(
    connection: sqlite3.Connection,
    name: str,
    ids_being_sent: Set[int],
    *,
    now: float,
    lowest_open_number: int,
    max_records: int,
) -> StoredDelivery | None:
    waiting = 0
    for id, not_before, is_apart in connection.execute(queries.BACKLOG, (name,)):
        if id in ids_being_sent:
            continue
        if not_before <= now:
            return delivery_rows.mark_sending(
                connection, delivery_rows.read_delivery(connection, queries.ONE, (id, OPEN))
            )
        waiting += not is_apart
    route = delivery_rows.read_route(connection, name)
    change = transitions.make_next_delivery(
        route, waiting=waiting, lowest_open_number=lowest_open_number, max_records=max_records
    )
    return None if change is None else delivery_rows.write_change(connection, change)[0]


def _take_single_record_not_rejected_alone(
    connection: sqlite3.Connection,
    query_parameters: dict[str, Any],
    ids_being_sent: Set[int],
    lowest_open_number: int,
) -> StoredDelivery | None:
    """
    Take a delivery of one record that was not yet rejected when sent alone. If there is none, split a record
    off a batch, or begin a new delivery. Return None if no record waits.
    """
    single = delivery_rows.read_delivery(connection, queries.FRESH_SINGLE, query_parameters)
    if single is not None:
        return delivery_rows.mark_sending(connection, single)
    batch = delivery_rows.read_delivery(connection, queries.NEWEST_BATCH, query_parameters)
    if batch is None:
        return _take_due_or_make(
            connection,
            query_parameters["route"],
            ids_being_sent,
            now=-inf,
            lowest_open_number=lowest_open_number,
            max_records=1,
        )
    _, single = delivery_rows.write_change(
        connection, transitions.split_delivery(batch, batch.last, reason=batch.last_error)
    )
    return delivery_rows.mark_sending(connection, single)


def _read_dead_letters(connection: sqlite3.Connection, ids: Sequence[int]) -> list[StoredDeadLetter]:
    rows = [connection.execute(queries.DEAD_LETTER, (id,)).fetchone() for id in dict.fromkeys(ids)]
    return [delivery_rows.read_dead_letter_row(row) for row in rows if row is not None]
