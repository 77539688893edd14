"""A laptop and three gateways in a row: one person at the centre, and erased everywhere by one request."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from exporters.service import people_above
from exporters.settings import DestinationSettings, UpstreamKey, UpstreamSettings
from gateway.cli.agent_run import config_with_gateway_as_upstream
from gateway.configuration.sections import AgentSettings, Config, PrivacySettings
from gateway.devices.agent.identity import KEY_FILE
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.app import TollhouseApp
from spool import erasing
from spool.errors import SpoolUnavailable
from spool.people import ERASED, HASH, People, hash_address_with_key
from spool.record import USAGE_EVENTS
from spool.registry.operators import Actor
from spool.registry.scopes import CREATE_EVENT, ENROLL, HEARTBEAT, INGEST
from spool.registry.tables.persons import ReportedForms
from spool.settings import SpoolSettings
from tests.exporters.upstream import FakeUpstream, Received, Reply
from tests.integration.conftest import Serve, Serving
from tests.integration.operations.people.test_privacy import allow
from tests.integration.payloads import json_span, json_traces
from tests.integration.test_linked_names import lines, whole
from tests.integration.test_one_identity import World, checked
from tests.stored_files import contents_of
from tests.waiting import awaited, until

ADDRESS, LOGIN = "Canary.Person@example.com", "canary-login-7q"
SPOOL = SpoolSettings(hold=0, counter_wait=0)
SCOPES = (ENROLL, HEARTBEAT, INGEST)
ROOT = Actor("root@example.com", "local")
LAPTOP = AuthenticatedKey("this machine", frozenset({INGEST}), device="laptop-1", is_local=True)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask without long waits."""
    for name in ("GATHER_S", "RETRY_S", "POLL_S"):
        monkeypatch.setattr(people_above, name, 0.05)


@dataclass
class Chain:
    laptop: Serving
    site: Serving
    region: Serving
    centre: Serving

    @property
    def all(self) -> Sequence[Serving]:
        return self.laptop, self.site, self.region, self.centre

    @property
    def world(self) -> World:
        return world_at(self.centre)


def world_at(serving: Serving) -> World:
    people = People.for_installation(serving.app.services.storage.secret)
    return World(serving, None, "", people, HASH)  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def chain(serve: Serve, tmp_path: Path) -> Chain:
    sink = DestinationSettings(name="sink", type="ndjson", path=tmp_path / "sink.ndjson")
    centre = await serve(config=Config(spool=SPOOL, destinations=(sink,)), chain_keys=("site",))

    async def below(above: Serving) -> Serving:
        file = tmp_path / f"{above.port}.key"
        file.write_text(await above.make_key("site", scopes=SCOPES))
        key = UpstreamKey(name="site", secret_file=file, scopes=SCOPES)
        upstream = UpstreamSettings(base_url=above.url, kind="tollhouse", keys=(key,))
        return await serve(config=Config(spool=SPOOL, upstream=upstream), chain_keys=("site",))

    region = await below(centre)
    site = await below(region)
    fleet = await site.make_key("fleet", scopes=SCOPES)
    body = {"device_id": "laptop-1", "want_key": True, "fingerprint": "one"}
    enrolled = await site.send("/v1/ai-control-plane/enroll", json.dumps(body).encode(), key=fleet)
    agent = Config(spool=SPOOL, agent=AgentSettings(gateway=site.url), data_dir=tmp_path / "laptop")
    agent.data_dir.mkdir()
    (agent.data_dir / KEY_FILE).write_text(json.loads(enrolled.body)["key"])
    laptop = await serve(config=config_with_gateway_as_upstream(agent), local=LAPTOP)
    return Chain(laptop, site, region, centre)


def hash_at(serving: Serving) -> str:
    return People.for_installation(serving.app.services.storage.secret).hash_address(ADDRESS)


def names_at(serving: Serving, name: str = ADDRESS) -> tuple[str, ...]:
    people = serving.app.services.storage.ledger.people
    assert people is not None
    return people.linked_names(name)


