"""
Addresses that assistants, conventions and gateways state as the user's: every product and format, on each engine.
"""

from __future__ import annotations

import json
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.configuration.attribution import Assignment, AttributionRule, Match
from gateway.configuration.sections import Config, PrivacySettings
from spool.people import DROP, HASH, KEEP, USER_EMAIL, People
from spool.record import Inference, UsageMetric, pack_records
from spool.settings import SpoolSettings
from tests.integration.conftest import Serve
from tests.integration.receivers.test_work_canaries import requests
from tests.integration.test_one_identity import World, checked
from tests.rounds import as_proof
from tests.spool.postgres_cluster import Schema
from tests.stored_files import contents_of

CANARY = "Canary.Person@example.com"
SPELLINGS = tuple(each.encode() for each in (CANARY, CANARY.lower(), CANARY.upper()))
# Members of bodies that state the address of the user
ADDRESS_NAMES = ("user_api_key_user_email",)
STATED = ("user.email", "metadata.user_api_key_user_email", "email")


def with_address(path: str, body: bytes) -> list[bytes]:
    """Return the requests, one for each line of the body, with an address in each place that states one."""
    try:
        documents = [json.loads(body)]
    except ValueError:
        documents = [json.loads(line) for line in body.splitlines() if line.strip()]
    for document in documents:
        _add(document, is_langfuse=path.endswith("/langfuse"))
    return [json.dumps(document).encode() for document in documents]


def _add(node: Any, *, is_langfuse: bool) -> None:
    if isinstance(node, list):
        for each in node:
            _add(each, is_langfuse=is_langfuse)
    if not isinstance(node, dict):
        return
    attributes = node.get("attributes")
    if isinstance(attributes, list):
        attributes += [{"key": name, "value": {"stringValue": CANARY}} for name in STATED]
    if "user_api_key_alias" in node or "user_api_key_user_id" in node:
        node.update(dict.fromkeys(ADDRESS_NAMES, CANARY))
    if is_langfuse and "userId" in node:
        node["userId"] = CANARY
    for each in [*node.values()]:
        _add(each, is_langfuse=is_langfuse)


@pytest.fixture(params=["sqlite", as_proof("postgres")])
def storage_of(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[Config, Callable[[], Iterator[bytes]]]:
    """Return a configuration of an engine, and a function that yields what is stored outside the data directory."""
    config = Config(spool=SpoolSettings(hold=0, counter_wait=3600))
    if request.param == "sqlite":
        return config, lambda: iter(())
    schema: Schema = request.getfixturevalue("new_schema")()
    return replace(config, storage=schema.settings(tmp_path)), lambda: rows_of(schema)


def rows_of(schema: Schema) -> Iterator[bytes]:
    """Yield each row of each table of a schema, with bytes as bytes."""
    listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_type = 'BASE TABLE'"
    with psycopg.connect(schema.dsn, autocommit=True) as connection:
        for (table,) in connection.execute(listed, [schema.name]).fetchall():
            for row in connection.execute(f'SELECT * FROM "{schema.name}"."{table}"'.encode()).fetchall():
                yield b"\0".join(each if isinstance(each, bytes) else str(each).encode() for each in row)


@pytest.mark.parametrize("policy", [HASH, as_proof(DROP)])
async def test_no_address_is_on_disk(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]], policy: str
) -> None:
    """
    Every request of every product and format, with the user's address in each place that states one. Reports that
    wait for the rest of their call, and counters that wait for calls, have no address either.
    """
    config, outside = storage_of
    serving = await serve(config=replace(config, privacy=PrivacySettings(emails=policy)))
    people = People.for_installation(serving.app.services.storage.secret)
    for path, body in requests():
        for part in with_address(path, body):
            answer = await serving.send(path, part)
            assert answer.status in (200, 204, 207), (path, answer.body)
    begun = [
        {"id": f"e{number}", "type": "trace-create", "timestamp": "2026-11-20T07:15:06Z",
         "body": {"id": f"t{number}", "userId": CANARY, "metadata": {"who": CANARY}, "tags": [f"who:{CANARY}"]}}
        for number in range(3)
    ]  # fmt: skip
    assert (
        207 == (await serving.send("/v1/ai-telemetry/langfuse", json.dumps({"batch": begun}).encode())).status
    )
    storage = serving.app.services.storage
    await storage.ledger.catch_up(storage.log)
    records = [each for each in await serving.records() if isinstance(each, Inference | UsageMetric)]
    assert_hidden([pack_records(records), *contents_of(serving.app.config.data_dir).values(), *outside()])
    named = Counter(
        each.source
        for each in records
        if people.hash_address(CANARY) in (each.user, each.tags.get(USER_EMAIL))
    )
    assert ({} if policy == DROP else {**named}) == named
    if policy == HASH:
        assert {"claude_code", "gemini_cli", "codex", "cline", "litellm", "langfuse", "vercel_ai"} <= {
            *named
        }, named


