"""
Every input that names a user finds the same calls by any spelling of the e-mail address and by its hash,
under each setting of `privacy.emails`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp
import click
import msgspec
import pytest
from yarl import URL

from gateway.cli import main
from gateway.configuration.attribution import AttributionRule
from gateway.configuration.sections import Config, PrivacySettings, all_settings
from gateway.core.paths import OPERATOR_API, socket_path
from gateway.mcp.tools.list import TOOLS
from gateway.service.addresses.table import ADDRESSES
from spool.people import DROP, HASH, KEEP, People
from spool.registry.scopes import AI_HUB, ENROLL
from spool.settings import SpoolSettings
from tests.integration.conftest import Serve, Serving
from tests.integration.mcp.conftest import Assistant
from tests.integration.payloads import json_span, json_traces
from tests.rounds import part
from tests.spool.contract.examples import add, call

ANN, BOB = "ann@example.com", "bob@example.com"
FORMS = ("ann@example.com", "Ann@Example.COM", " ann@example.com ", "hash")
AS = {"X-Tollhouse-As": quote("root@example.com")}
DEFINITION = """
Dimensions:
  Who:
    Name: Who
    Rules:
      - Type: Group
        Name: Ann
        Conditions:
          - Source: user
            Equals: {typed}
"""
WHY = 'privacy.emails is "drop"'

# -- declared inputs -----------------------------------------------------------------------------------------

_WORDS = frozenset((
    "user", "users", "email", "emails", "seat", "seats", "owner", "owners", "member", "members", "person", "people",
    "filter", "filters", "where", "subject", "assignee", "names",
))  # fmt: skip
# Inputs that name people in the same way as records. The tests below try each kind.
RECORDED = frozenset((
    "?user", "?where", "?filter", "?filters", "?owner", "?subject", "filter", "filters", "filters.values",
    "role.filters", "role.filters.values", "seats", "seats.user", "people.users", "users", "user",
    "--user", "--where", "--filter", "--owner", "--subject", "--seat", "--seats", "--names", "NAMES", "USER", "USERS",
    "match.user", "set.user", "agent.user",
))  # fmt: skip
# Inputs that name accounts, mail recipients or responsible persons. Records contain no such names.
OF_ACCOUNTS = frozenset((
    "?member", "?assignee", "members", "role.members", "person", "people", "email", "connections.email", "assignee",
    "--member", "--person", "--assignee", "PERSON", "EMAIL", "reconciliation.owner",
))  # fmt: skip
SETTINGS = frozenset(("--emails", "privacy.emails", "work.people"))


def fields_of(kind: type[Any]) -> Iterator[str]:
    """Yield the paths of the fields of a request body or of arguments."""

    def walk(found: Any, path: str) -> Iterator[str]:
        for each in getattr(found, "types", ()):
            yield from walk(each, path)
        for name in ("item_type", "value_type", "type"):
            if isinstance(inner := getattr(found, name, None), msgspec.inspect.Type):
                yield from walk(inner, path)
        for each in getattr(found, "fields", ()):
            here = f"{path}.{each.encode_name}".lstrip(".")
            yield here
            yield from walk(each.type, here)

    yield from walk(msgspec.inspect.type_info(kind), "")


def commands(command: click.Command) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    for name in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), name)
        assert found is not None
        yield from commands(found)


def declared() -> Iterator[str]:
    for address in ADDRESSES:
        lists = getattr(address, "lists", None)
        for parameters in ("required", "optional", "repeated"):
            yield from (f"?{name}" for name in getattr(address, parameters, ()))
        yield from (f"?{name}" for name in (lists.filters if lists else ()))
        if isinstance(address.body, type) and address.body is not bytes:
            yield from fields_of(address.body)
    for tool in TOOLS.values():
        yield from fields_of(tool.takes)
    for command in commands(main):
        for each in command.params:
            is_option = isinstance(each, click.Option)
            yield from (each.opts if is_option else [str(each.name).upper()])
    yield from (name for name, *_ in all_settings(Config()))
    yield from fields_of(AttributionRule)


def names_somebody(declaration: str) -> bool:
    last = declaration.rpartition(".")[2].strip("?-[]").lower()
    return last in _WORDS or (last == "values" and "filters" in declaration)


def test_every_declared_input_that_names_somebody_is_known() -> None:
    """
    Every declared input that names somebody is known to this test. If this fails, a new field, parameter, option or
    setting has such a name. Add it to RECORDED or to OF_ACCOUNTS.
    """
    found = {each for each in declared() if names_somebody(each)}
    assert set() == found - RECORDED - OF_ACCOUNTS - SETTINGS
    assert {"?user", "seats.user", "--where", "people.users"} <= found


def test_every_filter_of_people_in_a_list_finds_them_by_any_form() -> None:
    """
    List filters that are named after people, and filters of every call dimension, find a person by any form
    of the name.
    """
    for address in ADDRESSES:
        lists = getattr(address, "lists", None)
        for name, each in (lists.filters if lists else {}).items():
            if f"?{name}" in RECORDED - {"?filters"}:
                assert each.names_people, (address.path, name)


# -- found calls ----------------------------------------------------------------------------------------------


@dataclass
class World:
    """A server with one call of Ann, whose address has an unusual spelling, and one of Bob."""

    serving: Serving
    assistant: Assistant
    reader: str  # a key that may read costs
    people: People
    policy: str

    async def ask(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """Call the operator API; return the payload, or raise Refused with the error text."""
        socket = socket_path(self.serving.app.config.data_dir)
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
            url = URL(f"http://tollhouse{OPERATOR_API}{path}", encoded=True).update_query(query)
            async with session.request(method, url, json=body, headers=AS) as response:
                return Found(response.status, await response.json())

    async def costs(self, **query: str) -> Found:
        asked = {"start_date": "2026-01-01", "granularity": "yearly", "measures": "calls", **query}
        path = f"/v2/billing/costs?{urlencode(asked)}"
        answer = await self.serving.send(path, b"", None, method="GET", key=self.reader)
        return Found(answer.status, json.loads(answer.body))

    async def tool(self, name: str, **arguments: Any) -> Found:
        result = await self.assistant.call(name, **arguments)
        if result["isError"]:
            return Found(400, {"error": {"message": result["content"][0]["text"]}})
        return Found(200, result["structuredContent"])


@dataclass
class Found:
    status: int
    payload: Any

    @property
    def words(self) -> str:
        return str(self.payload["error"]["message"])

    def made(self, name: str) -> Any:
        assert self.status in (200, 201), self.payload
        return self.payload[name]


class Refused(Exception):
    """A refused request with its error text."""


def checked(found: Found) -> Any:
    if found.status >= 400:
        raise Refused(found.words)
    return found.payload


class OpenWorld(Protocol):
    async def __call__(self, policy: str, *, accounts: bool = False) -> World: ...


@pytest.fixture
def open_world(serve: Serve) -> OpenWorld:
    async def start(policy: str, *, accounts: bool = False) -> World:
        config = Config(spool=SpoolSettings(hold=0, counter_wait=0), privacy=PrivacySettings(emails=policy))
        serving = await serve(config=config)
        secret = serving.app.services.storage.secret
        assistant = Assistant(serving, await serving.make_key("assistant", scopes=[AI_HUB]))
        reader = await serving.make_key("reader", scopes=["billing:read_costs"])
        world = World(serving, assistant, reader, People.for_installation(secret, policy), policy)
        await send(world, "Ann@Example.com", BOB, accounts=accounts)
        return world

    return start


async def send(world: World, *users: str, accounts: bool = False) -> None:
    """Send a call of each person, named by the address, or by an account with the address as a second name."""
    start = (
        int(datetime.now(UTC).timestamp()) * 10**9
    )  # an hour ago may be in the last month, which a report leaves out
    spans = []
    for user in users:
        span = json_span("gpt-4o", startTimeUnixNano=str(start), endTimeUnixNano=str(start))
        named = (
            {"user.id": f"ACCOUNT-{user[:3].upper()}", "user.email": user} if accounts else {"user.id": user}
        )
        span["attributes"] += [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]
        spans.append(span)
    answer = await world.serving.send("/v1/traces", json_traces(*spans))
    assert 200 == answer.status, answer.body
    storage = world.serving.app.services.storage
    await storage.ledger.catch_up(storage.log)


async def report(world: World, typed: str) -> int:
    return calls_of(await world.ask("GET", "/report", where=f"user={typed}", show="calls"))


def calls_of(found: Found) -> int:
    return sum(int(row["calls"]) for row in checked(found)["rows"])


async def report_without(world: World, typed: str) -> int:
    """Return the number of calls that the report leaves out if it excludes the person."""
    return 2 - calls_of(await world.ask("GET", "/report", where=f"user!={typed}", show="calls"))


async def records(world: World, typed: str) -> int:
    return len(checked(await world.ask("GET", "/records", user=typed))["records"])


async def records_of_a_day(world: World, typed: str) -> int:
    day = datetime.now(UTC).date().isoformat()
    return len(checked(await world.ask("GET", "/records", user=typed, date=day))["records"])


async def costs(world: World, typed: str) -> int:
    return sum(row["calls"] for row in checked(await world.costs(user=typed))["costs"])


async def costs_by_filters(world: World, typed: str) -> int:
    found = await world.costs(filters=json.dumps({"user": [typed]}))
    return sum(row["calls"] for row in checked(found)["costs"])


async def tool(world: World, typed: str) -> int:
    found = await world.tool("get_cost_data", filters={"user": [typed]}, measure="calls")
    return sum(int(row["calls"]) for row in checked(found)["rows"])


async def tool_containing(world: World, typed: str) -> int:
    found = await world.tool("get_cost_data", filters={"&user": [typed]}, measure="calls")
    return sum(int(row["calls"]) for row in checked(found)["rows"])


async def view(world: World, typed: str) -> int:
    body = {"name": "of Ann", "filter": {"user": [typed]}, "principal_dimension": "model"}
    checked(await world.ask("POST", "/views", body))
    in_records = checked(await world.ask("GET", "/records", view="of Ann"))["records"]
    in_costs = checked(await world.costs(view="of Ann"))["costs"]
    asked_again = calls_of(
        await world.ask("GET", "/report", view="of Ann", where=f"user={typed.strip().upper()}", show="calls")
    )
    found = calls_of(await world.ask("GET", "/report", view="of Ann", show="calls"))
    assert [found] * 3 == [len(in_records), sum(row["calls"] for row in in_costs), asked_again]
    return found


async def role(world: World, typed: str) -> int:
    filters = [{"dimension": "user", "values": [typed]}]
    body = {"name": "Ann", "data_access": "limited", "filters": filters, "members": ["eva@example.com"]}
    checked(await world.ask("POST", "/roles", body))
    shown = checked(await world.ask("POST", "/roles/preview", {"person": "eva@example.com"}))["preview"]
    return int(shown["total"]["calls"])


async def seat(world: World, typed: str) -> int:
    everything = {"name": "all", "filter": {}, "principal_dimension": "user"}
    checked(await world.ask("POST", "/views", everything))
    body = {"name": "Claude", "view": "all", "fee": "25", "seats": [{"user": typed, "since": "2026-01-01"}]}
    plan = checked(await world.ask("POST", "/plans", body))["plan"]
    assert typed.strip() == plan["seats"][0]["user"]
    [row] = checked(await world.ask("GET", "/plan-costs"))["rows"]
    assert typed.strip() == row["user"]
    return int(row["calls"])


async def definition(world: World, typed: str) -> int:
    """Publish a dimension whose only group is the person; return the number of its calls."""
    text = DEFINITION.format(typed=json.dumps(typed))
    checked(
        await world.ask("POST", "/allocation/publish", {"definition": text, "namespace": "", "base": None})
    )
    found = await world.ask("GET", "/report", where="User:Defined:Who=Ann", show="calls")
    return calls_of(found)


ASKED: Mapping[str, Callable[[World, str], Awaitable[int]]] = {
    each.__name__: each
    for each in (
        report, report_without, records, records_of_a_day, costs, costs_by_filters, tool, tool_containing, view, role,
        seat, definition,
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "form"),
    part(
        [
            (policy, form)
            for policy in (HASH, KEEP, DROP)
            for form in FORMS
            if policy == HASH or form != "hash"
        ],
        every=3,
    ),
)
async def test_every_input_finds_the_calls_of_a_person(open_world: OpenWorld, policy: str, form: str) -> None:
    """
    Each input that names a person finds only that person's call, one of two. If records carry no address, a
    query by address says so.
    """
    world = await open_world(policy)
    assert dict.fromkeys(ASKED, WHY if policy == DROP else 1) == await found_by(world, form)


@pytest.mark.parametrize(
    ("policy", "form"),
    part([(HASH, "hash"), *((policy, FORMS[1]) for policy in (HASH, KEEP, DROP))], every=2),
)
async def test_every_input_finds_calls_by_account_or_address(
    open_world: OpenWorld, policy: str, form: str
) -> None:
    """
    If calls state an account and an address, the address is a second name of the user. Every input finds the calls
    by either of them, under each setting of `privacy.emails`.
    """
    world = await open_world(policy, accounts=True)
    assert dict.fromkeys(ASKED, WHY if policy == DROP else 1) == await found_by(world, form)
    world = await open_world(policy, accounts=True)
    assert dict.fromkeys(ASKED, 1) == await found_by(world, "ACCOUNT-ANN")


@pytest.mark.parametrize("policy", part([HASH, KEEP, DROP], every=3))
async def test_every_input_finds_the_calls_of_a_linked_name(open_world: OpenWorld, policy: str) -> None:
    """
    If names are linked, a call is also found by a name that it does not state. Roles and definitions that are
    stored follow a split and a link.
    """
    world = await open_world(policy, accounts=True)
    link = {"people": [{"users": ["ACCOUNT-ANN", "ann-login", ANN]}]}
    checked(await world.ask("POST", "/people", link))
    assert dict.fromkeys(ASKED, 1) == await found_by(world, "ann-login")
    for calls in (0, 1):
        checked(
            await world.ask("POST", *("/people", link) if calls else ("/people/split", {"user": "ann-login"}))
        )
        shown = checked(await world.ask("POST", "/roles/preview", {"person": "eva@example.com"}))["preview"]
        assert calls == int(shown["total"]["calls"])
        by_rule = await world.ask("GET", "/report", where="User:Defined:Who=Ann", show="calls")
        assert [calls] * 3 == [
            calls_of(by_rule),
            *[await each(world, "ann-login") for each in (report, records)],
        ]
    world = await open_world(policy, accounts=True)
    checked(await world.ask("POST", "/people", link))
    assert dict.fromkeys(ASKED, 1) == await found_by(world, FORMS[1])


async def found_by(world: World, form: str) -> Mapping[str, object]:
    """Return the number of calls that each input finds by a form of a name, or the error text."""
    typed = world.people.hash_address(ANN) if form == "hash" else form
    found: dict[str, object] = {}
    for name, asked in ASKED.items():
        try:
            found[name] = await asked(world, typed)
        except Refused as refusal:
            found[name] = WHY if WHY in str(refusal) else str(refusal)
    return found


async def test_an_address_finds_what_came_under_another_setting(open_world: OpenWorld) -> None:
    """Older records carry the address and newer ones the hash. A query by address finds both."""
    world = await open_world(HASH)
    storage = world.serving.app.services.storage
    before = call(1, at=datetime.now(UTC).timestamp(), user=ANN)
    await add(storage.log, before)
    await storage.ledger.catch_up(storage.log)
    assert [2, 2, 2] == [await each(world, ANN) for each in (report, records, costs)]
    assert 2 == await view(world, ANN)
    assert 2 == await seat(world, ANN)


async def test_the_setting_may_change_while_the_server_runs(serve: Serve) -> None:
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0))
    serving = await serve(
        config=config, reread=lambda running: replace(running, privacy=PrivacySettings(emails=DROP))
    )
    people = People.for_installation(serving.app.services.storage.secret)
    assistant = Assistant(serving, await serving.make_key("assistant", scopes=[AI_HUB]))
    world = World(
        serving, assistant, await serving.make_key("reader", scopes=["billing:read_costs"]), people, HASH
    )
    await send(world, ANN, BOB)
    assert 1 == await report(world, ANN)
    assert 200 == (await world.ask("POST", "/reload", {})).status
    with pytest.raises(Refused, match=WHY):
        await report(world, ANN)


async def test_names_and_devices_are_found_and_forgotten_by_address(open_world: OpenWorld) -> None:
    """
    The lists of people's names and devices, and the command that deletes names, find a person by address.
    """
    world = await open_world(HASH)
    checked(await world.ask("POST", "/people", {"people": [{"users": [" ANN@example.com"], "name": "Ann"}]}))
    [row] = checked(await world.ask("GET", "/people", user=ANN))["people"]
    assert world.people.hash_address(ANN) == row["user"]
    assert row["name"] == "Ann"
    gone = checked(await world.ask("POST", "/people/forget", {"users": [ANN]}))["people"]
    assert 1 == gone["forgotten"]
    fleet = await world.serving.make_key("fleet", scopes=[ENROLL])
    body = json.dumps({"device_id": "device-1", "hostname": "laptop", "user": "Ann@example.com"}).encode()
    answer = await world.serving.send("/v1/ai-control-plane/enroll", body, key=fleet)
    assert 200 <= answer.status < 300, answer.body
    [device] = checked(await world.ask("GET", "/devices", user=ANN))["devices"]
    assert "device-1" == device["id"]
