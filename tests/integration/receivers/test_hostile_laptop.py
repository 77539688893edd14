"""A laptop that lies at every receiver changes no answer to anybody else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from docs.generate.http_api import EXAMPLES
from gateway.configuration.sections import Config
from gateway.core.paths import OPERATOR_API
from gateway.http.address import ApiAddress
from gateway.service.addresses.table import FOR_SENDERS
from spool.ledger.work import UNITS
from spool.people import People, hash_address_with_key
from spool.record import NS
from spool.registry.roles import LIMITED, NewRole, RoleFilter, RoleLimits
from spool.registry.scopes import HEARTBEAT, INGEST, PING
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_rights import attribute, call, claiming, own_key, points
from tests.integration.test_one_identity import World

VICTIM, KEY = "victim@example.com", b"\xab" * 32
ANSWER, SESSION, TRACE = "chatcmpl-" + "a" * 24, "session-of-the-victim", "ab" * 16
OF_LAPTOPS = {INGEST, HEARTBEAT, PING, None}
DIMENSIONS = ("team", "user", "model", "device", "source", "sender", "status", "api_key")


@dataclass
class Office:
    """A gateway with a victim's laptop and server, a hostile laptop, and a person who sees only the victim's calls."""

    serving: Serving
    victim: str  # key of the victim's laptop
    hostile: str
    reader: dict[str, str]  # headers of the person

    async def read(self, path: str) -> tuple[int, str]:
        url = f"{self.serving.url}{OPERATOR_API}{path}"
        async with self.serving.client.get(url, headers=self.reader) as answer:
            return answer.status, await answer.text()

    async def send(self, path: str, body: object, key: str, **more: Any) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.serving.send(path, data, key=key, **more)
        return answer.status, answer.body

    async def answers(self) -> dict[str, tuple[int, object]]:
        """Return what the person reads, and what the victim's laptop is answered."""
        storage = self.serving.app.services.storage
        await storage.ledger.require_complete_totals(storage.log)
        found: dict[str, tuple[int, object]] = {}
        paths = [f"/report?by={name}&range=last_30d" for name in (*DIMENSIONS, *UNITS)]
        paths += [f"/comparison?by={name}&range=last_7d" for name in ("user", "session")]
        paths += [f"/work/{unit}/{SESSION}" for unit in UNITS]
        paths += [f"/search?q={word}" for word in ("victim", "session", "laptop", "gpt", "email")]
        paths += ["/report?by=run&scope=aggregated&range=last_30d", "/records", f"/records?session={SESSION}",
                  "/records?topic=usage-events", "/insights", "/budgets", "/views", "/work/links"]  # fmt: skip
        for path in paths:
            found[path] = await self.read(path)
        listed = json.loads(str(found["/records"][1]))["records"]
        assert 3 == len(listed)
        for row in listed:
            found[row["id"]] = await self.read(f"/records/{row['id']}")
        addresses = {"keys": [KEY.hex()], "addresses": {VICTIM: int(datetime.now(UTC).timestamp()) * NS}}
        for path, body in (
            ("/v1/ai-control-plane/people/addresses", addresses),
            ("/v1/ai-control-plane/people/erasures", {"installation": "ab" * 16}),
        ):
            found[path] = await self.send(path, body, self.victim)
        people = People.for_installation(storage.secret, persons=storage.ledger.people.persons)  # type: ignore[union-attr]
        found["names"] = 0, people.linked_names(VICTIM)
        return found


@pytest_asyncio.fixture
async def office(serve: Serve) -> Office:
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0))
    serving = await serve(config=config, chain_keys=("site",))
    laptops = [await own_key(serving, device, fingerprint=device) for device in ("laptop-v", "laptop-h")]
    world = World(serving, None, "", People.for_installation(serving.app.services.storage.secret), "hash")  # type: ignore[arg-type]
    person = {"email": "reader@example.com", "password": "correct horse battery"}
    assert 201 == (await world.ask("POST", "/operators", {**person, "role": "none"})).status
    registry = serving.app.services.operators.installation.require_registry()
    for dimension, value in (("sender", "app"), ("device", "laptop-v")):
        draft = NewRole(
            name=dimension,
            data_access=LIMITED,
            filters=(RoleFilter(dimension=dimension, values=(value,)),),
            permission_sets=("view_costs", "view_records"),
            members=(person["email"],),
        )
        known = ("sender", "device")
        await registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ACTOR)
    async with serving.client.post(f"{serving.url}{OPERATOR_API}/sessions", json=person) as answer:
        token = json.loads(await answer.text())["session"]["csrf_token"]
        reader = {"Cookie": f"tollhouse={answer.cookies['tollhouse'].value}", "X-CSRF-Token": token}
    office = Office(serving, laptops[0], laptops[1], reader)
    app = await serving.make_key("app", scopes=[INGEST])
    own = now_span(gen_ai__response__id=ANSWER, gen_ai__conversation__id=SESSION, user__id=VICTIM)
    assert 200 == (await office.send("/v1/traces", json_traces(own), app))[0]
    for name in (hash_address_with_key(KEY, VICTIM), "victim-login"):
        span = now_span(user__id=name, gen_ai__conversation__id=SESSION)
        assert 200 == (await office.send("/v1/traces", json_traces(span), office.victim))[0]
    return office


