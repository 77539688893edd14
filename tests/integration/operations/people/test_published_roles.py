from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from gateway.configuration.sections import Config, RoleSettings
from gateway.http import bodies
from spool.registry.operators import Actor
from spool.registry.roles import BUILTIN
from spool.registry.scopes import GROUPS
from tests.integration.conftest import Serve, Serving
from tests.spool.kept import audit_rows

ALL = "/v2/access-control/roles"
SETS = "/v2/access-control/permission_sets"
NEW = {"name": "Search", "data_access": "limited", "filters": [{"dimension": "team", "values": ["search"]}]}


class Manager:
    def __init__(self, serving: Serving, key: str) -> None:
        self._serving = serving
        self._key = key

    @classmethod
    async def of(cls, serving: Serving) -> Manager:
        return cls(serving, await serving.make_key("manager", scopes=[*GROUPS["Roles & Access Control"]]))

    async def ask(self, method: str, path: str, body: object = None, **query: str) -> tuple[int, Any]:
        sent, kind = (b"", None) if body is None else (orjson.dumps(body), "application/json")
        place = f"{path}?{urlencode(query)}" if query else path
        answer = await self._serving.send(place, sent, kind, method=method, key=self._key)
        return answer.status, orjson.loads(answer.body)

    async def create(self, **given: Any) -> dict[str, Any]:
        status, said = await self.ask("POST", ALL, {**NEW, **given})
        assert 200 == status, said
        made: dict[str, Any] = said["role"]
        return made


async def test_the_life_of_a_role(serving: Serving) -> None:
    """
    Every field of a role comes back under its name. The audit list and the role name the key that changed it.
    """
    manager = await Manager.of(serving)
    given = {
        "name": "Search, without tests",
        "description": "What search spends",
        "data_access": "limited",
        "filters": [
            {"dimension": "team", "values": ["search", None], "mode": "is"},
            {"dimension": "model", "values": ["opus"], "mode": "except"},
        ],
        "cost_types": ["real_cost", "billed_cost"],
        "permission_sets": ["view_recommendations", "view_costs"],
        "members": ["ada@example.com"],
        "groups": ["finance"],
    }
    made = await manager.create(**given)
    assert given == {name: made[name] for name in given}
    assert (False, None, "manager") == tuple(
        made[each] for each in ("is_builtin", "broken", "last_updated_by")
    )
    assert float(made["created"]) == float(made["last_updated"]) > 1e9
    path = f"{ALL}/{made['id']}"
    assert (200, {"role": made}) == await manager.ask("GET", path)
    changes = {"name": "Ads", "data_access": "none", "filters": []}
    status, said = await manager.ask("PATCH", path, changes)
    assert status == 200
    assert {name: said["role"][name] for name in changes} == changes
    status, said = await manager.ask("DELETE", path)
    assert status == 409
    assert "still has members: ada@example.com, the group finance" in said["error"]["message"]
    await manager.ask("PATCH", path, {"members": [], "groups": []})
    assert (200, {"role": {"id": made["id"]}}) == await manager.ask("DELETE", path)
    assert 404 == (await manager.ask("GET", path))[0]
    registry = serving.app.services.operators.installation.require_registry()
    rows = [row for row in await audit_rows(registry) if row.action.startswith("role.")]
    assert ["role.create", "role.change", "role.change", "role.delete"] == [row.action for row in rows]


async def test_roles_are_listed(serving: Serving) -> None:
    """
    The list of roles has the usual envelope, is sorted by name, and includes built-in roles. Filters and
    sorts are the declared ones.
    """
    manager = await Manager.of(serving)
    for name, members in (("b", []), ("a", ["ada@example.com", "bob@example.com"])):
        await manager.create(name=name, members=members)

    async def names(**query: str) -> list[str]:
        status, page = await manager.ask("GET", ALL, **query)
        assert 200 == status, page
        assert {"roles", "pagination", "filtering", "sorting"} == set(page)
        return [role["name"] for role in page["roles"]]

    assert ["a", "b", "Member", "Operator", "Organizer"] == await names()
    assert ["a", "b"] == await names(is_builtin="false")
    assert ["a"] == await names(member="bob@example.com")
    assert ["Member", "Operator", "Organizer"] == await names(data_access="full")
    assert ["Organizer"] == await names(permission_set="organization_administration")
    assert ["a", "b"] == (await names(sort_key="last_updated", sort_order="desc"))[:2]
    _, first = await manager.ask("GET", ALL, limit="2")
    cursor = first["pagination"]["cursor"]["next_cursor"]
    assert ["Member", "Operator"] == await names(limit="2", cursor=cursor)
    assert 400 == (await manager.ask("GET", ALL, colour="red"))[0]


