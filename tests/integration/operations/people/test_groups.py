"""
Nobody isolates the figures of a small group of people: `privacy.min_group` at every address, on either engine.

The attacker asks every operation with many filters, groups and ranges, before and after late calls. All numbers in all
answers, their differences, and their differences with the attacker's own figures are compared with the figures of
every group of too few people.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import aiohttp
import pytest

from gateway.configuration.sections import Config, PrivacySettings
from gateway.core.paths import OPERATOR_API
from gateway.mcp.tools.group_costs import GroupDimension
from gateway.money.costs.groups import store_finished_divisions
from gateway.operations.requests.address import NOTHING, OPERATION, SLICED, WHOLE
from gateway.service.addresses.table import ADDRESSES, OPERATOR_ADDRESSES
from spool.deliveries.values import RouteSpec, Settlement
from spool.engines import MEMORY, POSTGRES
from spool.ledger.dimensions import BILLED_TYPES, COST_TYPES, SPLIT_BY
from spool.record import AI_TELEMETRY
from spool.registry.operators import Actor
from spool.registry.permission_sets import PERMISSION_SETS, VIEW_NAMES
from spool.registry.roles import EXCEPT, IS, LIMITED, NO_DATA, NewRole, RoleFilter, RoleLimits
from spool.registry.scopes import SCOPES, WITHOUT_FIGURES
from spool.settings import SpoolSettings, StorageSettings
from spool.turns.question_limit import QuestionLimit, apply_limit
from tests.integration.conftest import Serve
from tests.integration.operations.bills.contracts.test_workloads_of_month import (
    AUGUST,
    CALLS,
    SERVED,
    parts_of,
    put_usage,
)
from tests.integration.operations.bills.contracts.test_workloads_of_month import CONTRACT as HARDWARE
from tests.integration.operations.bills.plans.test_plans import made
from tests.integration.operations.people.test_limited_person import (
    EVA,
    FOREIGN,
    MARK,
    OWN,
    World,
    asked,
    fill,
    ordered,
    quick_beat,
    without_cookies,
)
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.integration.payloads import json_span, json_traces
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG, as_proof, some
from tests.spool.contract.examples import add, call
from tests.spool.postgres_cluster import Schema

__all__ = ["quick_beat"]  # a fixture for all tests in this file

ROOT = Actor("root", "local")
K = 3
NOW = datetime(2026, 9, 21, 14, tzinfo=UTC)
PARTS = ("2026-08-01", "2026-08-08", "2026-08-15", "2026-08-22", "2026-09-01", "2026-09-08", "2026-09-15")
TEAMS, MODELS, SOURCES = ("blue", "green", "red", "grey"), ("m1", "m2"), ("otel", "kong")
WITHOUT_NAMES = tuple(name for name in PERMISSION_SETS if name != VIEW_NAMES)
PATHS = defaultdict(lambda: "x", type="metric", segment="external")  # values for the parameters of paths
NANO = Decimal("1e-9")
NUMBER = re.compile(r"(?<![\w.-])\d{1,12}(?:\.\d{1,30})?(?:[eE]-\d{1,2})?(?!\w)")


@dataclass
class Crowd:
    """People with random calls. `spent` has the nanodollars of each person by part, team, model and source."""

    dice: random.Random
    people: list[str] = field(default_factory=list)
    spent: dict[str, dict[tuple[str, ...], int]] = field(default_factory=dict)
    number: int = 10_000

    def call(self, person: str, part: str, *, team: str = "") -> Any:
        cost = self.dice.randrange(10**8, 10**10) | 1
        team = team or self.dice.choices(TEAMS, (5, 3, 1, 1))[0]
        model, source = self.dice.choices(MODELS, (4, 1))[0], self.dice.choices(SOURCES, (4, 1))[0]
        cells = self.spent.setdefault(person, {})
        key = (part, team, model, source)
        cells[key] = cells.get(key, 0) + cost
        self.number += 1
        at = datetime.fromisoformat(f"{part}T00:00+00:00") + timedelta(hours=self.dice.randrange(6 * 24))
        return call(
            self.number, at=at.timestamp(), user=person, team=team, provider="p", response_model=model,
            source=source, cost=f"{cost * NANO:f}", cost_source="reported",
        )  # fmt: skip

    @property
    def finished(self) -> int:
        """Return the nanodollars of the parts that are over."""
        return sum(
            cost for cells in self.spent.values() for key, cost in cells.items() if key[0] != PARTS[-1]
        )

    def secrets(self, most: int) -> Mapping[int, str]:
        """Return the sums of all groups of at most `most` people other than the attacker, also by part and team."""
        found: dict[int, str] = {}
        others = [person for person in self.people if person != EVA]
        for wanted in ({}, *({0: part} for part in PARTS), *({1: team} for team in TEAMS),
                       *({0: part, 1: team} for part in PARTS for team in TEAMS)):  # fmt: skip
            sums = {
                person: sum(
                    cost
                    for key, cost in self.spent.get(person, {}).items()
                    if all(key[place] == value for place, value in wanted.items())
                )
                for person in others
            }
            some = [person for person in others if sums[person]]
            for size in range(1, most + 1):
                for group in combinations(some, size):
                    found[sum(sums[person] for person in group)] = f"{wanted}: {', '.join(group)}"
        return found


@dataclass
class Attack:
    server: OperatorServer
    session: aiohttp.ClientSession
    headers: dict[str, str]
    heard: dict[int, str] = field(default_factory=dict)  # each query, by its number
    texts: list[str] = field(default_factory=list)

    async def ask(self, path: str, method: str = "GET", body: object = None) -> int:
        async with self.session.request(
            method, f"{self.server.url}{OPERATOR_API}{path}", json=body, headers=self.headers,
            allow_redirects=False,
        ) as answer:  # fmt: skip
            if answer.content_type == "text/event-stream":
                return answer.status
            text = await answer.text()
        if answer.content_type == "application/json":  # a list repeats its request's filters
            text = json.dumps({name: each for name, each in json.loads(text).items() if name != "filtering"})
        assert answer.status != 500, (path, text)
        self.texts.append(text)
        for word in NUMBER.findall(text):
            self.heard.setdefault(round(Decimal(word) / NANO), path)
        return answer.status

    def isolated(self, secrets: Mapping[int, str], own: Sequence[int]) -> str | None:
        """Return how a secret follows from one number or two, with or without own figures. None if none does."""
        numbers = {number - each: path for number, path in self.heard.items() for each in (0, *own)}
        for secret, whose in secrets.items():
            if secret in numbers:
                return f"{whose} from {numbers[secret]}"
            for number, path in self.heard.items():
                if number - secret in numbers and number != secret:
                    return f"{whose} from {path} less {numbers[number - secret]}"
        return None


def questions(dice: random.Random) -> Iterator[str]:
    """Yield random queries for costs: sorted, filtered, grouped, in ranges, and with changed views."""
    dimensions = ("team", "user", "model", "source", "provider", "device", "status", "sender", "tag:service")
    for _ in range(40):
        first, last = sorted(dice.sample(PARTS, 2))
        query = [
            f"by={','.join(dice.sample(dimensions, dice.choice((1, 1, 2, 3))))}",
            f"from={first}",
            f"to={last}",
        ]
        if dice.random() < 0.6:
            query.append(f"where=team{dice.choice(('=', '!='))}{dice.choice(TEAMS)}")
        if dice.random() < 0.4:
            query.append(f"where=user{dice.choice(('=', '!='))}person-{dice.randrange(12)}")
        if dice.random() < 0.4:
            query.append(f"where=model={dice.choice(MODELS)}")
        if dice.random() < 0.3:
            query.append(f"top={dice.randrange(1, 4)}")
        if dice.random() < 0.3:
            query.append("format=csv")
        if dice.random() < 0.5:
            query.append(f"per={dice.choice(('daily', 'weekly', 'monthly', 'hourly'))}")
        yield "/report?" + "&".join(query)
    for by in dimensions:
        yield f"/comparison?from=2026-09-01&to=2026-09-14&by={by}"
    for part in PARTS:
        yield f"/focus?from={part}&to={part[:8]}28"
        yield f"/records?date={part[:7]}"
        yield f"/records?date={part}&sort_key=time"
    for team in TEAMS:
        yield f"/forecast?where=team={team}"
        yield f"/what-if?model=gpt-4o&by=user&where=team={team}"
        yield f"/overview?from=2026-08-01&to=2026-09-20&team={team}"
    for by in ("team", "provider", "model", "source"):
        yield f"/group-costs?by={by}"
        yield f"/group-costs?sort_key=cost&limit=2&by={by}"
    for team in TEAMS:
        yield f"/group-costs?by=team&by=model&team={team}"
        yield f"/group-costs?by=model&source=otel&team={team}"
    yield "/group-costs?by=source&by=team&by=model&by=provider"


@asynccontextmanager
async def attack(
    directory: Path, seed: int, *, min_group: int, role: RoleFilter | None = None, engine: str = MEMORY,
    stored: StorageSettings | None = None, sets: tuple[str, ...] = WITHOUT_NAMES,
) -> AsyncIterator[tuple[Attack, Crowd]]:  # fmt: skip
    """Start an installation with random teams. Eva has every right but to see names."""
    clock = MovedClock(NOW.timestamp())
    crowd = Crowd(random.Random(seed))
    crowd.people = [EVA, *(f"person-{number}" for number in range(crowd.dice.randrange(9, 13)))]
    async with (
        operator_server(directory, clock=clock, engine=engine, stored=stored) as server,
        without_cookies() as session,
    ):
        server.registry.set_min_group_size(min_group)
        draft = NewRole(
            name="Part", data_access=LIMITED if role else NO_DATA, filters=(role,) if role else (),
            permission_sets=sets, members=(EVA,),
        )  # fmt: skip
        known = server.services.money.ledger.dimensions()
        await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
        hashed = server.registry.people.text_for_record(EVA)
        made = [
            crowd.call(person, part)
            for part in PARTS
            for person in crowd.people
            if crowd.dice.random() < 0.8 or part == PARTS[0]
        ]
        for record, _ in made:
            record.user = hashed if record.user == EVA else record.user
        await add(server.services.spool.log, *made)
        yield Attack(server, session, await signed_in(server, "none" if role else "viewer", EVA)), crowd


@pytest.fixture(params=[MEMORY, as_proof(POSTGRES)])
def on(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == MEMORY:
        return {"engine": MEMORY}
    schema: Schema = request.getfixturevalue("new_schema")()
    return {"engine": POSTGRES, "stored": schema.settings(tmp_path)}


def own_figures(crowd: Crowd) -> list[int]:
    """Return what Eva knows: her figures by part, team, and both."""
    cells = crowd.spent[EVA]
    names = [
        {},
        *({place: key[place]} for key in cells for place in (0, 1)),
        *({0: k[0], 1: k[1]} for k in cells),
    ]
    sums = [
        sum(
            cost for key, cost in cells.items() if all(key[place] == value for place, value in wanted.items())
        )
        for wanted in names
    ]
    return sorted(set(sums))


TOOL_QUESTIONS = (
    *({"name": "get_group_costs", "arguments": {"group_by": [by], "limit": 100}} for by in ("team", "model")),
    {"name": "get_group_costs", "arguments": {"filters": {"team": ["grey"]}}},
    *(
        {"name": "get_cost_data", "arguments": {"group_by": [by], "date_range": "last_90_days"}}
        for by in ("team", "user", "model")
    ),
    {"name": "get_cost_data", "arguments": {"filters": {"team": ["grey"]}, "granularity": "daily"}},
    {"name": "compare_costs", "arguments": {"group_by": ["user"]}},
    {"name": "get_dimension_values", "arguments": {"dimension": "user", "date_range": "last_90_days"}},
)  # fmt: skip


async def ask_everything(there: Attack, crowd: Crowd, seed: int) -> None:
    dice = random.Random(seed)
    paths = some([*questions(dice)], every=3)
    for path in paths:
        await there.ask(path)
    for params in TOOL_QUESTIONS:
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert 200 == await there.ask("/mcp", "POST", {"line": line})
    late = [crowd.call(dice.choice(crowd.people[1:]), part) for part in PARTS for _ in range(2)]
    await add(there.server.services.spool.log, *late)
    for path in paths:  # the same queries again, so that late calls show
        await there.ask(path)


@pytest.mark.parametrize("seed", [0, *map(as_proof, (1, 2))])
async def test_nobody_isolates_fewer_people(tmp_path: Path, on: dict[str, Any], seed: int) -> None:
    async with attack(tmp_path, seed, min_group=K, **on) as (there, crowd):
        await ask_everything(there, crowd, seed)
        assert None is there.isolated(crowd.secrets(K - 1), own_figures(crowd))
        assert any("/group-costs" in path for path in there.heard.values())


@pytest.mark.proof
async def test_without_the_setting_the_same_attack_isolates_people(tmp_path: Path) -> None:
    async with attack(tmp_path, 0, min_group=0) as (there, crowd):
        await ask_everything(there, crowd, 0)
        assert there.isolated(crowd.secrets(K - 1), own_figures(crowd)) is not None


async def test_no_operation_shows_calls_of_others(tmp_path: Path) -> None:
    """Every operation answers without the calls of others, or refuses. Operations that show all calls refuse."""
    async with attack(tmp_path, 0, min_group=K) as (there, crowd):
        worlds = [World(OWN), World(FOREIGN)]
        for number, world in enumerate(worlds):
            await fill(there.server, world, number)
        statuses: dict[str, set[int]] = {}
        for row in ordered(OPERATOR_ADDRESSES):
            if row.needs is None or row.name == "sign_out":
                continue
            for world in worlds if IS_LONG else worlds[1:]:
                for path, body in asked(row, world):
                    status = await there.ask(path, row.methods[0], body)
                    statuses.setdefault(row.shows, set()).add(status)
        assert {403} == statuses[WHOLE]
        assert 200 in statuses[SLICED] and 200 in statuses[NOTHING]
        texts = "\n".join(there.texts).lower()
        assert MARK not in texts
        assert not re.search(r"person-\d", texts)
        assert None is there.isolated(crowd.secrets(K - 1), own_figures(crowd))


async def trouble(there: Attack, route: str, person: str) -> None:
    """Let a receiver reject records, and repeat in its words whose they are and what they cost."""
    deliveries, now = there.server.services.spool.deliveries, there.server.clock.now()
    words = f"{MARK}: {person} of team blue paid 4.25"
    settings = [RouteSpec(name=name, topic=AI_TELEMETRY) for name in (route, f"gone/{AI_TELEMETRY}")]
    await deliveries.set_routes(settings)
    await deliveries.set_routes(settings[:1])
    first = await deliveries.take_due_delivery(route, now=now, max_records=1)
    assert first is not None
    await deliveries.store_settlement(first, Settlement(delivered=0, refused=1, words=words))
    second = await deliveries.take_due_delivery(route, now=now, max_records=1)
    assert second is not None
    await deliveries.schedule_retry(second, reason=f"503: {words}", not_before=now + 60)
    await deliveries.set_route_state(route, "parked", f"403: {words}")


async def test_deliveries_and_the_clock_have_no_figures_of_people(tmp_path: Path) -> None:
    """
    Addresses about the operation, such as deliveries, state no user, team or cost, not even in the quoted answer of
    a receiver. Admins see these answers.
    """
    async with attack(tmp_path, 0, min_group=K) as (there, crowd):
        route = f"archive/{AI_TELEMETRY}"
        await trouble(there, route, crowd.people[1])
        await there.ask(f"/routes/archive/{AI_TELEMETRY}/try", "POST", {})
        paths = {
            row.name: (row.methods[0], row.path.removeprefix(OPERATOR_API).format(
                destination="gone" if row.methods == ("DELETE",) else "archive", topic=AI_TELEMETRY))
            for row in ordered(OPERATOR_ADDRESSES) if row.shows == OPERATION
        }  # fmt: skip
        for method, path in paths.values():
            assert 200 == await there.ask(path, method, {} if method == "POST" else None), path
        said = "\n".join(there.texts).lower()
        assert "(403)" in said and '"503"' in said
        for word in (MARK, *crowd.people, *TEAMS, "4.25"):
            assert not re.search(rf"\b{re.escape(word)}\b", said), word
        costs = {cost for cells in crowd.spent.values() for cost in cells.values()}
        assert not costs & {*there.heard}
        assert None is there.isolated(crowd.secrets(K - 1), own_figures(crowd))
        seen = [
            (await there.server.ask("GET", path)).payload for path in ("/status", "/routes", "/deliveries")
        ]
        assert all(MARK in json.dumps(each) for each in seen)


@pytest.mark.parametrize(
    ("role", "seen"),
    [
        (RoleFilter(dimension="team", values=("blue",), mode=IS), {"blue"}),
        as_proof((RoleFilter(dimension="team", values=("blue",), mode=EXCEPT), {"green"})),
        as_proof((RoleFilter(dimension="user", values=("person-1",), mode=IS), set())),
    ],
)
async def test_a_role_shows_only_groups_that_lie_in_it(
    tmp_path: Path, role: RoleFilter, seen: set[str]
) -> None:
    """
    A role shows only those groups of people that lie entirely in it. The groups are cut before the role selects
    some, so two people with different roles can infer nothing by comparing. A row of several teams is in no role by
    team.
    """
    async with attack(tmp_path, 0, min_group=K, role=role) as (there, crowd):
        whole = await there.server.ask("GET", "/group-costs")
        await ask_everything(there, crowd, 0)
        answer = await there.server.over_http("GET", "/group-costs", headers=there.headers)
        assert seen == {row["team"] for row in answer.payload["group_costs"]}
        assert [row for row in whole.payload["group_costs"] if row["team"] in seen] == answer.payload[
            "group_costs"
        ]
        for row in whole.payload["group_costs"]:
            there.heard.setdefault(round(Decimal(row["cost"]) / NANO), "another reader's groups")
        assert None is there.isolated(crowd.secrets(K - 1), own_figures(crowd))


async def test_who_may_see_names_sees_every_person(tmp_path: Path) -> None:
    async with attack(tmp_path, 0, min_group=K, sets=tuple(PERMISSION_SETS)) as (there, crowd):
        there.headers["X-Tollhouse-Reason"] = "Ticket 7"
        assert 200 == await there.ask("/report?by=user&from=2026-08-01&to=2026-09-20")
        assert crowd.people[1] in there.texts[-1]


async def ask_for_hardware(there: Attack) -> None:
    """Ask every list without parameters, and reports of each kind of cost by what bills state."""
    paths = [
        row.path.removeprefix(OPERATOR_API)
        for row in ordered(OPERATOR_ADDRESSES)
        if row.methods == ("GET",) and "{" not in row.path and row.needs is not None
    ]
    span = "from=2026-08-01&to=2026-08-31"
    for cost_type in (*COST_TYPES, *BILLED_TYPES, "paid_cost"):
        for by in ("team", "charge,team", "charge", "provider", "model", "tag:namespace", "tag:workload"):
            paths.append(f"/report?{span}&cost_type={cost_type}&by={by}")
    for path in (*paths, AUGUST, f"/focus?{span}&plans=true", "/group-costs?by=model&by=team"):
        await there.ask(path)


@pytest.mark.parametrize("min_group", [as_proof(0), K])
async def test_own_hardware_isolates_no_team_of_one_person(tmp_path: Path, min_group: int) -> None:
    """
    The shares of own hardware isolate no team of one person. Here each of two people is a team, and both use one
    workload. Without `privacy.min_group`, the same queries show a share.
    """
    async with attack(tmp_path, 0, min_group=min_group) as (there, crowd):
        await put_usage(there.server)
        await add(there.server.services.spool.log, *CALLS, *SERVED)
        await made(there.server, "/contracts", **HARDWARE)
        shares = parts_of((await there.server.ask("GET", AUGUST, reason="Ticket 7")).payload)
        secrets = {
            round(cost / Fraction(NANO)): f"{charge} of {team}"
            for (charge, team), cost in shares.items()
            if team
        }
        assert {"commitment of search", "commitment of checkout"} == {*secrets.values()}
        await ask_for_hardware(there)
        assert (min_group == 0) == (there.isolated(secrets, own_figures(crowd)) is not None)
        assert (min_group == 0) == ("qwen" in "".join(there.texts).lower())


@pytest.mark.parametrize("sees_names", [False, True])
async def test_a_reason_widens_no_role(tmp_path: Path, sees_names: bool) -> None:
    """
    Stating a reason does not widen a role: a restricted person who states one sees what the role shows, and without
    `view_names` only own calls.
    """
    role = RoleFilter(dimension="team", values=("blue",), mode=IS)
    sets = tuple(PERMISSION_SETS) if sees_names else WITHOUT_NAMES
    async with attack(tmp_path, 0, min_group=K, role=role, sets=sets) as (there, crowd):
        path = "/report?by=user,team&from=2026-08-01&to=2026-09-20"
        assert (403 if sees_names else 200) == await there.ask(path)
        there.headers["X-Tollhouse-Reason"] = "Ticket 7"
        assert 200 == await there.ask(path)
        rows = json.loads(there.texts[-1])["rows"]
        own = there.server.registry.people.text_for_record(EVA)
        others = {row["user"] for row in rows} - {own}
        if sees_names:
            assert {"blue"} == {row["team"] for row in rows} and others
        else:
            assert set() == others
            await ask_everything(there, crowd, 0)
            assert None is there.isolated(crowd.secrets(K - 1), own_figures(crowd))


def test_the_tool_splits_by_every_dimension_of_groups() -> None:
    assert SPLIT_BY == get_args(GroupDimension)


async def test_a_cut_is_no_query_of_one_person(tmp_path: Path) -> None:
    """
    A week with more people than a query may return is still cut into groups. The cut is made once for all readers,
    so it is no query of one person.
    """
    async with attack(tmp_path, 1, min_group=K) as (there, _):
        server = there.server
        await server.services.money.ledger.catch_up(server.services.spool.log)
        with apply_limit(QuestionLimit(max_rows=1, until=math.inf, max_time_s=1)):
            assert await store_finished_divisions(server.services.money.ledger, server.registry, NOW)


async def test_another_order_changes_no_stored_group(tmp_path: Path) -> None:
    """
    If the order of dimensions changes, groups that are already stored stay. A week that is cut after the change is
    split by the new first dimension. Groups of both orders have the same sums, and together they isolate nobody.
    """
    path = "/group-costs?by=team&by=provider&by=model&by=source&limit=1000"
    newest = []
    for order in ((), ("source", "model")):
        directory = tmp_path / "-".join(("order", *order))
        directory.mkdir()
        async with attack(directory, 2, min_group=K) as (there, crowd):

            async def rows(there: Attack = there) -> Any:
                return (await there.server.ask("GET", path)).payload["group_costs"]

            more = [crowd.call(person, PARTS[-1]) for person in crowd.people[1:] for _ in range(4)]
            await add(there.server.services.spool.log, *more)
            before = await rows()
            there.server.registry.set_min_group_size(K, order)
            assert before == await rows()
            there.server.clock.move(timedelta(days=5).total_seconds())
            after = await rows()
            assert before == [row for row in after if row["from"] < PARTS[-1]]
            newest.append([row for row in after if row not in before])
            there.heard = {round(Decimal(row["cost"]) / NANO): path for row in after}
            assert None is there.isolated(crowd.secrets(K - 1), own_figures(crowd))
    usual, other = newest
    assert usual != other
    assert sum(Decimal(row["cost"]) for row in usual) == sum(Decimal(row["cost"]) for row in other)


async def in_pages(there: Attack, path: str) -> Any:
    """Return the rows of all pages of a list, newest first and then by id."""
    rows, following = [], path
    while following:
        answer = await there.server.over_http("GET", following, headers=there.headers)
        rows += answer.payload["group_costs"]
        cursor = answer.payload["pagination"]["cursor"]["next_cursor"]
        following = f"{path.partition('?')[0]}?cursor={cursor}" if cursor else ""
    return sorted(rows, key=lambda row: (row["from"], row["id"]), reverse=True)


async def test_the_groups_of_all_are_all_finished_calls(tmp_path: Path) -> None:
    """
    Each row of groups has the exact cost of whole cells. All rows together have all calls of the weeks that are
    already cut.
    """
    async with attack(tmp_path, 1, min_group=K) as (there, crowd):
        finished = crowd.finished
        for by in ("team", "provider", "model", "source"):
            answer = await there.server.over_http("GET", f"/group-costs?by={by}", headers=there.headers)
            assert finished == Decimal(answer.payload["total"]["cost"]) / NANO
            answer.payload["group_costs"].sort(key=lambda row: (row["from"], row["id"]), reverse=True)
            assert finished == sum(Decimal(row["cost"]) for row in answer.payload["group_costs"]) / NANO
            assert answer.payload["group_costs"] == await in_pages(
                there, f"/group-costs?by={by}&sort_key=cost&limit=2"
            )
        day = answer.payload["group_costs"][0]["from"][:10]
        again = await there.server.ask("POST", "/ledger/groups", {"day": day})
        assert (200, day) == (again.status, again.payload["divided"]["day"])
        refused = await there.server.over_http("GET", "/group-costs?by=user", headers=there.headers)
        assert 400 == refused.status
        there.server.registry.set_min_group_size(
            K + 1
        )  # groups that were cut for fewer people no longer count
        answer = await there.server.over_http("GET", "/group-costs", headers=there.headers)
        assert [] == answer.payload["group_costs"]
        there.server.registry.set_min_group_size(0)
        answer = await there.server.over_http("GET", "/group-costs", headers=there.headers)
        assert (0, []) == (answer.payload["people"], answer.payload["group_costs"])


async def test_an_assistant_gets_the_groups_of_the_api(tmp_path: Path) -> None:
    """The assistants' tool has exactly the groups of the API. While no groups are formed, it says so."""
    async with attack(tmp_path, 1, min_group=K) as (there, crowd):

        async def asked(**arguments: Any) -> Any:
            params = {"name": "get_group_costs", "arguments": arguments}
            line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            answer = await there.server.over_http("POST", "/mcp", {"line": line}, headers=there.headers)
            return json.loads(answer.payload["line"])["result"]

        for by in ("team", "model"):
            rows = await in_pages(there, f"/group-costs?by={by}")
            found = (await asked(group_by=[by], limit=100))["structuredContent"]
            assert crowd.finished == Decimal(found["total"]) / NANO
            assert {(row["from"][:10], row[by], row["cost"], row["calls"]) for row in rows} == {
                (row["start"], row["group"][by], row["cost"], row["calls"]) for row in found["rows"]
            }
        blue = (await asked(filters={"team": ["blue"]}, limit=1))["structuredContent"]
        assert blue["truncated"] and {"team": "blue"} == blue["rows"][0]["group"]
        assert (await asked(group_by=["user"]))["isError"]
        there.server.registry.set_min_group_size(0)
        off = await asked()
        assert (0, []) == (off["structuredContent"]["people"], off["structuredContent"]["rows"])
        assert "get_cost_data" in off["content"][0]["text"]


