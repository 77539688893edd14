"""
Transitions of deliveries. Each returns its changes as a `RouteChange`. Pure.

A delivery can be skipped, or its route deleted, while it is being sent. It is counted then, and no later
transition changes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from spool.deliveries import ranges, rules
from spool.deliveries.ranges import Range
from spool.deliveries.stored import (
    RouteChange,
    StoredDeadLetter,
    StoredDelivery,
    StoredRoute,
    has_acceptance_since_rejection,
)
from spool.deliveries.values import OPEN, UNKNOWN, Delivery, PartialRefusal, Settlement, UnknownDelivery
from spool.errors import NotAllowed, NotThere
from spool.log.values import LogEntry
from spool.record import Record

# -- new deliveries ------------------------------------------------------------------------------------------


def make_next_delivery(
    route: StoredRoute, *, waiting: int, lowest_open_number: int, max_records: int
) -> RouteChange | None:
    """
    Make a delivery of at most `max_records` records that are in no delivery yet, the lowest numbers first,
    and mark it as being sent.

    Return None if there are no such records below `lowest_open_number`, or if too many deliveries wait. `waiting`:
    the number of open deliveries that are not being sent, without replays and those for which
    `is_rejected_or_stuck` is true.
    """
    first = route.next_number
    end = min(route.next_number + max_records, lowest_open_number)
    if first >= end or waiting >= rules.MAX_WAITING:
        return None
    delivery = _new_stored_delivery(
        route.name, (first, end - 1), accepted_deliveries=route.accepted_delivery_count, sending=True
    )
    return RouteChange(route=route.name, added=[delivery], counts={"next": end - first})


def replay_settled_ranges(
    route: StoredRoute,
    *,
    committed_ranges: Iterable[Range],
    unsettled_ranges: Iterable[Range],
    is_data_lake: bool = False,
) -> RouteChange:
    """
    Make deliveries that send records again: those in the ranges `committed_ranges` that the route has settled.

    Raises NotAllowed if the route writes to a data lake (`is_data_lake`).
    """
    if is_data_lake:
        raise NotAllowed(
            f"{route.name} is a data lake, which has each record once, so nothing can be sent to it again"
        )
    cut_so_far = route.counts["before_start"] + 1, route.next_number - 1
    settled = ranges.subtract_ranges(ranges.clip_ranges(committed_ranges, cut_so_far), unsettled_ranges)
    return RouteChange(
        route=route.name,
        added=[
            _new_stored_delivery(
                route.name, chunk, accepted_deliveries=route.accepted_delivery_count, replay=True
            )
            for span in ranges.merge_ranges(settled)
            for chunk in ranges.split_range(span, rules.REPLAY_RECORDS)
        ],
    )


def _new_stored_delivery(
    route: str,
    span: Range,
    *,
    accepted_deliveries: int,
    acceptances_at_rejection: int | None = None,
    last_error: str | None = None,
    replay: bool = False,
    entry: LogEntry | None = None,
    sending: bool = False,
) -> StoredDelivery:
    return StoredDelivery(
        route=route,
        first=span[0],
        last=span[1],
        passed=accepted_deliveries,
        proof=acceptances_at_rejection,
        acceptances=accepted_deliveries,
        proven=has_acceptance_since_rejection(acceptances_at_rejection, accepted_deliveries),
        last_error=last_error,
        replay=replay,
        kept=entry,
        sending=sending,
        fence=int(sending),
    )


def mark_sending(delivery: StoredDelivery) -> RouteChange:
    """
    Mark a delivery as being sent, and increase its fence, so that an older attempt cannot settle it. If it
    already has this mark, an earlier attempt ended without an outcome, so the delivery also becomes
    ambiguous.
    """
    change = (
        reopen_interrupted(delivery)
        if delivery.sending
        else RouteChange(route=delivery.route, changed=delivery)
    )
    sending = replace(change.changed or delivery, sending=True, fence=delivery.fence + 1)
    return RouteChange(route=delivery.route, changed=sending, counts=change.counts)


# -- deliveries that were sent -------------------------------------------------------------------------------


def check_settlement(delivery: Delivery, settlement: Settlement) -> None:
    if settlement.count != delivery.count:
        raise ValueError(f"the settlement of {delivery.count} records does not add up: {settlement}")


def settle_delivery(delivery: StoredDelivery, settlement: Settlement, *, settled_at: float) -> RouteChange:
    refusal = None
    if settlement.refused:
        refusal = PartialRefusal(
            route=delivery.route,
            first=delivery.first,
            last=delivery.last,
            count=settlement.refused,
            words=settlement.words,
            at=settled_at,
        )
    counts = _counts_unless_replay(
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


def first_number_after_split(delivery: Delivery, second_first_number: int | None) -> int:
    """
    Return the number at which to split: `second_first_number`, or the middle. Raises ValueError if a half
    would be empty.
    """
    second = delivery.first + delivery.count // 2 if second_first_number is None else second_first_number
    if not delivery.first < second <= delivery.last:
        raise ValueError(f"records {delivery.first} to {delivery.last} cannot be split at {second}")
    return second


def split_delivery(
    parent: StoredDelivery, second_first_number: int, *, reason: str | None, refused: bool = False
) -> RouteChange:
    """
    Replace a delivery by two with new idempotency keys; the second begins at the number
    `second_first_number`. `refused`: the destination rejected the records for the first time.
    """
    proof = parent.acceptances if refused else parent.proof
    return RouteChange(
        route=parent.route,
        removed=[parent.id],
        added=[
            _new_stored_delivery(
                parent.route,
                span,
                accepted_deliveries=parent.acceptances,
                acceptances_at_rejection=proof,
                last_error=reason,
                replay=parent.replay,
            )
            for span in ((parent.first, second_first_number - 1), (second_first_number, parent.last))
        ],
    )


def retry_later(
    delivery: StoredDelivery,
    *,
    reason: str,
    not_before: float,
    answer: str | None = None,
    may_be_accepted: bool = False,
    proves_no_acceptance: bool = False,
    refused_at: float | None = None,
    server_error: bool = False,
) -> RouteChange:
    """
    Make a delivery due again after a failed attempt.

    After a response (`answer`), the next attempt normally gets a new idempotency key, because the destination
    may repeat its response to the old key. An ambiguous delivery keeps its key, because a proxy may have
    responded, until a response is `proves_no_acceptance` (proves that nothing was accepted) or equal responses arrive
    SAME_ANSWERS times in a row.

    A 5xx counts against the delivery only if others were accepted since the last 5xx. While the destination
    is down, no delivery is to blame.
    """
    may_be_taken = delivery.ambiguous or may_be_accepted
    same_answers = delivery.same_answers + 1 if answer == delivery.answer else 1
    new_key = answer is not None and (
        not may_be_taken or proves_no_acceptance or same_answers >= rules.SAME_ANSWERS
    )
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
        idempotency_key=rules.new_idempotency_key() if new_key else delivery.idempotency_key,
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


def requeue_as_possibly_received(delivery: StoredDelivery, *, reason: str, not_before: float) -> RouteChange:
    """
    Make a delivery due again whose outcome is unknown, and mark it as ambiguous. Nothing changes if its
    outcome is stored.
    """
    if not delivery.sending:
        return RouteChange(route=delivery.route)
    return retry_later(delivery, reason=reason, not_before=not_before, may_be_accepted=True)


def reopen_interrupted(delivery: StoredDelivery) -> RouteChange:
    """
    Make a delivery due that was being sent when the process ended, and mark it as ambiguous.

    If the destination stored a mark to recognize what an attempt wrote, the delivery does not become
    ambiguous, because the next attempt undoes the interrupted one.
    """
    became_ambiguous = delivery.mark is None and not delivery.ambiguous
    changed = replace(delivery, sending=False, ambiguous=delivery.ambiguous or became_ambiguous)
    counts = {"ambiguous": delivery.count if became_ambiguous else 0}
    return RouteChange(route=delivery.route, changed=changed, counts=counts)


def reopen_after_restore(delivery: StoredDelivery, *, unknown_outcome_reason: str | None) -> RouteChange:
    """
    Reopen a delivery of a backup. The destination may have accepted it since the backup was made.

    With `unknown_outcome_reason`, an operator must settle it. Otherwise it is sent under its idempotency key.
    """
    return (
        reopen_interrupted(delivery)
        if unknown_outcome_reason is None
        else mark_outcome_unknown(delivery, reason=unknown_outcome_reason)
    )


def hold_unassigned_records(route: StoredRoute, *, accepted: int, reason: str) -> RouteChange:
    """
    Make deliveries of the records that are in no delivery, for an operator to settle, because they may have
    been sent.
    """
    rest = (route.next_number, accepted)
    held = [
        replace(
            _new_stored_delivery(
                route.name, span, accepted_deliveries=route.accepted_delivery_count, last_error=reason
            ),
            state=UNKNOWN,
        )
        for span in ranges.split_range(rest, rules.REPLAY_RECORDS)
    ]
    count = sum(delivery.count for delivery in held)
    return RouteChange(route=route.name, added=held, counts={"next": count, "unknown": count})


# -- deliveries with unknown outcome -------------------------------------------------------------------------


def mark_outcome_unknown(delivery: StoredDelivery, *, reason: str) -> RouteChange:
    changed = replace(delivery, state=UNKNOWN, last_error=reason, sending=False)
    return RouteChange(
        route=delivery.route, changed=changed, counts=_counts_unless_replay(delivery, unknown=delivery.count)
    )


def resolve_unknown(delivery: StoredDelivery, *, sent: bool) -> RouteChange:
    """Settle a delivery that arrived (`sent`), or make it due as if the attempt had not happened."""
    if not sent:
        changed = replace(
            delivery,
            state=OPEN,
            not_before=0.0,
            mark=None,
            idempotency_key=rules.new_idempotency_key(),
            ambiguous=False,
            answer=None,
            same_answers=0,
        )
        counts = _counts_unless_replay(delivery, unknown=-delivery.count)
        return RouteChange(route=delivery.route, changed=changed, counts=counts)
    counts = _counts_unless_replay(delivery, unknown=-delivery.count, delivered=delivery.count)
    if delivery.replay:
        counts = {"replayed": delivery.count}
    return RouteChange(route=delivery.route, removed=[delivery.id], counts=counts)


def unknown_delivery(delivery: StoredDelivery, topic: str) -> UnknownDelivery:
    return UnknownDelivery(
        id=delivery.id,
        route=delivery.route,
        topic=topic,
        first=delivery.first,
        last=delivery.last,
        reason=delivery.last_error,
        kept=delivery.kept,
    )


# -- rejected records ----------------------------------------------------------------------------------------


def replace_delivery_by_dead_letter(
    delivery: StoredDelivery,
    record: Record,
    *,
    topic: str,
    committed_at: float,
    error: str,
    status: str,
    rejected_at: float,
) -> RouteChange:
    letter = StoredDeadLetter(
        route=delivery.route,
        topic=topic,
        number=delivery.first,
        record=record,
        error=error,
        status=status,
        at=rejected_at,
        committed_at=committed_at,
        replay=delivery.replay,
    )
    counts = _counts_unless_replay(delivery, dead=1)
    return RouteChange(route=delivery.route, removed=[delivery.id], dead=letter, counts=counts)


def retry_dead_letter(letter: StoredDeadLetter, route: StoredRoute | None) -> RouteChange:
    """
    Make a delivery that contains the rejected record itself, because the log may have deleted it. Raises
    NotAllowed if the route is deleted.
    """
    if route is None:
        raise NotAllowed(
            f"the route {letter.route} no longer exists, so its rejected records can only be discarded"
        )
    number = letter.number
    entry = LogEntry(
        topic=letter.topic, first=number, committed_at=letter.committed_at, records=[letter.record]
    )
    delivery = _new_stored_delivery(
        route.name,
        (number, number),
        accepted_deliveries=route.accepted_delivery_count,
        replay=letter.replay,
        entry=entry,
    )
    counts = _counts_unless_replay(letter, dead=-1)
    return RouteChange(route=route.name, added=[delivery], no_longer_dead=letter.id, counts=counts)


def edit_first_dead_letter(letters: Sequence[StoredDeadLetter], record: Record) -> StoredDeadLetter:
    """
    Return the first of `letters` with `record` in place of its own. Raises NotThere if `letters` is empty.
    """
    if not letters:
        raise NotThere("there is no rejected record with this id")
    return dataclasses.replace(letters[0], record=record)


def discard_dead_letter(letter: StoredDeadLetter) -> RouteChange:
    """
    Delete a rejected record without sending it, and count it as discarded. A deleted route has no count to
    change.
    """
    counts = _counts_unless_replay(letter, dead=-1, discarded=1)
    return RouteChange(route=letter.route, no_longer_dead=letter.id, counts=counts)


# -- retention -----------------------------------------------------------------------------------------------


def skip_records(
    route: StoredRoute, deliveries_below: Sequence[StoredDelivery], below_number: int
) -> RouteChange:
    """
    Give up the records of an optional route below `below_number`, and count them as skipped.

    `deliveries_below`: the open deliveries that begin below `below_number` and contain no rejected
    record. If such a delivery extends beyond `below_number`, the rest becomes a new delivery.
    """
    uncut = max(0, below_number - route.next_number)
    spans = [
        (delivery.first, min(delivery.last, below_number - 1))
        for delivery in deliveries_below
        if not delivery.replay
    ]
    return RouteChange(
        route=route.name,
        removed=[delivery.id for delivery in deliveries_below],
        added=[
            _new_stored_delivery(
                route.name,
                (below_number, delivery.last),
                accepted_deliveries=route.accepted_delivery_count,
                replay=delivery.replay,
            )
            for delivery in deliveries_below
            if delivery.last >= below_number
        ],
        counts={"skipped": uncut + sum(map(ranges.count_numbers, spans)), "next": uncut},
    )


def _counts_unless_replay(of: StoredDelivery | StoredDeadLetter, **terms: int) -> Mapping[str, int]:
    return {} if of.replay else terms
