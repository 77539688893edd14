"""
Receivers for agents and gateways below: e-mail addresses of people, so that each person has one row, and
erasures.

Of an address, only the link between its hashes is stored, and no answer contains an address.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from gateway.core.errors import BadPayload, Refusal
from gateway.core.schemas import COUNT, OBJECT, array_schema, closed_object_schema
from gateway.http.address import WRITE, ApiAddress
from gateway.http.answers import JSON
from gateway.http.requests import Result
from gateway.operations.requests.operation_requests import OperationKeyRequest
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.erasure import erasure_order_for_lower_installations, erasures_to_json
from spool.ledger.dimensions import TAG, TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, next_full_hour
from spool.ledger.sums import OTHER
from spool.log.protocols import RecordLog
from spool.people import LATEST, SECOND_NAME, USER, CallTime, People, hash_address_with_key, is_address
from spool.record import NS
from spool.registry.scopes import INGEST
from spool.registry.tables.persons import CONFLICT_LIMIT, KEY_LIMIT, LIMIT, MAX_NAME, ReportedForms

MAX_ADDRESSES = 1000
MAX_KEYS = 8  # maximum gateways in a chain
MAX_DONE = 10_000
SEARCHED_S = 92 * 86_400.0  # age of calls in which the names of a sender are looked for
AHEAD_S = 2 * 86_400.0  # how far the clock of a sender may be ahead

Time = Annotated[int, Meta(ge=0, le=LATEST)]
Key = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Meta(max_length=MAX_NAME)]
Id = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]


class PersonLinkServices(Protocol):
    """What this receiver needs."""

    ledger: Ledger
    log: RecordLog

    async def relay_addresses(
        self, keys: Sequence[bytes], addresses: Mapping[str, int], /
    ) -> Collection[str] | None:
        """
        Pass addresses on to the Tollhouse above. Return those that wait there, or None if it cannot be reached.
        """


class StatedAddresses(msgspec.Struct, kw_only=True):
    """
    E-mail addresses, each with the time of its newest call, and the ids of the keys with which addresses are
    hashed.
    """

    keys: Annotated[list[Key], Meta(min_length=1, max_length=MAX_KEYS, description="Keys of hashes.")]
    addresses: Annotated[
        dict[Text, Time],
        Meta(max_length=MAX_ADDRESSES, description="The newest call by e-mail address, in nanoseconds."),
    ]


class ConfirmedErasures(msgspec.Struct, kw_only=True):
    """The public id of an installation, and the ids of erasures that it has finished."""

    installation: Annotated[Id, Meta(description="The public id of the sender.")]
    done: Annotated[list[Id], Meta(max_length=MAX_DONE, description="Ids of finished erasures.")] = []


@ApiAddress(
    methods=("POST",),
    path="/v1/ai-control-plane/people/addresses",
    summary="Link the hashes that Tollhouses have for an address",
    endpoint="people/addresses",
    scope=INGEST,
    gives={
        200: {
            JSON: closed_object_schema(
                {
                    "accepted": {**COUNT, "description": "The number of addresses in the request."},
                    "waiting": {
                        **array_schema(COUNT),
                        "description": "The positions of addresses of which no call of the sender has arrived yet. "
                        "Send them again later.",
                    },
                    "left_out": {
                        **COUNT,
                        "description": "The number of addresses that were not linked, because the sender used up its "
                        "share of `privacy.max_names`, or a person has 100 names.",
                    },
                }
            )
        }
    },
    refusals=WRITE,
)
async def link_addresses(request: OperationKeyRequest[PersonLinkServices, StatedAddresses]) -> Result:
    """
    Add the hashes of each e-mail address from lower Tollhouses to its person here, and pass the addresses to the
    Tollhouse above. An address whose calls are all erased is left out, and so is one of which the sender sent no call.
    """
    sender = _require_downstream_sender(request.bearer)
    body, people, registry = request.body, request.shared.people, request.shared.require_registry()
    if not all(map(is_address, body.addresses)):
        raise BadPayload("addresses must be e-mail addresses.")
    most = request.shared.most
    max_conflicts = most(CONFLICT_LIMIT)
    keys = await registry.persons.accepted_hash_keys(
        sender,
        [bytes.fromhex(key) for key in body.keys],
        max_keys=1 if request.bearer.device is not None else most(KEY_LIMIT),
        max_conflicts=max_conflicts,
        actor=request.actor,
    )
    addresses = {name: at for name, at in body.addresses.items() if not _was_erased_after(people, name, at)}
    reported = {
        name: ReportedForms(
            people.recorded_name_or_hash(name), [hash_address_with_key(key, name) for key in keys]
        )
        for name in addresses
    }
    named = (
        await _names_in_calls_of_sender(request, reported.values(), addresses.values())
        if keys
        else frozenset()
    )
    sent = {name: at for name, at in addresses.items() if not named.isdisjoint(reported[name].hashes)}
    left_out = await registry.persons.link_address_forms(
        [reported[name] for name in sent],
        sender=sender,
        max_names=most(LIMIT),
        max_conflicts=max_conflicts,
        actor=request.actor,
    )
    waiting_above = await request.services.relay_addresses(keys, sent)
    if waiting_above is None:
        raise Refusal(503, "upstream_waits", "The Tollhouse above cannot be reached.", retry_after_s=60)
    waiting = {*waiting_above, *(addresses.keys() - sent.keys() if keys else ())}
    # return the number of addresses, because the number of new links would show which links exist
    return {
        "accepted": len(body.addresses),
        "waiting": [position for position, name in enumerate(body.addresses) if name in waiting],
        "left_out": left_out,
    }


async def _names_in_calls_of_sender(
    request: OperationKeyRequest[PersonLinkServices, StatedAddresses],
    reported: Collection[ReportedForms],
    call_starts_ns: Collection[int],
) -> frozenset[str]:
    """
    Return those hashes that name the user, the team, the key or a tag of a call which the sender sent. If the totals
    joined further users of the sender in OTHER, every hash may be one of them.
    """
    forms = [name for each in reported for name in each.hashes]
    if not forms:
        return frozenset()
    ledger, now = request.services.ledger, request.shared.clock.now()
    await ledger.require_complete_totals(request.services.log)
    first, last = (min(at / NS, now + AHEAD_S) for at in (min(call_starts_ns), max(call_starts_ns)))
    since = datetime.fromtimestamp(max(first, now - SEARCHED_S), UTC)
    bearer = request.bearer
    is_device = bearer.device is not None and not bearer.may_chain
    query = CostQuery(
        since=since.replace(hour=0, minute=0, second=0, microsecond=0),
        until=next_full_hour(max(last, now)),
        granularity=TOTAL,
        measures=("calls",),
        stated_names=True,
        include={
            "device" if is_device else "sender": ((bearer.device if is_device else bearer.sender) or "",)
        },
    )
    found = set[str]()
    tags = [f"{TAG}{name}" for name in ledger.tags]
    for dimensions in ((USER, SECOND_NAME), ("team",), ("api_key",), *((tag,) for tag in tags)):
        rest = tuple(name for name in forms if name not in found)
        if not rest:
            break
        include = {**query.include, dimensions[0]: (*rest, OTHER)}
        rows = await ledger.costs(replace(query, group_by=dimensions, include=include))
        found.update(name for row in rows for name in row.group if name is not None)
    return frozenset(forms) if OTHER in found else frozenset(found)


@ApiAddress(
    methods=("POST",),
    path="/v1/ai-control-plane/people/erasures",
    summary="Fetch the erasures that this agent or gateway has not confirmed, and confirm others",
    endpoint="people/erasures",
    scope=INGEST,
    gives={
        200: {
            JSON: closed_object_schema(
                {
                    "format": {**COUNT, "description": "1."},
                    "erasures": {
                        **array_schema(OBJECT),
                        "description": "The erasures to carry out, with digests of names.",
                    },
                }
            )
        }
    },
    refusals=WRITE,
)
async def follow_erasures(request: OperationKeyRequest[PersonLinkServices, ConfirmedErasures]) -> Result:
    """Return the erasures to carry out: digests of names, and pseudonyms, but no name."""
    name = _require_downstream_sender(request.bearer)
    if request.bearer.device is None:
        # add the installation to the name, because gateways may share a key
        name += f" {request.body.installation}"
    persons = request.shared.require_registry().persons
    await persons.store_agent_or_gateway_below(name, request.body.done, actor=request.actor)
    key = request.shared.people.erasure_key
    return erasures_to_json(
        erasure_order_for_lower_installations(erasure, key)
        for erasure in persons.erasures
        if name in erasure.below
    )


def _require_downstream_sender(bearer: AuthenticatedKey) -> str:
    """Return the name of an agent or a gateway below. Refusal 403 for other senders."""
    if bearer.lower_installation is not None:
        return bearer.lower_installation
    message = "Only agents, and gateways whose key server.chain_keys names, may send this."
    raise Refusal(403, "gateway_key_needed", message)


def _was_erased_after(people: People, address: str, call_start_ns: int) -> bool:
    call = CallTime(call_start_ns)
    return any(people.pseudonym(form, call) != form for form in people.all_recorded_names(address))
