"""
Roles of people: what they may do, and of which calls they see anything. Values and rules; no file.

A role names its members by their e-mail addresses or by groups of the OpenID provider. Several roles unite: a
person may do what one of them allows, and sees what one of them shows.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from spool.ledger.queries import Wanted
from spool.registry.operators import (
    ADMIN,
    NO_ROLE,
    OPERATOR,
    VIEWER,
    Operator,
    Person,
    Session,
)
from spool.registry.permission_sets import (
    ALL,
    OF_MEMBER,
    OF_OPERATOR,
    ORGANIZATION_ADMINISTRATION,
    with_included,
)
from spool.registry.shared.cost_types import COUNTED_TYPES, ROLE_COST_TYPES, shown_types
from spool.registry.shared.documents import DocumentKind
from spool.registry.shared.edits import version_of

MAX_NAME = 200
MAX_DESCRIPTION = 2000
MAX_VALUE = 256  # characters, as much as the ledger keeps
MAX_GROUP = 256  # characters of a group's name

FULL, LIMITED, NO_DATA = "full", "limited", "none"  # data access
DATA_ACCESS = (FULL, LIMITED, NO_DATA)
IS, EXCEPT = "is", "except"  # modes of a filter
MODES = (IS, EXCEPT)
MEMBER_ID, OPERATOR_ID, ORGANIZER_ID = "member", "operator", "organizer"

_MAX_COMBINATIONS = 1000  # of a filter's values, one by one


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

    Without parts nothing is seen; a part without filters has every call. With `hides_money` it is still not
    everything: not every cost type is shown.
    """

    parts: tuple[tuple[RoleFilter, ...], ...] = ()
    hides_money: bool = False

    @property
    def has_every_call(self) -> bool:
        return () in self.parts

    @property
    def is_everything(self) -> bool:
        return self.has_every_call and not self.hides_money

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Every dimension that it names, once, sorted."""
        return tuple(sorted({each.dimension for part in self.parts for each in part}))

    def holds(self, value_of: Callable[[str], str]) -> bool:
        """True if a person with this slice sees a call with these values."""
        return any(all(each.holds(value_of(each.dimension)) for each in part) for part in self.parts)

    def contains(self, include: Wanted, exclude: Wanted) -> bool:
        """
        True if everything that passes a view's filter is seen, whatever records there are.

        No if that is not sure. Included values are looked at one by one, so that two roles may show one each.
        """
        if self._part_contains(include, exclude):
            return True
        asked = [name for name in self.dimensions if include.get(name)]
        if prod(len(include[name]) for name in asked) > _MAX_COMBINATIONS:
            return False
        choices = product(*(include[name] for name in asked))
        return all(
            self._part_contains(
                {**include, **{name: (value,) for name, value in zip(asked, each, strict=True)}}, exclude
            )
            for each in choices
        )

    def without_unknown(self, known: Collection[str]) -> LedgerSlice:
        """The slice without its parts that name a dimension which is not `known` any more: they show nothing."""
        parts = (part for part in self.parts if all(each.dimension in known for each in part))
        return replace(self, parts=tuple(parts))

    def _part_contains(self, include: Wanted, exclude: Wanted) -> bool:
        return any(
            all(
                each.contains(include.get(each.dimension, ()), exclude.get(each.dimension, ()))
                for each in part
            )
            for part in self.parts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLimits:
    """How many roles there may be, and how much one of them may name."""

    most: int = 200
    members: int = 1000  # members and groups of one role
    filters: int = 20
    values: int = 1000  # of all filters of one role


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDraft:
    """What a person or a key states of a role. `groups` are those of the OpenID provider."""

    name: str
    description: str = ""
    data_access: str
    filters: tuple[RoleFilter, ...] = ()
    cost_types: tuple[str, ...] = ()
    permission_sets: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Role(RoleDraft):
    """As it is kept. Times are epoch seconds."""

    id: str
    created: float = 0.0
    last_updated: float = 0.0
    last_updated_by: str = ""

    @property
    def version(self) -> str:
        return version_of(self)

    @property
    def is_builtin(self) -> bool:
        return self.id in BUILTIN

    @property
    def is_limiting(self) -> bool:
        """True if it shows less than accounts of their own role see: some calls, or some of the money."""
        return self.data_access == LIMITED or bool(self.cost_types)

    def broken(self, known: Collection[str]) -> str | None:
        """Why its filters show nothing: dimensions that are not among the `known` ones any more; None if they can."""
        gone = sorted({each.dimension for each in self.filters} - set(known))
        if not gone:
            return None
        return (
            f"the ledger does not know {', '.join(gone)} any more, so the role shows no calls: add the tag "
            "to [ledger]"
            " tags, publish a definition of the dimension, or change the role"
        )


ROLES = DocumentKind("role", Role, "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """
    What a person may do and see at one moment. `roles` are the names of the roles that say so.

    `slice` is of calls and all that is made of them: of the roles that show every counted cost type. `shown` has the
    parts of all roles, each with the cost types in which it is shown.
    """

    permission_sets: frozenset[str] = frozenset()
    slice: LedgerSlice = LedgerSlice()
    roles: tuple[str, ...] = ()
    shown: tuple[tuple[frozenset[str], tuple[RoleFilter, ...]], ...] = ()

    def slice_of(self, cost_types: Collection[str]) -> LedgerSlice:
        """Return what may be seen in the money of these cost types, by the roles that show all of them."""
        parts = dict.fromkeys(part for types, part in self.shown if types.issuperset(cost_types))
        if () not in parts:
            return LedgerSlice(parts=tuple(parts))
        return LedgerSlice(parts=((),), hides_money=(frozenset(ROLE_COST_TYPES), ()) not in self.shown)

    @property
    def hides_calls(self) -> bool:
        """True if there are calls to see, but none of them in every counted cost type."""
        return bool(self.shown) and not self.slice.parts

    @property
    def cost_types(self) -> tuple[str, ...]:
        """The cost types in which anything is shown."""
        return tuple(name for name in ROLE_COST_TYPES if self.slice_of((name,)).parts)

    @property
    def is_everything(self) -> bool:
        return self.permission_sets == ALL and self.slice.is_everything

    @property
    def may_administer(self) -> bool:
        """May manage people and roles: their calls show the data of everybody, so it takes all data."""
        return ORGANIZATION_ADMINISTRATION in self.permission_sets and self.slice.is_everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """
    A person as a role holder: e-mail address, groups, and the role of the account.

    `has_default_role`: the account's role is the one that the OpenID provider's settings have for everybody else.
    """

    person: str
    groups: tuple[str, ...] = ()
    base: str = ""
    has_default_role: bool = False


def holder_of(session: Session) -> Holder:
    """Return the person behind a session as roles see one. A console link gives its own role and no other."""
    groups = tuple(json.loads(session.groups))
    return Holder(person=session.account if session.operator else "", groups=groups, base=session.role)


_BUILTIN = (
    Role(
        id=MEMBER_ID,
        name="Member",
        description="Reads everything, changes nothing. Accounts with the role Member.",
        data_access=FULL,
        permission_sets=tuple(sorted(OF_MEMBER)),
    ),
    Role(
        id=OPERATOR_ID,
        name="Operator",
        description="Runs Tollhouse day by day: all but people, API keys and the installation. Accounts with the role"
        " Operator.",
        data_access=FULL,
        permission_sets=tuple(sorted(OF_OPERATOR)),
    ),
    Role(
        id=ORGANIZER_ID,
        name="Organizer",
        description="Everything. Accounts with the role Organizer, and whoever works at the server itself.",
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
        self._by_member: dict[str, list[int]] = {}
        self._by_group: dict[str, list[int]] = {}
        for place, role in enumerate(self._roles):
            for member in role.members:
                self._by_member.setdefault(member, []).append(place)
            for group in role.groups:
                self._by_group.setdefault(group, []).append(place)

    def of(self, person: str, groups: Collection[str] = (), base: str = "") -> Rights:
        """The rights of who has this e-mail address and these groups; `base` is the role of the account, if any."""
        own = (BASES[base],) if base in BASES else ()
        roles = (*own, *self.given(person, groups))
        shown = dict.fromkeys((shown_types(role.cost_types), part) for role in roles for part in _parts(role))
        rights = Rights(
            permission_sets=with_included(id for role in roles for id in role.permission_sets),
            roles=tuple(role.name for role in roles),
            shown=tuple(shown),
        )
        return replace(rights, slice=rights.slice_of(COUNTED_TYPES))

    def of_holder(self, holder: Holder) -> Rights:
        """The rights of a person. Who is named by a role has no default role, from the moment of being named on."""
        is_closed = holder.has_default_role and self._is_named(holder.person, holder.groups)
        return self.of(holder.person, holder.groups, NO_ROLE if is_closed else holder.base)

    def given(self, person: str, groups: Collection[str] = ()) -> Iterator[Role]:
        """The roles that name the person or one of the groups, by their names."""
        places = set(self._by_member.get(person, ()))
        for group in groups:
            places.update(self._by_group.get(group, ()))
        return (self._roles[place] for place in sorted(places))

    def base_of(self, person: Person) -> str:
        """
        The role of the account of a person whom an OpenID provider has signed in.

        Who is named by a role, and in no group that gives a role of accounts, has what the role gives and no
        more: the default role of everybody else would open what the role shall close.
        """
        return (
            NO_ROLE if not person.is_mapped and self._is_named(person.email, person.groups) else person.role
        )

    def organizers(self, operators: Iterable[Operator]) -> frozenset[str]:
        """The accounts that may sign in and do everything. Groups do not count: nobody knows who is in them."""
        return frozenset(
            each.email
            for each in operators
            if not each.disabled and self.of(each.email, base=each.role).is_everything
        )

    def _is_named(self, person: str, groups: Collection[str]) -> bool:
        return next(self.given(person, groups), None) is not None


def new_role_id() -> str:
    return secrets.token_hex(16)


def dimensions(draft: RoleDraft) -> Iterator[str]:
    """Every dimension that a role names."""
    return (each.dimension for each in draft.filters)


def _parts(role: Role) -> Iterator[tuple[RoleFilter, ...]]:
    if role.data_access == FULL:
        yield ()
    elif role.data_access == LIMITED and role.filters:
        yield role.filters


EVERYTHING = Roles(()).of("", base=ADMIN)  # the rights of an Organizer