async def has_names(chain: Chain, count: int) -> bool:
    return len(names_at(chain.centre)) == count


async def is_confirmed(chain: Chain) -> bool:
    return not await pending(chain)


async def call_at(
    serving: Serving, chance: random.Random, *, ago_s: float = 3600.0, key: str | None = None, **named: str
) -> None:
    """Send a call to a server."""
    start = int((datetime.now(UTC) - timedelta(seconds=ago_s)).timestamp()) * 10**9
    span = json_span(
        "gpt-4o",
        tokens=chance.randint(1, 10**6),
        startTimeUnixNano=str(start),
        endTimeUnixNano=str(start + 10**9),
    )
    span["attributes"] += [
        {"key": name.replace("__", "."), "value": {"stringValue": value}} for name, value in named.items()
    ]
    assert 200 == (await serving.send("/v1/traces", json_traces(span), key=key or serving.key)).status


async def delivered(chain: Chain) -> None:
    """Wait until every record has arrived at the centre, and is counted there."""

    async def is_empty() -> bool:
        for serving in chain.all:
            routes = await serving.app.services.storage.deliveries.route_states()
            if any(route.queued for route in routes):
                return False
        return True

    await until(is_empty)
    await until(is_empty)
    storage = chain.centre.app.services.storage
    await storage.ledger.catch_up(storage.log)


async def restart(serving: Serving, local: AuthenticatedKey | None = None) -> None:
    await serving.app.stop()
    await start_again(serving, local)


async def start_again(serving: Serving, local: AuthenticatedKey | None = None) -> None:
    """Start a server again, on its port."""
    config = serving.app.config
    server = replace(config.server, listen=f"127.0.0.1:{serving.port}")
    serving.app = TollhouseApp(replace(config, server=server), version="0", local=local)
    await serving.app.start()


def on_disks(chain: Chain) -> Mapping[str, bytes]:
    return {
        f"{serving.app.config.data_dir.name}/{name}": content
        for serving in chain.all
        for name, content in contents_of(serving.app.config.data_dir).items()
    }


def holders(chain: Chain, *words: str) -> list[tuple[str, str]]:
    """Return the files with a word, in any case."""
    return [
        (word, name)
        for name, content in on_disks(chain).items()
        for word in words
        if word.lower().encode() in content.lower()
    ]


async def test_person_at_a_laptop_and_a_site_is_one_line(chain: Chain) -> None:
    """
    Calls of one address at each server of the chain, before and after the hashes are linked, after restarts and
    repeats: the centre has one line with exactly the sum, and no disk has the address.
    """
    chance = random.Random(1)
    for serving in chain.all:
        for spelled in (ADDRESS, ADDRESS.lower(), f" {ADDRESS.upper()} "):
            await call_at(serving, chance, user__id=spelled)
            await call_at(serving, chance, user__id="somebody", user__email=spelled)
    await delivered(chain)
    world, hashed = chain.world, chain.world.people.hash_address(ADDRESS)
    own = {hash_at(serving) for serving in chain.all}
    assert 4 == len(own)
    await until(partial(has_names, chain, 4))
    assert own == {*names_at(chain.centre)}
    by_record = [record.user for record in await chain.centre.records()]
    assert {*own, "somebody"} == {*by_record}, "records stay as they are"
    found = await lines(world)
    assert {hashed: 12, "somebody": 12} == {name: calls for name, (calls, _) in found.items()}
    assert await cost_of_records(chain) == sum(cost for _, cost in found.values())
    filtered = await lines(world, "model", where=f"user={ADDRESS}")
    assert 24 == sum(calls for calls, _ in filtered.values())
    audit = checked(await world.ask("GET", "/audit", action="person.join"))["audit"]
    for serving, local in ((chain.laptop, LAPTOP), (chain.site, None), (chain.laptop, LAPTOP)):
        await restart(serving, local)
        await call_at(chain.laptop, chance, user__id=ADDRESS)
    await delivered(chain)
    assert 15 == (await lines(chain.world))[hashed][0]
    assert audit == checked(await chain.world.ask("GET", "/audit", action="person.join"))["audit"]
    assert [] == holders(chain, ADDRESS)
    sent = (chain.centre.app.config.destinations[0].path or Path()).read_text().splitlines()
    assert 27 == len(sent)
    total = sum(Decimal(str(json.loads(line)["estimated_cost"])) for line in sent)
    assert total == await cost_of_records(chain)


