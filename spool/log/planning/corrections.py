"""
Corrections: if a report arrives after its call's record was closed, it changes the record by a new record.
Pure.

The id of a correction is derived from the record's id and a position: 1, 2 and so on. So the index of known
ids finds corrections, even after a restart. The newest correction has the call with the facts of all reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from spool.identity import derived_dedup_key
from spool.log.amendments import MODELS, TOKENS, is_person_changed, is_processing_mode_changed, replace_fields
from spool.record import RUNS, Correction, Inference, Record

MOST: Final = 16  # maximum corrections per record; a further report counts as late and changes nothing
LATE_USAGE: Final = "late_usage"
FINAL_COST: Final = "final_cost"
NOT_BILLED: Final = "not_billed"
SAME_CALL: Final = "same_call"  # reason: an earlier record counts the call
LATE_RUN: Final = "late_run"  # reason: spans between the call and the agent's run arrived

# A correction needs a change of a measure, of a stated model or of a run; then it includes other fields as well.
# A run is enough, because a gateway that reports a call first often does not know the run.
_MEASURED: Final = frozenset({*TOKENS, "cost", "estimated_cost", "meters", "charges", "status"})
_COUNTED: Final = _MEASURED | {*RUNS}
# Fields that a correction leaves unchanged: a call stays in its hour with its latency, and its names are
# stored with its record. Tags stay unless they decide the price or state the user's address.
_LEFT: Final = frozenset({"start_time", "end_time", "also", "shadow", "counted_by", "tags"})

# function that returns the record known under an id, or None if it is not in memory
Find = Callable[[bytes], Record | None]


def correction_id(record_id: bytes, ordinal: int) -> bytes:
    """Return the id of a record's correction with this position. Positions begin at 1."""
    return derived_dedup_key(record_id, f"correction {ordinal}")


def state_after_corrections_and_their_count(
    record: Inference, find_record_by_dedup_key: Find
) -> tuple[Inference, int]:
    newest, count = record, 0
    while count < MOST and isinstance(
        previous := find_record_by_dedup_key(correction_id(record.id, count + 1)), Correction
    ):
        newest, count = previous.after, count + 1
    return newest, count


def late_report_correction(
    known_record: Inference,
    corrections_so_far: int,
    later_record: Inference,
    fields: dict[str, Any],
    *,
    replaces_cost: bool,
    now_ns: int,
) -> Correction | None:
    """
    Return the correction for a late report, or None if the report changes no cost, count or run.

    `known_record`: the call after `corrections_so_far` corrections.
    """
    stated_models = [name for name in MODELS if getattr(known_record, name) is not None]
    has_model = _has_change(known_record, fields, stated_models)
    has_tags = (
        has_model
        or is_processing_mode_changed(known_record, fields)
        or is_person_changed(known_record, fields)
    )
    excluded = _LEFT - {"tags"} if has_tags else _LEFT
    changed = {name: value for name, value in fields.items() if name not in excluded}
    is_counted = has_model or _has_change(known_record, changed, _COUNTED)
    if corrections_so_far >= MOST or known_record.shadow or not is_counted:
        return None
    is_usage = has_model or _has_change(known_record, changed, _MEASURED)
    reason = LATE_USAGE if is_usage else LATE_RUN
    if replaces_cost and "cost" in changed:
        # None means charges in another currency, so the call is billed
        is_billed = changed["cost"] is None or Decimal(changed["cost"])
        reason = FINAL_COST if is_billed else NOT_BILLED
    return _build_correction(known_record, corrections_so_far, changed, reason, later_record.source, now_ns)


def merge_correction(
    known_record: Inference,
    corrections_so_far: int,
    later_record: Inference,
    fields: dict[str, Any],
    *,
    now_ns: int,
) -> Correction | None:
    """
    Return the correction by which a record gets `fields` from a later record that turned out to be the same
    call, or None if no total changes.

    A late report becomes a correction only if a count or cost changes. Here the later record no longer
    counts, so a change of owner or status suffices, because it would otherwise be lost.
    """
    changed = {name: value for name, value in fields.items() if name not in _LEFT - {"tags"}}
    if not _has_change(known_record, changed, changed):
        return None
    return _build_correction(
        known_record, corrections_so_far, changed, LATE_USAGE, later_record.source, now_ns
    )


def correction_subtracting_duplicate(
    known_record: Inference,
    corrections_so_far: int,
    counted_record_id: bytes,
    joining_report: Inference,
    *,
    now_ns: int,
) -> Correction:
    """
    Return the correction of a record after which only `counted_record_id` counts the call.

    The record becomes a shadow (a duplicate stored for reference) without cost and counts, so all it added is
    subtracted.
    """
    nothing: dict[str, Any] = {**dict.fromkeys(TOKENS), "cost": None, "estimated_cost": None}
    nothing |= {"meters": {}, "charges": {}, "shadow": True, "counted_by": counted_record_id}
    return _build_correction(
        known_record, corrections_so_far, nothing, SAME_CALL, joining_report.source, now_ns
    )


def correction_with_runs_and_values(
    known_record: Inference, corrections_so_far: int, fields: dict[str, Any], *, now_ns: int
) -> Correction | None:
    """
    Return the correction that adds agent runs, and values of the spans above the call, or None after too many
    corrections.
    """
    return (
        None
        if corrections_so_far >= MOST
        else _build_correction(
            known_record, corrections_so_far, fields, LATE_RUN, known_record.source, now_ns
        )
    )


def _has_change(known_record: Inference, changed: Mapping[str, Any], names: Iterable[str]) -> bool:
    return any(name in changed and changed[name] != getattr(known_record, name) for name in names)


def _build_correction(
    known_record: Inference,
    corrections_so_far: int,
    changed: Mapping[str, Any],
    reason: str,
    source: str,
    now_ns: int,
) -> Correction:
    before = replace_fields(known_record, {"also": None})
    return Correction(
        id=correction_id(known_record.id, corrections_so_far + 1),
        source=source,
        corrects=known_record.id,
        reason=reason,
        known_at=now_ns,
        start_time=known_record.start_time or now_ns,
        before=before,
        after=replace_fields(before, changed),
    )
