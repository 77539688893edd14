"""Applied files and other features that change the same objects: limits, other sets, people, recalculations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession, UnixConnector

from gateway.core.paths import socket_path
from gateway.operations.files.kinds import file_kinds
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from tests.integration.operations.files.objects import CONTRACT, HOOK, OBJECTS, PLAN, ROLE, SECRETS, files_of
from tests.integration.operations.files.server import Api, api
from tests.integration.operations.money.test_published_budgets import CALL, Asking, asking
from tests.rounds import part

__all__ = ["asking"]
Objects = dict[str, list[dict[str, Any]]]
VIEW: dict[str, Any] = {"name": "Search", "filter": {}, "principal_dimension": "team"}
BUDGET: dict[str, Any] = {"name": "Monthly", "view": "Search", "default_amount": "5"}
DESK: dict[str, Any] = {**HOOK, "name": "desk"}
# The field of each kind that names an object, if people choose it freely. A role is deleted only without members.
NAMES = {
    **dict.fromkeys(
        ("channels", "keys", "views", "budgets", "plans", "contracts", "scheduled-reports"), "name"
    ),
    **dict.fromkeys(("enrolment-tokens", "clusters"), "name"),
    "prices": "model",
    "connections": "connection_id",
    "namespaces": "id",
    "allocation": "namespace",
}
FULL = {
    "channels.max": "channels",
    "roles.max": "roles",
    "prices.max": "prices",
    "views.max": "views",
    "budgets.max": "budgets",
    "plans.max": "plans",
    "contracts.max": "contracts",
    "scheduled_reports.max": "scheduled-reports",
    "clusters.max": "clusters",
    "billing.max_connections": "connections",
    "allocation.max_namespaces": "namespaces",
}


@pytest_asyncio.fixture
async def one(tmp_path: Path) -> AsyncIterator[Api]:
    async with api(tmp_path) as server:
        yield server


async def applied(one: Api, objects: Objects, **how: Any) -> list[str]:
    """Apply objects, with new secrets for the keys and tokens that need one. Return the lines of the plan."""
    files = files_of(objects, name=how.pop("name", "platform"))
    planned = await one.apply(files, dry_run=True, secrets=SECRETS, **how)
    assert not planned["problems"], planned["problems"]
    made = {path: file_kinds()[path.partition("/")[0]].new_secret() for path in planned["new_secrets"]}
    outcome = await one.apply(files, secrets={**SECRETS, **made}, **how)
    assert "applied" in outcome, outcome
    assert outcome["differences"] == planned["differences"]
    return [each["text"] for each in outcome["differences"]]


def renamed() -> Objects:
    """Return all objects under other names, which refer to the other names."""
    objects = deepcopy({kind: [*ones] for kind, ones in OBJECTS.items()})
    for kind, field in NAMES.items():
        for each in objects[kind]:
            each[field] = other(each[field])
            if "view" in each:
                each["view"] = other(each["view"])
            if "channels" in each:
                each["channels"] = [*map(other, each["channels"])]
            if notify := each.get("connections", {}).get("notify"):
                each["connections"]["notify"] = [*map(other, notify)]
    return objects


def other(name: str) -> str:
    return name if name == "default" else f"{name}-2"


@pytest.mark.proof
async def test_all_objects_are_renamed_at_the_limits(one: Api) -> None:
    """
    All objects can be renamed by one apply, even if no more objects are allowed than exist. The renamed objects
    have the secrets of the mounted files, and the terms and periods that no two objects may share.
    """
    installation = one.serving.app.services.operators.installation
    installation.most = lambda limit: len(OBJECTS[FULL[limit]])
    objects = {kind: [*ones] for kind, ones in OBJECTS.items()}
    await applied(one, objects)
    lines = await applied(one, renamed())
    count = sum(len(OBJECTS[kind]) for kind in NAMES)
    default = sum(each["namespace"] == "default" for each in OBJECTS["allocation"])
    assert [count - default] * 2 == [sum(line.startswith(sign) for line in lines) for sign in "+-"]
    assert await one.files() == files_of(renamed())
    further = {**renamed(), "prices": [*renamed()["prices"], {"model": "a", "input": "1", "output": "1"}]}
    refused = await one.apply(files_of(further))
    assert "the limit of 1 prices (prices.max) is reached" in refused
    await applied(one, objects)
    assert await one.files() == files_of()


async def test_seats_in_any_order_stay_as_they_are_after_a_link(one: Api) -> None:
    """
    Two seats of one person may not overlap. But if two names are linked later, a file that did not change is not
    refused.
    """
    seats = [{"user": name, "since": "2026-10-01"} for name in ("zoe@example.com", "bo@example.com")]
    role = {**ROLE, "members": ["zoe@example.com", "bo@example.com"]}
    objects: Objects = {"plans": [{"name": "copilot", "view": "Search", "fee": "19", "seats": seats}]}
    objects |= {"views": [VIEW], "roles": [role]}
    await applied(one, objects)
    assert not await applied(one, objects)
    people = {"people": [{"users": ["bo@example.com", "zoe@example.com"], "name": "Bo"}]}
    status, payload = await one.ask("POST", "/people", people)
    assert status < 300, payload
    assert not await applied(one, objects)


@pytest.mark.parametrize(("before", "after"), [("a", "z"), ("z", "a")])
async def test_a_term_moves_to_another_contract(one: Api, before: str, after: str) -> None:
    """
    A term can move to another contract. Two contracts may not have the same term, so one of them must be changed
    first.
    """
    first, second, *others = CONTRACT["terms"]
    for terms in ({before: [first, second], after: others}, {before: [second], after: [first, *others]}):
        contracts = [{**CONTRACT, "name": name, "terms": each} for name, each in terms.items()]
        assert 2 == len(await applied(one, {"contracts": contracts}))


async def test_objects_that_another_set_names_stay(one: Api) -> None:
    """
    If files remove an object that another set names, nothing of the set is applied, and the refusal names the file
    of that object.
    """
    await applied(one, {"views": [VIEW], "channels": [DESK]})
    await applied(one, {"budgets": [{**BUDGET, "channels": ["desk"]}]}, name="team")
    before = await one.files()
    refused = await one.apply(files_of({"channels": [DESK], "views": [{**VIEW, "name": "Other"}]}))
    assert refused.startswith("views.yaml:1:1: the view 'Search' is no longer in the files"), refused
    assert (
        "! view Search: exists, managed by platform, views.yaml:1; --adopt takes it over"
        == (await one.apply(files_of({"views": [VIEW], "budgets": [BUDGET]}, name="team"))).partition("\n")[0]
    )
    assert before == await one.files()
    await applied(one, {}, name="team")
    assert ["- view Search", "- channel desk"] == sorted(await applied(one, {}), reverse=True)


async def test_people_who_are_linked_and_forgotten_stay_in_their_files(one: Api) -> None:
    """Files name people in the way that their author chose: by address, by hash, or by a hash that nobody knows."""
    installation = one.serving.app.services.operators.installation
    known = installation.people.hash_address("ada@example.com")
    unknown = installation.people.hash_address("nobody@example.com")
    # the names are sorted in the way in which a plan stores its seats
    users = sorted(("bob@example.com", known, unknown))
    seats = [{"user": user, "since": "2026-10-01"} for user in users]
    filters = [{"dimension": "user", "values": ["ada@example.com", unknown]}]
    objects: Objects = {
        "views": [{**VIEW, "name": "no", "filter": {"user": [known, unknown, "ada@example.com"]}}],
        "plans": [{**PLAN, "seats": seats}],
        "roles": [{**ROLE, "filters": filters}],
    }
    await applied(one, objects)
    exported = await one.files()
    person = {"users": ["ada@example.com", "bob@example.com", "ada"], "name": "Ada"}
    for path, body in (("/people", {"people": [person]}), ("/people/forget", {"users": ["ada@example.com"]})):
        status, payload = await one.ask("POST", path, body)
        assert status in (200, 201), payload
        assert [] == await applied(one, objects)
        assert exported == await one.files() == files_of(objects)


PRIVACY: dict[str, Any] = {
    "name": "Privacy",
    "data_access": "none",
    "permission_sets": ["answer_privacy_requests"],
    "members": ["dpo@example.com"],
}


async def test_the_receipt_of_an_erasure_lists_files(one: Api) -> None:
    """
    After an erasure, plans show what differs from the old files. The exported files have the pseudonym, and are
    equal to what is stored.
    """
    people = {"people": [{"users": ["bob@example.com"], "name": "Bob"}]}
    assert 200 == (await one.ask("POST", "/people", people))[0]
    seats = [{"user": user, "since": "2026-10-01"} for user in ("bob@example.com", "cy@example.com")]
    plan = {"name": "Team", "view": "Search", "fee": "25", "seats": seats}
    objects: Objects = {"views": [VIEW], "plans": [plan], "roles": [PRIVACY]}
    await applied(one, objects)
    path, confirmed = "/people/bob@example.com/erase", {"confirm": "Bob"}
    status, payload = await one.ask("POST", path, confirmed, by="dpo@example.com")
    assert 200 == status, payload
    places = {place["place"]: place for place in payload["erasure"]["places"]}
    assert ["platform, plans.yaml:1"] == places["settings as files"]["listed"]
    assert "ask" == places["settings as files"]["state"]
    planned = await one.apply(files_of(objects), dry_run=True)
    assert ["plan Team"] == [f"{each['kind']} {each['name']}" for each in planned["differences"]]
    exported = await one.files()
    assert "bob@" not in str(exported)
    assert "erased:" in exported["plans.yaml"]
    assert [] == (await one.apply(exported))["differences"]


EVER = CostQuery(
    since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2040, 1, 1, tzinfo=UTC), granularity=TOTAL
)
# prices of a call of 150 tokens, by the own price of a million tokens
PRICES = {None: CALL, "5": Decimal("0.00075"), "20": Decimal("0.003")}


@pytest.mark.parametrize("seed", part(range(4), every=4))
async def test_recalculations_use_the_prices_of_applied_files(asking: Asking, seed: int) -> None:
    """
    Recalculations use the prices of applied files. The prices are applied while calls arrive and a recalculation
    runs. The next recalculation has the same prices.
    """
    rng, calls = Random(seed), 0
    connector = UnixConnector(str(socket_path(asking.serving.app.config.data_dir)))
    async with ClientSession(connector=connector) as socket:
        one = Api(asking.serving, socket)
        for _ in range(5):
            price, count = rng.choice([*PRICES]), rng.randint(1, 3)
            own = [] if price is None else [{"model": "gpt-4o", "input": price, "output": price}]
            steps = [one.apply(files_of({"prices": own})), recalculated(one), asking.calls(count)]
            rng.shuffle(steps)
            await asyncio.gather(*steps)
            calls += count
            await recalculated(one)
            assert PRICES[price] * calls == await cost(asking), (price, calls)


async def recalculated(one: Api) -> None:
    status, payload = await one.ask("POST", "/ledger/reprice", {"since": "2020-01-01"})
    assert 200 == status, payload


async def cost(asking: Asking) -> Decimal:
    rows = await asking.serving.app.services.operators.money.ledger.costs(EVER)
    return sum((Decimal(row.cost) for row in rows), Decimal(0))
