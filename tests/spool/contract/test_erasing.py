"""People who are erased in a storage: no name is left, every sum stays, and a late report brings no name back."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.devices.states import device_revoker
from spool.deliveries.values import RouteSpec
from spool.devices.use_days import USE_DAYS, UseDay
from spool.engines import open_storage
from spool.erasing import AGAIN_AFTER_S, continue_due_erasures, erase_from_storage
from spool.erasure import MAX_FILE_BYTES, Erasure, erasures_to_json, new_erasure, read_erasures
from spool.errors import Invalid, NotAllowed
from spool.identity import RecordIdentity
from spool.ledger.queries import CostQuery
from spool.log.values import Submission
from spool.people import ERASED, USER, USER_EMAIL, CallTime, People
from spool.record import (
    AI_TELEMETRY,
    NS,
    USAGE_EVENTS,
    Correction,
    Inference,
    Record,
    UsageEvent,
    UsageMetric,
)
from spool.registry.operators import ADMIN, Actor
from spool.registry.roles import IS, LIMITED, NewRole, RoleFilter, RoleLimits
from spool.registry.tables.enforcers import EnforcerLimit, EnforcerReading, EnforcerState
from spool.registry.tables.persons import LinkedPerson
from spool.storage import Storage, StorageOptions
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.examples import NOON
from tests.spool.contract.test_devices import device
from tests.spool.ledger_log import call

ROOT = Actor("root@example.com", "local")
ADA, BOB = ("ada@example.com", "uuid-ada", "ada"), ("bob@example.com", "uuid-bob", "bob")
MODELS, TEAMS = ("gpt-4o", "gpt-4.1"), ("search", "ml", None)
HOUR_NS = 3600 * NS
ROUTE = f"up/{AI_TELEMETRY}"


def erasure_of(people: People, names: Sequence[str], at: float, **choices: bool) -> Erasure:
    forms = [form for name in names for form in people.all_recorded_names(name)]
    return new_erasure(map(people.erasure_digest, forms), at, **choices)


async def erased(storage: Storage, erasure: Erasure, **options: Any) -> Any:
    return await erase_from_storage(storage, erasure, revoke_device=device_revoker(""), actor=ROOT, **options)


def people_of(storage: Storage) -> People:
    assert storage.registry is not None
    return storage.registry.people


async def store(storage: Storage, records: Sequence[Record], topic: str = AI_TELEMETRY) -> None:
    identities = [RecordIdentity(record.id) for record in records]
    submission = Submission(topic=topic, received=len(records), records=list(records), identities=identities)
    await storage.log.append_submission(submission)


def calls_of(people: People, chance: random.Random, names: Sequence[str], count: int) -> list[Inference]:
    stored = list(map(people.hash_address, names))
    return [
        call(
            id=chance.randbytes(16),
            user=(user := chance.choice((*stored[1:], stored[0]))),
            tags={USER_EMAIL: stored[0]} if user != stored[0] and chance.random() < 0.5 else {},
            team=chance.choice(TEAMS),
            request_model=chance.choice(MODELS),
            start_time=int(NOON) * NS - chance.randint(1, 40) * HOUR_NS,
            input_tokens=chance.randint(1, 10**6),
            estimated_cost=f"0.{chance.randint(1, 10**9):09d}",
        )
        for _ in range(count)
    ]


async def sums(storage: Storage, *by: str, **options: Any) -> Mapping[Any, Any]:
    await storage.ledger.catch_up(storage.log)
    until = datetime.fromtimestamp(NOON, UTC) + timedelta(days=2)
    query = CostQuery(
        since=until - timedelta(days=8), until=until, granularity="total", group_by=by, **options
    )
    return {row.group: (row.calls, row.cost, row.input_tokens) for row in await storage.ledger.costs(query)}


async def stored_users(storage: Storage) -> Counter[str | None]:
    """Return the users of all records in the log."""
    found = Counter[str | None]()
    for topic in (AI_TELEMETRY, USAGE_EVENTS):
        last = await storage.log.newest_number(topic) - 1
        for entry in await storage.log.read(topic, 1, last, includes_open_records=True) if last else ():
            for record in entry.records:
                for each in (record.before, record.after) if isinstance(record, Correction) else (record,):
                    found[getattr(each, "user", None) or getattr(each, "subject", None)] += 1
                    found.update(getattr(each, "tags", {}).values())
    return found


def use_people(storage: Storage) -> People:
    people = people_of(storage)
    storage.ledger.people = people
    return people


DIMENSIONS = (("team",), ("request_model",), ("source",), ("team", "request_model"), ())


@pytest.mark.parametrize("seed", part(range(2), every=2))
async def test_erasure_removes_every_name_and_no_sum(storage: Storage, seed: int) -> None:
    """
    Random calls of two people under several names, of whom one is erased: the line of the person is the line of
    ERASED, to the last digit. The sums by other dimensions, and the lines of others, do not change.
    """
    people, chance = use_people(storage), random.Random(seed)
    assert storage.registry is not None
    records = [*calls_of(people, chance, ADA, 60), *calls_of(people, chance, BOB, 40)]
    chance.shuffle(records)
    await store(storage, records)
    counter = UsageMetric(id=b"m" * 16, source="gemini_cli", name="tokens", user="ada", start_time=1, value=5)
    await store(storage, [counter])
    event = UsageEvent(id=b"e" * 16, source="app", event_type="click", subject="ada", start_time=5)
    await store(storage, [event], USAGE_EVENTS)
    linked = [
        LinkedPerson(names=tuple(map(people.recorded_name_or_hash, names)), label=names[2])
        for names in (ADA, BOB)
    ]
    await storage.registry.persons.link_names(linked, max_names=100, actor=ROOT)
    before = {by: await sums(storage, *by) for by in DIMENSIONS}
    lines = await sums(storage, "user")
    mine = people.recorded_name_or_hash(ADA[0])
    done = await erased(storage, erasure_of(people, ADA[:1], NOON + 1))
    assert 1 == done.rows.people
    assert 62 == done.records.records
    assert before == {by: await sums(storage, *by) for by in DIMENSIONS}
    by_hand = {(ERASED,) if group == (mine,) else group: line for group, line in lines.items()}
    assert by_hand == await sums(storage, "user")
    assert {(ERASED,): lines[(mine,)]} == await sums(
        storage, "user", include={USER: people.all_recorded_names(ERASED)}
    )
    gone = {form for name in ADA for form in people.all_recorded_names(name)}
    assert gone.isdisjoint(await stored_users(storage))
    stated = await sums(storage, "user", stated_names=True)
    assert gone.isdisjoint(user for (user,) in stated)
    compared = await storage.ledger.compare_and_note_differences(storage.log)
    assert (0, 0, True) == (len(compared.differences), compared.missed, compared.is_done)
    verified = await storage.log.verify()
    assert () == tuple(verified.imbalances)


@pytest.mark.one_engine
async def test_a_late_report_brings_no_name_back(storage: Storage, clock: MovedClock) -> None:
    """
    A late report brings no erased name back. A call from before the erasure keeps the pseudonym. A later call under
    the name is of a new person.
    """
    people = use_people(storage)
    await store(storage, [call(id=b"1" * 16, user="ada", start_time=int(NOON - 60) * NS)])
    erasure = erasure_of(people, ["ada"], NOON)
    await erased(storage, erasure)
    [pseudonym] = erasure.names.values()
    assert pseudonym == people.pseudonym("ada", CallTime(int(NOON - 1) * NS))
    assert "ada" == people.pseudonym("ada", CallTime(int(NOON) * NS))
    clock.move(60)
    await store(storage, [call(id=b"2" * 16, user="ada", start_time=int(NOON + 30) * NS)])
    assert {(ERASED,), ("ada",)} == (await sums(storage, "user")).keys()
    again = erasure_of(people, ["ada"], NOON + 60)
    await erased(storage, again)
    assert {(ERASED,)} == (await sums(storage, "user")).keys()
    assert {*erasure.names.values(), *again.names.values()} == (await stored_users(storage)).keys()
    assert (
        1 == (await sums(storage, "user", include={USER: people.all_recorded_names(pseudonym)}))[(ERASED,)][0]
    )
    compared = await storage.ledger.compare_and_note_differences(storage.log)
    assert (0, 0, True) == (len(compared.differences), compared.missed, compared.is_done)


async def test_an_interrupted_erasure_is_finished(storage: Storage, clock: MovedClock) -> None:
    """
    An erasure that a crash interrupted is finished: the records are renamed. A day later they are read again,
    because a report that waited may have stated a name. The new person of that name stays.
    """
    people = use_people(storage)
    assert storage.registry is not None
    await store(storage, [call(id=b"1" * 16, user="ada", start_time=int(NOON - 60) * NS)])
    erasure = erasure_of(people, ["ada"], NOON)
    await storage.registry.erase_person(erasure, (), ROOT)
    assert 1 == await continue_due_erasures(storage, clock, device_revoker(""))
    [pseudonym] = erasure.names.values()
    assert {pseudonym: 1} == await stored_users(storage)
    assert 0 == await continue_due_erasures(storage, clock, device_revoker(""))
    for second, id in ((-30, b"2"), (30, b"3")):
        await store(storage, [call(id=id * 16, user="ada", start_time=int(NOON + second) * NS)])
    clock.move(AGAIN_AFTER_S + 1)
    assert 1 == await continue_due_erasures(storage, clock, device_revoker(""))
    assert {pseudonym: 2, "ada": 1} == await stored_users(storage)
    assert 0 == await continue_due_erasures(storage, clock, device_revoker(""))


async def test_limits_of_enforcers_have_no_name(storage: Storage) -> None:
    """
    Readings about limits of enforcers contain no erased name. They are compressed, so no search of the disk would
    find one. The limit covers the same calls afterwards.
    """
    people = use_people(storage)
    assert storage.registry is not None
    table = storage.registry.enforcers
    limits = [
        EnforcerLimit(kind="user", id=user, name=user, limit="10", dimension="user", values=(user, "x"))
        for user in ("ada", "bob")
    ]
    reading = EnforcerReading(at=NOON, limits=tuple(limits))
    await table.store_attempt("gateway", EnforcerState(), reading)
    erasure = erasure_of(people, ["ada"], NOON)
    done = await erased(storage, erasure)
    [pseudonym] = erasure.names.values()
    [after] = await table.readings("gateway")
    shown = [(limit.id, limit.name, limit.values, limit.limit) for limit in after.limits]
    assert [(pseudonym, pseudonym, (pseudonym, "x"), "10"), ("bob", "bob", ("bob", "x"), "10")] == shown
    assert 1 == done.rows.rows


async def test_groups_of_people_have_no_name(storage: Storage) -> None:
    """
    A stored group of people contains no erased name, even if it is of a team that has the name of a person. Its
    figures stay.
    """
    people = use_people(storage)
    assert storage.registry is not None
    table = storage.registry.group_costs
    cells = [
        {"names": [team, "openai", "gpt-4o", None], "cost": "1.5", "counts": [6, 1, 1]}
        for team in ("ada", "ml")
    ]
    await table.add("000000", {"people": 6, "cells": cells}, actor=ROOT, action="group_costs.cut")
    erasure = erasure_of(people, ["ada"], NOON)
    await erased(storage, erasure)
    [pseudonym] = erasure.names.values()
    cells[0] = {**cells[0], "names": [pseudonym, *cells[0]["names"][1:]]}
    assert {"000000": {"people": 6, "cells": cells}} == table.all()


async def test_rows_have_no_name(storage: Storage) -> None:
    """
    Rows contain no erased name: in links, accounts, roles and audit rows it becomes a pseudonym, and texts are
    listed or replaced.
    """
    people = use_people(storage)
    registry = storage.registry
    assert registry is not None
    for email in ("ada@example.com", "root@example.com"):
        await registry.operators.add(
            email, role=ADMIN, password="long enough password", actor=Actor(email, "local")
        )
    await registry.persons.link_names(
        [LinkedPerson(names=ADA[1:], label="Ada Lovelace")], max_names=9, actor=ROOT
    )
    filters = (RoleFilter(dimension="user", values=("ada", "bob"), mode=IS),)
    draft = NewRole(name="team", description="Calls of ada.", data_access=LIMITED, filters=filters,
                      members=("ada@example.com", "eve@example.com"))  # fmt: skip
    ada = Actor("ada@example.com", "local")
    role = await registry.roles.create(draft, known_dimensions=("user",), limits=RoleLimits(), actor=ada)
    erasure = erasure_of(people, ADA, NOON)
    with pytest.raises(NotAllowed, match="somebody else must erase you"):
        await erase_from_storage(storage, erasure, revoke_device=device_revoker(""), actor=ada)
    trial = await erased(storage, erasure, is_trial=True)
    assert () == tuple(registry.persons.erasures)
    done = await erased(storage, erasure)
    assert trial.rows == done.rows
    assert [("role", role.id, "description")] == [tuple(place) for place in done.rows.texts]
    assert 1 == done.rows.accounts
    changed = registry.roles.get(role.id)
    assert ("eve@example.com",) == changed.members
    assert erasure.names[people.erasure_digest("ada")] in changed.filters[0].values
    again = await erased(
        storage, erasure_of(people, ["ada"], NOON + 1, texts=True), shown_names=["Ada Lovelace"]
    )
    assert 1 == len(again.rows.texts)
    changed = registry.roles.get(role.id)
    assert "Calls of (erased)." == changed.description
    left = await every_text(storage)
    assert not [text for text in left if re.search(r"\bada\b", text.casefold())], left


async def every_text(storage: Storage) -> list[str]:
    """Return all values of the registry that an erasure may change."""
    found: list[str] = []

    def note_unchanged(table: str, id: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        found.append(f"{table} {id} {values}")
        return values

    assert storage.registry is not None
    await storage.registry._changes.read(lambda rows: rows.rewrite_texts(note_unchanged, ()))
    return found


@pytest.mark.one_engine
async def test_the_last_admin_stays(storage: Storage) -> None:
    """If an erasure would leave no Admin, nothing is changed."""
    people = use_people(storage)
    assert storage.registry is not None
    await storage.registry.operators.add(
        "ada@example.com", role=ADMIN, password="long enough password", actor=ROOT
    )
    await store(storage, [call(user="ada@example.com")])
    with pytest.raises(NotAllowed, match="no other Admin is enabled"):
        await erased(storage, erasure_of(people, ADA, NOON + 1))
    assert {"ada@example.com": 1} == await stored_users(storage)


@pytest.mark.one_engine
async def test_devices_lose_their_person(storage: Storage) -> None:
    """
    Devices of an erased person lose the person only on request. The random id and the state stay, and the device is
    revoked.
    """
    people = use_people(storage)
    await storage.devices.replace_row(replace(device(), user="ada", hostname="adas-laptop", serial="C02X"))
    days, all_days = storage.small.open_table(USE_DAYS), ("0001-01-01", "9999-12-31")
    used = UseDay(
        day="2026-11-30", device=device().id, assistant="codex", team="search", used=9, lost=4, lost_calls=1
    )
    await days.replace_days([used])
    first = await erased(storage, erasure_of(people, ["ada"], NOON))
    [known] = storage.devices.all()
    assert ([known.id], "ada") == ([*first.devices], known.user)
    assert [used] == await days.losses_between(*all_days)
    await erased(storage, erasure_of(people, ["ada"], NOON, devices=True))
    [known] = storage.devices.all()
    assert ("revoked", "", "", "") == (known.state, known.user, known.hostname, known.serial)
    assert [replace(used, device="")] == await days.losses_between(*all_days)


async def test_every_field_for_a_person_loses_the_name(options: StorageOptions, clock: MovedClock) -> None:
    """
    Each field that names a person loses an erased name, in calls, counters, events and corrections, and in totals by
    this field: also the person for whom a gateway's user made the call, and a login in an event's data.
    """
    storage = await open_storage(replace(options, ledger_tags=("end_user",)), engine=options.storage.engine)
    try:
        people = use_people(storage)
        tags = {"end_user": "ada", "city": "ada"}
        await store(storage, [call(id=b"1" * 16, user="bob", tags=tags, output_tokens=None)])
        await store(storage, [call(id=b"1" * 16, user="bob", tags=tags, output_tokens=7)])
        counter = UsageMetric(
            id=b"m" * 16, source="gemini_cli", name="tokens", tags=tags, start_time=1, value=5
        )
        await store(storage, [counter])
        hashed = people.hash_address(ADA[0])
        event = UsageEvent(
            id=b"e" * 16, source="app", event_type="click", start_time=5, tags=tags,
            data={"login": "ada", "email": hashed, "text": "ada and bob", "count": 3},
        )  # fmt: skip
        await store(storage, [event], USAGE_EVENTS)
        assert 1 == (await sums(storage, "tag:end_user"))[("ada",)][0]
        erasure = erasure_of(people, ADA, NOON + 1)
        login, address = (erasure.names[people.erasure_digest(name)] for name in ("ada", hashed))
        trial = await erased(storage, erasure, is_trial=True)
        done = await erased(storage, erasure)
        assert 4 == trial.records.records == done.records.records
        assert {(login,)} == {group for group in await sums(storage, "tag:end_user") if group[0]}
        [stored] = await storage.log.read(USAGE_EVENTS, 1, 1, includes_open_records=True)
        [changed] = stored.records
        assert isinstance(changed, UsageEvent)
        assert {"login": login, "email": address, "text": "ada and bob", "count": 3} == changed.data
        found = Counter[tuple[str, str]]()
        for topic in (AI_TELEMETRY, USAGE_EVENTS):
            last = await storage.log.newest_number(topic) - 1
            for entry in await storage.log.read(topic, 1, last, includes_open_records=True):
                for record in entry.records:
                    states = (record.before, record.after) if isinstance(record, Correction) else (record,)
                    found.update(item for each in states for item in getattr(each, "tags", {}).items())
        assert {("end_user", login): 5, ("city", "ada"): 5} == found
    finally:
        await storage.close()


@pytest.mark.one_engine
async def test_labels_of_other_devices_lose_the_person(storage: Storage) -> None:
    """
    If a label of another device has the name of an erased person, it is removed, whether the device reported it or
    an operator set it. The device stays in use, and keeps other labels.
    """
    people = use_people(storage)
    labels = {"process.owner": "ada", "site": "adamstown"}
    server = replace(
        device(), user="", hostname="ada", labels=labels, operator_labels={"owner": "ADA@example.com"}
    )
    await storage.devices.replace_row(server)
    await erased(storage, erasure_of(people, ADA, NOON))
    assert [server] == [*storage.devices.all()]
    done = await erased(storage, erasure_of(people, ADA, NOON + 1, devices=True))
    [known] = storage.devices.all()
    assert () == (*done.devices,) and known.state == server.state and known.version > server.version
    assert "adamstown" == known.labels["site"]
    assert known.labels["process.owner"].startswith("erased:")
    assert known.operator_labels["owner"].startswith("erased:")
    assert known.hostname.startswith("erased:")


@pytest.mark.one_engine
async def test_a_changed_delivery_has_a_new_key(storage: Storage, clock: MovedClock) -> None:
    """
    If an erasure changes the body of a delivery, the delivery gets a new key, because the changed body must not be
    sent under its old key.
    """
    people = use_people(storage)
    await store(storage, [call(user="ada")])
    await storage.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY, required=True)])
    first = await storage.deliveries.take_due_delivery(ROUTE, now=clock.now(), max_records=10)
    assert first is not None
    done = await erased(storage, erasure_of(people, ["ada"], NOON + 1))
    assert 1 == done.records.deliveries
    await storage.deliveries.schedule_retry(first, reason="unreachable", not_before=clock.now())
    second = await storage.deliveries.take_due_delivery(ROUTE, now=clock.now() + 60, max_records=10)
    assert second is not None and second.idempotency_key != first.idempotency_key


def test_a_file_of_erasures_has_no_name() -> None:
    """A file of erasures contains no name. It is read back as it was written. Other contents are refused."""
    people = People.for_installation(b"s" * 32)
    erasure = erasure_of(people, ADA, NOON, texts=True)
    text = json.dumps(erasures_to_json([erasure]))
    assert [erasure] == read_erasures(text.encode())
    assert re.search(r"\bada\b", text) is None
    for wrong in (
        "",
        "[]",
        '{"format": 1}',
        text.replace('"format": 1', '"format": 2'),
        text.replace("erased:", "x"),
    ):
        with pytest.raises(Invalid, match="erasures"):
            read_erasures(wrong.encode())
    with pytest.raises(Invalid, match="64 MiB"):
        read_erasures(bytes(MAX_FILE_BYTES + 1))
