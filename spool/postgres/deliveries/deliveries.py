"""
The deliveries on PostgreSQL. Any node may send them.

A method reads rows and applies the rules. Then one statement writes the change, unless the rows have changed
since; then the method starts again. So no lock is held while rules run.

Before a delivery is sent, a standby must have its row, with its range, key and mark. Changes by operators are
confirmed in the same way. Results of sending are not: if one is lost, the delivery is only sent again under
the same key and mark.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TypeVar

from spool.clock import Clock
from spool.deliveries import ranges, routes, transitions
from spool.deliveries.settling import SentDeliveries, Transition
from spool.deliveries.stored import RouteChange, StoredDeadLetter, StoredDelivery, StoredRoute
from spool.deliveries.values import (
    OPEN,
    ORPHANED,
    UNKNOWN,
    DeadLetter,
    Delivery,
    PartialRefusal,
    RouteSpec,
    RouteState,
    UnknownDelivery,
    UnsettledDelivery,
)
from spool.errors import NotCertain, NotThere, SpoolUnavailable
from spool.leases import lease_name
from spool.log.accounting import route_topic
from spool.postgres.connections.standby import NO_STANDBY
from spool.postgres.database import Connection, Database, PipelinedTransaction, PostgresConnection
from spool.postgres.deliveries import delivery_rows, queries
from spool.postgres.deliveries.delivery_rows import (
    DeliveryRowAccess,
    NextDeliveryChooser,
    PostgresRoutes,
    take_due_delivery,
    take_suspect_delivery,
    take_untried_single_record_delivery,
)
from spool.postgres.leases import PostgresLeases
from spool.postgres.log.entries import highest_accepted_number, lowest_stored_number, topic_code
from spool.postgres.log.log import PostgresLog
from spool.record import Record
from spool.sql import lake

T = TypeVar("T")
CLOSE_EVERY_S = 1.0  # minimum seconds between commits whose only purpose is to close records
WAITS_S = 60.0  # seconds for which the reason of a waiting route is shown; its sender tries again sooner
ATTEMPTS = 20  # attempts per method while other processes change the same rows


class RowsChangedMeanwhile(Exception):
    """Raised if rows that a change is based on have changed, so that the method starts again."""


class PostgresDeliveries(SentDeliveries):
    _log: PostgresLog

    def __init__(self, database: Database, *, log: PostgresLog, leases: PostgresLeases, clock: Clock) -> None:
        super().__init__(log, clock)
        self._database = database
        self._leases = leases
        self._routes = PostgresRoutes(database)
        # Deliveries that workers of a route are sending: id -> fence. A route's entries are deleted when the
        # session or the route's lease is lost.
        self._in_hand: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._turns: dict[str, object] = {}  # route -> the turn of the lease in which its workers run
        # Workers of a route choose one after the other, so that two workers do not try to take the same delivery.
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Deliveries that this session took but did not send, because a standby may not have their rows: id ->
        # fence. `_waits` then has the reasons why routes wait.
        self._unsent: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._waits: dict[str, tuple[str, float]] = {}
        # Routes with records whose waiting time has passed, but which the newest commit does not mark as
        # closed. Such records count as open, so a commit is requested from time to time.
        self._behind: defaultdict[str, bool] = defaultdict(bool)
        self._closes_at = clock.monotonic()
        self._named: frozenset[str] = frozenset()  # routes that this node's configuration names

    # -- choosing what to send -------------------------------------------------------------------------------

    async def set_routes(self, specs: Sequence[RouteSpec], *, at_start: bool = True) -> None:
        names = sorted(spec.name for spec in specs)
        previous_routes = self._leases.routes
        try:
            await self._leases.set_routes(names)
            await self._store_routes(specs, at_start=at_start)
        except BaseException:
            self._leases.routes = previous_routes  # after a failure, the previous routes continue
            raise
        self._named = frozenset(names)
        if at_start:
            self._in_hand.clear()

    async def _store_routes(self, specs: Sequence[RouteSpec], *, at_start: bool) -> None:
        names = sorted(spec.name for spec in specs)
        before = sorted(self._named - set(names))
        session = self._delivery_rows()

        def declare_routes(connection: Connection) -> None:
            ids = set[int]()
            if at_start:
                changed = session.execute(connection, queries.CHANGED_AT_START, {"in_hand": []}).fetchall()
                ids = {id for (id,) in changed}
                session.execute(connection, queries.TRY_AT_ONCE, {"ids": sorted(ids)})
            session.execute(connection, queries.LOCK_ROUTES)
            if at_start:
                for delivery, _ in session.read_deliveries(connection, queries.INTERRUPTED, {"in_hand": []}):
                    if delivery.id in ids:
                        self._require_written_rows(
                            session.write_change_if_rows_unchanged(
                                connection, transitions.reopen_interrupted(delivery), [delivery]
                            )
                        )
            for spec in sorted(specs, key=lambda spec: spec.name):
                highest = highest_accepted_number(self._database, connection, spec.topic)
                lowest = lowest_stored_number(self._database, connection, spec.topic)
                new = routes.new_route(spec, accepted=highest, oldest=lowest)
                values = {"name": new.name, "topic": new.topic, "required": new.required, **new.counts}
                session.execute(connection, queries.DECLARE, values)
            session.execute(connection, queries.ORPHAN, {"names": names, "before": before})

        await self._retry_until_unchanged(declare_routes)

    async def take_due_delivery(
        self, route: str, *, now: float, max_records: int, below_number: int | None = None
    ) -> Delivery | None:
        async with self._choosing[route]:
            return await self._take_chosen_delivery(
                partial(
                    take_due_delivery, now=now, max_records=max_records, below_record_number=below_number
                ),
                route,
            )

    async def take_test_delivery(
        self, route: str, *, now: float, max_rejected_records: int
    ) -> Delivery | None:
        def choose_probe(choice: NextDeliveryChooser) -> StoredDelivery | None:
            suspects: int = choice.read_value(queries.SUSPECTS)
            fresh = (
                take_untried_single_record_delivery(choice, now=now)
                if suspects < max_rejected_records
                else None
            )
            return fresh or take_suspect_delivery(choice, now=now)

        async with self._choosing[route]:
            return await self._take_chosen_delivery(choose_probe, route)

    async def next_due_at(self, route: str) -> float | None:
        session, where = self._delivery_rows(), self._statement_parameters_of_lease(route)

        def read_next_due_at(connection: Connection) -> float | None:
            at: float | None = session.execute(connection, queries.NEXT_DUE_AT, where).fetchone()[0]
            return at

        at = await self._database.read(read_next_due_at)
        if self._behind[route]:
            soon = self._clock.now() + CLOSE_EVERY_S
            return soon if at is None else min(at, soon)
        return at

    # -- results of sending ----------------------------------------------------------------------------------

    async def store_delivery_mark(self, delivery: Delivery, mark: str) -> None:
        where = {"id": delivery.id, "fence": delivery.fence, "mark": mark, "state": OPEN}

        def write_mark_and_count_rows(transaction: PipelinedTransaction) -> int:
            writes = self._delivery_rows(transaction)
            return int(
                writes.execute_as_whole_transaction(transaction.connection, queries.MARK, where).rowcount
            )

        if not await self._database.pool.run_pipelined(write_mark_and_count_rows):
            if self._in_hand[delivery.route].get(delivery.id) == delivery.fence:
                del self._in_hand[delivery.route][delivery.id]
            raise self._count_and_log_takeover(delivery)

    async def reopen_after_restore(self, *, unknown_outcome_reason: str | None) -> None:
        session = self._delivery_rows()

        def reopen_all_deliveries(connection: Connection) -> None:
            open_deliveries = session.read_deliveries(connection, queries.EVERY_OPEN)
            session.execute(connection, queries.LOCK_ROUTES)
            for delivery, _ in open_deliveries:
                change = transitions.reopen_after_restore(
                    delivery, unknown_outcome_reason=unknown_outcome_reason
                )
                self._require_written_rows(
                    session.write_change_if_rows_unchanged(connection, change, [delivery])
                )
            for row in (
                session.execute(connection, queries.EVERY_ROUTE).fetchall()
                if unknown_outcome_reason is not None
                else ()
            ):
                route = delivery_rows.read_route_row(row)
                highest = highest_accepted_number(self._database, connection, route.topic)
                change = transitions.hold_unassigned_records(
                    route, accepted=highest, reason=unknown_outcome_reason or ""
                )
                self._require_written_rows(
                    session.write_change_if_rows_unchanged(connection, change, expected_route=route)
                )

        await self._retry_until_unchanged(reopen_all_deliveries)

    async def deliveries_with_unknown_outcome(self) -> Sequence[UnknownDelivery]:
        session = self._delivery_rows()
        deliveries = await self._database.read(
            lambda connection: session.read_deliveries(connection, queries.UNKNOWNS)
        )
        return [
            transitions.unknown_delivery(delivery, route_topic(delivery.route)) for delivery, _ in deliveries
        ]

    async def settle_unknown(self, id: int, *, sent: bool) -> UnknownDelivery:
        delivery = await self._change_delivery(id, UNKNOWN, partial(transitions.resolve_unknown, sent=sent))
        if delivery is None:
            raise NotThere("no delivery with this id waits to be settled by hand")
        await self._leases.wake_tasks(lease_name(delivery.route))
        return transitions.unknown_delivery(delivery, route_topic(delivery.route))

    async def unsettled_deliveries(self) -> Sequence[UnsettledDelivery]:
        session = self._delivery_rows()

        def read_unsettled_deliveries(connection: Connection) -> list[UnsettledDelivery]:
            return [
                delivery_rows.read_unsettled_row(row)
                for row in session.execute(connection, queries.EVERY_UNSETTLED)
            ]

        return await self._database.read(read_unsettled_deliveries)

    # -- routes ----------------------------------------------------------------------------------------------

    async def set_route_state(self, route: str, state: str, reason: str | None) -> None:
        session = self._delivery_rows()
        values = {"route": route, "state": state, "reason": reason, "now": self._clock.now()}
        await self._database.run(lambda connection: session.execute(connection, queries.SET_STATE, values))
        self.version += 1

    async def route_states(self) -> Sequence[RouteState]:
        now = self._clock.now()

        def read_route_states_and_has_standby(connection: Connection) -> tuple[Sequence[RouteState], bool]:
            return self._routes.route_states(connection, now), self._database.has_standby(connection)

        states, has_standby = await self._database.snapshot(read_route_states_and_has_standby)
        return [
            replace(state, reason=self._waiting_reason(state, has_standby=has_standby)) for state in states
        ]

    def _waiting_reason(self, state: RouteState, *, has_standby: bool) -> str | None:
        if state.state == ORPHANED:
            return state.reason
        if not has_standby:
            return f"waits: {NO_STANDBY}"
        problem, at = self._waits.get(state.name, ("", 0.0))
        waits = problem if self._clock.monotonic() < at + WAITS_S else self._log.commit_problem
        return f"waits: {waits}" if waits else state.reason

    async def delete_route_and_count_discarded(self, route: str) -> int:
        session, where = self._delivery_rows(), {"route": route}

        def drop_route_and_count_queued(connection: Connection) -> int:
            routes.require_unconfigured_route(session.read_route(connection, route))
            queued = self._routes.accounting_counts_by_route(connection)[route]["queued"]
            session.execute(connection, queries.FORGET_DELIVERIES, where)
            session.execute(connection, queries.FORGET_REFUSALS, where)
            lake.delete_lake_deliveries(
                PostgresConnection(connection, self._database.fill_in_table_names), route
            )
            if session.execute(connection, queries.FORGET_ROUTE, where).rowcount != 1:
                raise RowsChangedMeanwhile  # no longer orphaned: a gateway's configuration names the route again
            return queued

        return await self._retry_until_unchanged(drop_route_and_count_queued, is_acknowledged_to_caller=True)

    async def replay_records(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        def store_replayed_range(transaction: PipelinedTransaction) -> int:
            connection, session = transaction.connection, self._delivery_rows(transaction)
            known = (
                session.read_route(connection, route)
                if dry_run
                else session.read_route_and_check_standby(connection, route)
            )
            span = {"topic": topic_code(known.topic), "since": since, "until": until}
            change = transitions.replay_settled_ranges(
                known,
                committed_ranges=session.execute(connection, queries.COMMITTED, span),
                unsettled_ranges=session.execute(connection, queries.UNSETTLED, {"route": route}).fetchall(),
                is_data_lake=lake.is_lake_route(
                    PostgresConnection(connection, self._database.fill_in_table_names), route
                ),
            )
            if not dry_run:
                session.write_change_if_rows_unchanged(connection, change)
            return sum(ranges.count_numbers(delivery.span) for delivery in change.added)

        replayed = await self._database.pool.run_pipelined(store_replayed_range)
        if not dry_run:
            self.version += 1
            await self._leases.wake_tasks(lease_name(route))
        return replayed

    # -- rejected records ------------------------------------------------------------------------------------

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        session = self._delivery_rows()

        def read_partial_refusals(connection: Connection) -> list[PartialRefusal]:
            return delivery_rows.read_refusal_rows(
                session.execute(connection, queries.REFUSALS, {"route": route})
            )

        return await self._database.read(read_partial_refusals)

    async def dead_letters(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        session = self._delivery_rows()

        def read_dead_letters(connection: Connection) -> list[StoredDeadLetter]:
            return [
                delivery_rows.read_dead_letter_row(row)
                for row in session.execute(connection, queries.DEAD, {"route": route})
            ]

        return await self._database.read(read_dead_letters)

    async def retry_dead_letters(self, ids: Sequence[int]) -> int:
        def retry_dead_letter(letter: StoredDeadLetter, route: StoredRoute | None) -> RouteChange:
            return transitions.retry_dead_letter(letter, route)

        return await self._change_dead_letters(ids, retry_dead_letter)

    async def edit_and_retry_dead_letter(self, id: int, record: Record) -> None:
        def edit_and_retry_letter(letter: StoredDeadLetter, route: StoredRoute | None) -> RouteChange:
            return transitions.retry_dead_letter(transitions.edit_first_dead_letter([letter], record), route)

        if not await self._change_dead_letters([id], edit_and_retry_letter):
            transitions.edit_first_dead_letter([], record)

    async def discard_dead_letters(self, ids: Sequence[int]) -> int:
        return await self._change_dead_letters(ids, lambda letter, _: transitions.discard_dead_letter(letter))

    # -- helpers ---------------------------------------------------------------------------------------------

    def _delivery_rows(self, transaction: PipelinedTransaction | None = None) -> DeliveryRowAccess:
        return DeliveryRowAccess(self._database, self._leases.session, transaction)

    def _statement_parameters_of_lease(self, route: str) -> dict[str, object]:
        lease = lease_name(route)
        turn = self._leases.lease_tenure_id(lease)
        if self._turns.get(route) != turn:
            self._in_hand[route].clear()
            self._turns[route] = turn
        return {"route": route, "lease": lease, "in_hand": list(self._in_hand[route])}

    @staticmethod
    def _require_written_rows(written: list[StoredDelivery] | None) -> None:
        if written is None:
            raise RowsChangedMeanwhile

    async def _take_chosen_delivery(
        self, choose: Callable[[NextDeliveryChooser], StoredDelivery | None], route: str
    ) -> Delivery | None:
        """
        Take the delivery that `choose` selects for this session. If none is due, close records whose waiting
        time has passed, and choose again.
        """
        delivery, closed = await self._take_delivery_and_read_watermark(choose, route)
        is_behind = self._log.lowest_open_number(route_topic(route)) > closed
        if delivery is None and is_behind and self._clock.monotonic() >= self._closes_at:
            self._closes_at = self._clock.monotonic() + CLOSE_EVERY_S
            await self._log.close_due_records()
            delivery, closed = await self._take_delivery_and_read_watermark(choose, route)
            is_behind = self._log.lowest_open_number(route_topic(route)) > closed
        self._behind[route] = delivery is None and is_behind
        if delivery is not None:
            self.version += 1
            self._in_hand[route][delivery.id] = delivery.fence
        return delivery

    async def _take_delivery_and_read_watermark(
        self, choose: Callable[[NextDeliveryChooser], StoredDelivery | None], route: str
    ) -> tuple[StoredDelivery | None, int]:
        """
        Take a delivery, and commit it. Return it with the watermark.

        If no standby has the row, raises SpoolUnavailable, and the route waits. Otherwise, if this machine
        were lost, the same records would be sent in another delivery under a second key.
        """
        where, unsent, deliveries = (
            self._statement_parameters_of_lease(route),
            self._unsent[route],
            list[StoredDelivery](),
        )

        def choose_delivery_and_read_watermark(
            transaction: PipelinedTransaction,
        ) -> tuple[StoredDelivery | None, int]:
            deliveries.clear()
            connection, session = transaction.connection, self._delivery_rows(transaction)
            for _ in range(ATTEMPTS):
                known = session.read_route_and_check_standby(connection, route)
                choice = NextDeliveryChooser(session, connection, known, where, unsent)
                delivery = choose(choice)
                if delivery is not None or not choice.has_moved:
                    break
            deliveries.extend([delivery] if delivery is not None else ())
            # `delivery` is None as well if other processes took all that are due. The worker then tries again soon.
            return (delivery, choice.closed_below)

        try:
            chosen = await self._database.pool.run_pipelined(choose_delivery_and_read_watermark)
        except NotCertain as error:
            unsent.update({delivery.id: delivery.fence for delivery in deliveries})
            self._waits[route] = str(error), self._clock.monotonic()
            raise
        except SpoolUnavailable as error:
            self._waits[route] = str(error), self._clock.monotonic()
            raise
        for delivery in deliveries:
            unsent.pop(delivery.id, None)
        self._waits.pop(route, None)
        return chosen

    async def _apply_transition(self, delivery: Delivery, transition: Transition) -> None:
        """
        Store the result of a delivery without waiting for a standby. The next send waits for one, which then
        also has this result, because changes reach it in order.
        """
        session, in_hand = self._delivery_rows(), self._in_hand[delivery.route]
        where = {"id": delivery.id, "state": OPEN}

        def write_transition_unless_taken_over(connection: Connection) -> bool:
            for _ in range(ATTEMPTS):
                stored = session.read_delivery(connection, queries.ONE, where)
                if stored is None:
                    return True
                if stored.delivery.fence != delivery.fence:
                    return False
                if (
                    session.write_change_if_rows_unchanged(
                        connection, transition(stored.delivery), [stored.delivery]
                    )
                    is not None
                ):
                    return True
            raise SpoolUnavailable(
                f"{delivery.route}: other processes keep changing this delivery; try again"
            )

        try:
            if not await self._database.run(write_transition_unless_taken_over):
                self._count_and_log_takeover(delivery)
            self.version += 1
            self._log.note_settled_deliveries()
        finally:
            if in_hand.get(delivery.id) == delivery.fence:
                del in_hand[delivery.id]

    async def _change_delivery(self, id: int, state: str, transition: Transition) -> StoredDelivery | None:
        def write_delivery_transition(transaction: PipelinedTransaction) -> StoredDelivery | None:
            connection, session = transaction.connection, self._delivery_rows(transaction)
            self._database.require_standby(connection)
            for _ in range(ATTEMPTS):
                stored = session.read_delivery(connection, queries.ONE, {"id": id, "state": state})
                if (
                    stored is None
                    or session.write_change_if_rows_unchanged(
                        connection, transition(stored.delivery), [stored.delivery]
                    )
                    is not None
                ):
                    return stored and stored.delivery
            raise SpoolUnavailable(f"other processes keep changing the delivery {id}; try again")

        stored = await self._database.pool.run_pipelined(write_delivery_transition)
        if stored is None:  # an earlier call may have changed the row without a confirmation
            await self._database.wait_until_confirmed()
        self.version += 1
        return stored

    async def _change_dead_letters(
        self, ids: Sequence[int], change: Callable[[StoredDeadLetter, StoredRoute | None], RouteChange]
    ) -> int:
        session = self._delivery_rows()

        def change_dead_letters(connection: Connection) -> list[RouteChange]:
            rows = session.execute(connection, queries.DEAD_LETTERS, {"ids": list(ids)}).fetchall()
            letters = [delivery_rows.read_dead_letter_row(row) for row in rows]
            # lock routes in the order of their names, to avoid deadlocks
            letters.sort(key=attrgetter("route"))
            changes = [change(letter, session.find_route(connection, letter.route)) for letter in letters]
            for route_change in changes:
                self._require_written_rows(session.write_change_if_rows_unchanged(connection, route_change))
            return changes

        changes = await self._retry_until_unchanged(change_dead_letters, is_acknowledged_to_caller=True)
        self.dead_version += 1
        for route in sorted({route_change.route for route_change in changes if route_change.added}):
            await self._leases.wake_tasks(lease_name(route))
        return len(changes)

    async def _retry_until_unchanged(
        self, work: Callable[[Connection], T], *, is_acknowledged_to_caller: bool = False
    ) -> T:
        """
        Run a transaction, again if the rows it is based on have changed.

        `is_acknowledged_to_caller`: the caller acknowledges the change, so a standby must confirm it.
        """

        def check_standby_and_work(connection: Connection) -> T:
            if is_acknowledged_to_caller:
                self._database.require_standby(connection)
            return work(connection)

        transaction = self._database.transaction
        if is_acknowledged_to_caller and self._database.needs_standby:
            transaction = partial(transaction, needs_standby=lambda _: True)
        for _ in range(ATTEMPTS):
            try:
                result = await transaction(check_standby_and_work)
            except RowsChangedMeanwhile:
                continue
            self.version += 1
            return result
        raise SpoolUnavailable("other processes keep changing these deliveries; try again")
