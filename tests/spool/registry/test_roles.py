"""Roles: the rights that several of them give together, and the views that lie within their data."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.errors import Invalid
from spool.registry.documents import replace_fields
from spool.registry.operators import ADMIN, NO_ROLE, OPERATOR, VIEWER, Operator, Person
from spool.registry.permission_sets import (
    ALL,
    API_KEY_MANAGEMENT,
    OF_MEMBER,
    OF_OPERATOR,
    ORGANIZATION_ADMINISTRATION,
    PERMISSION_SETS,
    VIEW_COSTS,
    VIEW_OPERATION,
    VIEW_RECORDS,
    resolve_permission_sets,
)
from spool.registry.roles import (
    EVERYTHING,
    EXCEPT,
    FULL,
    IS,
    LIMITED,
    NO_DATA,
    ROLE_COST_TYPES,
    LedgerSlice,
    NewRole,
    Rights,
    Role,
    RoleFilter,
    RoleLimits,
    Roles,
    check_role_draft,
)

ADA, BOB = "ada@example.com", "bob@example.com"
VALUES = {"team": ("", "ads", "search"), "model": ("", "haiku", "opus"), "tag:env": ("prod", "test")}
EVERY_CALL = [dict(zip(VALUES, each, strict=True)) for each in product(*VALUES.values())]

FILTERS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.builds(
        RoleFilter,
        dimension=st.just(name),
        values=st.lists(st.sampled_from(VALUES[name]), min_size=1, unique=True).map(tuple),
        mode=st.sampled_from((IS, EXCEPT)),
    )
)
SLICES = st.lists(st.lists(FILTERS, max_size=3).map(tuple), max_size=3).map(
    lambda parts: LedgerSlice(parts=tuple(parts))
)
ROLES = st.builds(
    Role,
    id=st.just("r"),
    name=st.text(max_size=3),
    data_access=st.sampled_from((FULL, LIMITED, NO_DATA)),
    filters=st.lists(FILTERS, max_size=2).map(tuple),
    permission_sets=st.lists(st.sampled_from(sorted(PERMISSION_SETS)), max_size=2).map(tuple),
    members=st.sampled_from(((), (ADA,), (ADA, BOB))),
    groups=st.sampled_from(((), ("finance",))),
)
CHOSEN = st.fixed_dictionaries(
    {}, optional={name: st.lists(st.sampled_from(VALUES[name])).map(tuple) for name in VALUES}
)


def role(name: str = "Search", **fields: object) -> Role:
    given = {"id": name, "name": name, "data_access": NO_DATA, "members": (ADA,)}
    return Role(**{**given, **fields})  # type: ignore[arg-type]


def team(*values: str, mode: str = IS) -> RoleFilter:
    return RoleFilter(dimension="team", values=values, mode=mode)


def passes(
    call: dict[str, str], include: dict[str, tuple[str, ...]], exclude: dict[str, tuple[str, ...]]
) -> bool:
    """Return whether the call passes a view's filter. An entry without values has no effect."""
    return all(call[name] in values for name, values in include.items() if values) and not any(
        call[name] in values for name, values in exclude.items()
    )


@given(SLICES, CHOSEN, CHOSEN)
def test_a_view_that_is_contained_shows_no_call_outside(
    part: LedgerSlice, include: dict[str, tuple[str, ...]], exclude: dict[str, tuple[str, ...]]
) -> None:
    """`contains` is never wrongly true, over every possible call."""
    shown = [call for call in EVERY_CALL if passes(call, include, exclude)]
    if part.contains(include, exclude):
        assert [] == [call for call in shown if not part.has_call(call.__getitem__)]


