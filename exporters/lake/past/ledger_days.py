"""Compares the sums of a lake with those of the ledger, day by day and to the last digit. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from exporters.lake.tables.day_sums import LakeDay
from exporters.lake.verification import FOREIGN, MISSING, LakeDifference
from spool.ledger import money

# What no file can mend: prices that were made again, and calls from before the route began.
REPRICED, BEFORE_START = "repriced", "before_start"
EXPLAINED: Final = frozenset({REPRICED, BEFORE_START})
_NONE: Final = LakeDay()


def ledger_differs(
    lake: Mapping[str, LakeDay], ledger: Mapping[str, LakeDay], *, began_later: bool
) -> Iterator[LakeDifference]:
    """Yield the days that differ. `began_later`: the first calls of the ledger came before the route."""
    for day in sorted({*lake, *ledger}):
        ours = lake.get(day, _NONE)
        theirs = ledger.get(day, _NONE)
        if ours != theirs:
            yield LakeDifference(_kind(ours, theirs, began_later), day, _words(ours, theirs))


def _kind(ours: LakeDay, theirs: LakeDay, began_later: bool) -> str:
    if ours._replace(spend=0) == theirs._replace(spend=0):
        return REPRICED
    is_less = ours.calls < theirs.calls or (
        ours.calls == theirs.calls and ours.input_tokens <= theirs.input_tokens
    )
    if not is_less:
        return FOREIGN
    return BEFORE_START if began_later else MISSING


def _words(ours: LakeDay, theirs: LakeDay) -> str:
    return f"it has {_shown(ours)}, the ledger {_shown(theirs)}"


def _shown(sum: LakeDay) -> str:
    tokens = f"{sum.input_tokens} and {sum.output_tokens} tokens"
    return f"{sum.calls} calls, ${money.text(sum.spend)}, {tokens}"
