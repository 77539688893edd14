"""SQL for sets of dimensions, whose table has the alias `k`, and for rollups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spool.ledger.sums import Dimensions


def dimension_columns(dimensions: Iterable[str]) -> str:
    return ", ".join(f'k."{name}"' for name in dimensions)


KEY = dimension_columns(Dimensions._fields)


def rollup_sql(
    day_sums_table: str,
    keys_table: str,
    dimensions: Sequence[str],
    *,
    sums: Sequence[str],
    other_group_columns: Sequence[str] = (),
) -> str:
    """
    Return SQL that adds up the days in [:since, :until) for a rollup, by these dimensions (empty: all) and by
    the further columns `other_group_columns`.

    A sum gets the lowest number of the sets of dimensions that it combines.
    """
    separate = [f"h.{name}" for name in other_group_columns]
    added = ", ".join([*separate, *(f"sum(h.{name}) AS {name}" for name in sums)])
    of_days = (
        f"SELECT h.key, {added} FROM {day_sums_table} h WHERE h.start >= :since AND h.start < :until"
        f" GROUP BY {', '.join(['h.key', *separate])}"
    )
    if not dimensions:
        return of_days
    return (
        f"SELECT min(h.key) AS key, {added} FROM ({of_days}) h JOIN {keys_table} k ON k.id = h.key"
        f" GROUP BY {', '.join([dimension_columns(dimensions), *separate])}"
    )
