"""The routes' side of the log without a disk: the same verbs and the same answers, nothing kept after the process."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import count

from msgspec.structs import replace

from spool.clock import Clock
from spool.deliveries import ranges, routes, rules, transitions
from spool.deliveries.routes import Backlog
from spool.deliveries.sent import SentDeliveries, Transition
from spool.deliveries.stored import RouteChange, StoredDeadLetter, StoredDelivery, StoredRoute
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
from spool.errors import NotThere
from spool.memory.log import MemoryLog
from spool.memory.tables import MemoryTables
from spool.record import Record
from spool.sql import lake


class MemoryDeliveries(SentDeliveries):
    _log: MemoryLog

    def __init__(self, log: MemoryLog, tables: MemoryTables, *, clock: Clock) -> None:
        super().__init__(log, clock)
        self._tables = tables
        self._routes: dict[str, StoredRoute] = {}
        self._deliveries: dict[int, StoredDelivery] = {}
        self._in_hand: dict[int, int] = {}  # id -> fence
        self._dead: dict[int, StoredDeadLetter] = {}
        self._refusals: dict[str, deque[PartialRefusal]] = {}
        self._ids = count(1)

    # -- choosing what to send -------------------------------------------------------------------------------

    async def declare(self, specs: Sequence[RouteSpec], *, at_start: bool = True) -> None:
        self._routes = {name: replace(route, orphaned=True) for name, route in self._routes.items()}
        for spec in specs:
            known = self._routes.get(spec.name)
            if known is None:
                highest = self._log.accepted(spec.topic)
                lowest = self._log.oldest(spec.topic)
                known = routes.begin(spec, accepted=highest, oldest=lowest)
            self._routes[spec.name] = replace(known, required=spec.required, orphaned=False)
        if not at_start:
            return
        for id in [id for id, delivery in self._deliveries.items() if delivery.sending]:
            self._write(transitions.interrupted(self._deliveries[id]))
        for id, delivery in self._deliveries.items():
            self._deliveries[id] = replace(delivery, not_before=0.0)
        self._in_hand.clear()
        self.version += 1

    async def due(
        self, route: str, *, now: float, max_records: int, below: int | None = None
    ) -> Delivery | None:
        known = self._known(route)
        free = [delivery for delivery in self._free(route) if delivery.not_before <= now]
        normal = next((delivery for delivery in free if not delivery.replay), None)
        if normal is not None:
            return self._hold(self._take(normal))
        return self._hold(self._cut(known, max_records, below) or self._take(next(iter(free), None)))

    async def probe(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        known = self._known(route)
        suspects = sum(delivery.refusals > 0 for delivery in self._open(route))
        free = [delivery for delivery in self._free(route) if delivery.not_before <= now]
        singles = [delivery for delivery in free if delivery.count == 1]
        fresh = self._fresh_single(known, singles) if suspects < max_suspects else None
        whole = (delivery for delivery in free if delivery.count == 1 or delivery.ambiguous)
        return self._hold(fresh or self._take(next(whole, None)))

    async def next_due_at(self, route: str) -> float | None:
        self._known(route)
        return min((delivery.not_before for delivery in self._free(route)), default=None)

    # -- what became of it -----------------------------------------------------------------------------------

    async def mark(self, delivery: Delivery, mark: str) -> None:
        stored = self._deliveries.get(delivery.id)
        if stored is None or stored.fence != delivery.fence:
            if self._in_hand.get(delivery.id) == delivery.fence:
                del self._in_hand[delivery.id]
            raise self._taken_over(delivery)
        self._deliveries[delivery.id] = replace(stored, mark=mark)

    async def reopen_restored(self, *, hold_back: str | None) -> None:
        for delivery in [each for each in self._deliveries.values() if each.state == OPEN]:
            self._write(transitions.reopen_restored(delivery, hold_back=hold_back))
        for route in list(self._routes.values()) if hold_back is not None else ():
            highest = self._log.accepted(route.topic)
            self._write(transitions.hold_rest(route, accepted=highest, reason=hold_back or ""))

    async def unknowns(self) -> Sequence[UnknownDelivery]:
        found = [delivery for _, delivery in sorted(self._deliveries.items()) if delivery.state == UNKNOWN]
        return [self._unknown(delivery) for delivery in found]

    async def resolve(self, id: int, *, sent: bool) -> UnknownDelivery:
        found = self._stored(id, UNKNOWN)
        if found is None:
            raise NotThere("there is no delivery with this id that waits to be settled by hand")
        self._write(transitions.resolve(found, sent=sent))
        self._in_hand.pop(id, None)
        return self._unknown(found)

    async def unsettled(self) -> Sequence[UnsettledDelivery]:
        names = [each.name for each in dataclasses.fields(UnsettledDelivery)]
        stored = [delivery for _, delivery in sorted(self._deliveries.items())]
        return [UnsettledDelivery(**{name: getattr(one, name) for name in names}) for one in stored]

    # -- routes ----------------------------------------------------------------------------------------------

    async def set_state(self, route: str, state: str, reason: str | None) -> None:
        self._routes[route] = routes.in_state(self._known(route), state, reason, now=self._clock.now())
        self.version += 1

    async def routes(self) -> Sequence[RouteState]:
        return [self._state(route) for _, route in sorted(self._routes.items())]

    async def drop(self, route: str) -> int:
        known = self._known(route)
        routes.check_drop(known)
        queued = routes.queued(known, self._backlog(route), accepted=self._log.accepted(known.topic))
        del self._routes[route]
        for delivery in self._of(route):
            del self._deliveries[delivery.id]
        self._refusals.pop(route, None)
        self._tables.change(lambda connection: lake.forget(connection, route))
        self.version += 1
        return queued

    async def replay(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        known = self._known(route)
        committed = [
            (entry.first, entry.last)
            for entry in self._log.entries(known.topic, 1, known.next - 1)
            if since <= entry.committed_at < until
        ]
        unsettled = [delivery.span for delivery in self._of(route)]
        unsettled += [(letter.number, letter.number) for letter in await self.dead(route=route)]
        lands = self._tables.change(lambda connection: lake.lands(connection, route))
        change = transitions.replay(known, committed=committed, unsettled=unsettled, lands=lands)
        if not dry_run:
            self._write(change)
        return sum(ranges.count(delivery.span) for delivery in change.added)

    # -- what destinations refused ---------------------------------------------------------------------------

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        return [
            refusal
            for name, refusals in sorted(self._refusals.items())
            for refusal in refusals
            if route in (None, name)
        ]

    async def dead(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        return [letter for letter in self._dead.values() if route in (None, letter.route)]

    async def dead_retry(self, ids: Sequence[int]) -> int:
        letters = self._dead_letters(ids)
        changes = [transitions.retry_dead(letter, self._routes.get(letter.route)) for letter in letters]
        for change in changes:
            self._write(change)
        self.dead_version += 1
        return len(changes)

    async def dead_edit(self, id: int, record: Record) -> None:
        letter = transitions.edit_dead(self._dead_letters([id]), record)
        self._write(transitions.retry_dead(letter, self._routes.get(letter.route)))
        self.dead_version += 1

    async def dead_discard(self, ids: Sequence[int]) -> int:
        letters = self._dead_letters(ids)
        for letter in letters:
            self._write(transitions.discard_dead(letter))
        self.dead_version += 1
        return len(letters)

    # -- what the log asks -----------------------------------------------------------------------------------

    def route_terms(self) -> dict[str, dict[str, int]]:
        """The terms of every route, `queued` among them; replays stand apart."""
        return {
            name: routes.terms(route, self._backlog(name), accepted=self._log.accepted(route.topic))
            for name, route in self._routes.items()
        }

    def needed_from(self, topic: str) -> int | None:
        """
        The lowest number that a required route still has to read; None when no route is on the topic.

        NOBODY_NEEDS when all of them may be skipped.
        """
        on_topic = [route for route in self._routes.values() if route.topic == topic]
        if not on_topic:
            return None
        required = {route.name for route in on_topic if route.required}
        uncut = [route.next for route in on_topic if route.required]
        cut = [
            delivery.first
            for delivery in self._deliveries.values()
            if delivery.route in required and delivery.kept is None
        ]
        return min([*uncut, *cut, rules.NOBODY_NEEDS])

    def skip_below(self, topic: str, number: int) -> int:
        """Give up what optional routes have not delivered below a number; returns the records, over all routes."""
        total = 0
        optional = [route for route in self._routes.values() if route.topic == topic and not route.required]
        for route in optional:
            below = [one for one in self._open(route.name) if one.first < number and one.kept is None]
            change = transitions.skip(route, below, number)
            self._write(change)
            total += change.counts["skipped"]
        return total

    # -- the parts -------------------------------------------------------------------------------------------

    def _known(self, name: str) -> StoredRoute:
        return routes.known(self._routes.get(name), name)

    def _stored(self, id: int, state: str) -> StoredDelivery | None:
        """A delivery in some state; None: it was skipped or dropped while it was being sent, and is counted there."""
        found = self._deliveries.get(id)
        if found is None or found.state != state:
            return None
        return found.read_with(self._routes[found.route].acceptances)

    def _of(self, route: str) -> list[StoredDelivery]:
        return [delivery for delivery in self._deliveries.values() if delivery.route == route]

    def _open(self, route: str) -> list[StoredDelivery]:
        """Oldest first, replays after everything else."""
        found = [delivery for delivery in self._of(route) if delivery.state == OPEN]
        return sorted(found, key=lambda delivery: (delivery.replay, delivery.first))

    def _free(self, route: str) -> list[StoredDelivery]:
        """Open, and not being sent."""
        return [delivery for delivery in self._open(route) if delivery.id not in self._in_hand]

    def _take(self, delivery: StoredDelivery | None) -> StoredDelivery | None:
        if delivery is None:
            return None
        self._write(transitions.take(delivery))
        return self._deliveries[delivery.id]

    def _hold(self, delivery: StoredDelivery | None) -> Delivery | None:
        """A delivery that was taken or cut just now is being sent."""
        if delivery is None:
            return None
        self._in_hand[delivery.id] = delivery.fence
        return delivery.read_with(self._routes[delivery.route].acceptances)

    def _cut(self, route: StoredRoute, max_records: int, below: int | None = None) -> StoredDelivery | None:
        waiting = sum(not delivery.replay and not delivery.waits_apart for delivery in self._free(route.name))
        closed = self._log.closed_below(route.topic)
        closed = closed if below is None else min(closed, below)
        change = transitions.cut(route, waiting=waiting, closed_below=closed, max_records=max_records)
        return None if change is None else self._write(change)[0]

    def _fresh_single(self, route: StoredRoute, singles: Iterable[StoredDelivery]) -> StoredDelivery | None:
        """A single record that was never refused alone, made of a batch or of the log if need be; it is taken."""
        for single in singles:
            if not single.refusals and single.kept is None:
                return self._take(single)
        batches = [one for one in self._free(route.name) if one.count > 1 and not one.ambiguous]
        if not batches:
            return self._cut(route, 1)
        newest = min(batches, key=lambda delivery: (delivery.replay, -delivery.first))
        newest = newest.read_with(route.acceptances)
        return self._take(self._write(transitions.split(newest, newest.last, reason=newest.last_error))[-1])

    async def _finish(self, delivery: Delivery, transition: Transition) -> None:
        stored = self._stored(delivery.id, OPEN)
        if stored is not None and stored.fence != delivery.fence:
            self._taken_over(delivery)
            return
        try:
            if stored is not None:
                self._write(transition(stored))
        finally:
            self._in_hand.pop(delivery.id, None)

    def _write(self, change: RouteChange) -> list[StoredDelivery]:
        """Apply a change; return the added deliveries with their ids."""
        self.version += 1
        for id in change.removed:
            del self._deliveries[id]
        if change.changed is not None:
            self._deliveries[change.changed.id] = change.changed
        added = [replace(delivery, id=next(self._ids)) for delivery in change.added]
        self._deliveries.update({delivery.id: delivery for delivery in added})
        route = self._routes.get(change.route)
        if route is not None:
            counts = Counter(route.counts)
            counts.update(change.counts)
            self._routes[change.route] = replace(route, counts=counts)
        if change.refusal is not None:
            refusals = self._refusals.setdefault(change.route, deque(maxlen=rules.KEPT_REFUSALS))
            refusals.appendleft(change.refusal)
        if change.landing is not None:
            landing = change.landing
            self._tables.change(lambda connection: lake.add(connection, landing))
        if change.dead is not None:
            letter = dataclasses.replace(change.dead, id=next(self._ids))
            self._dead[letter.id] = letter
        if change.no_longer_dead is not None:
            del self._dead[change.no_longer_dead]
        return added

    def _dead_letters(self, ids: Sequence[int]) -> list[StoredDeadLetter]:
        """Return the dead letters that exist, each once."""
        return [self._dead[letter] for letter in dict.fromkeys(ids) if letter in self._dead]

    def _unknown(self, delivery: StoredDelivery) -> UnknownDelivery:
        return transitions.show_unknown(delivery, self._routes[delivery.route].topic)

    def _backlog(self, route: str) -> Backlog:
        return routes.backlog(self._of(route))

    def _state(self, route: StoredRoute) -> RouteState:
        backlog = self._backlog(route.name)
        return routes.state(
            route,
            backlog,
            accepted=self._log.accepted(route.topic),
            committed_at=self._log.committed_at(route.topic, routes.progress(route, backlog)),
            now=self._clock.now(),
        )
