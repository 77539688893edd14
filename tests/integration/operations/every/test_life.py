"""The life of each resource: what is created is shown, listed and audited, and is gone when it is deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import quote

import pytest

from gateway.core.paths import OPERATOR_API
from gateway.http import event_streams
from gateway.operations.records.changes import NEEDS
from spool.registry.permission_sets import PERMISSION_SETS
from tests.integration.operations.every.declared import (
    ADA,
    AT,
    COVERED,
    ELSEWHERE,
    MANAGED,
    NOTHING,
    RESOURCES,
    Answer,
    Resource,
    World,
    item_in,
)
from tests.integration.operations.streams import listening

pytestmark = pytest.mark.asyncio(loop_scope="module")
EACH = pytest.mark.parametrize("resource", COVERED, ids=lambda each: each.name)
AUDIT = AT["GET", f"{OPERATOR_API}/audit"]


async def one_more(world: World, resource: Resource) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Create one more; return it and the body."""
    answer, body = await world.create(resource)
    assert answer.status == resource.create.row.status, answer.said
    return item_in(answer.payload), body


def is_shown(stated: Any, shown: Any) -> bool:
    """
    Return whether a value is shown as it was stated: with more fields, fewer zeros, a longer name, in another order, or
    as the end of the day.
    """
    if isinstance(stated, dict) and isinstance(shown, dict):
        return all(is_shown(value, shown.get(name)) for name, value in stated.items())
    if isinstance(stated, list) and isinstance(shown, list):
        return len(stated) == len(shown) and all(any(is_shown(one, each) for each in shown) for one in stated)
    if isinstance(stated, str) and isinstance(shown, str):
        return (
            shown.endswith(stated) or amount(stated) == amount(shown) or shown.startswith(day_after(stated))
        )
    return bool(stated == shown)


def amount(text: str) -> Decimal | str:
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def day_after(text: str) -> str:
    try:
        return str(date.fromisoformat(text) + timedelta(days=1))
    except ValueError:
        return text


def check_shown(stated: Mapping[str, Any], item: Mapping[str, Any], answers: str) -> None:
    """Check that each stated field is shown. A field that is not part of the item is a secret."""
    for name, value in stated.items():
        if name in item:
            assert is_shown(value, item[name]), (name, value, item[name])
        else:
            assert json.dumps(value) not in answers, name


