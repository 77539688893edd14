"""
A limited person sees nothing of other people's calls. Every address of the operator API is tried.

The installation has the data of two teams. Every text field of the foreign team's data contains MARK.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.core.first_use import LazyValue
from gateway.core.paths import OPERATOR_API
from gateway.devices.reports import DeviceReport
from gateway.money.insights.findings import build_finding
from gateway.money.recommendations.adviser import RecommendationUpdater
from gateway.money.recommendations.gathering import Sources
from gateway.operations.money.reports.declared import NewScheduledReport, ScheduledReportTable
from gateway.operations.records import changes
from gateway.operations.requests.address import OPERATION, SLICED, WHOLE, OperatorApiAddress
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool.identity import RecordIdentity
from spool.record import USAGE_EVENTS, UsageEvent
from spool.registry.insights import LOW, CallFilter, InsightDraft
from spool.registry.operators import Actor
from spool.registry.permission_sets import ALL, PERMISSION_SETS
from spool.registry.registry import Registry
from spool.registry.roles import (
    EXCEPT,
    IS,
    LIMITED,
    NO_DATA,
    ROLE_COST_TYPES,
    NewRole,
    RoleFilter,
    RoleLimits,
)
from spool.registry.scopes import ENROLL
from tests.integration.operations.people.test_sign_in import PASSWORD, headers_of, signed_in
from tests.integration.operations.server import INGEST, OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.examples import add, call
from tests.spool.savings import SAVING

__all__ = ["quick_beat"]  # a fixture for all tests in this file

MARK = "zqx.q"  # the text has a dot, because no secret and no cursor contains a dot
OWN = "search"
FOREIGN = f"{MARK}-team"
EVA = "eva@example.com"  # the person with restricted access
ROOT = Actor("root", "local")
CHANNEL = "desk"  # name of a channel from `[[notify]]`
FLEET = AuthenticatedKey("fleet", frozenset({ENROLL}))
ONLY_BY_ROLE = PERMISSION_SETS.keys() - ALL
FIELDS = (
    "team",
    "user",
    "device",
    "api_key",
    "model",
    "request_model",
    "provider",
    "source",
    "tag:service",
    "region",
)
# This dimension is published, because a role's filter uses it.
DEFINITION = "Dimensions: {Part: {Rules: [{Type: GroupBy, Source: team}]}}"
ROLES = {
    "is": RoleFilter(dimension="team", values=(OWN,), mode=IS),
    "except": RoleFilter(dimension="team", values=(FOREIGN,), mode=EXCEPT),
    "own dimension": RoleFilter(dimension="User:Defined:Part", values=(OWN,), mode=IS),
}


@pytest.fixture(autouse=True)
def quick_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "OWN_EVERY_S", 0.01)


@dataclass
class World:
    """The objects of one team, with the ids to request them."""

    team: str
    ids: dict[str, str] = field(default_factory=dict)  # ids of objects, by the first part of their path


@dataclass
class Place:
    server: OperatorServer
    # all requests share a session, because opening a session costs as much as an answer
    session: aiohttp.ClientSession
    eva: dict[str, str]
    own: World
    foreign: World
    records: int = 100

    async def send(self, method: str, path: str, body: object, headers: dict[str, str]) -> tuple[int, str]:
        """Return the status, and everything in the answer: headers and body."""
        async with self.session.request(
            method,
            f"{self.server.url}{OPERATOR_API}{path}",
            json=body,
            headers=headers,
            allow_redirects=False,
        ) as answer:
            if answer.content_type == "text/event-stream":
                return answer.status, await self._hear(answer)
            text = await answer.text()
            # a list repeats its request's filters, so the filters are left out
            if answer.content_type == "application/json":
                text = json.dumps(
                    {name: value for name, value in json.loads(text).items() if name != "filtering"}
                )
            return answer.status, f"{dict(answer.headers)} {text}"

    async def _hear(self, answer: aiohttp.ClientResponse) -> str:
        """Add a call of each team; return the text of an event stream up to the last of them."""
        await self.records_of(self.foreign)
        await self.records_of(self.own)
        wanted = OWN if str(answer.url).partition("?")[0].endswith("/tail") else "records"
        heard = ""
        while wanted not in heard:
            heard += (await answer.content.readany()).decode()
        return heard

    async def records_of(self, world: World) -> None:
        self.records += 1
        await add(self.server.services.spool.log, *calls(world, self.server.clock.now(), self.records))


def calls(world: World, now: float, number: int) -> list[Any]:
    """Return one call of the current hour. Each of its fields names the team."""
    mark = world.team
    values = {
        name: f"{mark}-{name}" for name in FIELDS if name not in ("team", "source", "tag:service", "model")
    }
    return [
        call(number, at=now - 60, team=mark, tags={"service": f"{mark}-service", "other": f"{mark}-other"}, cost="3",
             cost_source="reported", response_model=f"{mark}-model", session=f"{mark}-session", **values,
             source=f"{mark}-source" if mark == FOREIGN else "otel")
    ]  # fmt: skip


def without_cookies() -> aiohttp.ClientSession:
    """Open a client without a cookie store, so that each request names its user."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())


