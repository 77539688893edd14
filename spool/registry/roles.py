"""
Roles of people: what they may do, and of which calls they see anything. Values and rules; no file.

A role names its members by their e-mail addresses or by groups of the OpenID provider. Several roles unite: a person
may do what one of them allows, and sees what one of them shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from spool.registry.operators import ADMIN, OPERATOR, VIEWER
from spool.registry.permission_sets import ALL, OF_MEMBER, OF_OPERATOR, with_included

FULL, LIMITED, NO_DATA = "full", "limited", "none"  # data access
DATA_ACCESS = (FULL, LIMITED, NO_DATA)
IS, EXCEPT = "is", "except"  # modes of a filter
MODES = (IS, EXCEPT)
MEMBER_ID, OPERATOR_ID, ORGANIZER_ID = "member", "operator", "organizer"

_MAX_COMBINATIONS = 1000  # of a filter's values, one by one

Filter = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFilter:
    """Passes calls whose value of `dimension` is one of `values`, or with EXCEPT none of them. "" is unknown."""

    dimension: str
    values: tuple[str, ...]
    mode: str = IS

    def holds(self, value: str) -> bool:
        return (value in self.values) == (self.mode == IS)

    def contains(self, include: Collection[str], exclude: Collection[str]) -> bool:
        """
        Surely passes all that has one of the values `include` and none of `exclude`; without `include` every value.

        What is included and excluded at once counts as included: the answer may be no where yes would be right.
        """
        if include and all(map(self.holds, include)):
            return True
        return self.mode == EXCEPT and set(self.values) <= set(exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSlice:
    """
    What a person may see of the ledger: calls that pass every filter of one of the parts.

    Without parts nothing is seen; a part without filters shows everything.
    """

    parts: tuple[tuple[RoleFilter, ...], ...] = ()

    @property
    def is_everything(self) -> bool:
        return () in self.parts

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Every dimension that it names, once, sorted."""
        return tuple(sorted({each.dimension for part in self.parts for each in part}))

    def holds(self, value_of: Callable[[str], str]) -> bool:
        """Whether what has these values of dimensions is seen."""
        return any(all(each.holds(value_of(each.dimension)) for each in part) for part in self.parts)

    def contains(self, include: Filter, exclude: Filter) -> bool:
        """
        Whether everything that passes a view's filter is seen, whatever there is.

        No if that is not sure. Included values are looked at one by one, so that two roles may show one each.
        """
        asked = [name for name in self.dimensions if include.get(name)]
        if prod(len(include[name]) for name in asked) > _MAX_COMBINATIONS:
            return self._part_contains(include, exclude)
        choices = product(*(include[name] for name in asked))
        return all(
            self._part_contains(
                {**include, **{name: (value,) for name, value in zip(asked, each, strict=True)}}, exclude
            )
            for each in choices
        )

    def without_unknown(self, known: Collection[str]) -> LedgerSlice:
        """The slice without its parts that name a dimension which is not `known` any more: they show nothing."""
        return LedgerSlice(parts=tuple(part for part in self.parts if all(each.dimension in known for each in part)))

    def _part_contains(self, include: Filter, exclude: Filter) -> bool:
        return any(
            all(each.contains(include.get(each.dimension, ()), exclude.get(each.dimension, ())) for each in part)
            for part in self.parts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """As it is kept. Times are epoch seconds; `groups` are those of the OpenID provider."""

    id: str
    name: str
    description: str = ""
    data_access: str
    filters: tuple[RoleFilter, ...] = ()
    cost_types: tuple[str, ...] = ()
    permission_sets: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    created: float = 0.0
    last_updated: float = 0.0
    last_updated_by: str = ""

    @property
    def is_builtin(self) -> bool:
        return self.id in BUILTIN

    @property
    def gives_everything(self) -> bool:
        return self.data_access == FULL and with_included(self.permission_sets) == ALL

    def is_of(self, person: str, groups: Collection[str] = ()) -> bool:
        """Whether it is given to the person of this e-mail address, or to one of these groups."""
        return person in self.members or not set(self.groups).isdisjoint(groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What a person may do and see at one moment. `roles` are the names of the roles that say so."""

    permission_sets: frozenset[str] = frozenset()
    slice: LedgerSlice = LedgerSlice()
    roles: tuple[str, ...] = ()


_BUILTIN = (
    Role(
        id=MEMBER_ID,
        name="Member",
        description="Reads everything, changes nothing. Accounts with the role viewer.",
        data_access=FULL,
        permission_sets=tuple(sorted(OF_MEMBER)),
    ),
    Role(
        id=OPERATOR_ID,
        name="Operator",
        description="Runs Tollhouse day by day: all but people, API keys and the installation. Accounts with the role"
        " operator.",
        data_access=FULL,
        permission_sets=tuple(sorted(OF_OPERATOR)),
    ),
    Role(
        id=ORGANIZER_ID,
        name="Organizer",
        description="Everything. Accounts with the role admin, and whoever works at the server itself.",
        data_access=FULL,
        permission_sets=tuple(sorted(ALL)),
    ),
)
BUILTIN: Mapping[str, Role] = {role.id: role for role in _BUILTIN}
# The role of an account gives one of them; NO_ROLE gives none.
BASES: Mapping[str, Role] = {
    VIEWER: BUILTIN[MEMBER_ID],
    OPERATOR: BUILTIN[OPERATOR_ID],
    ADMIN: BUILTIN[ORGANIZER_ID],
}


class Roles:
    """All roles of an installation but the built-in ones, and what each person has by them."""

    def __init__(self, roles: Iterable[Role]) -> None:
        self._roles = tuple(sorted(roles, key=lambda role: (role.name.casefold(), role.id)))

    def of(self, person: str, groups: Collection[str] = (), base: str = "") -> Rights:
        """The rights of who has this e-mail address and these groups; `base` is the role of the account, if any."""
        roles = list(self._given(person, groups, base))
        parts = dict.fromkeys(part for role in roles for part in _parts(role))
        return Rights(
            permission_sets=with_included(id for role in roles for id in role.permission_sets),
            slice=EVERY_CALL if () in parts else LedgerSlice(parts=tuple(parts)),
            roles=tuple(role.name for role in roles),
        )

    def _given(self, person: str, groups: Collection[str], base: str) -> Iterator[Role]:
        if base in BASES:
            yield BASES[base]
        yield from (role for role in self._roles if role.is_of(person, groups))


def _parts(role: Role) -> Iterator[tuple[RoleFilter, ...]]:
    if role.data_access == FULL:
        yield ()
    elif role.data_access == LIMITED and role.filters:
        yield role.filters


EVERY_CALL = LedgerSlice(parts=((),))
EVERYTHING = Roles(()).of("", base=ADMIN)  # the rights of an Organizer