async def cost_of_records(chain: Chain) -> Decimal:
    records = await chain.centre.records()
    return sum((Decimal(str(getattr(record, "estimated_cost", 0))) for record in records), Decimal(0))


async def erased(chain: Chain, **choices: Any) -> Mapping[str, Any]:
    answer = await chain.world.ask("POST", f"/people/{ADDRESS}/erase", {"confirm": ADDRESS, **choices})
    return dict(checked(answer)["erasure"])


async def pending(chain: Chain) -> list[str]:
    """Return the agents and gateways below the centre that have not confirmed."""
    erasures = checked(await chain.world.ask("GET", "/erasures"))["erasures"]
    return [name for erasure in erasures for name in erasure["below"]]


def below(receipt: Mapping[str, Any]) -> Any:
    [place] = [place for place in receipt["places"] if place["place"] == "below"]
    return place


async def test_an_erasure_reaches_every_server_below(chain: Chain) -> None:
    """
    The laptop is off. The gateways erase the person, but are pending until the laptop has. Then no disk has a name, no
    sum has changed, and a late report or a repeat brings no name back.
    """
    await allow(chain.world)
    chance = random.Random(2)
    for serving in chain.all:
        await call_at(serving, chance, user__id=LOGIN, user__email=ADDRESS)
        await call_at(serving, chance, user__id=ADDRESS)
        await call_at(serving, chance, user__id="bob")
    await delivered(chain)
    own = [hash_at(serving) for serving in chain.all]
    await until(partial(has_names, chain, 4))
    checked(await chain.world.ask("POST", "/people", {"people": [{"users": [own[-1], LOGIN]}]}))
    before = await whole(chain.world)
    assert {name for name, _ in holders(chain, LOGIN, *own)} == {LOGIN, *own}
    assert 4 == len({file.partition("/")[0] for _, file in holders(chain, LOGIN)})
    await chain.laptop.app.stop()
    receipt = await erased(chain)
    assert ("pending", 1) == (below(receipt)["state"], len(below(receipt)["listed"]))

    async def are_gateways_clean() -> bool:
        found = holders(chain, LOGIN, ADDRESS, *own)
        return {file.partition("/")[0] for _, file in found} == {chain.laptop.app.config.data_dir.name}

    await until(are_gateways_clean)
    assert below(receipt)["listed"] == await pending(chain)
    await start_again(chain.laptop, LAPTOP)
    await until(partial(is_confirmed, chain))
    assert [] == holders(chain, LOGIN, ADDRESS, *own)
    assert before == await whole(chain.world)
    for serving in chain.all:
        await call_at(serving, chance, user__id=ADDRESS)
    await delivered(chain)
    assert [] == holders(chain, LOGIN, ADDRESS, *own), "calls from before the erasure"
    assert {ERASED: 12, "bob": 4} == {name: calls for name, (calls, _) in (await lines(chain.world)).items()}
    for serving in chain.all:
        users = {record.user for record in await serving.records()}
        assert {"bob"} == {user for user in users if not str(user).startswith("erased:")}


KEY, OTHER_KEY = b"\xab" * 32, b"\xcd" * 32
BODY = {"keys": [KEY.hex()], "addresses": {"ada@example.com": 1}}


def stating(*addresses: str, keys: Sequence[bytes] = (KEY,), at_s: float = 0.0) -> Mapping[str, Any]:
    """Return a report of addresses whose newest call began at a time, by default an hour ago."""
    start = int((at_s or datetime.now(UTC).timestamp() - 3600) * 10**9)
    return {"keys": [key.hex() for key in keys], "addresses": dict.fromkeys(addresses, start)}


