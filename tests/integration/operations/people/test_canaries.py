"""
Canaries of every kind of name, through every product and format that states one, and every request that stores one.
After an erasure no table, file, log line, answer or delivery has one, as soon as nothing waits from before it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from exporters.kafka import destination as kafka
from exporters.settings import DestinationSettings
from gateway.bills.plans.declared import PlanTable
from gateway.bills.statements.puller import DONE
from gateway.cli import main
from gateway.configuration.sections import (
    SEAT_SOURCES,
    Config,
    PrivacySettings,
    ReconciliationSettings,
    StatementPullSettings,
)
from gateway.core.paths import OPERATOR_API, socket_path
from gateway.devices.states import device_revoker
from gateway.http.event_streams import EVENT_STREAM
from gateway.intake import merge_window, waiting_counters
from gateway.intake.attribution import RecordAttributor
from gateway.normalise.formats.list import FORMATS
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from gateway.service.assembly.statements import build_statement_puller
from spool.erasing import AGAIN_AFTER_S, continue_due_erasures
from spool.people import ERASED, HASH, KEEP, USER_EMAIL, People, is_address
from spool.record import pack_records
from spool.registry.operators import Person
from spool.registry.scopes import CREATE_EVENT, ENROLL
from spool.settings import SpoolSettings
from tests.exporters.kafka.test_exporter import Topic
from tests.integration.conftest import Serve
from tests.integration.lake.test_content import texts
from tests.integration.operations.people.test_privacy import allow, erased, run
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_second_names import CANARY as ADDRESS
from tests.integration.receivers.test_second_names import storage_of as storage_of
from tests.integration.receivers.test_second_names import with_address
from tests.integration.receivers.test_work_canaries import requests
from tests.integration.statements.providers import ACCOUNT, KEY
from tests.integration.statements.test_seat_pulls import ACCOUNTS, Vendor
from tests.integration.test_linked_names import lines, sent, whole
from tests.integration.test_one_identity import AS, World, checked
from tests.moved_clock import MovedClock
from tests.stored_files import contents_of
from tests.waiting import until

MARK = "canary"  # this word is in each name, in upper or lower case
LOGIN, SUBJECT = "canary-login", "canary-subject"
SEATED = f"{LOGIN}@example.com"  # the name of the person in seat lists of vendors
SPOOL = SpoolSettings(hold=0, counter_wait=3600)
ID = "enduser.id"  # an attribute of any OpenTelemetry library with the id of the user
LAKE_FORMATS = ("parquet", "ndjson", "focus", "focus-parquet")


async def names_in_cases(serve: Serve) -> Mapping[str, str]:
    """Return a canary for each name that a record of a case has."""
    serving = await serve(
        config=Config(spool=replace(SPOOL, counter_wait=0), privacy=PrivacySettings(emails=KEEP))
    )
    for path, body in requests():
        await serving.send(path, body)
    records = await serving.records()
    named = {name for each in records for name in (each.user, each.tags.get(USER_EMAIL)) if name}
    # what a record also states as something else is no name of a person alone
    named -= {
        value for each in records for value in (each.team, each.session, each.api_key, *each.tags.values())
        if value != each.tags.get(USER_EMAIL)
    }  # fmt: skip
    return {
        name: f"canary.{number:02}@example.com" if is_address(name) else f"canary-{number:02}"
        for number, name in enumerate(sorted(named))
    }


def with_canaries(path: str, body: bytes, canaries: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the requests of a case with canaries for names, also inside of longer texts."""
    text = body.decode()
    for name, canary in canaries.items():
        text = re.sub(rf'"int(Value"\s*:\s*"){re.escape(name)}"', rf'"string\1{canary}"', text)
        text = text.replace(json.dumps(name), json.dumps(canary))
        if len(name) > 5:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", canary, text)
    for part in with_address(path, text.encode()):
        document = json.loads(part)
        _add_ids(document)
        yield json.dumps(document).encode()


