"""The digests of sessions and runs in a ledger that belongs to no installation."""

from __future__ import annotations

from spool.ledger.work import UNITS, WorkUnitHasher, unit_number_from_name_or_digest

DIGESTS = WorkUnitHasher(b"")


def as_shown(unit: str, name: str, *, session: str | None = None) -> str:
    """Return the value under which results show a unit of a call."""
    return name if UNITS[unit].is_named else DIGESTS.digest_of_id(unit, name, session=session)


def stored_number(unit: str, name: str) -> int:
    """Return the number under which a ledger stores a unit."""
    return unit_number_from_name_or_digest(unit, as_shown(unit, name))