async def told(serving: Serving, path: str, body: object, key: str) -> Any:
    return await serving.send(f"/v1/ai-control-plane/people/{path}", json.dumps(body).encode(), key=key)


async def test_only_agents_and_named_gateways_may_send_links(serve: Serve) -> None:
    """
    Only agents, and gateways that are named in server.chain_keys, may send links of addresses or get erasures.
    Another key that may send telemetry may not. No answer has a hash or an address.
    """
    serving = await serve(chain_keys=("site",))
    site = await serving.make_key("site", scopes=SCOPES)
    await call_at(serving, random.Random(8), key=site, user__id=hash_address_with_key(KEY, "ada@example.com"))
    known = stating("ada@example.com")
    for path, body in (("addresses", known), ("erasures", {"installation": "ab" * 16})):
        assert 403 == (await told(serving, path, body, serving.key)).status
        answers = [await told(serving, path, body, site) for _ in range(2)]
        assert [200, 200] == [answer.status for answer in answers]
        assert answers[0].body == answers[1].body, "the answer shows whether the address was known"
    for wrong in (
        {**BODY, "keys": []},
        {**BODY, "keys": ["ab"]},
        {**BODY, "keys": ["ab" * 32] * 9},
        {**BODY, "addresses": {"ada": 1}},
        {**BODY, "addresses": {"ada@example.com": -1}},
        {**BODY, "addresses": {f"a{number}@example.com": 1 for number in range(1001)}},
    ):
        assert 400 == (await told(serving, "addresses", wrong, site)).status
    stored = b"".join(contents_of(serving.app.config.data_dir).values())
    assert hash_address_with_key(KEY, "ada@example.com").encode() in stored
    assert b"ada@example.com" not in stored


async def test_an_address_of_an_erased_person_is_not_linked_again(serve: Serve) -> None:
    """
    If a gateway sends an address that it had in memory from before the erasure, the erased person is not linked
    again. Later calls count.
    """
    serving = await serve(chain_keys=("site",))
    site, world = await serving.make_key("site", scopes=SCOPES), world_at(serving)
    await allow(world)
    await call_at(serving, random.Random(3), user__id="ada@example.com")
    hashed = hash_address_with_key(KEY, "ada@example.com")
    await call_at(serving, random.Random(3), key=site, user__id=hashed)
    storage = serving.app.services.storage
    await storage.ledger.catch_up(storage.log)
    await told(serving, "addresses", stating("ada@example.com"), site)
    assert 2 == len(names_at(serving, "ada@example.com"))
    checked(await world.ask("POST", "/people/ada@example.com/erase", {"confirm": "ada@example.com"}))
    assert 200 == (await told(serving, "addresses", stating("ada@example.com"), site)).status
    assert () == names_at(serving, "ada@example.com")
    await call_at(serving, random.Random(3), key=site, ago_s=-60, user__id=hashed)
    later = stating("ada@example.com", at_s=datetime.now(UTC).timestamp() + 60)
    assert 200 == (await told(serving, "addresses", later, site)).status
    assert 2 == len(names_at(serving, "ada@example.com"))


@dataclass
class Office:
    """A gateway with a member's and a victim's calls, and the key of the member's laptop."""

    gateway: Serving
    laptop: str
    honest: str

    @property
    def world(self) -> World:
        return world_at(self.gateway)

    async def state(self, key: str, *addresses: str, keys: Sequence[bytes] = (KEY,)) -> Mapping[str, Any]:
        answer = await told(self.gateway, "addresses", stating(*addresses, keys=keys), key)
        assert 200 == answer.status, answer
        return dict(json.loads(answer.body))

    async def answers_about(self, *addresses: str) -> Sequence[object]:
        """Return what reports say about these people, and who they are."""
        lines_of = [await lines(self.world, "model", where=f"user={address}") for address in addresses]
        return [lines_of, [names_at(self.gateway, address) for address in addresses]]

    async def conflicts(self) -> list[dict[str, Any]]:
        return list(checked(await self.world.ask("GET", "/people/conflicts"))["name_conflicts"])


MEMBER, VICTIM = "m@example.com", "victim@example.com"


