from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import orjson

from gateway.configuration.sections import Config, LedgerSettings, ViewSettings
from spool.registry.scopes import GROUPS
from spool.registry.views import NewView
from spool.settings import SpoolSettings
from spool.shares import KeyShare
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.spool.contract.examples import add, call

ALL = "/v2/views"
NEW = {"name": "Search", "filter": {"team": ["search"]}, "principal_dimension": "model", "connections": {}}
DAY = datetime(2026, 9, 21, tzinfo=UTC)
SPENT = (("search", "o3", "1"), ("search", "gpt-4o", "2"), ("ads", "o3", "4"), (None, "o3", "8"))


class Manager:
    def __init__(self, serving: Serving, key: str) -> None:
        self._serving = serving
        self._key = key

    @classmethod
    async def of(cls, serving: Serving) -> Manager:
        return cls(
            serving, await serving.make_key("manager", scopes=[*GROUPS["Views"], "billing:read_costs"])
        )

    async def ask(self, method: str, path: str, body: object = None, **query: str) -> tuple[int, Any]:
        sent, kind = (b"", None) if body is None else (orjson.dumps(body), "application/json")
        place = f"{path}?{urlencode(query)}" if query else path
        answer = await self._serving.send(place, sent, kind, method=method, key=self._key)
        return answer.status, orjson.loads(answer.body)

    async def create(self, **given: Any) -> dict[str, Any]:
        status, said = await self.ask("POST", ALL, {**NEW, **given})
        assert 200 == status, said
        made: dict[str, Any] = said
        return made

    async def costs(self, **query: str) -> list[str]:
        """Return the cost of each model on the day."""
        asked = {"start_date": "2026-09-21", "end_date": "2026-09-21", "group_by": "model", **query}
        status, said = await self.ask("GET", "/v2/billing/costs", **asked)
        assert 200 == status, said
        return [f"{row['model']} {row['cost']}" for row in said["costs"]]


async def spend(serving: Serving) -> None:
    storage = serving.app.services.storage
    calls = [
        call(number, at=DAY.timestamp(), team=team, request_model=model, cost=cost, cost_source="reported")
        for number, (team, model, cost) in enumerate(SPENT)
    ]
    await add(storage.log, *calls)
    await storage.ledger.catch_up(storage.log)


async def test_the_life_of_a_view(serving: Serving) -> None:
    """
    The life of a view over HTTP: creating and changing answer the bare view, and reading wraps it under its name.
    Every field comes back.
    """
    serving.app.services.operators.installation.require_registry().notices.channels = ("oncall",)
    manager = await Manager.of(serving)
    given = {
        "name": "Search, without tests",
        "filter": {"team": ["search", None], "!tag:service": ["tests"]},
        "principal_dimension": "model",
        "connections": {
            "email": {"addresses": ["ada@example.com"], "include_all_organizers": True},
            "slack": [{"id": "C1", "name": "costs"}],
            "notify": ["oncall"],
        },
        "anomalies": {"enabled": False, "threshold_type": "Percent", "threshold_value": 50},
        "granularity": "daily",
        "group_by": ["user"],
        "cost_type": "saved_cost",
        "range": "last_30d",
    }
    made = await manager.create(**given)
    assert given == {name: made[name] for name in given}
    assert made["broken"] is None
    assert float(made["created"]) == float(made["last_updated"]) > 1e9
    path = f"{ALL}/{made['id']}"
    assert (200, {"view": made}) == await manager.ask("GET", path)
    status, changed = await manager.ask("PATCH", path, {"name": "Ads", "filter": {}})
    assert status == 200
    assert changed["name"] == "Ads"
    assert changed["filter"] == {}
    assert given["anomalies"] == changed["anomalies"]
    assert (200, {"view": {"id": made["id"]}}) == await manager.ask("DELETE", path)
    assert 404 == (await manager.ask("GET", path))[0]


