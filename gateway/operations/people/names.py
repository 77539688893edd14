"""
Operator API handlers for the names of people whom records store as hashes. Names are entered by hand,
imported as CSV, or taken from accounts.

An account's e-mail address names the person with its hash, without being stored again. This includes accounts
of the OpenID provider.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.requests.address import call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid
from spool.people import is_hash
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION, VIEW_NAMES
from spool.registry.tables.person_names import LIMIT

MAX_AT_ONCE = 5000
GIVEN, ACCOUNT = "given", "account"
ORIGINS = (GIVEN, ACCOUNT)


@dataclass(frozen=True, slots=True)
class PersonName:
    user: str  # the hash that records store for the person
    name: str
    origin: str


class NamedPerson(RequestBody):
    """
    The name of a person. `user` is an e-mail address or its hash. Without `name`, the address becomes the name.
    """

    user: str
    name: str = ""


class NamesOfPeople(RequestBody):
    names: list[NamedPerson]


class ForgottenNames(RequestBody):
    """The names to delete: the names of these addresses or hashes, or all names that were entered."""

    users: list[str] | None = None
    all: bool = False


NAMES: List[PersonName] = List(
    root="people_names",
    show=lambda row: {"user": row.user, "name": row.name, "origin": row.origin},
    identity=Sort(value=lambda row: row.user),
    sorts={"name": Sort(value=lambda row: row.name), "user": Sort(value=lambda row: row.user)},
    default_sort=("name", "asc"),
    filters={
        "user": Filter(values=lambda row: (row.user,), is_open=True, names_people=True),
        "origin": Filter(values=lambda row: (row.origin,), valid_values=ORIGINS),
    },
)


@call("GET", "/people-names", VIEW_NAMES, "List names behind hashed people", lists=NAMES)
async def list_people_names(request: OperatorRequest[PeopleServices, None]) -> Result:
    accounts = {
        user: PersonName(user, operator.email, ACCOUNT)
        for operator in await request.registry.operators.all()
        if is_hash(user := request.services.hashed(operator.email))
    }
    stored_names = await request.registry.person_names.all()
    known = {**accounts, **{user: PersonName(user, name, GIVEN) for user, name in stored_names.items()}}
    return await request.list(NAMES, MemoryRows(list(known.values())))


@call("POST", "/people-names", ORGANIZATION_ADMINISTRATION, "Name people behind hashes")
async def keep_people_names(request: OperatorRequest[PeopleServices, NamesOfPeople]) -> Result:
    """Add or replace names. Addresses are hashed here and not stored."""
    entries = request.body.names
    if not 1 <= len(entries) <= MAX_AT_ONCE:
        raise Invalid(f"names must have 1 to {MAX_AT_ONCE} entries")
    names = {}
    for entry in entries:
        stated = entry.user.strip()
        user = stated if is_hash(stated) else request.services.hashed(stated)
        names[user] = entry.name.strip() or stated
    max_names = request.shared.most(LIMIT)
    count = await request.registry.person_names.keep(names, most=max_names, actor=request.actor)
    return {"people_names": {"kept": len(names), "count": count}}


@call("POST", "/people-names/forget", ORGANIZATION_ADMINISTRATION, "Delete names of people")
async def forget_people_names(request: OperatorRequest[PeopleServices, ForgottenNames]) -> Result:
    body = request.body
    if (body.users is not None) == body.all:
        raise Invalid("use either users or all, not both")
    hashes = None if body.users is None else list(map(request.services.hashed, body.users))
    gone = await request.registry.person_names.forget(hashes, actor=request.actor)
    return {"people_names": {"forgotten": gone}}