@pytest_asyncio.fixture
async def office(serve: Serve) -> Office:
    privacy = PrivacySettings(max_names=80, max_name_conflicts=8)
    gateway = await serve(config=Config(spool=SPOOL, privacy=privacy), chain_keys=("site",))
    fleet = await gateway.make_key("fleet", scopes=SCOPES)
    keys = []
    for device in ("laptop-m", "laptop-h"):
        body = {"device_id": device, "want_key": True, "fingerprint": device}
        enrolled = await gateway.send("/v1/ai-control-plane/enroll", json.dumps(body).encode(), key=fleet)
        keys.append(json.loads(enrolled.body)["key"])
    for address, calls in ((MEMBER, 3), (VICTIM, 5)):
        for number in range(calls):
            await call_at(gateway, random.Random(number), user__id=address)
    return Office(gateway, *keys)


async def test_a_laptop_cannot_make_two_people_one(office: Office) -> None:
    """
    A laptop whose keys give a member and a victim one hash changes no answer about either, and an operator sees what
    it tried, and decides. (Such keys are made by hand here: the second report states the first one's hash.)
    """
    world, persons = office.world, office.gateway.app.services.storage.registry
    assert persons is not None
    own = hash_address_with_key(KEY, MEMBER)
    await call_at(office.gateway, random.Random(1), key=office.laptop, user__id=own)
    assert {"accepted": 1, "waiting": [], "left_out": 0} == await office.state(office.laptop, MEMBER)
    before = await office.answers_about(MEMBER, VICTIM)
    assert {own, world.people.hash_address(MEMBER)} == {*names_at(office.gateway, MEMBER)}
    victim = world.people.hash_address(VICTIM)
    await persons.persons.link_address_forms(
        [ReportedForms(victim, [own])], sender="device laptop-m", max_names=80, max_conflicts=8, actor=ROOT
    )
    assert before == await office.answers_about(MEMBER, VICTIM)
    [conflict] = await office.conflicts()
    assert ("names", "device laptop-m", [victim, own], "open") == tuple(
        conflict[name] for name in ("kind", "sender", "names", "state")
    )
    assert checked(await world.ask("GET", "/audit", action="conflict.report"))["audit"]
    further = await office.state(office.laptop, MEMBER, VICTIM, keys=[KEY, OTHER_KEY])
    assert {"accepted": 2, "waiting": [1], "left_out": 0} == further
    assert hash_address_with_key(OTHER_KEY, MEMBER) not in names_at(office.gateway, MEMBER)
    kinds = [each["kind"] for each in await office.conflicts()]
    assert ["hash_key", "names"] == sorted(kinds)
    decide = {"ids": [conflict["id"]], "accept": True}
    checked(await world.ask("POST", "/people/conflicts/decide", decide))
    assert names_at(office.gateway, MEMBER) == names_at(office.gateway, VICTIM) != ()
    assert 404 == (await world.ask("POST", "/people/conflicts/decide", decide)).status


async def test_an_erasure_deletes_the_conflicts_of_a_person(office: Office) -> None:
    """Conflicts name people, so an erasure deletes those of the person, and no file has the name."""
    persons, victim = office.gateway.app.services.storage.registry, office.world.people.hash_address(VICTIM)
    assert persons is not None
    await allow(office.world)
    member = office.world.people.hash_address(MEMBER)
    for pair in ((member, "m-login"), (victim, "v-login")):
        checked(await office.world.ask("POST", "/people", {"people": [{"users": list(pair)}]}))
    for own, other in ((member, "v-login"), (victim, "m-login")):
        await persons.persons.link_address_forms(
            [ReportedForms(own, [other])], sender="device a", max_names=80, max_conflicts=8, actor=ROOT
        )
    assert 2 == len(await office.conflicts())
    checked(await office.world.ask("POST", f"/people/{VICTIM}/erase", {"confirm": VICTIM}))
    assert [] == await office.conflicts()
    stored = b"".join(contents_of(office.gateway.app.config.data_dir).values())
    assert b"v-login" not in stored and victim.encode() not in stored


