"""
What people with restricted access learn of sessions, runs, pull requests and other units of work of others: nothing.

Two installations differ only in the calls that a person may not see. Each answer to the person is the same in both, so
no answer, and no difference of two answers, contains a cost, a number, an id or a sign of a call of others.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from msgspec import structs

from gateway.core.paths import OPERATOR_API
from spool.identity import RecordIdentity
from spool.ledger.work import TREES, UNITS
from spool.record import Inference
from spool.registry.operators import Actor
from spool.registry.permission_sets import PERMISSION_SETS, resolve_permission_sets
from spool.registry.roles import EXCEPT, FULL, IS, LIMITED, NO_DATA, NewRole, RoleFilter, RoleLimits
from spool.registry.scopes import SCOPES
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG, as_proof, part, some
from tests.spool.contract.examples import add, call
from tests.spool.digests import DIGESTS, as_shown
from tests.spool.ledger.engine_work import work_of
from tests.spool.ledger.test_work_slices import VALUES, made_role, value_of

ROLES, NAMED = (range(200), 6) if IS_LONG else (range(1), 1)  # people, and units of a kind that they ask for
ASKED = tuple(UNITS) if IS_LONG else ("session", "run", "branch", "pull_request")
ROOT = Actor("root@example.com", "tests")
EVA = "eva@example.com"
DAY_S = 86_400
RUNS = [f"{number:032x}" for number in range(1, 13)]
NAMES = {
    "session": [f"session-{number}" for number in range(6)],
    "run": RUNS,
    "repository": ["acme/shop", "acme/web", "acme/secret"],
    "branch": ["main", "fix", "hidden"],
    "commit": ["c0ffee", "facade", "5eed"],
    "pull_request": ["acme/shop#1", "acme/shop#2", "acme/web#3"],
    "ticket": ["T-1", "T-2", "T-3"],
}
UNKNOWN = {**{unit: f"never-{unit}" for unit in UNITS}, "run": "f" * 32}
LINKS = (
    {"session": "session-1", "pull_request": "acme/shop#9"},
    {"session": "session-2", "ticket": "T-9"},
    {"commit": "5eed", "pull_request": "acme/web#3"},
    {"branch": "fix", "repository": "acme/shop", "ticket": "T-2"},
    {"session": "never", "ticket": "T-8"},
    {"session": "session-4", "parent_session": "session-3"},
    {"session": "session-3", "parent_session": "session-0"},
    {"run": RUNS[11], "parent_run": RUNS[8]},
    {"run": RUNS[8], "parent_run": RUNS[10]},
)
Call = tuple[Inference, RecordIdentity]


def made_calls(chance: random.Random, now: float) -> list[Call]:
    """Make calls of several teams and people. Their runs start runs of each other."""
    # the last runs state no parent, so that links join them
    parents = {run: chance.choice(RUNS[:number]) for number, run in enumerate(RUNS[:8]) if number}
    calls = []
    for number in range(60):
        run = chance.choice(RUNS) if chance.random() < 0.7 else None
        tags = {
            name: chance.choice(NAMES[name]) for name in NAMES if name not in TREES and chance.random() < 0.6
        }
        if service := chance.choice(VALUES["tag:service"]):
            tags["service"] = service
        calls.append(
            call(
                number,
                at=now - 7200 - chance.randrange(3) * DAY_S,
                session=chance.choice(NAMES["session"]) if chance.random() < 0.8 else None,
                run=run,
                parent_run=parents.get(run) if run and chance.random() < 0.8 else None,
                tags=tags,
                team=chance.choice(VALUES["team"]) or None,
                user=chance.choice(VALUES["user"]) or None,
                cost=str(2**number),  # so that each sum says which calls it contains
                cost_source="reported",
            )
        )
    return calls


@dataclass
class Desk:
    """An installation with the browser of a person with restricted access."""

    server: OperatorServer
    session: aiohttp.ClientSession
    headers: dict[str, str]

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Return the status and the answer, without cursors and hashes, which depend on the installation's secret."""
        url = f"{self.server.url}{OPERATOR_API}{path}"
        async with self.session.request(method, url, json=body, headers=self.headers) as answer:
            text = await answer.text()
            headers = sorted(
                (name, value) for name, value in answer.headers.items() if name.startswith("Tollhouse")
            )
            if answer.content_type == "application/json":
                payload = json.loads(text)
                if isinstance(payload, dict):
                    payload.get("pagination", {}).pop("cursor", None)
                text = json.dumps(payload, sort_keys=True)
            return answer.status, re.sub("branch:[0-9a-f]{16}", "branch:", f"{headers} {text}")

    async def use(self, tool: str, **arguments: object) -> tuple[int, str]:
        line = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        return await self.ask("POST", "/mcp", {"line": json.dumps(line)})