def now_span(**more: str | int) -> dict[str, Any]:
    start = int(datetime.now(UTC).timestamp()) * NS - 60 * NS
    span = json_span(startTimeUnixNano=str(start), endTimeUnixNano=str(start + NS), traceId=TRACE)
    span["attributes"] += [attribute(name.replace("__", "."), value) for name, value in more.items()]
    return span


def lies(record_ids: list[str]) -> list[tuple[str, object]]:
    """Return what the laptop states about the victim: its answer, ids, names, device, session, trace and erasure."""
    spans = [
        now_span(
            gen_ai__response__id=ANSWER, gen_ai__usage__cost="777", user__id="mallory", error__type="500"
        ),
        now_span(gen_ai__conversation__id=SESSION, user__id=VICTIM, tollhouse__device="laptop-v"),
        now_span(gen_ai__conversation__id=SESSION, service__name="app", device__id="laptop-v", team="ops"),
        *(claiming(id, tollhouse__device="laptop-v", tollhouse__api_key="app") for id in record_ids),
        call(gen_ai__response__id=ANSWER, gen_ai__usage__input_tokens=10**9),
    ]
    log = {
        "eventName": "gen_ai.client.inference.operation.details",
        "attributes": claiming(record_ids[0])["attributes"],
    }
    addresses = {VICTIM: int(datetime.now(UTC).timestamp()) * NS, "m@example.com": 1}
    device = {"device_id": "laptop-v", "fingerprint": "laptop-v", "user": "mallory", "hostname": "victim"}
    return [
        *(("/v1/traces", json.loads(json_traces(span))) for span in spans),
        ("/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}),
        *(("/v1/metrics", points(id, value)) for id in record_ids for value in (777, -777)),
        ("/v1/ai-control-plane/enroll", {**device, "want_key": True}),
        ("/v1/ai-control-plane/heartbeat", device),
        ("/v1/ai-control-plane/ping", {"device_id": "laptop-v"}),
        *(
            ("/v1/ai-control-plane/people/addresses", {"keys": [f"{number:064x}"] * 8, "addresses": addresses})
            for number in (int(KEY.hex(), 16), 1, 2)
        ),
        ("/v1/ai-control-plane/people/erasures", {"installation": "ab" * 16, "done": record_ids}),
        ("/v1/events", {"type": "tollhouse.work.link", "data": {"session": SESSION, "ticket": "T-1"}}),
    ]  # fmt: skip


def example_requests(address: ApiAddress) -> list[tuple[str, str, object]]:
    """Return the method, path and body of each example of an address."""
    return [
        (name.partition(" ")[0], example["path"], example.get("body", {}))
        for name, example in EXAMPLES.items()
        if name.partition(" ")[2] == address.documented_path
    ]


@pytest.mark.proves("A laptop changes or claims calls of others through its agent")
async def test_a_hostile_laptop_changes_no_answer_to_others(office: Office) -> None:
    """
    A laptop sends lies about a victim to every receiver, and the example of every address for senders. The answers to a
    person who sees the victim's calls, and to the victim's laptop, are equal before and after, byte by byte.
    """
    await office.answers()  # the first report links the victim's own address
    before = await office.answers()
    ids = [name for name in before if len(name) == 32 and "/" not in name]
    for path, body in lies(ids):
        status, text = await office.send(path, body, office.hostile)
        assert status < 500, (path, status, text)
    reached = set[str]()
    for address in FOR_SENDERS:
        for method, path, body in example_requests(address):
            if method in address.methods:
                status, text = await office.send(
                    path, b"" if method == "GET" else body, office.hostile, method=method
                )
                assert status < 500, (method, path, status, text)
                if address.scope not in OF_LAPTOPS:
                    assert status in (401, 403, 404), (method, path, status, text)
                reached.add(address.path)
    assert {"/v1/traces", "/v1/ai-control-plane/people/addresses", "/v1/events"} <= reached
    after = await office.answers()
    differing = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    assert [] == differing, "\n".join(f"{name}: {before.get(name)}\n{after.get(name)}" for name in differing)