async def test_a_laptop_links_only_names_of_its_own_calls(office: Office) -> None:
    """
    A laptop states made-up addresses, a victim's address and further keys. It links what its own calls name, within its
    share of the room, and another laptop's honest hash is linked in spite of it.
    """
    before = await office.answers_about(MEMBER, VICTIM)
    invented = [f"a{number}@example.com" for number in range(100)]
    told_back = await office.state(office.laptop, *invented, VICTIM)
    assert [*range(101)] == told_back["waiting"]
    for number in range(12):
        await office.state(office.laptop, VICTIM, keys=[bytes([number]) * 32] * 8)
    assert before == await office.answers_about(MEMBER, VICTIM)
    for name in invented[:30]:
        hashed = hash_address_with_key(KEY, name)
        await call_at(office.gateway, random.Random(1), key=office.laptop, user__id=hashed)
    told_back = await office.state(office.laptop, *invented)
    assert ([*range(30, 100)], 20) == (told_back["waiting"], told_back["left_out"])
    await call_at(
        office.gateway, random.Random(1), key=office.honest, user__id=hash_address_with_key(OTHER_KEY, VICTIM)
    )
    assert [] == (await office.state(office.honest, VICTIM, keys=[OTHER_KEY]))["waiting"]
    assert hash_address_with_key(OTHER_KEY, VICTIM) in names_at(office.gateway, VICTIM)
    assert len(await office.conflicts()) <= 4, "half of the room for conflicts"


async def test_a_gateway_below_sends_no_name_from_before_its_erasure(serve: Serve) -> None:
    """
    Until a gateway below has confirmed an erasure, its calls and events are from before, even if their start is ahead.
    Other senders, and the gateway once it has confirmed, report a later person of the same name. Two gateways share
    a key, so both must confirm.
    """
    serving = await serve(config=Config(spool=SPOOL), chain_keys=("site",))
    site = await serving.make_key("site", scopes=(*SCOPES, CREATE_EVENT))
    world, installations = world_at(serving), ("ab" * 16, "cd" * 16)
    await allow(world)

    async def confirm(installation: str, done: Sequence[str] = ()) -> None:
        body = {"installation": installation, "done": list(done)}
        assert 200 == (await told(serving, "erasures", body, site)).status

    async def call_with(key: str) -> None:
        """Send a call and an event of a clock that is an hour ahead."""
        at = datetime.now(UTC) + timedelta(hours=1)
        start = int(at.timestamp()) * 10**9
        span = json_span("gpt-4o", startTimeUnixNano=str(start), endTimeUnixNano=str(start + 10**9))
        span["attributes"].append({"key": "user.id", "value": {"stringValue": LOGIN}})
        assert 200 == (await serving.send("/v1/traces", json_traces(span), key=key)).status
        event = {"type": "order", "source": "shop", "subject": LOGIN, "time": at.isoformat()}
        assert 200 == (await serving.send("/v1/events", json.dumps(event).encode(), key=key)).status

    async def names() -> list[bool]:
        """Return whether each call and event has the name."""
        log = serving.app.services.storage.log
        users = [record.user for record in await serving.records()]
        last = log.next_number(USAGE_EVENTS) - 1
        for entry in await log.read(USAGE_EVENTS, 1, last, includes_open_records=True):
            users += [getattr(record, "subject", None) for record in entry.records]
        return [name == LOGIN for name in users]

    for installation in installations:
        await confirm(installation)
    await call_with(site)
    erased = checked(await world.ask("POST", f"/people/{LOGIN}/erase", {"confirm": LOGIN}))["erasure"]
    assert 2 == below(erased)["count"]
    await call_with(site)
    await confirm(installations[0], [erased["id"]])
    await call_with(site)
    assert [False] * 6 == await names()
    assert [] == [
        name
        for name, content in contents_of(serving.app.config.data_dir).items()
        if LOGIN.encode() in content
    ]
    await call_with(await serving.make_key("other", scopes=(*SCOPES, CREATE_EVENT)))
    await confirm(installations[1], [erased["id"]])
    await call_with(site)
    assert [False, False, False, True, True] * 2 == await names()


