"""
Late truth: what a report says of a call whose record is closed becomes a correction, a record of its own. Pure.

The corrections of a record form a chain: the first has an id that is made of the record's id and 1, the second
one of 2. So they are found by the index of known ids, as records are, and after a restart, too. The newest one
has the call as all reports before it made it.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from spool.identity import of_derived
from spool.log.amendments import TOKENS, amended, changes_mode
from spool.record import Correction, Inference, Record

MOST: Final = 16  # corrections of one record: what comes later is counted as late and adds nothing
LATE_USAGE: Final = "late_usage"
FINAL_COST: Final = "final_cost"
NOT_BILLED: Final = "not_billed"

# Only what changes one of these makes a correction. Its other fields come along.
_MEASURED: Final = frozenset({*TOKENS, "cost", "estimated_cost", "meters", "charges"})
# A call stays in its hour and keeps its latency, and names of a call stand with its record. Tags come along where they
# say how the call was processed: prices are those of that.
_LEFT: Final = frozenset({"start_time", "end_time", "also", "shadow", "counted_by", "tags"})

Find = Callable[[bytes], Record | None]  # the record that is known under an id, if it is at hand


def id_of(record_id: bytes, place: int) -> bytes:
    """The id of the correction at a place of the chain, from 1 on."""
    return of_derived(record_id, f"correction {place}")


def as_corrected(record: Inference, find: Find) -> tuple[Inference, int]:
    """The call as the newest correction has it, and how many corrections there are."""
    newest, count = record, 0
    while count < MOST and isinstance(found := find(id_of(record.id, count + 1)), Correction):
        newest, count = found.after, count + 1
    return newest, count


def correction(
    known: Inference, count: int, later: Inference, fields: dict[str, Any], *, is_final: bool, now_ns: int
) -> Correction | None:
    """
    Make the correction that a late report is; None if it changes no cost and no count.

    `known` has what the `count` corrections so far said, `fields` are those that the report changes.
    """
    left = _LEFT - {"tags"} if changes_mode(known, fields) else _LEFT
    changed = {name: value for name, value in fields.items() if name not in left}
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