def _add_ids(node: Any) -> None:
    """Add the id of a user where no user is stated."""
    for each in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
        _add_ids(each)
    if not isinstance(node, dict):
        return
    if "ai_log" in node:  # Higress
        node["consumer"] = LOGIN
    if "USER_ID" in node:  # Snowflake
        node["USER_ID"] = LOGIN
    if isinstance(node.get("labels"), dict):  # Vertex
        node["labels"]["user"] = LOGIN
    attributes = node.get("attributes")
    if isinstance(attributes, list) and not any(each.get("key") == ID for each in attributes):
        attributes.append({"key": ID, "value": {"stringValue": LOGIN}})


async def register(world: World, tmp_path: Path) -> None:
    """Store the names by every kind of request that has people."""
    serving = world.serving
    week = f"{datetime.now(UTC) + timedelta(days=7):%Y-%m-%dT%H:%M:%SZ}"
    for path, body in (
        ("/views", {"name": "Of one", "filter": {"user": [LOGIN]}, "principal_dimension": "model"}),
        ("/plans", {"name": "Seats", "view": "Of one", "fee": "20", "seats": [{"user": LOGIN, "since": "2026-01-01"}]}),
        ("/roles", {"name": "One", "data_access": "limited", "members": [ADDRESS],
                    "filters": [{"dimension": "user", "values": [LOGIN, ADDRESS]}]}),
        ("/annotations", {"text": f"Why {LOGIN} calls so often.", "day": "2026-11-01"}),
        ("/keys", {"name": "laptop", "description": f"of {LOGIN}", "labels": {"user": LOGIN},
                   "use_cases": ["Send AI Telemetry"]}),
        ("/fleet/tokens", {"name": "laptops", "expires_at": week, "labels": {"user": LOGIN}}),
    ):  # fmt: skip
        checked(await world.ask("POST", path, body))
    inventory = tmp_path / "inventory.csv"
    inventory.write_text(f"serial number,computer name,user\nC02XL0GYJGH5,mac-1,{LOGIN}\n")
    await run(world, "fleet", "inventory", "import", str(inventory), "--source", "jamf")
    registry = serving.app.services.storage.registry
    assert registry is not None
    person = Person(
        email=ADDRESS, role="viewer", decides_role=True, issuer="https://sign-in.example.com", subject=SUBJECT
    )
    await registry.operators.sign_in_person(
        person, address="203.0.113.1", life_s=3600, takes_over_accounts=False
    )
    fleet = await serving.make_key("fleet", scopes=[ENROLL])
    await _pull_seats(world, tmp_path)
    device = {"device_id": "laptop-1", "hostname": f"{LOGIN}-mac", "user": LOGIN, "labels": {"owner": LOGIN}}
    for path, body, key in (
        ("/v1/ai-control-plane/enroll", device, fleet),
        ("/v1/events", {"type": "order", "source": "shop", "subject": LOGIN, "data": {"by": ADDRESS}},
         await serving.make_key("events", scopes=[CREATE_EVENT])),
    ):  # fmt: skip
        answer = await serving.send(path, json.dumps(body).encode(), key=key)
        assert answer.status in (200, 201), answer.body