def agree(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Check that the fields of both items are equal."""
    names = first.keys() & second.keys()
    assert len(names) > 1
    assert [] == [name for name in names if first[name] != second[name]]


async def audited(world: World, resource: Resource, word: str, before: int) -> list[Mapping[str, Any]]:
    """Return the audit rows since a number of rows. They name the item, or the one that it belongs to."""
    answer = await world.send(AUDIT, f"{world.path(AUDIT)}?limit=10")
    rows: list[Mapping[str, Any]] = answer.payload["audit"][
        : answer.payload["pagination"]["total_count"] - before
    ]
    assert rows, resource.name
    belongs_to = {word, *world.ids.values()} if resource.has_parent else {word}
    for row in rows:
        assert row["actor"] == (ADA if resource.create.is_for_people else "automation"), row
        assert row["target"] in belongs_to, row
    return rows


async def audit_count(world: World) -> int:
    answer = await world.send(AUDIT, f"{world.path(AUDIT)}?limit=1")
    count: int = answer.payload["pagination"]["total_count"]
    return count


async def delete(world: World, resource: Resource, item: Mapping[str, Any]) -> Answer:
    """Delete an item. If the deletion must be confirmed, it is refused without the confirmation."""
    operation, word = resource.delete, resource.word(item)
    path = world.path(operation, word)
    if "confirm" not in operation.row.required:
        return await world.send(operation, path)
    for refused in ("", "?confirm=other"):
        answer = await world.send(operation, path + refused)
        assert answer.status == 400, answer.said
        assert "confirm" in answer.said
    texts = (item.get("name"), word)
    answers = [await world.send(operation, f"{path}?confirm={quote(str(text))}") for text in texts]
    return min(answers, key=lambda answer: answer.status)


async def empty(world: World, resource: Resource, item: Mapping[str, Any]) -> None:
    """Remove the members of each list of an item, where this is allowed, because an item in use is not deleted."""
    change = resource.at("PATCH")
    for name in [name for name, value in item.items() if isinstance(value, list)]:
        assert change is not None, resource.name
        await world.send(change, world.path(change, resource.word(item)), {name: []})


async def check_missing(world: World, resource: Resource, word: str) -> None:
    """Check that every operation on a single item answers 404."""
    for method in ("GET", "PATCH", "DELETE"):
        operation = resource.at(method)
        if operation is not None:
            confirmed = "".join(f"?{name}={quote(word)}" for name in operation.row.required)
            path = world.path(operation, word) + confirmed
            answer = await world.send(operation, path, world.body(operation))
            assert answer.status == 404, (operation.name, answer.said)
            assert answer.payload["error"]["type"] == "not_found", (operation.name, answer.said)


async def test_every_declared_resource_is_covered() -> None:
    """
    Every declared resource is covered by these tests. A new resource whose addresses have another form fails here
    and is named.
    """
    assert set() == MANAGED.keys() - {each.list.row.path for each in RESOURCES}
    assert ELSEWHERE.keys() < {each.name for each in RESOURCES}


@EACH
async def test_what_is_created_is_shown_and_listed(world: World, resource: Resource) -> None:
    """
    What is created is shown and listed: the answer, the list and the single item agree, and show each stated field.
    """
    item, body = await one_more(world, resource)
    word = resource.word(item)
    [listed] = [each for each in await world.rows(resource) if resource.word(each) == word]
    agree(item, listed)
    answers = json.dumps(listed)
    show = resource.at("GET")
    if show is not None:
        answer = await world.send(show, world.path(show, word))
        assert answer.status == 200
        agree(item, item_in(answer.payload))
        answers += answer.said
    check_shown(body, item, answers)


@EACH
async def test_each_change_is_audited(world: World, resource: Resource) -> None:
    """
    A creation, a change and a deletion leave audit rows with the actor, the item and its fields. A change that changes
    nothing leaves none.
    """
    before = await audit_count(world)
    item, body = await one_more(world, resource)
    word = resource.word(item)
    [*_, made] = await audited(world, resource, word, before)
    assert made["after"], made
    shown = {name: value for name, value in body.items() if name in made["after"]}
    assert all(is_shown(value, made["after"][name]) for name, value in shown.items()), made
    change = resource.at("PATCH")
    if change is not None:
        path, changed = world.path(change, word), world.body(change)
        before = await audit_count(world)
        for _ in range(2):
            answer = await world.send(change, path, changed)
            assert answer.status == 200, answer.said
        [row] = await audited(world, resource, word, before)
    await empty(world, resource, item)
    before = await audit_count(world)
    answer = await delete(world, resource, item)
    assert answer.status == 200, answer.said
    [row] = await audited(world, resource, word, before)
    assert row["before"], row


@EACH
async def test_a_change_is_shown(world: World, resource: Resource) -> None:
    """A change is shown and listed, and keeps the other fields."""
    change = resource.at("PATCH")
    if change is None:
        return
    item, _ = await one_more(world, resource)
    path, body = world.path(change, resource.word(item)), world.body(change)
    answer = await world.send(change, path, body)
    assert answer.status == 200, answer.said
    changed = item_in(answer.payload)
    check_shown(body, changed, answer.said)
    [listed] = [each for each in await world.rows(resource) if resource.word(each) == resource.word(changed)]
    agree(changed, listed)


@EACH
async def test_an_old_version_is_refused(world: World, resource: Resource) -> None:
    """
    If a change of a resource names an older version, it is refused and changes nothing. A change with the current
    version is accepted.
    """
    change = resource.at("PATCH")
    item, _ = await one_more(world, resource)
    if change is None or "version" not in change.kind.__struct_fields__:
        return
    path, body = world.path(change, resource.word(item)), world.body(change)
    first = await world.send(change, path, {**body, "version": item["version"]})
    assert first.status == 200, first.said
    changed = item_in(first.payload)
    assert changed["version"] != item["version"]
    again = await world.send(change, path, {**body, "version": item["version"]})
    assert (again.status, again.payload["error"]["type"]) == (409, "not_allowed"), again.said
    [listed] = [each for each in await world.rows(resource) if resource.word(each) == resource.word(item)]
    agree(changed, listed)
    current = await world.send(change, path, {**body, "version": changed["version"]})
    assert current.status == 200, current.said


@EACH
async def test_what_is_deleted_is_not_there(world: World, resource: Resource) -> None:
    """A deleted item is answered as one that never existed, and is not listed."""
    item, _ = await one_more(world, resource)
    await empty(world, resource, item)
    answer = await delete(world, resource, item)
    assert answer.status == 200, answer.said
    for word in (resource.word(item), NOTHING):
        await check_missing(world, resource, word)
    assert resource.word(item) not in [resource.word(each) for each in await world.rows(resource)]


async def test_the_live_stream_announces_each_resource(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console learns of each new item. If the stream has a name for the resource, an event states it."""
    monkeypatch.setattr(event_streams, "TICK_S", 0.01)
    signed = await world.sign_in(PERMISSION_SETS)
    async with listening(world.serving.url, signed["Cookie"]) as stream:
        for resource in COVERED:
            await one_more(world, resource)
            word, what = resource.name.rpartition("/")[2], set[str]()
            while not what or (word in NEEDS and word not in what):
                name, said = await stream.event()
                assert name == "changed", resource.name
                what.update(said["what"])
