"""One person has one line in reports, whatever name a sender uses: sums before a link, after it, and after a split."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from gateway.configuration.attribution import Assignment, AttributionRule, Match
from gateway.configuration.sections import Config
from spool.ledger.queries import CostQuery, CostRow
from spool.people import HASH, People
from spool.settings import SpoolSettings
from tests.integration.conftest import Serve
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_second_names import storage_of as storage_of
from tests.integration.test_one_identity import World, checked
from tests.rounds import part

NAMES = ("ann@example.com", "uuid-ann", "ann", "bob@example.com", "uuid-bob", "cy", "dan")
MODELS = ("gpt-4o", "gpt-4o-mini", "gpt-4.1")
TEAMS = ("search", "ml", None)
DIMENSIONS = ("model", "request_model", "provider", "team", "source", "status", "cost_source", "sender")
Lines = Mapping[str | None, tuple[int, Decimal]]


async def world_of(serve: Serve, config: Config, *rules: AttributionRule) -> World:
    serving = await serve(
        config=replace(config, spool=SpoolSettings(hold=0, counter_wait=0), attribution=rules)
    )
    people = People.for_installation(serving.app.services.storage.secret)
    return World(serving, None, "", people, HASH)  # type: ignore[arg-type]


async def sent(
    world: World, chance: random.Random, users: Sequence[str], teams: Sequence[str | None] = TEAMS
) -> None:
    """Send a call of each user, at any time of the last days."""
    spans = []
    for user in users:
        start = int((datetime.now(UTC) - timedelta(hours=chance.randint(1, 100))).timestamp()) * 10**9
        span = json_span(
            chance.choice(MODELS), startTimeUnixNano=str(start), endTimeUnixNano=str(start + 10**9)
        )
        stated = {"user.id": user, "team.id": chance.choice(teams)}
        span["attributes"] += [
            {"key": key, "value": {"stringValue": value}} for key, value in stated.items() if value
        ]
        usage = {"gen_ai.usage.input_tokens": chance.randint(1, 10**6)}
        span["attributes"] += [
            {"key": key, "value": {"intValue": str(value)}} for key, value in usage.items()
        ]
        spans.append(span)
    answer = await world.serving.send("/v1/traces", json_traces(*spans))
    assert 200 == answer.status, answer.body
    storage = world.serving.app.services.storage
    await storage.ledger.catch_up(storage.log)


async def lines(world: World, by: str = "user", **query: str) -> Lines:
    """Return calls and cost by the values of a dimension."""
    report = checked(await world.ask("GET", "/report", by=by, range="last_7d", show="calls,cost", **query))
    return {row[by]: (int(row["calls"]), Decimal(row["cost"])) for row in report["rows"]}


def added(found: Sequence[tuple[int, Decimal]]) -> tuple[int, Decimal]:
    return sum(calls for calls, _ in found), sum((cost for _, cost in found), Decimal(0))


def folded(separate: Lines, people: Sequence[Sequence[str]]) -> Lines:
    """Add up the lines of each person by hand, under the first name."""
    first = {name: own[0] for own in people for name in own}
    shown: dict[str | None, list[tuple[int, Decimal]]] = {}
    for user, line in separate.items():
        shown.setdefault(first.get(user or "", user), []).append(line)
    return {user: added(found) for user, found in shown.items()}


async def whole(world: World) -> Mapping[str, Any]:
    """Return the sums by each dimension but the user, and by pairs of dimensions and periods."""
    asked = {name: {"by": name} for name in DIMENSIONS}
    asked |= {"day": {"by": "team", "per": "daily"}, "pair": {"by": "model"}}
    return {
        name: checked(await world.ask("GET", "/report", range="last_7d", show="calls,cost", **query))["rows"]
        for name, query in asked.items()
    }


async def sums_to_send(world: World) -> Sequence[CostRow]:
    """Return sums by the names in records, as billing files and published sums have them."""
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    query = CostQuery(
        since=until - timedelta(days=6),
        until=until,
        granularity="total",
        group_by=("user", "model"),
        stated_names=True,
    )
    return await world.serving.app.services.storage.ledger.costs(query)


@pytest.mark.parametrize("seed", part(range(2), every=2))
async def test_a_link_adds_up_lines_and_a_split_gives_them_back(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]], seed: int
) -> None:
    """
    Random calls, links and splits, on each engine: a person has exactly the sum of all names, for calls before and
    after the link. Sums by every other dimension stay equal to the last digit.
    """
    chance = random.Random(seed)
    world = await world_of(serve, storage_of[0])
    await sent(world, chance, chance.choices(NAMES, k=40))
    separate = await lines(world)
    before, sent_before = await whole(world), await sums_to_send(world)
    stored = {name: world.people.hash_address(name) for name in NAMES}
    people = [
        [stored[each] for each in chance.sample(NAMES[:3], 3)], [stored[each] for each in chance.sample(NAMES[3:6], 3)]
    ]  # fmt: skip
    linked = {"people": [{"users": own} for own in people]}
    checked(await world.ask("POST", "/people", linked))
    by_hand = folded(separate, people)
    assert by_hand == await lines(world)
    assert before == await whole(world)
    assert sent_before == await sums_to_send(world)
    for own in people:
        for name in own:
            line = by_hand[own[0]]
            assert {own[0]: line} == await lines(world, where=f"user={name}")
            assert line == added([*(await lines(world, "model", where=f"user={name}")).values()])
            others = {user: each for user, each in by_hand.items() if user != own[0]}
            assert others == await lines(world, where=f"user!={name}")
    biggest = sorted(by_hand.items(), key=lambda item: (-item[1][1], item[0] or ""))[:2]
    top = await lines(world, top="2")
    assert dict(biggest) == {user: top[user] for user, _ in biggest}

    await sent(world, chance, chance.choices(NAMES, k=20))
    mixed = await lines(world)
    for own in people:
        for name in own[1:]:
            checked(await world.ask("POST", "/people/split", {"user": name}))
    assert mixed == folded(await lines(world), people)
    checked(await world.ask("POST", "/people", linked))
    assert mixed == await lines(world)
    checked(await world.ask("POST", "/people/forget", {"all": True}))
    assert mixed == folded(await lines(world), people)


STATED = (
    ("uuid-ann", "ann@example.com"), ("uuid-ann", "Ann@Example.com"),
    ("uuid-bob", "bob@example.com"), ("uuid-bob", "cy@example.com"),
    ("uuid-dan", "dan@example.com"), ("uuid-dan-2", "dan@example.com"),
    ("uuid-eve", "eve@example.com"), ("uuid-fay", None), (None, "gus@example.com"),
)  # fmt: skip


async def test_accounts_are_linked_with_the_addresses_that_their_calls_state(serve: Serve) -> None:
    """A pair that may be two people is a conflict, which is listed and stays apart."""
    world = await world_of(serve, Config())
    await sent_pairs(world, STATED)
    await sent_pairs(world, STATED[:1])
    known = [{"users": ["uuid-eve", "eve"]}, {"users": ["eve@example.com", "evelyn"]}]
    checked(await world.ask("POST", "/people", {"people": known}))
    hashed = world.people.hash_address
    assert {
        ("uuid-ann", hashed("ann@example.com"), 3): ("free", None),
        ("uuid-bob", hashed("bob@example.com"), 1): ("conflict", "the account states several addresses"),
        ("uuid-bob", hashed("cy@example.com"), 1): ("conflict", "the account states several addresses"),
        **{
            (account, hashed("dan@example.com"), 1): (
                "conflict",
                "several accounts of otel state the address",
            )
            for account in ("uuid-dan", "uuid-dan-2")
        },
        ("uuid-eve", hashed("eve@example.com"), 1): ("conflict", "both names are linked with other names"),
    } == await stated(world)
    before, separate = await whole(world), await lines(world)
    for kept in (1, 0):
        linked = checked(await world.ask("POST", "/people/link-stated", {}))["people"]
        assert {"kept": kept, "conflicts": 5} == linked
        assert ("linked", None) == (await stated(world))["uuid-ann", hashed("ann@example.com"), 3]
    people = [[hashed("ann@example.com"), "uuid-ann"], ["uuid-eve", "eve"]]
    assert folded(separate, people) == await lines(world)
    assert before == await whole(world)


async def stated(world: World) -> Mapping[tuple[str, str, int], tuple[str, str | None]]:
    rows = checked(await world.ask("GET", "/people/stated"))["stated_names"]
    return {(row["user"], row["address"], row["calls"]): (row["state"], row["reason"]) for row in rows}


async def sent_pairs(world: World, pairs: Sequence[tuple[str | None, str | None]]) -> None:
    """Send a call for each account and address."""
    start = int((datetime.now(UTC) - timedelta(hours=1)).timestamp()) * 10**9
    spans = []
    for account, address in pairs:
        span = json_span("gpt-4o", startTimeUnixNano=str(start), endTimeUnixNano=str(start + 10**9))
        names = {"user.id": account, "user.email": address}
        span["attributes"] += [
            {"key": key, "value": {"stringValue": value}} for key, value in names.items() if value
        ]
        spans.append(span)
    answer = await world.serving.send("/v1/traces", json_traces(*spans))
    assert 200 == answer.status, answer.body
    storage = world.serving.app.services.storage
    await storage.ledger.catch_up(storage.log)


async def test_a_past_month_is_shown_by_the_links_of_today(serve: Serve) -> None:
    """
    A past month is shown by the links of today: although results of past months are remembered, a link and a split
    change them.
    """
    world = await world_of(serve, Config())
    await sent(world, random.Random(1), ["ann", "uuid-ann", "ann"])

    async def costs() -> Lines:
        report = checked(await world.ask("GET", "/report", by="user", range="last_7d", show="calls,cost"))
        return {row["user"]: (int(row["calls"]), Decimal(row["cost"])) for row in report["rows"]}

    separate = await costs()
    people = [["uuid-ann", "ann"]]
    for _ in range(2):
        checked(await world.ask("POST", "/people", {"people": [{"users": people[0]}]}))
        assert folded(separate, people) == await costs()
        checked(await world.ask("POST", "/people/split", {"user": "ann"}))
        assert separate == await costs()


async def test_attribution_rules_match_any_linked_name(serve: Serve) -> None:
    """A rule that names an address gives later calls of the linked account their team."""
    rule = AttributionRule(match=Match(user="ann@example.com"), set=Assignment(team="rule"))
    world = await world_of(serve, Config(), rule)
    team = {"where": "team=rule"}
    sent_without_team = partial(sent, world, random.Random(2), teams=(None,))
    await sent_without_team(["uuid-ann"])
    assert {} == await lines(world, **team)
    checked(await world.ask("POST", "/people", {"people": [{"users": ["uuid-ann", "Ann@example.com"]}]}))
    await sent_without_team(["uuid-ann", "ann@example.com", "bob"])
    assert [2] == [calls for calls, _ in (await lines(world, **team)).values()]
    checked(await world.ask("POST", "/people/split", {"user": "uuid-ann"}))
    await sent_without_team(["uuid-ann"])
    assert 2 == added([*(await lines(world, **team)).values()])[0]
