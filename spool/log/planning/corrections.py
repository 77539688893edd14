"""
Corrections: if a report arrives after its call's record was closed, the change that it makes becomes
a record. Pure.

The corrections of a record form a chain. The id of each is derived from the record's id and its position: 1,
2 and so on. So the index of known ids finds them as it finds records, also after a restart. The newest
correction contains the call with the facts of all earlier reports.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from spool.identity import of_derived
from spool.log.amendments import TOKENS, amended, changes_mode
from spool.record import Correction, Inference, Record

MOST: Final = 16  # corrections per record; a later report is counted as late and changes nothing
LATE_USAGE: Final = "late_usage"
FINAL_COST: Final = "final_cost"
NOT_BILLED: Final = "not_billed"

# A report becomes a correction only if it changes one of these fields. Its other fields are included then.
_MEASURED: Final = frozenset({*TOKENS, "cost", "estimated_cost", "meters", "charges"})
# Fields that a correction leaves unchanged, because a call stays in its hour, keeps its latency, and its
# names are stored with its record. Tags do change if they say how the provider processed the call, because
# that decides its price.
_LEFT: Final = frozenset({"start_time", "end_time", "also", "shadow", "counted_by", "tags"})

# returns the record that is known under an id, or None if it is not in memory
Find = Callable[[bytes], Record | None]


def id_of(record_id: bytes, place: int) -> bytes:
    """Return the id of the correction at a position of the chain. Positions begin at 1."""
    return of_derived(record_id, f"correction {place}")


def as_corrected(record: Inference, find: Find) -> tuple[Inference, int]:
    """Return the call as of its newest correction, and the number of corrections."""
    newest, count = record, 0
    while count < MOST and isinstance(previous := find(id_of(record.id, count + 1)), Correction):
        newest, count = previous.after, count + 1
    return newest, count


def correction(
    known: Inference, count: int, later: Inference, fields: dict[str, Any], *, is_final: bool, now_ns: int
) -> Correction | None:
    """
    Build the correction for a late report. Return None if the report changes no cost and no count.

    `known` is the call after `count` corrections. `fields` are the fields that the report changes.
    """
    excluded = _LEFT - {"tags"} if changes_mode(known, fields) else _LEFT
    changed = {name: value for name, value in fields.items() if name not in excluded}
    before = amended(known, {"also": None})
    after = amended(before, changed)
    if (
        count >= MOST
        or known.shadow
        or all(getattr(before, name) == getattr(after, name) for name in _MEASURED)
    ):
        return None
    reason = LATE_USAGE
    if is_final and "cost" in changed:
        reason = FINAL_COST if Decimal(changed["cost"]) else NOT_BILLED
    return Correction(
        id=id_of(known.id, count + 1),
        source=later.source,
        corrects=known.id,
        reason=reason,
        known_at=now_ns,
        start_time=known.start_time or now_ns,
        before=before,
        after=after,
    )
