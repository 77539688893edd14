"""
Units of work: the session, agent run, repository, branch, commit, pull request or ticket of a call. Pure.

There are too many for dimensions, so calls with units have further sums (table `work`), one for each set of
units and dimensions. A unit is stored as a digest of its name. Ids of sessions and runs are personal data, so
their digest needs the installation's secret. Only names of other units are stored (table `work_names`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack
from typing import Any, NamedTuple, TypeVar

from spool.identity import has_unique_id_form
from spool.installation import derive_secret

REST, NONE = 0, -1  # ids for all unlisted units of a kind, and for no unit
EDGE = -2  # in the place of the ticket, marks a set of units that only states who started a run
OTHER = "(other)"  # REST as results show it
_BITS = 63  # engines store signed 64-bit integers


UNLISTS = "unlists"  # state key: how often units were unlisted
# state key: time before which units with calls were unlisted and are listed again
FORGOTTEN = "forgotten"
ROLLUP = 1000  # number of the rollup of the sums by units


T = TypeVar("T", bound=Any)  # a run's number, or its digest


def unit_name_or_empty_if_other(name: str) -> str:
    """
    Return a sender's name of a unit of work as it is counted. The text OTHER counts as no name, because it
    stands for values that are counted together.
    """
    return "" if name == OTHER else name


class RunLineage(NamedTuple):
    """A run, the run that started it, and its session, all as digests."""

    run: str
    parent: str | None
    session: str | None


@dataclass(frozen=True, kw_only=True)
class RunTree:
    """
    The runs above those of a query. `parents`: the run that started each run, without cycles. `sessions`:
    each run's sessions. `forks`: the session above each linked session. `hidden`: units that results must not
    contain.
    """

    parents: Mapping[int, int]
    sessions: Mapping[int, Collection[int]] = field(default_factory=dict)
    forks: Mapping[int, int] = field(default_factory=dict)
    hidden: Container[int] = frozenset()


class WorkUnit(NamedTuple):
    """A kind of unit. `number`: how the kind is stored. `is_named`: the names of its units are stored."""

    number: int
    meaning: str
    is_named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """
    Limits of listed units: their number per kind and month, and how long after the last call they stay
    listed. Unless `people`, no query combines sessions or runs with users or devices.
    """

    ids_per_month: int = 100_000
    retention_s: float = 90 * 86400.0
    retention_units_s: float = 396 * 86400.0
    people: bool = True

    def unit_retention_s(self, unit: WorkUnit) -> float:
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
TAGS = tuple(name for name in UNITS if name not in (SESSION, RUN))
# the number of these names is limited, because people choose them, so views may filter by them
BOUNDED = ("repository", "pull_request", "ticket")
TREES = (SESSION, RUN)  # their runs can start other runs, so they have an aggregated cost
OF_PEOPLE = ("user", "device")  # if WorkLimits.people is False, no query combines these dimensions with TREES
MAX_LEVELS = 100  # maximum counted runs above one call
# units of each kind, in the order of UNITS, and the run that started the call's run
Units = tuple[int, ...]
KINDS = (*(unit.number for unit in UNITS.values()), UNITS[RUN].number)  # the kind of each unit in `Units`


# the form of digests in queries and results
_DIGESTS = {unit: re.compile(f"{unit}:(?!0{{16}})[0-7][0-9a-f]{{15}}", re.ASCII) for unit in TREES}


class WorkUnitHasher:
    """
    Computes digests of sessions and runs with the installation's secret. Without the secret, anyone who
    guesses a name could compute its digest.
    """

    def __init__(self, secret: bytes) -> None:
        key = derive_secret(secret, "sessions and runs")
        self._hashes = {
            unit.number: _new_hash(unit.number, b"" if unit.is_named else key) for unit in UNITS.values()
        }
        self._of_kinds = [self._hashes[kind] for kind in KINDS]

    def hash_units(
        self, session: str | None, run: str | None, parent: str | None, tags: Mapping[str, str]
    ) -> Units:
        runs = [
            _run_name(session, each) if each else None for each in (run, parent if run != parent else None)
        ]
        named = [unit_name_or_empty_if_other(tags.get(tag, "")) for tag in TAGS]
        names = (session, runs[0], *named, runs[1] if run else None)
        hashed = zip(self._of_kinds, names, strict=True)
        return tuple([_hash_name(hash, name) if name else NONE for hash, name in hashed])

    def edge_to_starting_run(self, session: str | None, run: str, parent: str) -> Units:
        """
        Return a set of units that states who started a run. It is for runs whose own calls do not state it.
        """
        *units, _, above = self.hash_units(session, run, parent, {})
        return (*units, EDGE, above)

    def digest_of_id(self, unit: str, id: str, *, session: str | None = None) -> str:
        return unit_digest_text(
            unit, _hash_name(self._hashes[UNITS[unit].number], _run_name(session, id) if unit == RUN else id)
        )

    def to_digest(self, unit: str, text: str) -> str:
        return text if is_digest(unit, text) else self.digest_of_id(unit, text)

    def filters_with_digests(self, filters: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        digests = {
            unit: tuple(
                [text if text in ("", OTHER) else self.to_digest(unit, text) for text in filters[unit]]
            )
            for unit in TREES
            if unit in filters
        }
        return {**filters, **digests}


def _new_hash(kind: int, key: bytes = b"") -> blake2b:
    return blake2b(digest_size=8, person=kind.to_bytes(1), key=key)


def _hash_name(hash: blake2b, name: str) -> int:
    return _hash_bytes(hash, name.encode("utf-8", "replace")) or 1


def unit_number_from_name_or_digest(unit_kind: str, name: str) -> int:
    """
    Return the number of a unit by its name or, for a session or run, by its digest. It is never REST or NONE.
    Raises ValueError for an id in place of a digest.
    """
    if UNITS[unit_kind].is_named:
        return _hash_name(_new_hash(UNITS[unit_kind].number), name)
    if not is_digest(unit_kind, name):
        raise ValueError(f"not a digest of a {unit_kind}")
    return int(name.removeprefix(f"{unit_kind}:"), 16)


def unit_set_number(units: Units) -> int:
    return _hash_bytes(_new_hash(0), pack(f">{len(units)}q", *units))


def _hash_bytes(hash: blake2b, data: bytes) -> int:
    digest = hash.copy()  # half the time of a new hash with a key
    digest.update(data)
    return int.from_bytes(digest.digest()) >> (64 - _BITS)


def unit_digest_text(unit_kind: str, unit_number: int) -> str:
    return f"{unit_kind}:{unit_number:016x}"


def is_digest(unit: str, text: str) -> bool:
    return _DIGESTS[unit].fullmatch(text) is not None


def _run_name(session: str | None, run: str) -> str:
    return run if has_unique_id_form(run) else f"{session or ''}\0{run}"


def names_to_store(units: Units, tags: Mapping[str, str]) -> dict[int, str]:
    numbers = units[len(TREES) : len(UNITS)]
    return {number: tags[tag] for number, tag in zip(numbers, TAGS, strict=True) if number != NONE}


def queried_unit(group_by: Sequence[str], named: Iterable[str]) -> str | None:
    """
    Return the unit of work that a query groups by, else one that it names in filters. Raises ValueError if it
    groups by several.
    """
    units = [name for name in group_by if name in UNITS]
    if len(units) > 1:
        raise ValueError(f"a query can group by one unit of work, but has {' and '.join(units)}")
    return next((name for name in (*units, *named) if name in UNITS), None)


def unit_numbers(unit: str, values: Iterable[str | None]) -> list[int]:
    """
    Return the numbers of units in a query. Sessions and runs must be digests; "" and None stand for no unit.
    """
    return [
        NONE if not value else REST if value == OTHER else unit_number_from_name_or_digest(unit, value)
        for value in values
    ]


def can_match_unknown(include: Mapping[str, Sequence[str]], exclude: Mapping[str, Sequence[str]]) -> bool:
    """Return whether calls without any unit of work pass the filters."""
    included = all("" in values for name, values in include.items() if name in UNITS)
    return included and not any("" in values for name, values in exclude.items() if name in UNITS)


def break_cycles(parents: Mapping[T, T]) -> dict[T, T]:
    """Return the parent of each run, without cycles: the smallest run of a cycle has none."""
    cut, seen = dict(parents), set[T]()
    for run in parents:
        path = dict[T, None]()
        while run in cut and run not in seen:
            seen.add(run)
            path[run] = None
            run = cut[run]
        if run in path:
            steps = [*path]
            del cut[min(steps[steps.index(run) :])]
    return cut
