"""SQL for sets of dimensions, whose table has the alias `k`, and for rollups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spool.ledger.sums import Dimensions


def dimension_columns(dimensions: Iterable[str]) -> str:
    return ", ".join(f'k."{name}"' for name in dimensions)


KEY = dimension_columns(Dimensions._fields)


def rollup_sql(
    days: str, keys: str, dimensions: Sequence[str], *, sums: Sequence[str], apart: Sequence[str] = ()
) -> str:
    """
    Return SQL that adds up the days in [:since, :until) for a rollup, by these dimensions (empty: all) and by
    the further columns `apart`.

    A sum gets the lowest number of the sets of dimensions that it combines.
    """
    separate = [f"h.{name}" for name in apart]
    added = ", ".join([*separate, *(f"sum(h.{name}) AS {name}" for name in sums)])
    of_days = (
        f"SELECT h.key, {added} FROM {days} h WHERE h.start >= :since AND h.start < :until"
        f" GROUP BY {', '.join(['h.key', *separate])}"
    )
    if not dimensions:
        return of_days
    return (
        f"SELECT min(h.key) AS key, {added} FROM ({of_days}) h JOIN {keys} k ON k.id = h.key"
        f" GROUP BY {', '.join([dimension_columns(dimensions), *separate])}"
    )