@asynccontextmanager
async def place(directory: Path, role: RoleFilter | None) -> AsyncIterator[Place]:
    """Start a filled server. If `role` is None, the person may see no call at all."""
    async with operator_server(directory, clock=MovedClock()) as server, without_cookies() as session:
        filters = () if role is None else (role,)
        own, foreign = await prepare(server, [filters])
        yield Place(server, session, await signed_in(server, "none", EVA), own=own, foreign=foreign)


async def prepare(
    server: OperatorServer, roles: Sequence[Sequence[RoleFilter]], *teams: str
) -> tuple[World, World]:
    """
    Fill an installation with the data of two teams and of `teams`. Give Eva a role for each entry of `roles`,
    its filters. A role without filters shows no call.
    """
    services, registry = server.services, server.registry
    adviser = RecommendationUpdater(
        Sources(ledger=services.money.ledger, log=services.spool.log, prices=services.money.prices),
        registry.recommendations,
        services.installation.clock,
    )
    services.money.adviser = LazyValue(lambda: adviser)
    made = await server.ask("POST", "/allocation/publish", {"definition": DEFINITION, "base": 0})
    assert 201 == made.status, made.payload
    registry.notices.channels = (CHANNEL,)
    registry.notices.report_channels = frozenset({CHANNEL})
    worlds = [World(team) for team in (OWN, FOREIGN, *teams)]
    for number, world in enumerate(worlds):
        await fill(server, world, number)
        owner = EVA if world.team == OWN and any(roles) else "other@example.com"
        await schedule(registry, world, owner)
    for number, filters in enumerate(roles):
        draft = NewRole(
            name=f"Part {number}",
            data_access=LIMITED if filters else NO_DATA,
            filters=tuple(filters),
            permission_sets=tuple(PERMISSION_SETS),
            members=(EVA,),
        )
        known = services.money.ledger.dimensions()
        await registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
    return worlds[0], worlds[1]


