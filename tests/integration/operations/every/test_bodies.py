"""Bodies and parameters of every operation: other fields, other types, other media types, unknown ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.integration.operations.every.declared import NOTHING, OPERATIONS, Operation, World
from tests.rounds import some

pytestmark = pytest.mark.asyncio(loop_scope="module")
# Values of each JSON type. Each field refuses at least one of them.
VALUES: tuple[Any, ...] = ("text", 1.5, True, None, [[]], {"other": [[]]})


WITH_FIELDS = [each for each in OPERATIONS if each.has_fields]


def is_of_devices(operation: Operation) -> bool:
    return operation.name.startswith("POST /v1/ai-control-plane/")


def wrong_values(kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    """Yield each field of a body with each value that its type refuses."""
    for field in msgspec.structs.fields(kind):
        for value in VALUES:
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                yield field.encode_name, value


async def test_a_field_that_is_not_declared_is_refused(world: World) -> None:
    """A misspelled field is named, instead of being ignored. Only devices may send fields of a newer agent."""
    for operation in WITH_FIELDS:
        if is_of_devices(operation):
            continue
        body = {**(world.body(operation) or {}), "unheard_of": 1}
        answer = await world.send(operation, world.path(operation), body)
        assert answer.status == 400, (operation.name, answer.said)
        assert "unheard_of" in answer.said, (operation.name, answer.said)


async def test_a_value_of_another_type_is_refused(world: World) -> None:
    """If the value of a field has another type, the error message names the field."""
    for operation in WITH_FIELDS:
        for name, value in some([*wrong_values(operation.kind)], every=5):
            body = {**(world.body(operation) or {}), name: value}
            answer = await world.send(operation, world.path(operation), body)
            assert answer.status == 400, (operation.name, name, value, answer.said)
            assert f"$.{name}" in answer.said, (operation.name, name, value, answer.said)


async def test_what_is_no_object_is_refused(world: World) -> None:
    """A body that is no JSON, JSON that is no object, and an empty body get 400."""
    for operation in WITH_FIELDS:
        for body in (b"{", b"[]", b"\xff", b"[" * 10_000, *(() if operation.row.may_be_empty else (b"",))):
            answer = await world.send(operation, world.path(operation), body)
            assert answer.status == 400, (operation.name, body[:9], answer.said)


async def test_another_media_type_is_refused(world: World) -> None:
    """
    A body with another media type is refused. Operations of keys whose row has no check accept any media type,
    because agents send it, or accept no body.
    """
    for operation in WITH_FIELDS:
        if not operation.is_for_people and operation.row.check is None:
            continue
        headers = {"Content-Type": "text/plain"}
        answer = await world.send(operation, world.path(operation), world.body(operation), **headers)
        assert answer.status == 415, (operation.name, answer.said)


async def test_an_unknown_parameter_of_people_is_refused(world: World) -> None:
    """An unknown parameter in a request of people is refused. The same is tested for keys in test_scopes.py."""
    for operation in OPERATIONS:
        if operation.is_for_people:
            path = world.path(operation) + "?unheard_of=1"
            answer = await world.send(operation, path, world.body(operation))
            is_off = getattr(operation.row, "needs", None) is None  # the sign-in by a provider
            is_read = operation.method == "GET" and NOTHING not in path and not is_off
            assert answer.status in ((400,) if is_read else (400, 404)), (operation.name, answer.said)


async def test_an_unknown_id_is_404(world: World) -> None:
    """
    An unknown id in the address gets 404. If the id also has a wrong form, it may get 400. Keys create streams and
    namespaces at their addresses, so these have no unknown id. A person whom nothing names yet has nothing to end.
    """
    for operation in OPERATIONS:
        path = world.path_of(operation, lambda *_: NOTHING)
        if NOTHING not in path or not (operation.is_for_people or operation.method in ("GET", "DELETE")):
            continue
        if operation.row.name == "let_person_leave":
            continue
        path += "".join(f"?{name}={NOTHING}" for name in operation.row.required)
        answer = await world.send(operation, path, world.body(operation))
        assert answer.status in (404, 400), (operation.name, answer.said)