CONTRACT = {
    "name": "All", "provider": "p", "since": "2026-08-01",
    "terms": [
        {"kind": "capacity", "models": ["m2"], "unit": "ptu", "number": "1", "price": "0.5", "per": "hour"},
        {"kind": "fee", "percent": "100"},  # a team's part is the cost of its calls and of its capacity
    ],
}  # fmt: skip


async def ask_about_contracts(there: Attack) -> list[int]:
    paths = [f"/contract-costs?month={month}" for month in ("2026-08", "2026-09")]
    for by in ("team", "charge", "plan", "team,charge", "user,charge"):
        paths += [
            f"/report?from={first}&to=2026-09-20&by={by}&cost_type=paid_cost&per={per}"
            for first in some(PARTS, every=3)
            for per in ("daily", "monthly")
        ]
    paths += ["/focus?from=2026-08-01&to=2026-08-31&plans=true"]
    return [await there.ask(path) for path in paths]


@pytest.mark.parametrize("min_group", [as_proof(0), K])
async def test_amounts_of_contracts_show_no_small_group(tmp_path: Path, min_group: int) -> None:
    """
    Amounts of contracts show no small group. A fee of 100 percent repeats the costs of each team, so without
    `privacy.min_group` it isolates a team. With the setting, own calls have no part of a contract, and groups have
    only the cost of calls.
    """
    async with attack(tmp_path, 0, min_group=min_group) as (there, crowd):
        answer = await there.server.ask("POST", "/contracts", CONTRACT)
        assert 201 == answer.status, answer.payload
        statuses = await ask_about_contracts(there)
        found = there.isolated(crowd.secrets(K - 1), own_figures(crowd))
        assert (found is None) == bool(min_group), found
        assert ({403, 200} if min_group else {200}) == {*statuses}
        assert ("All" in "".join(there.texts)) != bool(min_group)
        groups = (await there.server.ask("GET", "/group-costs")).payload
        assert (crowd.finished if min_group else 0) == Decimal(groups["total"]["cost"]) / NANO