@pytest.mark.parametrize(
    ("parts", "include", "exclude", "expected"),
    [
        ((), {"team": ("search",)}, {}, False),
        (((),), {}, {}, True),
        (((team("search"),),), {"team": ("search",)}, {}, True),
        (((team("search"),),), {"team": ("search", "ads")}, {}, False),
        (((team("search"),),), {"team": ()}, {}, False),
        (((team("search"),),), {}, {"team": ("ads",)}, False),
        (((team("search"),), (team("ads"),)), {"team": ("search", "ads")}, {}, True),
        (((team("ads", mode=EXCEPT),),), {}, {"team": ("ads", "")}, True),
        (((team("ads", mode=EXCEPT),),), {"team": ("search",)}, {}, True),
        (((team("ads", mode=EXCEPT),),), {"model": ("opus",)}, {}, False),
        (((team(""),),), {"team": ("",)}, {}, True),
    ],
)
def test_contained_views(parts: object, include: object, exclude: object, expected: bool) -> None:
    """`contains` recognizes the common cases instead of refusing all."""
    assert expected is LedgerSlice(parts=parts).contains(include, exclude)  # type: ignore[arg-type]


def test_a_filter_of_many_values_is_looked_at_as_a_whole() -> None:
    """The number of checked combinations is limited. Beyond the limit, a single role must show all values."""
    names = tuple(f"t{i}" for i in range(40))
    models = tuple(f"m{i}" for i in range(40))
    one = LedgerSlice(parts=((team(*names), RoleFilter(dimension="model", values=models)),))
    assert one.contains({"team": names, "model": models}, {})
    halves = LedgerSlice(
        parts=((team(*names[:20]), *one.parts[0][1:]), (team(*names[20:]), *one.parts[0][1:]))
    )
    assert halves.contains({"team": names, "model": models[:25]}, {})
    assert not halves.contains({"team": names, "model": models}, {})


@given(
    st.lists(ROLES, max_size=4),
    st.sampled_from((ADA, BOB, "eve@example.com")),
    st.booleans(),
    st.sampled_from(("", VIEWER)),
)
def test_roles_unite(roles: list[Role], person: str, is_finance: bool, base: str) -> None:
    """
    A person sees a call if one of the roles shows it, and may do everything that one of the roles permits.
    """
    groups = ("finance",) if is_finance else ()
    rights = Roles(roles).person_rights(person, groups, base)
    given = [each for each in roles if person in each.members or set(groups) & set(each.groups)]
    shows_all = bool(base) or any(each.data_access == FULL for each in given)
    for call in EVERY_CALL:
        by_filters = any(
            each.data_access == LIMITED
            and each.filters
            and all(f.is_met_by(call[f.dimension]) for f in each.filters)
            for each in given
        )
        assert (shows_all or by_filters) == rights.slice.has_call(call.__getitem__)
    assert shows_all == rights.slice.is_everything
    assert rights.permission_sets == (OF_MEMBER if base else frozenset()).union(
        *(resolve_permission_sets(each.permission_sets) for each in given)
    )
    assert len(given) + bool(base) == len(rights.roles)


@given(FILTERS, st.text(max_size=3))
def test_the_two_modes_are_opposites(one: RoleFilter, value: str) -> None:
    """The two modes of a filter are opposites: every value passes exactly one of them."""
    other = RoleFilter(dimension=one.dimension, values=one.values, mode=EXCEPT if one.mode == IS else IS)
    assert one.is_met_by(value) != other.is_met_by(value)


def test_who_has_no_role_has_no_rights() -> None:
    """No built-in role is given automatically, and a role without members gives nothing."""
    assert Rights(person=ADA) == Roles([role(members=())]).person_rights(ADA)
    assert not Rights().slice.has_call(lambda _: "")


def test_limited_without_filters_shows_nothing() -> None:
    """If a role loses its filters, it must not show everything."""
    assert not Roles([role(data_access=LIMITED)]).person_rights(ADA).slice.parts


@pytest.mark.parametrize(
    ("base", "name", "permission_sets"),
    [(VIEWER, "Member", OF_MEMBER), (OPERATOR, "Operator", OF_OPERATOR), (ADMIN, "Organizer", ALL)],
)
def test_the_role_of_an_account_is_a_built_in_role(
    base: str, name: str, permission_sets: frozenset[str]
) -> None:
    """The built-in role of an account shows all data, as accounts did before roles existed."""
    rights = Roles(()).person_rights(ADA, base=base)
    assert rights.roles == (name,)
    assert rights.permission_sets == permission_sets
    assert rights.slice.is_everything is True
    assert (rights == replace(EVERYTHING, person=ADA)) is (base == ADMIN)


