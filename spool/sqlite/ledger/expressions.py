"""What a statement of one question says of dimensions."""

from __future__ import annotations

from spool.ledger.derived import Derived
from spool.ledger.queries import (
    BILLED_DIMENSIONS,
    DIMENSIONS,
    PRICED_BY,
    ROW_DIMENSIONS,
    ROW_TAG,
    TAG,
    CostQuery,
)

FUNCTION = "derived"  # of a connection: takes the name of a derived dimension and the values of its sources


def where(query: CostQuery) -> tuple[str, list[str]]:
    """Return what a question includes and excludes as the end of a condition, with its parameters."""
    terms = ""
    values = list[str]()
    for word, chosen in (("IN", query.include), ("NOT IN", query.exclude)):
        for name, wanted in chosen.items():
            marks = ", ".join("?" * len(wanted))
            terms += f" AND {expression(query.derived.get(name, name))} {word} ({marks})"
            values += wanted
    if query.only is not None:
        names = [expression(query.derived.get(name, name)) for name in query.group_by]
        marks = f"({', '.join('?' * len(names))})"
        listed = ", ".join([marks] * len(query.only))
        terms += f" AND ({', '.join(names)}) IN (VALUES {listed})"
        values += [value or "" for group in query.only for value in group]
    return terms, values


def shown(dimension: str | Derived) -> str:
    """Return SQL for a dimension in an answer, where the unknown is NULL."""
    return f"NULLIF({expression(dimension)}, '')"


def expression(dimension: str | Derived) -> str:
    """SQL for a dimension. A tag's name is a part of it."""
    if isinstance(dimension, Derived):
        name = dimension.name.replace("'", "''")
        return f"{FUNCTION}('{name}'{''.join(f', {expression(source)}' for source in dimension.sources)})"
    if dimension in DIMENSIONS:
        return f"k.{dimension}"
    if dimension in PRICED_BY:
        return f"CAST(k.{dimension} AS TEXT)"
    if dimension == "origin":
        return f"COALESCE({shown(TAG + ROW_TAG + dimension)}, 'calls')"
    if dimension in ROW_DIMENSIONS:
        return expression(TAG + ROW_TAG + dimension)
    if dimension == "corrects":  # what stands behind a mark in the key of a provider
        return "substr(h.provider, instr(h.provider || char(31), char(31)) + 1)"
    if dimension in BILLED_DIMENSIONS:
        return f"h.{dimension}"
    name = dimension.removeprefix(TAG).replace("'", "''")
    # A path has no escapes: a name with these characters is looked for among all tags.
    found = f"json_extract(k.tags, '$.\"{name}\"')"
    if not {'"', "\\"}.isdisjoint(name):
        found = f"(SELECT value FROM json_each(k.tags) WHERE key = '{name}')"
    # Without tags the text is empty, which is no JSON.
    return f"IFNULL(CASE json_valid(k.tags) WHEN 1 THEN {found} END, '')"