OF_KEYS = [row for row in ADDRESSES if row.scope in SCOPES - WITHOUT_FIGURES]


async def test_keys_read_no_figures_unless_the_configuration_names_them(serve: Serve) -> None:
    """
    With `privacy.min_group`, a key with every scope gets 403 at each address with figures, except for the keys in
    `server.figure_keys`.
    """
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0), privacy=PrivacySettings(min_group=K))
    server = await serve(config=config, figure_keys=("enforcer-*",))
    keys = [await server.make_key(name, scopes=[*SCOPES]) for name in ("reader", "enforcer-1")]
    for row in OF_KEYS:
        path = row.documented_path.format_map(PATHS)
        for method in set(row.methods) - {"HEAD"}:
            refused, admitted = [await server.send(path, b"", None, method=method, key=key) for key in keys]
            assert 403 == refused.status and b"privacy.min_group" in refused.body, row.name
            assert b"privacy.min_group" not in admitted.body, row.name


async def test_a_key_that_sends_is_not_concerned(serve: Serve) -> None:
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0), privacy=PrivacySettings(min_group=K))
    server = await serve(config=config)
    assert 200 == (await server.send("/v1/traces", json_traces(json_span()), "application/json")).status


@pytest.mark.parametrize("min_group", [0, K])
async def test_metrics_have_no_costs(serve: Serve, min_group: int) -> None:
    """
    With `privacy.min_group`, `/metrics` has no costs. They grow with each call, so two readings would show one
    call.
    """
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0), privacy=PrivacySettings(min_group=min_group))
    server = await serve(config=config, metrics_names=20)
    async with aiohttp.ClientSession() as client, client.get(f"{server.app.operator_url}/metrics") as answer:
        text = await answer.text()
    assert "tollhouse_records" in text
    assert ("_cost_dollars" in text) == (min_group == 0)


