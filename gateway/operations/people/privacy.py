"""
Operator API handlers for privacy requests: erase a person, and export what is stored about a person.

The receipt of an erasure lists every place that may have a name of the person. A place is done, it is pending until a
time, or somebody must be asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from aiohttp import web

from gateway.bills.plans.declared import AssistantPlan, PlanTable, SeatHeld
from gateway.core.errors import Refusal
from gateway.core.fields import one_field_answer
from gateway.core.schemas import TEXT
from gateway.devices import states
from gateway.http.answers import SLOW_S, UNCACHED
from gateway.http.requests import Result
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.installation.installation import require_local_path
from gateway.operations.people.viewings import describe_viewing
from gateway.operations.records.published import describe_record
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from gateway.operations.services import OperatorServices
from spool.devices.device import Device
from spool.disks import create_flushed_file
from spool.erasing import AGAIN_AFTER_S, ErasureResult, erase_from_storage
from spool.erasure import erasures_to_json, new_erasure
from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, next_full_hour
from spool.listing import ListQuery, SortField
from spool.people import SECOND_NAME, USER, filter_values_of_dimension, is_address
from spool.record import AI_TELEMETRY, USAGE_EVENTS, Correction, Record, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.keys import ApiKey
from spool.registry.operators import Operator
from spool.registry.permission_sets import ANSWER_PRIVACY_REQUESTS
from spool.registry.roles import Role
from spool.registry.tables.persons import check_names_one_person
from spool.searching import NamesFound
from spool.storage import Storage
from spool.viewed_people import SEVERAL, save_viewings

NDJSON = "application/x-ndjson"
DONE, PENDING, ASK = "done", "pending", "ask"
YEARS = 10  # number of years whose sums an export contains
MAX_LISTED = 100  # maximum number of backups and other names in a receipt
STEP = 1024  # records read at a time for an export


class ErasePerson(RequestBody):
    """A request to erase a person."""

    confirm: Annotated[
        str,
        words(
            "The name that the console shows, or the name of the person in records; not needed for a dry run."
        ),
    ] = ""
    devices: Annotated[bool, words("Whether the devices of the person are revoked and erased as well.")] = (
        False
    )
    texts: Annotated[bool, words("Whether free texts with a name of the person are replaced as well.")] = (
        False
    )
    dry_run: Annotated[bool, words("Whether to show the effect and change nothing.")] = False


class ExportPerson(RequestBody):
    """The absolute path of a directory that does not exist yet."""

    directory: Annotated[
        str, words("The absolute path of a directory on the server that does not exist yet.")
    ]


@dataclass(frozen=True, kw_only=True)
class KnownPerson:
    """A person: the name to show, the names in records, and all forms of these names, such as hashes."""

    label: str
    names: tuple[str, ...]
    forms: tuple[str, ...]
    is_linked: bool


@dataclass(frozen=True, kw_only=True)
class Belongings:
    """What a person has. `keys` stamp the person's name, and `members` are the person's addresses in roles."""

    seats: Sequence[tuple[AssistantPlan, SeatHeld]]
    devices: Sequence[Device]
    accounts: Sequence[Operator]
    roles: Sequence[Role]
    keys: Sequence[ApiKey]
    members: Collection[str]


class ErasedPlace(msgspec.Struct, kw_only=True):
    place: Annotated[str, words("The place, such as `records` or `backups`."), example("records")]
    state: Annotated[
        str, words("`done`, `pending`, or `ask` if Tollhouse cannot erase there."), example("done")
    ]
    what: Annotated[
        str,
        words("What was erased in the place, or what you must do there."),
        example("stored records; 1 deliveries got new idempotency keys"),
    ]
    count: Annotated[int | None, words("The number of items in the place, or null."), example(96)]
    until: Annotated[str | None, words("When the erasure in the place ends, or null."), example(None)]
    listed: Annotated[list[str], words("Items of the place, erased or not."), example([])]


class StoredErasure(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the erasure."), example("0f4c7d1b52a84e36b0c9e1f3a7d25c48")]
    at: Annotated[float, words("When the person was erased, in epoch seconds."), example(1796032800.0)]
    names: Annotated[
        dict[str, str],
        words("The pseudonyms by the digest of a name."),
        example({"9a2b6cf0d1e34875a6b7c8d9e0f1a2b3": "erased:5d3b0f7c1a9e2468"}),
    ]
    texts: Annotated[bool, words("Whether free texts with a name were replaced."), example(True)]
    devices: Annotated[bool, words("Whether devices of the person were revoked and erased."), example(False)]
    below: Annotated[
        list[str], words("The agents and gateways that still have to erase the person."), example([])
    ]
    key: Annotated[
        str,
        words(
            "If a Tollhouse above this one ordered the erasure, the key of its digests of names. Otherwise empty."
        ),
        example(""),
    ]


class ErasureFile(msgspec.Struct, kw_only=True):
    format: Annotated[int, words("The version of the file's format."), example(1)]
    erasures: Annotated[list[StoredErasure], words("The erasures, for restored backups.")]


class ErasureReport(msgspec.Struct, kw_only=True):
    id: Annotated[
        str | None,
        words("The id of the erasure; null in a dry run."),
        example("0f4c7d1b52a84e36b0c9e1f3a7d25c48"),
    ]
    at: Annotated[str, words("When the person was erased."), example("2026-11-29T10:00:00Z")]
    dry_run: Annotated[bool, words("Whether nothing was changed."), example(False)]
    names: Annotated[int, words("The number of names of the person in records."), example(3)]
    calls: Annotated[int, words("The number of calls of the person."), example(412)]
    places: Annotated[list[ErasedPlace], words("The places that may have the person, with their state.")]
    file: Annotated[
        ErasureFile | None, words("The erasure as a file for restored backups; null in a dry run.")
    ]


class PersonExport(msgspec.Struct, kw_only=True):
    directory: Annotated[
        str, words("The directory on the machine of the server."), example("/var/lib/tollhouse/export-1")
    ]
    calls: Annotated[int, words("The number of stored calls and usage events."), example(96)]
    months: Annotated[int, words("The number of months with calls."), example(4)]


@operator_call(
    "POST",
    "/people/{user}/erase",
    ANSWER_PRIVACY_REQUESTS,
    "Erase a person",
    answers=one_field_answer(
        "OneErasure", erasure=Annotated[ErasureReport, words("The erasure, with the fields below.")]
    ),
)
async def erase_person(request: OperatorRequest[OperatorServices, ErasePerson]) -> Result:
    """
    Replace every name of the person by a pseudonym, everywhere, and return a receipt. No sum changes. Refusal 404 if no
    call, account, device or link has the name.
    """
    body = request.body
    storage = _require_storage(request)
    person = await resolve_person_in_path(request)
    expected = person.label or person.names[0]
    if not body.dry_run and body.confirm.strip() not in (expected, request.path_parameter("user").strip()):
        raise Invalid(f"confirm must repeat the name {expected}")
    calls = await _months_with_calls(request, person)
    people, now = request.shared.people, request.now()
    digests = map(people.erasure_digest, person.forms)
    erasure = new_erasure(digests, now, texts=body.texts, devices=body.devices)
    others = await _further_names_in_calls_of_person(request, person)
    waits = await _has_waiting_reports(storage, person)
    work = partial(
        erase_from_storage,
        storage,
        erasure,
        revoke_device=states.device_revoker(""),
        actor=request.actor,
        shown_names=[person.label] if person.label else [],
    )
    erased = await work(is_trial=True)
    is_known = calls or erased.records.records
    if not (is_known or erased.rows.people or erased.rows.accounts or erased.devices):
        raise NotThere(_NOT_KNOWN)
    if not body.dry_run:
        erased = await work()
    places = [
        *_erasure_receipt_places(erased, body, now, waits),
        *await _receipt_places_that_erasure_cannot_reach(request, person, calls, others),
    ]
    receipt = {
        "id": None if body.dry_run else erasure.id,
        "at": utc_iso(now),
        "dry_run": body.dry_run,
        "names": len(person.names),
        "calls": sum(calls_of for _, calls_of, _ in calls),
        "places": [msgspec.structs.asdict(place) for place in places],
        "file": None if body.dry_run else erasures_to_json([erasure]),
    }
    return {"erasure": receipt}


@operator_call(
    "GET",
    "/erasures",
    ANSWER_PRIVACY_REQUESTS,
    "Show all erasures as the file for a restore",
    answers=ErasureFile,
)
async def list_erasures(request: OperatorRequest[PeopleServices, None]) -> Result:
    """
    Return the erasures: digests of names, and pseudonyms, but no name. A restored backup needs this file to
    repeat the erasures.
    """
    return erasures_to_json(request.registry.persons.erasures)


@operator_call(
    "POST",
    "/people/{user}/export",
    ANSWER_PRIVACY_REQUESTS,
    "Export what is stored about a person into a directory on the server's machine",
    status=201,
    answers=one_field_answer(
        "OneExport", export=Annotated[PersonExport, words("The export, with the fields below.")]
    ),
)
async def export_person(request: OperatorRequest[OperatorServices, ExportPerson]) -> Result:
    """
    Write `person.json` (names, sums by month, devices, seats, roles) and `calls.ndjson` (stored calls). Only the
    operator socket allows this, because the path is on the server's machine.
    """
    elsewhere = "a person is exported on the server's machine: run tollhouse people export there"
    directory = require_local_path(request, "directory", request.body.directory, elsewhere=elsewhere)
    person = await resolve_person_in_path(request)
    contents = await _stored_data_except_calls(request, person)
    await asyncio.to_thread(_make_directory, directory)
    after = {"names": len(person.names)}
    async with request.audited_change("person.export", str(directory), after):
        count = await _write_calls(request, person, directory / "calls.ndjson")
        text = json.dumps(contents, indent=2, ensure_ascii=False).encode()
        await asyncio.to_thread(_write_file, directory / "person.json", [text])
    return {"export": {"directory": str(directory), "calls": count, "months": len(contents["months"])}}


@operator_call(
    "GET",
    "/people/{user}/export",
    ANSWER_PRIVACY_REQUESTS,
    "Download what is stored about a person",
    gives={NDJSON: TEXT},
)
async def download_person(request: OperatorRequest[OperatorServices, None]) -> web.StreamResponse:
    """
    Stream a person's data. The first line has what `person.json` of an export has, and each further line is a
    stored call or usage event.
    """
    person = await resolve_person_in_path(request)
    contents = await _stored_data_except_calls(request, person)
    await save_viewings()
    response = web.StreamResponse(headers=_DOWNLOAD)
    async with request.audited_change("person.export", "download", {"names": len(person.names)}):
        await response.prepare(request.http)
        await _send_line(response, json.dumps(contents, ensure_ascii=False).encode() + b"\n")
        async for lines in _iterate_call_lines(request, person):
            await _send_line(response, b"".join(lines))
        await response.write_eof()
    return response


async def _send_line(response: web.StreamResponse, line: bytes) -> None:
    async with asyncio.timeout(SLOW_S):
        await response.write(line)


_DOWNLOAD = {
    **UNCACHED,
    "Content-Type": NDJSON,
    "Content-Disposition": 'attachment; filename="person.ndjson"',
}
_KNOWN_BY = ("months", "devices", "seats", "roles", "accounts")
_NOT_KNOWN = (
    "no call, account, device or link has this name: use a name as records have it, or an e-mail address"
)


def _require_storage(request: OperatorRequest[OperatorServices, Any]) -> Storage:
    if request.shared.storage is None:
        raise Refusal(503, "no_storage", "this server has no storage")
    return request.shared.storage


async def resolve_person_in_path(request: OperatorRequest[OperatorServices, Any]) -> KnownPerson:
    """Return the person of the path, by any name, e-mail address, hash, or the name that the console shows."""
    typed = request.path_parameter("user").strip()
    check_names_one_person(typed)
    people = request.shared.people
    linked = await request.registry.persons.all()
    known = {people.identity_of_name(name): person for person in linked for name in person.names}
    person = known.get(people.identity_of_name(typed))
    if person is None:
        shown = [each for each in linked if each.label and each.label.casefold() == typed.casefold()]
        if len(shown) > 1:
            raise NotAllowed(f"{len(shown)} people are shown as {typed}: use a name from their calls")
        person = shown[0] if shown else None
    names = (typed,) if person is None else person.names
    label = "" if person is None else person.label
    words = {*names, *(name for name in (typed, label) if name != label or is_address(name))}
    forms = dict.fromkeys(form for name in sorted(words) for form in people.all_recorded_names(name))
    return KnownPerson(label=label, names=names, forms=tuple(forms), is_linked=person is not None)


# -- the receipt -----------------------------------------------------------------------------------------------


def _erased_place(
    *,
    place: str,
    state: str,
    what: str,
    count: int | None = None,
    until: float | None = None,
    listed: Iterable[str] = (),
) -> ErasedPlace:
    """Return a place that may contain a name of the person. `until`: the epoch second until which it is pending."""
    return ErasedPlace(
        place=place, state=state, what=what, count=count, until=utc_iso(until), listed=list(listed)
    )


def _erasure_receipt_places(
    erased: ErasureResult, body: ErasePerson, now: float, are_reports_waiting: bool
) -> Iterator[ErasedPlace]:
    rows, records = erased.rows, erased.records
    yield _erased_place(
        place="names", state=DONE, count=rows.people, what="people with links and the name to show, deleted"
    )
    yield _erased_place(
        place="accounts", state=DONE, count=rows.accounts, what="accounts, deleted with their sessions"
    )
    yield _erased_place(
        place="registry",
        state=DONE,
        count=rows.rows,
        what="rows of roles, seats, filters, authors and the audit list",
    )
    yield _erased_place(
        place="settings as files",
        state=ASK if rows.managed else DONE,
        count=len(rows.managed),
        what="files that contain a name; replace it there, because the next apply stores it again",
        listed=rows.managed,
    )
    yield _free_texts_in_erasure_receipt(erased, are_texts_replaced=body.texts)
    yield _devices_in_erasure_receipt(erased, are_devices_erased=body.devices)
    yield _erased_place(
        place="records",
        state=PENDING if records.unreadable else DONE,
        count=records.records,
        what=f"stored records; {records.deliveries} deliveries got new idempotency keys; {records.later} later "
        "calls have the name and stay, because they belong to a new person"
        + (
            f"; {records.unreadable} damaged entries stay until spool.retention ends"
            if records.unreadable
            else ""
        ),
    )
    yield _erased_place(
        place="totals",
        state=DONE,
        count=None if body.dry_run else erased.sums,
        what="sets of dimensions of sums",
    )
    what = "reports that wait for the rest of their call, or for calls below them; the gateway looks again by itself"
    until = now + AGAIN_AFTER_S if are_reports_waiting else None
    yield _erased_place(
        place="waiting", state=PENDING if are_reports_waiting else DONE, what=what, until=until
    )
    yield _erased_place(
        place="below",
        state=PENDING if erased.below else DONE,
        count=len(erased.below),
        what="agents and gateways below that will erase the person; `tollhouse people erasures` lists those that "
        "have not confirmed",
        listed=erased.below,
    )
    if not body.dry_run:
        yield _search_in_erasure_receipt(erased.found)
    yield _erased_place(
        place="disk",
        state=ASK if erased.remains else DONE,
        what="; ".join(erased.remains) or "replaced rows are overwritten, and write-ahead logs are empty",
    )


def _search_in_erasure_receipt(found: NamesFound) -> ErasedPlace:
    left = [f"{table}: {count} rows" for table, count in found.rows.items()]
    what = f"{found.searched_bytes} bytes of all tables were searched for the names"
    return _erased_place(
        place="search",
        state=ASK if left else DONE,
        count=sum(found.rows.values()),
        what=what
        + ("; rows of these tables still have one, see the other places" if left else ", and none is left"),
        listed=left,
    )


def _free_texts_in_erasure_receipt(erased: ErasureResult, *, are_texts_replaced: bool) -> ErasedPlace:
    places = [" ".join(place) for place in erased.rows.texts]
    count = len(places) + erased.rows.more_texts
    what = "free texts with a name" + (
        "" if are_texts_replaced or not count else "; use --texts to replace them"
    )
    return _erased_place(
        place="texts",
        state=DONE if are_texts_replaced or not count else ASK,
        count=count,
        what=what,
        listed=places,
    )


def _devices_in_erasure_receipt(erased: ErasureResult, *, are_devices_erased: bool) -> ErasedPlace:
    is_left = bool(erased.devices) and not are_devices_erased
    what = "devices of the person" + ("; use --devices to revoke and erase them" if is_left else "")
    state = ASK if is_left else DONE
    return _erased_place(
        place="devices", state=state, count=len(erased.devices), what=what, listed=erased.devices
    )


async def _receipt_places_that_erasure_cannot_reach(
    request: OperatorRequest[OperatorServices, Any],
    person: KnownPerson,
    calls: Sequence[tuple[str, int, str]],
    others: Sequence[str],
) -> Iterable[ErasedPlace]:
    months = f" from {calls[0][0]} to {calls[-1][0]}" if calls else ""
    routes = [route.name for route in await request.services.spool.deliveries.route_states()]
    sent = f"receivers may have calls{months} with the names in records; ask their owners to delete or rename them"
    settings = list(_settings_with_person(request, person))
    backups = await _known_backups(request)
    directory = request.shared.config().data_dir
    damaged = await asyncio.to_thread(lambda: sorted(path.name for path in directory.glob("*.damaged-*")))
    others_below = "other senders store data of their own, such as log files; ask their owners"
    return [
        _erased_place(
            place="destinations",
            state=ASK if routes and calls else DONE,
            what=sent,
            count=len(routes),
            listed=routes,
        ),
        _erased_place(place="senders", state=ASK if calls else DONE, what=others_below),
        _erased_place(
            place="configuration",
            state=ASK if settings else DONE,
            count=len(settings),
            what="settings that contain a name; change the file, then reload",
            listed=settings,
        ),
        _erased_place(
            place="backups",
            state=ASK if backups else DONE,
            count=len(backups),
            what="known backups that hold the names; delete them, or use --erasures whenever one is restored",
            listed=backups,
        ),
        _erased_place(
            place="damaged files",
            state=ASK if damaged else DONE,
            count=len(damaged),
            what="files that were moved aside; delete them when you need them no more",
            listed=damaged,
        ),
        _erased_place(
            place="other names",
            state=ASK if others else DONE,
            count=len(others),
            what="names in the same calls that are not linked; erase them as well if they are the person's",
            listed=others,
        ),
    ]


async def _has_waiting_reports(storage: Storage, person: KnownPerson) -> bool:
    words = [word.encode() for word in person.forms]
    return any(word in report.body for report in await storage.partial_reports.load() for word in words)


def _settings_with_person(
    request: OperatorRequest[OperatorServices, Any], person: KnownPerson
) -> Iterator[str]:
    forms = frozenset(person.forms)
    for setting in request.shared.settings():
        if not forms.isdisjoint(_nested_texts(setting.value)):
            yield setting.name


def _nested_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield str(name)
            yield from _nested_texts(each)
    elif isinstance(value, Collection) and not isinstance(value, bytes):
        for each in value:
            yield from _nested_texts(each)


async def _known_backups(request: OperatorRequest[OperatorServices, Any]) -> Sequence[str]:
    query = ListQuery(
        sort=SortField("id"), order="desc", identity="id", limit=MAX_LISTED, filters={"action": ("backup",)}
    )
    rows = (await request.registry.audit_page(query)).rows
    return [f"{row.target} ({utc_iso(row.at)})" for row in rows]


# -- calls -----------------------------------------------------------------------------------------------------


def _person_query(
    request: OperatorRequest[OperatorServices, Any], person: KnownPerson, granularity: str
) -> CostQuery:
    until = next_full_hour(request.now())
    since = datetime(until.year - YEARS + 1, 1, 1, tzinfo=UTC)
    return CostQuery(since=since, until=until, granularity=granularity, include={USER: person.forms})


async def _months_with_calls(
    request: OperatorRequest[OperatorServices, Any], person: KnownPerson
) -> Sequence[tuple[str, int, str]]:
    # whole: answers to privacy requests need a right of their own
    await request.whole_ledger.require_complete_totals(request.services.money.log)
    rows = await request.whole_ledger.costs(_person_query(request, person, "monthly"))
    return [(f"{row.start:%Y-%m}", row.calls, row.cost) for row in rows if row.calls]


async def _further_names_in_calls_of_person(
    request: OperatorRequest[OperatorServices, Any], person: KnownPerson
) -> Sequence[str]:
    query = _person_query(request, person, TOTAL)
    both = CostQuery(
        since=query.since,
        until=query.until,
        granularity=TOTAL,
        group_by=(USER, SECOND_NAME),
        include=query.include,
        measures=("calls",),
        stated_names=True,
    )
    # whole: answers to privacy requests need a right of their own
    rows = await request.whole_ledger.costs(both)
    found = {name for row in rows for name in row.group if name}
    return sorted(found - {*person.forms})[:MAX_LISTED]


async def _stored_data_except_calls(
    request: OperatorRequest[OperatorServices, Any], person: KnownPerson
) -> dict[str, Any]:
    """Return what is stored about a person, except calls. Raises NotThere if nothing has a name of the person."""
    months = await _months_with_calls(request, person)
    own = await read_belongings(request, person)
    viewings = await request.registry.viewings.viewings_naming([*person.forms, SEVERAL])
    contents = {
        "made_at": utc_iso(request.now()),
        "name": person.label or None,
        "names": list(person.names),
        "months": [{"month": month, "calls": calls, "cost": cost} for month, calls, cost in months],
        "devices": [
            {
                "id": device.id,
                "hostname": device.hostname,
                "platform": device.platform,
                "serial": device.serial,
                "user": device.user,
                "enrolled_at": utc_iso(device.enrolled_at),
                "last_seen": utc_iso(device.last_seen),
            }
            for device in own.devices
        ],
        "seats": [
            {"plan": plan.name, "user": seat.user, "since": seat.since, "until": seat.until or None}
            for plan, seat in own.seats
        ],
        "viewings": [describe_viewing(row) for row in viewings if row.viewer not in person.forms],
        "own_viewings": [
            {**describe_viewing(row), "user": None} for row in viewings if row.viewer in person.forms
        ],
        "roles": [role.name for role in own.roles],
        "accounts": [
            {"email": account.email, "role": account.role, "created": utc_iso(account.created_at)}
            for account in own.accounts
        ],
    }
    if not (person.is_linked or any(contents[name] for name in _KNOWN_BY)):
        raise NotThere(_NOT_KNOWN)
    return contents


async def read_belongings(request: OperatorRequest[OperatorServices, Any], person: KnownPerson) -> Belongings:
    registry, people = request.registry, request.shared.people
    forms = frozenset(person.forms)

    def is_own(name: str | None) -> bool:
        return bool(name) and not forms.isdisjoint(people.all_recorded_names(name or ""))

    roles, keys = registry.roles.all(), request.services.senders.access.keys()
    lifecycle = request.services.senders.devices
    devices = [] if lifecycle is None else lifecycle.table.all()
    members = {member for role in roles for member in role.members if is_own(member)}
    return Belongings(
        seats=[
            (plan, seat)
            for plan in registry.declared_table(PlanTable).all()
            for seat in plan.seats
            if is_own(seat.user)
        ],
        devices=[each for each in devices if is_own(each.user)],
        accounts=[each for each in await registry.operators.all() if is_own(each.email)],
        roles=[role for role in roles if not members.isdisjoint(role.members)],
        keys=[key for key in keys if is_own(key.labels.get(USER))],
        members=members,
    )


async def _write_calls(
    request: OperatorRequest[OperatorServices, Any], person: KnownPerson, path: Path
) -> int:
    count = 0
    with ExitStack() as open_files:
        file = await asyncio.to_thread(open_files.enter_context, create_flushed_file(path))
        async for lines in _iterate_call_lines(request, person):
            await asyncio.to_thread(file.writelines, lines)
            count += len(lines)
        await asyncio.to_thread(open_files.close)
    return count


async def _iterate_call_lines(
    request: OperatorRequest[OperatorServices, Any], person: KnownPerson
) -> AsyncIterator[list[bytes]]:
    log, forms = request.services.money.log, frozenset(person.forms)
    for topic in (AI_TELEMETRY, USAGE_EVENTS):
        for first in range(1, log.next_number(topic), STEP):
            for entry in await log.read(topic, first, first + STEP - 1, includes_open_records=True):
                own = [each for each in entry.records if each is not None and _is_about_person(each, forms)]
                if own:
                    yield [json.dumps(describe_record(each), default=str).encode() + b"\n" for each in own]
                await asyncio.sleep(0)


def _is_about_person(record: Record, forms: frozenset[str]) -> bool:
    if isinstance(record, Correction):
        return _is_about_person(record.after, forms) or _is_about_person(record.before, forms)

    def person_name_in_record(dimension: str) -> str:
        if dimension == SECOND_NAME:
            return str(getattr(record, "tags", {}).get(SECOND_NAME.removeprefix("tag:"), ""))
        return getattr(record, "user", None) or getattr(record, "subject", None) or ""

    return not forms.isdisjoint(filter_values_of_dimension(USER, person_name_in_record))


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError as error:
        raise AlreadyThere(f"{directory} already exists: choose a new directory for the export") from error
    except OSError as error:
        raise NotAllowed(f"{directory} cannot be written: {error.strerror}") from error


def _write_file(path: Path, pieces: Iterable[bytes]) -> None:
    with create_flushed_file(path) as file:
        file.writelines(pieces)
