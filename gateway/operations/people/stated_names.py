"""
Operator API handlers for names that senders state together: the account and the e-mail address of the same calls.

Nothing is linked without an operator, because a sender can state a false address.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from typing import Annotated

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, CostRow, next_full_hour
from spool.ledger.sums import OTHER
from spool.people import SECOND_NAME, USER, People
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION
from spool.registry.tables.persons import LIMIT, LinkedPerson

DAYS = timedelta(days=92)
FREE, LINKED, CONFLICT = "free", "linked", "conflict"
STATES = (FREE, LINKED, CONFLICT)


@dataclass(frozen=True, slots=True)
class AccountWithStatedAddress:
    """
    An account, and an address that its calls state. `reason` says why they are not linked, or is "".
    `of_user` and `of_address` count all calls with the account, and with the address, as user.
    """

    user: str
    address: str
    calls: int
    state: str
    reason: str = ""
    of_user: int = 0
    of_address: int = 0


STATED: ListDefinition[AccountWithStatedAddress] = ListDefinition(
    root="stated_names",
    shows_people=True,
    show=lambda row: {
        "user": row.user, "address": row.address, "calls": row.calls, "calls_of_user": row.of_user,
        "calls_of_address": row.of_address, "state": row.state, "reason": row.reason or None
    },
    identity=Sort(value=lambda row: f"{row.user} {row.address}"),
    sorts={"calls": Sort(value=lambda row: row.calls), "user": Sort(value=lambda row: row.user)},
    default_sort=("calls", "desc"),
    filters={
        "user": Filter(values=lambda row: (row.user, row.address), is_open=True, names_people=True),
        "state": Filter(values=lambda row: (row.state,), valid_values=STATES),
    },
)  # fmt: skip


class StatedNameItem(msgspec.Struct, kw_only=True):
    user: Annotated[
        str,
        words("The name of the user account that calls state."),
        example("7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ]
    address: Annotated[
        str,
        words("The address that calls of the account state, as records have it."),
        example("email:419600c11ba4cfdd5d2f0b7a93c4e681"),
    ]
    calls: Annotated[int, words("The number of calls that state both names."), example(120)]
    calls_of_user: Annotated[int, words("The number of all calls of the account."), example(120)]
    calls_of_address: Annotated[int, words("The number of all calls of the address."), example(14)]
    state: Annotated[
        str, words("Whether the two names are linked, can be linked, or may be two people."), example("free")
    ]
    reason: Annotated[str | None, words("Why the names stay apart, or null."), example(None)]


class LinkedStatedNames(msgspec.Struct, kw_only=True):
    kept: Annotated[int, words("The number of linked pairs."), example(1)]
    conflicts: Annotated[int, words("The number of pairs that may be two people and stay apart."), example(0)]


@operator_call(
    "GET",
    "/people/stated",
    ORGANIZATION_ADMINISTRATION,
    "List accounts with the addresses that their calls state",
    lists=STATED,
    in_turn=True,
    item=StatedNameItem,
)
async def list_accounts_with_stated_addresses(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    List the pairs of an account name and an e-mail address that calls of the last 92 days stated together. A
    pair is a conflict if its account states several addresses, if several accounts of one source state its
    address, or if both names are linked with different people.
    """
    stated = await _read_account_address_pairs_of_calls(request)
    names = dict.fromkeys(name for row in stated for name in (row.user, row.address))
    query = replace(_account_address_pairs_query(request), group_by=(USER,), include={USER: tuple(names)})
    calls = {row.group[0]: row.calls for row in await request.ledger.costs(query)} if names else {}
    rows = [
        replace(row, of_user=calls.get(row.user, 0), of_address=calls.get(row.address, 0)) for row in stated
    ]
    return await request.list_page(STATED, MemoryRows(rows))


@operator_call(
    "POST",
    "/people/link-stated",
    ORGANIZATION_ADMINISTRATION,
    "Link accounts with the addresses that their calls state",
    in_turn=True,
    answers=one_field_answer(
        "LinkStatedAnswer", people=Annotated[LinkedStatedNames, words("What was linked.")]
    ),
)
async def link_accounts_with_stated_addresses(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Link each pair of an account name and an address that conflicts with no other link. Reports show the
    address.
    """
    stated = await _read_account_address_pairs_of_calls(request)
    people = [LinkedPerson(names=(row.address, row.user)) for row in stated if row.state == FREE]
    max_names = request.shared.most(LIMIT)
    await request.registry.persons.link_names(people, max_names=max_names, actor=request.actor)
    conflicts = sum(row.state == CONFLICT for row in stated)
    return {"people": {"kept": len(people), "conflicts": conflicts}}


async def _read_account_address_pairs_of_calls(
    request: OperatorRequest[MoneyServices, None],
) -> list[AccountWithStatedAddress]:
    await request.ledger.require_complete_totals(request.services.log)
    by_pair = replace(
        _account_address_pairs_query(request),
        group_by=(USER, SECOND_NAME, "source"),
        exclude={USER: ("", OTHER), SECOND_NAME: ("",)},
    )
    rows = await request.ledger.costs(by_pair)
    return await asyncio.to_thread(lambda: list(_classify_account_address_pairs(rows, request.shared.people)))


def _account_address_pairs_query(request: OperatorRequest[MoneyServices, None]) -> CostQuery:
    until = next_full_hour(request.now())
    since = until.astimezone(UTC).replace(hour=0) - DAYS
    return CostQuery(since=since, until=until, granularity=TOTAL, measures=("calls",), stated_names=True)


def _classify_account_address_pairs(
    rows: Sequence[CostRow], people: People
) -> Iterator[AccountWithStatedAddress]:
    calls = Counter[tuple[str, str]]()
    addresses = defaultdict[str, set[str]](set)  # addresses by account
    accounts = defaultdict[tuple[str, str], set[str]](set)  # accounts by address and source
    for row in rows:
        account, address, source = (value or "" for value in row.group)
        calls[account, address] += row.calls
        addresses[account].add(address)
        accounts[address, source].add(account)
    crowded = {address: source for (address, source), own in accounts.items() if len(own) > 1}
    for (account, address), count in calls.items():
        linked, other = people.linked_names(account), people.linked_names(address)
        if linked and linked == other:
            yield AccountWithStatedAddress(account, address, count, LINKED)
        elif len(addresses[account]) > 1:
            yield AccountWithStatedAddress(
                account, address, count, CONFLICT, "the account states several addresses"
            )
        elif address in crowded:
            reason = f"several accounts of {crowded[address]} state the address"
            yield AccountWithStatedAddress(account, address, count, CONFLICT, reason)
        elif linked and other:
            yield AccountWithStatedAddress(
                account, address, count, CONFLICT, "both names are linked with other names"
            )
        else:
            yield AccountWithStatedAddress(account, address, count, FREE)
