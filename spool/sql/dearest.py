"""The condition that leaves the sums of one start that cost most."""

from __future__ import annotations

from spool.ledger.ledger_rows import WRONG, WRONG_OF


def among_dearest(about: str, table: str, keys: str, condition: str) -> str:
    """
    Return SQL for the sums, among those that meet a condition, that cost as much as the one behind `:before`
    dearer ones, or may do; `about` is what one costs in billionths of a dollar.
    """
    costs = f"SELECT {about} AS about FROM {table} h JOIN {keys} k ON k.id = h.key WHERE h.start = :start{condition}"
    last = f"SELECT about - 2 * (abs(about) * {WRONG_OF} + {WRONG}) FROM ({costs} ORDER BY about DESC"
    return f" AND {about} >= coalesce(({last} LIMIT 1 OFFSET :before) least), -{WRONG})"
