"""Reads the sums that cost most, and no more of the others than cost about as much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spool.ledger.ledger_rows import WRONG, WRONG_OF

ALIKE = 1000  # sums that cost about as much as the last of the dearest: of more, all are read again


def among_dearest(
    read: Callable[[int], Sequence[tuple[Any, ...]]], dearest: int
) -> Sequence[tuple[Any, ...]]:
    """
    Return the `dearest` first rows and those that may cost as much. `read` returns so many rows at most, the largest
    first; the last of a row's values is about what its sum costs in billionths of a dollar.
    """
    most = dearest + ALIKE
    while len(rows := read(most)) >= dearest:
        last = rows[dearest - 1][-1]
        least = last - 2 * (abs(last) * WRONG_OF + WRONG)
        if len(rows) < most or rows[-1][-1] < least:
            return [row for row in rows if row[-1] >= least]
        most *= 4
    return rows