async def _pull_seats(world: World, tmp_path: Path) -> None:
    """Store the seat lists of all vendors, each as the seats of a plan of its own."""
    registry = world.serving.app.services.storage.registry
    assert registry is not None
    vendor = Vendor()
    vendor.logins = [LOGIN]
    key = tmp_path / "vendor.key"
    key.write_text(KEY)
    async with AsyncExitStack() as stack:
        server = TestServer(vendor.application())
        await server.start_server()
        stack.push_async_callback(server.close)
        pulls = [
            StatementPullSettings(
                name=source, source=source, key_file=key, base_url=str(server.make_url("/")),
                account=ACCOUNTS.get(source, ACCOUNT), plan=source,
            )
            for source in SEAT_SOURCES
        ]  # fmt: skip
        config = Config(reconciliation=ReconciliationSettings(pull=tuple(pulls)))
        puller = build_statement_puller(
            registry.statements,
            MovedClock(time.time()),
            lambda: config,
            stack,
            plans=registry.declared_table(PlanTable),
        )
        for source in SEAT_SOURCES:
            checked(await world.ask("POST", "/plans", {"name": source, "view": "Of one"}))
            await puller.pull_statements(source)
        assert {DONE} == {each.state for each in await puller.pull_states()}
    assert len(SEAT_SOURCES) == sum(
        any(MARK in seat.user for seat in plan.seats)
        for plan in registry.declared_table(PlanTable).all()
        if plan.name in SEAT_SOURCES
    )


def destinations(folder: Path) -> Iterator[DestinationSettings]:
    """Yield a destination of each type that stores what it gets, and of each format."""
    yield DestinationSettings(name="ndjson", type="ndjson", path=folder / "ndjson" / "calls")
    yield DestinationSettings(name="focus", type="focus", path=folder / "focus" / "costs")
    for format in LAKE_FORMATS:
        yield DestinationSettings(
            name=f"lake-{format}", type="file", path=folder / f"lake-{format}", format=format, linger=0.0
        )
    yield DestinationSettings(
        name="kafka", type="kafka", url="127.0.0.1:9", tls=False, topics=("ai-telemetry",), verify=0.0
    )


def written(folder: Path, topic: Topic) -> Mapping[str, str]:
    """Return what each destination has, by its name and the name of the file."""
    (folder / "kafka").mkdir(exist_ok=True)
    (folder / "kafka" / "topic").write_text("\n".join(map(str, topic.messages)))
    return dict(texts(folder))