async def fill(server: OperatorServer, world: World, number: int) -> None:
    services, registry, name = server.services, server.registry, world.team
    await add(services.spool.log, *calls(world, server.clock.now(), number))
    event = UsageEvent(
        id=bytes([number]) * 16, source="e", event_type=f"{name}-type", subject=f"{name}-subject"
    )
    await add(services.spool.log, (event, RecordIdentity(event.id)), topic=USAGE_EVENTS)
    await server.create(f"{name} key", scopes=[INGEST], description=name)
    await services.senders.require_devices().enrol_or_update(
        DeviceReport(id=f"{name}-device", fingerprint="print"), FLEET, ""
    )
    await services.senders.require_clusters().record_data_from_cluster("1", "eu", f"{name}-cluster", FLEET)
    view = await made(
        server, "view", "/views", name=f"{name} view", filter={"team": [name]}, principal_dimension="user"
    )
    spare = await made(
        server, "view", "/views", name=f"{name} spare", filter={"team": [name]}, principal_dimension="user"
    )
    budget = await made(
        server, "budget", "/budgets", name=f"{name} budget", view={"id": view}, default_amount="1", alerts={"50": "Y"},
        per="user",
    )  # fmt: skip
    await registry.insights.merge_findings(
        [
            build_finding(
                "spend_spike", (name,), title=f"{name} insight", seen=f"{name} seen", advice="Look.", effort=LOW,
                category="spend", concerns=CallFilter(include={"team": (name,)}),
            )
        ],
        looked_for=(),
    )  # fmt: skip
    words = {
        "day": f"{datetime.fromtimestamp(server.clock.now(), UTC):%Y-%m-%d}",
        "text": f"{name} annotation",
    }
    annotation = await made(server, "annotation", "/annotations", **words, view=view)
    if name == FOREIGN:  # an annotation without a view is about all calls
        await made(server, "annotation", "/annotations", **{**words, "text": f"{name} word"})
    insight = next(
        each for each in await registry.insights.detector_insights() if each.title == f"{name} insight"
    )
    await registry.insights.add_comment(insight.id, f"{name} remark", actor=ROOT)
    if name == FOREIGN:  # an insight that a person wrote may be about any calls
        await registry.insights.create(InsightDraft(title=f"{name} note"), actor=ROOT)
    work = {"source": "otel", "provider": "p", "model": f"{name}-model", "team": name, "tag:service": "s"}
    saving = replace(SAVING, key=f"priority_tier:{name}", title=f"{name} saving", dimensions={"team": [name]},
                     measured_by={"team": name}, concerns=work)  # fmt: skip
    await registry.recommendations.merge_savings([saving], looked_for=())
    found = next(each for each in await registry.recommendations.all() if each.saving.key == saving.key)
    [comment] = await registry.recommendations.add_comments(found.id, [f"{name} remark"], actor=ROOT)
    world.ids = {
        "views": view, "spare": spare, "budgets": budget, "insights": insight.id, "recommendations": found.id,
        "comment": str(comment.id), "records": calls(world, 0, number)[0][0].id.hex(), "keys": f"{name} key",
        "devices": f"{name}-device", "recommendation-types": "batch", "annotations": annotation,
        "unit": "session", "work": f"{name}-session",
    }  # fmt: skip


async def schedule(registry: Registry, world: World, owner: str) -> None:
    """Create a scheduled report of the team's view in its owner's name."""
    draft = NewScheduledReport(name=f"{world.team} report", view=world.ids["views"], channels=(CHANNEL,))
    report = await registry.declared_table(ScheduledReportTable).create(
        draft, owner=owner, max_rows=10, actor=ROOT
    )
    world.ids["scheduled-reports"] = report.id


async def made(server: OperatorServer, what: str, path: str, **body: Any) -> str:
    answer = await server.ask("POST", path, body, reason="test")
    assert 201 == answer.status, answer.payload
    id: str = answer.payload[what]["id"]
    return id


# -- all addresses ------------------------------------------------------------------------------------------

