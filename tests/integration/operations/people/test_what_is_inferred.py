"""A limited person cannot infer other people's activity from what they see of their own calls."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.http.event_streams import EVENT_STREAM
from gateway.operations.records import published as records
from gateway.operations.records.listing import STEP
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool.ledger.own_records import STEP as STEP_OF_OWN
from spool.registry.operators import Actor
from spool.registry.permission_sets import VIEW_RECORDS
from spool.registry.roles import LIMITED, NewRole, RoleLimits
from tests.integration.operations.people.test_limited_person import (
    CHANNEL,
    EVA,
    FOREIGN,
    OWN,
    ROLES,
    Place,
    asked,
    calls,
    place,
    quick_beat,
)
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import INGEST, operator_server
from tests.integration.operations.streams import listening
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG
from tests.spool.contract.examples import add, call

__all__ = ["quick_beat"]  # a fixture for all tests in this file

OWN_FILTER = {"filter": {"team": [OWN]}}


async def answered(there: Place, path: str) -> dict[str, Any]:
    answer = await there.server.over_http("GET", path, headers=there.eva)
    assert 200 == answer.status, answer.payload
    payload: dict[str, Any] = answer.payload
    return payload


def cursors(page: dict[str, Any]) -> Iterator[str]:
    """Yield the content of a list's cursors. They are signed, but anybody can read them."""
    for name in ("next_cursor", "previous_cursor"):
        cursor = page["pagination"]["cursor"][name] or ""
        yield urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("utf-8", "replace")


@pytest.mark.proves("A finding or a joint sum reveals what others spent")
async def test_calls_of_others_between_two_own_ones_cannot_be_counted(tmp_path: Path) -> None:
    """Log numbers rise by one with every call of anybody, so no row and no cursor shows them."""
    async with place(tmp_path, ROLES["is"]) as there:
        for world in (there.foreign, there.foreign, there.own):
            await there.records_of(world)
        everything = await there.server.ask("GET", "/records")
        numbers = {f"{row['number']:020}" for row in everything.payload["records"]}
        assert len(numbers) >= 4

        page = await answered(there, "/records?limit=1")
        [row] = page["records"]
        found = await answered(there, f"/records/{row['id']}")
        assert row["number"] is None
        assert found["number"] is None
        carried = "".join(cursors(page))
        assert "ai-telemetry" in carried and not [number for number in numbers if number in carried]

        own, path = [], "/records?limit=1"
        while path:
            page = await answered(there, path)
            own += [each["id"] for each in page["records"]]
            following = page["pagination"]["cursor"]["next_cursor"]
            path = following and f"/records?cursor={following}"
        assert 2 == len(own) == len(set(own))


async def test_rates_do_not_reveal_how_much_others_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if others send more records than a list searches, rates cover the same time as without them."""
    monkeypatch.setattr(records, "LOOKED_THROUGH", 4)
    async with place(tmp_path, ROLES["is"]) as there:
        told = []
        for pause_s in (9, 7):
            for world in (there.foreign, there.foreign, there.foreign, there.own):
                await there.records_of(world)
                there.server.clock.move(pause_s)
            whole = (await there.server.ask("GET", "/rates")).payload["rates"]["seconds"]
            seen = (await answered(there, "/rates"))["rates"]
            told.append((whole, seen["seconds"], seen["records"], seen["sources"][0]["per_s"]))
        assert [(36.0, 60.0, 2, 0.033), (28.0, 60.0, 2, 0.033)] == told


# maximum number of records that a list searches, in more than one step
LOOKED_THROUGH = 2000 if IS_LONG else 1100
FOREIGN_CALLS = LOOKED_THROUGH + 500  # more calls than any list searches


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the search limit, so that fewer foreign calls exceed it."""
    assert max(STEP, STEP_OF_OWN) < LOOKED_THROUGH < records.LOOKED_THROUGH
    monkeypatch.setattr(records, "LOOKED_THROUGH", LOOKED_THROUGH)


async def foreign_calls(there: Place) -> None:
    """Add FOREIGN_CALLS calls of the other team at the same time."""
    now = there.server.clock.now()
    [(example, _)] = calls(there.foreign, now, 0)
    for begin in range(10_000, 10_000 + FOREIGN_CALLS, 100):
        made = [call(number, at=now - 60) for number in range(begin, begin + 100)]
        kept = [(replace(example, id=record.id), known) for record, known in made]
        await add(there.server.services.spool.log, *kept)