NO_VIEW: Sequence[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name must have"),
    ({"filter": None}, "filter"),
    ({"filter": {"colour": ["red"]}}, "Use one of: model"),
    ({"principal_dimension": "colour"}, "Use one of: model"),
    ({"connections": {"webhook": "https://example.com"}}, "webhook"),
    ({"connections": {"slack": [{"id": "C1"}]}}, "name"),
    ({"connections": {"notify": ["nobody"]}}, "not a channel of [[notify]]"),
    ({"anomalies": {"threshold_type": "Percent"}}, "threshold_value"),
    ({"anomalies": {"threshold_type": "Absolute"}}, "Absolute"),
    ({"range": "ever"}, "range must be one of today"),
]


async def test_what_is_no_view_is_refused(serving: Serving) -> None:
    """
    An invalid view is refused with the violated rule. Nothing is stored, and an existing view stays as it is.
    """
    manager = await Manager.of(serving)
    made = await manager.create(name="kept")
    for change, said in NO_VIEW:
        for method, path, body in (
            ("POST", ALL, {**NEW, **change}),
            ("PATCH", f"{ALL}/{made['id']}", change),
        ):
            status, answer = await manager.ask(method, path, body)
            assert status == 400, answer
            assert said in answer["error"]["message"], answer
        assert [made] == (await manager.ask("GET", ALL))[1]["views"], (change, said)


async def test_the_operator_hears_which_key_makes_nearly_all_that_it_may(serve: Serve) -> None:
    """
    The operator sees that one key created nearly all views that `views.max` allows. Views and insights that
    people created do not count towards a key.
    """
    serving = await serve(config=Config(spool=SpoolSettings(hold=0), views=ViewSettings(max=8)))
    registry, manager = serving.app.services.storage.registry, await Manager.of(serving)
    assert registry is not None
    for name in ("one", "two"):
        draft = NewView(name=name, filter={}, principal_dimension="model")
        await registry.views.create(draft, known_dimensions=("model",), max_rows=8, actor=ACTOR)
    await manager.create(name="three")
    assert "limit_held_by_key{" not in (await serving.app.services.single.exposition.current_text()).decode()
    for name in ("four", "five"):
        await manager.create(name=name)
    found = await serving.app.services.operators.senders.shares()
    assert [KeyShare("views.max", "manager", 3, 3)] == list(found)
    assert {"manager": 3, "": 2} == (await registry.row_counts_by_limit_and_key())["views.max"]


async def test_costs_inside_a_view(serving: Serving) -> None:
    """A view is named by id or name. Further filters narrow it, and a contradiction gives an empty result."""
    await spend(serving)
    manager = await Manager.of(serving)
    view = await manager.create(filter={"team": ["search", None], "!model": ["gpt-4o"]})
    assert ["o3 9"] == await manager.costs(view=view["id"]) == await manager.costs(view="search")
    assert ["o3 1"] == await manager.costs(view="Search", team="search")
    assert ["o3 8"] == await manager.costs(view="Search", filters='{"!team": ["search"]}')
    assert [] == await manager.costs(view="Search", team="ads")
    assert ["gpt-4o 2", "o3 13"] == await manager.costs()


async def test_query_of_a_view_with_a_removed_tag_is_refused(serve: Serve) -> None:
    """
    If a tag of the view was removed from `[ledger] tags`, the query is refused and never answered as empty.
    The view shows the same reason.
    """
    serving = await serve(config=Config(spool=SpoolSettings(hold=0), ledger=LedgerSettings(tags=())))
    registry = serving.app.services.operators.installation.require_registry()
    manager = await Manager.of(serving)
    made = await manager.create()
    view = registry.views.get(made["id"])
    await registry.views.change(
        view.id, {"filter": {"tag:gone": ("x",)}}, known_dimensions=("model", "tag:gone"), actor=ACTOR
    )
    _, page = await manager.ask("GET", ALL, is_broken="true")
    assert ["tag:gone" in each["broken"] for each in page["views"]] == [True]
    for word, said in ((view.id, "tag:gone"), ("nobody", "no view")):
        status, answer = await manager.ask("GET", "/v2/billing/costs", start_date="2026-09-21", view=word)
        assert status == 400
        assert said in answer["error"]["message"]
