"""
What becomes of a delivery: every transition as a function of values, which answers a `RouteChange`. Pure.

An engine reads the delivery, calls one of these and writes the change. A delivery that is gone, because it
was skipped or its route was dropped while it was being sent, is counted there: nothing is left to change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from spool.deliveries import ranges, rules
from spool.deliveries.ranges import Range
from spool.deliveries.stored import RouteChange, StoredDeadLetter, StoredDelivery, StoredRoute, is_proven
from spool.deliveries.values import OPEN, UNKNOWN, Delivery, PartialRefusal, Settlement, UnknownDelivery
from spool.errors import NotAllowed, NotThere
from spool.log.values import Entry
from spool.record import Record

# -- new deliveries ------------------------------------------------------------------------------------------


def cut(route: StoredRoute, *, waiting: int, closed_below: int, max_records: int) -> RouteChange | None:
    """
    A new delivery of the lowest numbers that none was cut for, to be sent at once; None when there are none,
    or too many wait.

    `waiting` is how many deliveries of the backlog are open and not being sent: no replays, and none
    that waits apart.
    """
    first = route.next
    end = min(route.next + max_records, closed_below)
    if first >= end or waiting >= rules.MAX_WAITING:
        return None
    delivery = _new(route.name, (first, end - 1), acceptances=route.acceptances, sending=True)
    return RouteChange(route=route.name, added=[delivery], counts={"next": end - first})


def replay(
    route: StoredRoute, *, committed: Iterable[Range], unsettled: Iterable[Range], lands: bool = False
) -> RouteChange:
    """
    Deliveries of the numbers in `committed` that the route has settled. NotAllowed where it `lands` them
    in a lake.
    """
    if lands:
        raise NotAllowed(f"{route.name} is a lake, which has each record once: nothing is sent to it again")
    cut_so_far = route.counts["before_start"] + 1, route.next - 1
    settled = ranges.without(ranges.clipped(committed, cut_so_far), unsettled)
    return RouteChange(
        route=route.name,
        added=[
            _new(route.name, chunk, acceptances=route.acceptances, replay=True)
            for span in ranges.joined(settled)
            for chunk in ranges.chunks(span, rules.REPLAY_RECORDS)
        ],
    )


def _new(
    route: str,
    span: Range,
    *,
    acceptances: int,
    proof: int | None = None,
    last_error: str | None = None,
    replay: bool = False,
    kept: Entry | None = None,
    sending: bool = False,
) -> StoredDelivery:
    return StoredDelivery(
        route=route,
        first=span[0],
        last=span[1],
        passed=acceptances,
        proof=proof,
        acceptances=acceptances,
        proven=is_proven(proof, acceptances),
        last_error=last_error,
        replay=replay,
        kept=kept,
        sending=sending,
        fence=int(sending),
    )


def take(delivery: StoredDelivery) -> RouteChange:
    """
    Mark a delivery as being sent.

    If it was being sent before and nobody could keep what became of it, it may have been taken.
    """
    change = (
        interrupted(delivery) if delivery.sending else RouteChange(route=delivery.route, changed=delivery)
    )
    taken = replace(change.changed or delivery, sending=True, fence=delivery.fence + 1)
    return RouteChange(route=delivery.route, changed=taken, counts=change.counts)


# -- deliveries that were sent -------------------------------------------------------------------------------


def check_settlement(delivery: Delivery, settlement: Settlement) -> None:
    """ValueError when the numbers of a settlement are not those of its delivery."""
    if settlement.count != delivery.count:
        raise ValueError(f"the settlement of {delivery.count} numbers does not add up: {settlement}")


def settle(delivery: StoredDelivery, settlement: Settlement, *, at: float) -> RouteChange:
    refusal = None
    if settlement.refused:
        refusal = PartialRefusal(
            route=delivery.route,
            first=delivery.first,
            last=delivery.last,
            count=settlement.refused,
            words=settlement.words,
            at=at,
        )
    counts = _terms(
        delivery,
        delivered=settlement.delivered,
        refused_upstream=settlement.refused,
        shadow=settlement.shadow,
        unmapped=settlement.unmapped,
        damaged=settlement.damaged,
    )
    if delivery.replay:
        counts = {"replayed": settlement.delivered}
    return RouteChange(
        route=delivery.route,
        removed=[delivery.id],
        counts={**counts, "acceptances": int(settlement.delivered > 0)},
        refusal=refusal,
        landing=settlement.landing,
    )


def place_split(delivery: Delivery, at: int | None) -> int:
    """The first number of the second half of a split; ValueError when one of the two would be empty."""
    second = delivery.first + delivery.count // 2 if at is None else at
    if not delivery.first < second <= delivery.last:
        raise ValueError(f"{delivery.first} to {delivery.last} cannot be split at {second}")
    return second


def split(parent: StoredDelivery, second: int, *, reason: str | None, refused: bool = False) -> RouteChange:
    """Two children with new keys; `refused`: this is the first refusal of every record in the parent."""
    proof = parent.acceptances if refused else parent.proof
    return RouteChange(
        route=parent.route,
        removed=[parent.id],
        added=[
            _new(
                parent.route,
                span,
                acceptances=parent.acceptances,
                proof=proof,
                last_error=reason,
                replay=parent.replay,
            )
            for span in ((parent.first, second - 1), (second, parent.last))
        ],
    )


def retry(
    delivery: StoredDelivery,
    *,
    reason: str,
    not_before: float,
    answer: str | None = None,
    ambiguous: bool = False,
    definite: bool = False,
    refused_at: float | None = None,
    server_error: bool = False,
) -> RouteChange:
    """
    Make a delivery due again at `not_before`; its answers decide if it keeps its key.

    An answer spends the key, because the destination may remember it. But while the delivery is ambiguous,
    somebody in between may have answered: it keeps its key until the same answer has come SAME_ANSWERS times
    in a row, or a `definite` one, which says that nothing was taken. A new key is a new request.

    A 5xx counts only when others passed since the last one: while the upstream is down, no delivery is to blame.
    """
    may_be_taken = delivery.ambiguous or ambiguous
    same_answers = delivery.same_answers + 1 if answer == delivery.answer else 1
    new_key = answer is not None and (not may_be_taken or definite or same_answers >= rules.SAME_ANSWERS)
    if answer is None:
        answer = delivery.answer
        same_answers = delivery.same_answers
    blamed = server_error and delivery.acceptances > delivery.passed
    refused = refused_at is not None
    changed = replace(
        delivery,
        attempts=delivery.attempts + 1,
        not_before=not_before,
        last_error=reason,
        sending=False,
        idempotency_key=rules.new_key() if new_key else delivery.idempotency_key,
        ambiguous=may_be_taken and not new_key,
        answer=None if new_key else answer,
        same_answers=0 if new_key else same_answers,
        server_errors=delivery.server_errors + blamed,
        passed=delivery.acceptances if server_error else delivery.passed,
        refusals=delivery.refusals + refused,
        refused_at=refused_at if delivery.refused_at is None else delivery.refused_at,
        proof=delivery.acceptances if refused and delivery.proof is None else delivery.proof,
    )
    became_ambiguous = delivery.count if changed.ambiguous and not delivery.ambiguous else 0
    return RouteChange(route=delivery.route, changed=changed, counts={"ambiguous": became_ambiguous})


def give_back(delivery: StoredDelivery, *, reason: str, not_before: float) -> RouteChange:
    """Make a delivery due again whose outcome is unknown. A delivery that was settled meanwhile stays as it is."""
    if not delivery.sending:
        return RouteChange(route=delivery.route)
    return retry(delivery, reason=reason, not_before=not_before, ambiguous=True)


def interrupted(delivery: StoredDelivery) -> RouteChange:
    """
    Reopen a delivery that was being sent when the process ended: it may have been taken.

    A delivery with a mark may not: its repeat takes back what the first attempt left.
    """
    became_ambiguous = delivery.mark is None and not delivery.ambiguous
    changed = replace(delivery, sending=False, ambiguous=delivery.ambiguous or became_ambiguous)
    counts = {"ambiguous": delivery.count if became_ambiguous else 0}
    return RouteChange(route=delivery.route, changed=changed, counts=counts)


def reopen_restored(delivery: StoredDelivery, *, hold_back: str | None) -> RouteChange:
    """
    Reopen a delivery of a backup, which may have been taken since: hold it back for that reason, or send it
    again under its key.
    """
    return interrupted(delivery) if hold_back is None else become_unknown(delivery, reason=hold_back)


def hold_rest(route: StoredRoute, *, accepted: int, reason: str) -> RouteChange:
    """Deliveries of unknown outcome for everything that none was cut for."""
    rest = (route.next, accepted)
    held = [
        replace(_new(route.name, span, acceptances=route.acceptances, last_error=reason), state=UNKNOWN)
        for span in ranges.chunks(rest, rules.REPLAY_RECORDS)
    ]
    count = sum(delivery.count for delivery in held)
    return RouteChange(route=route.name, added=held, counts={"next": count, "unknown": count})


# -- deliveries whose outcome is unknown ---------------------------------------------------------------------


def become_unknown(delivery: StoredDelivery, *, reason: str) -> RouteChange:
    changed = replace(delivery, state=UNKNOWN, last_error=reason, sending=False)
    return RouteChange(route=delivery.route, changed=changed, counts=_terms(delivery, unknown=delivery.count))


def resolve(delivery: StoredDelivery, *, sent: bool) -> RouteChange:
    """Settle a delivery that arrived, or make it due again with no trace of the attempt that was cut off."""
    if not sent:
        changed = replace(
            delivery,
            state=OPEN,
            not_before=0.0,
            mark=None,
            idempotency_key=rules.new_key(),
            ambiguous=False,
            answer=None,
            same_answers=0,
        )
        counts = _terms(delivery, unknown=-delivery.count)
        return RouteChange(route=delivery.route, changed=changed, counts=counts)
    counts = _terms(delivery, unknown=-delivery.count, delivered=delivery.count)
    if delivery.replay:
        counts = {"replayed": delivery.count}
    return RouteChange(route=delivery.route, removed=[delivery.id], counts=counts)


def show_unknown(delivery: StoredDelivery, topic: str) -> UnknownDelivery:
    """The delivery as the operator sees it."""
    return UnknownDelivery(
        id=delivery.id,
        route=delivery.route,
        topic=topic,
        first=delivery.first,
        last=delivery.last,
        reason=delivery.last_error,
        kept=delivery.kept,
    )


# -- dead letters --------------------------------------------------------------------------------------------


def set_aside(
    delivery: StoredDelivery,
    record: Record,
    *,
    topic: str,
    committed_at: float,
    error: str,
    status: str,
    at: float,
) -> RouteChange:
    letter = StoredDeadLetter(
        route=delivery.route,
        topic=topic,
        number=delivery.first,
        record=record,
        error=error,
        status=status,
        at=at,
        committed_at=committed_at,
        replay=delivery.replay,
    )
    counts = _terms(delivery, dead=1)
    return RouteChange(route=delivery.route, removed=[delivery.id], dead=letter, counts=counts)


def retry_dead(letter: StoredDeadLetter, route: StoredRoute | None) -> RouteChange:
    """A delivery that brings its record along, because its entry may be gone. NotAllowed when the route is gone."""
    if route is None:
        raise NotAllowed(f"there is no route {letter.route} any more: its dead letters can only be discarded")
    number = letter.number
    kept = Entry(topic=letter.topic, first=number, committed_at=letter.committed_at, records=[letter.record])
    again = _new(route.name, (number, number), acceptances=route.acceptances, replay=letter.replay, kept=kept)
    counts = _terms(letter, dead=-1)
    return RouteChange(route=route.name, added=[again], no_longer_dead=letter.id, counts=counts)


def edit_dead(letters: Sequence[StoredDeadLetter], record: Record) -> StoredDeadLetter:
    """The one letter that was found, with another record. NotThere when none was."""
    if not letters:
        raise NotThere("there is no dead letter with this id")
    return dataclasses.replace(letters[0], record=record)


def discard_dead(letter: StoredDeadLetter) -> RouteChange:
    """The route may be gone: then there is nothing to count on."""
    counts = _terms(letter, dead=-1, discarded=1)
    return RouteChange(route=letter.route, no_longer_dead=letter.id, counts=counts)


# -- retention -----------------------------------------------------------------------------------------------


def skip(route: StoredRoute, below: Sequence[StoredDelivery], number: int) -> RouteChange:
    """
    Give up what an optional route has not delivered below a number; `counts["skipped"]` says how much that is.

    `below` are its open deliveries that begin there and have no record of their own. What such a delivery
    holds from the number on is another request than before.
    """
    uncut = max(0, number - route.next)
    spans = [(delivery.first, min(delivery.last, number - 1)) for delivery in below if not delivery.replay]
    return RouteChange(
        route=route.name,
        removed=[delivery.id for delivery in below],
        added=[
            _new(route.name, (number, delivery.last), acceptances=route.acceptances, replay=delivery.replay)
            for delivery in below
            if delivery.last >= number
        ],
        counts={"skipped": uncut + sum(map(ranges.count, spans)), "next": uncut},
    )


def _terms(of: StoredDelivery | StoredDeadLetter, **terms: int) -> Mapping[str, int]:
    """Replays stand apart: they move no term of their route."""
    return {} if of.replay else terms