# Further requests by the name of an address: queries of read addresses, and bodies of changes.
QUERIES: Mapping[str, Sequence[str]] = {
    "report": [f"by={name}&range=this_year" for name in FIELDS]
    + ["format=csv&by=team,user", f"where=team={FOREIGN}&by=user", f"where=team!={OWN}&by=user",
       "per=daily&compare=previous", "colours=names&by=team&per=daily&top=5"],
    "comparison": [f"by={name}&range=last_7d" for name in FIELDS],
    "focus": [f"from=2026-09-01&to=2026-09-30{more}"
              for more in ("&tag=tag:service", "&plans=true", "&lines=meters", "&billed=true")],
    "overview": [""],
    "search": [f"q={MARK[:-1]}", f"q={OWN}"],  # the answer of the search repeats its parameter q
    "what_if": ["model=gpt-4o", f"model=gpt-4o&by=team&where=team={FOREIGN}"],
    "forecast": ["", f"where=team={FOREIGN}"],
    "marks": ["range=last_7d", f"where=team={FOREIGN}"],
    "list_records": [f"team={FOREIGN}", "date=2026-09-21", "date=2026-09&topic=usage-events",
                     f"model={FOREIGN}-model", "topic=usage-events", "state=open",
                     f"date={datetime.now(UTC):%Y-%m}"],
    "list_insights": ["status=new", "sort_key=title", "sort_key=cost_impact&limit=1"],
    "list_recommendations": [f"team={FOREIGN}", "sort_key=type"],
    "list_budgets": ["expand=current&expand=forecast"],
    "show_budget": ["expand=current&expand=history&expand=burnup&expand=forecast"],
    "check_savings": ["filter=" + json.dumps({"team": [FOREIGN]})],
}  # fmt: skip
BODIES: Mapping[str, Any] = {
    "add_view": {
        "name": "another",
        "filter": {"team": ["{team}"], "!user": ["x"]},
        "principal_dimension": "model",
    },
    "edit_view": {"range": "this_year"},
    "add_budget": {"name": "another", "view": {"id": "{views}"}, "default_amount": "5"},
    "edit_budget": {"default_amount": "2"},
    "add_scheduled_report": {"name": "another", "view": "{views}", "channels": [CHANNEL]},
    "edit_scheduled_report": {"at": "09:00"},
    "add_annotation": {"day": "2026-09-21", "text": "another", "view": "{views}"},
    "edit_annotation": {"text": "changed"},
    "relay_mcp": {
        "line": '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_org_context"}}'
    },
    "set_insight": {"status": "in_progress"},
    "comment_insight": {"message": "seen"},
    "change_recommendations": {"ids": ["{recommendations}"], "status": "on_hold"},
    "comment_recommendation": {"message": "seen"},
    "change_recommendation_comment": {"message": "changed"},
    "change_recommendation_type": {"enabled": True},
    "sign_in": {"email": EVA, "password": PASSWORD},
}
CONFIRM = {"remove_budget": "{team} budget"}
ORDER = ("GET", "POST", "PUT", "PATCH", "DELETE")
# A body that names an object of another team is refused as if the object did not exist. A unit of work without a
# visible call has the cost 0.
REFUSED = {
    "add_view": 403, "add_budget": 400, "add_scheduled_report": 400, "add_annotation": 400, "show_unit": 200,
}  # fmt: skip
# Without an identity provider, these addresses redirect the browser to the console.
TO_THE_CONSOLE = {"begin_sign_in": 303, "finish_sign_in": 303}


def ordered(rows: Sequence[OperatorApiAddress]) -> list[OperatorApiAddress]:
    """Sort reads first, deletions last, and the sign-out at the very end."""
    return sorted(rows, key=lambda row: (row.name == "sign_out", ORDER.index(row.methods[0])))


def asked(operator_address: OperatorApiAddress, world: World) -> list[tuple[str, Any]]:
    """Return paths with their queries, and the body."""
    path = operator_address.path.removeprefix(OPERATOR_API)
    # the spare view is used by no budget, so it can be removed
    kind = {"remove_view": "spare", "show_object": "views"}.get(operator_address.name, path.split("/")[1])
    values = {
        name: world.ids.get(name if name in ("comment", "unit") else kind, "1")
        for name in operator_address.path_parameters
    }
    if operator_address.name == "show_object":
        values["kind"] = "views"
    path = path.format(**values)
    body = json.dumps(BODIES.get(operator_address.name, {}))
    for name, id in {**world.ids, "team": world.team}.items():
        body = body.replace(f"{{{name}}}", id)
    confirm = CONFIRM.get(operator_address.name, "").format(team=world.team)
    own = QUERIES.get(operator_address.name, ())
    queries: Sequence[str] = own if operator_address.required and own else ["", *own]
    queries = ["confirm=" + confirm] if confirm else queries
    return [
        (f"{path}?{query}" if query else path, json.loads(body) if operator_address.takes else None)
        for query in queries
    ]


