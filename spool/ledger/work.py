"""
Units of work: the session, agent run, repository, branch, commit, pull request or ticket of a call. Pure.

There are too many of them for dimensions, so calls with units have sums of their own beside the hours (table `work`),
one for each set of units and dimensions. A unit is stored as a number: the digest of its name. Names of sessions
and runs are personal data, so only the digest is stored. The names of the other units are stored once (table
`work_names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import pack
from typing import NamedTuple

from spool.identity import is_unique

REST, NONE = 0, -1  # stand for all units of a kind that are no longer listed, and for no unit
EDGE = -2  # stands for the ticket in a set of units without sums, which only states who started a run
OTHER = "(other)"  # value of REST in results
_BITS = 63  # both engines store signed integers of 64 bits


UNLISTS = "unlists"  # key in the state of the totals: 1 after the first unit was unlisted
ROLLUP = 1000  # the number of the sums by units of work among the rollups


class Lineage(NamedTuple):
    """A run with the run that started it and its session, all as digests."""

    run: str
    parent: str | None
    session: str | None


class WorkUnit(NamedTuple):
    """A kind of unit. `number` is stored. If `is_named`, the names of its units are stored."""

    number: int
    meaning: str
    is_named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """
    Limits of the listed units: the number of each kind in a month, and the seconds after the last call for which
    sessions and runs, and all other units, are listed. If `people` is False, no query combines sessions or runs with
    users or devices.
    """

    ids_per_month: int = 100_000
    retention_s: float = 90 * 86400.0
    retention_units_s: float = 396 * 86400.0
    people: bool = True

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
# units with names that people choose, so that views may name them
BOUNDED = ("repository", "pull_request", "ticket")
TREES = (SESSION, RUN)  # units whose runs start further runs, so they have an aggregated cost
OF_PEOPLE = ("user", "device")  # dimensions that WorkLimits.people keeps apart from TREES
MAX_LEVELS = 100  # runs above a run to whose aggregated cost its calls belong
# number of the unit of each kind, in the order of UNITS, and at the end that of the run that started the call's run
Units = tuple[int, ...]
KINDS = (*(unit.number for unit in UNITS.values()), UNITS[RUN].number)  # the kind of each of Units


def number_of(kind: int, name: str) -> int:
    """Return the number of a unit. It is neither REST nor NONE."""
    return _digest(name.encode("utf-8", "replace"), kind) or 1


def number_of_set(units: Units) -> int:
    """Return the number of a set of units."""
    return _digest(pack(f">{len(units)}q", *units), 0)


def _digest(data: bytes, kind: int) -> int:
    digest = blake2b(data, digest_size=8, person=kind.to_bytes(1)).digest()
    return int.from_bytes(digest) >> (64 - _BITS)


def shown(number: int) -> str:
    """Return the digest under which results show a unit whose name is not stored."""
    return f"{number:016x}"


def as_shown(unit: str, name: str, *, session: str | None = None) -> str:
    """Return a unit's value in results."""
    if UNITS[unit].is_named:
        return name
    return shown(number_of(UNITS[unit].number, _run(session, name) if unit == RUN else name))


def _run(session: str | None, run: str) -> str:
    """Return the name of a run among all runs."""
    return run if is_unique(run) else f"{session or ''}\0{run}"


def units_of(session: str | None, run: str | None, parent: str | None, tags: Mapping[str, str]) -> Units:
    """Return the units of a call."""
    runs = [_run(session, each) if each else None for each in (run, parent if run != parent else None)]
    names = (session, runs[0], *map(tags.get, TAGS), runs[1] if run else None)
    return tuple([number_of(kind, name) if name else NONE for kind, name in zip(KINDS, names, strict=True)])


def edge_of(session: str | None, run: str, parent: str) -> Units:
    """Return the set of units that states who started a run, for a run whose own calls do not state it."""
    *units, _, above = units_of(session, run, parent, {})
    return (*units, EDGE, above)


def names_to_store(units: Units, tags: Mapping[str, str]) -> dict[int, str]:
    """Return the names of the units of a call by their numbers, without names that are not stored."""
    numbers = units[len(TREES) : len(UNITS)]
    return {number: tags[tag] for number, tag in zip(numbers, TAGS, strict=True) if number != NONE}


def asked(group_by: Sequence[str], named: Iterable[str]) -> str | None:
    """
    Return the unit of work that a query groups by, or else one that it filters by, or None. Raises ValueError if it
    groups by several.
    """
    units = [name for name in group_by if name in UNITS]
    if len(units) > 1:
        raise ValueError(f"a query can group by one unit of work, but has {' and '.join(units)}")
    return next((name for name in (*units, *named) if name in UNITS), None)


def numbers_of(unit: str, values: Iterable[str | None]) -> list[int]:
    """Return the numbers of units by the values in a query. "" and None mean no unit."""
    return [_number_of(unit, value) for value in values]


def _number_of(unit: str, value: str | None) -> int:
    if not value:
        return NONE
    if value == OTHER:
        return REST
    if not UNITS[unit].is_named and len(value) == 16 and not set(value) - set("0123456789abcdef"):
        number = int(value, 16)
        if 0 < number < 1 << _BITS:  # any other number is no digest, so the text is an id
            return number
    return number_of(UNITS[unit].number, value)


def asks_unknown(include: Mapping[str, Sequence[str]], exclude: Mapping[str, Sequence[str]]) -> bool:
    """Return True if calls without any unit pass the filters of a query."""
    included = all("" in values for name, values in include.items() if name in UNITS)
    return included and not any("" in values for name, values in exclude.items() if name in UNITS)