async def test_figures_of_others_need_a_reason(tmp_path: Path) -> None:
    """
    A person who may see names must state why, in a header or in the console's cookie. The list of who looked has
    this reason. Own figures, groups and settings need no reason. Without `privacy.min_group`, nothing does.
    """
    async with attack(tmp_path, 0, min_group=K, sets=tuple(PERMISSION_SETS)) as (there, crowd):
        costs, other = (
            "/report?by=user&from=2026-08-01&to=2026-09-20",
            f"/report?where=user={crowd.people[1]}",
        )
        call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                           "params": {"name": "get_cost_data", "arguments": {"group_by": ["user"]}}})  # fmt: skip
        for path in (costs, other, "/report?by=team", "/records"):
            assert 403 == await there.ask(path), path
            assert "no_reason" in there.texts[-1] and "--reason" in there.texts[-1]
        assert 200 == await there.ask("/mcp", "POST", {"line": call})
        assert "privacy.min_group" in there.texts[-1] and crowd.people[1] not in there.texts[-1]
        for path in (f"/report?where=user={EVA}", "/group-costs", "/keys", "/session"):
            assert 200 == await there.ask(path), path
        assert '"needs_reason": true' in there.texts[-1]
        assert [] == (await there.server.ask("GET", "/people/viewings", by=EVA)).payload["viewings"]
        signed = there.headers
        for stated in ({"X-Tollhouse-Reason": "Ticket%207"},
                       {"Cookie": f"{signed['Cookie']}; tollhouse_reason=Ticket%207"}):  # fmt: skip
            there.headers = {**signed, **stated}
            assert 200 == await there.ask(costs)
            assert 200 == await there.ask("/mcp", "POST", {"line": call})
            assert crowd.people[1] in there.texts[-1]
        rows = (await there.server.ask("GET", "/people/viewings", by=EVA)).payload["viewings"]
        assert {("Ticket 7", "/report"), ("Ticket 7", "get_cost_data")} == {
            (row["reason"], row["page"]) for row in rows
        }
        there.headers = signed
        there.server.registry.set_min_group_size(0)
        assert 200 == await there.ask(costs)