# Suffixes of a team's name: for its calls, for objects about them, and for objects that no limited person sees.
WORDS = (
    *(f"-{name}" for name in (*FIELDS, "session", "service") if name not in ("team", "tag:service", "source")),
    " view", " budget", " insight", " saving", " remark", " annotation",
)  # fmt: skip
SHOWN_TO_ALL_ALONE = ("-subject", "-type", " key", "-cluster", " note", " word")


@pytest.mark.proves("A person with restricted access sees other calls")
@pytest.mark.parametrize("role", part([*ROLES], every=3))
async def test_a_limited_person_sees_nothing_of_another_team(tmp_path: Path, role: str) -> None:
    """
    For a limited person, every address answers with the person's own data or refuses. No answer contains a text of
    the other team.
    """
    async with place(tmp_path, ROLES[role]) as there:
        said, read = "", set[tuple[str, str]]()
        for row in ordered(OPERATOR_ADDRESSES):
            for world in (there.foreign, there.own):
                for path, body in asked(row, world):
                    asking = (row.name, path)
                    if row.methods == ("GET",) and asking in read:  # the path names no object of a team
                        continue
                    read.add(asking)
                    status, text = await there.send(row.methods[0], path, body, there.eva)
                    assert MARK not in text.lower(), (row.name, path, text)
                    _check_status(row, world, status, text)
                    said += text
                if row.name == "sign_out" and world is there.foreign:
                    again = {"email": EVA, "password": PASSWORD}
                    there.eva = headers_of(await there.server.over_http("POST", "/sessions", again))
        assert not [word for word in WORDS if f"{OWN}{word}" not in said]
        assert not [word for word in SHOWN_TO_ALL_ALONE if f"{OWN}{word}" in said]
        [kept] = [
            each for each in await there.server.registry.recommendations.all() if MARK in each.saving.title
        ]
        assert "new" == kept.status


@pytest.mark.proof
async def test_an_organizer_sees_both_teams(tmp_path: Path) -> None:
    """
    An Owner sees both teams in all reads. This proves that the test of the limited person could find foreign data.
    """
    async with place(tmp_path, ROLES["is"]) as there:
        root, said = await signed_in(there.server, "admin", "root@example.com"), ""
        for row in OPERATOR_ADDRESSES:
            if row.needs in ONLY_BY_ROLE:
                continue
            for world in (there.foreign, there.own) if row.methods == ("GET",) else ():
                for path, body in asked(row, world):
                    status, text = await there.send("GET", path, body, root)
                    assert status not in (401, 403), (row.name, text)
                    said += text
        words = (*WORDS, *SHOWN_TO_ALL_ALONE)
        assert not [word for word in words if f"{FOREIGN}{word}" not in said]


async def test_the_answers_are_those_of_the_own_calls(tmp_path: Path) -> None:
    """
    A report, an export and a comparison equal those of an Owner who filters by the team, to the last digit.
    """
    async with place(tmp_path, ROLES["is"]) as there:
        root, now = await signed_in(there.server, "admin", "root@example.com"), there.server.clock.now()
        for number in range(40):
            world, late = (there.own, there.foreign)[number % 2], 86400 * (number % 9)
            [(record, known)] = calls(world, now - late, 1000 + number)
            record.user, record.cost, record.status = (
                f"u{number % 3}",
                f"{number}.{number:03}",
                ("ok", "error")[number % 5 == 0],
            )
            await add(there.server.services.spool.log, (record, known))
        asked = [f"/report?{query}" for query in QUERIES["report"] if FOREIGN not in query]
        asked += [f"/comparison?{query}" for query in QUERIES["comparison"]]
        asked += [
            "/report?by=user,status&per=daily&range=last_7d&top=1",
            "/report?show=calls,cost_per_call,latency_p95_ms&by=model",
            "/forecast?per=monthly",
            "/what-if?model=gpt-4o&by=user",
        ]
        for path in asked:
            status, own = await there.send("GET", path, None, there.eva)
            _, filtered = await there.send("GET", f"{path}&where=team={OWN}", None, root)
            assert status == 200, path
            assert said(filtered) == said(own), path
            _, everything = await there.send("GET", path, None, root)
            assert said(own) != said(everything), path


