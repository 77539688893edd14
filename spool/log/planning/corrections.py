"""
Corrections: if a report arrives after its call's record was closed, the change that it makes is stored as a
new record. Pure.

The corrections of a record form a chain. The id of a correction is derived from the record's id and the
correction's position: 1, 2 and so on. So the index of known ids finds corrections as it finds records, even
after a restart. The newest correction contains the call with the facts of all earlier reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from spool.identity import derived_id
from spool.log.amendments import TOKENS, changes_mode, names_person, replace_fields
from spool.record import RUNS, Correction, Inference, Record

MOST: Final = 16  # maximum corrections per record; a further report is counted as late and changes nothing
LATE_USAGE: Final = "late_usage"
FINAL_COST: Final = "final_cost"
NOT_BILLED: Final = "not_billed"
SAME_CALL: Final = "same_call"  # a report showed that an earlier record counts the call
LATE_RUN: Final = "late_run"  # the spans between the call and the agent's run that made it arrived

# A report becomes a correction only if it changes a measure or a run. The correction then includes its other fields.
# Runs are in this list because a gateway that reports a call first often does not know its run.
_MEASURED: Final = frozenset({*TOKENS, "cost", "estimated_cost", "meters", "charges", "status"})
_COUNTED: Final = _MEASURED | {*RUNS}
# Fields that a correction leaves unchanged: a call stays in its hour and keeps its latency, and its names are
# stored with its record. Tags stay as well, except if they say how the provider processed the call, because this
# decides its price, or if they state the user's address.
_LEFT: Final = frozenset({"start_time", "end_time", "also", "shadow", "counted_by", "tags"})

# function that returns the record that is known under an id, or None if the record is not in memory
Find = Callable[[bytes], Record | None]


def correction_id(record_id: bytes, place: int) -> bytes:
    """Return the id of the correction at a position of the chain. Positions begin at 1."""
    return derived_id(record_id, f"correction {place}")


def newest_state(record: Inference, find: Find) -> tuple[Inference, int]:
    """Return the call as its newest correction describes it, and the number of corrections."""
    newest, count = record, 0
    while count < MOST and isinstance(previous := find(correction_id(record.id, count + 1)), Correction):
        newest, count = previous.after, count + 1
    return newest, count


def late_report_correction(
    known: Inference,
    count: int,
    later: Inference,
    fields: dict[str, Any],
    *,
    replaces_cost: bool,
    now_ns: int,
) -> Correction | None:
    """
    Build the correction for a late report. Return None if the report changes no cost, no count and no run.

    `known` is the call after `count` corrections. `fields` are the fields that the report changes.
    """
    has_tags = changes_mode(known, fields) or names_person(known, fields)
    excluded = _LEFT - {"tags"} if has_tags else _LEFT
    changed = {name: value for name, value in fields.items() if name not in excluded}
    if count >= MOST or known.shadow or not _has_change(known, changed, _COUNTED):
        return None
    reason = LATE_USAGE if _has_change(known, changed, _MEASURED) else LATE_RUN
    if replaces_cost and "cost" in changed:
        is_billed = changed["cost"] is None or Decimal(changed["cost"])  # without a cost, there are charges
        reason = FINAL_COST if is_billed else NOT_BILLED
    return _build_correction(known, count, changed, reason, later.source, now_ns)


def merge_correction(
    known: Inference, count: int, later: Inference, fields: dict[str, Any], *, now_ns: int
) -> Correction | None:
    """
    Build the correction by which a record takes over `fields` from a later record of its call. Return None if
    they change nothing that totals show.

    In contrast to a late report, an owner or a status is reason enough. Totals would lose it otherwise, because
    the later record no longer counts.
    """
    changed = {name: value for name, value in fields.items() if name not in _LEFT - {"tags"}}
    if not _has_change(known, changed, changed):
        return None
    return _build_correction(known, count, changed, LATE_USAGE, later.source, now_ns)


def taken_back(
    known: Inference, count: int, counted_by: bytes, reporter: Inference, *, now_ns: int
) -> Correction:
    """
    Build the correction after which a record no longer counts, because the record `counted_by` counts its call.

    The call is then a shadow without cost and counts, so that every difference is what was counted.
    """
    nothing: dict[str, Any] = {**dict.fromkeys(TOKENS), "cost": None, "estimated_cost": None}
    nothing |= {"meters": {}, "charges": {}, "shadow": True, "counted_by": counted_by}
    return _build_correction(known, count, nothing, SAME_CALL, reporter.source, now_ns)


def placement_correction(
    known: Inference, count: int, fields: dict[str, Any], *, now_ns: int
) -> Correction | None:
    """
    Build the correction that adds what is around a call: runs, and given values. Return None if there are too many
    corrections.
    """
    return None if count >= MOST else _build_correction(known, count, fields, LATE_RUN, known.source, now_ns)


def _has_change(known: Inference, changed: Mapping[str, Any], names: Iterable[str]) -> bool:
    return any(name in changed and changed[name] != getattr(known, name) for name in names)


def _build_correction(
    known: Inference, count: int, changed: Mapping[str, Any], reason: str, source: str, now_ns: int
) -> Correction:
    before = replace_fields(known, {"also": None})
    return Correction(
        id=correction_id(known.id, count + 1),
        source=source,
        corrects=known.id,
        reason=reason,
        known_at=now_ns,
        start_time=known.start_time or now_ns,
        before=before,
        after=replace_fields(before, changed),
    )
