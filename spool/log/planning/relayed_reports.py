"""
Search for the other of two reports without a common id: the coding assistant's, and that of its gateway.

Both state the assistant's session, or the model and counts if the gateway replaced the id of the response.
Two reports of the same side are never joined. So if an assistant makes equal simultaneous calls, each of its
reports is joined with a different report of the gateway.

The gateway's call lies within the assistant's. So the time decides by containment, and by the ends only if a
report has no start. A busy machine may report the end of a call long after the gateway did.

A report that is joined with no other is stored under its key, time step and an ordinal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final

from spool.identity import (
    AS_ASSISTANT,
    AS_GATEWAY,
    STEP_NS,
    RelayedReport,
    dedup_key_of_relayed_report,
    derived_dedup_key,
)
from spool.log.planning.nested_reports import (
    LogPositionFinder,
    NestedMatch,
    RecordsOf,
    count_stored_reports,
    positions_of_newest_reports,
)
from spool.record import NS, Inference

# largest difference of two clocks, and of the ends of two reports of a call without a start
APART_NS: Final = STEP_NS
# Reports are looked up by their ends in steps of this size: in the step of a report, and in its neighbours. So
# the ends of two reports of a call may be at least this far apart.
END_STEP_NS: Final = 600 * NS
CONTAINED_NS: Final = 100_000_000  # a span that extends outside by less counts as contained
Distance = tuple[int, int]  # how far outside, in steps of CONTAINED_NS, and the difference of the times


def positions_of_other_side_reports(
    relay: RelayedReport, find_log_position: LogPositionFinder
) -> Iterator[int]:
    side = AS_GATEWAY if relay.side == AS_ASSISTANT else AS_ASSISTANT
    names_request = (False,) if relay.names_request else (False, True)
    yield from _positions_of_stored_reports(relay, side, find_log_position, names_request)


def relayed_pair_dedup_flag(counted_record: Inference) -> bytes:
    return derived_dedup_key(counted_record.id, "relayed")


class RelayedReportSearch:
    """
    The search for an assistant's report of a call that its gateway also reported, or the other way round.
    `is_of_another`: returns whether a record has another id than the report, of the same form.
    """

    def __init__(
        self,
        find_log_position: LogPositionFinder,
        records_of: RecordsOf,
        is_of_another: Callable[[int, Inference], bool],
    ) -> None:
        self._place_of = find_log_position
        self._records_of = records_of
        self._is_of_another = is_of_another

    def find_match(self, record: Inference, relay: RelayedReport, own_position: int | None) -> NestedMatch:
        """
        Find the report of the other side. `own_position`: position of the record that has this report.

        A failure without a record is only compared with reports that contain it or lie within it. Others are
        compared once it has a record, which keeps its times for a later exchange (`_find_by_exchange`).
        """
        own_records = [] if own_position is None else self._records_of(own_position)
        if self._are_paired(own_records):
            return NestedMatch(None, ())
        failed = record.status == "error"
        others = {
            log_position: records
            for log_position in positions_of_other_side_reports(relay, self._place_of)
            if (records := self._records_of(log_position)) and not records[-1].shadow
        }
        distances = {
            log_position: distance
            for log_position, records in others.items()
            if (distance := _call_distance(relay, records[0])) is not None
        }
        fitting = {
            log_position: distance
            for log_position, distance in distances.items()
            if (own_records or not failed or not distance[0])
            and self._is_free(log_position, record, others[log_position])
        }
        if own_records and own_records[-1].id in {others[log_position][-1].id for log_position in fitting}:
            return NestedMatch(own_position, ())
        if fitting:
            return NestedMatch(
                min(fitting, key=lambda log_position: (fitting[log_position], log_position)), ()
            )
        if own_records:
            exchanged = self._find_by_exchange(record, relay, others) if failed and distances else None
            ids = {each.id for each in own_records}
            if exchanged is not None or any(
                each.id in ids for records in self._calls_of_same_side(relay) for each in records
            ):
                return NestedMatch(exchanged, ())
        return NestedMatch(None, tuple(self._dedup_keys_to_store(relay)))

    def _find_by_exchange(
        self, record: Inference, relay: RelayedReport, others: Mapping[int, Sequence[Inference]]
    ) -> int | None:
        """
        Find a report that is free if failures exchange the reports with which they are joined, so that each
        lies within its own. Failures state no counts, so their records need no change.
        """
        joined = {records[-1].id: records[0] for records in self._calls_of_same_side(relay)}
        searching = [relay]
        for report in searching:  # grows
            for log_position, records in others.items():
                distance = _call_distance(report, records[0])
                if distance is None or distance[0]:
                    continue
                if self._is_free(log_position, record, records):
                    return log_position
                if (other := joined.pop(records[-1].id, None)) is not None:
                    searching.append(
                        relay._replace(start=_stated_start(other), end=other.end_time or relay.end)
                    )
        return None

    def _is_free(self, log_position: int, record: Inference, call_records: Sequence[Inference]) -> bool:
        return not self._are_paired(call_records) and not self._is_of_another(log_position, record)

    def _are_paired(self, call_records: Sequence[Inference]) -> bool:
        return any(self._place_of(relayed_pair_dedup_flag(each)) is not None for each in call_records)

    def _calls_of_same_side(self, relay: RelayedReport) -> Iterator[Sequence[Inference]]:
        log_positions = _positions_of_stored_reports(relay, relay.side, self._place_of, (False, True))
        yield from filter(None, map(self._records_of, log_positions))

    def _dedup_keys_to_store(self, relay: RelayedReport) -> Iterator[bytes]:
        for key in relay.keys:
            name = partial(
                dedup_key_of_relayed_report,
                relay.side,
                key,
                relay.end // END_STEP_NS,
                states_request_id=relay.names_request,
            )
            yield name(count_stored_reports(name, self._place_of))


def _positions_of_stored_reports(
    relay: RelayedReport,
    reporting_side: str,
    find_log_position: LogPositionFinder,
    states_request_id: Iterable[bool],
) -> Iterator[int]:
    own = relay.end // END_STEP_NS
    for states_id, key, step in product(states_request_id, relay.keys, (own, own - 1, own + 1)):
        name = partial(dedup_key_of_relayed_report, reporting_side, key, step, states_request_id=states_id)
        yield from positions_of_newest_reports(name, find_log_position)


def _call_distance(relay: RelayedReport, other: Inference) -> Distance | None:
    """
    Return how much the times of two reports differ, or None if they are of different calls.

    The gateway's call lies within the assistant's, as far as two clocks agree and both reports state a start.
    Of several such calls, one that lies inside exactly is preferred, because failed attempts follow each other
    quickly, and then the one with the nearest times.
    """
    own, stated = (relay.start, relay.end), (_stated_start(other), other.end_time or relay.end)
    (around, around_end), (inner, inner_end) = (own, stated) if relay.side == AS_ASSISTANT else (stated, own)
    apart = abs(around_end - inner_end)
    if around is None or inner is None:
        return None if apart > APART_NS else (max(inner_end - around_end, 0) // CONTAINED_NS, apart)
    early, late = around - inner, inner_end - around_end
    if max(early, late) > APART_NS:
        return None
    return max(early, late, 0) // CONTAINED_NS, apart + abs(early)


def _stated_start(record: Inference) -> int | None:
    return None if record.start_time == record.end_time else record.start_time