def said(text: str) -> str:
    """Return the body without published dimensions, which another test covers."""
    body = text.partition("} ")[2]
    if not body.startswith('{"'):
        return body
    answer = json.loads(body)
    for name in ("report", "comparison"):
        for shown in ("dimensions", "names"):
            answer.get(name, {}).pop(shown, None)
    return json.dumps(answer)


@pytest.mark.proves("names of dimensions")
async def test_a_dimension_of_ones_own_is_shown_to_whom_a_role_or_a_view_names_it(tmp_path: Path) -> None:
    """
    A limited person cannot read definitions. Neither queries nor errors reveal a dimension, unless a role or
    a view of theirs names it.
    """
    part, paths = "User:Defined:Part", ("/report?by={}", "/comparison?by={}", "/report?where={}=x")
    async with place(tmp_path, ROLES["is"]) as there:
        for path in ("/report", "/comparison", *(each.format(part) for each in paths)):
            status, text = await there.send("GET", path, None, there.eva)
            expected = (400, 1) if part in path else (200, 0)  # a refusal names only the requested dimension
            assert expected == (status, text.count("Defined")), (path, text)
        for method, path, body in (
            ("POST", "/views", {"name": "x", "filter": {"team": [OWN]}, "principal_dimension": part}),
            ("PATCH", f"/views/{there.own.ids['views']}", {"principal_dimension": part}),
            ("PATCH", f"/budgets/{there.own.ids['budgets']}", {"per": part}),
        ):
            status, text = await there.send(method, path, body, there.eva)
            assert status == 400, (path, text)
            assert text.count("Defined") + ("per" in body) == 1, (path, text)
        named = await there.server.ask(
            "PATCH", f"/views/{there.own.ids['views']}", {"principal_dimension": part}
        )
        assert 200 == named.status, named.payload
        for path in (each.format(part) for each in paths):
            assert 200 == (await there.send("GET", path, None, there.eva))[0]


async def test_what_is_not_seen_is_not_there(tmp_path: Path) -> None:
    """Reads and changes that name a view of another team are answered as if it did not exist."""
    async with place(tmp_path, ROLES["is"]) as there:
        foreign, own = there.foreign.ids["views"], there.own.ids["views"]
        for path in ("/report", "/comparison", "/records", "/tail"):
            answers = {
                await there.send("GET", f"{path}?view={word}", None, there.eva)
                for word in (foreign, "nothing")
            }
            assert {400} == {status for status, _ in answers}, path
            assert 1 == len({text.partition('{"error')[2] for _, text in answers}), answers
        changes: Sequence[tuple[str, str, Mapping[str, Any], int]] = (
            ("PATCH", f"/views/{own}", {"filter": {}}, 403),
            ("PATCH", f"/views/{own}", {"filter": {"team": [OWN, None]}}, 403),
            ("PATCH", f"/views/{own}", {"filter": {"team": [OWN], "!user": ["x"]}}, 200),
            ("PATCH", f"/budgets/{there.own.ids['budgets']}", {"view": {"id": foreign}}, 400),
            ("PATCH", f"/budgets/{there.own.ids['budgets']}", {"view": {"id": "nothing"}}, 400),
            ("POST", "/views", {"name": "all", "filter": {}, "principal_dimension": "team"}, 403),
        )
        for method, path, body, wanted in changes:
            status, text = await there.send(method, path, body, there.eva)
            assert wanted == status, (path, body, text)
            assert MARK not in text, (path, body, text)
        assert {"team": (OWN,), "!user": ("x",)} == there.server.registry.views.get(own).filter


