"""The routes' side of the log without a disk: the same verbs and the same answers, nothing kept after the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from spool.clock import Clock
from spool.deliveries import rules
from spool.deliveries.rules import Range
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
from spool.log.values import Entry
from spool.memory.delivery_rows import Grave, Route, Row
from spool.memory.log import MemoryLog


class MemoryDeliveries:
    def __init__(self, log: MemoryLog, *, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._routes: dict[str, Route] = {}
        self._graves: dict[int, Grave] = {}
        self._ids = count(1)

    async def declare(self, routes: Sequence[RouteSpec]) -> None:
        for route in self._routes.values():
            route.orphaned = True
            for row in route.rows.values():
                row.in_hand, row.not_before = False, 0.0
        for spec in routes:
            known = self._routes.get(spec.name)
            if known is None:
                now = spec.start == "now"
                first = self._log.accepted(spec.topic) + 1 if now else self._log.oldest(spec.topic)
                known = self._routes[spec.name] = Route(spec=spec, next=first)
                known.terms["before_start"] = first - 1
            known.spec, known.orphaned = spec, False

    async def due(self, route: str, *, now: float, max_records: int) -> Delivery | None:
        state = self._route(route)
        normal = next((row for row in state.free(now) if not row.delivery.replay), None)
        row = normal or self._cut(state, max_records) or next(iter(state.free(now)), None)
        return _take(state, row)

    async def probe(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        state = self._route(route)
        suspects = sum(row.delivery.refusals > 0 for row in state.open())
        fresh = self._fresh_single(state, now) if suspects < max_suspects else None
        return _take(state, fresh or next((row for row in state.free(now) if row.single), None))

    async def next_due_at(self, route: str) -> float | None:
        return min((row.not_before for row in self._route(route).free()), default=None)

    async def mark(self, delivery: Delivery, mark: str) -> None:
        row = self._row(delivery)
        if row is not None:
            row.delivery = replace(row.delivery, mark=mark)

    async def settle(self, delivery: Delivery, settlement: Settlement) -> None:
        said = settlement
        if said.delivered + said.refused + said.shadow + said.damaged != delivery.count:
            raise ValueError(f"the settlement of {delivery.count} numbers does not add up: {settlement}")
        route = self._remove(delivery)
        if route is None:
            return
        route.acceptances += said.delivered > 0
        if said.refused:
            route.refusals.appendleft(
                PartialRefusal(
                    route=delivery.route,
                    first=delivery.first,
                    last=delivery.last,
                    count=said.refused,
                    words=said.words,
                    at=self._clock.now(),
                )
            )
        if delivery.replay:
            route.replayed += said.delivered
        else:
            route.terms["delivered"] += said.delivered
            route.terms["refused_upstream"] += said.refused
            route.terms["shadow"] += said.shadow
            route.terms["damaged"] += said.damaged

    async def split(self, delivery: Delivery, *, reason: str, at: int | None = None, refused: bool = False) -> None:
        second = delivery.first + delivery.count // 2 if at is None else at
        if not delivery.first < second <= delivery.last:
            raise ValueError(f"{delivery.first} to {delivery.last} cannot be split at {second}")
        row = self._row(delivery)
        if row is not None:
            self._split(self._routes[delivery.route], row, second, reason=reason, refused=refused)

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        topic = self._route(delivery.route).spec.topic
        entries = [delivery.kept] if delivery.kept else self._log.entries(topic, delivery.first, delivery.first)
        record = entries[0].records[0] if entries else None
        if record is None:  # nothing is left to keep
            await self.settle(delivery, Settlement(delivered=0, damaged=1))
            return
        route = self._remove(delivery)
        if route is None:
            return
        letter = DeadLetter(
            id=next(self._ids),
            route=delivery.route,
            topic=topic,
            number=delivery.first,
            record=record,
            error=error,
            status=status,
            at=self._clock.now(),
        )
        self._graves[letter.id] = Grave(letter, entries[0].committed_at, delivery.replay)
        if not delivery.replay:
            route.terms["dead"] += 1

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
        row = self._row(delivery)
        if row is None:
            return
        acceptances = self._routes[delivery.route].acceptances
        now = row.delivery
        row.delivery = replace(
            now,
            attempts=now.attempts + 1,
            last_error=reason,
            idempotency_key=rules.new_key() if new_key else now.idempotency_key,
            doubted=not new_key and (now.doubted or server_error),
            server_errors=now.server_errors + (server_error and acceptances > row.passed),
            refusals=now.refusals + (refused_at is not None),
            refused_at=refused_at if now.refused_at is None else now.refused_at,
        )
        if server_error:
            row.passed = acceptances
        if refused_at is not None and row.proof is None:
            row.proof = acceptances
        row.not_before, row.in_hand = not_before, False

    async def unknown(self, delivery: Delivery, *, reason: str) -> None:
        row = self._row(delivery)
        if row is not None:
            row.delivery, row.unknown = replace(row.delivery, last_error=reason), True
            if not delivery.replay:
                self._routes[delivery.route].terms["unknown"] += delivery.count

    async def unknowns(self) -> Sequence[UnknownDelivery]:
        waiting = [(row, route) for route in self._routes.values() for row in route.rows.values() if row.unknown]
        return [_shown(row.delivery, route) for row, route in sorted(waiting, key=lambda each: each[0].delivery.id)]

    async def resolve(self, id: int, *, sent: bool) -> UnknownDelivery:
        for route in self._routes.values():
            row = route.rows.get(id)
            if row is None or not row.unknown:
                continue
            found = row.delivery
            if sent:
                del route.rows[id]
            else:
                row.delivery = replace(found, mark=None, idempotency_key=rules.new_key())
                row.unknown, row.in_hand, row.not_before = False, False, 0.0
            if not found.replay:
                route.terms["unknown"] -= found.count
                route.terms["delivered"] += found.count if sent else 0
            elif sent:
                route.replayed += found.count
            return _shown(found, route)
        raise NotThere("there is no delivery with this id that waits to be settled by hand")

    async def set_state(self, route: str, state: str, reason: str | None) -> None:
        known = self._route(route)
        known.state, known.reason = state, reason

    async def routes(self) -> Sequence[RouteState]:
        return [self._state(route) for _, route in sorted(self._routes.items())]

    async def drop(self, route: str) -> int:
        known = self._route(route)
        if not known.orphaned:
            raise NotAllowed(f"{route} is in the configuration: remove its destination there first")
        del self._routes[route]
        return self._queued(known)

    async def dead(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        return [grave.letter for grave in self._graves.values() if route in (None, grave.letter.route)]

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        return [
            refusal
            for name, known in sorted(self._routes.items())
            for refusal in known.refusals
            if route in (None, name)
        ]

    async def dead_retry(self, ids: Sequence[int]) -> int:
        graves = [self._graves[letter] for letter in dict.fromkeys(ids) if letter in self._graves]
        for grave in graves:
            if grave.letter.route not in self._routes:
                raise NotAllowed(
                    f"there is no route {grave.letter.route} any more: its dead letters can only be discarded"
                )
        for grave in graves:
            letter = grave.letter
            route = self._routes[letter.route]
            kept = Entry(
                topic=letter.topic, first=letter.number, committed_at=grave.committed_at, records=[letter.record]
            )
            self._insert(route, (letter.number, letter.number), replay=grave.replay, kept=kept)
            del self._graves[letter.id]
            if not grave.replay:
                route.terms["dead"] -= 1
        return len(graves)

    async def dead_discard(self, ids: Sequence[int]) -> int:
        graves = [self._graves.pop(letter) for letter in dict.fromkeys(ids) if letter in self._graves]
        for grave in graves:
            route = self._routes.get(grave.letter.route)
            if route is not None and not grave.replay:
                route.terms["dead"] -= 1
                route.terms["discarded"] += 1
        return len(graves)

    async def replay(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        known = self._route(route)
        begin, end = known.terms["before_start"] + 1, known.next - 1
        committed = [
            (max(entry.first, begin), min(entry.last, end))
            for entry in self._log.entries(known.spec.topic, begin, end)
            if since <= entry.committed_at < until
        ]
        unsettled = [(row.delivery.first, row.delivery.last) for row in known.rows.values()]
        unsettled += [
            (grave.letter.number, grave.letter.number) for grave in self._graves.values() if grave.letter.route == route
        ]
        spans = list(rules.joined(rules.without(committed, unsettled)))
        if not dry_run:
            for span in spans:
                for chunk in rules.chunks(span, rules.REPLAY_RECORDS):
                    self._insert(known, chunk, replay=True)
        return sum(map(rules.count, spans))

    def route_terms(self) -> dict[str, dict[str, int]]:
        """The terms of every route and its `queued`; replays stand apart."""
        return {name: {**route.terms, "queued": self._queued(route)} for name, route in self._routes.items()}

    def needed_from(self, topic: str) -> int | None:
        """The lowest number that a required route still has to read; None when no route is on the topic."""
        on_topic = [route for route in self._routes.values() if route.spec.topic == topic]
        if not on_topic:
            return None
        needed = [rules.NOBODY_NEEDS]
        for route in on_topic:
            if route.spec.required:
                needed.append(route.next)
                needed += [row.delivery.first for row in route.rows.values() if row.delivery.kept is None]
        return min(needed)

    def skip_below(self, topic: str, number: int) -> int:
        """Give up what optional routes have not delivered below a number; how many records that was, route by route."""
        total = 0
        for route in self._routes.values():
            if route.spec.topic == topic and not route.spec.required:
                skipped = max(0, number - route.next) + sum(self._skip(route, row, number) for row in route.open())
                route.next = max(route.next, number)
                route.terms["skipped"] += skipped
                total += skipped
        return total

    def _skip(self, route: Route, row: Row, number: int) -> int:
        delivery = row.delivery
        if delivery.first >= number or delivery.kept is not None:
            return 0
        del route.rows[delivery.id]
        if delivery.last >= number:  # other records than before: another request
            self._insert(route, (number, delivery.last), replay=delivery.replay)
        return 0 if delivery.replay else min(delivery.last, number - 1) - delivery.first + 1

    def _route(self, name: str) -> Route:
        route = self._routes.get(name)
        if route is None:
            raise NotThere(f"there is no route {name}")
        return route

    def _row(self, delivery: Delivery) -> Row | None:
        """None: it was skipped or dropped while it was being sent, and is counted there."""
        route = self._routes.get(delivery.route)
        row = route.rows.get(delivery.id) if route else None
        return None if row is None or row.unknown else row

    def _remove(self, delivery: Delivery) -> Route | None:
        if self._row(delivery) is None:
            return None
        route = self._routes[delivery.route]
        del route.rows[delivery.id]
        return route

    def _cut(self, route: Route, max_records: int) -> Row | None:
        closed = self._log.closed_below(route.spec.topic)
        waiting = sum(not row.waits_apart for row in route.free() if not row.delivery.replay)
        if route.next >= closed or waiting >= rules.MAX_WAITING:
            return None
        first, route.next = route.next, min(route.next + max_records, closed)
        return self._insert(route, (first, route.next - 1))

    def _fresh_single(self, route: Route, now: float) -> Row | None:
        for row in route.free(now):
            if row.single and not row.delivery.refusals and row.delivery.kept is None:
                return row
        batches = [row for row in route.free() if not row.single]
        if not batches:
            return self._cut(route, 1)
        newest = min(batches, key=lambda row: (row.delivery.replay, -row.delivery.first))
        return self._split(route, newest, newest.delivery.last, reason=newest.delivery.last_error, refused=False)

    def _split(self, route: Route, row: Row, second: int, *, reason: str | None, refused: bool) -> Row:
        parent = row.delivery
        del route.rows[parent.id]
        proof = route.acceptances if refused else row.proof
        self._insert(route, (parent.first, second - 1), replay=parent.replay, proof=proof, last_error=reason)
        return self._insert(route, (second, parent.last), replay=parent.replay, proof=proof, last_error=reason)

    def _insert(
        self,
        route: Route,
        span: Range,
        *,
        replay: bool = False,
        proof: int | None = None,
        last_error: str | None = None,
        kept: Entry | None = None,
    ) -> Row:
        delivery = Delivery(
            id=next(self._ids),
            route=route.spec.name,
            first=span[0],
            last=span[1],
            attempts=0,
            idempotency_key=rules.new_key(),
            last_error=last_error,
            replay=replay,
            kept=kept,
        )
        row = route.rows[delivery.id] = Row(delivery=delivery, passed=route.acceptances, proof=proof)
        return row

    def _queued(self, route: Route) -> int:
        waiting = sum(row.delivery.count for row in route.open() if not row.delivery.replay)
        return waiting + self._log.accepted(route.spec.topic) + 1 - route.next

    def _state(self, route: Route) -> RouteState:
        own = [row.delivery for row in route.open() if not row.delivery.replay]
        progress = min([route.next, *(delivery.first for delivery in own if delivery.kept is None)])
        queued = self._queued(route)
        return RouteState(
            name=route.spec.name,
            topic=route.spec.topic,
            required=route.spec.required,
            state="orphaned" if route.orphaned else route.state,
            reason=route.reason,
            progress=progress,
            queued=queued,
            oldest_age_s=self._age_s(route, own, progress) if queued else None,
            delivered=route.terms["delivered"],
            refused=route.terms["refused_upstream"],
            dead=route.terms["dead"],
            stuck=sum(row.single and row.delivery.server_errors >= rules.STUCK_AFTER for row in route.open()),
        )

    def _age_s(self, route: Route, own: Sequence[Delivery], progress: int) -> float | None:
        times = [entry.committed_at for entry in self._log.entries(route.spec.topic, progress, progress)]
        times += [delivery.kept.committed_at for delivery in own if delivery.kept is not None]
        return max(0.0, self._clock.now() - min(times)) if times else None


def _take(route: Route, row: Row | None) -> Delivery | None:
    if row is None:
        return None
    row.in_hand = True
    proven = row.proof is not None and route.acceptances > row.proof
    return replace(row.delivery, proven=proven)


def _shown(delivery: Delivery, route: Route) -> UnknownDelivery:
    return UnknownDelivery(
        id=delivery.id,
        route=delivery.route,
        topic=route.spec.topic,
        first=delivery.first,
        last=delivery.last,
        reason=delivery.last_error,
        kept=delivery.kept,
    )