def assert_hidden(contents: Sequence[bytes]) -> None:
    assert len(contents) > 5
    for content in contents:
        for spelling in SPELLINGS:
            place = content.find(spelling)
            assert place < 0, content[max(0, place - 200) : place + 100]


# -- seats, roles and attribution ---------------------------------------------------------------------------------


ADDRESSES = ("ann@example.com", "bob@example.com", "cy@example.com", "dan@example.com")
SPELLED = (str, str.upper, str.title)


@dataclass(frozen=True)
class Stated:
    """A call of Claude Code as it is sent: the names of its person as the sender states them."""

    account: str | None
    email: str | None

    def attributes(self) -> dict[str, Any]:
        stated = {"user.account_uuid": self.account, "user.email": self.email}
        return {
            "event.name": "claude_code.api_request", "model": "claude-sonnet-4-5", "input_tokens": 1000,
            "output_tokens": 10, "cost_usd": 0.5, "request_id": f"req_{secrets.token_hex(10)}",
            **{name: value for name, value in stated.items() if value is not None},
        }  # fmt: skip

    def is_of(self, name: str) -> bool:
        """Return True if the call states this account or address."""
        names = {each.casefold() for each in (self.account, self.email) if each is not None}
        return name.casefold() in names


def logs(calls: Sequence[Stated]) -> bytes:
    """Return the calls as log records of today."""
    at = int((datetime.now(UTC) - timedelta(minutes=5)).timestamp() * 1e9)
    records = []
    for call in calls:
        values = [
            {"key": key, "value": {"stringValue": str(value)}} for key, value in call.attributes().items()
        ]
        records.append({"timeUnixNano": str(at), "attributes": values})
    scope = {"name": "com.anthropic.claude_code.events"}
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"scope": scope, "logRecords": records}]}]}).encode()


async def world_of(serve: Serve, policy: str, *rules: AttributionRule) -> World:
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0), privacy=PrivacySettings(emails=policy))
    serving = await serve(config=replace(config, attribution=rules))
    people = People.for_installation(serving.app.services.storage.secret, policy)
    return World(serving, None, "", people, policy)  # type: ignore[arg-type]


async def sent(world: World, calls: Sequence[Stated]) -> None:
    answer = await world.serving.send("/v1/logs", logs(calls))
    assert 200 == answer.status, answer.body
    storage = world.serving.app.services.storage
    await storage.ledger.catch_up(storage.log)


async def planned(world: World, *users: str) -> None:
    """Create a view and a plan of it with these seats."""
    view = {"name": "claude-code", "filter": {"source": ["claude_code"]}, "principal_dimension": "user"}
    checked(await world.ask("POST", "/views", view))
    seats = [{"user": user, "since": "2026-01-01"} for user in users]
    plan = {"name": "Claude", "view": "claude-code", "fee": "20", "seats": seats}
    checked(await world.ask("POST", "/plans", plan))


@pytest.mark.parametrize("policy", [HASH, KEEP])
@pytest.mark.parametrize("account", ["uuid-1", None])
async def test_a_seat_covers_the_calls_that_state_its_address(
    serve: Serve, policy: str, account: str | None
) -> None:
    """
    A seat that is given by address covers the calls of Claude Code that state this address, with the account or
    alone.
    """
    world = await world_of(serve, policy)
    await planned(world, "Ann@example.com")
    await sent(world, [Stated(account, "ann@EXAMPLE.com") for _ in range(10)])
    found = checked(await world.ask("GET", "/plan-costs"))
    assert ("0", [10], [None]) == (
        found["total"]["metered"], [row["calls"] for row in found["rows"]], [row["unmet"] for row in found["plans"]]
    )  # fmt: skip