@pytest.mark.proves("counting the calls of others")
@pytest.mark.usefixtures("short_looks")
async def test_no_answer_depends_on_the_calls_of_others(tmp_path: Path) -> None:
    """Every read of own and foreign objects is equal to the last byte after many calls of others."""

    async def answers(there: Place) -> dict[str, tuple[int, str]]:
        found = {}
        for row in OPERATOR_ADDRESSES:
            listens = any(EVENT_STREAM in content for content in row.gives.values())
            for world in (there.own, there.foreign) if row.methods == ("GET",) and not listens else ():
                for path, _ in asked(row, world):
                    ranked = ("sort_key=cost&sort_order=desc",) if row.path.endswith("/records") else ()
                    for limit in ("", "limit=1", *ranked) if row.lists else ("",):
                        whole = path + ("&" if "?" in path else "?") * bool(limit) + limit
                        if whole in found:  # the path names no object of a team
                            continue
                        status, text = await there.send("GET", whole, None, there.eva)
                        found[whole] = status, text.partition("} ")[2]
        return found

    async with place(tmp_path, ROLES["is"]) as there:
        for _ in range(3):
            await there.records_of(there.own)
        # run a report now, because the first report updates the totals
        await answered(there, "/report?by=team&range=this_year")
        before = await answers(there)
        await foreign_calls(there)
        after = await answers(there)
        assert 4 == json.loads(after["/records"][1])["pagination"]["total_count"]
        dearest = json.loads(after["/records?sort_key=cost&sort_order=desc"][1])["records"]
        assert [OWN] * 4 == [row["team"] for row in dearest]
        assert [] == [path for path in before if before[path] != after[path]]


@pytest.mark.proves("timing reveals changes of others")
@pytest.mark.usefixtures("short_looks")
async def test_tail_and_changes_do_not_depend_on_calls_of_others(tmp_path: Path) -> None:
    """
    `/tail` shows an own call after 2,500 calls of others and nothing about these. `/changes` stays silent
    until the own call arrives.
    """
    async with place(tmp_path, ROLES["is"]) as there:
        cookie = there.eva["Cookie"]
        async with (
            listening(there.server.url, cookie) as changes,
            listening(there.server.url, cookie, "/tail") as tail,
        ):
            await there.server.create("a key of others", scopes=[INGEST])
            await foreign_calls(there)
            await there.records_of(there.own)
            name, said = await tail.event()
            assert name == "record"
            assert said["team"] == OWN
            assert ("changed", {"what": ["records", "ledger", "budgets"]}) == await changes.event()
            budget = f"/budgets/{there.foreign.ids['budgets']}"
            assert 200 == (await there.server.ask("PATCH", budget, {"default_amount": "7"})).status
            own = f"/budgets/{there.own.ids['budgets']}"
            assert 200 == (await there.server.ask("PATCH", own, {"default_amount": "7"})).status
            assert "budgets" in (await changes.event())[1]["what"]


@pytest.mark.proves("A finding or a joint sum reveals what others spent")
async def test_budget_reveals_nothing_of_earlier_calls_of_its_view(tmp_path: Path) -> None:
    """
    If a budget's view changes from another team's calls to the person's own ones, the budget shows no figure until
    its next evaluation.
    """
    async with place(tmp_path, ROLES["is"]) as there:
        id, root = there.foreign.ids["budgets"], there.server
        for _ in range(3):
            await there.records_of(there.foreign)
        alerts = {"alerts": {"50": "Y", "1000": "Y"}, "per": None}
        changed = await root.ask("PATCH", f"/budgets/{id}", alerts)
        assert [50, 1000] == changed.payload["already_past"]
        assert 200 == (await root.ask("PATCH", f"/views/{there.foreign.ids['views']}", OWN_FILTER)).status

        assert (None, None, [], []) == await told_of(there, id)
        assert 200 == (await root.ask("POST", "/budgets/evaluate", {})).status
        assert (300, 300, [50], [50]) == await told_of(there, id)


async def told_of(there: Place, budget: str) -> tuple[int | None, int | None, list[int], list[int]]:
    """
    Return the budget's percentage in the list and on its page, and the alerts' percentages by owner and in
    the alert list.
    """
    [listed] = [each for each in (await answered(there, "/budgets"))["budgets"] if each["id"] == budget]
    shown = (await answered(there, f"/budgets/{budget}"))["budget"]
    [owner] = (await answered(there, f"/budgets/{budget}/owners"))["owners"]
    alerts = (await answered(there, f"/budgets/{budget}/alerts"))["alerts"]
    return listed["percent"], shown["percent"], owner["fired"], [each["percent"] for each in alerts]