def new_texts(before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
    """Return what was written since, by destination. Files only grow, or are new."""
    added = dict.fromkeys({name.partition("/")[0] for name in after}, "")
    for name, text in after.items():
        known = before.get(name, "")
        assert text.startswith(known), name
        added[name.partition("/")[0]] += text.removeprefix(known)
    return added


async def answers(world: World, *more: str) -> Mapping[str, str]:
    """Return every answer that the console and monitoring get."""
    lists = [
        each.path.removeprefix(OPERATOR_API)
        for each in OPERATOR_ADDRESSES
        if each.methods == ("GET",) and "{" not in each.path
        and not any(EVENT_STREAM in content for content in each.gives.values())
    ]  # fmt: skip
    found = {}
    connector = aiohttp.UnixConnector(str(socket_path(world.serving.app.config.data_dir)))
    async with aiohttp.ClientSession(connector=connector) as session:
        focus = "/focus?from=2020-01-01&to=2030-01-01&tag=user"
        for path in (*lists, "/report?by=user&range=last_7d", focus, *more):
            async with session.get(f"http://tollhouse{OPERATOR_API}{path}", headers=AS) as answer:
                found[path] = await answer.text()
    for path in ("/metrics", "/readyz"):
        async with world.serving.client.get(world.serving.app.operator_url + path) as answer:
            found[path] = await answer.text()
    return found


def marked(texts: Mapping[str, str]) -> Collection[str]:
    return sorted(name for name, text in texts.items() if MARK in text.lower())


async def places(world: World, outside: Callable[[], Iterator[bytes]]) -> Collection[str]:
    """Return what is stored around each canary: in files, rows of the database and unpacked records."""
    contents = contents_of(world.serving.app.config.data_dir)
    everything = {**contents, "records": pack_records([*await world.serving.records()])}
    everything |= {f"row {number}": row for number, row in enumerate(outside())}
    return [
        f"{name}: {content[max(0, found.start() - 60) : found.end() + 30]!r}"
        for name, content in everything.items()
        for found in re.finditer(MARK.encode(), content.lower())
    ]


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock(time.time())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for waiting reports without long waits."""
    for module in (merge_window, waiting_counters):
        monkeypatch.setattr(module, "LOOK_S", 0.05)


async def opened(serve: Serve, config: Config, clock: MovedClock) -> World:
    serving = await serve(config=config, clock=clock)
    people = People.for_installation(serving.app.services.storage.secret)
    world = World(serving, None, "", people, HASH)  # type: ignore[arg-type]
    await allow(world)
    return world


@pytest.mark.proof
async def test_no_name_is_left_anywhere(
    serve: Serve,
    storage_of: tuple[Config, Callable[[], Iterator[bytes]]],
    clock: MovedClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    After an erasure, no name of the person is left anywhere, on each engine. Waiting counters and reports have a
    name until they are counted, as the receipt says. Logs, metrics and later deliveries never have one, nor has a
    backup that is restored with the file of erasures.
    """
    for name in ("gateway", "spool", "exporters"):
        caplog.set_level(logging.DEBUG, logger=name)
    config, outside = storage_of
    canaries = await names_in_cases(serve)
    outgoing, topic = tmp_path / "outgoing", Topic()
    monkeypatch.setattr(kafka, "build_brokers", lambda *_: topic)
    config = replace(config, spool=SPOOL, destinations=(*destinations(outgoing),))
    world = await opened(serve, config, clock)
    storage = world.serving.app.services.storage
    for path, body in requests():
        for part in with_canaries(path, body, canaries):
            answer = await world.serving.send(path, part)
            assert answer.status in (200, 204, 207), (path, answer.body)
    await register(world, tmp_path)
    await storage.ledger.catch_up(storage.log)
    named = [
        world.people.recorded_name_or_hash(each) for each in (LOGIN, ADDRESS, SEATED, *canaries.values())
    ]
    records = await world.serving.records()
    sources = {each.source for each in records if {each.user, each.tags.get(USER_EMAIL)} & {*named}}
    assert len(sources) > 40, sources
    assert {each.name for each in FORMATS if "user" in each.origins} <= sources
    checked(await world.ask("POST", "/people", {"people": [{"users": named, "name": "Canary Person"}]}))
    before = await answers(world, f"/report?where=user={LOGIN}&range=last_7d")
    seen = {
        "/devices",
        "/keys",
        "/people",
        "/plans",
        "/records",
        "/report?by=user&range=last_7d",
        "/roles",
        "/views",
    }
    assert seen <= {*marked(before)}
    is_local = config.storage.engine == "sqlite"
    if is_local:
        await run(world, "backup", str(tmp_path / "backup"))

    async def is_sent() -> bool:
        clock.move(1)  # Kafka and data lakes wait for full deliveries
        return all(not route.queued for route in await storage.deliveries.route_states())

    await until(is_sent)
    sent_before = written(outgoing, topic)
    assert {*new_texts({}, sent_before)} == {*marked(new_texts({}, sent_before))}
    receipt = await erased(world, LOGIN, texts=True, devices=True)
    assert "pending" == next(each["state"] for each in receipt["places"] if each["place"] == "waiting")
    assert [] == marked(await answers(world))
    left = await places(world, outside)
    assert all("spool.sqlite" in each or each.startswith("row ") for each in left), left

    late = json_span("gpt-4o", traceId="ab" * 16)
    late["attributes"].append({"key": "user.id", "value": {"stringValue": LOGIN}})
    assert 200 == (await world.serving.send("/v1/traces", json_traces(late))).status
    clock.move(AGAIN_AFTER_S + 1)

    async def is_clean() -> bool:
        await continue_due_erasures(storage, clock, device_revoker(""))
        return not await places(world, outside)

    await until(is_clean)
    await until(is_sent)
    later = new_texts(sent_before, written(outgoing, topic))
    assert [] == marked(later)
    assert {each.name for each in destinations(outgoing)} == {
        name for name in later if "erased:" in later[name]
    }
    assert MARK not in caplog.text.lower()
    if is_local:
        await restored(world, tmp_path)


async def restored(world: World, tmp_path: Path) -> None:
    file = tmp_path / "erasures.json"
    file.write_text(await run(world, "people", "erasures"))
    words = ["restore", str(tmp_path / "backup"), "--data", str(tmp_path / "restored"), "--queued", "hold"]
    done = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--erasures", str(file)])
    assert 0 == done.exit_code, done.output
    contents = contents_of(tmp_path / "restored")
    assert {"spool.sqlite", "registry.sqlite", "ledger.sqlite"} <= contents.keys()
    # as in the installation itself, counters wait under the name until a server counts them
    assert {"spool.sqlite"} >= {
        name for name, content in contents.items() if MARK.encode() in content.lower()
    }


async def test_a_call_that_was_counted_under_the_name_is_counted_again(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]], clock: MovedClock
) -> None:
    """
    If another gateway stores a call shortly before it knows of the erasure, the second pass finds this call. A
    later call under the name is another person's, and stays.
    """
    config, outside = storage_of
    world = await opened(serve, config, clock)
    await sent(world, random.Random(1), [LOGIN, "bob"])
    await erased(world, LOGIN)
    storage = world.serving.app.services.storage
    assert storage.registry is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordAttributor, "erased_name_renaming", None)
        await sent(world, random.Random(2), [LOGIN])
    assert {ERASED: 1, LOGIN: 1, "bob": 1} == {
        name: calls for name, (calls, _) in (await lines(world)).items()
    }
    before = await whole(world)
    clock.move(AGAIN_AFTER_S + 1)
    start = int(clock.now() - 60) * 10**9
    span = json_span("gpt-4o", startTimeUnixNano=str(start), endTimeUnixNano=str(start + 10**9))
    span["attributes"].append({"key": "user.id", "value": {"stringValue": LOGIN}})

    persons = storage.registry.persons

    async def is_over() -> bool:
        await continue_due_erasures(storage, clock, device_revoker(""))
        return all(each.passes == 2 for each in persons.erasures)

    await until(is_over)
    assert [] == await places(world, outside)
    assert {ERASED: 2, "bob": 1} == {name: calls for name, (calls, _) in (await lines(world)).items()}
    assert before == await whole(world)
    assert 200 == (await world.serving.send("/v1/traces", json_traces(span))).status
    await storage.ledger.catch_up(storage.log)
    await continue_due_erasures(storage, clock, device_revoker(""))
    assert {ERASED: 2, "bob": 1, LOGIN: 1} == {
        name: calls for name, (calls, _) in (await lines(world)).items()
    }


