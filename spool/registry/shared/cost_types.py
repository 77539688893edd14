"""The cost types that a role can be limited to. Pure."""

from __future__ import annotations

from collections.abc import Collection

from spool.ledger.queries import BILLED_TYPES, COST_TYPES

COUNTED_TYPES = tuple(COST_TYPES)  # all that is made of calls has money of each of these
ROLE_COST_TYPES = (*COUNTED_TYPES, *BILLED_TYPES)


def shown_types(named: Collection[str]) -> frozenset[str]:
    """Return the cost types that a role shows which names these: all, if none; one sum has every name that it has."""
    sums = {COST_TYPES.get(name, name) for name in named or ROLE_COST_TYPES}
    return frozenset(name for name in ROLE_COST_TYPES if COST_TYPES.get(name, name) in sums)