async def test_permission_sets_are_listed(serving: Serving) -> None:
    """The list of permission sets contains the published names word for word."""
    manager = await Manager.of(serving)
    status, page = await manager.ask("GET", SETS)
    assert 200 == status
    names = [each["name"] for each in page["permission_sets"]]
    assert sorted(names, key=str.casefold) == names
    assert set(names) >= {
        "View Recommendations",
        "View Telemetry Stream Settings",
        "Organization Administration",
        "Modify Dimension Definitions",
        "API key management",
    }
    [one] = (await manager.ask("GET", SETS, id="api_key_management"))[1]["permission_sets"]
    assert ["view_operation"] == one["includes"]


async def test_built_in_roles_are_read_alone(serving: Serving) -> None:
    """
    Built-in roles are read-only: their times are null, and changes and deletions are refused with the reason.
    """
    manager = await Manager.of(serving)
    for id in BUILTIN:
        status, said = await manager.ask("GET", f"{ALL}/{id}")
        role = said["role"]
        assert status == 200, id
        assert role["is_builtin"] is True, id
        assert role["created"] is None, id
        assert role["last_updated_by"] is None, id
        for method, body in (("PATCH", {"name": "x"}), ("DELETE", None)):
            status, said = await manager.ask(method, f"{ALL}/{id}", body)
            assert status == 409
            assert "is built in" in said["error"]["message"]


REFUSED: Sequence[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name must have"),
    ({"data_access": "some"}, "full, limited, none"),
    ({"filters": []}, "needs at least one filter"),
    ({"filters": [{"dimension": "colour", "values": ["red"]}]}, "Use one of: model"),
    ({"filters": [{"dimension": "team", "values": []}]}, "at least one value"),
    ({"filters": [{"dimension": "team", "values": ["a"], "mode": "not"}]}, "is, except"),
    ({"filters": [{"dimension": "team"}]}, "values"),
    ({"permission_sets": ["everything"]}, "view_costs"),
    ({"cost_types": ["guessed_cost"]}, "billed_cost"),
    ({"members": ["ada"]}, "e-mail address"),
    ({"groups": ["a\nb"]}, "groups must have"),
]


async def test_what_is_refused(serving: Serving) -> None:
    """When a role is created or changed, a 400 names the field and the rule."""
    manager = await Manager.of(serving)
    made = await manager.create()
    for change, said in REFUSED:
        for method, path, body in (
            ("POST", ALL, {**NEW, "name": "Other", **change}),
            ("PATCH", f"{ALL}/{made['id']}", change),
        ):
            status, answer = await manager.ask(method, path, body)
            assert status == 400, answer
            assert said in answer["error"]["message"], answer
        assert 409 == (await manager.ask("POST", ALL, {**NEW, "name": "MEMBER"}))[0], (change, said)


async def test_the_limits_are_those_of_the_settings(serve: Serve) -> None:
    """
    Exactly the number of roles in the setting is accepted. One more is refused, and the message names the setting.
    """
    serving = await serve(config=Config(roles=RoleSettings(max_members=2, max_filters=2, max_values=3)))
    manager = await Manager.of(serving)
    team = {"dimension": "team", "values": ["a", "b"]}
    model = {"dimension": "model", "values": ["m"]}
    made = await manager.create(filters=[team, model], members=["a@x.y"], groups=["g"])
    for change, setting in (
        ({"filters": [model] * 3}, "roles.max_filters"),
        ({"filters": [team, team]}, "roles.max_values"),
        ({"members": ["a@x.y", "b@x.y"]}, "roles.max_members"),
    ):
        status, said = await manager.ask("PATCH", f"{ALL}/{made['id']}", change)
        assert status == 400, said
        assert setting in said["error"]["message"], said


async def test_a_key_that_is_disabled_while_its_body_is_on_the_way_changes_nothing(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a key is disabled while its request body is still being sent, the request changes nothing. So a sender cannot
    keep the rights of a key by holding back its body.
    """
    manager, registry = await Manager.of(serving), serving.app.services.storage.registry
    assert registry is not None
    begun, gate, read = asyncio.Event(), asyncio.Event(), bodies.read_body

    async def slow(*given: Any, **named: Any) -> bytes:
        begun.set()
        await gate.wait()
        return await read(*given, **named)

    monkeypatch.setattr(bodies, "read_body", slow)
    creating = asyncio.create_task(manager.ask("POST", ALL, NEW))
    await begun.wait()
    await registry.keys.disable("manager", actor=Actor("root", "local"))
    gate.set()
    status, said = await creating
    assert status == 401
    assert "this API key is disabled" in str(said)
    assert [*BUILTIN.values()] == registry.roles.all()