def test_a_built_in_role_has_all_that_it_includes() -> None:
    """The lists of rights of Member and Operator include everything that these roles give."""
    assert resolve_permission_sets(OF_MEMBER) == OF_MEMBER
    assert resolve_permission_sets(OF_OPERATOR) == OF_OPERATOR
    assert {VIEW_RECORDS, VIEW_COSTS} < OF_MEMBER < OF_OPERATOR < ALL


def test_permission_to_change_includes_permission_to_read() -> None:
    """Permission to change keys includes permission to read them. A deleted set gives nothing."""
    given = Roles([role(permission_sets=(API_KEY_MANAGEMENT, "long_gone"))]).person_rights(ADA)
    assert {API_KEY_MANAGEMENT, VIEW_OPERATION} == given.permission_sets
    assert {each for one in PERMISSION_SETS.values() for each in one.includes} <= set(PERMISSION_SETS)


def test_role_exception_on_a_missing_dimension_shows_nothing() -> None:
    """
    An EXCEPT filter on a missing dimension would show everything, so that part of the role is removed instead.
    """
    both = LedgerSlice(
        parts=((team("search"),), (RoleFilter(dimension="tag:x", values=("a",), mode=EXCEPT),))
    )
    assert ("tag:x", "team") == both.dimensions
    assert LedgerSlice(parts=((team("search"),),)) == both.without_unknown_dimensions(("team", "model"))
    assert () == both.without_unknown_dimensions(()).parts


def test_only_full_data_with_all_sets_is_everything() -> None:
    """
    Full data with all sets is the right of an Admin, and several roles may give it together. Administration
    requires all data.
    """

    def of(*roles: Role) -> tuple[bool, bool]:
        rights = Roles(roles).person_rights(ADA)
        return rights.is_everything, rights.can_administer

    every_set = tuple(ALL)
    limited: dict[str, Any] = {"data_access": LIMITED, "filters": (team("ads"),)}
    assert (True, True) == of(role(data_access=FULL, permission_sets=every_set))
    assert (False, False) == of(role(**limited, permission_sets=every_set))
    assert (True, True) == of(role(**limited, permission_sets=every_set), role("All data", data_access=FULL))
    assert (False, False) == of(role(data_access=FULL, permission_sets=tuple(OF_OPERATOR)))
    assert (False, True) == of(role(data_access=FULL, permission_sets=(ORGANIZATION_ADMINISTRATION,)))


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        ({"role": ADMIN}, True),
        ({"role": ADMIN, "disabled": True}, False),
        ({"role": VIEWER}, False),
        ({"role": NO_ROLE, "email": BOB}, True),
        ({"role": NO_ROLE, "email": BOB, "disabled": True}, False),
    ],
)
def test_who_counts_as_an_organizer(account: dict[str, Any], expected: bool) -> None:
    """
    To count, an account must be able to sign in and have everything, by its own role or as a member. Groups
    do not count.
    """
    fields = {"email": ADA, "created_by": "x", "created_at": 0.0, "last_modified": 0.0, "password": b""}
    operator = Operator(**{**fields, **account})
    everything = role(data_access=FULL, permission_sets=tuple(ALL), members=(BOB,), groups=("root",))
    assert expected is bool(Roles([everything]).enabled_admins([operator]))


@pytest.mark.parametrize(
    ("person", "expected"),
    [
        ({"email": ADA}, NO_ROLE),
        ({"groups": ("finance",)}, NO_ROLE),
        ({"groups": ("others",)}, VIEWER),
        ({"email": ADA, "groups": ("ops",), "is_mapped": True, "role": OPERATOR}, OPERATOR),
    ],
)
def test_who_is_named_by_a_role_has_no_default_role(person: dict[str, Any], expected: str) -> None:
    """A person whom a role names has no default role, unless the provider maps a group to one."""
    fields = {"email": BOB, "role": VIEWER, "decides_role": True, "issuer": "https://idp", "subject": "1"}
    roles = Roles([role(groups=("finance",))])
    assert expected == roles.account_role(Person(**{**fields, **person}))