async def test_a_plan_says_if_the_names_of_seats_and_calls_differ(serve: Serve) -> None:
    """
    If no call of an assistant has a seat, the plan says that the names of seats and calls differ. Calls of people
    whom another plan covers are no reason for it. If one call has a seat, the plan says nothing.
    """
    world = await world_of(serve, HASH)
    await planned(world, "ann@example.com")
    assert [None] == await unmet(world)
    await sent(world, [Stated("uuid-1", None) for _ in range(10)])
    assert ["10 calls of claude-code have no seat: the names differ"] == await unmet(world)
    await sent(world, [Stated("uuid-2", "ann@example.com")])
    assert [None] == await unmet(world)


async def unmet(world: World) -> list[str | None]:
    return [row["unmet"] for row in checked(await world.ask("GET", "/plan-costs"))["plans"]]


@pytest.mark.parametrize("policy", [HASH, as_proof(KEEP)])
@pytest.mark.parametrize("seed", [0, as_proof(1), as_proof(2)])
async def test_seats_roles_and_rules_find_the_same_calls(serve: Serve, policy: str, seed: int) -> None:
    """Made-up people with several accounts and spellings, in random order, against a count by hand."""
    chance = random.Random(seed)
    rules = [
        AttributionRule(match=Match(user=SPELLED[place % 3](each)), set=Assignment(team=f"team {place}"))
        for place, each in enumerate(ADDRESSES)
    ]
    world = await world_of(serve, policy, *rules)
    seated = chance.sample(ADDRESSES, 2)
    await planned(world, *(chance.choice(SPELLED)(each) for each in seated))
    calls: list[Stated] = []
    for _ in range(5):
        more = [made_up(chance) for _ in range(chance.randint(1, 20))]
        await sent(world, more)
        calls += more
    await check(world, calls, seated)


def made_up(chance: random.Random) -> Stated:
    email = chance.choice((*ADDRESSES, None))
    account = chance.choice(("uuid-1", "uuid-2", "uuid-3", None if email else "uuid-4"))
    return Stated(account, None if email is None else chance.choice(SPELLED)(email))


async def check(world: World, calls: Sequence[Stated], seated: Sequence[str]) -> None:
    plan_costs = checked(await world.ask("GET", "/plan-costs"))
    covered = {row["user"].casefold(): row["calls"] for row in plan_costs["rows"]}
    by_hand = Counter({each: sum(call.is_of(each) for call in calls) for each in seated})
    assert by_hand == covered
    metered = 0.5 * (len(calls) - by_hand.total())
    assert metered == float(plan_costs["total"]["metered"])
    for place, address in enumerate(ADDRESSES):
        wanted = sum(call.is_of(address) for call in calls)
        shown_as_hash = [world.people.hash_address(address)] if world.policy == HASH else []
        for shown in (address, address.upper(), *shown_as_hash):
            assert wanted == await reported(world, where=f"user={shown}"), shown
            assert len(calls) - wanted == await reported(world, where=f"user!={shown}"), shown
        assert wanted == await reported(world, where=f"team=team {place}")
        assert wanted == await seen(world, f"role {place}", address.title())
    for account in ("uuid-1", "uuid-2", "uuid-3", "uuid-4"):
        assert sum(call.account == account for call in calls) == await reported(
            world, where=f"user={account}"
        )


async def reported(world: World, **query: str) -> int:
    answer = checked(await world.ask("GET", "/report", show="calls", **query))
    return sum(int(row["calls"]) for row in answer["rows"])


async def seen(world: World, name: str, user: str) -> int:
    """Return the number of calls that a new role shows."""
    member = f"{name.replace(' ', '.')}@example.org"
    filters = [{"dimension": "user", "values": [user]}]
    body = {"name": name, "data_access": "limited", "filters": filters, "members": [member]}
    checked(await world.ask("POST", "/roles", body))
    preview = checked(await world.ask("POST", "/roles/preview", {"person": member}))["preview"]
    return int(preview["total"]["calls"])
