"""Transitions of a delivery as pure functions. After each, every number is in exactly one place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spool.deliveries import routes, transitions
from spool.deliveries.ranges import clip_ranges, subtract_ranges
from spool.deliveries.rules import MAX_WAITING, TERMS
from spool.deliveries.stored import RouteChange, StoredDelivery, StoredRoute
from spool.deliveries.values import OPEN, UNKNOWN, RouteSpec, Settlement
from spool.errors import NotAllowed, NotThere
from spool.record import AI_TELEMETRY
from tests.exporters.spools import call

ROUTE = "upstream/ai-telemetry"

deliveries = st.builds(
    lambda first, count, **others: StoredDelivery(route=ROUTE, first=first, last=first + count - 1, **others),
    first=st.integers(1, 50),
    count=st.integers(1, 20),
    id=st.integers(1, 9),
    passed=st.integers(0, 3),
    proof=st.none() | st.integers(0, 3),
    acceptances=st.integers(3, 6),
    replay=st.booleans(),
)


def route(**counts: int) -> StoredRoute:
    begun = routes.new_route(RouteSpec(name=ROUTE, topic=AI_TELEMETRY), accepted=100, oldest=1)
    return replace(begun, counts={**begun.counts, **counts})


def moved(change: RouteChange, before: list[StoredDelivery]) -> int:
    """Return the change in the total of numbers in open deliveries, in terms, and above `next`."""
    after = {one.id: one for one in before if one.id not in change.removed}
    if change.changed is not None:
        after[change.changed.id] = change.changed
    growth = queued([*after.values(), *change.added]) - queued(before)
    return growth + sum(change.counts.get(term, 0) for term in TERMS) - change.counts.get("next", 0)


def queued(found: list[StoredDelivery]) -> int:
    """
    Count the numbers in open deliveries. Unknown deliveries are counted in a term, and replays
    are counted separately.
    """
    return sum(one.count for one in found if one.state == OPEN and not one.replay)


@given(deliveries, st.data())
def test_no_transition_loses_a_number(delivery: StoredDelivery, data: st.DataObject) -> None:
    """Open deliveries, terms and numbers without a delivery have the same total before and after."""
    refused = data.draw(st.integers(0, delivery.count))
    settlement = Settlement(delivered=delivery.count - refused, refused=refused)
    unknown = replace(delivery, state=UNKNOWN)
    changes = [
        (delivery, transitions.settle_delivery(delivery, settlement, settled_at=0.0)),
        (
            delivery,
            transitions.retry_later(delivery, reason="503", not_before=0.0, answer="503", server_error=True),
        ),
        (delivery, transitions.mark_outcome_unknown(delivery, reason="no answer")),
        (unknown, transitions.resolve_unknown(unknown, sent=True)),
        (unknown, transitions.resolve_unknown(unknown, sent=False)),
    ]
    if delivery.count > 1:
        second = data.draw(st.integers(delivery.first + 1, delivery.last))
        changes.append((delivery, transitions.split_delivery(delivery, second, reason="413")))
    for before, change in changes:
        assert 0 == moved(change, [before]), change


@given(st.lists(deliveries, max_size=1), st.integers(1, 120), st.integers(60, 100))
def test_skipping_loses_no_number(below: list[StoredDelivery], number: int, next: int) -> None:
    """Numbers below the border are skipped. Higher numbers stay, in another delivery."""
    found = [one for one in below if one.first < number]
    change = transitions.skip_records(route(next=next), found, number)
    assert 0 == moved(change, found)
    assert all(one.first == number for one in change.added)


@given(st.integers(1, 120), st.integers(1, 200), st.integers(1, 130), st.integers(0, 20))
def test_delivery_has_only_closed_numbers(
    next: int, max_records: int, closed_below: int, waiting: int
) -> None:
    """A delivery has at most max_records numbers, and none is created while too many wait."""
    change = transitions.make_next_delivery(
        route(next=next), waiting=waiting, lowest_open_number=closed_below, max_records=max_records
    )
    if change is None:
        assert next >= closed_below or waiting >= MAX_WAITING
        return
    (delivery,) = change.added
    assert delivery.first == next
    assert delivery.count <= max_records
    assert delivery.last < closed_below
    assert 0 == moved(change, [])


def test_letter_is_counted_as_dead_queued_or_discarded() -> None:
    """
    A record that is set aside counts as dead, is queued again by a retry, and counts as discarded after a discard.
    """
    delivery = StoredDelivery(id=1, route=ROUTE, first=7, last=7, passed=0)
    aside = transitions.replace_delivery_by_dead_letter(
        delivery, call(7), topic=AI_TELEMETRY, committed_at=1.0, error="400", status="400", rejected_at=2.0
    )
    assert aside.dead is not None
    again = transitions.retry_dead_letter(aside.dead, route())
    discarded = transitions.discard_dead_letter(aside.dead)
    assert [{"dead": 1}, {"dead": -1}, {"dead": -1, "discarded": 1}] == [
        dict(change.counts) for change in (aside, again, discarded)
    ]
    assert [(7, 7)] == [one.span for one in again.added]
    with pytest.raises(NotAllowed, match=ROUTE):
        transitions.retry_dead_letter(aside.dead, None)


def test_only_settled_numbers_are_replayed() -> None:
    """
    A replay leaves out numbers that are open, without a delivery or before the route's start. Adjacent ranges
    become one delivery.
    """
    change = transitions.replay_settled_ranges(
        route(next=21, before_start=4),
        committed_ranges=[(1, 6), (7, 12), (15, 30)],
        unsettled_ranges=[(10, 10)],
    )
    assert [(5, 9), (11, 12), (15, 20)] == [one.span for one in change.added]
    assert all(one.replay for one in change.added)


def test_ranges_are_cut_and_pierced() -> None:
    """A range of numbers includes both of its ends, also when it is cut or pierced."""
    assert [(3, 5), (8, 8)] == list(clip_ranges([(1, 2), (2, 5), (8, 12)], (3, 8)))
    assert [(1, 2), (4, 4), (9, 9)] == list(subtract_ranges([(1, 4), (8, 9)], [(3, 3), (5, 8)]))


def test_a_route_in_the_configuration_is_not_dropped() -> None:
    """The error for an unknown route names it."""
    with pytest.raises(NotAllowed):
        routes.require_unconfigured_route(route())
    with pytest.raises(NotThere, match=ROUTE):
        routes.require_route(None, ROUTE)
