"""
Units of work: the session, agent run, repository, branch, commit, pull request or ticket of a call. Pure.

There are too many of them for dimensions, so each unit has sums of its own beside the hours (table `work`). A
unit of a call is stored as a number: the digest of its name. Names of sessions and runs are personal data, so
only the digest is stored. The names of the other units are stored once (table `work_names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

REST = 0  # stands for all units that are no longer listed
OTHER = "(other)"  # value of REST in results
_BITS = 63  # both engines store signed integers of 64 bits


# Sums of units are numbered among the rollups: the number of the kind after this number.
ROLLUPS = 1000


class WorkUnit(NamedTuple):
    """A kind of unit. `number` is stored. If `is_named`, the names of its units are stored."""

    number: int
    meaning: str
    is_named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """
    Limits of the listed units: the number of each kind in a month, and the seconds after the last call for which
    sessions and runs, and all other units, are listed.
    """

    ids_per_month: int = 100_000
    retention_s: float = 90 * 86400.0
    retention_units_s: float = 396 * 86400.0

    def listed_s(self, unit: WorkUnit) -> float:
        return self.retention_units_s if unit.is_named else self.retention_s


WORK_LIMITS = WorkLimits()


SESSION, RUN = "session", "run"
UNITS: Mapping[str, WorkUnit] = {
    SESSION: WorkUnit(1, "the session or conversation of the call, as a digest", is_named=False),
    RUN: WorkUnit(2, "the run of an agent that made the call, as a digest", is_named=False),
    "repository": WorkUnit(3, "the repository that the call worked on"),
    "branch": WorkUnit(4, "the branch that the call worked on"),
    "commit": WorkUnit(5, "the commit that the call worked on"),
    "pull_request": WorkUnit(6, "the pull request that the call worked on"),
    "ticket": WorkUnit(7, "the ticket that the call worked on"),
}
TAGS = tuple(name for name in UNITS if name not in (SESSION, RUN))  # units that a call has as a tag
_NAMED = tuple((name, unit.number) for name, unit in UNITS.items() if unit.is_named)
Place = tuple[int, int]  # number of the kind of unit, and number of the unit
Places = tuple[Place, ...]  # all units of a call


def number_of(kind: int, name: str) -> int:
    """Return the number of a unit. It is never REST."""
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=8, person=kind.to_bytes(1)).digest()
    return int.from_bytes(digest) >> (64 - _BITS) or 1


def shown(number: int) -> str:
    """Return the text for a unit without a stored name."""
    return f"{number:016x}"


def as_shown(unit: str, name: str, *, session: str | None = None) -> str:
    """Return a unit's value in results. A run's id may be unique only within its session."""
    if UNITS[unit].is_named:
        return name
    return shown(number_of(UNITS[unit].number, f"{session or ''}\0{name}" if unit == RUN else name))


def places_of(session: str | None, run: str | None, tags: Mapping[str, str]) -> Sequence[tuple[Place, str]]:
    """Return the units of a call, each with the name to store, or "" if its name is not stored."""
    places: list[tuple[Place, str]] = []
    if session:
        places.append(((UNITS[SESSION].number, number_of(UNITS[SESSION].number, session)), ""))
    if run:
        places.append(((UNITS[RUN].number, number_of(UNITS[RUN].number, f"{session or ''}\0{run}")), ""))
    for tag, kind in _NAMED:
        if name := tags.get(tag):
            places.append(((kind, number_of(kind, name)), name))
    return places


def asked(names: Iterable[str]) -> str | None:
    """
    Return the unit of work among the dimensions of a query, or None. Raises ValueError if there are several.
    """
    units = [name for name in names if name in UNITS]
    if len(units) > 1:
        raise ValueError(f"a query can use one unit of work, but has {' and '.join(units)}")
    return units[0] if units else None


def numbers_of(unit: str, values: Iterable[str | None]) -> list[int]:
    """Return the numbers of units by the values in a query. Unknown values ("" or None) are left out."""
    return [_number_of(unit, value) for value in values if value]


def _number_of(unit: str, value: str) -> int:
    if value == OTHER:
        return REST
    if not UNITS[unit].is_named and len(value) == 16 and not set(value) - set("0123456789abcdef"):
        return int(value, 16)
    return number_of(UNITS[unit].number, value)


def asks_unknown(
    unit: str, include: Mapping[str, Sequence[str]], exclude: Mapping[str, Sequence[str]]
) -> bool:
    """Return True if calls without a unit pass the filters of a query."""
    return "" in include.get(unit, ("",)) and "" not in exclude.get(unit, ())