@asynccontextmanager
async def desk(
    directory: Path, calls: Sequence[Call], parts: Sequence[Sequence[RoleFilter]]
) -> AsyncIterator[Desk]:
    directory.mkdir(exist_ok=True)
    async with (
        operator_server(directory, clock=MovedClock()) as server,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        server.storage.ledger.digests = DIGESTS  # the digests are the same ones in both installations
        for link in LINKS:
            assert 201 == (await server.ask("POST", "/work/links", link)).status
        for number, filters in enumerate(parts):
            draft = NewRole(
                name=f"Part {number}", data_access=LIMITED, filters=tuple(filters), members=(EVA,),
                permission_sets=("view_costs", "view_records", "use_assistants"),
            )  # fmt: skip
            known = server.services.money.ledger.dimensions()
            await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
        if calls:
            await add(server.services.spool.log, *calls)
        yield Desk(server, session, await signed_in(server, "none", EVA))


def of_unit(unit: str, name: str) -> Iterator[str]:
    """Yield the paths that name one unit."""
    text = quote(name, safe="")
    yield f"/work/{unit}/{text}"
    yield f"/report?where={unit}={text}&range=last_30d"
    yield f"/report?by=run&where={unit}={text}&range=last_30d"
    yield f"/report?by=team&where={unit}!={text}&unit=session&show=cost,units,cost_per_unit&range=last_30d"
    yield f"/comparison?by=session&where={unit}={text}&range=last_7d"
    yield f"/records?{unit}={text}"
    yield f"/records?{unit}!={text}&sort_key=cost&range=last_30d"
    if unit in TREES:
        yield f"/report?by={unit}&scope=aggregated&where={unit}={text}&range=last_30d"


def of_lists(unit: str) -> Iterator[str]:
    """Yield the paths that list units of a kind."""
    shown = f"/report?by={unit}&range=last_30d"
    yield shown
    yield f"{shown}&top=2"
    yield f"{shown}&per=daily&compare=previous"
    yield f"{shown}&format=csv"
    yield f"/report?by={unit}&range=yesterday"
    yield f"/report?by=team,{unit}&range=yesterday"
    yield f"/report?by={unit},user&range=last_30d&where=user!=ada"
    yield f"/report?by=team&unit={unit}&show=units,cost_per_unit,median_per_unit,p95_per_unit&range=last_30d"
    yield f"/comparison?by={unit}&range=last_7d&top=1"
    yield f"/forecast?where={unit}=x"
    yield f"/what-if?by={unit}"
    yield f"/marks?where={unit}=x"
    yield f"/records?{unit}="
    if unit in TREES:
        yield f"{shown}&scope=aggregated"
        yield f"{shown}&scope=aggregated&top=2&per=daily"
        yield f"/report?by={unit},team&scope=aggregated&range=yesterday"


async def answers(desk: Desk, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
    found = {}
    names = {unit: [*NAMES[unit][-NAMED:], UNKNOWN[unit]] for unit in ASKED}
    paths = [path for unit in ASKED for path in of_lists(unit)]
    paths += [path for unit, known in names.items() for name in known for path in of_unit(unit, name)]
    paths += [f"/work/{unit}/{as_shown(unit, NAMES[unit][0])}" for unit in TREES]
    paths += [f"/records/{id}" for id in ids]
    paths += [
        "/work/links",
        "/work/status",
        "/work/links?ticket=T-9",
        "/views",
        "/ledger",
        "/overview",
        "/work/team/search",
    ]
    for path in paths:
        found[path] = await desk.ask("GET", path)
    for unit in ASKED:
        found[f"values {unit}"] = await desk.use("get_dimension_values", dimension=unit)
        found[f"compare {unit}"] = await desk.use("compare_costs", group_by=[unit])
        for name in ("", *names[unit]):
            filters = {"filters": {unit: [name]}} if name else {"group_by": [unit]}
            found[f"cost {unit} {name}"] = await desk.use("get_cost_data", **filters)
    return found


@pytest.mark.proof
@pytest.mark.proves("A person with restricted access sees other calls")
@pytest.mark.parametrize("number", ROLES)
async def test_calls_of_others_change_no_answer(tmp_path: Path, number: int) -> None:
    """
    Calls of others change no answer to a person with restricted access: lists, filters, largest units, comparisons,
    medians, trees, links, lists of calls, CSV and tools of an assistant. A unit that only others use is answered
    like one that does not exist.
    """
    chance = random.Random(number)
    role = made_role(chance)
    calls = made_calls(chance, MovedClock().now())
    own = [each for each in calls if role.has_call(lambda name, each=each: value_of(each[0], name))]  # type: ignore[misc]
    ids = [record.id.hex() for record, _ in calls[::6]]
    async with desk(tmp_path / "all", calls, role.parts) as there:
        with_others = await answers(there, ids)
    async with desk(tmp_path / "own", own, role.parts) as there:
        alone = await answers(there, ids)
    differing = {path: (alone[path], found) for path, found in with_others.items() if alone[path] != found}
    assert not differing, "\n".join(str(each) for pair in differing.items() for each in pair)
    for path in (
        "/report?by=run&range=last_30d&scope=aggregated",
        "/records?run=",
        f"/work/session/{NAMES['session'][-1]}",
    ):
        assert with_others[path][0] == 200, with_others[path]
    used = {unit: {value for record, _ in own for value in values_of(record, unit)} for unit in UNITS}
    for unit in ASKED:
        known = NAMES[unit]
        hidden = [
            name
            for name in known
            if name not in used[unit] and not any(name in each.values() for each in LINKS)
        ]
        for name in [name for name in known[-NAMED:] if name in hidden]:
            unknown = UNKNOWN[unit]
            paths = zip(of_unit(unit, name), of_unit(unit, unknown), strict=True)
            assert {} == {
                path: (with_others[path], with_others[other])
                for path, other in paths
                if as_if_named(with_others[path], unit, name, unknown) != with_others[other]
            }


@pytest.mark.proof
async def test_hidden_unit_needs_as_much_work_as_an_unknown_one(tmp_path: Path) -> None:
    """
    Each request about a unit takes as much work of the ledger if only others use the unit, if its name is similar, and
    if nobody uses it. Some hidden units are linked.
    """
    now = MovedClock().now()
    hidden = {**{unit: names[-1] for unit, names in NAMES.items()}, "session": "session-3", "branch": "fix"}
    calls = [
        call(
            number,
            at=now - 7200 - number % 3 * DAY_S,
            session=hidden["session"] if team == "ads" else "session-0",
            run=hidden["run"] if team == "ads" else RUNS[number % 4],
            tags={
                name: hidden[name] if team == "ads" else NAMES[name][0] for name in NAMES if name not in TREES
            },
            team=team,
            user=f"user-{number % 5}",
            cost="1",
            cost_source="reported",
        )
        for number, team in enumerate(["ads"] * 300 + ["search"] * 100)
    ]
    similar = {**{unit: f"{name}-2" for unit, name in hidden.items()}, "run": "e" * 32}
    role = [[RoleFilter(dimension="team", mode=IS, values=("search",))]]
    async with desk(tmp_path, calls, role) as person:
        ledger = person.server.storage.ledger
        for unit in UNITS:
            names = (hidden[unit], similar[unit], UNKNOWN[unit])
            for paths in zip(*(of_unit(unit, name) for name in names), strict=True):
                counts = []
                for path in paths:
                    assert 200 == (await person.ask("GET", path))[0], path
                    counts.append(await work_of(ledger, lambda path=path: person.ask("GET", path)))  # type: ignore[misc]
                assert max(counts) <= 1.2 * min(counts), (paths[0], counts)


def values_of(record: Inference, unit: str) -> set[str | None]:
    """Return the values that a visible call states. It also names the run that started its run."""
    if unit == "run":
        return {record.run, record.parent_run}
    return {record.session} if unit == "session" else {record.tags.get(unit)}


def as_if_named(answer: tuple[int, str], unit: str, name: str, other: str) -> tuple[int, str]:
    """Return an answer with another name of the unit that was asked for."""
    text = answer[1]
    for old, new in ((name, other), (as_shown(unit, name), as_shown(unit, other))):
        text = text.replace(json.dumps(old), json.dumps(new))
    return answer[0], text


SETS = [*PERMISSION_SETS]


@pytest.mark.parametrize("access", [FULL, LIMITED, as_proof(NO_DATA)])
async def test_each_right_is_off_unless_granted(tmp_path: Path, access: str) -> None:
    """
    Only the right to view costs opens a unit, and only with the visible calls. Links need access to all calls. Changing
    them needs the right to change dimensions as well.
    """
    body = {"session": "session-1", "ticket": "T-9"}
    allowed = {id: resolve_permission_sets([id]) for id in SETS}
    async with desk(tmp_path, [], []) as there:
        [link] = (await there.server.ask("GET", "/work/links?ticket=T-9")).payload["work_links"]
        places = {
            # a session has no calls if all of them are hidden
            "GET /work/session/session-1": ("view_costs", True),
            "GET /work/links": ("view_costs", access == FULL),
            "GET /work/status": ("view_costs", access == FULL),
            f"GET /work/links/{link['id']}": ("view_costs", access == FULL),
            "POST /work/links": ("modify_dimension_definitions", access == FULL),
            f"PATCH /work/links/{link['id']}": ("modify_dimension_definitions", access == FULL),
        }
        for id in SETS:
            draft = NewRole(
                name=f"Only {id}", data_access=access, members=(EVA,), permission_sets=(id,),
                filters=(RoleFilter(dimension="team", values=("search",)),) if access == LIMITED else (),
            )  # fmt: skip
            roles = there.server.registry.roles
            role = await roles.create(draft, known_dimensions=("team",), limits=RoleLimits(), actor=ROOT)
            for place, (needed, is_open) in places.items():
                method, _, path = place.partition(" ")
                status, _ = await there.ask(
                    method, path, body if method == "POST" else {} if method == "PATCH" else None
                )
                is_allowed = is_open and needed in allowed[id]
                assert status == 403 or (is_allowed and status in (200, 201)), (id, place, status)
                assert is_allowed == (status != 403)
            changes = {"members": ()}
            await roles.change(role.id, changes, known_dimensions=("team",), limits=RoleLimits(), actor=ROOT)


async def test_no_key_opens_a_unit_or_a_link(tmp_path: Path) -> None:
    """Neither keys of any scope nor the keys of laptops are accepted at the addresses of units and links."""
    async with desk(tmp_path, [], []) as there:
        secrets = [
            (await there.server.create(scope, scopes=[scope]))["secret"]
            for scope in some(sorted(SCOPES), every=6)
        ]
        for secret in (*secrets, ""):
            headers = {"Authorization": secret} if secret else {}
            for method, path in (
                ("GET", "/work/session/session-1"),
                ("GET", "/work/links"),
                ("POST", "/work/links"),
                ("DELETE", "/work/links/x"),
            ):
                answer = await there.server.over_http(
                    method, path, {} if method == "POST" else None, headers=headers
                )
                assert 401 == answer.status, (method, path, answer.payload)


async def refused(desk: Desk, paths: Sequence[str], tools: Sequence[tuple[str, Any]] = ()) -> bool:
    """Return whether each query is refused, because it would combine sessions with people. No query differs."""
    found = [
        (status == 400, "people is false" in text)
        for path in paths
        for status, text in [await desk.ask("GET", path)]
    ]
    for tool, arguments in tools:
        _, text = await desk.use(tool, **arguments)
        found.append(('isError\\": true' in text or 'isError\\":true' in text, "people is false" in text))
    assert set(found) in ({(True, True)}, {(False, False)}), list(zip((*paths, *tools), found, strict=False))
    return found[0][0]


USER, DEVICE = (RoleFilter(dimension=name, values=("bob@example.com",)) for name in ("user", "device"))
SEARCH = RoleFilter(dimension="team", values=("search",))


@pytest.mark.parametrize(
    ("parts", "is_refused"),
    part(
        [
            ([[SEARCH]], False),
            ([[USER]], True),
            ([[DEVICE]], True),
            ([[SEARCH, structs.replace(USER, mode=EXCEPT)]], True),
            ([[structs.replace(USER, values=(EVA,))]], False),
            ([[structs.replace(USER, values=(EVA, "bob@example.com"))]], True),
            ([[structs.replace(USER, values=(EVA,), mode=EXCEPT)]], True),
            ([[SEARCH], [structs.replace(USER, values=(EVA,))]], False),
            ([[SEARCH], [USER]], True),
        ],
        every=2,
    ),
)
async def test_sessions_of_other_people_may_be_hidden(
    tmp_path: Path, parts: Sequence[Sequence[RoleFilter]], is_refused: bool
) -> None:
    """
    With [work] people = false, a role that selects people shows no sessions and runs, except to the person themselves.
    Other roles show them, but never together with users or devices.
    """
    async with desk(tmp_path, made_calls(random.Random(1), MovedClock().now()), parts) as there:
        ledger = there.server.services.money.ledger
        ledger._work = replace(ledger._work, people=False)
        view = await there.server.ask(
            "POST", "/views", {"name": "Bob", "principal_dimension": "user", "filter": {"user": ["bob"]}}
        )
        assert 201 == view.status, view.payload
        answer = await there.server.ask("GET", "/report?by=session&view=Bob")
        assert (400, True) == (answer.status, "people is false" in answer.error[2])
        plain = [
            "/report?by=session",
            "/report?by=run&scope=aggregated",
            "/work/run/x",
            "/comparison?by=session",
        ]
        plain += ["/report?by=team&unit=session&show=units", "/report?by=session&format=csv"]
        tools = [("get_cost_data", {"group_by": ["session"]}), ("get_dimension_values", {"dimension": "run"})]
        assert is_refused == await refused(there, plain, tools)
        with_people = [
            f"{path}{'&' if '?' in path else '?'}where={name}=ada"
            for path in plain
            if "/work/" not in path
            for name in ("user", "device")
        ]
        with_people += [
            "/report?by=user,run",
            "/report?by=device&where=session=x",
            "/report?by=device&unit=run&show=units",
        ]
        assert await refused(
            there,
            with_people,
            [
                ("get_cost_data", {"group_by": ["session", "user"]}),
                ("compare_costs", {"group_by": ["run", "device"]}),
            ],
        )
        for path in (
            ("/report?by=pull_request,user", "/report?by=user", "/work/ticket/T-1?range=this_month")
            if not is_refused
            else ()
        ):
            assert 200 == (await there.ask("GET", path))[0], path