async def test_a_gateway_waits_for_the_one_above_it(chain: Chain) -> None:
    """While the gateway at the centre is off, the laptop keeps its address in memory, and sends it again."""
    await chain.centre.app.stop()
    await call_at(chain.laptop, random.Random(4), user__id=ADDRESS)

    async def is_linked_at_site() -> bool:
        return len(names_at(chain.site)) == 2

    await until(is_linked_at_site)
    await start_again(chain.centre)
    await until(partial(has_names, chain, 4))
    assert [] == holders(chain, ADDRESS)


@pytest.mark.proof
async def test_an_erasure_that_is_cut_off_below_is_finished(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage of the site fails in the middle of an erasure. After a start it finishes, and only then confirms."""
    await allow(chain.world)
    for serving in chain.all:
        await call_at(serving, random.Random(5), user__id=ADDRESS)
    await delivered(chain)
    await until(partial(has_names, chain, 4))
    await chain.laptop.app.stop()
    await chain.site.app.stop()
    await erased(chain)

    async def is_erased_above() -> bool:
        registry = chain.region.app.services.storage.registry
        return registry is not None and [1] == [each.passes for each in registry.persons.erasures]

    await until(is_erased_above)  # the failure below reaches every server of this process
    failed = asyncio.Event()

    async def fail(_: object) -> Sequence[str]:
        failed.set()
        raise SpoolUnavailable("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(erasing, "overwrite_deleted_data", fail)
        await start_again(chain.site)
        await awaited(failed.wait())
        await chain.site.app.stop()
    assert 1 == len(await pending(chain))
    await start_again(chain.site)
    await start_again(chain.laptop, LAPTOP)
    await until(partial(is_confirmed, chain))
    hashes = [hash_at(serving) for serving in chain.all]
    assert [] == holders(chain, ADDRESS, *hashes)


@pytest.mark.parametrize("failure", [Reply(503), Reply(drop=True)], ids=["refused", "unanswered"])
async def test_a_repeat_after_a_link_has_the_same_bytes(serve: Serve, tmp_path: Path, failure: Reply) -> None:
    """
    A cost service, a collector and a webhook fail until names in their requests are linked. If they have not answered,
    the key of the request is also the same.
    """
    file = tmp_path / "key"
    file.write_text("a-key-of-a-receiver")
    answer: Reply | None = failure
    async with FakeUpstream() as receiver:
        receiver.judge = lambda _: answer
        upstream = UpstreamSettings(
            base_url=receiver.url, keys=(UpstreamKey(name="telemetry", secret_file=file, scopes=(INGEST,)),)
        )
        others = [
            DestinationSettings(name=type, type=type, url=f"{receiver.url}/{type}", secret_file=file)
            for type in ("otlp", "webhook")
        ]
        serving = await serve(config=Config(spool=SPOOL, upstream=upstream, destinations=(*others,)))
        for number in range(3):
            await call_at(serving, random.Random(number), user__id=LOGIN)
            await call_at(serving, random.Random(number), user__id=ADDRESS)
        paths = {"/v1/traces", "/otlp/v1/traces", "/webhook"}
        await receiver.until(lambda: paths <= {each.path for each in receiver.requests})
        before = [*receiver.requests]
        world = world_at(serving)
        names = [world.people.hash_address(ADDRESS), LOGIN]
        checked(await world.ask("POST", "/people", {"people": [{"users": names, "name": "Somebody Else"}]}))
        answer = None
        repeated = {sent(each, is_answered=not failure.drop) for each in before if each.path in paths}
        assert paths == {path for path, *_ in repeated}
        await receiver.until(
            lambda: repeated <= {sent(each, is_answered=not failure.drop) for each in receiver.accepted}
        )
    assert any(LOGIN.encode() in each.body for each in before)


def sent(request: Received, *, is_answered: bool) -> tuple[str, bytes, str | None]:
    return request.path, request.raw, None if is_answered else request.key
