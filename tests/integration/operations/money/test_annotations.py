"""
Chart marks of a day: annotations, changed list prices and new models, within the calls that a person may see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.intake.prices import PriceBook
from gateway.operations.money.annotations import AnnotationTable
from spool.registry.operators import Actor
from spool.registry.roles import LIMITED, NewRole, RoleFilter, RoleLimits
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, tzinfo=UTC)
ROOT = Actor("root@example.com", "local")
EVA = "eva@example.com"
# Each row has team, time and model. A model with calls in August is not new in September.
CALLS = (
    ("search", "2026-08-03T09", "old-model"),
    ("search", "2026-09-02T09", "old-model"),
    ("search", "2026-09-04T23", "new-model"),
    ("search", "2026-09-05T09", "new-model"),
    ("checkout", "2026-09-07T09", "old-model"),
    ("checkout", "2026-09-08T09", "new-model"),
)
OVERRIDES = tuple(
    PriceOverride(model="old-model", since=since, input=Decimal(price), output=Decimal("10"))
    for since, price in (("", "3"), ("2026-09-03", "2.50"), ("2026-09-06", "2.5"), ("2026-10-01", "1"))
)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        book = PriceBook.load(PriceSettings(override=OVERRIDES))
        server.services.money.prices = lambda: book
        records = [
            call(
                number,
                at=datetime.fromisoformat(f"{at}:00+00:00").timestamp(),
                team=team,
                request_model=model,
            )
            for number, (team, at, model) in enumerate(CALLS)
        ]
        await add(server.services.spool.log, *records)
        yield server


async def marked(server: OperatorServer, query: str) -> list[tuple[str, str, str]]:
    answer = await server.ask("GET", f"/marks?{query}")
    assert 200 == answer.status, answer.payload
    return [(mark["day"], mark["kind"], mark["text"]) for mark in answer.payload["marks"]]


async def made(server: OperatorServer, path: str, **body: Any) -> Any:
    answer = await server.ask("POST", path, body)
    assert 201 == answer.status, answer.payload
    [one] = answer.payload.values()
    return one


async def a_view(server: OperatorServer, team: str) -> Any:
    return await made(server, "/views", name=team, filter={"team": [team]}, principal_dimension="model")


NEW = ("2026-09-04", "new_model", "First calls of new-model")
CHEAPER = ("2026-09-03", "list_prices", "List prices of old-model changed: input $3 → $2.5 a million")


async def test_changed_prices_and_new_models_are_marked_by_themselves(server: OperatorServer) -> None:
    """A price that is published again without a change is no mark. Days follow the requested time zone."""
    assert [CHEAPER, NEW] == await marked(server, "range=this_month")
    assert [NEW] == await marked(server, "from=2026-09-04&to=2026-09-10")
    assert [("2026-09-05", *NEW[1:])] == await marked(server, "from=2026-09-05&to=2026-09-10&tz=Asia/Tokyo")
    assert [] == await marked(server, "from=2026-09-05&to=2026-09-10")


async def test_model_is_new_relative_to_the_queried_calls(server: OperatorServer) -> None:
    """
    A team's first model is not new. With a year of calls before, a model that was not called in that year is new.
    """
    assert [("2026-09-08", *NEW[1:])] == await marked(server, "from=2026-09-04&where=team=checkout")
    view = await a_view(server, "checkout")
    assert [("2026-09-08", *NEW[1:])] == await marked(server, f"from=2026-09-04&view={view['id']}")
    assert [NEW] == await marked(server, "from=2026-09-04&where=team!=none")
    # With this filter, the model's first call is the start of the data, so the model is not new.
    assert [] == await marked(server, "from=2026-09-04&where=model=new-model")


async def test_days_with_only_daily_totals_are_not_divided(server: OperatorServer) -> None:
    """
    Days of which only daily totals remain are not divided. In Tokyo, the year before a day starts within a UTC day,
    and the daily totals are enough for it.
    """
    ledger, old = server.services.money.ledger, datetime(2025, 9, 4, 20, tzinfo=UTC).timestamp()
    await add(server.services.spool.log, call(100, at=old, team="search", request_model="old-model"))
    await ledger.catch_up(server.services.spool.log)
    assert 0 < await ledger.sum_up_and_delete_hours()
    assert [("2026-09-05", *NEW[1:])] == await marked(server, "from=2026-09-05&to=2026-09-10&tz=Asia/Tokyo")


async def test_annotation_appears_in_every_query_or_in_one_view(server: OperatorServer) -> None:
    """
    An annotation of a view appears in that view and among all calls. Other annotations appear everywhere.
    """
    views = [await a_view(server, team) for team in ("search", "checkout")]
    await made(server, "/annotations", day="2026-09-12", text="Contract begins")
    await made(server, "/annotations", day="2026-09-13", text="Index built", view="search")
    both = [("2026-09-12", "annotation", "Contract begins"), ("2026-09-13", "annotation", "Index built")]
    assert both == await marked(server, "from=2026-09-10")
    assert both == await marked(server, "from=2026-09-10&view=search")
    assert both[:1] == await marked(server, f"from=2026-09-10&view={views[1]['id']}")
    assert both[1:] == await marked(server, "from=2026-09-13")
    assert both[:1] == await marked(server, "from=2026-09-10&to=2026-09-12")
    listed = (await server.ask("GET", "/annotations")).payload["annotations"]
    assert [("2026-09-13", "search"), ("2026-09-12", None)] == [
        (row["day"], row["view_name"]) for row in listed
    ]
    await server.ask("DELETE", f"/views/{views[0]['id']}")
    assert both == await marked(
        server, "from=2026-09-10"
    )  # both annotations remain after the view was deleted
    assert both[:1] == await marked(server, "from=2026-09-10&view=checkout")


WRONG: Sequence[tuple[Any, str]] = [
    ({"day": "yesterday", "text": "x"}, "day"),
    ({"day": "2026-02-30", "text": "x"}, "day"),
    ({"day": "2026-09-12", "text": " "}, "text"),
    ({"day": "2026-09-12", "text": "x" * 201}, "text"),
    ({"day": "2026-09-12", "text": "x\ny"}, "text"),
    ({"day": "2026-09-12", "text": "x", "view": "nowhere"}, "view"),
]


async def test_what_is_wrong_is_named(server: OperatorServer) -> None:
    """An invalid annotation gets a 400 that names the field, and nothing is stored."""
    for body, field in WRONG:
        answer = await server.ask("POST", "/annotations", body)
        assert answer.status == 400, (body, field)
        assert answer.error[2].partition(" ")[0].rstrip(":") == field, (body, field)
        assert [] == server.registry.declared_table(AnnotationTable).all(), (body, field)


async def test_who_sees_a_part_of_the_calls_sees_the_marks_of_this_part(server: OperatorServer) -> None:
    """
    A limited person sees annotations of views within their own calls, and models that are new there. They may
    annotate only such a view.
    """
    for team in ("search", "checkout"):
        await a_view(server, team)
        await made(server, "/annotations", day="2026-09-12", text=f"by {team}", view=team)
    await made(server, "/annotations", day="2026-09-12", text="to all")
    draft = NewRole(
        name="Part",
        data_access=LIMITED,
        filters=(RoleFilter(dimension="team", values=("checkout",)),),
        members=(EVA,),
        permission_sets=("view_costs", "modify_views_and_budgets"),
    )
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
    eva = await signed_in(server, "none", EVA)

    async def ask(method: str, path: str, body: Any = None) -> Any:
        return await server.over_http(method, path, body, headers=eva)

    seen = (await ask("GET", "/marks?from=2026-09-04")).payload["marks"]
    assert ["First calls of new-model", "by checkout"] == [mark["text"] for mark in seen]
    assert "2026-09-08" == seen[0]["day"]
    words = {"day": "2026-09-14", "text": "mine"}
    refused = [await ask("POST", "/annotations", {**words, **more}) for more in ({}, {"view": "search"})]
    assert [403, 400] == [each.status for each in refused]
    assert 201 == (await ask("POST", "/annotations", {**words, "view": "checkout"})).status
    foreign = next(
        each.id for each in server.registry.declared_table(AnnotationTable).all() if each.text == "by search"
    )
    assert 404 == (await ask("PATCH", f"/annotations/{foreign}", {"text": "changed"})).status
    assert 404 == (await ask("DELETE", f"/annotations/{foreign}")).status


async def test_by_command(tmp_path: Path) -> None:
    """
    Annotations are created, listed, changed and deleted without a server. An empty view name removes the view.
    """

    async def run(*words: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--data", str(tmp_path)])
        assert 0 == result.exit_code, result.output
        return result.stdout

    await run("views", "create", "--name", "search", "--principal", "model", "--where", "team=search")
    shown = await run(
        "annotations", "create", "--day", "2026-09-12", "--text", "Checkout 4.2", "--view", "search"
    )
    id = next(line.split()[1] for line in shown.splitlines() if line.split()[0] == "id")
    assert "Checkout 4.2" in await run("annotations", "list") and "search" in await run("annotations", "list")
    assert "Checkout 4.3" in await run("annotations", "edit", id, "--text", "Checkout 4.3", "--view", "")
    assert "search" not in await run("annotations", "show", id)
    assert f"annotation {id} deleted" in await run("annotations", "delete", id)
    assert id not in await run("annotations", "list")
