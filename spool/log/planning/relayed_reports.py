"""
Search for the other of two reports without a common id: the coding assistant's, and that of its gateway.

Both state the assistant's session. Two reports of the same side are never joined. So if an assistant makes
equal simultaneous calls, each of its reports is joined with a different report of the gateway.

A report that is joined with no other is stored under its key, time step and an ordinal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from spool.identity import AS_ASSISTANT, AS_GATEWAY, STEP_NS, Relay, derived_id, relayed_report_name
from spool.log.planning.nested_reports import MOST_READ, NestedMatch, PlaceOf, RecordsOf, count_filed_reports
from spool.record import Inference

# largest difference of start and end times in two reports of a call, made by two clocks
APART_NS: Final = STEP_NS
CONTAINED_NS: Final = 100_000_000  # a span that extends outside by less counts as contained
Distance = tuple[int, int]


def reports_of_other_side(relay: Relay, place_of: PlaceOf) -> Iterator[int]:
    side = AS_GATEWAY if relay.side == AS_ASSISTANT else AS_ASSISTANT
    for names_request in (False,) if relay.names_request else (False, True):
        yield from _filed_places(relay, side, place_of, names_request=names_request)


def pair_name(counting: Inference) -> bytes:
    return derived_id(counting.id, "relayed")


class RelayedReports:
    """
    The search for an assistant's report of a call that its gateway also reported, or the other way round.
    `is_of_another`: returns whether a record has another id of the same form.
    """

    def __init__(
        self, place_of: PlaceOf, records_of: RecordsOf, is_of_another: Callable[[int, Inference], bool]
    ) -> None:
        self._place_of = place_of
        self._records_of = records_of
        self._is_of_another = is_of_another

    def find_match(self, record: Inference, relay: Relay, own: int | None) -> NestedMatch:
        own_records = [] if own is None else self._records_of(own)
        if self._are_paired(own_records):
            return NestedMatch(None, ())
        fitting = dict(self._fitting_calls(record, relay))
        if own_records and own_records[-1].id in {records[-1].id for records, _ in fitting.values()}:
            return NestedMatch(own, ())
        if fitting:
            return NestedMatch(min(fitting, key=lambda place: (fitting[place][1], place)), ())
        if own_records and self._has_filed_records(own_records, relay):
            return NestedMatch(None, ())
        return NestedMatch(None, tuple(self._filing_names(relay)))

    def _fitting_calls(
        self, record: Inference, relay: Relay
    ) -> Iterator[tuple[int, tuple[Sequence[Inference], Distance]]]:
        for place in reports_of_other_side(relay, self._place_of):
            records = self._records_of(place)
            if not records or records[-1].shadow or self._are_paired(records):
                continue
            distance = _call_distance(relay, records[0])
            if distance is not None and not self._is_of_another(place, record):
                yield place, (records, distance)

    def _are_paired(self, records: Sequence[Inference]) -> bool:
        return any(self._place_of(pair_name(each)) is not None for each in records)

    def _has_filed_records(self, records: Sequence[Inference], relay: Relay) -> bool:
        ids = {each.id for each in records}
        for names_request in (False, True):
            for place in _filed_places(relay, relay.side, self._place_of, names_request=names_request):
                if any(each.id in ids for each in self._records_of(place)):
                    return True
        return False

    def _filing_names(self, relay: Relay) -> Iterator[bytes]:
        for key in relay.keys:
            name = _name_by_ordinal(relay.side, key, relay.end // STEP_NS, names_request=relay.names_request)
            yield name(count_filed_reports(name, self._place_of))


def _name_by_ordinal(side: str, key: str, step: int, *, names_request: bool) -> Callable[[int], bytes]:
    return lambda ordinal: relayed_report_name(side, key, step, ordinal, names_request=names_request)


def _filed_places(relay: Relay, side: str, place_of: PlaceOf, *, names_request: bool) -> Iterator[int]:
    own = relay.end // STEP_NS
    for key in relay.keys:
        for step in (own, own - 1, own + 1):
            name = _name_by_ordinal(side, key, step, names_request=names_request)
            count = count_filed_reports(name, place_of)
            for ordinal in range(count - 1, max(count - MOST_READ, 0) - 1, -1):
                place = place_of(name(ordinal))
                if place is not None:
                    yield place


def _call_distance(relay: Relay, other: Inference) -> Distance | None:
    """
    Return how much the times of two reports differ, or None if they are of different calls.

    The gateway's call lies within the assistant's, as far as two clocks agree and both reports state a start.
    Containment decides first, because failed attempts follow each other quickly.
    """
    start = None if other.start_time == other.end_time else other.start_time
    own, stated = (relay.start, relay.end), (start, other.end_time or relay.end)
    (around, around_end), (inner, inner_end) = (own, stated) if relay.side == AS_ASSISTANT else (stated, own)
    early = 0 if around is None or inner is None else around - inner
    apart = abs(around_end - inner_end)
    if apart > APART_NS or early > APART_NS:
        return None
    return max(early, inner_end - around_end, 0) // CONTAINED_NS, apart + abs(early)
