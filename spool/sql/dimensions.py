"""Sets of dimensions in statements, where their table is `k`, and sums by fewer of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spool.ledger.sums import Dimensions


def columns(dimensions: Iterable[str]) -> str:
    """Return the columns of some dimensions."""
    return ", ".join(f'k."{name}"' for name in dimensions)


KEY = columns(Dimensions._fields)


def rolled_up(
    days: str, keys: str, dimensions: Sequence[str], *, sums: Sequence[str], apart: Sequence[str] = ()
) -> str:
    """
    Return the statement that adds up the days in [:since, :until) for a rollup by these dimensions, none: all. `apart`
    are further columns that are kept. Sums have the lowest number of those that they were made of, which has the same
    values of these dimensions.
    """
    kept = [f"h.{name}" for name in apart]
    added = ", ".join([*kept, *(f"sum(h.{name}) AS {name}" for name in sums)])
    of_days = (
        f"SELECT h.key, {added} FROM {days} h WHERE h.start >= :since AND h.start < :until"
        f" GROUP BY {', '.join(['h.key', *kept])}"
    )
    if not dimensions:
        return of_days
    return (
        f"SELECT min(h.key) AS key, {added} FROM ({of_days}) h JOIN {keys} k ON k.id = h.key"
        f" GROUP BY {', '.join([columns(dimensions), *kept])}"
    )
