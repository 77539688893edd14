"""
Operator API handlers for the names of people: the names to show, and the names in records that belong to one person.
Names are entered by hand, imported as CSV, or taken from accounts.

An account's e-mail address names the person with its hash, without being stored again. This includes accounts
of the OpenID provider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid
from spool.people import is_address_hash, is_hash_address_or_pseudonym
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION, VIEW_NAMES
from spool.registry.tables.persons import CONFLICT_KINDS, CONFLICT_STATES, LIMIT, LinkedPerson, NameConflict

MAX_AT_ONCE = 5000  # with 50 characters each, they fit into a request of 256 KiB
GIVEN, ACCOUNT = "given", "account"
ORIGINS = (GIVEN, ACCOUNT)


@dataclass(frozen=True, slots=True)
class ListedPerson:
    user: str  # name of the person that reports show
    names: tuple[str, ...]  # all names of the person in records
    name: str
    origin: str


class StatedPerson(RequestBody):
    """A person to link or to rename."""

    users: Annotated[
        list[str], words("Names of the person in records, or e-mail addresses. Reports show the first.")
    ]
    name: Annotated[str, words("The name of the person; default: a single address.")] = ""


class StatedPeople(RequestBody):
    people: Annotated[list[StatedPerson], words("The people to add or change.")]


class SplitName(RequestBody):
    """The name in records to separate from its person."""

    user: Annotated[str, words("The name to take out of its person.")]


class ForgottenPeople(RequestBody):
    """The people whose entered names to delete."""

    users: Annotated[
        list[str] | None, words("Names of the people in records, or their e-mail addresses.")
    ] = None
    all: Annotated[bool, words("Whether all people who were entered are deleted.")] = False


PEOPLE: ListDefinition[ListedPerson] = ListDefinition(
    root="people",
    show=lambda row: {"user": row.user, "names": row.names, "name": row.name, "origin": row.origin},
    identity=Sort(value=lambda row: row.user),
    sorts={"name": Sort(value=lambda row: row.name), "user": Sort(value=lambda row: row.user)},
    default_sort=("name", "asc"),
    filters={
        "user": Filter(values=lambda row: row.names, is_open=True, names_people=True),
        "origin": Filter(values=lambda row: (row.origin,), valid_values=ORIGINS),
    },
)


class PersonItem(msgspec.Struct, kw_only=True):
    user: Annotated[
        str, words("The name that reports show."), example("email:419600c11ba4cfdd5d2f0b7a93c4e681")
    ]
    names: Annotated[
        list[str],
        words("All names of the person in records."),
        example(["email:419600c11ba4cfdd5d2f0b7a93c4e681", "ada-lovelace"]),
    ]
    name: Annotated[str, words("The name that the console shows, or empty."), example("Ada Lovelace")]
    origin: Annotated[
        str, words("`given` if entered or linked by operators, or `account`."), example("given")
    ]


class KeptPeople(msgspec.Struct, kw_only=True):
    kept: Annotated[int, words("The number of people in the request."), example(1)]
    names: Annotated[int, words("The number of names of all stored people."), example(2)]


class SplitNames(msgspec.Struct, kw_only=True):
    split: Annotated[int, words("The number of names that became people of their own."), example(1)]


class ForgottenNames(msgspec.Struct, kw_only=True):
    forgotten: Annotated[int, words("The number of deleted people."), example(1)]


@operator_call("GET", "/people", VIEW_NAMES, "List people and their names", lists=PEOPLE, item=PersonItem)
async def list_people(request: OperatorRequest[PeopleServices, None]) -> Result:
    accounts = {
        user: operator.email
        for operator in await request.registry.operators.all()
        if is_address_hash(user := request.shared.people.hash_address(operator.email))
    }
    known = [_listed_person(person, accounts) for person in await request.registry.persons.all()]
    named = {name for row in known for name in row.names}
    known += [
        ListedPerson(user, (user,), email, ACCOUNT) for user, email in accounts.items() if user not in named
    ]
    return await request.list_page(PEOPLE, MemoryRows(known))


def _listed_person(person: LinkedPerson, accounts: dict[str, str]) -> ListedPerson:
    label = person.label or next((accounts[name] for name in person.names if name in accounts), "")
    return ListedPerson(person.names[0], person.names, label, GIVEN)


@operator_call(
    "POST",
    "/people",
    ORGANIZATION_ADMINISTRATION,
    "Name people and link their names",
    answers=one_field_answer(
        "KeepPeopleAnswer", people=Annotated[KeptPeople, words("The numbers of stored people and names.")]
    ),
)
async def link_people(request: OperatorRequest[PeopleServices, StatedPeople]) -> Result:
    """
    Link the names of each person, and add or replace the name to show. Addresses are converted as in records.
    """
    entries = request.body.people
    if not 1 <= len(entries) <= MAX_AT_ONCE:
        raise Invalid(f"people must have 1 to {MAX_AT_ONCE} entries; send the others in another request")
    people = [_read_person(request, entry) for entry in entries]
    max_names = request.shared.most(LIMIT)
    count = await request.registry.persons.link_names(people, max_names=max_names, actor=request.actor)
    return {"people": {"kept": len({person.names for person in people}), "names": count}}


def _read_person(request: OperatorRequest[PeopleServices, StatedPeople], entry: StatedPerson) -> LinkedPerson:
    stated = [user.strip() for user in entry.users]
    people = request.shared.people
    label = entry.name.strip()
    if len(stated) == 1 and is_hash_address_or_pseudonym(stated[0]):
        label = label or stated[0]
    return LinkedPerson(names=tuple(map(people.recorded_name_or_hash, stated)), label=label)


@operator_call(
    "POST",
    "/people/split",
    ORGANIZATION_ADMINISTRATION,
    "Take a name out of its person",
    answers=one_field_answer(
        "SplitPeopleAnswer", people=Annotated[SplitNames, words("The number of names that were split off.")]
    ),
)
async def split_person(request: OperatorRequest[PeopleServices, SplitName]) -> Result:
    """Let reports show the name as a person of its own again. No sum changes."""
    await request.registry.persons.unlink_name(request.body.user.strip(), actor=request.actor)
    return {"people": {"split": 1}}


@operator_call(
    "POST",
    "/people/forget",
    ORGANIZATION_ADMINISTRATION,
    "Delete people and their links",
    answers=one_field_answer(
        "ForgetPeopleAnswer", people=Annotated[ForgottenNames, words("The number of deleted people.")]
    ),
)
async def forget_people(request: OperatorRequest[PeopleServices, ForgottenPeople]) -> Result:
    body = request.body
    if (body.users is not None) == body.all:
        raise Invalid("use either users or all, not both")
    gone = await request.registry.persons.delete_people(body.users, actor=request.actor)
    return {"people": {"forgotten": gone}}


# -- conflicts: what senders stated about names, and an operator decides ---------------------------------------


NAME_CONFLICTS: ListDefinition[NameConflict] = ListDefinition(
    root="name_conflicts",
    shows_people=True,
    show=lambda row: {
        "id": row.id,
        "kind": row.kind,
        "sender": row.sender,
        "names": row.names,
        "state": row.state,
        "reported": utc_iso(row.at),
    },
    identity=Sort(value=lambda row: row.id),
    sorts={"reported": Sort(value=lambda row: row.at), "sender": Sort(value=lambda row: row.sender)},
    default_sort=("reported", "desc"),
    filters={
        "user": Filter(values=lambda row: row.names, is_open=True, names_people=True),
        "sender": Filter(values=lambda row: (row.sender,), is_open=True),
        "kind": Filter(values=lambda row: (row.kind,), valid_values=CONFLICT_KINDS),
        "state": Filter(values=lambda row: (row.state,), valid_values=CONFLICT_STATES),
    },
)


class NameConflictItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the conflict."), example("5f1c2b9a77d04e3f8a6b0c1d2e3f4a5b")]
    kind: Annotated[
        str,
        words(
            "`names` if a sender reports two names as one person, and they belong to two people here. `hash_key` if a "
            "sender hashes e-mail addresses with a further key."
        ),
        example("names"),
    ]
    sender: Annotated[str, words("The agent or gateway that reported it."), example("device laptop-1")]
    names: Annotated[
        list[str],
        words("The two names in records. Empty for a key."),
        example(["email:419600c11ba4cfdd5d2f0b7a93c4e681", "ada-lovelace"]),
    ]
    state: Annotated[
        str, words("`open`, or `apart` if an operator decided against the sender."), example("open")
    ]
    reported: Annotated[str, words("The time of the first report."), example("2026-11-20T09:00:00Z")]


class DecidedConflicts(RequestBody):
    """Conflicts of names, and the decision about them."""

    ids: Annotated[list[str], words("The ids of the conflicts.")]
    accept: Annotated[
        bool,
        words(
            "Whether the sender is right: the two names become one person, or the key may be used. Otherwise they stay "
            "apart."
        ),
    ]


class DecidedCount(msgspec.Struct, kw_only=True):
    decided: Annotated[int, words("The number of decided conflicts."), example(1)]


@operator_call(
    "GET",
    "/people/conflicts",
    ORGANIZATION_ADMINISTRATION,
    "List conflicts of names",
    lists=NAME_CONFLICTS,
    item=NameConflictItem,
)
async def list_name_conflicts(request: OperatorRequest[PeopleServices, None]) -> Result:
    """
    List what agents and gateways below reported about names, and Tollhouse did not do: join two people, or use a
    further hash key.
    """
    return await request.list_page(NAME_CONFLICTS, MemoryRows(await request.registry.persons.conflicts()))


@operator_call(
    "POST",
    "/people/conflicts/decide",
    ORGANIZATION_ADMINISTRATION,
    "Decide conflicts of names",
    answers=one_field_answer(
        "DecideConflictsAnswer", people=Annotated[DecidedCount, words("The number of decided conflicts.")]
    ),
)
async def decide_name_conflicts(request: OperatorRequest[PeopleServices, DecidedConflicts]) -> Result:
    """Decide about each conflict. Linking two names may widen what people with roles see."""
    body = request.body
    if not 1 <= len(body.ids) <= MAX_AT_ONCE:
        raise Invalid(f"ids must have 1 to {MAX_AT_ONCE} entries; send the others in another request")
    for id in dict.fromkeys(body.ids):
        await request.registry.persons.decide_conflict(
            id, is_accepted=body.accept, max_names=request.shared.most(LIMIT), actor=request.actor
        )
    return {"people": {"decided": len({*body.ids})}}