async def test_no_digest_of_a_colour_is_left(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]], clock: MovedClock
) -> None:
    """
    The colour of a name in charts is stored by a digest that needs the secret of the installation. An erasure deletes
    it, and other names keep their colour.
    """
    world = await opened(serve, storage_of[0], clock)
    await sent(world, random.Random(1), [LOGIN, "bob"])
    chart = {"by": "user", "top": "8", "colours": "names", "range": "last_7d"}
    before = checked(await world.ask("GET", "/report", **chart))["colours"]
    assert {LOGIN, "bob"} == {*before}

    async def digests() -> set[object]:
        found = set[object]()
        storage = world.serving.app.services.storage
        await storage.visit_rows(
            lambda table, values: found.update(values) if table.endswith("colours") else None
        )
        return found

    digest = world.people.erasure_digest(LOGIN)
    guessed = hashlib.blake2b(f"user\0{LOGIN}".encode(), digest_size=16).hexdigest()
    stored = await digests()
    assert digest in stored
    assert guessed not in stored
    await erased(world, LOGIN)
    after = checked(await world.ask("GET", "/report", **chart))["colours"]
    assert {ERASED, "bob"} == {*after}
    assert before["bob"] == after["bob"]
    left = await digests()
    assert digest not in left
    assert world.people.erasure_digest("bob") in left