DRAFT = NewRole(name="Search", data_access=LIMITED, filters=(team("search"),))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "name must have 1 to"),
        ({"name": "x" * 201}, "name must have 1 to"),
        ({"description": "x" * 2001}, "description must have at most"),
        ({"data_access": "some"}, "full, limited, none"),
        ({"filters": ()}, "needs at least one filter"),
        ({"data_access": FULL}, "filters need data_access limited"),
        ({"filters": (team(),)}, "team needs at least one value"),
        ({"filters": (team("x" * 257),)}, "at most 256 characters"),
        ({"filters": (team("a", mode="not"),)}, "is, except"),
        ({"filters": (team("a"),) * 3}, "roles.max_filters"),
        ({"filters": (team("a", "b"), team("c", "d"))}, "roles.max_values"),
        ({"members": (ADA, BOB), "groups": ("x",)}, "roles.max_members"),
        ({"members": ("ada",)}, "e-mail address"),
        ({"groups": ("",)}, "groups must have 1 to"),
        ({"permission_sets": ("root",)}, "view_costs"),
        ({"cost_types": ("guessed_cost",)}, "billed_cost"),
    ],
)
def test_a_draft_breaks_a_rule(changes: dict[str, Any], message: str) -> None:
    """If a draft breaks a rule, the error names the field and the rule. A draft at the limit is accepted."""
    limits = RoleLimits(filters=2, values=3, members=2)
    with pytest.raises(Invalid, match=re.escape(message)):
        check_role_draft(replace_fields(DRAFT, **changes), limits)
    at_edge = replace_fields(DRAFT, filters=(team("a", "b"), team("c")), members=(ADA,), groups=("x",))
    assert at_edge == check_role_draft(at_edge, limits)


def test_draft_is_stored_in_one_form() -> None:
    """Blanks, letter case and repeated e-mail addresses or sets do not make a different draft."""
    given = replace_fields(
        DRAFT,
        name=" Search ",
        members=("Bob@Example.com", ADA, BOB),
        permission_sets=(VIEW_RECORDS, VIEW_COSTS, VIEW_RECORDS),
        filters=(team("a", "a", ""),),
    )
    kept = check_role_draft(given, RoleLimits())
    assert (
        replace_fields(
            DRAFT, members=(ADA, BOB), permission_sets=(VIEW_COSTS, VIEW_RECORDS), filters=(team("a", ""),)
        )
        == kept
    )


def test_cost_types_unite_by_what_each_role_shows() -> None:
    """
    Several roles may each show a kind of money. A query gets the parts of the roles that show all its kinds.
    """
    part = role("Search", data_access=LIMITED, filters=(team("search"),))
    rights = Roles([part, in_full("Bill", "billed_cost"), in_full("Real", "real_cost")]).person_rights(ADA)
    assert (part.filters,) == rights.slice.parts == rights.slice_for_cost_types(("discounted_cost",)).parts
    assert (
        ((),)
        == rights.slice_for_cost_types(("billed_cost",)).parts
        == rights.slice_for_cost_types(("real_cost",)).parts
    )
    assert (part.filters,) == rights.slice_for_cost_types(("real_cost", "billed_cost")).parts
    assert not rights.slice_for_cost_types(("billed_cost",)).is_everything
    assert ROLE_COST_TYPES == rights.cost_types


def test_a_role_shows_the_cost_types_that_it_names() -> None:
    """A sum is visible under every name that it has. A person who sees all types sees everything."""
    alone = Roles([in_full("Bill", "billed_cost")]).person_rights(ADA)
    assert alone.cost_types == ("billed_cost",)
    assert alone.hides_calls is True
    assert alone.slice.parts == ()
    listed = Roles([in_full("List", "estimated_cost")]).person_rights(ADA)
    assert ("estimated_cost", "on_demand_cost") == listed.cost_types
    assert Roles([in_full("All", *ROLE_COST_TYPES)]).person_rights(ADA).slice.is_everything


def in_full(name: str, *cost_types: str) -> Role:
    return role(name, data_access=FULL, cost_types=cost_types)