@pytest.mark.proves("A finding or a joint sum reveals what others spent")
async def test_a_call_is_shown_once_no_report_can_say_any_more_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The first report names no team, and the role shows all teams but one. The second report names that team.

    So an open call is hidden until no later report can change its team.
    """
    async with operator_server(tmp_path, clock=MovedClock(), hold=10) as server:
        log, now = server.services.spool.log, server.clock.now()
        draft = NewRole(name="Part", data_access=LIMITED, filters=(ROLES["except"],),
                          permission_sets=(VIEW_RECORDS,), members=(EVA,))  # fmt: skip
        await server.registry.roles.create(
            draft, known_dimensions=("team",), limits=RoleLimits(), actor=Actor("root", "local")
        )
        headers = await signed_in(server, "none", EVA)

        async def shown() -> list[str | None]:
            answer = await server.over_http("GET", "/records", headers=headers)
            rows = answer.payload["records"]
            found = [await server.over_http("GET", f"/records/{id}", headers=headers) for id in ids]
            assert len(rows) == [each.status for each in found].count(200)
            return [row["team"] for row in rows]

        of_others, own = call(1, at=now), call(2, at=now)
        ids = [each[0].id.hex() for each in (of_others, own)]
        await add(log, of_others, own)
        assert [] == await shown()
        assert 2 == len((await server.ask("GET", "/records")).payload["records"])
        await add(log, call(1, at=now, team=FOREIGN))
        assert [] == await shown()
        server.clock.move(11)
        assert [None] == await shown()
        everybodys = (await server.ask("GET", "/records")).payload["records"]
        assert {FOREIGN, None} == {row["team"] for row in everybodys}
        monkeypatch.setattr(records, "LOOKED_THROUGH", 3)
        # add as many open records as a list searches
        await add(log, *(call(number, at=now) for number in (3, 4, 5)))
        assert [None] == await shown()
        rates = (await server.over_http("GET", "/rates", headers=headers)).payload["rates"]
        assert rates["seconds"] == 60
        assert rates["records"] == 1


@pytest.mark.proves("A person with restricted access learns names of hidden views, budgets, reports or plans")
async def test_name_in_use_reveals_nothing_about_objects_of_others(tmp_path: Path) -> None:
    """
    A name that a hidden view, budget or report of others already has is answered like a free name, and then means
    the person's own object. An own name can be used only once. A person who sees both objects gets an error about
    the conflict.
    """
    async with place(tmp_path, ROLES["is"]) as there:
        view = there.own.ids["views"]

        async def send(method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
            answer = await there.server.over_http(method, path, body, headers=there.eva)
            return answer.status, answer.payload

        bodies: dict[str, dict[str, Any]] = {
            "/views": {"filter": {"team": [OWN]}, "principal_dimension": "user"},
            "/scheduled-reports": {"view": view, "channels": [CHANNEL]},
        }
        for path, body in bodies.items():
            noun = path[1:-1].replace("-", "_")
            taken = [row["name"] for row in (await there.server.ask("GET", path)).payload[f"{noun}s"]]
            [name] = [each for each in taken if each.startswith(FOREIGN) and "spare" not in each]
            for method in ("GET", "PATCH", "DELETE"):
                told = [await send(method, f"{path}/{each}", {} if method == "PATCH" else None)
                        for each in (name, "a free name")]  # fmt: skip
                assert told[0] == told[1], (method, path)
            status, made = await send("POST", path, {**body, "name": name})
            assert status == 201
            assert made[noun]["name"] == name
            assert made[noun]["id"] == (await send("GET", f"{path}/{name}"))[1][noun]["id"]
            assert 409 == (await send("POST", path, {**body, "name": name.upper()}))[0]
            assert 409 == (await there.server.ask("POST", path, {**body, "name": name})).status
            shown = await there.server.ask("PATCH", f"{path}/{made[noun]['id']}", {"name": name.title()})
            assert 200 == shown.status, shown.payload
        hidden = {"name": "bill", "view": {"id": view}, "default_amount": "1", "cost_type": "billed_cost"}
        assert 201 == (await there.server.ask("POST", "/budgets", hidden)).status
        del hidden["cost_type"]
        assert 201 == (await send("POST", "/budgets", hidden))[0]


@pytest.mark.proves("A person with restricted access learns names of hidden views, budgets, reports or plans")
async def test_what_hangs_on_a_view_is_named_only_to_who_sees_it(tmp_path: Path) -> None:
    """Only people who see all calls may see plans, so a refusal to others does not name the plan."""
    async with place(tmp_path, ROLES["is"]) as there:
        view = there.own.ids["views"]
        body = {"name": "the secret plan", "view": view, "fee": "10"}
        made = await there.server.ask("POST", "/plans", body)
        assert 201 == made.status, made.payload
        budget = (await there.server.ask("GET", "/budgets")).payload["budgets"]
        for each in budget:
            await there.server.ask("DELETE", f"/budgets/{each['id']}", confirm=each["name"])
        refused = await there.server.over_http("DELETE", f"/views/{view}", headers=there.eva)
        assert refused.status == 409
        assert "secret" not in json.dumps(refused.payload)
        told = await there.server.ask("DELETE", f"/views/{view}")
        assert told.status == 409
        assert "the secret plan" in json.dumps(told.payload)