async def test_alerts_of_before_are_not_shown(tmp_path: Path) -> None:
    """Alerts from a time when the view included other teams name their owners, so they are hidden."""
    async with place(tmp_path, ROLES["is"]) as there:
        server, own = there.server, there.own.ids
        alerts = f"/budgets/{own['budgets']}/alerts"
        await server.ask("PATCH", f"/views/{own['views']}", {"filter": {"team": [OWN, FOREIGN]}})
        await server.ask("POST", "/budgets/evaluate", {})
        for path in (alerts, alerts.replace("alerts", "owners")):
            assert 404 == (await there.send("GET", path, None, there.eva))[0]
        server.clock.move(60)
        await server.ask("PATCH", f"/views/{own['views']}", {"filter": {"team": [OWN]}})
        everything = json.dumps((await server.ask("GET", alerts)).payload)
        assert f"{FOREIGN}-user" in everything
        status, text = await there.send("GET", alerts, None, there.eva)
        assert status == 200
        assert MARK not in text
        insights = await there.send("GET", "/insights", None, there.eva)
        assert insights[0] == 200
        assert MARK not in insights[1]
        listed = await there.send("GET", "/budgets", None, there.eva)
        assert '"percent": null' in listed[1]
        await server.ask("POST", "/budgets/evaluate", {})
        assert '"percent": null' not in (await there.send("GET", "/budgets", None, there.eva))[1]


async def test_a_check_for_savings_looks_at_own_calls(tmp_path: Path) -> None:
    """
    A check for savings by a limited person covers only own calls: its spend equals the person's own report. An
    Owner's check covers all calls.
    """
    async with place(tmp_path, ROLES["is"]) as there:
        spent = {}
        for name, headers in (
            ("eva", there.eva),
            ("root", await signed_in(there.server, "admin", "root@example.com")),
        ):
            checked = await there.server.over_http("GET", "/recommendation-check", headers=headers)
            report = await there.server.over_http("GET", "/report?range=last_30d", headers=headers)
            spent[name] = checked.payload["check"]["spent"]
            assert report.payload["total"]["cost"] == spent[name]
        assert {"eva": "3", "root": "6"} == spent


async def test_the_session_says_what_one_may_see(tmp_path: Path) -> None:
    """The session states the roles, their permission sets and whether they limit the person."""
    async with place(tmp_path, ROLES["is"]) as there:
        answer = await there.server.over_http("GET", "/session", headers=there.eva)
        assert {
            "permission_sets": sorted(PERMISSION_SETS),
            "roles": ["Part 0"],
            "is_limited": True,
            "cost_types": list(ROLE_COST_TYPES),
        } == answer.payload["rights"]
        root = await there.server.ask("GET", "/session")
        assert root.payload["rights"]["roles"] == ["Organizer"]
        assert root.payload["rights"]["is_limited"] is False


@pytest.mark.proves("A person with restricted access sees other calls")
async def test_who_sees_no_calls_sees_no_figures(tmp_path: Path) -> None:
    """
    With data access `none`, lists are empty, sums are zero, and nothing can be created because no
    filter is allowed.
    """
    async with place(tmp_path, None) as there:
        for row in ordered(OPERATOR_ADDRESSES):
            for path, body in (
                asked(row, there.own) if row.shows == SLICED and row.name not in ("tail",) else ()
            ):
                status, text = await there.send(row.methods[0], path, body, there.eva)
                named = [word for word in WORDS if f"{OWN}{word}" in text]
                assert not named, (row.name, text)
                is_refused = row.path_parameters or row.name in REFUSED
                assert (REFUSED.get(row.name, 404) if is_refused else 200) == status, (row.name, text)
        _, costs = await there.send("GET", "/report?by=team&range=this_year", None, there.eva)
        assert '"rows": []' in costs


def _check_status(operator_address: OperatorApiAddress, world: World, status: int, text: str) -> None:
    if operator_address.shows in (WHOLE, OPERATION):
        assert status == 403, (operator_address.name, text)
        assert "limited_data" in text, (operator_address.name, text)
    elif (
        operator_address.shows == SLICED
        and world.team == FOREIGN
        and (operator_address.path_parameters or operator_address.name in REFUSED)
    ):
        assert REFUSED.get(operator_address.name, 404) == status, (operator_address.name, status, text)
    else:
        is_off = operator_address.name == "end_provider_sessions" and status == 404
        assert 200 <= status < 300 or TO_THE_CONSOLE.get(operator_address.name) == status or is_off, (
            operator_address.name,
            status,
            text,
        )
